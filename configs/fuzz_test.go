package configs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/mcpproxy/mcpproxy/configs"
)

// Whatever a file holds, Load answers, names the file in what it says, and repeats no variable's value.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*/.config/*/mcp.json")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{"", "{", "[]", "null", "\ufeff{}", `{"servers": []}`, `{"servers": {"x": null, "": {}, "..": 1}}`,
		`{"servers": {"x": {"command": [["a"]], "args": {}}, "x": 5}}`, `{"settings": {"callTimeoutMs": -1e400}}`,
		`{"mcpServers": {"x": {"oauth": true, "auth": {"scopes": [1]}}}}`, "{\"servers\":{\"a\":{\"url\":\"${S}://${S}\"}}}//",
		`{"servers": {"x": {"disabled": "no", "timeout": 1, "tools": ["${S}"], "headers": {"${S}": "${S}\n"}}}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "mcp.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		o := configs.Options{File: path, Home: "/home/nobody", Project: "/nowhere",
			Getenv: func(string) (string, bool) { return "c4nary-value", true }}
		c := configs.Load(o)
		for _, d := range c.Diagnostics {
			if d.Origin.File != path || d.Message == "" || d.Hint == "" || d.Severity == "" {
				t.Errorf("incomplete: %+v", d)
			}
			if strings.Contains(d.Message+d.Hint, "c4nary-value") && !strings.Contains(string(text), "c4nary") {
				t.Errorf("%+v repeats a variable's value", d)
			}
		}
		if c.Files[0].State == configs.Unreadable && (len(c.Servers) > 0 || len(c.Diagnostics) != 1) {
			t.Errorf("unreadable, but %d servers and %d diagnostics", len(c.Servers), len(c.Diagnostics))
		}
		for i, s := range c.Servers {
			if s.ID == "" || strings.ContainsFunc(s.ID, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) ||
				strings.ContainsAny(s.ID, `/\`) || s.ID == "mcpproxy" || i > 0 && c.Servers[i-1].ID >= s.ID {
				t.Errorf("server %d has the id %q", i, s.ID)
			}
			if s.Err == nil && (s.Command == "") == (s.URL == "") {
				t.Errorf("%s has no error, but command %q and URL %q", s.ID, s.Command, s.URL)
			}
			if s.Err == nil && s.Hash == "" || s.Transport == "" {
				t.Errorf("%s is incomplete: %+v", s.ID, s)
			}
		}
		if again := configs.Load(o); again.Hash != c.Hash {
			t.Errorf("loaded again the hash is %s, was %s", again.Hash, c.Hash)
		}
	})
}
