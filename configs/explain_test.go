package configs_test

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
)

func TestExplain(t *testing.T) {
	o := world(t, map[string]string{
		shared: `{"mcpServers": {"a.b": {"command": "old", "env": {"X/Y": "1"}},
"web": {"url": "https://user.example"}}}`,
		own: `{"settings": {"mode": "single"},
"servers": {"a.b": {
"command": "new"}}}`,
		projectShared: `{"servers": {

"web": {"url": "https://project.example"}}, "settings": {"mode": "direct"}}`,
	}, nil)
	o.Approve = true
	c := configs.Load(o)
	root := filepath.Dir(o.Home)
	place := func(file string, line int) configs.Place {
		return configs.Place{File: filepath.Join(root, file), Line: line}
	}
	tests := []struct {
		path    string
		value   any
		at      configs.Place
		shadows []configs.Place
	}{
		{"servers.a.b.command", "new", place(own, 3), []configs.Place{place(shared, 1)}},
		{"/servers/a.b/command", "new", place(own, 3), []configs.Place{place(shared, 1)}},
		{"/servers/a.b/env/X~1Y", "1", place(shared, 1), []configs.Place{}},
		{"settings.mode", "direct", place(projectShared, 3), []configs.Place{place(own, 1)}},
		{"servers.web.url", "https://project.example", place(projectShared, 3), []configs.Place{place(shared, 2)}},
	}
	for _, test := range tests {
		want := configs.Explanation{Path: test.path, Value: test.value, File: test.at.File, Line: test.at.Line, Shadows: test.shadows}
		if got, ok := c.Explain(test.path); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", test.path, got, want)
		}
	}
	for _, path := range []string{"", "/", "servers.nope", "settings.discovery", "/servers/a.b/command/x", "servers"} {
		if got, ok := c.Explain(path); ok {
			t.Errorf("%q: got %+v, want none", path, got)
		}
	}
	if got, ok := configs.Empty().Explain("settings.mode"); ok {
		t.Errorf("empty: got %+v, want none", got)
	}
}
