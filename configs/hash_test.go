package configs_test

import (
	"maps"
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
)

// A server's hash changes with what its connection depends on, the configuration's with all that has an effect.
func TestHashes(t *testing.T) {
	const before = `{"servers": {
"x": {"command": "a", "args": ["b"], "env": {"T": "${T}", "U": "u"}, "cwd": "/d"},
"y": {"url": "https://h/${T}", "headers": {"A": "${T}"}}}}`
	env := map[string]string{"T": "one", "OTHER": "1"}
	tests := []struct {
		name    string
		after   string
		env     map[string]string
		server  bool // x's hash changes
		overall bool
	}{
		{"nothing", before, nil, false, false},
		{"an unrelated variable", before, map[string]string{"OTHER": "2"}, false, false},
		{"a comment and an unknown key", `{ // why
"unknown": 1, "servers": {
"x": {"command": "a", "args": ["b"], "cwd": "/d", "env": {"U": "u", "T": "${T}"}, "unknown": 2},
"y": {"url": "https://h/${T}", "headers": {"A": "${T}"}}}}`, nil, false, false},
		{"other spelling", `{"mcpServers": {
"x": {"type": "stdio", "command": ["a", "b"], "cwd": "/d", "environment": {"U": "u", "T": "${env:T}"}},
"y": {"serverUrl": "https://h/${T}", "headers": {"A": "${T}"}}}}`, nil, false, false},
		{"a filter", `{"servers": {
"x": {"command": "a", "args": ["b"], "env": {"T": "${T}", "U": "u"}, "cwd": "/d", "excludeTools": ["rm"]},
"y": {"url": "https://h/${T}", "headers": {"A": "${T}"}}}}`, nil, false, true},
		{"a call timeout, a pin, a description", `{"servers": {
"x": {"command": "a", "args": ["b"], "env": {"T": "${T}", "U": "u"}, "cwd": "/d", "callTimeoutMs": 5000, "pin": true, "description": "d"},
"y": {"url": "https://h/${T}", "headers": {"A": "${T}"}}}}`, nil, false, true},
		{"a setting", `{"settings": {"mode": "single"}, ` + before[1:], nil, false, true},
		{"another server", `{"servers": {
"x": {"command": "a", "args": ["b"], "env": {"T": "${T}", "U": "u"}, "cwd": "/d"}}}`, nil, false, true},
		{"an argument", `{"servers": {
"x": {"command": "a", "args": ["c"], "env": {"T": "${T}", "U": "u"}, "cwd": "/d"},
"y": {"url": "https://h/${T}", "headers": {"A": "${T}"}}}}`, nil, true, true},
		{"the lifecycle", `{"servers": {
"x": {"command": "a", "args": ["b"], "env": {"T": "${T}", "U": "u"}, "cwd": "/d", "lifecycle": "eager"},
"y": {"url": "https://h/${T}", "headers": {"A": "${T}"}}}}`, nil, true, true},
		{"a variable's value", before, map[string]string{"T": "two"}, true, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			after := maps.Clone(env)
			maps.Copy(after, test.env)
			a := configs.Load(world(t, map[string]string{own: before}, env))
			b := configs.Load(world(t, map[string]string{own: test.after}, after))
			if got := a.Server("x").Hash != b.Server("x").Hash; got != test.server {
				t.Errorf("the server's hash changed: %v, want %v", got, test.server)
			}
			if got := a.Hash != b.Hash; got != test.overall {
				t.Errorf("the configuration's hash changed: %v, want %v", got, test.overall)
			}
		})
	}
}
