package configs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
)

// The four files by short names, and a fifth for --config.
const (
	shared        = "home/.config/mcp/mcp.json"
	own           = "home/.config/mcpproxy/mcp.json"
	projectShared = "project/.mcp.json"
	projectOwn    = "project/.mcpproxy/mcp.json"
)

// world is a user and a project in a directory of their own.
func world(t testing.TB, files map[string]string, env map[string]string) configs.Options {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return configs.Options{
		Home: filepath.Join(root, "home"), Project: filepath.Join(root, "project"),
		Getenv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
}

// entry loads one entry, named x, of the user's own file.
func entry(t testing.TB, text string, env map[string]string) (*configs.Server, *configs.Config) {
	t.Helper()
	c := configs.Load(world(t, map[string]string{own: `{"servers": {"x": ` + text + `}}`}, env))
	s := c.Server("x")
	if s == nil {
		t.Fatalf("server x is not listed; diagnostics: %v", lines(c))
	}
	return s, c
}

// lines are the diagnostics as "severity server /path line:column message".
func lines(c *configs.Config) []string {
	var all []string
	for _, d := range c.Diagnostics {
		all = append(all, fmt.Sprintf("%s %s %s %d:%d %s", d.Severity, d.Server, d.Path, d.Origin.Line, d.Origin.Column, d.Message))
	}
	return all
}

func ids(c *configs.Config) []string {
	all := []string{}
	for _, s := range c.Servers {
		all = append(all, s.ID)
	}
	return all
}

// fails checks a server's error: want is a part of the message, "" is no error.
func fails(t *testing.T, s *configs.Server, want string) {
	t.Helper()
	switch {
	case s.Err == nil && want != "":
		t.Errorf("no error, want %q", want)
	case s.Err != nil && want == "":
		t.Errorf("error %q, want none", s.Err.Message)
	case s.Err != nil && !strings.Contains(s.Err.Message+" | "+s.Err.Hint, want):
		t.Errorf("error %q (hint %q), want %q", s.Err.Message, s.Err.Hint, want)
	}
}

func TestEmpty(t *testing.T) {
	got, want := configs.Load(world(t, nil, nil)), configs.Empty()
	if !reflect.DeepEqual(got.Settings, want.Settings) || got.Hash != want.Hash || len(got.Servers)+len(got.Diagnostics) > 0 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, f := range got.Files {
		if f.State != configs.Absent {
			t.Errorf("%s is %s, want absent", f.Path, f.State)
		}
	}
}

func TestTransport(t *testing.T) {
	const accepted = "accepted are stdio (local), streamable-http"
	tests := []struct {
		in       string
		want     configs.Transport
		fallback bool
		err      string
	}{
		{`{"command": "npx"}`, configs.Stdio, false, ""},
		{`{"command": "npx", "type": "stdio"}`, configs.Stdio, false, ""},
		{`{"command": "npx", "type": "local"}`, configs.Stdio, false, ""},
		{`{"url": "https://h/mcp"}`, configs.StreamableHTTP, true, ""},
		{`{"serverUrl": "https://h/mcp"}`, configs.StreamableHTTP, true, ""},
		{`{"httpUrl": "https://h/mcp"}`, configs.StreamableHTTP, false, ""},
		{`{"httpUrl": "https://h/mcp", "type": "http"}`, configs.StreamableHTTP, false, ""},
		{`{"url": "https://h/mcp", "type": "http"}`, configs.StreamableHTTP, false, ""},
		{`{"url": "https://h/mcp", "type": "streamable-http"}`, configs.StreamableHTTP, false, ""},
		{`{"url": "https://h/mcp", "type": "streamableHttp"}`, configs.StreamableHTTP, false, ""},
		{`{"url": "https://h/mcp", "transport": "streamable_http"}`, configs.StreamableHTTP, false, ""},
		{`{"url": "https://h/mcp", "transport": "http-stream"}`, configs.StreamableHTTP, false, ""},
		{`{"url": "https://h/mcp", "type": "remote"}`, configs.StreamableHTTP, true, ""},
		{`{"url": "https://h/sse", "type": "sse"}`, configs.SSE, false, ""},
		{`{"url": "https://h/sse", "transportType": "SSE"}`, configs.SSE, false, ""},
		{`{"url": "https://h", "type": "ws"}`, configs.StreamableHTTP, true, accepted},
		{`{"command": "npx", "type": "pipe"}`, configs.Stdio, false, `"type" is "pipe"`},
		{`{"command": "npx", "type": "http"}`, configs.StreamableHTTP, false, `"type" is "http", but "command" is given`},
		{`{"url": "https://h", "type": "stdio"}`, configs.Stdio, false, `"type" is "stdio", but "url" is given`},
		{`{"command": "npx", "url": "https://h"}`, configs.Stdio, false, `"command" and "url" are both given`},
		{`{"args": ["x"]}`, configs.Stdio, false, `neither "command" nor "url"`},
		{`{"type": 5, "command": "npx"}`, configs.Stdio, false, `"type": expected a string, found a number`},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			s, _ := entry(t, test.in, nil)
			fails(t, s, test.err)
			if s.Transport != test.want || s.Fallback != test.fallback {
				t.Errorf("got %s (fallback %v), want %s (%v)", s.Transport, s.Fallback, test.want, test.fallback)
			}
		})
	}
}

// A bad entry is listed with its error and takes nothing down with it.
func TestBadEntry(t *testing.T) {
	c := configs.Load(world(t, map[string]string{own: `{
  "servers": {
    "good": {"command": "true"},
    "bad": {
      "args": ["x"]
    }
  }
}`, shared: `{"mcpServers": {"other": {"url": "https://h"}}}`}, nil))
	if got, want := ids(c), []string{"bad", "good", "other"}; !slices.Equal(got, want) {
		t.Errorf("got servers %v, want %v", got, want)
	}
	fails(t, c.Server("good"), "")
	fails(t, c.Server("other"), "")
	want := []string{`error bad /servers/bad 4:12 neither "command" nor "url" is given`}
	if got := lines(c); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if d := c.Server("bad").Err; d == nil || !strings.HasSuffix(d.Origin.File, own) || d.Hint == "" {
		t.Errorf("got error %+v, want one with file and hint", d)
	}
}

func TestTypes(t *testing.T) {
	tests := []struct{ in, path, want string }{
		{`"npx"`, "/servers/x", `"x": expected an object, found a string`},
		{`{"command": 5}`, "/servers/x/command", `"command": expected a string, found a number`},
		{`{"command": []}`, "/servers/x/command", `"command": expected a string, found an array`},
		{`{"command": ["a", 5]}`, "/servers/x/command/1", `element 1 of "command": expected a string, found a number`},
		{`{"command": "a", "args": "b"}`, "/servers/x/args", `"args": expected an array, found a string`},
		{`{"command": "a", "args": ["b", null]}`, "/servers/x/args/1", `element 1 of "args": expected a string, found null`},
		{`{"command": "a", "env": ["A=b"]}`, "/servers/x/env", `"env": expected an object, found an array`},
		{`{"command": "a", "env": {"PORT": 80}}`, "/servers/x/env/PORT", `"PORT": expected a string, found a number`},
		{`{"command": "a", "env": {"A=B": "c"}}`, "/servers/x/env/A=B", `can't be the name of an environment variable`},
		{`{"command": "a", "env": {"A": "b\u0000"}}`, "/servers/x/env/A", `holds a NUL character`},
		{`{"command": ""}`, "/servers/x/command", `"command" is empty`},
		{`{"command": "a", "enabled": "yes"}`, "/servers/x/enabled", `"enabled": expected a boolean, found a string`},
		{`{"command": "a", "disabled": 1}`, "/servers/x/disabled", `"disabled": expected a boolean, found a number`},
		{`{"command": "a", "timeout": "60s"}`, "/servers/x/timeout", `"timeout": expected a number, found a string`},
		{`{"command": "a", "lifecycle": "always"}`, "/servers/x/lifecycle", `accepted are lazy, eager, keep-alive`},
		{`{"command": "a", "allow": ["sampling", "files"]}`, "/servers/x/allow/1", `accepted are sampling, elicitation, roots`},
		{`{"command": "a", "directTools": "all"}`, "/servers/x/directTools", `expected a boolean or an array of names`},
		{`{"command": "a", "directTools": [true]}`, "/servers/x/directTools/0", `expected a string, found a boolean`},
		{`{"command": "a", "overrides": []}`, "/servers/x/overrides", `expected an object, found an array`},
		{`{"url": "localhost:3000/mcp"}`, "/servers/x/url", `"url" is no URL of a server`},
		{`{"url": "https://"}`, "/servers/x/url", `"url" is no URL of a server`},
		{`{"url": "https://h", "headers": {"A B": "c"}}`, "/servers/x/headers/A B", `can't be the name of a header`},
		{`{"url": "https://h", "headers": {"A": "b\nC: d"}}`, "/servers/x/headers/A", `holds a line break`},
		{`{"url": "https://h", "auth": "oauth"}`, "/servers/x/auth", `"auth": expected an object, found a string`},
		{`{"url": "https://h", "auth": {"type": "basic"}}`, "/servers/x/auth/type", `accepted are none, bearer, env, oauth`},
		{`{"url": "https://h", "auth": {"type": "bearer"}}`, "/servers/x/auth", `auth of type bearer has no token`},
		{`{"url": "https://h", "auth": {"token": ""}}`, "/servers/x/auth", `auth of type bearer has no token`},
		{`{"url": "https://h", "auth": {"env": "NOPE"}}`, "/servers/x/auth/env", `environment variable NOPE is not set`},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			s, c := entry(t, test.in, nil)
			fails(t, s, test.want)
			if s.Err != nil && s.Err.Path != test.path {
				t.Errorf("got path %s, want %s", s.Err.Path, test.path)
			}
			if len(c.Diagnostics) != 1 || c.Diagnostics[0].Severity != configs.Error || c.Diagnostics[0].Server != "x" {
				t.Errorf("got %v, want the one error", lines(c))
			}
		})
	}
}

// Keys of other programs mean what they mean there, or nothing; none is an error.
func TestOtherProgramsKeys(t *testing.T) {
	s, c := entry(t, `{"command": "a", "disabled": true, "disabledTools": ["rm"], "timeout": 30000, "environment": {"A": "bcde"},
		"tools": ["read_*"], "autoApprove": [], "alwaysAllow": ["x"], "alwaysLoad": true, "dev": {"watch": "**"}, "inputs": [],
		"$schema": "s", "name": "n", "type": "stdio"}`, nil)
	if len(c.Diagnostics) > 0 {
		t.Errorf("got diagnostics %v, want none", lines(c))
	}
	if s.Enabled || !slices.Equal(s.ExcludeTools, []string{"rm"}) || !slices.Equal(s.IncludeTools, []string{"read_*"}) ||
		s.Limits.CallTimeout != 30*time.Second || s.Env["A"] != "bcde" {
		t.Errorf("got %+v", s)
	}
	if at := s.Origins["/excludeTools/0"]; at.Line != 1 || at.Column == 0 {
		t.Errorf("got origin %v of excludeTools/0", at)
	}

	tests := []struct{ in, want string }{
		{`{"command": "a", "tools": {"rm": {"enabled": false}}}`, ""},
		{`{"command": "a", "envFile": ".env"}`, `note x /servers/x/envFile 1:36 "envFile" is not supported and has no effect`},
		{`{"command": "a", "timeout": 60}`, `note x /servers/x/timeout 1:47 "timeout" is below 1000 and read as seconds`},
		{`{"command": "a", "timeout": 60000, "callTimeoutMs": 5000}`,
			`warning x /servers/x/timeout 1:36 "timeout" has no effect beside "callTimeoutMs"`},
		{`{"command": "a", "excludedTools": []}`, `warning x /servers/x/excludedTools 1:36 unknown key "excludedTools"`},
		{`{"url": "https://h", "timeuot": 5}`, `warning x /servers/x/timeuot 1:40 unknown key "timeuot"`},
		{`{"command": "a", "colour": "red"}`, `note x /servers/x/colour 1:36 unknown key "colour" has no effect`},
		{`{"command": "npx -y foo"}`, `note x /servers/x/command 1:31 "command" is the name of one program, spaces and all`},
		{`{"command": "a", "headers": {"A": "b"}}`,
			`note x /servers/x/headers 1:36 "headers" has no effect where the transport is stdio`},
		{`{"url": "https://h", "env": {}, "args": []}`, ""},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			s, c := entry(t, test.in, nil)
			fails(t, s, "")
			if got := strings.Join(lines(c), "\n"); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestCommandArray(t *testing.T) {
	s, _ := entry(t, `{"command": ["npx", "-y", "p"], "args": ["--q"]}`, nil)
	fails(t, s, "")
	if want := []string{"-y", "p", "--q"}; s.Command != "npx" || !slices.Equal(s.Args, want) {
		t.Errorf("got %s %v, want npx %v", s.Command, s.Args, want)
	}
}

func TestAuth(t *testing.T) {
	env := map[string]string{"T": "t0ken"}
	tests := []struct {
		in   string
		want configs.Auth
	}{
		{`{}`, configs.Auth{Type: "none"}},
		{`{"auth": {"type": "oauth"}}`, configs.Auth{Type: "oauth"}},
		{`{"auth": {"token": "${T}"}}`, configs.Auth{Type: "bearer", Token: "t0ken"}},
		{`{"auth": {"type": "bearer", "token": "abc"}}`, configs.Auth{Type: "bearer", Token: "abc"}},
		{`{"auth": {"type": "env", "env": "T"}}`, configs.Auth{Type: "env", Token: "t0ken"}},
		{`{"oauth": {"clientId": "c", "callbackPort": 8123, "scopes": ["a", "b"]}}`,
			configs.Auth{Type: "oauth", ClientID: "c", CallbackPort: 8123, Scope: "a b"}},
		{`{"oauth": true}`, configs.Auth{Type: "oauth"}},
		{`{"oauth": false}`, configs.Auth{Type: "none"}},
		{`{"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${T}", "scopes": "a"}}`,
			configs.Auth{Type: "oauth", ClientID: "c", ClientSecret: "t0ken", Scope: "a"}},
		{`{"auth": {"flow": "device", "clientMetadataUrl": "https://c", "resourceMetadataUrl": "https://r",
			"tokenEndpointAuthMethod": "none"}}`, configs.Auth{Type: "oauth", Flow: "device", ClientMetadataURL: "https://c",
			ResourceMetadataURL: "https://r", TokenEndpointAuthMethod: "none"}},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			s, c := entry(t, `{"url": "https://h", `+test.in[1:], env)
			if test.in == "{}" {
				s, c = entry(t, `{"url": "https://h"}`, env)
			}
			if s.Auth != test.want || len(c.Diagnostics) > 0 {
				t.Errorf("got %+v, diagnostics %v, want %+v", s.Auth, lines(c), test.want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	c := configs.Load(world(t, map[string]string{own: `{
"settings": {"callTimeoutMs": 20000, "maxOutputBytes": 1, "connectTimeoutMs": 5e3},
"servers": {
"plain": {"command": "a"},
"mine": {"command": "a", "callTimeoutMs": 7200000, "idleTimeoutMs": 1e999, "maxOutputLines": 5, "discoveryTimeoutMs": 0}
}}`}, nil))
	l := c.Server("plain").Limits
	if l != c.Settings.Limits || l.CallTimeout != 20*time.Second || l.MaxOutputBytes != 1024 || l.MaxCallTimeout != time.Hour ||
		l.ConnectTimeout != 5*time.Second || !l.ConnectSet {
		t.Errorf("got %+v, settings %+v", l, c.Settings.Limits)
	}
	l = c.Server("mine").Limits
	if l.CallTimeout != 2*time.Hour || l.MaxCallTimeout != 2*time.Hour || l.IdleTimeout != 24*time.Hour || l.MaxOutputLines != 5 ||
		l.DiscoveryTimeout != 100*time.Millisecond || l.MaxOutputBytes != 1024 {
		t.Errorf("got %+v", l)
	}
	want := []string{
		`warning  /settings/maxOutputBytes 2:56 "maxOutputBytes" is 1 bytes, out of bounds; 1024 bytes holds`,
		`warning mine /servers/mine/idleTimeoutMs 5:69 "idleTimeoutMs" is 1e999 ms, out of bounds; 86400000 ms holds`,
		`warning mine /servers/mine/discoveryTimeoutMs 5:119 "discoveryTimeoutMs" is 0 ms, out of bounds; 100 ms holds`,
	}
	if got := lines(c); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSettings(t *testing.T) {
	c := configs.Load(world(t, map[string]string{own: `{"version": 2, "settings": {
"enabled": false, "mode": "single", "discovery": "explicit", "resources": "off", "prompts": "model", "directTools": ["a"],
"requireToken": true, "listen": "127.0.0.1:1", "searchWarmup": true, "sessionIdleTimeoutMs": 1000, "outputTtlMs": 60000,
"moed": "direct"}, "server": {}, "$schema": "s", "inputs": []}`}, nil))
	got := c.Settings
	got.Limits = configs.Limits{}
	want := configs.Settings{Mode: "single", Discovery: "explicit", Resources: "off", Prompts: "model", DirectTools: []string{"a"},
		DefaultProjectTrust: "ask", RequireToken: true, Listen: "127.0.0.1:1", SearchWarmup: true, SessionIdleTimeout: time.Second,
		OutputTTL: time.Minute}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	wantLines := []string{
		`warning  /version 1:13 version 2 is not known; the file is read as version 1`,
		`warning  /settings/moed 4:1 unknown key "moed"`,
		`warning  /server 4:20 unknown key "server"`,
	}
	if got := lines(c); !slices.Equal(got, wantLines) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wantLines, "\n"))
	}

	for _, bad := range []string{`"mode": "both"`, `"listen": "8080"`, `"enabled": 1`} {
		c := configs.Load(world(t, map[string]string{own: `{"settings": {` + bad + `}}`}, nil))
		if c.Hash != configs.Empty().Hash || len(c.Diagnostics) != 1 || c.Diagnostics[0].Severity != configs.Error {
			t.Errorf("%s: got %+v, %v, want the default and an error", bad, c.Settings, lines(c))
		}
	}
}

func TestIDs(t *testing.T) {
	tests := []struct {
		in   string // keys
		ids  []string
		want []string
	}{
		{`"  my server ": {"command": "a"}`, []string{"my-server"}, nil},
		{`"数据库": {"command": "a"}, "naïve_1.2-x": {"command": "a"}`, []string{"naïve_1.2-x", "数据库"}, nil},
		{`"@scope/pkg": {"command": "a"}, "../../etc": {"command": "a"}, "a\t\nb\\c": {"command": "a"}`,
			[]string{"a-b-c", "etc", "scope-pkg"}, nil},
		{`"a b": {"command": "first"}, "a/b": {"command": "second"}`, []string{"a-b"},
			[]string{`error a-b /servers/a~1b 1:43 the names "a/b" and "a b" (line 1) make the same id "a-b"; the first one holds`}},
		{`"mcpproxy": {"command": "a"}`, []string{}, []string{`error mcpproxy /servers/mcpproxy 1:14 the name "mcpproxy" is the proxy's own`}},
		{`" ": {"command": "a"}`, []string{}, []string{`error  /servers/  1:14 " " can't be the name of a server`}},
		{`"a": {"command": "first"}, "a": {"command": "second"}`, []string{"a"},
			[]string{`warning  /servers/a 1:41 "a" stands twice in one object, in lines 1 and 1; the last holds`}},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			c := configs.Load(world(t, map[string]string{own: `{"servers": {` + test.in + `}}`}, nil))
			if got := ids(c); !slices.Equal(got, test.ids) {
				t.Errorf("got ids %q, want %q", got, test.ids)
			}
			if got := lines(c); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if s := configs.Load(world(t, map[string]string{own: `{"servers": {"a": {"command": "first"}, "a": {"command": "second"}}}`}, nil)).
		Server("a"); s.Command != "second" {
		t.Errorf("of a duplicate key %q holds, want the last", s.Command)
	}
}

func TestBothKeys(t *testing.T) {
	c := configs.Load(world(t, map[string]string{own: `{
"mcpServers": {"a": {"command": "theirs"}, "b": {"command": "b"}},
"servers": {"a": {"command": "ours"}}}`}, nil))
	if c.Server("a").Command != "ours" || c.Server("b") == nil {
		t.Errorf("got %v, a is %q", ids(c), c.Server("a").Command)
	}
	want := []string{`warning a /mcpServers/a 2:16 server "a" stands in "servers" too, in line 3, and that one holds`}
	if got := lines(c); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSyntax(t *testing.T) {
	good := map[string]string{
		"comments":          "{ // one\n/* two */ \"servers\": {\"a\": {\"command\": \"x\" /* three */}}} // four",
		"trailing commas":   `{"servers": {"a": {"command": "x", "args": ["b",],},},}`,
		"byte order mark":   "\ufeff" + `{"servers": {"a": {"command": "x"}}}`,
		"carriage returns":  "{\r\n\"servers\": {\"a\":\r\n{\"command\": \"x\"}}}\r\n",
		"comment at end":    "{\"servers\": {\"a\": {\"command\": \"x\"}}}\n// the end",
		"slashes in string": `{"servers": {"a": {"command": "x", "args": ["// no", "/* no */", "[[["]}}}`,
	}
	for name, text := range good {
		t.Run(name, func(t *testing.T) {
			c := configs.Load(world(t, map[string]string{own: text}, nil))
			if s := c.Server("a"); s == nil || s.Command != "x" || len(c.Diagnostics) > 0 {
				t.Errorf("got servers %v and diagnostics %q", ids(c), lines(c))
			}
		})
	}
	bad := []struct {
		name, text, want string
		line, column     int
	}{
		{"empty", "", "it is empty", 1, 1},
		{"blank", "\n\n", "it is empty", 3, 1},
		{"open", "{", "it ends too early", 1, 2},
		{"list", " []", "expected an object, found an array", 1, 2},
		{"two values", "{} {}", "invalid character '{' after top-level value", 1, 4},
		{"no comma", "{\n  \"a\": 1\n  \"b\": 2\n}", "invalid character '\"' after object value", 3, 3},
		{"single quotes", "{\"ä\": 'b'}", `invalid character '\'' at start of value`, 1, 7},
		{"bad escape", `{"a": "C:\Users"}`, "invalid string", 1, 7},
		{"open string", "{\"a\": \"s3cret\n}", "it ends too early", 2, 2},
		{"bad word", "{\"a\": True}", "invalid value", 1, 7},
		{"binary", "{\n\x00}", "it holds a NUL byte", 2, 1},
		{"latin 1", "{\"a\": \"\xe4\"}", "it is not valid UTF-8", 1, 8},
		{"deep", strings.Repeat("[", 1<<20), "nested more than 100 deep", 1, 101},
		{"large", `{"a": "` + strings.Repeat("x", 4<<20) + `"}`, "it is larger than 4096 KiB", 0, 0},
	}
	for _, test := range bad {
		t.Run(test.name, func(t *testing.T) {
			c := configs.Load(world(t, map[string]string{own: test.text, shared: `{"servers": {"a": {"command": "x"}}}`}, nil))
			if c.Server("a") == nil || c.Files[0].State != configs.Loaded || c.Files[1].State != configs.Unreadable {
				t.Errorf("got servers %v, files %v", ids(c), c.Files)
			}
			if len(c.Diagnostics) != 1 {
				t.Fatalf("got %q, want one error", lines(c))
			}
			d := c.Diagnostics[0]
			if d.Severity != configs.Error || !strings.Contains(d.Message, test.want) || !strings.HasSuffix(d.Origin.File, own) ||
				d.Origin.Line != test.line || d.Origin.Column != test.column || d.Hint == "" {
				t.Errorf("got %+v, want %q at %d:%d", d, test.want, test.line, test.column)
			}
			if strings.Contains(d.Message, "s3cret") {
				t.Errorf("the message repeats a value: %q", d.Message)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	o := world(t, map[string]string{own + "/in-the-way": ""}, nil)
	c := configs.Load(o)
	if c.Files[1].State != configs.Unreadable || len(c.Diagnostics) != 1 ||
		!strings.Contains(c.Diagnostics[0].Message, "it is a directory") {
		t.Errorf("got %v, %q", c.Files, lines(c))
	}
}

func TestConfigFile(t *testing.T) {
	o := world(t, map[string]string{
		own: `{"servers": {"user": {"command": "x"}}}`, projectShared: `{"servers": {"project": {"command": "x"}}}`,
		"other/c.json": `{"servers": {"alone": {"command": "./run.sh"}}}`}, nil)
	o.Approve = true
	o.File = filepath.Join(filepath.Dir(o.Home), "other", "c.json")
	c := configs.Load(o)
	s := c.Server("alone")
	if got := ids(c); !slices.Equal(got, []string{"alone"}) || s.Scope != configs.Temporary || s.Dir != "" {
		t.Fatalf("got %v", got)
	}
	if want := filepath.Join(filepath.Dir(o.File), "run.sh"); s.Command != want {
		t.Errorf("got command %s, want %s", s.Command, want)
	}

	o.File += ".missing"
	c = configs.Load(o)
	if len(c.Diagnostics) != 1 || c.Diagnostics[0].Severity != configs.Error || !strings.Contains(c.Diagnostics[0].Message, o.File) ||
		len(c.Files) != 1 || c.Files[0].State != configs.Absent || len(c.Servers) != 0 {
		t.Errorf("got %q, files %v", lines(c), c.Files)
	}
}

func TestTrust(t *testing.T) {
	trusting := func(yes bool) func(string, []configs.File) bool {
		return func(dir string, files []configs.File) bool {
			return yes && filepath.Base(dir) == "project" && len(files) == 1 && strings.HasPrefix(files[0].Hash, "sha256:")
		}
	}
	tests := []struct {
		name string
		user string // settings
		o    configs.Options
		want configs.FileState
		hint string
	}{
		{"default", `{}`, configs.Options{}, configs.Untrusted, "--approve"},
		{"approve", `{}`, configs.Options{Approve: true}, configs.Loaded, ""},
		{"deny", `{"defaultProjectTrust": "always"}`, configs.Options{Deny: true}, configs.Untrusted, "--no-approve"},
		{"always", `{"defaultProjectTrust": "always"}`, configs.Options{}, configs.Loaded, ""},
		{"never", `{"defaultProjectTrust": "never"}`, configs.Options{Trusted: trusting(true)}, configs.Untrusted, "--approve"},
		{"never, approved", `{"defaultProjectTrust": "never"}`, configs.Options{Approve: true}, configs.Loaded, ""},
		{"trusted", `{"defaultProjectTrust": "ask"}`, configs.Options{Trusted: trusting(true)}, configs.Loaded, ""},
		{"not trusted", `{}`, configs.Options{Trusted: trusting(false)}, configs.Untrusted, "--approve"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := world(t, map[string]string{own: `{"settings": ` + test.user + `, "servers": {"u": {"command": "x"}}}`,
				projectShared: `{"settings": {"defaultProjectTrust": "always"}, "servers": {"p": {"command": "x"}}}`}, nil)
			test.o.Home, test.o.Project, test.o.Getenv = o.Home, o.Project, o.Getenv
			c := configs.Load(test.o)
			if got := c.Files[2].State; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			loaded := test.want == configs.Loaded
			if c.Server("u") == nil || (c.Server("p") != nil) != loaded {
				t.Errorf("got servers %v", ids(c))
			}
			if len(c.Diagnostics) != 1 || c.Diagnostics[0].Severity != configs.Warning || !strings.Contains(c.Diagnostics[0].Hint, test.hint) ||
				c.Diagnostics[0].Origin.File != c.Files[2].Path {
				t.Errorf("got %+v, want one warning with %q", c.Diagnostics, test.hint)
			}
		})
	}
}
