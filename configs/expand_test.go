package configs_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
)

var variables = map[string]string{"T": "t0ken-value", "H": "example.org", "PORT": "8123", "EMPTY": "", "D": "/opt/data",
	"ProgramFiles(x86)": `C:\Program Files (x86)`}

// Every field that takes references takes all spellings of them.
func TestExpansion(t *testing.T) {
	command := func(s *configs.Server) string { return s.Command }
	arg := func(s *configs.Server) string { return s.Args[0] }
	dir := func(s *configs.Server) string { return s.Dir }
	env := func(s *configs.Server) string { return s.Env["E"] }
	url := func(s *configs.Server) string { return s.URL }
	header := func(s *configs.Server) string { return s.Headers["Authorization"] }
	token := func(s *configs.Server) string { return s.Auth.Token }
	tests := []struct {
		field func(*configs.Server) string
		in    string // the entry
		want  string // HOME and PROJECT stand for the directories, CONFIG for that of the file
	}{
		{header, `{"url": "https://h", "headers": {"Authorization": "Bearer ${T}"}}`, "Bearer t0ken-value"},
		{header, `{"url": "https://h", "headers": {"Authorization": "Bearer ${env:T}"}}`, "Bearer t0ken-value"},
		{header, `{"url": "https://h", "headers": {"Authorization": "Bearer ${NOPE:-dflt}"}}`, "Bearer dflt"},
		{header, `{"url": "https://h", "headers": {"Authorization": "Bearer ${env:NOPE:-dflt}"}}`, "Bearer dflt"},
		{header, `{"url": "https://h", "headers": {"Authorization": "~/x"}}`, "~/x"},
		{token, `{"url": "https://h", "auth": {"type": "bearer", "token": "${T}"}}`, "t0ken-value"},
		{url, `{"url": "https://${H}/mcp"}`, "https://example.org/mcp"},
		{url, `{"url": "http://localhost:${PORT}/mcp"}`, "http://localhost:8123/mcp"},
		{url, `{"httpUrl": " ${NOPE:-https://${H}/mcp} "}`, "https://example.org/mcp"},
		{arg, `{"command": "a", "args": ["--k=${T}"]}`, "--k=t0ken-value"},
		{arg, `{"command": "a", "args": ["${EMPTY}"]}`, ""},
		{arg, `{"command": "a", "args": ["~/x"]}`, "HOME/x"},
		{arg, `{"command": "a", "args": ["./x"]}`, "./x"},
		{arg, `{"command": "a", "args": ["${userHome}${/}x"]}`, "HOME/x"},
		{arg, `{"command": "a", "args": ["${workspaceFolder}"]}`, "PROJECT"},
		{arg, `{"command": "a", "args": ["${workspaceFolderBasename}"]}`, "project"},
		{arg, `{"command": "a", "args": ["${env:ProgramFiles(x86)}"]}`, `C:\Program Files (x86)`},
		{env, `{"command": "a", "env": {"E": "${T}-${H}"}}`, "t0ken-value-example.org"},
		{env, `{"command": "a", "env": {"E": ""}}`, ""},
		{env, `{"command": "a", "env": {"E": "${NOPE:-}"}}`, ""},
		{env, `{"command": "a", "env": {"E": "x${EMPTY}"}}`, "x"},
		{env, `{"command": "a", "env": {"E": "${EMPTY:-dflt}"}}`, "dflt"},
		{env, `{"command": "a", "env": {"E": "${NOPE:-${ALSO:-~/x}}"}}`, "HOME/x"},
		{env, `{"command": "a", "env": {"E": "${file:secret.txt}"}}`, "line one\nline two"},
		{env, `{"command": "a", "env": {"E": "${file:~/note}"}}`, "a note"},
		{env, `{"command": "a", "env": {"E": "${file:${userHome}/note}"}}`, "a note"},
		{env, `{"command": "a", "env": {"E": "${file:nope:-dflt}"}}`, "dflt"},
		{dir, `{"command": "a", "cwd": "~/x"}`, "HOME/x"},
		{dir, `{"command": "a", "cwd": "~"}`, "HOME"},
		{dir, `{"command": "a", "cwd": "."}`, "CONFIG"},
		{dir, `{"command": "a", "cwd": "../x"}`, "HOME/.config/x"},
		{dir, `{"command": "a", "cwd": "${D}/x"}`, "/opt/data/x"},
		{dir, `{"command": "a"}`, ""},
		{command, `{"command": "./run.sh"}`, "CONFIG/run.sh"},
		{command, `{"command": "bin/run"}`, "CONFIG/bin/run"},
		{command, `{"command": "~/bin/run"}`, "HOME/bin/run"},
		{command, `{"command": "${D}/run"}`, "/opt/data/run"},
		{command, `{"command": "node"}`, "node"},
		// What is no reference stays as it is.
		{env, `{"command": "a", "env": {"E": "pa$$word"}}`, "pa$$word"},
		{env, `{"command": "a", "env": {"E": "a}b"}}`, "a}b"},
		{env, `{"command": "a", "env": {"E": "$5 $T {T} $"}}`, "$5 $T {T} $"},
		{env, `{"command": "a", "env": {"E": "${T"}}`, "${T"},
		{env, `{"command": "a", "env": {"E": "${} ${x%.*} ${#a[@]} ${ ${H}"}}`, "${} ${x%.*} ${#a[@]} ${ example.org"},
		{env, `{"command": "a", "env": {"E": "$${H}}"}}`, "$example.org}"},
		{env, `{"command": "a", "env": {"E": "a~/b"}}`, "a~/b"},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			o := world(t, map[string]string{own: `{"servers": {"x": ` + test.in + `}}`, "home/note": "a note\r\n",
				"home/.config/mcpproxy/secret.txt": "line one\nline two\n"}, variables)
			s := configs.Load(o).Server("x")
			fails(t, s, "")
			want := strings.NewReplacer("CONFIG", filepath.Join(o.Home, ".config", "mcpproxy"), "HOME", o.Home, "PROJECT", o.Project).
				Replace(test.want)
			if got := test.field(s); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestExpansionFails(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"command": "a", "args": ["${NOPE}"]}`, "environment variable NOPE is not set"},
		{`{"command": "a", "args": ["${env:NOPE}"]}`, "environment variable NOPE is not set"},
		{`{"command": "${NOPE}"}`, "environment variable NOPE is not set"},
		{`{"command": "a", "cwd": "${NOPE}/x"}`, "environment variable NOPE is not set"},
		{`{"command": "a", "env": {"E": "x${NOPE}"}}`, "environment variable NOPE is not set"},
		{`{"command": "a", "env": {"E": "${A:-${NOPE}}"}}`, "environment variable NOPE is not set"},
		{`{"url": "https://${NOPE}/mcp"}`, "environment variable NOPE is not set"},
		{`{"url": "https://h", "headers": {"A": "Bearer ${NOPE}"}}`, "environment variable NOPE is not set"},
		{`{"url": "https://h", "auth": {"token": "${NOPE}"}}`, "environment variable NOPE is not set"},
		{`{"url": "https://h", "headers": {"A": "${EMPTY}"}}`, "environment variable EMPTY is not set (it is empty)"},
		{`{"url": "https://h", "headers": {"A": "Bearer ${EMPTY}"}}`, "environment variable EMPTY is not set (it is empty)"},
		{`{"url": "${EMPTY}"}`, "environment variable EMPTY is not set (it is empty)"},
		{`{"url": "https://h", "auth": {"token": "${EMPTY}"}}`, "environment variable EMPTY is not set (it is empty)"},
		{`{"command": "a", "env": {"E": "${EMPTY}"}}`, "environment variable EMPTY is not set (it is empty)"},
		{`{"command": "a", "env": {"E": "${file:nope}"}}`, "file nope does not exist"},
		{`{"command": "a", "env": {"E": "${file:.}"}}`, "file .: it is a directory"},
		{`{"command": "a", "env": {"E": "${file:big}"}}`, "file big: it is larger than 64 KiB"},
		{`{"command": "a", "env": {"E": "${keyring:github}"}}`, "the keyring is not supported by this build"},
		{`{"command": "a", "env": {"E": "${input:key}"}}`, "input key: only editors can ask for inputs"},
		{`{"command": "a", "env": {"E": "${cmd:pass show x}"}}`, "${cmd:…} is no known reference"},
		{`{"command": "a", "env": {"E": "` + strings.Repeat("${A:-", 20) + strings.Repeat("}", 20) + `"}}`, "nested more than 10 deep"},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			o := world(t, map[string]string{own: `{"servers": {"x": ` + test.in + `, "y": {"command": "b"}}}`,
				"home/.config/mcpproxy/big": strings.Repeat("x", 64<<10+1)}, variables)
			c := configs.Load(o)
			fails(t, c.Server("x"), test.want)
			fails(t, c.Server("y"), "")
			if d := c.Server("x").Err; d != nil && (d.Hint == "" || d.Origin.Line != 1 || d.Server != "x") {
				t.Errorf("got %+v, want a hint, a place and the server", d)
			}
		})
	}
}

// A server that is switched off may lack what it needs.
func TestDisabledFails(t *testing.T) {
	s, c := entry(t, `{"command": "a", "env": {"E": "${NOPE}"}, "disabled": true}`, nil)
	fails(t, s, "environment variable NOPE is not set")
	if len(c.Diagnostics) != 1 || c.Diagnostics[0].Severity != configs.Warning {
		t.Errorf("got %q, want a warning", lines(c))
	}
}

// In a project relative paths start from its directory, whichever of its files they stand in.
func TestProjectPaths(t *testing.T) {
	text := `{"servers": {"NAME": {"command": "./run.sh"}, "NAME2": {"command": "node", "cwd": "sub"}}}`
	o := world(t, map[string]string{projectShared: strings.ReplaceAll(text, "NAME", "a"),
		projectOwn: strings.ReplaceAll(text, "NAME", "b")}, nil)
	o.Approve = true
	c := configs.Load(o)
	for _, id := range []string{"a", "b"} {
		if s, want := c.Server(id), filepath.Join(o.Project, "run.sh"); s.Command != want || s.Dir != o.Project {
			t.Errorf("%s: got %s in %s, want %s in %s", id, s.Command, s.Dir, want, o.Project)
		}
		if s, want := c.Server(id+"2"), filepath.Join(o.Project, "sub"); s.Dir != want {
			t.Errorf("%s: got %s, want %s", s.ID, s.Dir, want)
		}
	}
}

func TestSecrets(t *testing.T) {
	env := map[string]string{"T": "from-env", "LEVEL": "error"}
	tests := []struct {
		in   string
		want []string
	}{
		{`{"command": "a", "args": ["--x=${T}", "--api-key", "k3y-value", "--token=t0k", "--max-tokens=4096"]}`,
			[]string{"from-env", "k3y-value", "t0k"}},
		{`{"command": "a", "cwd": "${userHome}", "env": {"KEY": "literal", "LOG_LEVEL": "${LEVEL}", "PORT": "8080", "DEBUG": "true"}}`,
			[]string{"literal"}},
		{`{"command": "a", "env": {"PASSWORD": "test"}}`, []string{"test"}},
		{`{"url": "https://h", "headers": {"Authorization": "Bearer abc.def", "X-Key": "k1-value", "Accept": "application/json"}}`,
			[]string{"Bearer abc.def", "abc.def", "k1-value"}},
		{`{"url": "https://h", "auth": {"token": "t1", "clientId": "c1", "clientSecret": "s1"}}`, []string{"s1", "t1"}},
		{`{"url": "https://joe:p%40ss@h/mcp?api_key=k%2F1&q=x"}`, []string{"joe:p%40ss", "k%2F1", "k/1", "p%40ss", "p@ss"}},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			s, c := entry(t, test.in, env)
			fails(t, s, "")
			if !slices.Equal(s.Secrets, test.want) {
				t.Errorf("got %q, want %q", s.Secrets, test.want)
			}
			for _, d := range c.Diagnostics {
				t.Errorf("got %+v, want none", d)
			}
		})
	}
}

// Whatever is wrong with a value, what is said about it does not repeat it.
func TestDiagnosticsHoldNoSecrets(t *testing.T) {
	o := world(t, nil, nil)
	secret := filepath.Join(filepath.Dir(o.Home), "secret")
	if err := os.WriteFile(secret, []byte("c4nary"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"S": "c4nary", "L": "c4nary\nX: y", "F": secret}
	for _, in := range []string{
		`{"url": "ftp://${S}"}`, `{"url": "http://${S}:%zz"}`, `{"url": "c4nary"}`,
		`{"url": "https://h", "headers": {"A": "${L}"}}`, `{"url": "https://h", "headers": {"A": "c4nary${NOPE}"}}`,
		`{"command": "a", "env": {"A": "${file:${S}}"}}`, `{"command": "a", "env": {"A": "${env:${S}}"}}`,
		`{"command": "a", "env": {"A": "c4nary\u0000"}}`, `{"command": "a", "env": {"A": ["c4nary"]}}`,
		`{"url": "https://h", "auth": {"type": "bearer", "token": ["c4nary"]}}`, `{"command": "a", "args": "c4nary"}`,
		`{"command": "a", "env": {"A": "c4nary \q"}}`,
	} {
		o := world(t, map[string]string{own: `{"servers": {"x": ` + in + `}}`}, env)
		c := configs.Load(o)
		if len(c.Diagnostics) == 0 {
			t.Errorf("%s: no diagnostics", in)
		}
		for _, d := range c.Diagnostics {
			if strings.Contains(d.Message+d.Hint, "c4nary") {
				t.Errorf("%s: %+v repeats a value", in, d)
			}
		}
	}
}
