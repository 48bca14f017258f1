package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	hopsMax      = 10                     // redirects in a row
	refusalMax   = 1 << 20                // bytes of an error page that are looked at
	refusalTime  = 5 * time.Second        // for it to arrive
	lingering    = 250 * time.Millisecond // for the end of an answer that is known, so that its connection lives on
	rateLimitMax = 30 * time.Second       // the longest Retry-After that is waited for
	farewell     = 2 * time.Second        // for the end of a session
)

// newClient makes the HTTP client of a pool's wires: connections are kept and shared, the environment's proxy is used
// (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), nothing but dialing has a time limit, and redirects are left to the wires.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     90 * time.Second,
			ReadBufferSize:      16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// remote is what both wires over HTTP have in common: one server, its configured headers, and the life of what runs for
// it.
type remote struct {
	server string
	log    *slog.Logger
	client *http.Client
	fixed  http.Header     // of every request; not changed
	in     inbound         // called by one goroutine at a time
	life   context.Context // ends with the wire
	end    context.CancelFunc
	turn   chan struct{} // held by the send that is under way
	max    int           // bytes of a message

	inMu    sync.Mutex
	mu      sync.Mutex
	closed  bool
	version string // MCP-Protocol-Version, once negotiated
	modern  bool
	running sync.WaitGroup // goroutines; none is added once closed
}

func newRemote(spec *configs.Server, in inbound, log *slog.Logger, client *http.Client) *remote {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &remote{server: spec.ID, log: log, client: client, turn: make(chan struct{}, 1), max: lineMax}
	r.life, r.end = context.WithCancel(context.Background())
	r.in = func(m jsonrpc.Message, during int64) {
		r.inMu.Lock()
		defer r.inMu.Unlock()
		in(m, during)
	}
	r.fixed = http.Header{"User-Agent": {"mcpproxy"}}
	if (spec.Auth.Type == "bearer" || spec.Auth.Type == "env") && spec.Auth.Token != "" {
		r.fixed["Authorization"] = []string{"Bearer " + spec.Auth.Token}
	}
	for k, v := range spec.Headers {
		if k = http.CanonicalHeaderKey(k); ours[k] || strings.HasPrefix(k, "Mcp-") {
			log.Debug("a configured header is not sent: the transport sets it", "server", spec.ID, "header", k)
			continue
		}
		r.fixed[k] = []string{v}
	}
	return r
}

// ours are the headers that a configuration cannot set, besides Mcp-*.
var ours = map[string]bool{
	"Accept": true, "Content-Type": true, "Content-Length": true, "Host": true, "Last-Event-Id": true, "Connection": true,
	"Transfer-Encoding": true, "Te": true, "Trailer": true, "Upgrade": true,
}

// header makes the headers of one request; the map is the caller's.
func (r *remote) header(accept, session, version string) http.Header {
	h := maps.Clone(r.fixed)
	h["Accept"] = []string{accept}
	if session != "" {
		h["Mcp-Session-Id"] = []string{session}
	}
	if version != "" {
		h["Mcp-Protocol-Version"] = []string{version}
	}
	return h
}

// spawn runs f in a goroutine that close waits for. It tells whether the wire is still open; else f does not run.
func (r *remote) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.running.Go(f)
	}
	return !r.closed
}

// shut ends all that runs, without waiting for it.
func (r *remote) shut() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
}

// pause waits for d, and tells whether neither ctx nor the wire has ended before.
func (r *remote) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-r.life.Done():
	}
	return false
}

// inOrder runs f when all sends before it have ended.
func (r *remote) inOrder(ctx context.Context, f func() error) error {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	case <-r.life.Done():
		return r.failed(ctx, &wireError{err: errClosed})
	}
}

// reply is the body of an answer. Reading it ends with the request's ctx, with the wire, and with Close.
type reply struct {
	io.ReadCloser
	keep func() bool // no more ended by the request's ctx; false when that has happened
	end  context.CancelFunc
}

func (b *reply) Close() error {
	b.keep()
	err := b.ReadCloser.Close()
	b.end()
	return err
}

// do makes one HTTP request, and again where redirects lead within the origin: the answer's Request.URL is where it
// ended up. Its errors are ctx's, *wireError and *httpError. The answer's Body is a *reply.
func (r *remote) do(
	ctx context.Context, method string, to *url.URL, h http.Header, body []byte,
) (*http.Response, error) {
	inner, end := context.WithCancel(r.life)
	keep := context.AfterFunc(ctx, end)
	resp, err := r.hops(inner, method, to, h, body)
	if err != nil {
		keep()
		end()
		return nil, r.failed(ctx, err)
	}
	resp.Body = &reply{resp.Body, keep, end}
	return resp, nil
}

// failed is what a request's error is to its caller: the end of the wire and of its ctx come first.
func (r *remote) failed(ctx context.Context, err error) error {
	if r.life.Err() != nil {
		var w *wireError
		return &wireError{sent: !errors.As(err, &w) || w.sent, err: fmt.Errorf("%s: %w", r.server, errClosed)}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// brokenOff is the error of a request whose answer could not be read.
func (r *remote) brokenOff(ctx context.Context, err error) error {
	if err == io.EOF {
		err = errors.New("the server ended its answer before it was complete")
	}
	return r.failed(ctx, &wireError{sent: true, err: fmt.Errorf("%s: %w", r.server, err)})
}

func (r *remote) hops(
	ctx context.Context, method string, to *url.URL, h http.Header, body []byte,
) (*http.Response, error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The client repeats by itself what no server has taken.
		GetConn:      func(string) { sent.Store(false) },
		WroteHeaders: func() { sent.Store(true) },
	})
	var seen []string
	for {
		req := &http.Request{Method: method, URL: to, Header: h, ProtoMajor: 1, ProtoMinor: 1}
		if body != nil {
			req.ContentLength = int64(len(body))
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
			req.Body, _ = req.GetBody()
		}
		resp, err := r.client.Do(req.WithContext(ctx))
		if err != nil {
			if u := (*url.Error)(nil); errors.As(err, &u) { // it shows the query
				err = u.Err
			}
			return nil, &wireError{sent: sent.Load(), err: fmt.Errorf("%s: %s %s: %w", r.server, method, shown(to), err)}
		}
		next := redirect(to, resp)
		if next == nil {
			return resp, nil
		}
		_ = resp.Body.Close()
		seen = append(seen, to.String())
		problem := ""
		switch {
		case !sameOrigin(to, next):
			problem = "it redirects to " + shown(next) +
				", which is another origin and not followed: if that is where the server is, put this URL into its configuration"
		case slices.Contains(seen, next.String()):
			problem = "it redirects in a loop, to " + shown(next) +
				": check the URL in its configuration, and its trailing slash"
		case len(seen) > hopsMax:
			problem = fmt.Sprintf("more than %d redirects in a row, the last to %s", hopsMax, shown(next))
		}
		if problem != "" {
			return nil, &httpError{status: resp.StatusCode, header: resp.Header, message: cut(problem), url: shown(to)}
		}
		to = next
	}
}

// redirect is where an answer sends its request, nil when it is no redirect. All of them keep method and body: a GET in
// place of a POST would carry no message.
func redirect(from *url.URL, resp *http.Response) *url.URL {
	switch resp.StatusCode {
	case 301, 302, 303, 307, 308:
	default:
		return nil
	}
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return nil
	}
	if to.User == nil && sameOrigin(from, to) {
		to.User = from.User
	}
	to.Fragment = ""
	return to
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// shown is a URL as it may be shown: without userinfo, query and fragment, where secrets stand.
func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
}

// refusal reads an answer that is not 2xx and closes it. An error response to request id, when it is one that may stand
// for the whole answer, is returned beside.
func (r *remote) refusal(resp *http.Response, id int64, session string) (*httpError, *jsonrpc.Message) {
	if b, ok := resp.Body.(*reply); ok {
		defer time.AfterFunc(refusalTime, b.end).Stop()
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, refusalMax)) // what there is of it
	_ = resp.Body.Close()
	e := &httpError{status: resp.StatusCode, header: resp.Header, message: readable(body), url: shown(resp.Request.URL)}
	m, err := jsonrpc.Parse(body)
	own, known := requestID(m.ID)
	answers := err == nil && m.IsResponse() && m.Error != nil && jsonrpc.Member(body, "jsonrpc") != nil &&
		(m.ID == nil || known && own == id)
	if e.lost = session != "" && sessionLost(e.status, answers && m.ID != nil, e.message); e.lost || !answers {
		return e, nil
	}
	if e.status == 401 || e.status == 429 || e.header.Get("WWW-Authenticate") != "" { // the status and headers say more
		return e, nil
	}
	return e, &m
}

// whole reads a body to its end, and closes it.
func (r *remote) whole(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	n := resp.ContentLength
	if n > int64(r.max) {
		return nil, &tooLargeError{size: n, limit: r.max}
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(max(n, 0), 1<<20)+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(resp.Body, int64(r.max)+1)); err != nil {
		return nil, err
	}
	if buf.Len() > r.max {
		return nil, &tooLargeError{limit: r.max}
	}
	return buf.Bytes(), nil
}

// linger reads on, for a moment and in the background, an answer of which nothing is needed any more, and closes it.
func (r *remote) linger(resp *http.Response, read func()) {
	b := resp.Body.(*reply)
	if resp.ContentLength == 0 || !b.keep() || !r.spawn(func() {
		defer time.AfterFunc(lingering, b.end).Stop()
		read()
		_ = b.Close()
	}) {
		_ = b.Close()
	}
}

// discard is linger for a body that has nothing for us.
func (r *remote) discard(resp *http.Response) {
	r.linger(resp, func() { _, _ = io.CopyN(io.Discard, resp.Body, 64<<10) })
}

// each calls f with every message in what a server has said at once.
func (r *remote) each(data []byte, f func(jsonrpc.Message)) {
	m, err := jsonrpc.Parse(data)
	if err == nil {
		f(m)
		return
	}
	if err == jsonrpc.ErrBatch {
		var all []jsonrpc.Message
		var bad map[int]error
		if all, bad, err = jsonrpc.ParseBatch(data); err == nil {
			for i, m := range all {
				if bad[i] == nil {
					f(m)
				}
			}
			return
		}
	}
	r.log.Debug("skipped what is no message", "server", r.server, "bytes", len(data), "err", err)
}

// sift finds the answer to request id in what a server has said, and hands the rest, in order, to in. An error without
// an id answers the request as well.
func (r *remote) sift(data []byte, id int64) (answer jsonrpc.Message, ok bool) {
	r.each(data, func(m jsonrpc.Message) {
		if !m.IsResponse() {
			r.in(m, id)
			return
		}
		own, known := requestID(m.ID)
		if !ok && (known && own == id || m.ID == nil && m.Error != nil) {
			answer, ok = m, true
		} else {
			r.log.Debug("skipped an answer that nobody waits for", "server", r.server, "id", string(m.ID))
		}
	})
	return answer, ok
}

// patiently repeats an attempt, once, when the server asks to wait a little and the request is no call.
func (r *remote) patiently(
	ctx context.Context, q outgoing, attempt func(context.Context, outgoing) (jsonrpc.Message, error),
) (jsonrpc.Message, error) {
	m, err := attempt(ctx, q)
	var refused *httpError
	if q.method == "tools/call" || !errors.As(err, &refused) || refused.status != http.StatusTooManyRequests {
		return m, err
	}
	wait, ok := retryAfter(refused.header.Get("Retry-After"), time.Now())
	if deadline, limited := ctx.Deadline(); !ok || wait > rateLimitMax || limited && time.Until(deadline) < wait {
		return m, err
	}
	if !r.pause(ctx, wait) {
		return m, r.failed(ctx, err)
	}
	return attempt(ctx, q)
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(s string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	t, err := http.ParseTime(s)
	return max(t.Sub(now), 0), err == nil
}
