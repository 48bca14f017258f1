package upstream

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mcpproxy/mcpproxy/configs"
)

// onUnix is a host whose file system is a map from path to content; a directory's content is "/", a file that begins with
// "-" is not executable.
func onUnix(files map[string]string, login string, environ ...string) host {
	return host{
		goos: "linux", environ: environ, cwd: "/cwd",
		mode: func(path string) (fs.FileMode, error) {
			switch text, ok := files[path]; {
			case !ok:
				return 0, fs.ErrNotExist
			case text == "/":
				return fs.ModeDir | 0o755, nil
			case strings.HasPrefix(text, "-"):
				return 0o644, nil
			}
			return 0o755, nil
		},
		head: func(path string) string { return files[path] },
		glob: func(pattern string) (found []string) {
			for _, f := range slices.Sorted(maps.Keys(files)) {
				if ok, _ := filepath.Match(pattern, f); ok {
					found = append(found, f)
				}
			}
			return found
		},
		login: func([]string) string { return login },
	}
}

func TestResolveUnix(t *testing.T) {
	files := map[string]string{
		"/usr/bin/server": "ELF", "/usr/bin/env": "ELF", "/bin/sh": "ELF", "/usr/bin/dir": "/", "/usr/bin/plain": "-text",
		"/opt/second/plain": "ELF", "/usr/bin/old": "#!/usr/bin/python2 -u\n", "/usr/bin/dos": "#!/bin/sh\r\n", "/place": "/",
		"/usr/bin/deno": "#!/usr/bin/env -S A=1 missing --allow\n", "/place/bin/tool": "#!/bin/sh\n", "/cwd/tool": "ELF",
		"/home/u/.nvm/versions/node/v9.11.2/bin": "/", "/home/u/.nvm/versions/node/v20.1.0/bin": "/",
		"/home/u/.nvm/versions/node/v9.11.2/bin/npx":  "#!/usr/bin/env node\n",
		"/home/u/.nvm/versions/node/v9.11.2/bin/node": "ELF",
		"/home/u/.nvm/versions/node/v20.1.0/bin/npx":  "#!/usr/bin/env node\n",
		"/home/u/.nvm/versions/node/v20.1.0/bin/node": "ELF",
		"/opt/homebrew/bin":                           "/", "/opt/homebrew/bin/uvx": "ELF", "/profile/bin/special": "ELF",
	}
	const short, home = "PATH=/usr/bin:/bin", "HOME=/home/u"
	const completed = "/usr/bin:/bin:/profile/bin:/home/u/.nvm/versions/node/v20.1.0/bin:" +
		"/home/u/.nvm/versions/node/v9.11.2/bin:/opt/homebrew/bin"
	for _, tt := range []struct {
		name, command, dir, envPATH string
		path, childPATH             string
		fails                       string // part of the message
	}{
		{name: "on PATH", command: "server", path: "/usr/bin/server", childPATH: "/usr/bin:/bin"},
		{name: "absolute", command: "/bin/sh", path: "/bin/sh", childPATH: "/usr/bin:/bin"},
		{name: "relative to cwd", command: "bin/tool", dir: "/place", path: "/place/bin/tool", childPATH: "/usr/bin:/bin"},
		{name: "relative to ours", command: "./tool", path: "/cwd/tool", childPATH: "/usr/bin:/bin"},
		{name: "nvm, the newest, with its node", command: "npx",
			path: "/home/u/.nvm/versions/node/v20.1.0/bin/npx", childPATH: completed},
		{name: "homebrew", command: "uvx", path: "/opt/homebrew/bin/uvx", childPATH: completed},
		{name: "login shell", command: "special", path: "/profile/bin/special", childPATH: completed},
		{name: "absolute script without its interpreter on PATH", command: "/home/u/.nvm/versions/node/v9.11.2/bin/npx",
			path: "/home/u/.nvm/versions/node/v9.11.2/bin/npx", childPATH: completed},
		{name: "own PATH", command: "plain", envPATH: "/nowhere:relative::/usr/bin:/opt/second", path: "/opt/second/plain",
			childPATH: "/nowhere:relative::/usr/bin:/opt/second"},
		{name: "own PATH is not completed", command: "npx", envPATH: "/usr/bin", fails: "PATH searched: /usr/bin"},
		{name: "not found", command: "nothing", fails: `command "nothing" was not found; PATH searched: ` + completed},
		{name: "no such file", command: "/usr/bin/nothing", fails: "there is no file /usr/bin/nothing"},
		{name: "directory", command: "/usr/bin/dir", fails: "/usr/bin/dir is a directory"},
		{name: "directory on PATH", command: "dir", fails: "/usr/bin/dir is a directory"},
		{name: "not executable", command: "plain", fails: "/usr/bin/plain is not executable"},
		{name: "no interpreter", command: "old", fails: "script for /usr/bin/python2, which is not there"},
		{name: "no interpreter on PATH", command: "deno", fails: `script for "missing", which was not found; PATH searched: `},
		{name: "Windows line ends", command: "dos", fails: "Windows line ends"},
		{name: "no command", command: " ", fails: "no command"},
		{name: "no directory", command: "server", dir: "/nowhere", fails: "working directory /nowhere"},
		{name: "NUL", command: "ser\x00ver", fails: "NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &configs.Server{Command: tt.command, Dir: tt.dir, Args: []string{"-x"}}
			if tt.envPATH != "" {
				s.Env = map[string]string{"PATH": tt.envPATH}
			}
			c, err := onUnix(files, "/profile/bin:/usr/bin", short, home).command(s)
			if tt.fails != "" {
				var failed *startError
				if !errors.As(err, &failed) || failed.stage != Resolve || failed.hint == "" || !strings.Contains(failed.msg, tt.fails) {
					t.Fatalf("got %#v, want a resolve error with a hint that says %q", err, tt.fails)
				}
				return
			}
			want := command{path: tt.path, args: []string{tt.command, "-x"}, dir: tt.dir, env: []string{home, "PATH=" + tt.childPATH}}
			if err != nil || !reflect.DeepEqual(c, want) {
				t.Errorf("got %+v, %v\nwant %+v", c, err, want)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	ours := []string{"PATH=/bin", "HOME=/h", "LC_ALL=C", "TOKEN=secret", "PASSED=1", "ODD", "Path=mixed", "=C:=C:\\x", "EMPTY="}
	for _, tt := range []struct {
		goos string
		env  map[string]string
		want map[string]string
	}{
		{"linux", map[string]string{"OWN": "a=b", "HOME": "/other"},
			map[string]string{"PATH": "/bin", "HOME": "/other", "LC_ALL": "C", "PASSED": "1", "EMPTY": "", "OWN": "a=b"}},
		{"windows", map[string]string{"Own": "1", "path": `D:\bin`},
			map[string]string{"PATH": `D:\bin`, "PASSED": "1", "EMPTY": "", "OWN": "1"}},
	} {
		h := host{goos: tt.goos, environ: ours}
		got := h.environment(&configs.Server{EnvAllowlist: []string{"PASSED", "EMPTY", "UNSET"}, Env: tt.env})
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.goos, got, tt.want)
		}
	}
}

func TestFailuresToStart(t *testing.T) {
	if runtime.GOOS == "windows" {
		return
	}
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("echo no first line\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command string
		stage   Stage
		hint    string
	}{
		{text, Spawn, "#!"},
		{dir, Resolve, "the program in it"},
		{filepath.Join(dir, "absent"), Resolve, "install"},
	} {
		_, err := dialStdio(t.Context(), &configs.Server{ID: "bad", Command: tt.command}, nil, nil)
		var failed *startError
		if !errors.As(err, &failed) || failed.stage != tt.stage || !strings.Contains(failed.hint, tt.hint) {
			t.Errorf("%s: got %#v, want stage %s and a hint with %q", tt.command, err, tt.stage, tt.hint)
		}
	}
}

func TestLongArgumentsAndEnvironment(t *testing.T) {
	s := spec("scripted", "LONG="+strings.Repeat("v", 100_000), "BYTES=\xff\xfe")
	s.Args = slices.Repeat([]string{strings.Repeat("a", 1000)}, 500)
	got := ask(t, start(t, s, usual, nil), 1, "environment", "null")
	if want := `"LONG=` + strings.Repeat("v", 100_000) + `"`; !strings.Contains(got, want) {
		t.Errorf("the long variable did not arrive: %.200s", got)
	}
	s.Args = []string{strings.Repeat("a", 1<<20)}
	var failed *startError
	if _, err := dialStdio(t.Context(), s, nil, nil); !errors.As(err, &failed) || failed.stage != Spawn {
		t.Errorf("too long an argument: got %v, want a spawn error", err)
	}
}
