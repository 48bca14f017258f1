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

type callInput struct {
	Server        string          `json:"server" required:"1"`
	Tool          string          `json:"tool" required:"1"`
	Arguments     json.RawMessage `json:"arguments" doc:"The tool's own arguments"`
	ArgumentsJSON string          `json:"argumentsJson" doc:"The same as a JSON string, if an object can't be given"`
}

// callNote rides in the result's _meta["mcpproxy/call"].
type callNote struct {
	Server     string      `json:"server"`
	Tool       string      `json:"tool"`
	Risk       string      `json:"risk"`
	Status     string      `json:"status"`
	DurationMs int64       `json:"durationMs"`
	Mended     []Mend      `json:"mended,omitempty"`
	Warning    string      `json:"warning,omitempty"` // the arguments could not be checked, and why
	Truncation *truncation `json:"truncation,omitempty"`
	Cache      *cacheRef   `json:"cache,omitempty"`
}

type truncation struct {
	Truncated     bool `json:"truncated"`
	ReturnedBytes int  `json:"returnedBytes"`
	TotalBytes    int  `json:"totalBytes"`
	ReturnedLines int  `json:"returnedLines"`
	TotalLines    int  `json:"totalLines"`
}

type cacheRef struct {
	ID   string `json:"id"`
	Read string `json:"read"` // the call that reads on
}

// call makes one tool call and hands the server's result through as it came.
func (g *Gateway) call(ctx context.Context, rq *request, in callInput) (any, error) {
	args := in.Arguments
	if in.ArgumentsJSON != "" {
		if len(args) > 0 && string(args) != "{}" && string(args) != "null" {
			return nil, invalid("both arguments and argumentsJson are given: give one of them")
		}
		if args = json.RawMessage(in.ArgumentsJSON); !jsonrpc.Valid(args) {
			e := invalid("the arguments are not well-formed JSON: %s", cutBytes(in.ArgumentsJSON, maxNamed))
			e.Hint = `write a JSON object, such as {"path": "notes.txt"}`
			return nil, e
		}
	}
	it, err := g.resolve(ctx, rq, in.Server, in.Tool)
	if err != nil {
		return nil, g.refused(in, err, rq.policy)
	}
	if it.Server == policy.Builtin {
		act := action(it.Name)
		answer, err := act.run(g, ctx, rq, args)
		if err != nil {
			e := asError(err, rq.policy)
			e.Server, e.Tool = policy.Builtin, it.Name
			return nil, e
		}
		return answer, nil
	}
	args, mended, violations, warning := g.checker.check(it.Hash, jsonrpc.Member(it.Raw, "inputSchema"), args)
	if violations != nil {
		return nil, g.refused(in, &Error{Code: InvalidArguments, Server: it.Server, Tool: it.Name, Violations: violations, Mended: mended,
			Message: fmt.Sprintf("the arguments do not fit the tool's input schema (%d violations); nothing was called", len(violations)),
			Hint:    "mend them and call again; describe_tool shows the whole schema"}, rq.policy)
	}
	note := callNote{Server: it.Server, Tool: it.Name, Risk: string(policy.Assess(it).Risk), Status: "completed", Mended: mended, Warning: warning}
	return g.carryOut(ctx, rq, it, args, note)
}

// carryOut sends the call and writes what became of it into the journal.
func (g *Gateway) carryOut(ctx context.Context, rq *request, it *index.Item, args json.RawMessage, note callNote) (any, error) {
	srv, ok := g.pool.Server(it.Server)
	if !ok {
		return nil, &Error{Code: Disabled, Server: it.Server, Tool: it.Name, Message: fmt.Sprintf("server %q is not running any more", it.Server),
			Hint: "the configuration has changed; search again"}
	}
	info := CallInfo{ID: fmt.Sprintf("c%d", g.calls.Add(1)), Timestamp: time.Now(), Server: it.Server, Tool: it.Name, Risk: note.Risk, Status: "started"}
	g.journal.add(Event{Kind: CallStart, Server: it.Server, Call: new(info)})

	result, err := srv.Call(ctx, upstream.Request{Method: "tools/call", Params: callParams(it.Name, args, rq.Meta),
		Repeatable: policy.Repeatable(it), Notify: rq.Notify})
	took := time.Since(info.Timestamp)
	note.DurationMs, info.DurationMs = took.Milliseconds(), took.Milliseconds()

	var answer any
	if err == nil {
		var res passed
		res, err = g.bound(it, srv.Config().Limits, result, &note)
		info.Bytes, info.Truncated = len(result), note.Truncation != nil
		answer = res
	}
	info.Status = "completed"
	if err != nil {
		e := asError(err, rq.policy)
		e.Server, e.Tool = it.Server, it.Name
		if info.Status, info.Code = "failed", string(e.Code); e.Code == Cancelled {
			info.Status = "cancelled"
		}
		err = e
	} else if answer.(passed).isError {
		info.Status = "failed"
	}
	g.journal.add(Event{Kind: CallEnd, Server: it.Server, Call: &info})
	return answer, err
}

// refused writes a call that was never made into the journal.
func (g *Gateway) refused(in callInput, err error, p *policy.Policy) error {
	e := asError(err, p)
	if e.Server == "" {
		e.Server = in.Server
	}
	if e.Tool == "" {
		e.Tool = in.Tool
	}
	now := time.Now()
	g.journal.add(Event{Kind: CallEnd, Server: e.Server, Call: &CallInfo{ID: fmt.Sprintf("c%d", g.calls.Add(1)), Timestamp: now,
		Server: cutBytes(e.Server, 100), Tool: cutBytes(e.Tool, 100), Risk: string(policy.Unknown), Status: "failed", Code: string(e.Code)}})
	return e
}

// callParams are the params of the server's tools/call: its own name, the arguments' bytes, and what of the client's
// _meta is the server's business.
func callParams(tool string, args, meta json.RawMessage) json.RawMessage {
	b := append([]byte(`{"name":`), quote(tool)...)
	b = append(append(b, `,"arguments":`...), args...)
	if meta = passedMeta(meta); meta != nil {
		b = append(append(b, `,"_meta":`...), meta...)
	}
	return append(b, '}')
}

// passedMeta is a client's _meta without what concerns the hop between it and us alone.
func passedMeta(meta json.RawMessage) json.RawMessage {
	var out json.RawMessage
	_ = jsonrpc.Members(meta, func(key string, val json.RawMessage) bool { // absent or no object: nothing to pass
		if !hopKeys[key] {
			out = jsonrpc.SetMember(out, key, val)
		}
		return true
	})
	return out
}

// hopKeys are the _meta keys of revision 2026-07-28 that describe one hop: client and server of each hop say their own.
var hopKeys = map[string]bool{
	"io.modelcontextprotocol/protocolVersion":    true,
	"io.modelcontextprotocol/clientInfo":         true,
	"io.modelcontextprotocol/clientCapabilities": true,
	"io.modelcontextprotocol/logLevel":           true,
	"io.modelcontextprotocol/subscriptionId":     true,
}

var errInputRequired = errors.New("the server asks for input in mid-call, which is not allowed by its configuration")
