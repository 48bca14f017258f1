// Package real drives the proxy with servers that people use and with the official TypeScript client, and compares each
// answer with what the server says to the same client without a proxy. install.sh brings what it needs.
package real

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// binary is the proxy, built with the race detector.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
			fmt.Fprintln(os.Stderr, "the servers are not installed; run test/real/install.sh (make test does)")
			return 1
		}
		dir, err := os.MkdirTemp("", "mcpproxy-real")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "mcpproxy")
		build := exec.Command("go", "build", "-race", "-o", binary, "github.com/mcpproxy/mcpproxy/cmd/mcpproxy")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// proxied is the proxy over one server, with a home and data of its own.
func proxied(t *testing.T, id string, e entry, args ...string) entry {
	t.Helper()
	home := t.TempDir()
	config, err := json.Marshal(map[string]any{"version": 1, "servers": map[string]entry{id: e}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, "mcp.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return entry{
		Command: binary,
		Args:    append(args, "--config", file, "--data-dir", filepath.Join(home, "data")),
		Env:     map[string]string{"HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": filepath.Join(home, "state")},
		Cwd:     home,
	}
}

func TestRealServers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	for _, s := range servers(t, dir) {
		t.Run(s.id, func(t *testing.T) {
			e := s.start(dir)
			s.reset(t, dir)
			direct := connect(t, stdioPlan{"stdio", e})
			schemas := inputSchemas(t, direct)
			var want []jsonrpc.Message
			for _, c := range s.calls {
				want = append(want, direct.request(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, c.tool, c.args)))
			}
			direct.end(t)

			t.Run("stdio", func(t *testing.T) {
				s.reset(t, dir)
				s.compare(t, connect(t, stdioPlan{"stdio", proxied(t, s.id, e, "stdio")}), schemas, want)
			})
			t.Run("http", func(t *testing.T) {
				s.reset(t, dir)
				url := serve(t, proxied(t, s.id, e, "serve", "--listen", "127.0.0.1:0"))
				s.compare(t, connect(t, httpPlan{"http", url}), schemas, want)
			})
			if s.volatile == nil {
				t.Run("bytes", func(t *testing.T) { s.compareBytes(t, dir, e) })
			}
		})
	}
}

// inputSchemas are the schemas of a server's tools by name.
func inputSchemas(t *testing.T, c client) map[string]json.RawMessage {
	t.Helper()
	schemas := map[string]json.RawMessage{}
	for params := "{}"; params != ""; {
		m := c.request(t, "tools/list", params)
		if m.Error != nil {
			t.Fatalf("tools/list: %s", m.Error)
		}
		err := jsonrpc.Elements(jsonrpc.Member(m.Result, "tools"), func(tool json.RawMessage) bool {
			schemas[jsonrpc.Unquote(jsonrpc.Member(tool, "name"))] = jsonrpc.Member(tool, "inputSchema")
			return true
		})
		if err != nil {
			t.Fatalf("tools/list: %v: %s", err, m.Result)
		}
		params = ""
		if next := jsonrpc.Member(m.Result, "nextCursor"); next != nil {
			params = fmt.Sprintf(`{"cursor":%s}`, next)
		}
	}
	return schemas
}

// compare does through the proxy what was done directly.
func (s server) compare(t *testing.T, c client, schemas map[string]json.RawMessage, want []jsonrpc.Message) {
	t.Helper()
	listed := inputSchemas(t, c)
	for _, name := range []string{"search_tools", "describe_tool", "call_tool"} {
		if listed[name] == nil {
			t.Errorf("tools/list has no %s", name)
		}
		delete(listed, name)
	}
	if len(listed) > 0 {
		t.Errorf("tools/list has more than the three tools: %v", listed)
	}
	s.search(t, c)
	for i, call := range s.calls {
		described := answer(t, gateway(t, c, "describe_tool", fmt.Sprintf(`{"server":%q,"tool":%q}`, s.id, call.tool)))
		if got := jsonrpc.Member(described, "inputSchema"); !sameJSON(t, got, schemas[call.tool]) {
			t.Errorf("%s: inputSchema\ngot  %s\nwant %s", call.tool, got, schemas[call.tool])
		}
		got := gateway(t, c, "call_tool", fmt.Sprintf(`{"server":%q,"tool":%q,"arguments":%s}`, s.id, call.tool, call.args))
		if want[i].Error != nil {
			t.Fatalf("%s: the server itself answered %s", call.tool, want[i].Error)
		}
		if got, want := s.steady(t, got), s.steady(t, want[i].Result); !sameJSON(t, got, want) {
			t.Errorf("%s %s:\ngot  %.2000s\nwant %.2000s", call.tool, call.args, got, want)
		}
	}
}

// search asks in plain words until discovery has brought the tool.
func (s server) search(t *testing.T, c client) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		said := answer(t, gateway(t, c, "search_tools", fmt.Sprintf(`{"query":%q}`, s.query)))
		found := false
		_ = jsonrpc.Elements(jsonrpc.Member(said, "matches"), func(m json.RawMessage) bool {
			found = jsonrpc.Unquote(jsonrpc.Member(m, "server")) == s.id && jsonrpc.Unquote(jsonrpc.Member(m, "tool")) == s.finds
			return !found
		}) // no matches: not found
		if found {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("search %q does not find %s; last answer: %s", s.query, s.finds, said)
		}
	}
}

// compareBytes makes the calls directly and through the proxy, and compares what was written on the wire.
func (s server) compareBytes(t *testing.T, dir string, e entry) {
	t.Helper()
	s.reset(t, dir)
	direct := speak(t, e, bySIGTERM) // server-everything stays after the end of its input
	var want []json.RawMessage
	for _, c := range s.calls {
		want = append(want, direct.request(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, c.tool, c.args)).Result)
	}
	direct.end(t)
	s.reset(t, dir)
	proxy := speak(t, proxied(t, s.id, e, "stdio"), byEOF)
	s.search(t, proxy)
	for i, c := range s.calls {
		got := gateway(t, proxy, "call_tool", fmt.Sprintf(`{"server":%q,"tool":%q,"arguments":%s}`, s.id, c.tool, c.args))
		for _, member := range []string{"content", "structuredContent", "isError"} {
			if got, want := jsonrpc.Member(got, member), jsonrpc.Member(want[i], member); !bytes.Equal(got, want) {
				t.Errorf("%s %s: %s\ngot  %.2000s\nwant %.2000s", c.tool, c.args, member, got, want)
			}
		}
	}
}

// gateway calls one of the three tools.
func gateway(t *testing.T, c client, tool, args string) json.RawMessage {
	t.Helper()
	m := c.request(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
	if m.Error != nil {
		t.Fatalf("%s %s: JSON-RPC error %s", tool, args, m.Error)
	}
	return m.Result
}

// answer is the JSON in the one text block of a result.
func answer(t *testing.T, result json.RawMessage) json.RawMessage {
	t.Helper()
	var texts []string
	_ = jsonrpc.Elements(jsonrpc.Member(result, "content"), func(b json.RawMessage) bool {
		texts = append(texts, jsonrpc.Unquote(jsonrpc.Member(b, "text")))
		return true
	}) // no content: no text
	if len(texts) != 1 || !jsonrpc.Valid([]byte(texts[0])) || string(jsonrpc.Member(result, "isError")) == "true" {
		t.Fatalf("got %s, want one text block of JSON", result)
	}
	return json.RawMessage(texts[0])
}

// steady is a result without what the proxy adds and without what changes from run to run.
func (s server) steady(t *testing.T, result json.RawMessage) json.RawMessage {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	if meta := members["_meta"]; meta != nil {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(meta, &keys); err != nil {
			t.Fatalf("_meta: %v: %s", err, meta)
		}
		delete(keys, "mcpproxy/call")
		if delete(members, "_meta"); len(keys) > 0 {
			members["_meta"] = marshal(t, keys)
		}
	}
	steady := string(marshal(t, members))
	if s.volatile != nil {
		steady = s.volatile(steady)
	}
	return json.RawMessage(steady)
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sameJSON compares values, numbers as they are written.
func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	var values [2]any
	for i, raw := range []json.RawMessage{a, b} {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&values[i]); err != nil {
			t.Errorf("%v: %.300s", err, raw)
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
