package configs

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestPlaces(t *testing.T) {
	tests := []struct {
		goos, home, config, data string
		env                      map[string]string
	}{
		{"linux", "/h", "/h/.config", "/h/.local/state/mcpproxy", map[string]string{"HOME": "/h"}},
		{"linux", "/h", "/c", "/s/mcpproxy", map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}},
		{"linux", "/h", "/h/.config", "/h/.local/state/mcpproxy",
			map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "relative", "XDG_STATE_HOME": "relative", "APPDATA": "/a"}},
		{"darwin", "/h", "/h/.config", "/h/Library/Application Support/mcpproxy", map[string]string{"HOME": "/h"}},
		{"darwin", "/h", "/c", "/d", map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "/c", "MCPPROXY_DATA_DIR": "/d"}},
		{"windows", "/u", "/a", "/l/mcpproxy", map[string]string{"USERPROFILE": "/u", "APPDATA": "/a", "LOCALAPPDATA": "/l"}},
		{"windows", "/u", "/u/AppData/Roaming", "/u/AppData/Local/mcpproxy", map[string]string{"USERPROFILE": "/u"}},
	}
	for _, test := range tests {
		getenv := func(name string) (string, bool) { v, ok := test.env[name]; return v, ok }
		if got := home(test.goos, getenv); got != test.home {
			t.Errorf("%s %v: home is %s, want %s", test.goos, test.env, got, test.home)
		}
		if got := filepath.ToSlash(configHome(test.goos, test.home, getenv)); got != test.config {
			t.Errorf("%s %v: configuration in %s, want %s", test.goos, test.env, got, test.config)
		}
		if got := filepath.ToSlash(dataDir(test.goos, "", getenv)); got != test.data {
			t.Errorf("%s %v: data in %s, want %s", test.goos, test.env, got, test.data)
		}
	}
	if got := configHome("linux", "", func(string) (string, bool) { return "", false }); got != "" {
		t.Errorf("without a home: configuration in %q, want none", got)
	}
}

func TestDataDirFlag(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	getenv := func(string) (string, bool) { return "/elsewhere", true }
	if got, want := DataDir("data", getenv), filepath.Join(dir, "data"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := DataDir("", getenv); got != "/elsewhere" {
		t.Errorf("got %s, want /elsewhere", got)
	}
}

func TestFilesOfUserAndProject(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	dir := t.TempDir()
	t.Chdir(dir)
	o := Options{Home: "/h", Project: "p", Getenv: none}
	if got, want := UserFiles(o), []string{"/h/.config/mcp/mcp.json", "/h/.config/mcpproxy/mcp.json"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	want := []string{filepath.Join(dir, "p", ".mcp.json"), filepath.Join(dir, "p", ".mcpproxy", "mcp.json")}
	if got := ProjectFiles(o); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"settings", "servers", "mode", "excludeTools", "callTimeoutMs", "pin"}
	for in, want := range map[string]string{"setings": "settings", "Servers": "servers", "moed": "mode", "exclude_tools": "excludeTools",
		"callTimeout": "callTimeoutMs", "ping": "pin", "colour": "", "x": "", "": ""} {
		if got := nearest(in, slices.Clone(known)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
