package policy_test

import (
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/policy"
)

func tool(server, name string) index.Ref {
	return index.Ref{Server: server, Kind: index.Tool, Name: name}
}

func TestCheck(t *testing.T) {
	at := func(line int) configs.Origin { return configs.Origin{File: "mcp.json", Line: line, Column: 3} }
	c := &configs.Config{Servers: []*configs.Server{
		{ID: "all", Enabled: true, Origin: at(1)},
		{ID: "bad", Enabled: true, Origin: at(2), Err: &configs.Diagnostic{Message: "variable TOKEN is not set", Origin: at(3)}},
		{ID: "both", Enabled: true, Origin: at(4), IncludeTools: []string{"get_*", "delete_note"}, ExcludeTools: []string{"*_note"},
			Origins: map[string]configs.Origin{"/includeTools": at(5), "/excludeTools": at(6)}},
		{ID: "excludes", Enabled: true, Origin: at(7), ExcludeTools: []string{"drop", "delete_*"},
			Origins: map[string]configs.Origin{"/excludeTools": at(8), "/excludeTools/1": at(9)}},
		{ID: "mcpproxy", Enabled: true, Origin: at(10)},
		{ID: "off", Origin: at(11), Origins: map[string]configs.Origin{"/enabled": at(12)}},
	}}
	p := policy.New(c)
	for _, tt := range []struct {
		ref  index.Ref
		rule string // "" is visible
		line int
	}{
		{tool("all", "anything/at.all"), "", 0},
		{tool("none", "x"), "server not configured", 0},
		{tool("off", "x"), "server disabled", 12},
		{index.Ref{Server: "off", Kind: index.Resource, Name: "file:///x"}, "server disabled", 12},
		{tool("bad", "x"), "server in error: variable TOKEN is not set", 3},
		{tool("both", "get_x"), "", 0},
		{tool("both", "list_x"), "not in includeTools", 5},
		{tool("both", "get_note"), "excludeTools: *_note", 6},
		{tool("both", "delete_note"), "excludeTools: *_note", 6},
		{index.Ref{Server: "both", Kind: index.Prompt, Name: "list_note"}, "", 0},
		{index.Ref{Server: "both", Kind: index.Template, Name: "note://{id}"}, "", 0},
		{tool("excludes", "delete_x"), "excludeTools: delete_*", 9},
		{tool("excludes", "drop"), "excludeTools: drop", 8},
		{tool("excludes", "drops"), "", 0},
		{tool("excludes", "Delete_x"), "", 0},
		{tool("mcpproxy", "status"), "", 0},
	} {
		d := p.Check(tt.ref)
		if p.Visible(tt.ref) != (d == nil) {
			t.Errorf("%v: Visible and Check differ", tt.ref)
		}
		switch {
		case d == nil && tt.rule != "":
			t.Errorf("%v: visible, want %q", tt.ref, tt.rule)
		case d != nil && (d.Rule != tt.rule || d.Origin.Line != tt.line || d.Ref != tt.ref):
			t.Errorf("%v: got %+v, want rule %q of line %d", tt.ref, *d, tt.rule, tt.line)
		}
	}
	got := p.Check(tool("excludes", "delete_x")).Error()
	if want := `"excludes.delete_x" is not permitted: excludeTools: delete_* (mcp.json:9)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var ids []string
	for _, s := range p.Servers() {
		ids = append(ids, s.ID)
	}
	if got, want := len(ids), 3; got != want || ids[0] != "all" || ids[2] != "excludes" {
		t.Errorf("servers that may run: got %v, want all, both, excludes", ids)
	}
}

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "A", false}, {"a", "ab", false}, {"", "", true}, {"", "a", false},
		{"*", "", true}, {"*", "a/b.c", true}, {"a*", "a", true}, {"a*c", "a/b.c", true}, {"a*c", "abcd", false},
		{"*_delete", "x_delete_delete", true}, {"*a*b*", "xxaxxbxx", true}, {"*a*b*", "xxbxxaxx", false}, {"**", "x", true},
		{"?", "a", true}, {"?", "é", true}, {"?", "", false}, {"a?c", "a/c", true}, {"??", "a", false},
		{"[abc]x", "bx", true}, {"[a-c]x", "bx", true}, {"[^a-c]x", "bx", false}, {"[!a-c]x", "dx", true}, {"[]a]", "]", true},
		{"[a-]", "-", true}, {"[\\]]", "]", true}, {"[ä-ö]", "é", true}, {"[abc]", "", false},
		{"[", "[", true}, {"x[", "x[", true}, {"[a", "[a", true}, {"[a*", "[abc", true}, {"[a", "a", false}, {"get[0]", "get[0]", true},
		{"\\*", "*", true}, {"\\*", "a", false}, {"a\\", "a\\", true}, {"*\\?", "why?", true},
	} {
		p := policy.New(&configs.Config{Servers: []*configs.Server{{ID: "s", Enabled: true, IncludeTools: []string{tt.pattern}}}})
		if got := p.Visible(tool("s", tt.name)); got != tt.want {
			t.Errorf("%q on %q: got %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

// A policy hides what its servers hide.
func TestPolicyRedacts(t *testing.T) {
	p := policy.New(&configs.Config{Servers: []*configs.Server{{ID: "a", Secrets: []string{"hunter22"}}}})
	if got, want := p.Text("it is hunter22"), "it is [redacted]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("*a*[b-c]?\\*", "xabx*")
	f.Add("[^", "x")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p := policy.New(&configs.Config{Servers: []*configs.Server{{ID: "s", Enabled: true, ExcludeTools: []string{pattern, "*"}}}})
		if p.Visible(tool("s", name)) {
			t.Errorf("%q is visible beside the pattern *", name)
		}
	})
}
