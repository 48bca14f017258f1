//go:build linux || darwin

package upstream

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// loginWait bounds the whole question to the login shell.
const loginWait = 3 * time.Second

var login struct {
	once sync.Once
	path string
}

// loginPath is the PATH that the user's login shell has, "" when it does not tell. It is asked once per process.
func loginPath(env []string) string {
	login.once.Do(func() { login.path = askLoginShell(env, loginWait) })
	return login.path
}

// askLoginShell starts the shell that SHELL of env names. Whatever its start files print or start is ignored and ended.
func askLoginShell(env []string, wait time.Duration) string {
	shell, home := "/bin/sh", "/"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "SHELL="); ok && filepath.IsAbs(v) {
			shell = v
		}
		if v, ok := strings.CutPrefix(e, "HOME="); ok && filepath.IsAbs(v) {
			home = v
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return ""
	}
	defer r.Close()
	const mark = "_mcpproxy_path_"
	c, err := startChild(ctx, command{
		path: shell, args: []string{shell, "-l", "-c", `printf '` + mark + `%s` + mark + `' "$PATH"`}, env: env, dir: home,
	}, null, w, null)
	_ = w.Close()
	if err != nil {
		return ""
	}
	defer endChild(c)
	_ = r.SetReadDeadline(time.Now().Add(wait))
	var out []byte
	for chunk := make([]byte, 4<<10); bytes.Count(out, []byte(mark)) < 2 && len(out) < 1<<20; {
		n, err := r.Read(chunk)
		if out = append(out, chunk[:n]...); err != nil {
			break
		}
	}
	_, rest, _ := bytes.Cut(out, []byte(mark))
	path, _, whole := bytes.Cut(rest, []byte(mark))
	if !whole {
		return ""
	}
	return string(path)
}

// endChild kills what is left of a child that nobody needs any more.
func endChild(c *child) {
	for end := time.Now().Add(time.Second); c.alive() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		c.kill()
	}
	c.release()
}
