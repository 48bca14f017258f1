package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/policy"
	"github.com/mcpproxy/mcpproxy/upstream"
)

// Code is the stable name of a gateway error.
type Code string

const (
	UnknownAction    Code = "unknown_action"
	InvalidArguments Code = "invalid_arguments"
	UnknownServer    Code = "unknown_server"
	UnknownTool      Code = "unknown_tool"
	AmbiguousTool    Code = "ambiguous_tool"
	NotPermitted     Code = "not_permitted"
	Untrusted        Code = "untrusted"
	Disabled         Code = "disabled"
	NeedsAuth        Code = "needs_auth"
	ConnectFailed    Code = "connect_failed"
	Timeout          Code = "timeout"
	Cancelled        Code = "cancelled"
	UpstreamLost     Code = "upstream_lost"
	OutcomeUnknown   Code = "outcome_unknown"
	UpstreamError    Code = "upstream_error"
	TooLarge         Code = "too_large"
	Unsupported      Code = "unsupported"
)

// Error is what the gateway itself has to say about a failed action. It is written as {"error": {…}} in a tool result
// with isError, so that a model can read what happened and what to do next.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Server  string `json:"server,omitempty"`
	Tool    string `json:"tool,omitempty"`
	Stage   string `json:"stage,omitempty"` // how far a connection came: resolve, spawn, handshake, list, call
	Hint    string `json:"hint,omitempty"`  // what to do next

	Nearest    []string        `json:"nearest,omitempty"`    // names like the unknown one
	Candidates []Target        `json:"candidates,omitempty"` // what an ambiguous name may mean
	Violations []Violation     `json:"violations,omitempty"` // what is wrong with the arguments
	Mended     []Mend          `json:"mended,omitempty"`     // what was mended before they were found wrong
	Upstream   json.RawMessage `json:"upstream,omitempty"`   // the server's own JSON-RPC error
	ExitCode   *int            `json:"exitCode,omitempty"`
	HTTPStatus int             `json:"httpStatus,omitempty"`
	Stderr     []string        `json:"stderr,omitempty"` // last lines, redacted
	Stdout     []string        `json:"stdout,omitempty"` // sample of lines that were no messages, redacted
	RetryAt    *time.Time      `json:"retryAt,omitempty"`

	err error
}

// Target names a tool.
type Target struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
}

func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.err }

// asError makes the gateway's error of whatever an action failed with.
func asError(err error, p *policy.Policy) *Error {
	var (
		own     *Error
		denial  *policy.Denial
		fail    *upstream.Failure
		lost    *upstream.LostError
		timeout *upstream.TimeoutError
		rpc     *jsonrpc.Error
		output  *outputError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &denial):
		return &Error{Code: NotPermitted, Message: denial.Error(), Server: denial.Ref.Server, Tool: denial.Ref.Name, err: err,
			Hint: "the user's configuration forbids it; use another tool"}
	case errors.As(err, &fail):
		return ofFailure(fail)
	case errors.As(err, &lost):
		if lost.Sent {
			return &Error{Code: OutcomeUnknown, Server: lost.Server, Stage: string(upstream.Calling), err: err,
				Message: p.Text(lost.Error()),
				Hint:    "it may have been carried out: check before you call again; the next call reconnects"}
		}
		return &Error{Code: UpstreamLost, Server: lost.Server, Stage: string(upstream.Calling), err: err,
			Message: p.Text(lost.Error()), Hint: "nothing was carried out; call again, the server is reconnected"}
	case errors.As(err, &timeout):
		return &Error{Code: Timeout, Message: timeout.Error(), Server: timeout.Server, Stage: string(upstream.Calling), err: err,
			Hint: "the server was told to stop; ask for less, or raise callTimeoutMs in the user's configuration"}
	case errors.As(err, &rpc):
		return ofUpstream(rpc)
	case errors.As(err, &output):
		return &Error{Code: Code(output.Code), Message: output.Msg, Hint: output.Hint, err: err}
	case errors.Is(err, context.Canceled):
		return &Error{Code: Cancelled, Message: "the call was cancelled", err: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: Timeout, Message: "the time for this ran out", err: err}
	}
	return &Error{Code: UpstreamError, Message: p.Text(err.Error()), err: err}
}

// ofUpstream carries a server's own error: its words once, and over-large ones cut.
func ofUpstream(rpc *jsonrpc.Error) *Error {
	e := &Error{Code: UpstreamError, Message: fmt.Sprintf("the server answered with JSON-RPC error %d", rpc.Code), err: rpc}
	told := jsonrpc.Error{Code: rpc.Code, Message: cutBytes(rpc.Message, maxUpstreamText), Data: rpc.Data}
	if len(told.Data) > maxUpstreamText {
		told.Data, _ = compact(fmt.Sprintf("[mcpproxy: %d bytes of data were left out]", len(rpc.Data))) // a string: always encodes
	}
	e.Upstream, _ = compact(told)
	return e
}

// maxUpstreamText bounds the message and the data of a server's error, in bytes each.
const maxUpstreamText = 16 << 10

func ofFailure(f *upstream.Failure) *Error {
	e := &Error{Code: ConnectFailed, Message: f.Error(), Server: f.Server, Stage: string(f.Stage), Hint: f.Hint, err: f,
		ExitCode: f.ExitCode, HTTPStatus: f.HTTPStatus, Stderr: f.Stderr, Stdout: f.Noise}
	if f.NeedsAuth {
		e.Code = NeedsAuth
	}
	if !f.Retry.IsZero() {
		e.RetryAt = &f.Retry
	}
	return e
}

// maxNamed bounds what an error repeats of the asker's words, in bytes.
const maxNamed = 200

func invalid(format string, a ...any) *Error {
	return &Error{Code: InvalidArguments, Message: fmt.Sprintf(format, a...)}
}

func unknownTool(server, tool string, near []index.Ref) *Error {
	tool = cutBytes(tool, maxNamed)
	e := &Error{Code: UnknownTool, Server: server, Tool: tool, Message: fmt.Sprintf("there is no tool %q", tool),
		Hint: "find it with search_tools; nothing was called"}
	if server != "" {
		e.Message = fmt.Sprintf("server %q has no tool %q", server, tool)
	}
	for _, r := range near {
		e.Nearest = append(e.Nearest, r.Server+"."+r.Name)
	}
	return e
}
