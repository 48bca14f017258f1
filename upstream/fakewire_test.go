package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// after lets d go by inside a bubble.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fake is a server in memory, scripted by a test; each dial makes a wire to it. Its mutex guards the fields below it.
type fake struct {
	t      testing.TB
	answer func(w *fakeWire, q request) spoken // nil, or an empty reply: by the book

	busy sync.WaitGroup

	mu     sync.Mutex
	wires  []*fakeWire
	dialed []time.Time
	heard  []request
	refuse error         // of every dial
	slow   time.Duration // what a dial takes
}

// request is what a server gets: a request or a notification.
type request struct {
	jsonrpc.Message
	id     int64
	header http.Header
	wire   *fakeWire
}

// spoken is what a fake answers: a result, an error of JSON-RPC or of the wire; or nothing at all.
type spoken struct {
	result string
	err    error
	silent bool
}

func result(format string, a ...any) spoken { return spoken{result: fmt.Sprintf(format, a...)} }

func rpcError(code int64, message string) spoken {
	return spoken{err: jsonrpc.Errorf(code, "%s", message)}
}

// fakeWire is one connection to a fake.
type fakeWire struct {
	fake  *fake
	spec  configs.Server
	in    inbound
	dead  chan struct{}
	kill  context.CancelFunc
	alive context.Context

	mu      sync.Mutex
	err     error
	code    *int
	closed  bool
	hurried bool
	version string
}

func (f *fake) dial(ctx context.Context, spec *configs.Server, in inbound) (wire, error) {
	f.mu.Lock()
	f.dialed = append(f.dialed, time.Now())
	refuse, slow := f.refuse, f.slow
	f.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if refuse != nil {
		return nil, refuse
	}
	w := &fakeWire{fake: f, spec: *spec, in: in, dead: make(chan struct{})}
	w.alive, w.kill = context.WithCancel(context.Background())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wires = append(f.wires, w)
	return w, nil
}

// die ends the wire as a process ends.
func (w *fakeWire) die(code int) {
	w.end(&exitError{server: w.spec.ID, code: code}, &code)
}

func (w *fakeWire) end(err error, code *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err, w.code = err, code
		w.kill()
		close(w.dead)
	}
}

func (w *fakeWire) request(ctx context.Context, q outgoing) (jsonrpc.Message, error) {
	select {
	case <-w.dead:
		return jsonrpc.Message{}, &wireError{err: w.vitals().lastErr}
	default:
	}
	m, err := jsonrpc.Parse(q.body)
	if err != nil || m.Method != q.method || string(m.ID) != fmt.Sprint(q.id) {
		w.fake.t.Errorf("request %d %s is written as %s", q.id, q.method, q.body)
	}
	rq := request{Message: m, id: q.id, header: q.header, wire: w}
	w.fake.note(rq)
	done := make(chan spoken, 1)
	w.fake.busy.Go(func() { done <- w.fake.reply(w, rq) })
	select {
	case r := <-done:
		if r.silent {
			break
		}
		var answer *jsonrpc.Error
		switch {
		case errors.As(r.err, &answer):
			m, err = jsonrpc.Parse(jsonrpc.AppendError(nil, m.ID, answer))
		case r.err != nil:
			return jsonrpc.Message{}, r.err
		default:
			m, err = jsonrpc.Parse(jsonrpc.AppendResult(nil, m.ID, json.RawMessage(r.result)))
		}
		if err != nil {
			w.fake.t.Errorf("bad reply %+v: %v", r, err)
		}
		return m, nil
	case <-w.dead:
		return jsonrpc.Message{}, &wireError{sent: true, err: w.vitals().lastErr}
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	}
	select {
	case <-w.dead:
		return jsonrpc.Message{}, &wireError{sent: true, err: w.vitals().lastErr}
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	}
}

func (w *fakeWire) send(_ context.Context, msg []byte) error {
	select {
	case <-w.dead:
		return &wireError{err: w.vitals().lastErr}
	default:
	}
	m, err := jsonrpc.Parse(msg)
	if err != nil {
		w.fake.t.Errorf("sent %s: %v", msg, err)
	}
	rq := request{Message: m, wire: w}
	w.fake.note(rq)
	if w.fake.answer != nil && m.Method != "" {
		return w.fake.answer(w, rq).err
	}
	return nil
}

func (w *fakeWire) negotiated(version string, _ bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version = version
}

func (w *fakeWire) done() <-chan struct{} { return w.dead }

func (w *fakeWire) vitals() vitals {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := vitals{pid: 4711, exitCode: w.code, lastErr: w.err, stderr: []string{"starting", "token hunter2 refused"}, noise: 1, sample: []string{"Hello!"}}
	return v
}

func (w *fakeWire) close(ctx context.Context) error {
	w.end(errClosed, new(0))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.hurried = ctx.Err() != nil
	return nil
}

func (w *fakeWire) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// say sends a notification or request of the server's.
func (w *fakeWire) say(during int64, format string, a ...any) {
	m, err := jsonrpc.Parse(fmt.Appendf(nil, format, a...))
	if err != nil {
		w.fake.t.Errorf(format+": %v", append(a, err)...)
	}
	w.in(m, during)
}

func (f *fake) note(q request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, q)
}

func (f *fake) reply(w *fakeWire, q request) spoken {
	if f.answer != nil {
		if r := f.answer(w, q); r != (spoken{}) {
			return r
		}
	}
	switch q.Method {
	case "initialize":
		return result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}`)
	case "ping":
		return result(`{}`)
	case "tools/list":
		return result(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		return result(`{"content":[],"got":%s}`, jsonrpc.Member(q.Params, "arguments"))
	}
	return rpcError(jsonrpc.CodeMethodNotFound, "no such method")
}

// methods are what the fake was sent, in order, without pings.
func (f *fake) methods() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, q := range f.heard {
		if q.Method != "ping" {
			out = append(out, q.Method)
		}
	}
	return out
}

func (f *fake) count(method string) int {
	n := 0
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.heard {
		if q.Method == method {
			n++
		}
	}
	return n
}

// set changes what a dial does, at any time.
func (f *fake) set(refuse error, slow time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse, f.slow = refuse, slow
}

// all are the messages of a method.
func (f *fake) all(method string) []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.heard), func(q request) bool { return q.Method != method })
}

func (f *fake) last() *fakeWire {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wires[len(f.wires)-1]
}

func (f *fake) dials() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.dialed)
}

// lazy is a server's configuration; change may be nil.
func lazy(change func(*configs.Server)) *configs.Server {
	s := &configs.Server{
		ID: "fake", Enabled: true, Transport: configs.Stdio, Lifecycle: configs.Lazy, Hash: "sha256:1",
		Limits: configs.Limits{
			ConnectTimeout: 15 * time.Second, DiscoveryTimeout: 10 * time.Second, CallTimeout: 10 * time.Minute,
			MaxCallTimeout: time.Hour, IdleTimeout: 10 * time.Minute, MetadataRefresh: 24 * time.Hour,
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func overHTTP(s *configs.Server) { s.Transport = configs.StreamableHTTP }

// rig is a pool of one server, a fake; it ends with the test.
type rig struct {
	*fake
	pool    *Pool
	srv     *Server
	catalog *index.Catalog
}

// newRig is for use inside a bubble; the caller closes it.
func newRig(t testing.TB, spec *configs.Server, answer func(*fakeWire, request) spoken) *rig {
	t.Helper()
	catalog, err := index.Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, answer: answer}
	p := New(Options{Catalog: catalog, Version: "1.2.3", Redact: func(s string) string { return strings.ReplaceAll(s, "hunter2", "[redacted]") }})
	p.dial = f.dial
	r := &rig{fake: f, pool: p, catalog: catalog}
	r.apply(spec)
	return r
}

func (r *rig) apply(spec *configs.Server) {
	r.pool.Apply([]*configs.Server{spec})
	r.srv, _ = r.pool.Server(spec.ID)
}

func (r *rig) close() {
	if err := r.pool.Close(context.Background()); err != nil {
		r.t.Errorf("close: %v", err)
	}
	r.busy.Wait()
	_ = r.catalog.Close()
}

// modernFake answers as a server of the stateless era.
func modernFake(q request) spoken {
	switch q.Method {
	case "server/discover":
		return result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m"}}}`)
	case "initialize":
		return rpcError(0, "duplicate initialize")
	case "ping":
		return rpcError(jsonrpc.CodeMethodNotFound, "gone")
	}
	return spoken{}
}

func (r *rig) call(ctx context.Context) error {
	_, err := r.srv.Call(ctx, Request{Method: "tools/call", Params: json.RawMessage(`{"name":"echo","arguments":{"a":1}}`)})
	return err
}

func (r *rig) mustCall() {
	r.t.Helper()
	if err := r.call(r.t.Context()); err != nil {
		r.t.Fatalf("call: %v", err)
	}
}

// status waits until everything is at rest.
func (r *rig) status() Status {
	synctest.Wait()
	return r.srv.State().Status
}

func (r *rig) want(status Status) {
	r.t.Helper()
	if got := r.status(); got != status {
		r.t.Fatalf("status %q, want %q; failure: %v", got, status, r.srv.State().Failure)
	}
}

// bubble runs a table of tests each in a bubble of its own.
func bubble(t *testing.T, tests map[string]func(t *testing.T)) {
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, tests[name]) })
	}
}
