package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// The revisions that clients may speak: the handshake era by initialize, the stateless era by each request's _meta.
var (
	handshakeVersions = []string{mcp.ProtocolVersion20251125, mcp.ProtocolVersion20250618, mcp.ProtocolVersion20250326, mcp.ProtocolVersion20241105}
	modernVersions    = []string{mcp.ProtocolVersion20260728}
)

// maxInFlight bounds the requests that one client may have under way. Over stdio more of them are not read before others
// are answered; over HTTP they are refused.
const maxInFlight = 1024

// session is one client's side of a connection: what was negotiated, and which of its requests are under way.
type session struct {
	g *Gateway

	mu       sync.Mutex
	version  string                        // negotiated by initialize; "" before
	inFlight map[string]context.CancelFunc // by the id as the client wrote it
}

func newSession(g *Gateway) *session {
	return &session{g: g, inFlight: map[string]context.CancelFunc{}}
}

// answerTo is what a request comes to: a whole message, nil where no answer is due any more, and the error's code.
type answerTo struct {
	msg  []byte
	code int64
}

// receive takes one message of the client. A request is entered among those under way at once, so that a cancellation
// right behind it finds it; what is returned carries it out and may run elsewhere. It is nil for what wants no answer.
// notify, then, sends a message that belongs to this request before its answer; nil where the client can't be reached.
func (s *session) receive(ctx context.Context, m jsonrpc.Message) func(notify func(msg []byte)) answerTo {
	switch {
	case m.IsResponse():
		return nil // nothing is ever asked of a client
	case m.IsNotification():
		if m.Method == "notifications/cancelled" {
			s.cancel(jsonrpc.Member(m.Params, "requestId"))
		}
		return nil
	}
	ctx, done, err := s.begin(ctx, m.ID)
	if err != nil {
		return func(func([]byte)) answerTo { return answerTo{jsonrpc.AppendError(nil, m.ID, err), err.Code} }
	}
	return func(notify func([]byte)) (a answerTo) {
		defer done()
		defer func() { // a mistake of ours costs one request, never the others
			if p := recover(); p != nil {
				s.g.log.Error("a request panicked", "method", m.Method, "err", p, "stack", string(debug.Stack()))
				e := jsonrpc.Errorf(jsonrpc.CodeInternalError, "a mistake in mcpproxy; its log has the details")
				a = answerTo{jsonrpc.AppendError(nil, m.ID, e), e.Code}
			}
		}()
		result, err := s.answer(ctx, m, notify)
		switch {
		case errors.Is(context.Cause(ctx), errCancelled):
			return answerTo{} // the client wants no answer any more (MCP 2025-11-25, cancellation)
		case err != nil:
			return answerTo{jsonrpc.AppendError(nil, m.ID, err), err.Code}
		}
		return answerTo{msg: jsonrpc.AppendResult(make([]byte, 0, len(result)+64), m.ID, result)}
	}
}

var errCancelled = errors.New("cancelled by the client")

// begin enters a request among those under way. The key is the id's own bytes: 1 and "1" are two requests.
func (s *session) begin(ctx context.Context, id json.RawMessage) (context.Context, func(), *jsonrpc.Error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.inFlight) >= maxInFlight {
		cancel(nil)
		return nil, nil, jsonrpc.Errorf(-32000, "too many requests under way (%d)", maxInFlight)
	}
	if _, twice := s.inFlight[string(id)]; twice {
		cancel(nil)
		return nil, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "a request with id %s is under way already", cutBytes(string(id), 80))
	}
	key := string(id)
	s.inFlight[key] = func() { cancel(errCancelled) }
	return ctx, func() {
		s.mu.Lock()
		delete(s.inFlight, key)
		s.mu.Unlock()
		cancel(nil)
	}, nil
}

func (s *session) cancel(id json.RawMessage) {
	s.mu.Lock()
	cancel := s.inFlight[string(id)]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// answer carries out one request.
func (s *session) answer(ctx context.Context, m jsonrpc.Message, notify func([]byte)) (json.RawMessage, *jsonrpc.Error) {
	meta := jsonrpc.Member(m.Params, "_meta")
	modern := false
	if v := jsonrpc.Unquote(jsonrpc.Member(meta, mcp.MetaKeyProtocolVersion)); v != "" {
		if modern = slices.Contains(modernVersions, v); !modern && !slices.Contains(handshakeVersions, v) {
			return nil, unsupportedVersion(v)
		}
	}
	method := methods[m.Method]
	if method == nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "method not found: %s", cutBytes(m.Method, 100))
	}
	result, err := method(s, ctx, m.Params, notify)
	if err == nil && (modern || m.Method == "server/discover") {
		result = modernise(m.Method, result)
	}
	return result, err
}

func unsupportedVersion(v string) *jsonrpc.Error {
	e := jsonrpc.Errorf(jsonrpc.CodeUnsupportedProtocol, "unsupported protocol version %q", cutBytes(v, 40))
	e.Data, _ = json.Marshal(map[string]any{"supported": slices.Concat(modernVersions, handshakeVersions), "requested": cutBytes(v, 40)})
	return e
}

// modernise adds what revision 2026-07-28 wants of every result: its type, and how long a list may be kept.
func modernise(method string, result json.RawMessage) json.RawMessage {
	if jsonrpc.Member(result, "resultType") == nil {
		result = jsonrpc.SetMember(result, "resultType", json.RawMessage(`"complete"`))
	}
	if strings.HasSuffix(method, "/list") || method == "server/discover" {
		result = jsonrpc.SetMember(result, "ttlMs", json.RawMessage("0"))
		result = jsonrpc.SetMember(result, "cacheScope", json.RawMessage(`"private"`))
	}
	return result
}

// methods are the requests that a client may send.
var methods = map[string]func(*session, context.Context, json.RawMessage, func([]byte)) (json.RawMessage, *jsonrpc.Error){
	"initialize":               (*session).initialize,
	"server/discover":          (*session).discover,
	"ping":                     fixed(`{}`),
	"tools/list":               (*session).listTools,
	"tools/call":               (*session).callTool,
	"resources/list":           fixed(`{"resources":[]}`),
	"resources/templates/list": fixed(`{"resourceTemplates":[]}`),
	"prompts/list":             fixed(`{"prompts":[]}`),
}

func fixed(result string) func(*session, context.Context, json.RawMessage, func([]byte)) (json.RawMessage, *jsonrpc.Error) {
	return func(*session, context.Context, json.RawMessage, func([]byte)) (json.RawMessage, *jsonrpc.Error) {
		return json.RawMessage(result), nil
	}
}

// initialize negotiates: the client's revision where it is known, else the newest of the handshake era.
func (s *session) initialize(_ context.Context, params json.RawMessage, _ func([]byte)) (json.RawMessage, *jsonrpc.Error) {
	version := jsonrpc.Unquote(jsonrpc.Member(params, "protocolVersion"))
	if !slices.Contains(handshakeVersions, version) {
		version = handshakeVersions[0]
	}
	s.mu.Lock()
	s.version = version
	s.mu.Unlock()
	return s.g.introduction("protocolVersion", version), nil
}

func (s *session) discover(context.Context, json.RawMessage, func([]byte)) (json.RawMessage, *jsonrpc.Error) {
	return s.g.introduction("supportedVersions", slices.Concat(modernVersions, handshakeVersions)), nil
}

// introduction is what initialize and server/discover say of us. Nothing in it comes from a server.
func (g *Gateway) introduction(key string, versions any) json.RawMessage {
	info := map[string]string{"name": "mcpproxy", "title": "mcpproxy", "version": g.version}
	hello := map[string]any{key: versions, "capabilities": map[string]any{"tools": map[string]any{}}, "instructions": g.instructions()}
	if key == "protocolVersion" {
		hello["serverInfo"] = info
	} else {
		hello["_meta"] = map[string]any{mcp.MetaKeyServerInfo: info}
	}
	raw, _ := compact(hello) // strings and maps: always encodes
	return raw
}

// instructions are our own words and what the user's configuration calls its servers.
func (g *Gateway) instructions() string {
	var b strings.Builder
	b.WriteString("One door to many MCP servers. Find a tool with search_tools, read its schema with describe_tool where needed, call it with call_tool.")
	c := g.Config()
	n := 0
	for _, s := range c.Servers {
		if !s.Enabled {
			continue
		}
		if b.WriteString(map[bool]string{true: " Servers: ", false: ", "}[n == 0]); n == 50 {
			b.WriteString("and more")
			break
		}
		n++
		b.WriteString(plain(s.ID, 64))
		if s.Description != "" {
			fmt.Fprintf(&b, " (%s)", plain(s.Description, 120))
		}
	}
	if n > 0 {
		b.WriteByte('.')
	}
	return b.String()
}

// metaTools is the answer to tools/list, made once.
var metaTools = sync.OnceValue(func() json.RawMessage {
	var tools []json.RawMessage
	for i := range actions {
		if actions[i].Meta {
			tools = append(tools, actions[i].tool())
		}
	}
	return slices.Concat([]byte(`{"tools":`), contentOf(tools), []byte("}"))
})

func (s *session) listTools(context.Context, json.RawMessage, func([]byte)) (json.RawMessage, *jsonrpc.Error) {
	return metaTools(), nil
}

func (s *session) callTool(ctx context.Context, params json.RawMessage, notify func([]byte)) (json.RawMessage, *jsonrpc.Error) {
	name := jsonrpc.Unquote(jsonrpc.Member(params, "name"))
	if a := action(name); a == nil || !a.Meta {
		// A client that has seen tools elsewhere (a direct name, a search result) learns how to call them.
		return failed(&Error{Code: UnknownTool, Tool: cutBytes(name, 100), Message: fmt.Sprintf("there is no tool %q here", cutBytes(name, 100)),
			Hint: "this proxy has " + strings.Join(slices.Sorted(maps.Keys(metaNames())), ", ") + "; tools of servers are called through call_tool"}).Result, nil
	}
	ask := Ask{Action: name, Input: jsonrpc.Member(params, "arguments"), Meta: jsonrpc.Member(params, "_meta"), Surface: "mcp"}
	if notify != nil {
		ask.Notify = func(method string, params json.RawMessage) { notify(jsonrpc.AppendRequest(nil, nil, method, params)) }
	}
	return s.g.Do(ctx, ask).Result, nil
}

func metaNames() map[string]bool {
	names := map[string]bool{}
	for _, a := range actions {
		if a.Meta {
			names[a.Name] = true
		}
	}
	return names
}
