package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/mcpproxy/mcpproxy/configs"
)

// startError is why a server's process could not be started.
type startError struct {
	stage Stage  // Resolve: what should be started is not there; Spawn: the system refused to start it
	msg   string // one sentence that names the command
	hint  string // what to do next
	err   error
}

func (e *startError) Error() string { return e.msg }
func (e *startError) Unwrap() error { return e.err }

// command is what the system is asked to execute.
type command struct {
	path string   // absolute
	args []string // with the program's name first
	env  []string // all of it, sorted
	dir  string   // "" is ours
	line string   // Windows: the whole command line, where quoting of args by common rules is not enough
}

// host is what a command depends on besides the configuration: the system it runs on. Functions of it are pure but for
// the fields that look at files, so that each system's rules can be tested on any.
type host struct {
	goos    string
	environ []string // ours, as NAME=value
	cwd     string   // absolute
	mode    func(path string) (fs.FileMode, error)
	head    func(path string) string         // the beginning of a file, "" when it can't be read
	glob    func(pattern string) []string    //
	login   func(env []string) (path string) // the PATH of the user's login shell, "" when it can't be had
}

func thisHost() host {
	cwd, _ := os.Getwd() // only for relative commands without a configured directory
	return host{
		goos: runtime.GOOS, environ: os.Environ(), cwd: cwd,
		mode: func(path string) (fs.FileMode, error) {
			info, err := os.Stat(path)
			if err != nil {
				return 0, err
			}
			return info.Mode(), nil
		},
		head: func(path string) string {
			f, err := os.Open(path)
			if err != nil {
				return ""
			}
			defer f.Close()
			b, _ := io.ReadAll(io.LimitReader(f, 256)) // a directory: empty
			return string(b)
		},
		glob:  func(pattern string) []string { found, _ := filepath.Glob(pattern); return found },
		login: loginPath,
	}
}

// baseline are the variables that every child gets from our environment; LC_* besides, on Unix. Secrets of the shell that
// launched the proxy are not for servers.
var (
	baselineUnix    = words("PATH HOME USER LOGNAME SHELL TMPDIR LANG LANGUAGE TZ TERM")
	baselineWindows = words(`PATH PATHEXT SYSTEMROOT SYSTEMDRIVE WINDIR COMSPEC TEMP TMP HOMEDRIVE HOMEPATH USERPROFILE
		USERNAME USERDOMAIN COMPUTERNAME APPDATA LOCALAPPDATA PROGRAMDATA PROGRAMFILES PROGRAMFILES(X86) PROGRAMW6432
		COMMONPROGRAMFILES ALLUSERSPROFILE PUBLIC OS NUMBER_OF_PROCESSORS PROCESSOR_ARCHITECTURE LANG TZ TERM`)
)

func words(s string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		set[w] = true
	}
	return set
}

// command resolves a server's configuration into what is executed. It fails with a *startError.
func (h host) command(spec *configs.Server) (command, error) {
	refuse := func(hint, format string, a ...any) (command, error) {
		return command{}, &startError{stage: Resolve, msg: fmt.Sprintf(format, a...), hint: hint}
	}
	if strings.TrimSpace(spec.Command) == "" {
		return refuse(`set "command" of this server`, "there is no command to start")
	}
	for _, s := range append([]string{spec.Command}, spec.Args...) {
		if strings.ContainsRune(s, 0) {
			return refuse("remove it from the configuration", "the command %q has a NUL byte in %q", spec.Command, s)
		}
	}
	if spec.Dir != "" {
		if mode, err := h.mode(spec.Dir); err != nil || !mode.IsDir() {
			return refuse(`correct "cwd" of this server or create the directory`,
				"the working directory %s of command %q is not a directory that can be entered", spec.Dir, spec.Command)
		}
	}
	env := h.environment(spec)
	c := command{dir: spec.Dir, args: append([]string{spec.Command}, spec.Args...)}
	var err error
	if h.goos == "windows" {
		err = h.resolveWindows(&c, spec, env)
	} else {
		c.path, err = h.resolveUnix(spec, env)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.env = append(c.env, name+"="+env[name])
	}
	return c, err
}

// environment is the child's: the baseline and the allowlist from ours, and the configured entries.
func (h host) environment(spec *configs.Server) map[string]string {
	name, base := func(s string) string { return s }, baselineUnix
	if h.goos == "windows" {
		name, base = strings.ToUpper, baselineWindows // names differ in case from machine to machine
	}
	allowed := map[string]bool{}
	for _, n := range spec.EnvAllowlist {
		allowed[name(n)] = true
	}
	env := map[string]string{}
	for _, e := range h.environ {
		n, value, ok := strings.Cut(e, "=")
		n = name(n)
		if ok && n != "" && (base[n] || allowed[n] || h.goos != "windows" && strings.HasPrefix(n, "LC_")) {
			env[n] = value
		}
	}
	for n, value := range spec.Env {
		env[name(n)] = value
	}
	return env
}

// resolveUnix finds the program. A PATH that the launch of a desktop application has cut short is completed in env, from
// the login shell and well-known places, when the program or its interpreter is not on it; a configured PATH stays.
func (h host) resolveUnix(spec *configs.Server, env map[string]string) (string, error) {
	found, err := h.lookUnix(spec, env["PATH"])
	if _, own := spec.Env["PATH"]; err == nil || own {
		return found, err
	}
	completed := h.completePath(env)
	found, err = h.lookUnix(spec, completed)
	if err == nil {
		env["PATH"] = completed
	}
	return found, err
}

func (h host) lookUnix(spec *configs.Server, searched string) (string, error) {
	if strings.Contains(spec.Command, "/") {
		file := spec.Command
		if !path.IsAbs(file) {
			file = path.Join(cmp.Or(spec.Dir, h.cwd), file)
		}
		return file, h.checkUnix(file, spec.Command, searched)
	}
	var unfit error
	for _, dir := range strings.Split(searched, ":") {
		if !path.IsAbs(dir) { // what such an entry means depends on who looks
			continue
		}
		file := path.Join(dir, spec.Command)
		if _, err := h.mode(file); err != nil {
			continue
		}
		err := h.checkUnix(file, spec.Command, searched)
		if err == nil {
			return file, nil
		}
		unfit = cmp.Or(unfit, err)
	}
	if unfit != nil {
		return "", unfit
	}
	return "", notFound(spec.Command, searched)
}

func notFound(name, searched string) error {
	return &startError{
		stage: Resolve, err: fs.ErrNotExist,
		msg:  fmt.Sprintf("command %q was not found; PATH searched: %s", name, searched),
		hint: `install it, or set "env": {"PATH": "…"} of this server, or make "command" an absolute path`,
	}
}

// checkUnix tells why a file can't be executed: the system itself says "no such file" of a missing interpreter.
func (h host) checkUnix(file, name, searched string) error {
	refuse := func(err error, hint, format string, a ...any) error {
		msg := fmt.Sprintf("command %q: ", name) + fmt.Sprintf(format, a...)
		return &startError{stage: Resolve, err: err, hint: hint, msg: msg}
	}
	mode, err := h.mode(file)
	switch {
	case err != nil:
		return refuse(err, `correct "command" of this server, or install the program`, "there is no file %s", file)
	case mode.IsDir():
		return refuse(nil, `make "command" the program in it`, "%s is a directory", file)
	case mode.Perm()&0o111 == 0:
		return refuse(fs.ErrPermission, "chmod +x "+file, "%s is not executable", file)
	}
	line, _, _ := strings.Cut(h.head(file), "\n")
	line, script := strings.CutPrefix(line, "#!")
	words := strings.Fields(line)
	if !script || len(words) == 0 {
		return nil
	}
	if strings.HasSuffix(line, "\r") {
		return refuse(nil, "convert it to Unix line ends", "%s is a script with Windows line ends, which can't be started", file)
	}
	if !h.executable(words[0]) {
		return refuse(fs.ErrNotExist, "install the interpreter or correct the first line of the script",
			"%s is a script for %s, which is not there", file, words[0])
	}
	if path.Base(words[0]) != "env" {
		return nil
	}
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") { // options and variables of env
			continue
		}
		onPath := slices.ContainsFunc(strings.Split(searched, ":"), func(dir string) bool {
			return path.IsAbs(dir) && h.executable(path.Join(dir, w))
		})
		if !onPath && !(path.IsAbs(w) && h.executable(w)) {
			return refuse(fs.ErrNotExist, `install it, or set "env": {"PATH": "…"} of this server`,
				"%s is a script for %q, which was not found; PATH searched: %s", file, w, searched)
		}
		break
	}
	return nil
}

func (h host) executable(file string) bool {
	mode, err := h.mode(file)
	return err == nil && !mode.IsDir() && mode.Perm()&0o111 != 0
}

// wellKnown are places of programs that login shells add to PATH only when they are interactive, or not at all; a
// leading ~ is the home directory, the newest of several versions comes first.
var wellKnown = []string{
	"~/.nvm/versions/node/*/bin", "/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin", "~/.cargo/bin", "~/.bun/bin",
	"~/.deno/bin", "~/.volta/bin", "~/.asdf/shims", "~/.local/share/mise/shims", "~/go/bin", "/usr/bin", "/bin",
}

// completePath is env's PATH with the login shell's and the well-known places after it.
func (h host) completePath(env map[string]string) string {
	var dirs []string
	add := func(dir string) {
		if path.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	shellEnv := []string{}
	for name, value := range env {
		shellEnv = append(shellEnv, name+"="+value)
	}
	for _, dir := range append(strings.Split(env["PATH"], ":"), strings.Split(h.login(shellEnv), ":")...) {
		add(dir)
	}
	for _, pattern := range wellKnown {
		if rest, ok := strings.CutPrefix(pattern, "~"); ok {
			pattern = env["HOME"] + rest
		}
		found := h.glob(pattern)
		slices.SortStableFunc(found, func(a, b string) int { return slices.Compare(version(b), version(a)) })
		for _, dir := range found {
			add(dir)
		}
	}
	return strings.Join(dirs, ":")
}

// version are the numbers in the last directory of a path that has some.
func version(dir string) []int {
	for ; dir != "/" && dir != "."; dir = path.Dir(dir) {
		parts := strings.FieldsFunc(path.Base(dir), func(r rune) bool { return r < '0' || r > '9' })
		if len(parts) == 0 {
			continue
		}
		numbers := make([]int, len(parts))
		for i, p := range parts {
			numbers[i], _ = strconv.Atoi(p) // digits only; absurdly many of them count as the largest
		}
		return numbers
	}
	return nil
}

// spawnError says why the system refused to start a command.
func spawnError(c command, err error) error {
	e := &startError{
		stage: Spawn, err: err, msg: fmt.Sprintf("start %s: %v", c.path, err), hint: "start it by hand to see what is wrong",
	}
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		e.hint = "it is no program of this system; a script needs a first line such as #!/bin/sh"
	case errors.Is(err, syscall.E2BIG):
		e.hint = "shorten the arguments or the environment of this server"
	case errors.Is(err, context.DeadlineExceeded):
		e.hint = "try again; the machine may be busy"
	}
	return e
}
