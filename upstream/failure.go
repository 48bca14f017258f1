package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	stderrTold  = 10 // last lines of stderr in a failure
	stderrShown = 20 // and in a state
)

// Stage is how far an attempt to use a server came.
type Stage string

const (
	Resolve   Stage = "resolve"   // find the command, expand the configuration
	Spawn     Stage = "spawn"     // start the process, reach the host
	Handshake Stage = "handshake" // initialize, server/discover
	List      Stage = "list"      // read what it offers
	Calling   Stage = "call"
)

// Failure is why there is no connection, or why a list could not be read. It is immutable.
type Failure struct {
	Server     string
	Stage      Stage
	NeedsAuth  bool
	Message    string   // one sentence
	ExitCode   *int     // stdio: of the process, when it ended
	HTTPStatus int      // HTTP: of the refusing answer
	Stderr     []string // last lines, redacted
	Noise      []string // sample of stdout lines that were no messages, redacted
	Hint       string   // what to do next
	At         time.Time
	Retry      time.Time // when the next attempt is due; zero: at the next use
	Err        error

	url bool // it is reached over HTTP: nothing is spawned
}

func (f *Failure) Error() string {
	what := string(f.Stage) + " failed"
	if f.Stage == Spawn && f.url {
		what = "could not be reached"
	}
	if f.NeedsAuth {
		what = "sign-in is needed"
	}
	s := fmt.Sprintf("server %q: %s: %s", f.Server, what, f.Message)
	switch {
	case f.ExitCode != nil && *f.ExitCode >= 0 && !strings.Contains(f.Message, "exit code"):
		s += fmt.Sprintf(" (exit code %d)", *f.ExitCode)
	case f.HTTPStatus != 0 && !strings.Contains(f.Message, "HTTP"):
		s += fmt.Sprintf(" (HTTP %d)", f.HTTPStatus)
	}
	return s
}

func (f *Failure) Unwrap() error { return f.Err }

// LostError is a connection that broke while a call was under way.
type LostError struct {
	Server string
	Sent   bool // the request may have been executed
	Err    error
}

func (e *LostError) Error() string {
	what := "the connection broke before the call was sent"
	if e.Sent {
		what = "the connection broke in mid-call"
		if !e.broken() {
			what = "the call was not answered"
		}
	}
	return fmt.Sprintf("server %q: %s: %s", e.Server, what, plain(e.Server, e.Err))
}

func (e *LostError) Unwrap() error { return e.Err }

// broken tells a connection that broke from an HTTP status that leaves open what has happened.
func (e *LostError) broken() bool {
	var refused *httpError
	return !errors.As(e.Err, &refused) || refused.lost
}

// TimeoutError is a call that took longer than the server's call timeout.
type TimeoutError struct {
	Server string
	After  time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("server %q: the call was not answered within %v", e.Server, e.After)
}

// plain is an error's text without the server's id, which the wires put first.
func plain(server string, err error) string {
	if err == nil {
		return "no reason is known"
	}
	return strings.TrimPrefix(err.Error(), server+": ")
}

// stageOf is how far an attempt to connect came that ended with err.
func stageOf(err error) Stage {
	var start *startError
	var broken *wireError
	switch {
	case errors.As(err, &start):
		return start.stage
	case errors.As(err, &broken) && !broken.sent && !errors.As(err, new(*exitError)):
		return Spawn
	}
	return Handshake
}

// fail makes what users see of an error. c is the connection that it happened on; nil when there is none.
func (s *Server) fail(stage Stage, err error, c *Conn) *Failure {
	f := &Failure{Server: s.id, Stage: stage, Message: plain(s.id, err), At: time.Now(), Err: err, url: s.Config().Transport != configs.Stdio}
	status := "`mcpproxy status " + s.id + "`"
	spec := s.Config()
	if f.Hint = "look at its stderr: " + status; spec.Transport != configs.Stdio {
		f.Hint = "check its url and that the server runs; details: " + status
	}
	var (
		start   *startError
		exit    *exitError
		refused *httpError
		answer  *jsonrpc.Error
	)
	switch {
	case errors.As(err, &start):
		if f.Hint = start.hint; f.Hint == "" {
			f.Hint = "check its command and PATH"
		}
	case errors.As(err, &exit):
		f.Message = plain(s.id, exit)
	case errors.As(err, &refused):
		f.HTTPStatus, f.NeedsAuth = refused.status, refused.status == http.StatusUnauthorized
		f.Hint = refusalHint(refused.status, f.Hint)
	case errors.As(err, &answer):
		f.Message = fmt.Sprintf("it answered %q (JSON-RPC error %d)", cut(fold(answer.Message)), answer.Code)
	case errors.Is(err, context.DeadlineExceeded) && stage == List:
		f.Message = "it did not answer in time"
		f.Hint = "raise discoveryTimeoutMs of this server; " + status
	case errors.Is(err, context.DeadlineExceeded):
		f.Message = fmt.Sprintf("it did not answer within %v", s.connectTimeout())
		f.Hint = "raise connectTimeoutMs of this server, or see what it is doing: " + status
	case errors.Is(err, context.Canceled):
		f.Message, f.Hint = "the attempt to connect was ended", "try again"
	}
	if stage == List {
		f.Hint += "; what it listed before stays usable, and it is asked again by itself"
	}
	if c != nil {
		v := c.wire.vitals()
		if v.exitCode != nil {
			f.ExitCode = new(*v.exitCode)
		}
		f.Stderr, f.Noise = s.redacted(v.stderr, stderrTold), s.redacted(v.sample, sampleLines)
	}
	f.Message = s.pool.Redact(f.Message)
	return f
}

func refusalHint(status int, other string) string {
	switch status {
	case http.StatusUnauthorized:
		return "it wants credentials: set auth or headers.Authorization of this server"
	case http.StatusForbidden:
		return "its credentials have no permission: check auth and headers of this server"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return "check its url: no MCP server answers there"
	case http.StatusTooManyRequests:
		return "it asks for fewer requests: try again later"
	}
	return other
}

// redacted are the last n lines as anyone may see them.
func (s *Server) redacted(lines []string, n int) []string {
	var out []string
	for _, l := range lines[max(0, len(lines)-n):] {
		out = append(out, s.pool.Redact(l))
	}
	return out
}

// gone is what those get who want something of a server that has left the configuration.
func (s *Server) gone() *Failure {
	return &Failure{
		Server: s.id, Stage: Resolve, At: time.Now(),
		Message: "its configuration has just changed, or the proxy is shutting down", Hint: "call again",
	}
}
