package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/test/fake"
)

// Whatever ends the proxy, nothing that it has started outlives it for long.
func TestNothingIsLeft(t *testing.T) {
	ends := map[string]func(*stdioClient){
		"SIGTERM":      func(c *stdioClient) { _ = c.Process.Signal(syscall.SIGTERM) },
		"SIGINT":       func(c *stdioClient) { _ = c.Process.Signal(syscall.SIGINT) },
		"SIGKILL":      func(c *stdioClient) { _ = c.Process.Kill() },
		"end of stdin": func(c *stdioClient) { _ = c.stdin.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			kinds := map[string]fake.Stdio{
				"normal":     {},
				"stubborn":   {IgnoreEOF: true, IgnoreTerm: true},
				"grandchild": {Grandchild: "group"},
				"runaway":    {Grandchild: "setsid", IgnoreTerm: true, IgnoreEOF: true},
			}
			entries := map[string]server{}
			for kind, s := range kinds {
				entries[kind] = stdioServer(fake.Script{Tools: fake.Builtin("echo", "sleep"), Stdio: s, Record: filepath.Join(dir, kind)}, nil)
			}
			c := startStdio(t, configFile(t, entries, nil))
			initialize(t, c)
			var pids []int
			for kind := range kinds {
				if got := call(t, c, kind, "echo", `{"text":"up"}`); got != "up" {
					t.Fatalf("%s: got %s", kind, got)
				}
				records, err := fake.ReadRecords(filepath.Join(dir, kind))
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range records {
					if r.Event == "start" || r.Event == "grandchild" {
						pids = append(pids, r.PID)
					}
				}
			}
			if len(pids) < 6 {
				t.Fatalf("only %d processes were recorded", len(pids))
			}
			c.send(t, "", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"call_tool","arguments":{"server":"normal","tool":"sleep","arguments":{"ms":60000}}}}`)
			began := time.Now()
			end(c)
			<-c.done
			if took := time.Since(began); took > 15*time.Second { // it promises 5 s; the machine may be slow
				t.Errorf("the proxy took %s to end", took)
			}
			for _, pid := range pids {
				eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
			}
		})
	}
}

// alive tells whether a process is there and no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// Requests that are piped in and followed by the end of stdin are answered before the proxy ends.
func TestPipedRequests(t *testing.T) {
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("echo")}, nil)}, nil))
	initialize(t, c)
	call(t, c, "s", "echo", `{"text":"warm"}`)
	answer := c.send(t, `8`, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"call_tool","arguments":{"server":"s","tool":"echo","arguments":{"text":"last"}}}}`)
	_ = c.stdin.Close()
	if got := text(t, parse(t, <-answer).Result); got != "last" {
		t.Errorf("got %s", got)
	}
	<-c.done
	if code := c.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d; stderr:\n%s", code, c.stderr)
	}
}

// The demo is the first thing that a newcomer sees: it works with the binary as it is named, without configuration.
func TestDemo(t *testing.T) {
	out := &syncBuffer{}
	p := start(t, out, "demo")
	<-p.done
	if code := p.ProcessState.ExitCode(); code != 0 || !strings.Contains(out.String(), "10 steps, each as expected") {
		t.Errorf("exit code %d\n%s\n%s", code, out, p.stderr)
	}
}
