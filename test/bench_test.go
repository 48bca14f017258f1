package test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// release builds the binary as it is shipped.
func release(tb testing.TB) string {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "mcpproxy")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "github.com/mcpproxy/mcpproxy/cmd/mcpproxy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	return file
}

func TestBinaryIsSmall(t *testing.T) {
	info, err := os.Stat(release(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() >= 30<<20 {
		t.Errorf("the binary has %d bytes, want under 30 MB", info.Size())
	}
	t.Logf("the binary has %.1f MB", float64(info.Size())/1e6)
}

// cached writes a configuration of servers that are never started, and a data directory that remembers n tools of them, of
// the size that tools in the field have (about 2.9 KB).
func cached(tb testing.TB, n int) (config, data string) {
	tb.Helper()
	const perServer = 40
	verbs := []string{"create", "list", "get", "update", "delete", "search", "send", "export", "merge", "archive"}
	nouns := []string{"issue", "invoice", "calendar_event", "pull_request", "message", "deployment", "customer", "file", "dashboard", "pipeline", "note", "ticket", "branch"}
	dir := tb.TempDir()
	config, data = filepath.Join(dir, "mcp.json"), filepath.Join(dir, "data")
	servers := map[string]any{}
	for i := range n / perServer {
		servers[fmt.Sprintf("server%02d", i)] = map[string]any{"command": "never-started"}
	}
	raw, err := json.Marshal(map[string]any{"servers": servers})
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(config, raw, 0o600); err != nil {
		tb.Fatal(err)
	}
	catalog, err := index.Open(filepath.Join(data, "catalog"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	i := 0
	for _, s := range configs.Load(configs.Options{File: config}).Servers {
		l := &index.Listing{Server: s.ID, SpecHash: s.Hash, ProtocolVersion: "2025-11-25", Fetched: time.Now()}
		for range perServer {
			name := fmt.Sprintf("%s_%s_%d", verbs[i%len(verbs)], nouns[i%len(nouns)], i)
			var props []string
			for p := range 12 {
				props = append(props, fmt.Sprintf(`"%s_%d":{"type":"string","description":"The %s that the %s is about, as number %d of what can be said of it; %s"}`,
					nouns[(i+p)%len(nouns)], p, nouns[(i+p)%len(nouns)], nouns[i%len(nouns)], p, strings.Repeat("in words ", 9)))
			}
			l.Tools = append(l.Tools, json.RawMessage(fmt.Sprintf(`{"name":%q,"description":"%s a %s of the company, and tell what came of it.","inputSchema":{"type":"object","properties":{%s}}}`,
				name, verbs[i%len(verbs)], nouns[i%len(nouns)], strings.Join(props, ","))))
			i++
		}
		if _, err := catalog.Put(l); err != nil {
			tb.Fatal(err)
		}
	}
	if err := catalog.Close(); err != nil {
		tb.Fatal(err)
	}
	return config, data
}

// conversation starts the proxy and asks one question after another; it returns the process and when each answer was there.
func conversation(tb testing.TB, binary, config, data string, asks ...string) (*exec.Cmd, io.Closer, []time.Duration) {
	tb.Helper()
	cmd := exec.Command(binary, "stdio", "--config", config, "--data-dir", data)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	lines := jsonrpc.NewLines(out, 64<<20)
	var at []time.Duration
	for _, ask := range asks {
		if _, err := io.WriteString(in, ask+"\n"); err != nil {
			tb.Fatal(err)
		}
		line, err := lines.ReadLine()
		if err != nil || !strings.Contains(string(line), `"result"`) {
			tb.Fatalf("%s: got %.300s, %v", ask, line, err)
		}
		at = append(at, time.Since(began))
	}
	return cmd, in, at
}

const (
	hello  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	search = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search_tools","arguments":{"query":"send a message to a customer"}}}`
)

// BenchmarkStart: from the start of the process with 1,600 cached tools to the answers to initialize and to the first search.
func BenchmarkStart(b *testing.B) {
	binary := release(b)
	config, data := cached(b, 1600)
	var first, second time.Duration
	for b.Loop() {
		cmd, in, at := conversation(b, binary, config, data, hello, search)
		first, second = first+at[0], second+at[1]
		_ = in.Close()
		_ = cmd.Wait()
	}
	b.ReportMetric(float64(first.Microseconds())/1e3/float64(b.N), "ms/initialize")
	b.ReportMetric(float64(second.Microseconds())/1e3/float64(b.N), "ms/first-search")
}

// BenchmarkIdle: resident memory of a proxy with 600 cached tools that has answered a search and then idles.
func BenchmarkIdle(b *testing.B) {
	binary := release(b)
	config, data := cached(b, 600)
	sum := 0
	for b.Loop() {
		cmd, in, _ := conversation(b, binary, config, data, hello, search)
		time.Sleep(3 * time.Second)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		kb := 0
		if _, err := fmt.Sscan(rest, &kb); err != nil {
			b.Fatal(err)
		}
		sum += kb
		_ = in.Close()
		_ = cmd.Wait()
	}
	b.ReportMetric(float64(sum)/1024/float64(b.N), "MiB/idle")
}
