package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func init() {
	roles["http-client"] = func() { // asks one server by the environment's proxy
		_, err := dialHTTP(at(os.Getenv("TEST_URL")), ignore, nil, newClient()).request(context.Background(), query(1, "ping"))
		fmt.Println(err)
	}
}

// onLoopback is a server on a real socket, and a client for it.
func onLoopback(t testing.TB, h http.HandlerFunc) (*httptest.Server, *http.Client) {
	srv := httptest.NewServer(h)
	client := newClient()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		srv.Close()
	})
	return srv, client
}

func answerPing(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	replyJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
}

// What surely did not reach the server is told from what may have.
func TestHTTPSent(t *testing.T) {
	srv, client := onLoopback(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
		}
		conn.Close()
	})
	closed := httptest.NewServer(nil)
	closed.Close()
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for _, tt := range []struct {
		name, url string
		sent      bool
	}{
		{"nobody listens", closed.URL, false},
		{"no such host", "http://mcp.invalid/mcp", false},
		{"no such scheme", "ftp://mcp.test/mcp", false},
		{"no URL", "http://%zz", false},
		{"unknown certificate", secure.URL, false},
		{"no TLS", strings.Replace(srv.URL, "http:", "https:", 1), false},
		{"no answer", srv.URL, true},
		{"half an answer", srv.URL + "/half", true},
	} {
		w := dialHTTP(at(tt.url), ignore, nil, client)
		_, err := w.request(t.Context(), query(1, "tools/call"))
		var e *wireError
		if !errors.As(err, &e) || e.sent != tt.sent || !strings.HasPrefix(err.Error(), "far: ") {
			t.Errorf("%s: got %+v, want sent %v", tt.name, err, tt.sent)
		}
		finish(t, w)
	}
}

// A server that has gone away while its connection was idle has not taken the request that finds out.
func TestHTTPSentOnIdleConnection(t *testing.T) {
	srv, client := onLoopback(t, answerPing)
	w := dialHTTP(at(srv.URL), ignore, nil, client)
	defer finish(t, w)
	if got := try(t.Context(), w, query(1, "ping")); got != "result: {}" {
		t.Fatal(got)
	}
	srv.Listener.Close()
	srv.CloseClientConnections()
	_, err := w.request(t.Context(), query(1, "tools/call"))
	var e *wireError
	if !errors.As(err, &e) || e.sent && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("got %v", err)
	}
}

func TestHTTPReusesConnections(t *testing.T) {
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch m := said(r); m.Method {
		case "json":
			replyJSON(w, ok(m.ID))
		case "events":
			emit(w, "data: "+ok(m.ID))
		case "refuse":
			http.Error(w, strings.Repeat("no ", 1000), http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	client := newClient()
	defer client.CloseIdleConnections()
	w := dialHTTP(at(srv.URL), ignore, nil, client)
	defer finish(t, w)
	for _, method := range []string{"json", "events", "refuse", "notify"} {
		for range 25 {
			if method == "notify" {
				_ = w.send(t.Context(), []byte(`{"method":"notify"}`))
			} else {
				_, _ = w.request(t.Context(), query(1, method))
			}
		}
	}
	if n := conns.Load(); n > 10 { // the end of a stream may be a little late, so that a second one is opened
		t.Errorf("got %d connections for 100 messages one after the other", n)
	}
}

func TestHTTPAbortedRequestsLeaveNothing(t *testing.T) {
	srv, client := onLoopback(t, func(w http.ResponseWriter, r *http.Request) {
		if said(r).Method == "stream" {
			emit(w, ":")
		}
		<-r.Context().Done()
	})
	w := dialHTTP(at(srv.URL), ignore, nil, client)
	before := runtime.NumGoroutine()
	for i := range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%5)*time.Millisecond)
		if got := try(ctx, w, query(1, []string{"stream", "hang"}[i%2])); got != context.DeadlineExceeded.Error() {
			t.Errorf("got %s", got)
		}
		cancel()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
	finish(t, w)
}

// A proxy gets the requests for other hosts, the way the client asks for them.
func TestHTTPProxy(t *testing.T) {
	var got notes
	proxy, client := onLoopback(t, func(w http.ResponseWriter, r *http.Request) {
		got.add("%s %s", r.Method, r.RequestURI)
		if r.Method == http.MethodConnect {
			http.Error(w, "no tunnels", http.StatusForbidden)
			return
		}
		answerPing(w, r)
	})
	to, _ := url.Parse(proxy.URL)
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(to)
	for target, want := range map[string]string{
		"http://mcp.test/mcp":  "result: {}",
		"https://mcp.test/mcp": "broken, sent false: far: POST https://mcp.test/mcp: Forbidden",
	} {
		w := dialHTTP(at(target), ignore, nil, client)
		if out := try(t.Context(), w, query(1, "ping")); out != want {
			t.Errorf("%s: got %s, want %s", target, out, want)
		}
		finish(t, w)
	}
	if list := got.list(); len(list) != 2 || !strings.Contains(fmt.Sprint(list), "POST http://mcp.test/mcp") ||
		!strings.Contains(fmt.Sprint(list), "CONNECT mcp.test:443") {
		t.Errorf("the proxy got %q", list)
	}
}

func TestHTTPProxyFromEnvironment(t *testing.T) {
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answerPing(w, r)
	}))
	defer proxy.Close()
	for _, tt := range []struct {
		url  string
		want int32
	}{{"http://mcp.invalid/mcp", 1}, {"http://direct.invalid/mcp", 0}} {
		asked.Store(0)
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), "TEST_ROLE=http-client", "TEST_URL="+tt.url,
			"HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=direct.invalid", "no_proxy=direct.invalid")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if n := asked.Load(); n != tt.want {
			t.Errorf("%s: the proxy was asked %d times, want %d; %s", tt.url, n, tt.want, out)
		}
	}
}

// BenchmarkHTTP compares a request with the bare POST that it cannot do without.
func BenchmarkHTTP(b *testing.B) {
	q := outgoing{id: 1, method: "tools/call", body: fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%s"}}}`, strings.Repeat("x", 100))}
	result := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 100) + `"}]}}`)
	srv, client := onLoopback(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: %s\n\n", result)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(result)
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			resp, err := client.Post(srv.URL, "application/json", bytes.NewReader(q.body))
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
	})
	for _, path := range []string{"/json", "/events"} {
		b.Run("wire"+path, func(b *testing.B) {
			w := dialHTTP(at(srv.URL+path), ignore, nil, client)
			defer w.close(context.Background())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.request(context.Background(), q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
