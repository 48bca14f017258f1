package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

func TestHTTPConversation(t *testing.T) {
	var got notes
	withServer(t, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		line := fmt.Sprintf("%s session=%q version=%q auth=%q x=%q accept=%q", r.Method, h.Get("Mcp-Session-Id"),
			h.Get("MCP-Protocol-Version"), h.Get("Authorization"), h.Get("X-Tenant"), strings.Join(h.Values("Accept"), "|"))
		switch r.Method {
		case http.MethodPost:
			m := said(r)
			got.add("%s %s type=%q extra=%q host=%s", line, m.Method, h.Get("Content-Type"), h.Get("Mcp-Name"), r.Host)
			switch {
			case m.Method == "initialize":
				w.Header().Set("Mcp-Session-Id", "s-1")
				replyJSON(w, ok(m.ID))
			case m.ID == nil:
				w.WriteHeader(http.StatusAccepted)
			default:
				replyJSON(w, ok(m.ID))
			}
		case http.MethodGet:
			got.add("%s", line)
			w.Header().Set("Allow", "POST")
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			got.add("%s", line)
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	}, func(t *testing.T, client *http.Client) {
		var logged strings.Builder
		log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		w := dialHTTP(&configs.Server{
			ID: "far", URL: "http://mcp.test/mcp", Auth: configs.Auth{Type: "bearer", Token: "t0k"},
			Headers: map[string]string{
				"X-Tenant": "7", "accept": "*/*", "Host": "evil", "Content-Length": "3", "content-type": "text/plain",
				"Mcp-Session-Id": "mine", "MCP-Protocol-Version": "1",
			},
		}, ignore, log, client)
		for _, q := range []outgoing{query(1, "initialize"), query(2, "tools/list"), query(3, "tools/call")} {
			if q.id == 2 {
				w.negotiated("2025-06-18", false)
				synctest.Wait()
				if err := w.send(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)); err != nil {
					t.Error(err)
				}
			}
			q.header = http.Header{"Mcp-Name": {"n"}}
			if m, err := w.request(t.Context(), q); err != nil || string(m.Result) != "{}" {
				t.Errorf("%s: got %s, %v", q.method, m.Result, err)
			}
		}
		time.Sleep(time.Hour) // the refused GET is not repeated
		finish(t, w)
		finish(t, w)
		const both = `auth="Bearer t0k" x="7" accept="application/json, text/event-stream"`
		const post = ` type="application/json" extra="n" host=mcp.test`
		got.expect(t,
			`POST session="" version="" `+both+` initialize`+post,
			`GET session="s-1" version="2025-06-18" auth="Bearer t0k" x="7" accept="text/event-stream"`,
			`POST session="s-1" version="2025-06-18" `+both+` notifications/initialized type="application/json" extra="" host=mcp.test`,
			`POST session="s-1" version="2025-06-18" `+both+` tools/list`+post,
			`POST session="s-1" version="2025-06-18" `+both+` tools/call`+post,
			`DELETE session="s-1" version="2025-06-18" `+both,
		)
		if n := strings.Count(logged.String(), "header=Accept"); n != 1 || strings.Contains(logged.String(), "level=WARN") {
			t.Errorf("got %d lines about the Accept header in\n%s", n, logged.String())
		}
	})
}

// In the era without sessions there is no session id, no GET and no DELETE; a 404 with a JSON-RPC error is an answer.
func TestHTTPModern(t *testing.T) {
	var got notes
	withServer(t, func(w http.ResponseWriter, r *http.Request) {
		m := said(r)
		got.add("%s %s %s session=%q version=%q", r.Method, m.Method, r.Header.Get("Mcp-Method"),
			r.Header.Get("Mcp-Session-Id"), r.Header.Get("MCP-Protocol-Version"))
		w.Header().Set("Mcp-Session-Id", "s-1")
		if m.Method == "gone" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
			return
		}
		replyJSON(w, ok(m.ID))
	}, func(t *testing.T, client *http.Client) {
		w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
		q := query(1, "server/discover")
		q.header = http.Header{"MCP-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"server/discover"}}
		if _, err := w.request(t.Context(), q); err != nil {
			t.Error(err)
		}
		w.negotiated("2026-07-28", true)
		if m, err := w.request(t.Context(), query(2, "gone")); err != nil || m.Err().Code != -32601 {
			t.Errorf("got %v, %v, want the server's own error", m.Err(), err)
		}
		if err := w.send(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/x"}`)); err != nil {
			t.Error(err)
		}
		finish(t, w)
		got.expect(t,
			`POST server/discover server/discover session="" version="2026-07-28"`,
			`POST gone  session="" version="2026-07-28"`,
			`POST notifications/x notifications/x session="" version="2026-07-28"`,
		)
	})
}

// outcome is a request's end in one line.
func outcome(result []byte, rpc error, err error) string {
	var refused *httpError
	var broken *wireError
	switch {
	case errors.As(err, &refused) && refused.lost:
		return "lost: " + err.Error()
	case errors.As(err, &refused):
		return "refused: " + err.Error()
	case errors.As(err, &broken):
		return fmt.Sprintf("broken, sent %v: %v", broken.sent, err)
	case err != nil:
		return err.Error()
	case rpc != nil:
		return "error: " + rpc.Error()
	}
	return "result: " + string(result)
}

func try(ctx context.Context, w wire, q outgoing) string {
	m, err := w.request(ctx, q)
	if e := m.Err(); e != nil {
		return outcome(nil, e, err)
	}
	return outcome(m.Result, nil, err)
}

func TestHTTPAnswers(t *testing.T) {
	const url = "http://mcp.test/mcp"
	for _, tt := range []struct {
		name, contentType, body string
		status                  int
		header                  http.Header
		want                    string
	}{
		{name: "JSON", contentType: "application/json; charset=utf-8", body: ` {"jsonrpc":"2.0","id":2,"result":1}`, want: "result: 1"},
		{name: "id as text", contentType: "application/json", body: `{"jsonrpc":"2.0","id":"2","result":1}`, want: "result: 1"},
		{name: "untyped", contentType: "text/plain", body: "\n" + `{"jsonrpc":"2.0","id":2,"result":1}`, want: "result: 1"},
		{name: "array", contentType: "application/json",
			body: `[{"jsonrpc":"2.0","method":"a"},{"id":9,"result":0},{"jsonrpc":"2.0","id":2,"result":1}]`, want: "result: 1"},
		{name: "events", contentType: "text/event-stream;charset=utf-8", body: "event: message\ndata: {\"id\":2,\"result\":1}\n\n",
			want: "result: 1"},
		{name: "comments and a ping before", contentType: "text/event-stream",
			body: ": hi\n\nevent: ping\ndata: now\n\ndata:\n\ndata: {\"id\":2,\"result\":1}\n\n", want: "result: 1"},
		{name: "batch in an event", contentType: "text/event-stream", body: "data: [{\"id\":2,\"result\":1}]\n\n", want: "result: 1"},
		{name: "last event cut off", contentType: "text/event-stream", body: `data: {"id":2,"result":1}`, want: "result: 1"},
		{name: "error", contentType: "application/json", body: `{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"no"}}`,
			want: "error: no (JSON-RPC error -1)"},
		{name: "error without id", contentType: "application/json", body: `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}`,
			want: "error: no (JSON-RPC error -1)"},
		{name: "error that is no JSON-RPC", contentType: "text/event-stream", body: "event: error\ndata: {\"error\":\"boom\"}\n\n",
			want: "refused: HTTP 200 OK from " + url + ": boom"},
		{name: "another's answer", contentType: "application/json", body: `{"jsonrpc":"2.0","id":3,"result":1}`,
			want: `broken, sent true: far: it sent JSON that is no answer to tools/call: {"jsonrpc":"2.0","id":3,"result":1}`},
		{name: "accepted", status: 202, want: "broken, sent true: far: HTTP 202 without an answer to tools/call"},
		{name: "empty", contentType: "application/json", want: "broken, sent true: far: HTTP 200 without an answer to tools/call"},
		{name: "cut off", contentType: "application/json", body: `{"jsonrpc":"2.0","id":2,"res`,
			want: `refused: HTTP 200 OK from ` + url + `: {"jsonrpc":"2.0","id":2,"res`},
		{name: "events without answer", contentType: "text/event-stream", body: "data: {\"id\":3,\"result\":1}\n\n",
			want: "broken, sent true: far: the server ended its answer before it was complete"},
		{name: "a page", contentType: "text/html", body: "<html><title>Sign in</title><p>please</html>",
			want: "refused: HTTP 200 OK from " + url + ": Sign in please"},
		{name: "error page", status: 502, contentType: "text/html",
			body: "<html><title>Bad</title><body>" + strings.Repeat("<p>word</p>", 2000),
			want: "refused: HTTP 502 Bad Gateway from " + url + ": Bad" + strings.Repeat(" word", 59) + " …"},
		{name: "JSON-RPC error with a status", status: 400, body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"bad"}}`,
			want: "error: bad (JSON-RPC error -32600)"},
		{name: "JSON error with a status", status: 400, body: `{"error":{"code":-32600,"message":"bad"}}`,
			want: "refused: HTTP 400 Bad Request from " + url + ": bad"},
		{name: "JSON-RPC error to another", status: 500, body: `{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"bad"}}`,
			want: "refused: HTTP 500 Internal Server Error from " + url + ": bad"},
		{name: "unauthorized", status: 401, body: `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"who?"}}`,
			want: "refused: HTTP 401 Unauthorized from " + url + ": who?"},
		{name: "insufficient scope", status: 403, header: http.Header{"Www-Authenticate": {"Bearer"}},
			body: `{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"more"}}`,
			want: "refused: HTTP 403 Forbidden from " + url + ": more"},
		{name: "not found with a session", status: 404, want: "lost: HTTP 404 Not Found from " + url},
		{name: "lost as 400", status: 400, body: "Bad Request: No valid session ID provided",
			want: "lost: HTTP 400 Bad Request from " + url + ": Bad Request: No valid session ID provided"},
		{name: "lost as 503", status: 503, body: `{"error":"unknown session"}`,
			want: "lost: HTTP 503 Service Unavailable from " + url + ": unknown session"},
		{name: "lost as an event", contentType: "text/event-stream", body: "data: {\"error\":\"Session not found\"}\n\n",
			want: "lost: HTTP 200 OK from " + url + ": Session not found"},
		{name: "lost as an answer", contentType: "application/json",
			body: `{"jsonrpc":"2.0","id":2,"error":{"code":-32001,"message":"Session not found"}}`,
			want: "lost: HTTP 200 OK from " + url + ": Session not found"},
		{name: "not modified", status: 304, want: "refused: HTTP 304 Not Modified from " + url},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method != http.MethodPost:
					w.WriteHeader(http.StatusMethodNotAllowed)
				case r.Header.Get("Mcp-Session-Id") == "":
					w.Header().Set("Mcp-Session-Id", "s-1")
					replyJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
				default:
					for k, v := range tt.header {
						w.Header()[k] = v
					}
					w.Header().Set("Content-Type", tt.contentType)
					w.WriteHeader(cmp.Or(tt.status, 200))
					_, _ = io.WriteString(w, tt.body)
				}
			}, func(t *testing.T, client *http.Client) {
				w := dialHTTP(at(url+"?key=secret"), ignore, nil, client)
				defer finish(t, w)
				if got := try(t.Context(), w, query(1, "initialize")); got != "result: {}" {
					t.Fatal(got)
				}
				if got := try(t.Context(), w, query(2, "tools/call")); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			})
		})
	}
}

// What refuses initialize keeps its status and headers: none of it means that the server is of another kind.
func TestHTTPRefusedInitialize(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 410, 500, 503} {
		withServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer scope="a"`)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "no session found")
		}, func(t *testing.T, client *http.Client) {
			w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
			defer finish(t, w)
			_, err := w.request(t.Context(), query(1, "initialize"))
			var e *httpError
			if !errors.As(err, &e) || e.status != status || e.lost || e.header.Get("Retry-After") != "7" ||
				e.header.Get("WWW-Authenticate") != `Bearer scope="a"` {
				t.Errorf("%d: got %v, %+v", status, err, e)
			}
		})
	}
}

func TestHTTPNotificationAnswers(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		want string
	}{
		{"202", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(202) }, "result: "},
		{"204", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) }, "result: "},
		{"200", func(w http.ResponseWriter, r *http.Request) {}, "result: "},
		{"200 with JSON", func(w http.ResponseWriter, r *http.Request) { replyJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`) }, "result: "},
		{"a stream without end", func(w http.ResponseWriter, r *http.Request) { emit(w, ":"); <-r.Context().Done() }, "result: "},
		{"400", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "what?", 400) },
			"refused: HTTP 400 Bad Request from http://mcp.test/mcp: what?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, tt.h, func(t *testing.T, client *http.Client) {
				var logged strings.Builder
				w := dialHTTP(at("http://mcp.test/mcp"), ignore, slog.New(slog.NewTextHandler(&logged, nil)), client)
				err := w.send(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
				if got := outcome(nil, nil, err); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				finish(t, w)
				if logged.Len() > 0 {
					t.Errorf("logged %s", logged.String())
				}
			})
		})
	}
}

// Sends keep their order; a server that is slow to take them holds up no request.
func TestHTTPSendsInOrder(t *testing.T) {
	var got notes
	withServer(t, func(w http.ResponseWriter, r *http.Request) {
		m := said(r)
		if m.ID == nil {
			time.Sleep(time.Minute)
			w.WriteHeader(202)
		} else {
			replyJSON(w, ok(m.ID))
		}
		got.add("%s", m.Method)
	}, func(t *testing.T, client *http.Client) {
		w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
		for _, method := range []string{"a", "b", "c"} {
			go func() { _ = w.send(t.Context(), fmt.Appendf(nil, `{"method":%q}`, method)) }()
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.send(ctx, []byte(`{"method":"late"}`)); err != context.DeadlineExceeded {
			t.Errorf("a send that waits for others: got %v", err)
		}
		if out := try(t.Context(), w, query(1, "ping")); out != "result: {}" {
			t.Error(out)
		}
		time.Sleep(time.Hour)
		finish(t, w)
		got.expect(t, "ping", "a", "b", "c")
	})
}

// Everything arrives in order, before the answer and while the server still works on it; the server's own request ids
// are not ours.
func TestHTTPStream(t *testing.T) {
	var got notes
	withServer(t, func(w http.ResponseWriter, r *http.Request) {
		m := said(r)
		if m.ID == nil || m.Method == "" {
			got.add("server got %s %s%s", m.Method, m.Result, m.ID)
			w.WriteHeader(202)
			return
		}
		emit(w, ": open", `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"n":1}}`)
		time.Sleep(5 * time.Minute) // nothing times out by itself
		emit(w, `data: {"jsonrpc":"2.0","id":5,"method":"sampling/createMessage","params":{}}`,
			`data: {"id":6,"result":"not yours"}`)
		time.Sleep(time.Minute)
		emit(w, `data: {"jsonrpc":"2.0","id":5,"result":"yes"}`)
		emit(w, `data: {"jsonrpc":"2.0","method":"notifications/late"}`)
		<-r.Context().Done() // closed by the wire, as this server does not
	}, func(t *testing.T, client *http.Client) {
		w := dialHTTP(at("http://mcp.test/mcp"), got.inbound, nil, client)
		go func() {
			time.Sleep(time.Second)
			got.add("one second later")
			time.Sleep(5*time.Minute + time.Second)
			_ = w.send(t.Context(), []byte(`{"jsonrpc":"2.0","id":5,"result":{}}`))
		}()
		got.add("%s", try(t.Context(), w, query(5, "tools/call")))
		time.Sleep(time.Second)
		finish(t, w)
		got.expect(t,
			`notifications/progress  {"n":1} during 5`,
			`one second later`,
			`sampling/createMessage 5 {} during 5`,
			`server got  {}5`,
			`result: "yes"`,
			`notifications/late   during 5`,
		)
	})
}

func TestHTTPLargeAnswers(t *testing.T) {
	for _, n := range []int{2_100_000, 5_000_000} {
		want := `"` + strings.Repeat("x", n) + `"`
		for _, kind := range []string{"application/json", "text/event-stream"} {
			withServer(t, func(w http.ResponseWriter, r *http.Request) {
				body := `{"jsonrpc":"2.0","id":1,"result":` + want + `}`
				if kind == "text/event-stream" {
					body = "data: " + body + "\n\n"
				}
				replyAs(w, kind, body)
			}, func(t *testing.T, client *http.Client) {
				w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
				defer finish(t, w)
				if m, err := w.request(t.Context(), query(1, "tools/call")); err != nil || string(m.Result) != want {
					t.Errorf("%d bytes of %s: got %d bytes, %v", n, kind, len(m.Result), err)
				}
			})
		}
	}
}

func TestHTTPTooLarge(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		want string
	}{
		{"declared", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "70000000")
			_, _ = io.WriteString(w, "{")
		}, "a message of 70000000 bytes, over the limit of 1048576 bytes"},
		{"undeclared", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, endless(strings.Repeat(" ", 64<<10)))
		}, "a message of more than the limit of 1048576 bytes"},
		{"event", func(w http.ResponseWriter, r *http.Request) {
			emit(w, ":")
			_, _ = io.Copy(w, endless("data: "+strings.Repeat("x", 1<<16)+"\n"))
		}, "a message of more than the limit of 1048576 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, tt.h, func(t *testing.T, client *http.Client) {
				w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
				w.max = 1 << 20
				defer finish(t, w)
				if got := try(t.Context(), w, query(1, "tools/call")); got != "broken, sent true: far: "+tt.want {
					t.Errorf("got %s", got)
				}
			})
		})
	}
}

func TestHTTPRedirects(t *testing.T) {
	var got notes
	for _, tt := range []struct {
		name string
		to   map[string]string // path → "status target"
		want string
		seen []string
	}{
		{"307", map[string]string{"/mcp": "307 /mcp/"}, "result: {}",
			[]string{"POST /mcp tools/list Bearer t", "POST /mcp/ tools/list Bearer t", "POST /mcp/ tools/call Bearer t"}},
		{"several", map[string]string{"/mcp": "308 http://MCP.test:80/a?k=v", "/a": "301 b", "/b": "302 c", "/c": "303 d"},
			"result: {}",
			[]string{"POST /mcp tools/list Bearer t", "POST /a?k=v tools/list Bearer t", "POST /b tools/list Bearer t",
				"POST /c tools/list Bearer t", "POST /d tools/list Bearer t", "POST /d tools/call Bearer t"}},
		{"another origin", map[string]string{"/mcp": "301 http://10.255.255.1/mcp?secret=1"},
			"refused: HTTP 301 Moved Permanently from http://mcp.test/mcp: it redirects to http://10.255.255.1/mcp, which is another " +
				"origin and not followed: if that is where the server is, put this URL into its configuration", nil},
		{"loop", map[string]string{"/mcp": "307 /mcp/", "/mcp/": "307 /mcp"},
			"refused: HTTP 307 Temporary Redirect from http://mcp.test/mcp/: it redirects in a loop, to http://mcp.test/mcp: " +
				"check the URL in its configuration, and its trailing slash", nil},
		{"without end", map[string]string{}, "refused: HTTP 307 Temporary Redirect from http://mcp.test/10: more than 10 redirects " +
			"in a row, the last to http://mcp.test/11", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got = notes{}
			withServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Host != "mcp.test" && r.Host != "MCP.test:80" {
					t.Errorf("a request to %s", r.Host)
				}
				got.add("%s %s %s %s", r.Method, r.RequestURI, said(r).Method, r.Header.Get("Authorization"))
				status, target, redirects := strings.Cut(tt.to[r.URL.Path], " ")
				if len(tt.to) == 0 {
					n := 0
					_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
					status, target, redirects = "307", fmt.Sprintf("/%d", n+1), true
				}
				if redirects {
					w.Header().Set("Location", target)
					code := 0
					_, _ = fmt.Sscan(status, &code)
					w.WriteHeader(code)
					return
				}
				replyJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			}, func(t *testing.T, client *http.Client) {
				spec := at("http://mcp.test/mcp")
				spec.Headers = map[string]string{"Authorization": "Bearer t"}
				w := dialHTTP(spec, ignore, nil, client)
				defer finish(t, w)
				for _, method := range []string{"tools/list", "tools/call"} {
					if got := try(t.Context(), w, query(1, method)); got != tt.want {
						t.Fatalf("got  %s\nwant %s", got, tt.want)
					}
				}
				if tt.seen != nil {
					got.expect(t, tt.seen...)
				}
			})
		})
	}
}

// The optional stream: what the server answers to GET, and how often it was asked within two hours.
func TestHTTPListen(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }
	}
	var events atomic.Int32
	for _, tt := range []struct {
		name      string
		get       http.HandlerFunc
		low, high int
	}{
		{"405", status(405), 1, 1},
		{"404", status(404), 1, 1},
		{"400", status(400), 1, 1},
		{"401", status(401), 1, 1},
		{"501", status(501), 1, 1},
		{"a page", func(w http.ResponseWriter, r *http.Request) { replyAs(w, "text/html", "<p>hello") }, 1, 1},
		{"redirect elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://else.test/", http.StatusFound)
		}, 1, 1},
		{"no headers for ever", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 1, 1},
		{"silent for ever", func(w http.ResponseWriter, r *http.Request) { emit(w); <-r.Context().Done() }, 1, 1},
		{"cut every minute", func(w http.ResponseWriter, r *http.Request) { emit(w); time.Sleep(time.Minute) }, 115, 120},
		{"broken", status(502), 120, 250},
		{"ends at once", func(w http.ResponseWriter, r *http.Request) { emit(w, ":") }, 120, 250},
		{"wants pauses", func(w http.ResponseWriter, r *http.Request) { emit(w, "retry: 600000") }, 12, 13},
		{"events", func(w http.ResponseWriter, r *http.Request) {
			id := events.Add(1)
			if last := r.Header.Get("Last-Event-ID"); id == 1 && last != "" || id > 1 && last != fmt.Sprint(id-1) {
				t.Errorf("stream %d begins after event %q", id, last)
			}
			emit(w, fmt.Sprintf("id: %d\ndata: {\"method\":\"m\"}", id))
			time.Sleep(time.Minute)
		}, 115, 120},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var gets atomic.Int32
			withServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					gets.Add(1)
					tt.get(w, r)
					return
				}
				replyJSON(w, ok(said(r).ID))
			}, func(t *testing.T, client *http.Client) {
				var seen atomic.Int32
				w := dialHTTP(at("http://mcp.test/mcp"), func(jsonrpc.Message, int64) { seen.Add(1) }, nil, client)
				began := time.Now()
				w.negotiated("2025-11-25", false)
				w.negotiated("2025-11-25", false)
				if got := try(t.Context(), w, query(1, "tools/list")); got != "result: {}" || time.Since(began) > 0 {
					t.Errorf("got %s after %v", got, time.Since(began))
				}
				time.Sleep(2 * time.Hour)
				if n := int(gets.Load()); n < tt.low || n > tt.high {
					t.Errorf("got %d streams, want %d to %d", n, tt.low, tt.high)
				}
				if n := seen.Load(); tt.name == "events" && n != gets.Load() {
					t.Errorf("got %d events of %d", n, gets.Load())
				}
				finish(t, w)
			})
		})
	}
}

// An answer's stream that breaks off is continued where its events have ids.
func TestHTTPResume(t *testing.T) {
	const done = `data: {"jsonrpc":"2.0","id":1,"result":"done"}`
	for _, tt := range []struct {
		name    string
		version string
		post    string
		gets    []http.HandlerFunc // the last repeats
		want    string
		seen    []string
	}{
		{name: "continued", version: "2025-11-25", post: "id: a\nretry: 200\ndata:", gets: []http.HandlerFunc{
			func(w http.ResponseWriter, r *http.Request) { emit(w, "id: b\ndata: {\"method\":\"m\"}") },
			func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502) },
			func(w http.ResponseWriter, r *http.Request) { emit(w, done) },
		}, want: `result: "done"`, seen: []string{"200ms after a", "m   during 1", "400ms after b", "600ms after b"}},
		{name: "three in vain", version: "2025-03-26", post: "id: a\ndata:", gets: []http.HandlerFunc{
			func(w http.ResponseWriter, r *http.Request) { emit(w, ":") },
		}, want: "broken, sent true: far: the server ended its answer before it was complete",
			seen: []string{"1s after a", "2s after a", "3s after a"}},
		{name: "polling for long", version: "2025-11-25", post: "id: a\nretry: 1\ndata:", gets: []http.HandlerFunc{
			func(w http.ResponseWriter, r *http.Request) { emit(w, ":"); time.Sleep(time.Hour) },
			func(w http.ResponseWriter, r *http.Request) { emit(w, ":"); time.Sleep(time.Hour) },
			func(w http.ResponseWriter, r *http.Request) { emit(w, ":"); time.Sleep(time.Hour) },
			func(w http.ResponseWriter, r *http.Request) { emit(w, ":"); time.Sleep(time.Hour) },
			func(w http.ResponseWriter, r *http.Request) { emit(w, done) },
		}, want: `result: "done"`, seen: []string{
			"1ms after a", "1h0m0.002s after a", "2h0m0.003s after a", "3h0m0.004s after a", "4h0m0.005s after a"}},
		{name: "refused", version: "2025-11-25", post: "id: a\ndata:", gets: []http.HandlerFunc{
			func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(405) },
		}, want: "broken, sent true: far: its answer broke off, and to go on failed: " +
			"HTTP 405 Method Not Allowed from http://mcp.test/mcp", seen: []string{"1s after a"}},
		{name: "no ids", version: "2025-11-25", post: ":", want: "broken, sent true: far: the server ended its answer before it was complete"},
		{name: "first era", version: "2024-11-05", post: "id: a\ndata:",
			want: "broken, sent true: far: the server ended its answer before it was complete"},
		{name: "last era", version: "2026-07-28", post: "id: a\ndata:",
			want: "broken, sent true: far: the server ended its answer before it was complete"},
		{name: "until ctx ends", version: "2025-11-25", post: "id: a\nretry: 4000000\ndata:", want: "context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got notes
			var began time.Time
			gets := 0
			withServer(t, func(w http.ResponseWriter, r *http.Request) {
				last := r.Header.Get("Last-Event-ID")
				switch {
				case r.Method == http.MethodPost:
					emit(w, tt.post)
				case last == "":
					w.WriteHeader(405)
				default:
					got.add("%v after %s", time.Since(began), last)
					gets++
					tt.gets[min(gets, len(tt.gets))-1](w, r)
				}
			}, func(t *testing.T, client *http.Client) {
				began = time.Now()
				w := dialHTTP(at("http://mcp.test/mcp"), got.inbound, nil, client)
				w.negotiated(tt.version, tt.version > "2026")
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
				if tt.want == context.DeadlineExceeded.Error() {
					ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
				}
				defer cancel()
				if out := try(ctx, w, query(1, "tools/call")); out != tt.want {
					t.Errorf("got %s, want %s", out, tt.want)
				}
				finish(t, w)
				got.expect(t, tt.seen...)
			})
		})
	}
}

func TestHTTPRateLimit(t *testing.T) {
	for _, tt := range []struct {
		name, method, after string
		want                string
		took                time.Duration
		limit               time.Duration
	}{
		{name: "listing", method: "tools/list", after: "2", want: "result: {}", took: 2 * time.Second},
		{name: "initialize", method: "initialize", after: "30", want: "result: {}", took: 30 * time.Second},
		{name: "call", method: "tools/call", after: "2", want: "refused"},
		{name: "too long", method: "ping", after: "31", want: "refused"},
		{name: "not said", method: "ping", want: "refused"},
		{name: "longer than ctx", method: "ping", after: "9", want: "refused", limit: 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := 0
			withServer(t, func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 1 {
					w.Header().Set("Retry-After", tt.after)
					w.WriteHeader(429)
					return
				}
				replyJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			}, func(t *testing.T, client *http.Client) {
				w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
				defer finish(t, w)
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tt.limit, time.Hour))
				defer cancel()
				began := time.Now()
				got := try(ctx, w, query(1, tt.method))
				if !strings.HasPrefix(got, tt.want) || time.Since(began) != tt.took {
					t.Errorf("got %s after %v, want %s after %v", got, time.Since(began), tt.want, tt.took)
				}
			})
		})
	}
}

// When ctx ends the request returns at once, and the server sees its connection closed.
func TestHTTPCancel(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    func(http.ResponseWriter)
	}{
		{"before headers", func(http.ResponseWriter) {}},
		{"in a stream", func(w http.ResponseWriter) { emit(w, ":") }},
		{"in JSON", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
		}},
		{"in an error page", func(w http.ResponseWriter) {
			w.WriteHeader(500)
			_ = http.NewResponseController(w).Flush()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			gone := false
			withServer(t, func(w http.ResponseWriter, r *http.Request) {
				_ = said(r)
				tt.h(w)
				<-r.Context().Done()
				gone = true
			}, func(t *testing.T, client *http.Client) {
				w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				got := try(ctx, w, query(1, "tools/call"))
				synctest.Wait()
				if got != context.DeadlineExceeded.Error() || time.Since(began) != time.Second || !gone {
					t.Errorf("got %s after %v, server's request ended: %v", got, time.Since(began), gone)
				}
				finish(t, w)
			})
		})
	}
}

func TestHTTPClose(t *testing.T) {
	withServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && said(r).Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", "s")
			replyJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			return
		}
		<-r.Context().Done() // also DELETE
	}, func(t *testing.T, client *http.Client) {
		w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
		_ = try(t.Context(), w, query(1, "initialize"))
		w.negotiated("2025-06-18", false)
		var got notes
		go func() { got.add("request: %s", try(t.Context(), w, query(2, "tools/call"))) }()
		go func() { got.add("send: %v", w.send(t.Context(), []byte(`{"method":"n"}`))) }()
		synctest.Wait()
		finish(t, w) // the 2 s of the DELETE
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = w.close(ctx)
		got.add("request: %s", try(t.Context(), w, query(3, "tools/call")))
		got.add("send: %v", w.send(t.Context(), []byte(`{"method":"n"}`)))
		w.negotiated("2025-06-18", false)
		list := got.list()
		if list[0] > list[1] {
			list[0], list[1] = list[1], list[0]
		}
		(&notes{all: list}).expect(t,
			"request: broken, sent true: far: the connection was closed", "send: far: the connection was closed",
			"request: broken, sent false: far: the connection was closed", "send: far: the connection was closed")
		if err := w.vitals().lastErr; !errors.Is(err, errClosed) {
			t.Errorf("got %v, want %v", err, errClosed)
		}
	})
}

func TestHTTPSessionID(t *testing.T) {
	for id, want := range map[string]string{"a!~": "a!~", "with space": "", "caf\u00e9": "", "": ""} {
		var got notes
		withServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				got.add("%s", r.Header.Get("Mcp-Session-Id"))
			}
			w.Header().Set("Mcp-Session-Id", id)
			replyJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}, func(t *testing.T, client *http.Client) {
			w := dialHTTP(at("http://mcp.test/mcp"), ignore, nil, client)
			for _, method := range []string{"initialize", "ping", "initialize"} {
				_ = try(t.Context(), w, query(1, method))
			}
			finish(t, w)
			got.expect(t, "", want, "")
		})
	}
}
