package proxy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
)

// Nobody relies on a setting that does nothing, and nobody is warned of the defaults.
func TestUnused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mcp.json")
	for text, want := range map[string]int{
		`{"settings":{"mode":"proxy","directTools":false},"servers":{"a":{"command":"x"}}}`: 0,
		`{"settings":{"mode":"single","requireToken":true},"servers":{"a":{"command":"x","pin":true,
			"directTools":["t"]},"b":{"url":"https://b.example","auth":{"type":"oauth"}}}}`: 5,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := unused(configs.Load(configs.Options{File: file}))
		if len(got) != want {
			t.Errorf("%s: got %+v", text, got)
		}
		for _, d := range got {
			if d.Origin.File != file || d.Server != "" && d.Origin.Line == 0 {
				t.Errorf("%s: no place: %+v", text, d)
			}
		}
	}
}
