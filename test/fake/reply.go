package fake

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
)

// httpReply is the body of one HTTP answer: JSON, or an event stream as soon as there is more to send than the result.
type httpReply struct {
	mu        sync.Mutex // guards all, and is held while writing
	w         http.ResponseWriter
	streaming bool
	closed    bool
}

// start makes it an event stream.
func (r *httpReply) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startLocked()
}

func (r *httpReply) startLocked() {
	if r.streaming || r.closed {
		return
	}
	r.streaming = true
	r.w.Header().Set("Content-Type", "text/event-stream")
	r.w.Header().Set("Cache-Control", "no-cache")
	r.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(r.w).Flush() // a client that is gone is fine
}

func (r *httpReply) started() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.streaming
}

func (r *httpReply) say(msg []byte) { r.event("message", msg) }

func (r *httpReply) event(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.startLocked()
	_, _ = fmt.Fprintf(r.w, "event: %s\ndata: %s\n\n", name, bytes.ReplaceAll(data, []byte("\n"), []byte("\ndata: ")))
	_ = http.NewResponseController(r.w).Flush() // a client that is gone is fine
}

func (r *httpReply) spill(ctx context.Context, part []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ctx.Err() == nil && !r.closed {
		_, err := r.w.Write(part)
		r.closed = err != nil
	}
}

func (r *httpReply) finish(answer []byte, status int) {
	r.mu.Lock()
	streaming := r.streaming
	if !streaming {
		r.w.Header().Set("Content-Type", "application/json")
		r.w.WriteHeader(status)
		_, _ = r.w.Write(answer) // a client that is gone is fine
	}
	r.mu.Unlock()
	if streaming {
		r.say(answer)
	}
}

// close keeps those who still hold it from writing after the handler has returned.
func (r *httpReply) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
