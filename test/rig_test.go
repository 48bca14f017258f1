// Package test is what needs the whole program: the built binary over scriptable real servers, and the arrows between
// the packages. Its tests talk to the binary as a client does.
package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/test/fake"
)

// binary is the program under test, built with the race detector.
var binary string

func TestMain(m *testing.M) {
	fake.Main()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "mcpproxy-test")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "mcpproxy")
		if out, err := exec.Command("go", "build", "-race", "-o", binary, "github.com/mcpproxy/mcpproxy/cmd/mcpproxy").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// patience bounds every wait of these tests; it is long, since the machine may be slow, and is never waited out when all is well.
const patience = 60 * time.Second

// server is one entry of a configuration.
type server map[string]any

// stdioServer is a fake server as a child process.
func stdioServer(s fake.Script, more server) server {
	command, args, env := fake.Child(s)
	entry := server{"command": command, "args": args, "env": env}
	for k, v := range more {
		entry[k] = v
	}
	return entry
}

// configFile writes a configuration of these servers and settings.
func configFile(t *testing.T, servers map[string]server, settings map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"version": 1, "settings": settings, "servers": servers})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// explicit keeps the proxy from discovering servers by itself.
var explicit = map[string]any{"discovery": "explicit"}

// process is a running proxy.
type process struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stderr *syncBuffer
	done   chan struct{} // closed once it has ended
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start runs the binary on a configuration, with a home and data directory of its own, and sees to its end.
func start(t *testing.T, stdout io.Writer, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(binary, args...), stderr: &syncBuffer{}, done: make(chan struct{})}
	home := t.TempDir()
	p.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "AMBIENT_SECRET=not-for-servers")
	p.Dir = home
	p.Stdout, p.Stderr = stdout, p.stderr
	var err error
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.Wait(); close(p.done) }()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(patience):
			_ = p.Process.Kill()
			t.Error("the proxy did not end on SIGTERM")
		}
		if s := p.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") {
			t.Errorf("stderr of the proxy:\n%s", s)
		}
	})
	return p
}

// client talks to a proxy: one message out, its answer back.
type client interface {
	// request sends raw, a whole message with that id, and returns the answer's bytes.
	request(t *testing.T, id, raw string) []byte
}

// stdioClient speaks to `mcpproxy stdio`.
type stdioClient struct {
	*process
	mu      sync.Mutex
	waiting map[string]chan []byte
	unasked [][]byte // what came without being an answer that was waited for
}

func startStdio(t *testing.T, config string, args ...string) *stdioClient {
	t.Helper()
	r, w := io.Pipe()
	c := &stdioClient{waiting: map[string]chan []byte{}}
	c.process = start(t, w, append([]string{"stdio", "--config", config}, args...)...)
	go func() { // ends with the process
		lines := jsonrpc.NewLines(r, 64<<20)
		for {
			line, err := lines.ReadLine()
			if err != nil {
				return
			}
			m, err := jsonrpc.Parse(line)
			c.mu.Lock()
			if m.ID == nil {
				m.ID = json.RawMessage("null")
			}
			if ch := c.waiting[string(m.ID)]; err == nil && m.IsResponse() && ch != nil {
				delete(c.waiting, string(m.ID))
				ch <- line
			} else {
				c.unasked = append(c.unasked, line)
			}
			c.mu.Unlock()
		}
	}()
	go func() { <-c.done; _ = w.Close() }()
	return c
}

// send writes one line; expect is the id of the answer that is due, "" for none.
func (c *stdioClient) send(t *testing.T, expect, raw string) <-chan []byte {
	t.Helper()
	ch := make(chan []byte, 1)
	if expect != "" {
		c.mu.Lock()
		c.waiting[expect] = ch
		c.mu.Unlock()
	}
	if _, err := io.WriteString(c.stdin, raw+"\n"); err != nil {
		t.Fatal(err)
	}
	return ch
}

func (c *stdioClient) request(t *testing.T, id, raw string) []byte {
	t.Helper()
	return c.await(t, c.send(t, id, raw))
}

func (c *stdioClient) await(t *testing.T, ch <-chan []byte) []byte {
	t.Helper()
	select {
	case line := <-ch:
		return line
	case <-c.done:
		t.Fatalf("the proxy has ended; stderr:\n%s", c.stderr)
	case <-time.After(patience):
		t.Fatalf("no answer; stderr:\n%s", c.stderr)
	}
	return nil
}

// httpClient speaks to `mcpproxy serve`.
type httpClient struct {
	*process
	url     string
	session string
}

var served = regexp.MustCompile(`mcp=(http://\S+)`)

func startHTTP(t *testing.T, config string, args ...string) *httpClient {
	t.Helper()
	c := &httpClient{process: start(t, io.Discard, append([]string{"serve", "--listen", "127.0.0.1:0", "--config", config}, args...)...)}
	eventually(t, "the proxy serves", func() bool {
		if m := served.FindStringSubmatch(c.stderr.String()); m != nil {
			c.url = m[1]
		}
		return c.url != ""
	})
	return c
}

func (c *httpClient) post(t *testing.T, raw string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequest("POST", c.url, strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

func (c *httpClient) request(t *testing.T, _, raw string) []byte {
	t.Helper()
	resp, body := c.post(t, raw)
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		for event := range strings.SplitSeq(string(body), "\n\n") {
			if _, data, ok := strings.Cut(event, "data: "); ok {
				body = []byte(data)
			}
		}
	}
	return bytes.TrimSpace(body)
}

// initialize shakes hands as a client of the newest handshake revision does.
func initialize(t *testing.T, c client) jsonrpc.Message {
	t.Helper()
	return parse(t, c.request(t, "0", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`))
}

func parse(t *testing.T, line []byte) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse(line)
	if err != nil {
		t.Fatalf("%v: %.300s", err, line)
	}
	return m
}

var lastID struct {
	sync.Mutex
	n int
}

// callRaw calls one of the three tools; args is its input. It returns the CallToolResult.
func callRaw(t *testing.T, c client, tool, args string) json.RawMessage {
	t.Helper()
	lastID.Lock()
	lastID.n++
	id := fmt.Sprint(1000 + lastID.n)
	lastID.Unlock()
	m := parse(t, c.request(t, id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)))
	if m.Error != nil {
		t.Fatalf("%s %s: JSON-RPC error %s", tool, args, m.Error)
	}
	return m.Result
}

// text is a result's first text block.
func text(t *testing.T, result json.RawMessage) string {
	t.Helper()
	s := ""
	_ = jsonrpc.Elements(jsonrpc.Member(result, "content"), func(b json.RawMessage) bool {
		s = jsonrpc.Unquote(jsonrpc.Member(b, "text"))
		return false
	})
	return s
}

// call calls a server's tool and returns its first text.
func call(t *testing.T, c client, server, tool, args string) string {
	t.Helper()
	result := callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":%q,"tool":%q,"arguments":%s}`, server, tool, args))
	return text(t, result)
}

// code is the gateway's error code in a result, "" when it is none.
func code(t *testing.T, result json.RawMessage) string {
	t.Helper()
	return jsonrpc.Unquote(jsonrpc.Member(json.RawMessage(text(t, result)), "error", "code"))
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("it never came to pass that %s", what)
}

// both runs a test over stdio and over HTTP.
func both(t *testing.T, config func(t *testing.T) string, f func(t *testing.T, c client)) {
	t.Run("stdio", func(t *testing.T) { c := startStdio(t, config(t)); initialize(t, c); f(t, c) })
	t.Run("http", func(t *testing.T) { c := startHTTP(t, config(t)); initialize(t, c); f(t, c) })
}
