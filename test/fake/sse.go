package fake

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// SSE serves the transport of 2024-11-05: GET opens the stream, POST to the endpoint that it names sends messages.
func (s *Server) SSE() http.Handler { return http.HandlerFunc(s.serveSSE) }

func (s *Server) serveSSE(w http.ResponseWriter, r *http.Request) {
	body, ok := s.admit(w, r)
	if !ok {
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.openSSE(w, r)
	case http.MethodPost:
		s.postSSE(w, r, body)
	default:
		methodNotAllowed(w)
	}
}

func (s *Server) openSSE(w http.ResponseWriter, r *http.Request) {
	stream := &httpReply{w: w}
	defer stream.close()
	l := s.join(rand.Text(), stream.say)
	defer s.leave(l)
	s.session(l)
	endpoint := or(s.script.HTTP.Endpoint, r.URL.Path[:strings.LastIndex(r.URL.Path, "/")]+"/messages")
	stream.event("endpoint", []byte(endpoint+"?sessionId="+l.id))
	select {
	case <-r.Context().Done():
	case <-l.gone:
	case <-s.done:
	}
}

func (s *Server) postSSE(w http.ResponseWriter, r *http.Request, body []byte) {
	s.mu.Lock()
	l := s.sessions[r.URL.Query().Get("sessionId")]
	s.mu.Unlock()
	if l == nil {
		s.script.HTTP.Lost.or(http.StatusNotFound).write(w)
		return
	}
	m, err := jsonrpc.Parse(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !m.IsRequest() {
		s.hear(l, m)
		s.script.HTTP.Accepted.or(http.StatusAccepted).write(w)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	c := &call{link: l, m: m, modern: s.isModern(m), out: outlet{say: l.say, spill: func(context.Context, []byte) {}}}
	s.spawn(func() {
		var end func()
		c.ctx, end = l.begin(context.Background(), m.ID)
		defer end()
		reply, err := s.answer(c)
		switch {
		case err != nil:
			s.leave(l)
		case reply != nil && c.ctx.Err() == nil:
			l.say(reply)
		}
	})
}
