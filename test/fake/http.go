package fake

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// HTTP serves Streamable HTTP on every path.
func (s *Server) HTTP() http.Handler { return http.HandlerFunc(s.serveHTTP) }

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, ok := s.admit(w, r)
	if !ok {
		return
	}
	switch r.Method {
	case http.MethodPost:
		s.post(w, r, body)
	case http.MethodGet:
		s.get(w, r)
	case http.MethodDelete:
		s.delete(w, r)
	default:
		methodNotAllowed(w)
	}
}

// admit records a request and tells whether it is to be served: it refuses, redirects and breaks as the script says.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil { // the client is gone
		return nil, false
	}
	m, _ := jsonrpc.Parse(body) // no message: no method
	s.record(Record{
		Method: m.Method, Text: string(body), HTTP: r.Method, Path: r.URL.RequestURI(), Header: r.Header.Clone(),
	})
	script := s.script.HTTP
	if to := script.Redirect; to != nil && (to.To == "loop" || to.To != r.URL.Path) {
		target := to.To
		if target == "loop" {
			target = strings.TrimSuffix(r.URL.Path, "/")
			if target == r.URL.Path {
				target += "/"
			}
		}
		w.Header().Set("Location", target)
		w.WriteHeader(to.Status)
		return nil, false
	}
	s.mu.Lock()
	bearer := s.bearer
	s.mu.Unlock()
	if bearer != "" && r.Header.Get("Authorization") != "Bearer "+bearer {
		w.Header().Set("WWW-Authenticate", or(script.Challenge, "Bearer"))
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return nil, false
	}
	for name, want := range script.Require {
		if got := r.Header.Get(name); got != want {
			http.Error(w, fmt.Sprintf("header %s is %q, must be %q", name, got, want), http.StatusBadRequest)
			return nil, false
		}
	}
	if a := s.fault(r.Method, m.Method); a != nil {
		a.write(w)
		return nil, false
	}
	return body, true
}

// fault is the answer of the first fault that is due.
func (s *Server) fault(verb, method string) *Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.script.HTTP.Faults {
		if f.Method == "" && verb != http.MethodPost || f.Method != "" && f.Method != method && f.Method != verb {
			continue
		}
		s.faults[i]++
		if n := s.faults[i] - f.Skip; n > 0 && (f.Times == 0 || n <= f.Times) {
			return &f.Answer
		}
	}
	return nil
}

func (a *Answer) write(w http.ResponseWriter) {
	for k, v := range a.Header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body) // a client that is gone is fine
}

func (a *Answer) or(status int) *Answer {
	if a == nil {
		return &Answer{Status: status}
	}
	return a
}

func methodNotAllowed(w http.ResponseWriter) {
	w.Header().Set("Allow", "POST")
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
}

func refuse(w http.ResponseWriter, status int, id json.RawMessage, e *jsonrpc.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(jsonrpc.AppendError(nil, id, e)) // a client that is gone is fine
}

func (s *Server) post(w http.ResponseWriter, r *http.Request, body []byte) {
	m, err := jsonrpc.Parse(body)
	if err != nil {
		code := int64(jsonrpc.CodeParseError)
		if errors.Is(err, jsonrpc.ErrBatch) || errors.Is(err, jsonrpc.ErrNotMessage) {
			code = jsonrpc.CodeInvalidRequest
		}
		refuse(w, http.StatusBadRequest, nil, jsonrpc.Errorf(code, "%v", err))
		return
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		http.Error(w, "Content-Type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	if accept := strings.Join(r.Header.Values("Accept"), ","); !strings.Contains(accept, "application/json") ||
		!strings.Contains(accept, "text/event-stream") {
		refuse(w, http.StatusNotAcceptable, m.ID,
			jsonrpc.Errorf(-32000, "Not Acceptable: Client must accept both application/json and text/event-stream"))
		return
	}
	modern := s.isModern(m)
	link, lost := s.linkOf(r, m, modern)
	if lost != nil {
		lost.write(w)
		return
	}
	if link.brief {
		defer s.leave(link)
	}
	if !m.IsRequest() {
		s.hear(link, m)
		s.script.HTTP.Accepted.or(http.StatusAccepted).write(w)
		return
	}
	ctx, end := link.begin(r.Context(), m.ID)
	defer end()
	reply := &httpReply{w: w}
	defer reply.close()
	if m.Method == "initialize" && link.id != "" {
		w.Header().Set(headerSession, link.id)
	}
	if s.script.HTTP.SSE || m.Method == "subscriptions/listen" && modern {
		reply.start()
	}
	answer, err := s.answer(&call{
		ctx: ctx, link: link, m: m, modern: modern, header: r.Header, out: outlet{say: reply.say, spill: reply.spill},
	})
	if err == nil && answer == nil && reply.started() { // cancelled: the stream ends without a response
		return
	}
	if err != nil || answer == nil { // HTTP has no way to say nothing: the connection breaks
		panic(http.ErrAbortHandler)
	}
	if m.Method == "initialize" && link.negotiated() == "" { // refused
		s.leave(link)
		w.Header().Del(headerSession)
	}
	reply.finish(answer, s.statusOf(m.Method, answer, modern))
}

// statusOf is the HTTP status of a response: 2026-07-28 gives errors of the protocol one of their own.
func (s *Server) statusOf(method string, answer []byte, modern bool) int {
	var code int64
	e := jsonrpc.Member(answer, "error", "code")
	if e == nil || json.Unmarshal(e, &code) != nil {
		return http.StatusOK
	}
	if method == "initialize" && s.script.RefuseVersions {
		return http.StatusBadRequest
	}
	switch code {
	case jsonrpc.CodeMethodNotFound:
		if modern {
			return http.StatusNotFound
		}
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, jsonrpc.CodeInvalidParams,
		jsonrpc.CodeHeaderMismatch, jsonrpc.CodeMissingCapability, jsonrpc.CodeUnsupportedProtocol:
		if modern {
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// linkOf is whom a message comes from, or the answer that refuses it.
func (s *Server) linkOf(r *http.Request, m jsonrpc.Message, modern bool) (*link, *Answer) {
	script, version, id := s.script.HTTP, r.Header.Get(headerVersion), r.Header.Get(headerSession)
	refused := func(status int, e *jsonrpc.Error) (*link, *Answer) {
		body := string(jsonrpc.AppendError(nil, m.ID, e))
		return nil, &Answer{Status: status, Header: map[string]string{"Content-Type": "application/json"}, Body: body}
	}
	if modern || s.script.Era != Legacy && version >= modernVersion {
		if e := checkHeaders(r.Header, m); e != nil {
			return refused(http.StatusBadRequest, e)
		}
		modern = true
	}
	if modern || s.script.Era == Modern {
		l := s.join("", nil)
		l.brief = true
		return l, nil
	}
	if m.Method == "initialize" {
		id = ""
		if !script.NoSessions {
			id = rand.Text()
		}
		l := s.join(id, nil)
		s.session(l)
		return l, nil
	}
	if version != "" && !slices.Contains(s.versions(), version) {
		return refused(http.StatusBadRequest,
			jsonrpc.Errorf(-32000, "Bad Request: Unsupported protocol version: %s", version))
	}
	if id == "" && !script.NoSessions {
		return refused(http.StatusBadRequest, jsonrpc.Errorf(-32000, "Bad Request: No valid session ID provided"))
	}
	if script.NoSessions {
		id = ""
	}
	s.mu.Lock()
	l := s.sessions[id]
	s.mu.Unlock()
	switch {
	case l == nil && script.NoSessions: // as if it had been initialized at another instance
		l = s.join("", nil)
		l.agree(or(version, "2025-03-26"))
		s.session(l)
	case l == nil && script.Lost != nil:
		return nil, script.Lost
	case l == nil:
		return refused(http.StatusNotFound, jsonrpc.Errorf(-32001, "Session not found"))
	case script.StrictVersion && version != l.negotiated():
		return refused(http.StatusBadRequest,
			jsonrpc.Errorf(-32000, "%s is %q, negotiated was %q", headerVersion, version, l.negotiated()))
	}
	return l, nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	switch s.script.HTTP.Get {
	case "405":
		methodNotAllowed(w)
		return
	case "404":
		http.NotFound(w, r)
		return
	case "hang":
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
		panic(http.ErrAbortHandler)
	}
	id := r.Header.Get(headerSession)
	s.mu.Lock()
	l := s.sessions[id]
	s.mu.Unlock()
	if l == nil || r.Header.Get(headerVersion) >= modernVersion {
		methodNotAllowed(w)
		return
	}
	stream := &httpReply{w: w}
	defer stream.close()
	stream.start()
	l.stream(stream.say)
	select {
	case <-r.Context().Done():
	case <-l.gone:
	case <-s.done:
	}
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	l := s.sessions[r.Header.Get(headerSession)]
	s.mu.Unlock()
	if l == nil {
		http.NotFound(w, r)
		return
	}
	s.leave(l)
	s.script.HTTP.Delete.or(http.StatusOK).write(w)
}
