package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// withServer runs f in a bubble of fake time with an HTTP server on pipes, which answers for every host. The bubble
// fails when a goroutine of the wire or of a request is left at the end.
func withServer(t *testing.T, h http.HandlerFunc, f func(t *testing.T, client *http.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ln := pipes{make(chan net.Conn), make(chan struct{})}
		srv := &http.Server{Handler: h}
		go func() { _ = srv.Serve(ln) }()
		client := newClient()
		tr := client.Transport.(*http.Transport)
		tr.Proxy = nil
		tr.DialContext = ln.dial
		defer func() {
			tr.CloseIdleConnections()
			_ = srv.Shutdown(context.Background()) // when its handlers have ended
		}()
		f(t, client)
	})
}

type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// notes is what has happened, in order.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) add(format string, a ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprintf(format, a...))
}

func (n *notes) list() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

func (n *notes) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := n.list(); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// inbound notes what comes in.
func (n *notes) inbound(m jsonrpc.Message, during int64) {
	n.add("%s %s %s during %d", m.Method, m.ID, m.Params, during)
}

func ignore(jsonrpc.Message, int64) {}

func at(url string) *configs.Server { return &configs.Server{ID: "far", URL: url} }

func query(id int64, method string) outgoing {
	return outgoing{id: id, method: method, body: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)}
}

// said decodes what was POSTed.
func said(r *http.Request) jsonrpc.Message {
	b, _ := io.ReadAll(r.Body)
	m, err := jsonrpc.Parse(b)
	if err != nil {
		panic(fmt.Sprintf("%s %s: %v: %q", r.Method, r.URL, err, b))
	}
	return m
}

func ok(id json.RawMessage) string { return string(jsonrpc.AppendResult(nil, id, []byte(`{}`))) }

func replyAs(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	_, _ = io.WriteString(w, body)
}

func replyJSON(w http.ResponseWriter, body string) { replyAs(w, "application/json", body) }

// emit sends events at once.
func emit(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		_, _ = io.WriteString(w, e+"\n\n")
	}
	_ = http.NewResponseController(w).Flush()
}

// finish closes a wire and fails when that takes longer than it may.
func finish(t *testing.T, w wire) {
	t.Helper()
	began := time.Now()
	if err := w.close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took > farewell {
		t.Errorf("close took %v", took)
	}
	select {
	case <-w.done():
	default:
		t.Error("done is open after close")
	}
}
