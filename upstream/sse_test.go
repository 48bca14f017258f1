package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// sseServer is a legacy server: its GET handler streams what arrives in say.
type sseServer struct {
	notes
	endpoint string
	say      chan string
	post     func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) // nil: 202 and an empty result
}

func newSSE(endpoint string) *sseServer { return &sseServer{endpoint: endpoint} }

func (s *sseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.add("GET %s accept=%s auth=%s", r.RequestURI, r.Header.Get("Accept"), r.Header.Get("Authorization"))
		emit(w, ": hello", "event: endpoint\ndata: "+s.endpoint)
		for {
			select {
			case e, open := <-s.say:
				if !open {
					return
				}
				emit(w, e)
			case <-r.Context().Done():
				return
			}
		}
	}
	m := said(r)
	s.add("POST %s %s%s version=%s auth=%s", r.RequestURI, m.Method, m.Result,
		r.Header.Get("MCP-Protocol-Version"), r.Header.Get("Authorization"))
	if s.post != nil {
		s.post(w, r, m)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	if m.IsRequest() {
		s.say <- "event: message\ndata: " + ok(m.ID)
	}
}

// withSSE runs f with a wire to s.
func withSSE(t *testing.T, s *sseServer, url string, f func(t *testing.T, w *sseWire)) {
	t.Helper()
	withServer(t, s.ServeHTTP, func(t *testing.T, client *http.Client) {
		s.say = make(chan string, 10)
		spec := at(url)
		spec.Auth = configs.Auth{Type: "env", Token: "t"}
		w, err := dialSSE(t.Context(), spec, s.inbound, nil, client)
		if err != nil {
			t.Fatal(err)
		}
		f(t, w)
		finish(t, w)
	})
}

func TestSSEConversation(t *testing.T) {
	s := newSSE("/messages?sid=1")
	withSSE(t, s, "http://mcp.test/sse", func(t *testing.T, w *sseWire) {
		s.add("%s", try(t.Context(), w, query(1, "initialize")))
		w.negotiated("2024-11-05", false)
		if err := w.send(t.Context(), []byte(`{"method":"notifications/initialized"}`)); err != nil {
			t.Error(err)
		}
		s.post = func(rw http.ResponseWriter, _ *http.Request, m jsonrpc.Message) {
			rw.WriteHeader(http.StatusAccepted)
			if m.Method != "tools/call" {
				return
			}
			s.say <- "data: junk"
			s.say <- `data: {"jsonrpc":"2.0","id":2,"method":"roots/list"}`
			s.say <- `data: {"jsonrpc":"2.0","method":"notifications/progress"}`
			s.say <- `data: {"jsonrpc":"2.0","id":3,"result":"another's"}`
			go func() {
				time.Sleep(time.Hour) // nothing times out by itself
				s.say <- `data: {"jsonrpc":"2.0","id":"2","result":"mine"}`
			}()
		}
		s.add("%s", try(t.Context(), w, query(2, "tools/call")))
		if err := w.send(t.Context(), []byte(`{"jsonrpc":"2.0","id":2,"result":{}}`)); err != nil {
			t.Error(err)
		}
		s.expect(t,
			"GET /sse accept=text/event-stream auth=Bearer t",
			"POST /messages?sid=1 initialize version= auth=Bearer t",
			"result: {}",
			"POST /messages?sid=1 notifications/initialized version=2024-11-05 auth=Bearer t",
			"POST /messages?sid=1 tools/call version=2024-11-05 auth=Bearer t",
			"roots/list 2  during 0",
			"notifications/progress   during 0",
			`result: "mine"`,
			"POST /messages?sid=1 {} version=2024-11-05 auth=Bearer t",
		)
	})
}

// The answer counts, even when its POST has none yet, and a cancelled request returns at once.
func TestSSEHangingPosts(t *testing.T) {
	s := newSSE("messages")
	s.post = func(rw http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
		if m.Method == "ping" {
			s.say <- "data: " + ok(m.ID)
		}
		<-r.Context().Done()
		s.add("%s ended", m.Method)
	}
	withSSE(t, s, "http://mcp.test/a/sse", func(t *testing.T, w *sseWire) {
		began := time.Now()
		if got := try(t.Context(), w, query(1, "ping")); got != "result: {}" || time.Since(began) > 0 {
			t.Errorf("got %s after %v", got, time.Since(began))
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := try(ctx, w, query(2, "tools/call")); got != context.DeadlineExceeded.Error() {
			t.Errorf("got %s", got)
		}
		synctest.Wait()
		s.expect(t,
			"GET /a/sse accept=text/event-stream auth=Bearer t",
			"POST /a/messages ping version= auth=Bearer t",
			"ping ended",
			"POST /a/messages tools/call version= auth=Bearer t",
			"tools/call ended",
		)
	})
}

// Behind a path prefix that the server does not know of.
func TestSSEPrefix(t *testing.T) {
	for _, tt := range []struct {
		real string
		want string
		seen []string
	}{
		{"/gw/messages", "result: {}", []string{"/messages?sid=1", "/gw/messages?sid=1", "/gw/messages?sid=1"}},
		{"/messages", "result: {}", []string{"/messages?sid=1", "/messages?sid=1"}},
		{"/elsewhere", "refused: HTTP 404 Not Found from http://mcp.test/gw/messages: nor is the endpoint at http://mcp.test/messages, " +
			"as the server says: no such page", []string{"/messages?sid=1", "/gw/messages?sid=1", "/messages?sid=1", "/gw/messages?sid=1"}},
	} {
		s := newSSE("/messages?sid=1")
		var posts notes
		s.post = func(rw http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
			posts.add("%s", r.RequestURI)
			if r.URL.Path != tt.real {
				http.Error(rw, "no such page", http.StatusNotFound)
				return
			}
			s.say <- "data: " + ok(m.ID)
		}
		withSSE(t, s, "http://mcp.test/gw/sse", func(t *testing.T, w *sseWire) {
			for id := range int64(2) {
				if got := try(t.Context(), w, query(id+1, "ping")); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				synctest.Wait() // the answer may come before that of its POST
			}
			posts.expect(t, tt.seen...)
		})
	}
}

func TestSSERefusedPosts(t *testing.T) {
	for _, tt := range []struct {
		status     int
		body, want string
	}{
		{404, "Session not found", "lost: HTTP 404 Not Found from http://mcp.test/messages: Session not found"},
		{404, "", "refused: HTTP 404 Not Found from http://mcp.test/messages"},
		{400, "Invalid session ID", "lost: HTTP 400 Bad Request from http://mcp.test/messages: Invalid session ID"},
		{401, "who?", "refused: HTTP 401 Unauthorized from http://mcp.test/messages: who?"},
		{502, "<title>oops</title>", "refused: HTTP 502 Bad Gateway from http://mcp.test/messages: oops"},
	} {
		s := newSSE("/messages")
		s.post = func(rw http.ResponseWriter, _ *http.Request, _ jsonrpc.Message) {
			rw.WriteHeader(tt.status)
			_, _ = io.WriteString(rw, tt.body)
		}
		withSSE(t, s, "http://mcp.test/sse", func(t *testing.T, w *sseWire) {
			if got := try(t.Context(), w, query(1, "tools/call")); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestSSERateLimit(t *testing.T) {
	s := newSSE("/messages")
	n := 0
	s.post = func(rw http.ResponseWriter, _ *http.Request, m jsonrpc.Message) {
		if n++; n == 1 {
			rw.Header().Set("Retry-After", "3")
			rw.WriteHeader(http.StatusTooManyRequests)
			return
		}
		s.say <- "data: " + ok(m.ID)
	}
	withSSE(t, s, "http://mcp.test/sse", func(t *testing.T, w *sseWire) {
		began := time.Now()
		if got := try(t.Context(), w, query(1, "tools/list")); got != "result: {}" || time.Since(began) != 3*time.Second {
			t.Errorf("got %s after %v", got, time.Since(began))
		}
	})
}

// The end of the stream is the end of the wire.
func TestSSEStreamEnds(t *testing.T) {
	s := newSSE("/messages")
	s.post = func(rw http.ResponseWriter, _ *http.Request, m jsonrpc.Message) {
		rw.WriteHeader(http.StatusAccepted)
		time.Sleep(time.Second)
		close(s.say)
	}
	withSSE(t, s, "http://mcp.test/sse", func(t *testing.T, w *sseWire) {
		const why = "far: the server ended its stream of events"
		if got := try(t.Context(), w, query(1, "tools/call")); got != "broken, sent true: "+why {
			t.Errorf("got %s", got)
		}
		<-w.done()
		if err := w.vitals().lastErr; err == nil || err.Error() != why {
			t.Errorf("got %v, want %s", err, why)
		}
		if got := try(t.Context(), w, query(2, "tools/call")); got != "broken, sent false: "+why {
			t.Errorf("got %s", got)
		}
	})
}

func TestSSEClose(t *testing.T) {
	s := newSSE("/messages")
	s.post = func(rw http.ResponseWriter, r *http.Request, m jsonrpc.Message) { <-r.Context().Done() }
	withSSE(t, s, "http://mcp.test/sse", func(t *testing.T, w *sseWire) {
		var got notes
		go func() { got.add("request: %s", try(t.Context(), w, query(1, "tools/call"))) }()
		synctest.Wait()
		go func() { got.add("send: %v", w.send(t.Context(), []byte(`{"method":"n"}`))) }()
		synctest.Wait()
		finish(t, w)
		synctest.Wait()
		got.add("request: %s", try(t.Context(), w, query(2, "tools/call")))
		list := strings.Join(got.list(), "\n")
		for _, want := range []string{"request: broken, sent true: far: the connection was closed",
			"send: far: the connection was closed", "request: broken, sent false: far: the connection was closed"} {
			if !strings.Contains(list, want) {
				t.Errorf("got\n%s\nwithout %s", list, want)
			}
		}
	})
}

func TestSSEDialErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		want string
	}{
		{"405", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(405) },
			"refused: HTTP 405 Method Not Allowed from http://mcp.test/sse"},
		{"401", func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, `{"error":"invalid_token"}`, http.StatusUnauthorized)
		},
			"refused: HTTP 401 Unauthorized from http://mcp.test/sse: invalid_token"},
		{"JSON", func(w http.ResponseWriter, r *http.Request) { replyJSON(w, "") },
			"refused: HTTP 200 OK from http://mcp.test/sse: no stream of events, but application/json"},
		{"no endpoint", func(w http.ResponseWriter, r *http.Request) { emit(w, "data: {}") },
			"broken, sent false: far: http://mcp.test/sse: the stream ended before its endpoint event: EOF"},
		{"another origin", func(w http.ResponseWriter, r *http.Request) { emit(w, "event: endpoint\ndata: http://evil/x?y") },
			"broken, sent false: far: http://mcp.test/sse: its endpoint, http://evil/x, is of another origin, where no messages are sent"},
		{"no URL", func(w http.ResponseWriter, r *http.Request) { emit(w, "event: endpoint\ndata: http://%zz") },
			"broken, sent false: far: http://mcp.test/sse: its endpoint event holds no URL"},
		{"redirect elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://mcp.test/sse", http.StatusMovedPermanently)
		},
			"refused: HTTP 301 Moved Permanently from http://mcp.test/sse: it redirects to https://mcp.test/sse, which is another " +
				"origin and not followed: if that is where the server is, put this URL into its configuration"},
		{"silence", func(w http.ResponseWriter, r *http.Request) { emit(w, ":"); <-r.Context().Done() }, "context deadline exceeded"},
		{"no headers", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, tt.h, func(t *testing.T, client *http.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := dialSSE(ctx, at("http://mcp.test/sse?key=secret"), ignore, nil, client)
				if got := outcome(nil, nil, err); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// The stream may move within its origin: the endpoint is resolved where it ended up.
func TestSSERedirect(t *testing.T) {
	s := newSSE("messages")
	s.post = func(rw http.ResponseWriter, r *http.Request, m jsonrpc.Message) { s.say <- "data: " + ok(m.ID) }
	withServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sse" {
			http.Redirect(w, r, "/v2/sse", http.StatusTemporaryRedirect)
			return
		}
		s.ServeHTTP(w, r)
	}, func(t *testing.T, client *http.Client) {
		s.say = make(chan string, 10)
		w, err := dialSSE(t.Context(), at("http://mcp.test/sse"), ignore, nil, client)
		if err != nil {
			t.Fatal(err)
		}
		s.add("%s", try(t.Context(), w, query(1, "ping")))
		finish(t, w)
		s.expect(t, "GET /v2/sse accept=text/event-stream auth=", "POST /v2/messages ping version= auth=", "result: {}")
	})
}

func TestSSELargeEvent(t *testing.T) {
	s := newSSE("/messages")
	want := `"` + strings.Repeat("x", 5_000_000) + `"`
	s.post = func(rw http.ResponseWriter, _ *http.Request, m jsonrpc.Message) {
		rw.WriteHeader(http.StatusAccepted)
		s.say <- fmt.Sprintf(`data: {"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, want)
	}
	withSSE(t, s, "http://mcp.test/sse", func(t *testing.T, w *sseWire) {
		if m, err := w.request(t.Context(), query(1, "tools/call")); err != nil || string(m.Result) != want {
			t.Errorf("got %d bytes, %v", len(m.Result), err)
		}
	})
}
