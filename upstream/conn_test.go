package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

func httpRefusal(status int) spoken {
	return spoken{err: &httpError{status: status, url: "http://fake/mcp", message: "no"}}
}

func unsupported(versions ...string) spoken {
	data, _ := json.Marshal(map[string][]string{"supported": versions}) // strings always encode
	return spoken{err: &jsonrpc.Error{Code: jsonrpc.CodeUnsupportedProtocol, Message: "unsupported", Data: data}}
}

// What each kind of server makes of the negotiation: the requests that it gets, in order, and what is agreed on.
func TestEras(t *testing.T) {
	const initialized = "notifications/initialized"
	speaks := func(version string) func(w *fakeWire, q request) spoken {
		return func(w *fakeWire, q request) spoken {
			if q.Method == "initialize" {
				return result(`{"protocolVersion":%q,"capabilities":{}}`, version)
			}
			return spoken{}
		}
	}
	// answers gives each of several requests of a method its own answer, the last for all that follow.
	answers := func(method string, each ...spoken) func(w *fakeWire, q request) spoken {
		return func(w *fakeWire, q request) spoken {
			if q.Method == method {
				return each[min(w.fake.count(method), len(each))-1]
			}
			return spoken{}
		}
	}
	over := func(server func(*fakeWire, request) spoken, first func(*fakeWire, request) spoken) func(*fakeWire, request) spoken {
		return func(w *fakeWire, q request) spoken {
			if r := first(w, q); r != (spoken{}) {
				return r
			}
			return server(w, q)
		}
	}
	isModern := func(_ *fakeWire, q request) spoken { return modernFake(q) }
	tests := []struct {
		name    string
		change  func(*configs.Server)
		answer  func(w *fakeWire, q request) spoken
		known   string // version in the catalog
		want    string // version agreed on; "" when there is none
		methods []string
		took    time.Duration
		dials   int
		stage   Stage
		auth    bool
	}{
		{name: "handshake", want: "2025-11-25", methods: []string{"server/discover", "initialize", initialized}},
		{name: "handshake 2024", answer: speaks("2024-11-05"), want: "2024-11-05",
			methods: []string{"server/discover", "initialize", initialized}},
		{name: "known handshake", known: "2025-06-18", want: "2025-11-25", methods: []string{"initialize", initialized}},
		{name: "unknown version", answer: speaks("2031-01-01"), dials: 2, stage: Handshake,
			methods: []string{"server/discover", "initialize", "initialize"}},
		{name: "modern", answer: isModern, want: "2026-07-28", methods: []string{"server/discover"}},
		{name: "known modern", answer: isModern, known: "2026-07-28", want: "2026-07-28", methods: []string{"server/discover"}},
		{name: "known modern, replaced by an old one", known: "2026-07-28", want: "2025-11-25",
			methods: []string{"server/discover", "initialize", initialized}},
		{name: "known handshake, replaced by a modern one", answer: isModern, known: "2025-06-18", want: "2026-07-28",
			methods: []string{"initialize", "server/discover"}},
		{name: "silent about its era", answer: answers("server/discover", spoken{silent: true}), want: "2025-11-25",
			methods: []string{"server/discover", "initialize", initialized}, took: 2 * time.Second},
		{name: "slow modern start", want: "2026-07-28", methods: []string{"server/discover", "initialize"}, took: 7 * time.Second,
			answer: func(w *fakeWire, q request) spoken {
				time.Sleep(7*time.Second - time.Duration(w.fake.count("initialize"))*2*time.Second)
				if q.Method == "initialize" {
					time.Sleep(time.Millisecond)
				}
				return modernFake(q)
			}},
		{name: "slow start of one that knows both", want: "2025-11-25", took: 32 * time.Second,
			methods: []string{"server/discover", "initialize", initialized},
			answer: func(w *fakeWire, q request) spoken {
				if w.fake.count("tools/list") == 0 && q.Method != initialized {
					time.Sleep(30 * time.Second)
				}
				if q.Method == "server/discover" {
					return spoken{silent: true}
				}
				return spoken{}
			}},
		{name: "lenient about unknown methods", answer: answers("server/discover", result(`{}`)), want: "2025-11-25",
			methods: []string{"server/discover", "initialize", initialized}},
		{name: "wants it said twice", answer: over(isModern, answers("server/discover", unsupported("2026-07-28"), spoken{})),
			want: "2026-07-28", methods: []string{"server/discover", "server/discover"}},
		{name: "refuses the probe, names an old version", answer: answers("server/discover", unsupported("2027-01-01", "2025-06-18")),
			want: "2025-11-25", methods: []string{"server/discover", "initialize", initialized}},
		{name: "too new", answer: func(*fakeWire, request) spoken { return unsupported("2027-01-01") }, dials: 2, stage: Handshake,
			methods: []string{"server/discover", "initialize", "server/discover"}},
		{name: "refuses with a list", answer: answers("initialize", unsupported("2025-06-18", "x"), result(`{"protocolVersion":"2025-06-18"}`)),
			want: "2025-06-18", methods: []string{"server/discover", "initialize", "initialize", initialized}},
		{name: "upset by a request before initialize", want: "2025-11-25", dials: 2,
			methods: []string{"server/discover", "initialize", initialized},
			answer: func(w *fakeWire, q request) spoken {
				if q.Method == "server/discover" {
					w.die(1)
				}
				return spoken{}
			}},
		{name: "refuses initialize after the probe", want: "2025-11-25", dials: 2,
			methods: []string{"server/discover", "initialize", "initialize", initialized},
			answer: func(w *fakeWire, q request) spoken {
				if q.Method == "initialize" && w.fake.dials() == 1 {
					return rpcError(-32600, "too late")
				}
				return spoken{}
			}},

		{name: "HTTP 400 in plain text", change: overHTTP, answer: answers("server/discover", httpRefusal(400)), want: "2025-11-25",
			methods: []string{"server/discover", "initialize", initialized}},
		{name: "HTTP 405", change: overHTTP, answer: answers("server/discover", httpRefusal(405)), want: "2025-11-25",
			methods: []string{"server/discover", "initialize", initialized}},
		{name: "HTTP 401", change: overHTTP, answer: answers("server/discover", httpRefusal(401)), stage: Handshake, auth: true,
			methods: []string{"server/discover"}},
		{name: "HTTP 403", change: overHTTP, answer: answers("server/discover", httpRefusal(403)), stage: Handshake,
			methods: []string{"server/discover"}},
		{name: "HTTP 503", change: overHTTP, answer: answers("server/discover", httpRefusal(503)), stage: Handshake,
			methods: []string{"server/discover"}},
		{name: "nobody there", change: overHTTP, answer: answers("server/discover", spoken{err: &wireError{err: errors.New("refused")}}),
			stage: Spawn, methods: []string{"server/discover"}},
		{name: "closes the connection", change: overHTTP,
			answer: answers("server/discover", spoken{err: &wireError{sent: true, err: errors.New("EOF")}}),
			want:   "2025-11-25", methods: []string{"server/discover", "initialize", initialized}},
		{name: "never answers", change: overHTTP, answer: func(*fakeWire, request) spoken { return spoken{silent: true} },
			stage: Handshake, methods: []string{"server/discover", "initialize"}, took: 15 * time.Second},
		{name: "HTTP+SSE by fallback", change: func(s *configs.Server) { overHTTP(s); s.Fallback = true }, want: "2024-11-05", dials: 2,
			methods: []string{"server/discover", "initialize", "initialize", initialized},
			answer: func(w *fakeWire, q request) spoken {
				if w.spec.Transport == configs.StreamableHTTP {
					return httpRefusal(405)
				}
				return speaks("2024-11-05")(w, q)
			}},
		{name: "no fallback for 403", change: func(s *configs.Server) { overHTTP(s); s.Fallback = true }, stage: Handshake,
			methods: []string{"server/discover", "initialize"}, answer: answers("initialize", httpRefusal(403))},
		{name: "no fallback where the transport is named", change: overHTTP, stage: Handshake,
			methods: []string{"server/discover", "initialize"}, answer: answers("initialize", httpRefusal(405))},
		{name: "HTTP+SSE", change: func(s *configs.Server) { s.Transport = configs.SSE }, want: "2025-11-25",
			methods: []string{"initialize", initialized}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lazy(tt.change), tt.answer)
				defer r.close()
				if tt.known != "" {
					_, _ = r.catalog.Put(&index.Listing{Server: "fake", SpecHash: "sha256:1", ProtocolVersion: tt.known})
				}
				began := time.Now()
				got := ""
				err := r.srv.Do(t.Context(), func(_ context.Context, c *Conn) error {
					got = c.ProtocolVersion()
					return nil
				})
				took := time.Since(began)
				synctest.Wait()
				methods := slices.DeleteFunc(r.methods(), func(m string) bool { return m == "tools/list" || m == "notifications/cancelled" })
				if tt.want == "2026-07-28" { // its ping
					methods = methods[:min(len(methods), len(tt.methods))]
				}
				if got != tt.want || !slices.Equal(methods, tt.methods) || took != tt.took || r.dials() != max(tt.dials, 1) {
					t.Errorf("got %q, %v, in %v, %d dials, %v\nwant %q, %v, in %v, %d dials", got, methods, took, r.dials(), err,
						tt.want, tt.methods, tt.took, max(tt.dials, 1))
				}
				if tt.want != "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				var f *Failure
				if !errors.As(err, &f) || f.Stage != tt.stage || f.NeedsAuth != tt.auth || f.Hint == "" || f.Message == "" {
					t.Errorf("got %+v, want stage %s, needs auth: %v", err, tt.stage, tt.auth)
				}
			})
		})
	}
}

func TestHandshakeRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		if err := r.srv.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"mcpproxy","version":"1.2.3"}}`
		if got := string(r.all("initialize")[0].Params); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		probe := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"mcpproxy","version":"1.2.3"},` +
			`"io.modelcontextprotocol/clientCapabilities":{}}}`
		if got := string(r.all("server/discover")[0].Params); got != probe {
			t.Errorf("got %s, want %s", got, probe)
		}
		if m := r.methods(); slices.Index(m, "notifications/initialized") > slices.Index(m, "tools/list") {
			t.Errorf("order %v", m)
		}
		if l := r.srv.known(); l == nil || l.ProtocolVersion != "2025-11-25" || len(l.Tools) != 1 ||
			string(l.ServerInfo) != `{"name":"fake","version":"1"}` || string(l.Capabilities) != `{"tools":{"listChanged":true}}` {
			t.Errorf("listing %+v", l)
		}
	})
}

// What a server gets is the caller's bytes with our token, and in the modern era with what each request has to carry.
func TestConnParams(t *testing.T) {
	about := `,"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"mcpproxy","version":"1.2.3"},"io.modelcontextprotocol/clientCapabilities":{}`
	for _, tt := range []struct{ name, in, want, token string }{
		{"nothing", ``, `{"_meta":{"progressToken":7%s}}`, ""},
		{"null", ` null `, `{"_meta":{"progressToken":7%s}}`, ""},
		{"arguments", `{"name":"x","arguments":{"b":1.0,"a":9007199254740993}}`,
			`{"name":"x","arguments":{"b":1.0,"a":9007199254740993},"_meta":{"progressToken":7%s}}`, ""},
		{"own meta", `{"_meta":{"x":1},"name":"x"}`, `{"_meta":{"x":1,"progressToken":7%s},"name":"x"}`, ""},
		{"own token", `{"_meta":{"progressToken":"t","x":1}}`, `{"_meta":{"progressToken":7,"x":1%s}}`, `"t"`},
		{"meta is no object", `{"_meta":5}`, `{"_meta":{"progressToken":7%s}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, modern := range []bool{false, true} {
				c := newConn(&Server{id: "x", pool: &Pool{Options: Options{Version: "1.2.3"}}}, true)
				want := fmt.Sprintf(tt.want, "")
				if modern {
					c.hello = hello{version: "2026-07-28", modern: true}
					want = fmt.Sprintf(tt.want, about)
				}
				got, token, err := c.params(json.RawMessage(tt.in), 7)
				if string(got) != want || string(token) != tt.token || err != nil {
					t.Errorf("got %s, token %s, %v\nwant %s, token %s", got, token, err, want, tt.token)
				}
			}
		})
	}
	for _, bad := range []string{`5`, `"x"`, `[1]`, `{`, `{"a":}`, `{}{}`} {
		if _, _, err := newConn(&Server{}, true).params(json.RawMessage(bad), 7); !errors.As(err, new(*jsonrpc.Error)) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

func TestModernHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(overHTTP), func(w *fakeWire, q request) spoken {
			if q.Method == "tools/list" {
				return result(`{"tools":[
					{"name":"echo","inputSchema":{"type":"object","properties":{"a":{"type":"integer","x-mcp-header":"Region"}}}},
					{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"X"}}}}],"ttlMs":60000}`)
			}
			return modernFake(q)
		})
		defer r.close()
		if err := r.srv.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.mustCall()
		want := http.Header{
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"}, "Mcp-Param-Region": {"1"},
		}
		if got := r.all("tools/call")[0].header; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := r.all("server/discover")[0].header; got.Get("Mcp-Protocol-Version") != "2026-07-28" || got.Get("Mcp-Method") != "server/discover" {
			t.Errorf("probe: %v", got)
		}
		l := r.srv.known()
		if len(l.Tools) != 1 || len(l.Warnings) != 1 || l.TTL != time.Minute || string(l.ServerInfo) != `{"name":"m"}` {
			t.Errorf("listing %+v", l)
		}
	})
}

// Progress extends the time, reaches the caller under its own token, and only then, in order and before the result.
func TestProgress(t *testing.T) {
	bubble(t, map[string]func(*testing.T){
		"extends and is handed on": func(t *testing.T) {
			r := newRig(t, lazy(shortCalls), func(w *fakeWire, q request) spoken {
				if q.Method == "tools/call" {
					token := jsonrpc.Member(q.Params, "_meta", "progressToken")
					w.say(0, `{"method":"notifications/progress","params":{"progressToken":999,"progress":1}}`)
					for i := range 12 {
						time.Sleep(500 * time.Millisecond)
						w.say(0, `{"method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i)
					}
				}
				return spoken{}
			})
			defer r.close()
			var got []string
			call := func(params string) {
				_, err := r.srv.Call(t.Context(), Request{
					Method: "tools/call", Params: json.RawMessage(params),
					Notify: func(method string, params json.RawMessage) { got = append(got, string(params)) },
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			call(`{"name":"echo","arguments":{},"_meta":{"progressToken":"mine"}}`)
			if len(got) != 12 || got[3] != `{"progressToken":"mine","progress":3}` {
				t.Errorf("got %q", got)
			}
			got = nil
			call(`{"name":"echo","arguments":{}}`)
			if got != nil {
				t.Errorf("progress without a token: %q", got)
			}
		},
		"has a cap": func(t *testing.T) {
			r := newRig(t, lazy(shortCalls), func(w *fakeWire, q request) spoken {
				if q.Method == "tools/call" {
					for {
						time.Sleep(500 * time.Millisecond)
						if w.alive.Err() != nil {
							return spoken{silent: true}
						}
						w.say(0, `{"method":"notifications/progress","params":{"progressToken":%s}}`, jsonrpc.Member(q.Params, "_meta", "progressToken"))
					}
				}
				return spoken{}
			})
			defer r.close()
			var over *TimeoutError
			if err := r.call(t.Context()); !errors.As(err, &over) || over.After != 10*time.Second {
				t.Errorf("got %v", err)
			}
		},
	})
}

func shortCalls(s *configs.Server) {
	s.Limits.CallTimeout, s.Limits.MaxCallTimeout = 2*time.Second, 10*time.Second
}

// A call that is not waited for any more is cancelled by its own id; the late answer is dropped, and the server serves on.
func TestCancellation(t *testing.T) {
	slow := func(w *fakeWire, q request) spoken {
		if q.Method == "tools/call" && w.fake.count("tools/call") == 1 {
			time.Sleep(5 * time.Second)
		}
		return spoken{}
	}
	for _, tt := range []struct {
		name   string
		change func(*configs.Server)
		answer func(w *fakeWire, q request) spoken
		told   bool
	}{
		{"stdio", shortCalls, slow, true},
		{"HTTP", func(s *configs.Server) { shortCalls(s); overHTTP(s) }, slow, true},
		{"modern stdio", shortCalls, func(w *fakeWire, q request) spoken { slow(w, q); return modernFake(q) }, true},
		{"modern HTTP", func(s *configs.Server) { shortCalls(s); overHTTP(s) },
			func(w *fakeWire, q request) spoken { slow(w, q); return modernFake(q) }, false},
	} {
		for _, byCaller := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, byCaller), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, lazy(tt.change), tt.answer)
					defer r.close()
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					want := 2 * time.Second
					if byCaller {
						want = 300 * time.Millisecond
						time.AfterFunc(want, cancel)
					}
					began := time.Now()
					err := r.call(ctx)
					var over *TimeoutError
					if errors.As(err, &over) == byCaller || errors.Is(err, context.Canceled) != byCaller || time.Since(began) != want {
						t.Errorf("got %v after %v, want %v", err, time.Since(began), want)
					}
					synctest.Wait()
					told := r.all("notifications/cancelled")
					if !tt.told {
						if len(told) != 0 {
							t.Errorf("told %s", told[0].Params)
						}
						return
					}
					id := fmt.Sprint(r.all("tools/call")[0].id)
					if len(told) != 1 || string(jsonrpc.Member(told[0].Params, "requestId")) != id || told[0].ID != nil {
						t.Fatalf("told %+v, want id %s", told, id)
					}
					if jsonrpc.Unquote(jsonrpc.Member(told[0].Params, "reason")) == "" {
						t.Error("no reason")
					}
					r.mustCall()
				})
			})
		}
	}
	t.Run("ends the server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, lazy(shortCalls), func(w *fakeWire, q request) spoken {
				if q.Method == "notifications/cancelled" {
					w.die(1)
				}
				return slow(w, q)
			})
			defer r.close()
			if err := r.call(t.Context()); err == nil {
				t.Error("no timeout")
			}
			synctest.Wait()
			r.mustCall()
		})
	})
}

// Log messages go to the call that they belong to, or to the only one there is.
func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
			if q.Method == "tools/call" {
				time.Sleep(time.Second)
				w.say(0, `{"method":"notifications/message","params":{"of":%d}}`, q.id)
				w.say(q.id, `{"method":"notifications/message","params":{"during":%d}}`, q.id)
				time.Sleep(time.Second)
			}
			return spoken{}
		})
		defer r.close()
		call := func(got *[]string) {
			_, _ = r.srv.Call(t.Context(), Request{Method: "tools/call", Params: json.RawMessage(`{"name":"echo","arguments":{}}`),
				Notify: func(method string, params json.RawMessage) { *got = append(*got, string(params)) }})
		}
		var alone []string
		call(&alone)
		if len(alone) != 2 {
			t.Errorf("alone: %q", alone)
		}
		var a, b []string
		var both sync.WaitGroup
		both.Go(func() { call(&a) })
		both.Go(func() { call(&b) })
		both.Wait()
		if len(a) != 1 || len(b) != 1 || a[0] == b[0] || !strings.Contains(a[0], "during") {
			t.Errorf("together: %q and %q", a, b)
		}
	})
}

func TestServerRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), nil)
		defer r.close()
		r.mustCall()
		w := r.last()
		w.say(0, `{"id":"a","method":"ping"}`)
		w.say(0, `{"id":2,"method":"roots/list"}`)
		w.say(0, `{"id":3,"method":"x/y"}`)
		synctest.Wait()
		var got []request
		for _, q := range r.all("") {
			if q.IsResponse() {
				got = append(got, q)
			}
		}
		if len(got) != 3 || string(got[0].ID) != `"a"` || string(got[0].Result) != "{}" {
			t.Fatalf("got %+v", got)
		}
		if e := got[1].Err(); e == nil || e.Code != jsonrpc.CodeMethodNotFound || !strings.Contains(e.Message, "not allowed by the configuration") {
			t.Errorf("got %v", e)
		}
		if e := got[2].Err(); e == nil || e.Code != jsonrpc.CodeMethodNotFound {
			t.Errorf("got %v", e)
		}
	})
}

// Ten calls that find their session forgotten begin one new session for all of them, and none of them fails.
func TestSessionLoss(t *testing.T) {
	var forgotten atomic.Bool
	lost := &httpError{status: 404, lost: true, url: "http://fake/mcp"}
	forgets := func(w *fakeWire, q request) spoken {
		if forgotten.Load() && w.fake.dials() > 0 && w == w.fake.first() && q.Method != "initialize" {
			time.Sleep(time.Duration(q.id%5) * time.Millisecond)
			return spoken{err: lost}
		}
		return spoken{}
	}
	bubble(t, map[string]func(*testing.T){
		"once": func(t *testing.T) {
			forgotten.Store(false)
			r := newRig(t, lazy(overHTTP), forgets)
			defer r.close()
			r.mustCall()
			synctest.Wait()
			forgotten.Store(true)
			var all sync.WaitGroup
			for range 10 {
				all.Go(r.mustCall)
			}
			all.Wait()
			if r.count("initialize") != 2 {
				t.Errorf("%d initialize, want 2", r.count("initialize"))
			}
			r.want(Ready)
			if f := r.srv.State().Failure; f != nil {
				t.Errorf("failure %v", f)
			}
		},
		"listing": func(t *testing.T) {
			forgotten.Store(false)
			r := newRig(t, lazy(overHTTP), forgets)
			defer r.close()
			r.mustCall()
			synctest.Wait()
			forgotten.Store(true)
			if err := r.srv.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"always": func(t *testing.T) {
			r := newRig(t, lazy(overHTTP), func(w *fakeWire, q request) spoken {
				if q.Method == "tools/call" {
					return spoken{err: lost}
				}
				return spoken{}
			})
			defer r.close()
			err := r.call(t.Context())
			var e *LostError
			if !errors.As(err, &e) || e.Sent || r.count("initialize") != 2 {
				t.Errorf("got %v, %d initialize", err, r.count("initialize"))
			}
		},
	})
}

func (f *fake) first() *fakeWire {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wires[0]
}

// A call is made again only when it can't have been carried out, or may be twice.
func TestRetryRules(t *testing.T) {
	unsent, sent := spoken{err: &wireError{err: errors.New("x")}}, spoken{err: &wireError{sent: true, err: errors.New("x")}}
	type outcome struct {
		calls, dials int
		kind         string
	}
	for _, tt := range []struct {
		name       string
		change     func(*configs.Server)
		each       []spoken // of the calls in turn; after these all is well
		repeatable bool
		want       outcome
	}{
		{"fine", nil, nil, false, outcome{1, 1, "<nil>"}},
		{"not sent", nil, []spoken{unsent}, false, outcome{2, 2, "<nil>"}},
		{"not sent, twice", nil, []spoken{unsent, unsent}, true, outcome{2, 2, "lost"}},
		{"sent", nil, []spoken{sent}, false, outcome{1, 1, "lost, sent"}},
		{"sent, repeatable", nil, []spoken{sent}, true, outcome{2, 2, "<nil>"}},
		{"sent, repeatable, twice", nil, []spoken{sent, sent}, true, outcome{2, 2, "lost, sent"}},
		{"HTTP, not sent", overHTTP, []spoken{unsent}, false, outcome{2, 1, "<nil>"}},
		{"HTTP, sent", overHTTP, []spoken{sent}, false, outcome{1, 1, "lost, sent"}},
		{"JSON-RPC error", nil, []spoken{rpcError(-32603, "internal")}, true, outcome{1, 1, "rpc"}},
		{"HTTP 500", overHTTP, []spoken{httpRefusal(500)}, true, outcome{1, 1, "lost, sent"}},
		{"HTTP 401", overHTTP, []spoken{httpRefusal(401)}, true, outcome{1, 1, "needs auth"}},
		{"HTTP 403", overHTTP, []spoken{httpRefusal(403)}, true, outcome{1, 1, "failure"}},
		{"HTTP 429", overHTTP, []spoken{httpRefusal(429)}, true, outcome{1, 1, "failure"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lazy(tt.change), func(w *fakeWire, q request) spoken {
					if n := w.fake.count("tools/call"); q.Method == "tools/call" && n <= len(tt.each) {
						return tt.each[n-1]
					}
					return spoken{}
				})
				defer r.close()
				_, err := r.srv.Call(t.Context(), Request{Method: "tools/call", Params: json.RawMessage(`{"name":"echo","arguments":{}}`),
					Repeatable: tt.repeatable})
				got := outcome{r.count("tools/call"), r.dials(), fmt.Sprint(err)}
				var lost *LostError
				var f *Failure
				switch {
				case errors.As(err, &lost):
					if got.kind = "lost"; lost.Sent {
						got.kind += ", sent"
					}
				case errors.As(err, &f):
					if got.kind = "failure"; f.NeedsAuth {
						got.kind = "needs auth"
					}
				case errors.As(err, new(*jsonrpc.Error)):
					got.kind = "rpc"
				}
				if got != tt.want {
					t.Errorf("got %+v, want %+v: %v", got, tt.want, err)
				}
				if tt.name == "HTTP 401" {
					r.want(NeedsAuth)
					return
				}
				r.mustCall()
			})
		})
	}
}

func TestParallelCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
			if q.Method == "tools/call" {
				time.Sleep(time.Duration(q.id*7%50) * time.Millisecond)
			}
			return spoken{}
		})
		defer r.close()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				got, err := r.srv.Call(t.Context(), Request{Method: "tools/call", Params: fmt.Appendf(nil, `{"name":"echo","arguments":{"i":%d}}`, i)})
				if want := fmt.Sprintf(`{"content":[],"got":{"i":%d}}`, i); string(got) != want || err != nil {
					t.Errorf("got %s, %v, want %s", got, err, want)
				}
			})
		}
		all.Wait()
	})
}

func TestNullResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
			if q.Method == "x/y" {
				return result("null")
			}
			return spoken{}
		})
		defer r.close()
		if got, err := r.srv.Call(t.Context(), Request{Method: "x/y"}); string(got) != "{}" || err != nil {
			t.Errorf("got %s, %v", got, err)
		}
	})
}

func TestFailureText(t *testing.T) {
	code := 3
	for _, tt := range []struct {
		f    Failure
		want string
	}{
		{Failure{Server: "a", Stage: Resolve, Message: "no such command"}, `server "a": resolve failed: no such command`},
		{Failure{Server: "a", Stage: Handshake, Message: "broke", ExitCode: &code}, `server "a": handshake failed: broke (exit code 3)`},
		{Failure{Server: "a", Stage: Handshake, Message: "HTTP 403 Forbidden", HTTPStatus: 403}, `server "a": handshake failed: HTTP 403 Forbidden`},
		{Failure{Server: "a", Stage: Handshake, NeedsAuth: true, Message: "no", HTTPStatus: 401}, `server "a": sign-in is needed: no (HTTP 401)`},
	} {
		if got := tt.f.Error(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*configs.Server)
		refuse error
		answer func(w *fakeWire, q request) spoken
		want   Failure // Stage, Message, Hint (part of it)
	}{
		{name: "no command", refuse: &startError{stage: Resolve, msg: `command "nope" was not found`, hint: "install it"},
			want: Failure{Stage: Resolve, Message: `command "nope" was not found`, Hint: "install it"}},
		{name: "ends at once", answer: func(w *fakeWire, q request) spoken { w.die(127); return spoken{silent: true} },
			want: Failure{Stage: Handshake, Message: "its process ended with exit code 127", Hint: "mcpproxy status fake"}},
		{name: "does not answer", answer: func(*fakeWire, request) spoken { return spoken{silent: true} },
			change: func(s *configs.Server) { s.Limits.ConnectSet = true },
			want:   Failure{Stage: Handshake, Message: "it did not answer within 15s", Hint: "connectTimeoutMs"}},
		{name: "401", change: overHTTP, answer: func(*fakeWire, request) spoken { return httpRefusal(401) },
			want: Failure{Stage: Handshake, Message: "HTTP 401 Unauthorized from http://fake/mcp: no", Hint: "set auth or headers.Authorization", HTTPStatus: 401}},
		{name: "404", change: overHTTP, answer: func(*fakeWire, request) spoken { return httpRefusal(404) },
			want: Failure{Stage: Handshake, Message: "HTTP 404 Not Found from http://fake/mcp: no", Hint: "url", HTTPStatus: 404}},
		{name: "secret", change: overHTTP, answer: func(*fakeWire, request) spoken { return rpcError(-32000, "token hunter2 is bad") },
			want: Failure{Stage: Handshake, Message: `it answered "token [redacted] is bad" (JSON-RPC error -32000)`, Hint: "url"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lazy(tt.change), tt.answer)
				defer r.close()
				r.set(tt.refuse, 0)
				var f *Failure
				if err := r.call(t.Context()); !errors.As(err, &f) {
					t.Fatalf("got %v", err)
				}
				if f.Stage != tt.want.Stage || f.Message != tt.want.Message || !strings.Contains(f.Hint, tt.want.Hint) || f.HTTPStatus != tt.want.HTTPStatus {
					t.Errorf("got %+v\nwant %+v", *f, tt.want)
				}
				if f.Server != "fake" || f.At != time.Now() || f.Retry.IsZero() {
					t.Errorf("got %+v", *f)
				}
				if tt.refuse == nil && (len(f.Noise) != 1 || len(f.Stderr) != 2) {
					t.Errorf("noise %q, stderr %q", f.Noise, f.Stderr)
				}
			})
		})
	}
}
