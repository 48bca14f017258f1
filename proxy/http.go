package proxy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	keepAlive     = 25 * time.Second // between comments on a silent stream
	bodyPatience  = 30 * time.Second // for a request's body to arrive
)

// Endpoint is MCP over Streamable HTTP (2025-03-26 to 2025-11-25 with sessions, 2026-07-28 without). It checks neither
// Host nor Origin: that is the guard's work in front of it.
//
// A client that closes the stream of a request cancels it, in every era: streams are not resumable, so its answer could
// reach nobody.
type Endpoint struct {
	g *Gateway

	mu       sync.Mutex
	sessions map[string]*httpSession
	swept    time.Time
}

type httpSession struct {
	*session
	used time.Time // under Endpoint.mu
}

// NewEndpoint serves g. Sessions end by DELETE or when they were not used for the configured time.
func NewEndpoint(g *Gateway) *Endpoint {
	return &Endpoint{g: g, sessions: map[string]*httpSession{}}
}

func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		e.post(w, r)
	case http.MethodGet:
		e.listen(w, r)
	case http.MethodDelete:
		if !e.drop(r.Header.Get(sessionHeader)) {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "MCP is spoken by POST here", http.StatusMethodNotAllowed)
	}
}

// post takes one message.
func (e *Endpoint) post(w http.ResponseWriter, r *http.Request) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "Content-Type must be application/json"))
		return
	}
	reading := http.NewResponseController(w)
	_ = reading.SetReadDeadline(time.Now().Add(bodyPatience)) // unsupported only by recorders in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
	_ = reading.SetReadDeadline(time.Time{})
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		refuse(w, http.StatusRequestEntityTooLarge, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "message over %d bytes", maxMessage))
		return
	}
	if err != nil {
		return // the client is gone
	}
	m, err := jsonrpc.Parse(body)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, refusal(m, err))
		return
	}
	s, status, rpcErr := e.sessionOf(w, r, m)
	if rpcErr != nil {
		refuse(w, status, m.ID, rpcErr)
		return
	}
	answer := s.receive(r.Context(), m)
	if answer == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out := &stream{w: w, sse: accepts(r, "text/event-stream"),
		modern: jsonrpc.Member(m.Params, "_meta", mcp.MetaKeyProtocolVersion) != nil}
	stop := out.keepAlive(r.Context())
	a := answer(out.notify)
	stop()
	out.finish(a)
}

// sessionOf finds the session that a message belongs to, and refuses what contradicts its revision's rules. A message of
// the stateless era, and one without a session id, gets a session for itself.
func (e *Endpoint) sessionOf(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) (*session, int, *jsonrpc.Error) {
	header := r.Header.Get(versionHeader)
	body := jsonrpc.Unquote(jsonrpc.Member(m.Params, "_meta", mcp.MetaKeyProtocolVersion))
	if header != "" && !slices.Contains(modernVersions, header) && !slices.Contains(handshakeVersions, header) {
		return nil, http.StatusBadRequest, unsupportedVersion(header)
	}
	if slices.Contains(modernVersions, body) || slices.Contains(modernVersions, header) {
		return e.stateless(r, m, header, body)
	}
	if m.Method == "initialize" {
		s := newSession(e.g)
		w.Header().Set(sessionHeader, e.add(s))
		return s, 0, nil
	}
	id := r.Header.Get(sessionHeader)
	if id == "" {
		return newSession(e.g), 0, nil
	}
	if s := e.find(id); s != nil {
		return s, 0, nil
	}
	return nil, http.StatusNotFound, jsonrpc.Errorf(-32001, "session not found: initialize again")
}

// stateless checks a message of revision 2026-07-28: headers and body must agree (SEP-2243).
func (e *Endpoint) stateless(r *http.Request, m jsonrpc.Message, header, body string) (*session, int, *jsonrpc.Error) {
	mismatch := func(msg string) (*session, int, *jsonrpc.Error) {
		return nil, http.StatusBadRequest, jsonrpc.Errorf(jsonrpc.CodeHeaderMismatch, "%s", msg)
	}
	s := newSession(e.g)
	if m.IsNotification() {
		// Without a session a cancellation can name nobody's request but another client's: closing the stream cancels.
		return s, 0, nil
	}
	if header != body {
		return mismatch("the " + versionHeader + " header (" + header + ") and _meta's protocol version (" + body + ") differ")
	}
	if err := mcp.ValidateStandardHeaders(r.Header.Get, body, mcp.MCPMethod(m.Method), m.Params); err != nil {
		return mismatch(err.Error())
	}
	return s, 0, nil
}

// listen is the stream for what a server sends unasked. In proxy mode the list of tools never changes, so it carries
// nothing but a sign of life.
func (e *Endpoint) listen(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/event-stream") {
		http.Error(w, "a GET here opens a stream: Accept must allow text/event-stream", http.StatusNotAcceptable)
		return
	}
	if id := r.Header.Get(sessionHeader); id != "" && e.find(id) == nil {
		http.Error(w, "session not found: initialize again", http.StatusNotFound)
		return
	}
	out := &stream{w: w, sse: true}
	out.comment()
	stop := out.keepAlive(r.Context())
	defer stop()
	select {
	case <-r.Context().Done():
	case <-e.g.life.Done():
	}
}

func (e *Endpoint) add(s *session) string {
	id := rand.Text()
	now := time.Now()
	idle := e.g.Config().Settings.SessionIdleTimeout
	e.mu.Lock()
	defer e.mu.Unlock()
	if now.Sub(e.swept) > time.Minute {
		e.swept = now
		for id, s := range e.sessions {
			if idle > 0 && now.Sub(s.used) > idle {
				delete(e.sessions, id)
			}
		}
	}
	e.sessions[id] = &httpSession{session: s, used: now}
	return id
}

func (e *Endpoint) find(id string) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, ok := e.sessions[id]
	if !ok {
		return nil
	}
	s.used = time.Now()
	return s.session
}

func (e *Endpoint) drop(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.sessions[id]
	delete(e.sessions, id)
	return ok
}

// accepts tells whether the client takes a media type; one that says nothing takes all.
func accepts(r *http.Request, want string) bool {
	values := r.Header.Values("Accept")
	if len(values) == 0 {
		return true
	}
	major, _, _ := strings.Cut(want, "/")
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && (t == want || t == "*/*" || t == major+"/*") {
			return true
		}
	}
	return false
}

func refuse(w http.ResponseWriter, status int, id json.RawMessage, err *jsonrpc.Error) {
	writeJSON(w, status, jsonrpc.AppendError(nil, id, err))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// stream is the answer to one request: plain JSON when nothing comes before it, else (and when it takes long) a stream
// of events.
type stream struct {
	w      http.ResponseWriter
	sse    bool // the client takes events
	modern bool // revision 2026-07-28: unknown methods are 404

	mu      sync.Mutex
	started bool
}

// notify sends a message before the answer; a client that takes no events misses it.
func (s *stream) notify(msg []byte) {
	if s.sse {
		s.event(msg)
	}
}

func (s *stream) event(msg []byte) {
	s.write(slices.Concat([]byte("event: message\ndata: "), msg, []byte("\n\n")))
}

// comment is a sign of life on a silent stream.
func (s *stream) comment() { s.write([]byte(": alive\n\n")) }

func (s *stream) write(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		h := s.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache, no-transform")
		h.Set("X-Accel-Buffering", "no")
		s.w.WriteHeader(http.StatusOK)
	}
	_, _ = s.w.Write(b) // a client that is gone ends the request's context
	_ = http.NewResponseController(s.w).Flush()
}

// keepAlive comments on a stream for as long as its request is silent, until the returned function is called.
func (s *stream) keepAlive(ctx context.Context) (stop func()) {
	if !s.sse {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(keepAlive)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				s.comment()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// finish sends the answer.
func (s *stream) finish(a answerTo) {
	switch {
	case s.started:
		if a.msg != nil {
			s.event(a.msg)
		}
	case a.msg == nil:
		s.w.WriteHeader(http.StatusAccepted)
	case a.code == jsonrpc.CodeMethodNotFound && s.modern:
		writeJSON(s.w, http.StatusNotFound, a.msg)
	case a.code == jsonrpc.CodeUnsupportedProtocol:
		writeJSON(s.w, http.StatusBadRequest, a.msg)
	default:
		writeJSON(s.w, http.StatusOK, a.msg)
	}
}
