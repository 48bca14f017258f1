package real

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// patience bounds every wait. It is long since browsers start here; it is never waited out when all is well.
const patience = 60 * time.Second

// process is a child with a way to end it.
type process struct {
	*exec.Cmd
	term   bool
	stdin  io.WriteCloser
	stderr *output
	lines  chan []byte // of stdout, closed at its end
}

// output keeps what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// How a process is ended.
const (
	byEOF     = false // it must end with its input
	bySIGTERM = true
)

// run starts a program whose stdin and stdout are lines.
func run(t *testing.T, e entry, term bool) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(e.Command, e.Args...), term: term, stderr: &output{}, lines: make(chan []byte, 100)}
	p.Dir, p.Stderr = e.Cwd, p.stderr
	p.Env = os.Environ()
	for _, k := range slices.Sorted(maps.Keys(e.Env)) {
		p.Env = append(p.Env, k+"="+e.Env[k])
	}
	var err error
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the output
		defer close(p.lines)
		for r := bufio.NewReader(stdout); ; {
			line, err := r.ReadBytes('\n')
			if len(line) > 0 {
				p.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { p.end(t) })
	return p
}

// end ends it and waits until it is gone.
func (p *process) end(t *testing.T) {
	if p.ProcessState != nil {
		return
	}
	_ = p.stdin.Close()
	if p.term {
		_ = p.Process.Signal(syscall.SIGTERM)
	}
	kill := time.AfterFunc(patience, func() {
		_ = p.Process.Kill()
		t.Errorf("%v did not end", p.Args)
	})
	defer kill.Stop()
	for range p.lines {
	}
	_ = p.Wait() // how it ended does not matter
}

func (p *process) send(t *testing.T, line []byte) {
	t.Helper()
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		t.Fatalf("%v: %v; stderr:\n%s", p.Args, err, p.stderr)
	}
}

func (p *process) line(t *testing.T) []byte {
	t.Helper()
	timer := time.NewTimer(2 * patience)
	defer timer.Stop()
	select {
	case line, ok := <-p.lines:
		if ok {
			return bytes.TrimSpace(line)
		}
		t.Fatalf("%v has ended; stderr:\n%s", p.Args, p.stderr)
	case <-timer.C:
		t.Fatalf("%v does not answer; stderr:\n%s", p.Args, p.stderr)
	}
	return nil
}

// client is an MCP client: it makes a request and gives back the response.
type client interface {
	request(t *testing.T, method, params string) jsonrpc.Message
}

// sdk is client.mjs: the official TypeScript SDK.
type sdk struct{ *process }

// connect starts client.mjs on a server of its own, or on a URL.
func connect(t *testing.T, plan any) sdk {
	t.Helper()
	line, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	c := sdk{run(t, entry{Command: "node", Args: []string{"client.mjs"}}, byEOF)}
	c.send(t, line)
	c.response(t)
	return c
}

// stdioPlan is the plan to start a server.
type stdioPlan struct {
	Transport string `json:"transport"`
	entry
}

// httpPlan is the plan to reach one.
type httpPlan struct {
	Transport string `json:"transport"`
	URL       string `json:"url"`
}

func (c sdk) request(t *testing.T, method, params string) jsonrpc.Message {
	t.Helper()
	c.send(t, fmt.Appendf(nil, `{"method":%q,"params":%s}`, method, params))
	return c.response(t)
}

func (c sdk) response(t *testing.T) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse(c.line(t))
	if err != nil {
		t.Fatalf("client.mjs: %v; stderr:\n%s", err, c.stderr)
	}
	return m
}

// plain speaks newline-delimited JSON-RPC itself, so that no parser stands between the test and the bytes.
type plain struct {
	*process
	last int
}

func speak(t *testing.T, e entry, term bool) *plain {
	t.Helper()
	c := &plain{process: run(t, e, term)}
	m := c.request(t, "initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"plain","version":"1"}}`)
	if m.Error != nil {
		t.Fatalf("initialize: %s", m.Error)
	}
	c.send(t, jsonrpc.AppendRequest(nil, nil, "notifications/initialized", nil))
	return c
}

func (c *plain) request(t *testing.T, method, params string) jsonrpc.Message {
	t.Helper()
	c.last++
	id := fmt.Appendf(nil, "%d", c.last)
	c.send(t, jsonrpc.AppendRequest(nil, id, method, json.RawMessage(params)))
	for {
		m, err := jsonrpc.Parse(c.line(t))
		switch {
		case err != nil:
			t.Fatalf("%v: %v", c.Args, err)
		case m.IsRequest():
			c.send(t, jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "no %s here", m.Method)))
		case m.IsResponse() && string(m.ID) == string(id):
			return m
		}
	}
}

var served = regexp.MustCompile(`mcp=(http://\S+)`)

// serve starts the proxy on HTTP and returns its URL.
func serve(t *testing.T, e entry) string {
	t.Helper()
	p := run(t, e, bySIGTERM)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if m := served.FindStringSubmatch(p.stderr.String()); m != nil {
			return m[1]
		}
		if time.Now().After(deadline) {
			t.Fatalf("the proxy does not say where it serves; stderr:\n%s", p.stderr)
		}
	}
}
