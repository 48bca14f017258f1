package upstream

import (
	"errors"
	"fmt"
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

// with answers initialize with these capabilities, and lists as each function does.
func with(capabilities string, lists map[string]func(cursor string) spoken) func(*fakeWire, request) spoken {
	return func(w *fakeWire, q request) spoken {
		if q.Method == "initialize" {
			return result(`{"protocolVersion":"2025-11-25","capabilities":%s}`, capabilities)
		}
		if f := lists[q.Method]; f != nil {
			return f(string(jsonrpc.Member(q.Params, "cursor")))
		}
		return spoken{}
	}
}

func TestListing(t *testing.T) {
	page := func(s string) func(string) spoken { return func(string) spoken { return result("%s", s) } }
	tool := func(name string) string { return fmt.Sprintf(`{"name":%q,"inputSchema":{}}`, name) }
	tests := []struct {
		name         string
		capabilities string
		lists        map[string]func(cursor string) spoken
		want         map[index.Kind]int
		lists2       []string // the requests
		warnings     int
		fails        bool
	}{
		{name: "pages", capabilities: `{"tools":{}}`, want: map[index.Kind]int{index.Tool: 101},
			lists2: []string{"tools/list", "tools/list", "tools/list"},
			lists: map[string]func(string) spoken{"tools/list": func(cursor string) spoken {
				from, _ := map[string]int{`"two"`: 50, `"th\u0072ee"`: 100}[cursor], 0
				var tools []string
				for i := range min(50, 101-from) {
					tools = append(tools, tool(fmt.Sprint("t", from+i)))
				}
				next := map[int]string{0: `"two"`, 50: `"th\u0072ee"`, 100: `null`}[from]
				return result(`{"tools":[%s],"nextCursor":%s}`, strings.Join(tools, ","), next)
			}}},
		{name: "empty cursor", capabilities: `{"tools":{}}`, want: map[index.Kind]int{index.Tool: 1}, lists2: []string{"tools/list"},
			lists: map[string]func(string) spoken{"tools/list": page(`{"tools":[` + tool("a") + `],"nextCursor":""}`)}},
		{name: "the same cursor for ever", capabilities: `{"tools":{}}`, want: map[index.Kind]int{index.Tool: 1},
			lists2: []string{"tools/list", "tools/list"}, warnings: 2, // and the twin
			lists: map[string]func(string) spoken{"tools/list": page(`{"tools":[` + tool("a") + `],"nextCursor":"x"}`)}},
		{name: "one bad tool", capabilities: `{"tools":{}}`, want: map[index.Kind]int{index.Tool: 2}, lists2: []string{"tools/list"}, warnings: 1,
			lists: map[string]func(string) spoken{"tools/list": page(`{"tools":[` + tool("a") + `,{"inputSchema":5},` + tool("b") + `]}`)}},
		{name: "tools that are not declared", capabilities: `{}`, want: map[index.Kind]int{index.Tool: 1}, lists2: []string{"tools/list"}},
		{name: "no tools", capabilities: `{}`, want: map[index.Kind]int{}, lists2: []string{"tools/list"},
			lists: map[string]func(string) spoken{"tools/list": func(string) spoken { return rpcError(jsonrpc.CodeMethodNotFound, "no") }}},
		{name: "tools null", capabilities: `{"tools":{}}`, want: map[index.Kind]int{}, lists2: []string{"tools/list"},
			lists: map[string]func(string) spoken{"tools/list": page(`{"tools":null}`)}},
		{name: "no list", capabilities: `{"tools":{}}`, lists2: []string{"tools/list"}, fails: true,
			lists: map[string]func(string) spoken{"tools/list": page(`"OK"`)}},
		{name: "everything", capabilities: `{"tools":{},"resources":{},"prompts":{}}`,
			want:   map[index.Kind]int{index.Tool: 1, index.Resource: 1, index.Template: 1, index.Prompt: 1},
			lists2: []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"},
			lists: map[string]func(string) spoken{
				"resources/list":           page(`{"resources":[{"uri":"file:///a","name":"a"}]}`),
				"resources/templates/list": page(`{"resourceTemplates":[{"uriTemplate":"file:///{a}","name":"a"}]}`),
				"prompts/list":             page(`{"prompts":[{"name":"a"}]}`),
			}},
		{name: "one kind fails", capabilities: `{"resources":{},"prompts":{}}`, warnings: 1,
			want:   map[index.Kind]int{index.Tool: 1, index.Prompt: 1},
			lists2: []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"},
			lists: map[string]func(string) spoken{
				"resources/list": func(string) spoken { return rpcError(-32603, "disk") },
				"prompts/list":   page(`{"prompts":[{"name":"a"}]}`),
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, lazy(nil), with(tt.capabilities, tt.lists))
				defer r.close()
				err := r.srv.Refresh(t.Context())
				requests := slices.DeleteFunc(r.methods(), func(m string) bool { return !strings.HasSuffix(m, "/list") })
				if !slices.Equal(requests, tt.lists2) {
					t.Errorf("requests %v, want %v", requests, tt.lists2)
				}
				if tt.fails {
					var f *Failure
					if !errors.As(err, &f) || f.Stage != List {
						t.Errorf("got %v", err)
					}
					r.want(Ready)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range []index.Kind{index.Tool, index.Resource, index.Template, index.Prompt} {
					if got := len(r.catalog.Items("fake", k)); got != tt.want[k] {
						t.Errorf("%d of %s, want %d", got, k, tt.want[k])
					}
				}
				if l := r.srv.known(); len(l.Warnings) != tt.warnings || l.SpecHash != "sha256:1" {
					t.Errorf("warnings %q, want %d", l.Warnings, tt.warnings)
				}
			})
		})
	}
}

func TestListingHasBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		r := newRig(t, lazy(nil), with(`{"tools":{}}`, map[string]func(string) spoken{"tools/list": func(string) spoken {
			n++
			return result(`{"tools":[],"nextCursor":"%d"}`, n)
		}}))
		defer r.close()
		if err := r.srv.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n != pagesMax {
			t.Errorf("%d pages, want %d", n, pagesMax)
		}
	})
}

// A listing that fails leaves the last good one and the connection; it is tried again by itself.
func TestListingFailsAfterASuccess(t *testing.T) {
	for name, fail := range map[string]func(*configs.Server) spoken{
		"error":  func(*configs.Server) spoken { return rpcError(-32603, "fetch failed") },
		"silent": func(*configs.Server) spoken { return spoken{silent: true} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var broken atomic.Bool
				r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
					if q.Method == "tools/list" && broken.Load() {
						return fail(nil)
					}
					return spoken{}
				})
				defer r.close()
				r.mustCall()
				synctest.Wait()
				broken.Store(true)
				err := r.srv.Refresh(t.Context())
				var f *Failure
				if !errors.As(err, &f) || f.Stage != List {
					t.Fatalf("got %v", err)
				}
				r.want(Ready)
				if st := r.srv.State(); st.Failure != f || len(r.catalog.Items("fake", index.Tool)) != 1 {
					t.Errorf("state %+v, %d tools", st, len(r.catalog.Items("fake", index.Tool)))
				}
				r.mustCall()
				broken.Store(false)
				after(time.Minute)
				if st := r.srv.State(); st.Failure != nil || st.Status != Ready {
					t.Errorf("state %+v", st)
				}
			})
		})
	}
}

func TestListChanged(t *testing.T) {
	changed := `{"method":"notifications/tools/list_changed"}`
	bubble(t, map[string]func(*testing.T){
		"storm": func(t *testing.T) {
			var tools atomic.Int64
			r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
				if q.Method == "tools/list" {
					n := tools.Load()
					time.Sleep(20 * time.Millisecond)
					return result(`{"tools":[{"name":"t%d"}]}`, n)
				}
				return spoken{}
			})
			defer r.close()
			r.mustCall()
			after(time.Second)
			before := r.count("tools/list")
			for range 200 {
				tools.Add(1)
				r.last().say(0, "%s", changed)
				time.Sleep(250 * time.Microsecond)
			}
			after(time.Second)
			if n := r.count("tools/list") - before; n > 2 {
				t.Errorf("%d listings for 200 notifications, want at most 2", n)
			}
			if _, ok := r.catalog.Item(index.Ref{Server: "fake", Kind: index.Tool, Name: "t200"}); !ok {
				t.Error("the last state is not what is known")
			}
		},
		"before the handshake": func(t *testing.T) {
			r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
				if q.Method == "initialize" {
					w.say(0, "%s", changed)
					w.say(0, `{"method":"notifications/message","params":{"level":"info","data":"x"}}`)
				}
				return spoken{}
			})
			defer r.close()
			r.mustCall()
			after(time.Minute)
			if n := r.count("tools/list"); n > 2 || n == 0 {
				t.Errorf("%d listings", n)
			}
		},
		"in every listing": func(t *testing.T) {
			r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
				if q.Method == "tools/list" {
					w.say(0, "%s", changed)
				}
				return spoken{}
			})
			defer r.close()
			r.mustCall()
			after(5 * time.Minute)
			if n := r.count("tools/list"); n > 30 {
				t.Errorf("%d listings in five minutes in which nothing changes", n)
			}
		},
		"while it is read": func(t *testing.T) {
			r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
				if q.Method == "tools/list" {
					time.Sleep(5 * time.Second)
				}
				return spoken{}
			})
			defer r.close()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if err := r.srv.Refresh(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Second)
			r.last().say(0, "%s", changed)
			all.Wait()
			after(time.Minute)
			if n := r.count("tools/list"); n > 2 {
				t.Errorf("%d listings, want at most 2", n)
			}
		},
		"over a modern server's stream": func(t *testing.T) {
			r := newRig(t, lazy(nil), func(w *fakeWire, q request) spoken {
				switch q.Method {
				case "server/discover":
					return result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"prompts":{}}}`)
				case "subscriptions/listen":
					time.Sleep(10 * time.Second)
					w.say(q.id, "%s", changed)
					return spoken{silent: true}
				case "prompts/list":
					return result(`{"prompts":[]}`)
				}
				return spoken{}
			})
			defer r.close()
			r.mustCall()
			after(5 * time.Second)
			if n := r.count("tools/list"); n != 1 {
				t.Fatalf("%d listings, want 1", n)
			}
			after(10 * time.Second)
			if n := r.count("tools/list"); n != 2 {
				t.Errorf("%d listings, want 2", n)
			}
			listens := r.all("subscriptions/listen")
			if len(listens) != 1 || string(jsonrpc.Member(listens[0].Params, "notifications")) != `{"toolsListChanged":true}` {
				t.Errorf("listens %+v", listens)
			}
		},
	})
}

// What a server says is fresh for a time is read anew at the first use after it.
func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, lazy(nil), with(`{"tools":{}}`, map[string]func(string) spoken{"tools/list": func(string) spoken {
			return result(`{"tools":[],"ttlMs":120000}`)
		}}))
		defer r.close()
		r.mustCall()
		after(time.Minute)
		r.mustCall()
		after(time.Second)
		if n := r.count("tools/list"); n != 1 || r.srv.known().TTL != 2*time.Minute {
			t.Errorf("%d listings, TTL %v", n, r.srv.known().TTL)
		}
		after(2 * time.Minute)
		r.mustCall()
		after(time.Second)
		if n := r.count("tools/list"); n != 2 {
			t.Errorf("%d listings, want 2", n)
		}
	})
}

// Each change of state or listing is hinted at.
func TestChangedHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		catalog, err := index.Open("", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer catalog.Close()
		var mu sync.Mutex
		var p *Pool
		var seen []Status
		f := &fake{t: t}
		p = New(Options{Catalog: catalog, Changed: func(id string) {
			mu.Lock()
			defer mu.Unlock()
			if s, ok := p.Server(id); ok {
				seen = append(seen, s.State().Status)
			}
		}})
		p.dial = f.dial
		p.Apply([]*configs.Server{lazy(nil)})
		r := &rig{fake: f, pool: p, catalog: catalog}
		r.srv, _ = p.Server("fake")
		r.set(nil, time.Second)
		r.mustCall()
		after(11 * time.Minute)
		mu.Lock()
		got := slices.Compact(slices.Clone(seen))
		mu.Unlock()
		if want := []Status{Connecting, Connected, Ready, Cold}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		r.close()
	})
}
