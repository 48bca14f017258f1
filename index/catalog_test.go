package index_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/index"
)

// open is a catalog that ends with the test, and what it warned of.
func open(t testing.TB, dir string) (*index.Catalog, *warnings) {
	t.Helper()
	w := &warnings{}
	c, err := index.Open(dir, w.add)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c, w
}

type warnings []string

func (w *warnings) add(msg string, args ...any) { *w = append(*w, msg+" "+fmt.Sprint(args...)) }

func put(t testing.TB, c *index.Catalog, server string, tools ...string) index.Diff {
	t.Helper()
	d, err := c.Put(listing(server, tools...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// listing is of tools given as objects, or by name alone.
func listing(server string, tools ...string) *index.Listing {
	l := &index.Listing{Server: server, Fetched: time.Unix(1_700_000_000, 0)}
	for _, s := range tools {
		if !strings.HasPrefix(strings.TrimSpace(s), "{") {
			s = fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, s)
		}
		l.Tools = append(l.Tools, json.RawMessage(s))
	}
	return l
}

func names(items []*index.Item) []string {
	all := []string{}
	for _, it := range items {
		all = append(all, it.Name)
	}
	return all
}

func ref(server, name string) index.Ref {
	return index.Ref{Server: server, Kind: index.Tool, Name: name}
}

func TestPutKeepsEveryKind(t *testing.T) {
	c, _ := open(t, t.TempDir())
	l := &index.Listing{Server: "everything", SpecHash: "sha256:1", ProtocolVersion: "2025-11-25",
		Instructions: "<use & enjoy>", Fetched: time.Unix(1_700_000_000, 5), TTL: 90 * time.Second,
		ServerInfo: json.RawMessage(`{ "name": "x" }`), Capabilities: json.RawMessage(`{"tools" : {}}`),
		Tools: []json.RawMessage{json.RawMessage(`{"name":"b","title":"B","annotations":{"title":"no"}}`),
			json.RawMessage(`{"name":"a","annotations":{"title":"A"}}`)},
		Resources: []json.RawMessage{json.RawMessage(`{"uri":"file:///x","name":"x"}`)},
		Templates: []json.RawMessage{json.RawMessage(`{"uriTemplate":"file:///{p}","description":"any file"}`)},
		Prompts:   []json.RawMessage{json.RawMessage(`{"name":"a"}`)}}
	d, err := c.Put(l)
	if err != nil {
		t.Fatal(err)
	}
	want := []index.Ref{ref("everything", "b"), ref("everything", "a"),
		{Server: "everything", Kind: index.Resource, Name: "file:///x"},
		{Server: "everything", Kind: index.Template, Name: "file:///{p}"}, {Server: "everything", Kind: index.Prompt, Name: "a"}}
	if !reflect.DeepEqual(d, index.Diff{Added: want}) {
		t.Errorf("got %v, want added %v", d, want)
	}
	for _, r := range want {
		if it, ok := c.Item(r); !ok || it.Ref != r {
			t.Errorf("%v: got %v", r, it)
		}
	}
	if got := names(c.Items("everything", index.Tool)); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got tools %v, want the server's order", got)
	}
	for name, title := range map[string]string{"b": "B", "a": "A"} {
		if it, _ := c.Item(ref("everything", name)); it.Title != title {
			t.Errorf("title of %s: got %q, want %q", name, it.Title, title)
		}
	}
	stored, _ := c.Listing("everything")
	got, wantListing := *stored, *l
	if !got.Fetched.Equal(l.Fetched) || !strings.HasPrefix(got.Hash, "sha256:") {
		t.Errorf("got fetched %v and hash %q", got.Fetched, got.Hash)
	}
	got.Fetched, wantListing.Hash = l.Fetched, got.Hash
	if !reflect.DeepEqual(got, wantListing) {
		t.Errorf("got %+v, want %+v", got, wantListing)
	}
}

func TestItemsOfAllServersAreSorted(t *testing.T) {
	c, _ := open(t, "")
	put(t, c, "zeta", "a")
	put(t, c, "alpha", "c", "b")
	if got := names(c.Items("", index.Tool)); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("got %v", got)
	}
	if got := c.Items("nobody", index.Tool); len(got) != 0 {
		t.Errorf("got %v of an unknown server", got)
	}
}

func TestDiff(t *testing.T) {
	c, _ := open(t, t.TempDir())
	put(t, c, "s", `{"name":"same","n":1}`, `{"name":"changed","n":1}`, `{"name":"gone"}`)
	before, _ := c.Listing("s")
	got := put(t, c, "s", `{"name":"fresh"}`, `{"name":"changed","n":2}`, `{ "n" : 1, "name" : "\u0073ame" }`)
	want := index.Diff{Added: []index.Ref{ref("s", "fresh")}, Removed: []index.Ref{ref("s", "gone")},
		Changed: []index.Ref{ref("s", "changed")}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if after, _ := c.Listing("s"); after.Hash == before.Hash {
		t.Error("the listing's hash did not change")
	}
}

func TestEqualContentUpdatesTheTimeOnly(t *testing.T) {
	c, _ := open(t, t.TempDir())
	put(t, c, "s", "a", "b")
	before, _ := c.Listing("s")
	l := listing("s", "b", "a") // servers that list from a map change the order
	l.Fetched, l.TTL = l.Fetched.Add(time.Hour), time.Minute
	d, err := c.Put(l)
	if err != nil || !d.Empty() {
		t.Errorf("got %v, %v, want no difference", d, err)
	}
	after, _ := c.Listing("s")
	if after.Hash != before.Hash || !after.Fetched.Equal(l.Fetched) || after.TTL != l.TTL {
		t.Errorf("got %+v, want the hash of %+v, fetched an hour later", after, before)
	}
	hits := c.Search(index.Query{Text: "a", Limit: 5}).Hits
	if len(hits) != 1 || hits[0].Item != c.Items("s", index.Tool)[1] {
		t.Errorf("got %v, want the item of the last listing", hits)
	}
}

func TestOddItems(t *testing.T) {
	schemas := []string{`null`, `{}`, `{"type":"string"}`, `{"type":"object","properties":{"q":{}},"required":null}`,
		`{"properties":{"q":true,"r":false}}`, `[]`, `true`, `"object"`, `{"anyOf":[{"type":"object"}]}`, `{"properties":[1]}`,
		`{"properties":{"a":{"items":7,"description":{}}}}`}
	tools := []string{`{"name":"odd_plain"}`}
	for i, s := range schemas {
		tools = append(tools, fmt.Sprintf(`{"name":"odd_%d","inputSchema":%s}`, i, s))
	}
	c, _ := open(t, t.TempDir())
	put(t, c, "s", tools...)
	if got := c.Search(index.Query{Text: "odd", Limit: 50}); got.Total != len(tools) {
		t.Errorf("got %d found, want all %d", got.Total, len(tools))
	}
	if l, _ := c.Listing("s"); len(l.Warnings) != 0 {
		t.Errorf("got warnings %v", l.Warnings)
	}
}

func TestUnusableItemsAndTwins(t *testing.T) {
	c, _ := open(t, t.TempDir())
	l := listing("s", `{"name":"twin","n":1}`, `{"n":1}`, `{"name":""}`, `{"name":7}`, `{"name":" "}`, `{"name":`,
		`{"name":"twin","n":2}`, `{"name":"ok"}`)
	l.Tools = append(l.Tools, json.RawMessage(`"name"`), nil)
	l.ServerInfo = json.RawMessage(`{`)
	if _, err := c.Put(l); err != nil {
		t.Fatal(err)
	}
	if got := names(c.Items("s", index.Tool)); !slices.Equal(got, []string{"twin", "ok"}) {
		t.Errorf("got %v", got)
	}
	if it, _ := c.Item(ref("s", "twin")); string(it.Raw) != `{"name":"twin","n":1}` {
		t.Errorf("got %s, want the first of the twins", it.Raw)
	}
	if got := c.Search(index.Query{Text: "twin", Limit: 5}); got.Total != 1 {
		t.Errorf("got %d of the twins found, want 1", got.Total)
	}
	stored, _ := c.Listing("s")
	said := strings.Join(stored.Warnings, "\n")
	if len(stored.Warnings) != 9 || len(stored.Tools) != 2 || !strings.Contains(said, `"twin" is listed more than once`) {
		t.Errorf("got %d tools and warnings %q", len(stored.Tools), stored.Warnings)
	}
	if len(l.Tools) != 10 || l.Warnings != nil || l.Hash != "" {
		t.Error("Put changed the listing that it was given")
	}
}

// What a server wrote passes through the file without a byte changed.
func TestRawBytesSurvive(t *testing.T) {
	dir := t.TempDir()
	raw := "{\"name\":\"x\" ,\n\t\"b\": 12345678901234567890.10e+5,  \"a\":\"<&>\\u003c\u2028\\/\\ud800\", " +
		"\"a\":[ ],\"\u00e9\":{ \"z\":1,\"y\":-0 }}"
	c, _ := open(t, dir)
	l := listing("s", " "+raw+"\n")
	l.ServerInfo = json.RawMessage(`{ "v" : 1.0 }`)
	if _, err := c.Put(l); err != nil {
		t.Fatal(err)
	}
	again, w := open(t, dir)
	for _, c := range []*index.Catalog{c, again} {
		it, ok := c.Item(ref("s", "x"))
		if !ok || string(it.Raw) != raw {
			t.Errorf("got %q, want %q (%v)", it.Raw, raw, *w)
		}
		if l, _ := c.Listing("s"); string(l.Tools[0]) != raw || string(l.ServerInfo) != `{ "v" : 1.0 }` {
			t.Errorf("got %q and %q", l.Tools[0], l.ServerInfo)
		}
	}
	a, _ := c.Item(ref("s", "x"))
	b, _ := again.Item(ref("s", "x"))
	if a.Hash != b.Hash {
		t.Errorf("got hash %s after reading, %s before", b.Hash, a.Hash)
	}
}

func TestVolatileListingsLeaveNoFile(t *testing.T) {
	dir := t.TempDir()
	c, _ := open(t, dir)
	l := listing("builtin", "status")
	l.Volatile = true
	if _, err := c.Put(l); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Item(ref("builtin", "status")); !ok {
		t.Error("not kept in memory")
	}
	again, _ := open(t, dir)
	if _, ok := again.Listing("builtin"); ok {
		t.Error("kept in a file")
	}
}

func TestDrop(t *testing.T) {
	dir := t.TempDir()
	c, _ := open(t, dir)
	put(t, c, "s", "drop_me")
	put(t, c, "r", "keep_me")
	for range 2 { // a second time changes nothing
		if err := c.Drop("s"); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*index.Catalog{c, first(open(t, dir))} {
		if _, ok := c.Listing("s"); ok || c.Search(index.Query{Text: "drop_me", Limit: 5}).Total != 0 {
			t.Error("not forgotten")
		}
	}
}

func first(c *index.Catalog, _ *warnings) *index.Catalog { return c }

func TestClosed(t *testing.T) {
	c, _ := open(t, t.TempDir())
	put(t, c, "s", "a")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(listing("s", "b")); err == nil {
		t.Error("a closed catalog took a listing")
	}
	if err := c.Drop("s"); err == nil {
		t.Error("a closed catalog dropped a listing")
	}
	if got := c.Search(index.Query{Text: "a", Limit: 1}); got.Total != 1 {
		t.Errorf("got %v, want what was there", got)
	}
}

func TestImpossibleServers(t *testing.T) {
	c, _ := open(t, t.TempDir())
	for _, id := range []string{"", "\xff", "a\x00b"} {
		if _, err := c.Put(listing(id, "a")); err == nil {
			t.Errorf("%q was taken", id)
		} else if errors.Unwrap(err) != nil || !strings.Contains(err.Error(), "id") {
			t.Errorf("%q: got %v", id, err)
		}
	}
}
