//go:build linux || darwin

package upstream

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestFamily(t *testing.T) {
	all := []proc{
		{pid: 1}, {pid: 10, ppid: 1, pgid: 10, sid: 10}, {pid: 11, ppid: 10, pgid: 10, sid: 10},
		{pid: 12, ppid: 11, pgid: 12, sid: 12}, {pid: 13, ppid: 12, pgid: 12, sid: 12},
		{pid: 14, ppid: 1, pgid: 14, sid: 10}, {pid: 15, ppid: 1, pgid: 15, sid: 15},
		{pid: 16, ppid: 16, pgid: 10},
	}
	var got []int
	for _, p := range family(all, func(p proc) bool { return p.pgid == 10 || p.sid == 10 }) {
		got = append(got, p.pid)
	}
	if slices.Sort(got); !slices.Equal(got, []int{10, 11, 12, 13, 14, 16}) {
		t.Errorf("got %v, want 10 to 14 and 16", got)
	}
}

func TestLoginPath(t *testing.T) {
	dir := t.TempDir()
	shell := filepath.Join(dir, "shell")
	for _, tt := range []struct{ name, script, want string }{
		{"noisy profile", "echo welcome; echo oops >&2; PATH=/from/profile:/bin; eval \"$3\"; echo bye", "/from/profile:/bin"},
		{"a background process holds the pipe", "sleep 100 & PATH=/a; eval \"$3\"", "/a"},
		{"fails", "exit 1", ""},
		{"cut short", "printf '_mcpproxy_path_/half'", ""},
		{"hangs", "sleep 100", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			script := fmt.Sprintf("#!/bin/sh\n[ \"$1 $2\" = '-l -c' ] || exit 9\n%s\n", tt.script)
			if err := os.WriteFile(shell, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			wait := 10 * time.Second
			if tt.name == "hangs" {
				wait = 100 * time.Millisecond
			}
			begin := time.Now()
			env := []string{"SHELL=" + shell, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
			if got := askLoginShell(env, wait); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if took := time.Since(begin); took > 8*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
