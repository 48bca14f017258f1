package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// sseWire is the wire to an HTTP+SSE server (MCP 2024-11-05): all that the server says comes on one stream of events,
// whose first tells where to POST. It is dead when the stream has ended.
type sseWire struct {
	*remote
	pending pending
	dead    chan struct{}

	// Under remote.mu:
	endpoint *url.URL
	spare    *url.URL // where the endpoint may be instead, nil when that is out of question
	lastErr  error    // why dead is closed
}

var _ wire = (*sseWire)(nil)

// dialSSE opens the stream and waits for its endpoint event. ctx bounds that alone. Its errors are ctx's, *httpError
// and *wireError. client is of newClient.
func dialSSE(
	ctx context.Context, spec *configs.Server, in inbound, log *slog.Logger, client *http.Client,
) (*sseWire, error) {
	w := &sseWire{remote: newRemote(spec, in, log, client), dead: make(chan struct{})}
	resp, ev, err := w.open(ctx, spec.URL)
	if err != nil {
		w.shut()
		w.running.Wait()
		return nil, err
	}
	w.spawn(func() { w.read(resp, ev) })
	return w, nil
}

func (w *sseWire) open(ctx context.Context, address string) (*http.Response, *events, error) {
	to, err := url.Parse(address)
	if err != nil {
		return nil, nil, &wireError{err: fmt.Errorf("%s: its URL cannot be read", w.server)}
	}
	resp, err := w.do(ctx, http.MethodGet, to, w.header(eventType, "", ""), nil)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK || !isEvents(resp) {
		e, _ := w.refusal(resp, 0, "")
		if e.status == http.StatusOK && e.message == "" {
			e.message = "no stream of events, but " + fold(resp.Header.Get("Content-Type"))
		}
		return nil, nil, w.failed(ctx, e)
	}
	ev := newEvents(resp.Body, w.max)
	if err = w.locate(ev, resp.Request.URL); err == nil {
		if resp.Body.(*reply).keep() { // from here on it lives as long as the wire
			return resp, ev, nil
		}
	}
	_ = resp.Body.Close()
	return nil, nil, w.failed(ctx, &wireError{err: fmt.Errorf("%s: %s: %w", w.server, shown(resp.Request.URL), err)})
}

// locate reads events up to the one that tells the endpoint.
func (w *sseWire) locate(ev *events, stream *url.URL) error {
	for {
		e, err := ev.next()
		if err != nil {
			return fmt.Errorf("the stream ended before its endpoint event: %w", err)
		}
		if e.kind != "endpoint" {
			continue
		}
		to, err := stream.Parse(strings.TrimSpace(string(e.data)))
		if err != nil {
			return errors.New("its endpoint event holds no URL")
		}
		if !sameOrigin(stream, to) {
			return fmt.Errorf("its endpoint, %s, is of another origin, where no messages are sent", shown(to))
		}
		if to.User == nil {
			to.User = stream.User
		}
		w.endpoint, w.spare = to, prefixed(stream, to)
		return nil
	}
}

// prefixed is where an endpoint is when something between has put a prefix before the server's paths that the server
// does not know of: /gw/sse and /messages make /gw/messages. It is nil when there is no such prefix.
func prefixed(stream, endpoint *url.URL) *url.URL {
	dir := stream.Path[:strings.LastIndexByte(stream.Path, '/')+1]
	if len(dir) <= 1 || strings.HasPrefix(endpoint.Path, dir) {
		return nil
	}
	for i := range dir { // what both have in common is the server's own: /gw/api/ and /api/messages
		if dir[i] == '/' && len(dir[i:]) > 1 && strings.HasPrefix(endpoint.Path, dir[i:]) {
			dir = dir[:i+1]
			break
		}
	}
	u := *endpoint
	u.Path, u.RawPath = dir+strings.TrimPrefix(endpoint.Path, "/"), ""
	return &u
}

// read takes in what the server says until its stream ends.
func (w *sseWire) read(resp *http.Response, ev *events) {
	e, err := ev.next()
	for ; err == nil; e, err = ev.next() {
		w.each(e.data, func(m jsonrpc.Message) {
			if !m.IsResponse() {
				w.in(m, 0)
			} else if !w.pending.settle(m) {
				w.log.Debug("skipped an answer that nobody waits for", "server", w.server, "id", string(m.ID))
			}
		})
	}
	_ = resp.Body.Close()
	switch {
	case w.life.Err() != nil:
		err = errClosed
	case err == io.EOF:
		err = errors.New("the server ended its stream of events")
	}
	err = fmt.Errorf("%s: %w", w.server, err)
	w.mu.Lock()
	w.lastErr = err
	w.mu.Unlock()
	w.pending.fail(err)
	close(w.dead)
}

func (w *sseWire) request(ctx context.Context, q outgoing) (jsonrpc.Message, error) {
	return w.patiently(ctx, q, w.attempt)
}

func (w *sseWire) attempt(ctx context.Context, q outgoing) (jsonrpc.Message, error) {
	answers, err := w.pending.add(q.id)
	if err != nil {
		return jsonrpc.Message{}, &wireError{err: err}
	}
	defer w.pending.drop(q.id)
	inner, end := context.WithCancel(w.life)
	keep := context.AfterFunc(ctx, end)
	posted := make(chan error, 1)
	if !w.spawn(func() { defer end(); posted <- w.post(inner, q.body) }) {
		end()
		return jsonrpc.Message{}, w.failed(ctx, &wireError{err: errClosed})
	}
	for {
		select {
		case a := <-answers:
			if posted != nil && keep() { // the POST's own answer is still to come; its connection shall live on
				time.AfterFunc(lingering, end)
			}
			if a.err != nil {
				return jsonrpc.Message{}, &wireError{sent: true, err: a.err}
			}
			return a.m, nil
		case err := <-posted:
			if posted = nil; err != nil {
				return jsonrpc.Message{}, w.failed(ctx, err)
			}
		case <-ctx.Done():
			return jsonrpc.Message{}, ctx.Err()
		}
	}
}

// post sends one message to the endpoint, and where that is not there, to the other place where it may be.
func (w *sseWire) post(ctx context.Context, body []byte) error {
	w.mu.Lock()
	to, spare, version := w.endpoint, w.spare, w.version
	w.mu.Unlock()
	h := w.header(bothTypes, "", version)
	h["Content-Type"] = []string{"application/json"}
	for first := ""; ; to, spare = spare, nil {
		resp, err := w.do(ctx, http.MethodPost, to, h, body)
		if err != nil {
			return err
		}
		if resp.StatusCode/100 == 2 {
			w.discard(resp)
			w.mu.Lock()
			w.endpoint, w.spare = resp.Request.URL, nil
			w.mu.Unlock()
			return nil
		}
		e, _ := w.refusal(resp, 0, "")
		if e.status == http.StatusNotFound && spare != nil {
			first = e.url
			continue
		}
		if first != "" {
			e.message = cut("nor is the endpoint at " + first + ", as the server says: " + e.message)
		} else {
			e.lost = e.status != http.StatusNotFound && sessionLost(e.status, false, e.message) ||
				e.status == http.StatusNotFound && lostHint.MatchString(e.message)
		}
		return e
	}
}

func (w *sseWire) send(ctx context.Context, msg []byte) error {
	return w.inOrder(ctx, func() error { return w.post(ctx, msg) })
}

func (w *sseWire) negotiated(version string, _ bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = version
}

func (w *sseWire) done() <-chan struct{} { return w.dead }

func (w *sseWire) vitals() vitals {
	w.mu.Lock()
	defer w.mu.Unlock()
	return vitals{lastErr: w.lastErr}
}

func (w *sseWire) close(context.Context) error {
	w.shut()
	w.running.Wait()
	return nil
}
