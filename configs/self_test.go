package configs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
)

// What a client's file says to start this proxy is no server of it; other uses of its name are.
func TestOwnEntry(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mcp.json")
	for entry, listed := range map[string]bool{
		`"proxy": {"command": "/opt/bin/mcpproxy", "args": ["stdio", "--approve"]}`: false,
		`"proxy": {"command": "mcpproxy"}`:                                          false,
		`"proxy": {"command": "C:\\bin\\MCPProxy.exe", "args": ["stdio"]}`:          false,
		`"proxy": {"command": ["mcpproxy", "stdio"]}`:                               false,
		`"proxy": {"command": "mcpproxy", "args": ["demo-server"]}`:                 true,
		`"proxy": {"command": "mcpproxy-extra", "args": ["stdio"]}`:                 true,
		`"mcpproxy": {"command": "other"}`:                                          false, // the name is taken
	} {
		if err := os.WriteFile(file, []byte(`{"servers": {`+entry+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		c := configs.Load(configs.Options{File: file})
		if got := len(c.Servers) == 1; got != listed || !listed && len(c.Diagnostics) != 1 {
			t.Errorf("%s: listed %v, want %v; %+v", entry, got, listed, c.Diagnostics)
		}
	}
}
