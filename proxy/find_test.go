package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// gatewayOf makes a gateway over servers whose tools are known and which are never connected.
func gatewayOf(t *testing.T, tools map[string][]string) *Gateway {
	t.Helper()
	c := configs.Empty()
	for id := range tools {
		c.Servers = append(c.Servers, &configs.Server{ID: id, Name: id, Enabled: true, Transport: configs.Stdio, Lifecycle: configs.Lazy,
			Command: "never-started", Limits: c.Settings.Limits, Hash: "sha256:" + id})
	}
	g, err := New(Options{Config: c, DataDir: t.TempDir(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for id, raws := range tools {
		l := &index.Listing{Server: id, SpecHash: "sha256:" + id, Fetched: time.Now()}
		for _, r := range raws {
			l.Tools = append(l.Tools, json.RawMessage(r))
		}
		if _, err := g.catalog.Put(l); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func toolJSON(name, description string, params ...string) string {
	var props []string
	for _, p := range params {
		props = append(props, fmt.Sprintf(`%q:{"type":"string","description":"The %s of it"}`, p, p))
	}
	return fmt.Sprintf(`{"name":%q,"description":%s,"inputSchema":{"type":"object","properties":{%s},"required":[%q]}}`, name, quote(description), strings.Join(props, ","), params[0])
}

// Eight matches cost at most 3 KB and twenty at most 8 KB of the text that the agent gets, escapes included, and pages
// put together are the whole.
func TestSearchIsBounded(t *testing.T) {
	var tools []string
	for i := range 60 {
		tools = append(tools, toolJSON(fmt.Sprintf("create_report_number_%d", i),
			`Create a "report" on the numbers. `+strings.Repeat("It has very much to say about itself, at length. ", 30),
			"owner", "repository", "title", "body", "assignee", "milestone", "label", "deadline", "visibility", "template", "format", "recipient"))
	}
	g := gatewayOf(t, map[string][]string{"reports": tools})
	for limit, most := range map[int]int{8: 3 << 10, 20: 8 << 10} {
		r := g.Do(t.Context(), Ask{Action: "search_tools", Input: json.RawMessage(fmt.Sprintf(`{"query":"create report","limit":%d}`, limit)), Surface: "mcp"})
		var a searchAnswer
		if err := json.Unmarshal(r.Value, &a); err != nil || len(a.Matches) != limit {
			t.Fatalf("got %d matches, %v: %s", len(a.Matches), err, r.Value)
		}
		if n := len(quote(string(r.Value))); n > most {
			t.Errorf("%d matches are %d bytes, want at most %d", limit, n, most)
		}
	}
	seen := map[string]bool{}
	for cursor := ""; ; {
		r := g.Do(t.Context(), Ask{Action: "search_tools", Input: json.RawMessage(fmt.Sprintf(`{"query":"create report","limit":7,"cursor":%q}`, cursor))})
		var a searchAnswer
		if err := json.Unmarshal(r.Value, &a); err != nil {
			t.Fatal(err)
		}
		for _, m := range a.Matches {
			seen[m.Tool] = true
		}
		if cursor = a.NextCursor; cursor == "" {
			break
		}
	}
	if len(seen) != 60 {
		t.Errorf("the pages hold %d tools, want 60", len(seen))
	}
}

// What a server says of itself never reaches the agent raw: control characters, escape sequences and invisible text are
// shown as such, and none of it is in our own instructions.
func TestServerTextIsShownHarmlessly(t *testing.T) {
	evil := "Read\u202e a \x1b[31mfile\u200b \U000E0041now"
	g := gatewayOf(t, map[string][]string{"s": {toolJSON("read_file", evil, "path")}})
	for _, ask := range []Ask{{Action: "search_tools", Input: json.RawMessage(`{"query":"read file"}`)}, {Action: "describe_tool", Input: json.RawMessage(`{"server":"s","tool":"read_file"}`)}} {
		r := g.Do(t.Context(), ask)
		if r.IsError || strings.ContainsAny(string(r.Value), "\u202e\u200b\x1b\U000E0041") || strings.Contains(string(r.Value), `"\u001b`) || !strings.Contains(string(r.Value), "202E") {
			t.Errorf("%s: got %s", ask.Action, r.Value)
		}
	}
	if s := string(g.introduction("protocolVersion", "x")); strings.Contains(s, "file\\") || strings.Contains(s, "31m") {
		t.Errorf("instructions: %s", s)
	}
}

func TestDescribeElides(t *testing.T) {
	long := strings.Repeat("a long story ", 4000)
	raw := fmt.Sprintf(`{"name":"big","description":%q,"inputSchema":{"type":"object","properties":{"a":{"type":"string","description":%q}},"required":["a"]}}`, long, long)
	g := gatewayOf(t, map[string][]string{"s": {raw}})
	r := g.Do(t.Context(), Ask{Action: "describe_tool", Input: json.RawMessage(`{"server":"s","tool":"big"}`)})
	if len(r.Value) > 48<<10 || string(jsonrpc.Member(r.Value, "inputSchema", "required")) != `["a"]` {
		t.Fatalf("got %d bytes: %.300s", len(r.Value), r.Value)
	}
	elided := jsonrpc.Unquote(jsonrpc.Member(r.Value, "elided"))
	_, call, ok := strings.Cut(elided, "call_tool ")
	if !ok {
		t.Fatalf("no call that reads on: %s", elided)
	}
	r = g.Do(t.Context(), Ask{Action: "call_tool", Input: json.RawMessage(call)})
	if content := jsonrpc.Unquote(jsonrpc.Member(r.Value, "content")); r.IsError || !strings.HasPrefix(raw, content) || len(content) < 1000 {
		t.Errorf("reading on: got %.300s", r.Value)
	}
}

func TestUnknownAndBuiltin(t *testing.T) {
	g := gatewayOf(t, map[string][]string{"s": {toolJSON("read_file", "Read a file", "path")}})
	if r := g.Do(t.Context(), Ask{Action: "nonsense"}); r.Err == nil || r.Err.Code != UnknownAction || !strings.Contains(r.Err.Hint, "search_tools") {
		t.Errorf("got %+v", r.Err)
	}
	r := g.Do(t.Context(), Ask{Action: "search_tools", Input: json.RawMessage(`{"query":"read on in a stored output"}`)})
	if !strings.Contains(string(r.Value), `"server":"mcpproxy","tool":"read_cache"`) {
		t.Errorf("search does not find the built-in server: %s", r.Value)
	}
	r = g.Do(t.Context(), Ask{Action: "call_tool", Input: json.RawMessage(`{"server":"mcpproxy","tool":"list_tools","arguments":{"server":"s"}}`)})
	if got := string(jsonrpc.Member(r.Value, "tools")); !strings.Contains(got, `"tool":"read_file"`) || strings.Contains(got, "read_cache") {
		t.Errorf("got %s", r.Value)
	}
	r = g.Do(t.Context(), Ask{Action: "search_tools", Input: json.RawMessage(`{"query":"zzyzx quux"}`)})
	if r.IsError || string(jsonrpc.Member(r.Value, "matches")) != "[]" || !strings.Contains(string(r.Value), "list_tools") {
		t.Errorf("no match: got %s", r.Value)
	}
	r = g.Do(t.Context(), Ask{Action: "status"})
	if got := jsonrpc.Unquote(jsonrpc.Member(r.Value, "summary")); got != "MCP 1 configured / 0 connected" {
		t.Errorf("got %s", got)
	}
}
