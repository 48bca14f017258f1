package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	bothTypes    = "application/json, text/event-stream"
	eventType    = "text/event-stream"
	resumesMax   = 3           // in a row that bring nothing
	resumePause  = time.Second // before a resume, when the server has not said
	listenPause  = time.Second // before the second try of the optional stream; doubles
	listenLonger = 60 * time.Second
)

// httpWire is the wire to a Streamable HTTP server (MCP 2025-03-26 and later): each message is a POST of its own, whose
// answer is JSON or a stream of events. It is never dead by itself.
//
// Its goroutines: the optional GET stream of the handshake eras (see listen), and short ones that read answers to their
// ends.
type httpWire struct {
	*remote
	once sync.Once // close

	// Under remote.mu:
	to        *url.URL // moves with redirects
	session   string   // Mcp-Session-Id
	listening bool
	lastErr   error
}

var _ wire = (*httpWire)(nil)

// dialHTTP makes the wire; nothing is sent before the first request. client is of newClient.
func dialHTTP(spec *configs.Server, in inbound, log *slog.Logger, client *http.Client) *httpWire {
	w := &httpWire{remote: newRemote(spec, in, log, client)}
	var err error
	if w.to, err = url.Parse(spec.URL); err != nil {
		w.to = &url.URL{} // every request says that it is unsupported
	}
	return w
}

// moment is what one request depends on, as it stands when the request is made.
type moment struct {
	to               *url.URL
	session, version string
	modern           bool
}

func (w *httpWire) now() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := moment{to: w.to, session: w.session, version: w.version, modern: w.modern}
	if m.modern {
		m.session = ""
	}
	return m
}

// resumable tells whether a stream that breaks off can be continued: in the first and the last era nothing is kept.
func (m *moment) resumable() bool { return !m.modern && m.version >= "2025-03-26" }

func (w *httpWire) request(ctx context.Context, q outgoing) (jsonrpc.Message, error) {
	return w.patiently(ctx, q, w.attempt)
}

func (w *httpWire) attempt(ctx context.Context, q outgoing) (jsonrpc.Message, error) {
	s := w.now()
	if q.method == "initialize" { // begins a session, so it has none
		s.session, s.version = "", ""
	}
	resp, err := w.post(ctx, s, q.header, q.body)
	if err != nil {
		return jsonrpc.Message{}, err
	}
	if resp.StatusCode/100 != 2 {
		e, m := w.refusal(resp, q.id, s.session)
		if ctx.Err() != nil {
			return jsonrpc.Message{}, ctx.Err()
		}
		if m != nil {
			return *m, nil
		}
		return jsonrpc.Message{}, e
	}
	if q.method == "initialize" {
		w.adopt(resp.Header.Get("Mcp-Session-Id"))
	}
	if isEvents(resp) {
		return w.follow(ctx, s, q, resp)
	}
	body, err := w.whole(resp)
	if err != nil {
		return jsonrpc.Message{}, w.brokenOff(ctx, err)
	}
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) == 0 {
		return jsonrpc.Message{}, w.brokenOff(ctx, fmt.Errorf("HTTP %d without an answer to %s", resp.StatusCode, q.method))
	}
	if trimmed[0] == '{' || trimmed[0] == '[' { // whatever its type is said to be
		if m, ok := w.sift(body, q.id); ok {
			return w.verdict(m, s, resp)
		}
		if jsonrpc.Valid(body) {
			err = fmt.Errorf("it sent JSON that is no answer to %s: %s", q.method, readable(body))
			return jsonrpc.Message{}, w.brokenOff(ctx, err)
		}
	}
	return jsonrpc.Message{}, &httpError{
		status: resp.StatusCode, header: resp.Header, message: readable(body), url: shown(resp.Request.URL),
	}
}

// post sends one message and remembers where it has ended up.
func (w *httpWire) post(ctx context.Context, s moment, more http.Header, body []byte) (*http.Response, error) {
	h := w.header(bothTypes, s.session, s.version)
	h["Content-Type"] = []string{"application/json"}
	for k, v := range more {
		h[http.CanonicalHeaderKey(k)] = v
	}
	resp, err := w.do(ctx, http.MethodPost, s.to, h, body)
	if err == nil && resp.Request.URL != s.to && resp.StatusCode < 400 {
		w.mu.Lock()
		w.to = resp.Request.URL
		w.mu.Unlock()
	}
	return resp, err
}

// adopt takes the session that an answer to initialize begins.
func (w *httpWire) adopt(id string) {
	for _, c := range []byte(id) {
		if c < 0x21 || c > 0x7e {
			w.log.Warn("the server's session id has characters that none may have; it is not used", "server", w.server)
			id = ""
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = id
}

func isEvents(resp *http.Response) bool {
	t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return t == eventType
}

// verdict tells errors that are about the transport from answers to the request.
func (w *httpWire) verdict(m jsonrpc.Message, s moment, resp *http.Response) (jsonrpc.Message, error) {
	if m.Error == nil {
		return m, nil
	}
	e := &httpError{status: resp.StatusCode, header: resp.Header, message: readable(m.Error), url: shown(resp.Request.URL)}
	e.lost = s.session != "" && sessionLost(e.status, m.ID != nil, e.message)
	if e.lost || m.ID == nil && jsonrpc.Member(m.Error, "code") == nil {
		return jsonrpc.Message{}, e
	}
	return m, nil
}

// follow reads a stream of events until the answer to q comes. What else comes goes to in. A stream that ends before is
// resumed where its events had ids.
func (w *httpWire) follow(ctx context.Context, s moment, q outgoing, resp *http.Response) (jsonrpc.Message, error) {
	ev := newEvents(resp.Body, w.max)
	for idle := 0; ; {
		began := time.Now()
		e, err := ev.next()
		for ; err == nil; e, err = ev.next() {
			idle = 0
			if len(e.data) == 0 { // only brings an id
				continue
			}
			if m, ok := w.sift(e.data, q.id); ok {
				w.linger(resp, func() { w.rest(ev, q.id) })
				return w.verdict(m, s, resp)
			}
		}
		_ = resp.Body.Close()
		var large *tooLargeError
		if ctx.Err() != nil || errors.As(err, &large) || !s.resumable() || ev.lastID == "" {
			return jsonrpc.Message{}, w.brokenOff(ctx, err)
		}
		if time.Since(began) >= resumePause { // it does last
			idle = 0
		}
		if resp, err = w.resume(ctx, s, ev, &idle, err); err != nil {
			return jsonrpc.Message{}, err
		}
		ev.proceed(resp.Body)
	}
}

// rest hands on what a server says on a request's stream after the answer.
func (w *httpWire) rest(ev *events, id int64) {
	for e, err := ev.next(); err == nil; e, err = ev.next() {
		if len(e.data) > 0 {
			w.sift(e.data, id)
		}
	}
}

// resume asks for what a stream, which has ended by cause, would have said after its last event. idle counts the tries.
func (w *httpWire) resume(ctx context.Context, s moment, ev *events, idle *int, cause error) (*http.Response, error) {
	for final := false; *idle < resumesMax && !final; *idle++ {
		wait := resumePause
		if ev.retry > 0 {
			wait = ev.retry
		}
		if !w.pause(ctx, wait) {
			break
		}
		resp, err := w.stream(ctx, s, ev.lastID)
		if err == nil && resp.StatusCode/100 == 2 && isEvents(resp) {
			*idle++
			return resp, nil
		}
		if err == nil {
			final = resp.StatusCode < 500
			err, _ = w.refusal(resp, 0, "")
		}
		// Not wrapped: it is no answer to the request.
		cause = fmt.Errorf("its answer broke off, and to go on failed: %v", err)
	}
	return nil, w.brokenOff(ctx, cause)
}

// stream opens a stream of events by GET.
func (w *httpWire) stream(ctx context.Context, s moment, lastID string) (*http.Response, error) {
	h := w.header(eventType, s.session, s.version)
	if lastID != "" {
		h["Last-Event-Id"] = []string{lastID}
	}
	return w.do(ctx, http.MethodGet, s.to, h, nil)
}

// listen keeps the stream open on which a server speaks of itself, where it has one. Nothing depends on it.
func (w *httpWire) listen() {
	ev := newEvents(nil, w.max)
	for fails := 0; ; fails++ {
		began := time.Now()
		resp, err := w.stream(w.life, w.now(), ev.lastID)
		var refused *httpError
		switch {
		case errors.As(err, &refused): // redirects elsewhere
			return
		case err != nil:
			w.log.Debug("the server's own stream failed", "server", w.server, "err", err)
		case resp.StatusCode/100 == 2 && isEvents(resp):
			ev.proceed(resp.Body)
			e, err := ev.next()
			for ; err == nil; e, err = ev.next() {
				fails = 0
				if len(e.data) > 0 {
					w.sift(e.data, 0)
				}
			}
			_ = resp.Body.Close()
			if time.Since(began) >= listenLonger/2 { // cut for its silence by something between
				fails = 0
			}
			w.log.Debug("the server's own stream ended", "server", w.server, "err", err)
		case resp.StatusCode < 500 || resp.StatusCode == http.StatusNotImplemented:
			w.log.Debug("the server has no stream of its own", "server", w.server, "status", resp.StatusCode)
			w.discard(resp)
			return
		default:
			w.discard(resp)
		}
		if !w.pause(w.life, max(ev.retry, listenWait(fails, rand.Float64()))) {
			return
		}
	}
}

// listenWait is the pause after so many failures in a row; r in [0, 1) spreads it.
func listenWait(fails int, r float64) time.Duration {
	d := min(listenPause<<min(fails, 10), listenLonger)
	return d/2 + time.Duration(r*float64(d/2))
}

func (w *httpWire) send(ctx context.Context, msg []byte) error {
	return w.inOrder(ctx, func() error {
		s := w.now()
		var more http.Header
		if s.modern {
			if m, err := jsonrpc.Parse(msg); err == nil && m.Method != "" {
				more = http.Header{"Mcp-Method": {m.Method}}
			}
		}
		resp, err := w.post(ctx, s, more, msg)
		if err != nil {
			return err
		}
		if resp.StatusCode/100 == 2 {
			w.discard(resp)
			return nil
		}
		e, _ := w.refusal(resp, 0, s.session)
		return e
	})
}

func (w *httpWire) negotiated(version string, modern bool) {
	w.mu.Lock()
	w.version, w.modern = version, modern
	begin := !modern && !w.listening
	w.listening = w.listening || begin
	w.mu.Unlock()
	if begin {
		w.spawn(w.listen)
	}
}

func (w *httpWire) done() <-chan struct{} { return w.life.Done() }

func (w *httpWire) vitals() vitals {
	w.mu.Lock()
	defer w.mu.Unlock()
	return vitals{lastErr: w.lastErr}
}

// close ends what is under way, and then the session.
func (w *httpWire) close(ctx context.Context) error {
	w.once.Do(func() {
		w.mu.Lock()
		w.lastErr = fmt.Errorf("%s: %w", w.server, errClosed)
		w.mu.Unlock()
		w.shut()
		if s := w.now(); s.session != "" {
			ctx, cancel := context.WithTimeout(ctx, farewell)
			defer cancel()
			resp, err := w.hops(ctx, http.MethodDelete, s.to, w.header(bothTypes, s.session, s.version), nil)
			if err == nil { // whatever it says
				_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
				_ = resp.Body.Close()
			}
		}
		w.running.Wait()
	})
	return nil
}
