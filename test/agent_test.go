package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/test/fake"
)

// The first words of a session are answered at once, and good servers work, whatever the others do.
func TestBadServersTroubleNobody(t *testing.T) {
	both(t, func(t *testing.T) string {
		return configFile(t, map[string]server{
			"good":    stdioServer(fake.Script{Tools: fake.Builtin("echo")}, nil),
			"hangs":   stdioServer(fake.Script{Silent: []string{"initialize", "server/discover"}}, nil),
			"crashes": stdioServer(fake.Script{Exit: &fake.Exit{Code: 3}, Stdio: fake.Stdio{Stderr: "fatal: missing key\n"}}, nil),
			"missing": {"command": "no-such-command-anywhere"},
			"broken":  {"args": []string{"x"}},
			"unset":   {"command": "x", "env": map[string]string{"T": "${NO_SUCH_VARIABLE_HERE}"}},
		}, nil)
	}, func(t *testing.T, c client) {
		list := parse(t, c.request(t, `"l"`, `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`))
		if n := strings.Count(string(list.Result), `"name":`); n < 3 || len(list.Result) >= 2400 {
			t.Errorf("tools/list: %d bytes, %s", len(list.Result), list.Result)
		}
		eventually(t, "search finds the good server's tool and tells of the others", func() bool {
			s := text(t, callRaw(t, c, "search_tools", `{"query":"echo text"}`))
			return strings.Contains(s, `"server":"good","tool":"echo"`) && strings.Contains(s, "exit code 3") && strings.Contains(s, "NO_SUCH_VARIABLE_HERE")
		})
		if got := call(t, c, "good", "echo", `{"text":"hello"}`); got != "hello" {
			t.Errorf("got %s", got)
		}
		for _, tt := range []struct{ server, code, stage, has string }{
			{"crashes", "connect_failed", "", "fatal: missing key"},
			{"missing", "connect_failed", "resolve", "PATH"},
			{"broken", "connect_failed", "resolve", ""},
			{"unset", "connect_failed", "resolve", "NO_SUCH_VARIABLE_HERE"},
			{"nowhere", "unknown_server", "", "good"},
		} {
			result := callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":%q,"tool":"x","arguments":{}}`, tt.server))
			e := jsonrpc.Member(json.RawMessage(text(t, result)), "error")
			if code(t, result) != tt.code || string(jsonrpc.Member(result, "isError")) != "true" || jsonrpc.Member(e, "hint") == nil ||
				tt.stage != "" && jsonrpc.Unquote(jsonrpc.Member(e, "stage")) != tt.stage || !strings.Contains(string(e), tt.has) {
				t.Errorf("%s: got %s", tt.server, e)
			}
		}
		status := text(t, callRaw(t, c, "call_tool", `{"server":"mcpproxy","tool":"status"}`))
		for _, id := range []string{"crashes", "missing", "broken", "unset"} {
			i := strings.Index(status, fmt.Sprintf(`"id":%q`, id))
			if i < 0 || !strings.Contains(status[i:], `"lastError"`) {
				t.Errorf("status says nothing of %s: %s", id, status)
			}
		}
	})
}

// A search reads the cache: not one process is started by it.
func TestSearchStartsNothing(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	config := configFile(t, map[string]server{"one": stdioServer(fake.Script{Tools: fake.Builtin("echo"), Record: record}, nil)}, explicit)
	data := t.TempDir()
	c := startStdio(t, config, "--data-dir", data)
	initialize(t, c)
	if s := text(t, callRaw(t, c, "search_tools", `{"query":"echo"}`)); !strings.Contains(s, `"why":"never listed"`) || !strings.Contains(s, "refresh") {
		t.Errorf("got %s", s)
	}
	if records, _ := fake.ReadRecords(record); len(records) > 0 {
		t.Fatalf("the search started the server: %v", records)
	}
	callRaw(t, c, "call_tool", `{"server":"mcpproxy","tool":"refresh","arguments":{"server":"one"}}`)
	if s := text(t, callRaw(t, c, "search_tools", `{"query":"echo"}`)); !strings.Contains(s, `"tool":"echo"`) {
		t.Errorf("after a refresh: got %s", s)
	}

	// Another instance on the same data directory finds it without ever connecting.
	_ = c.stdin.Close() // while it is connected it pings
	<-c.done
	before, _ := fake.ReadRecords(record)
	d := startStdio(t, config, "--data-dir", data)
	initialize(t, d)
	if s := text(t, callRaw(t, d, "search_tools", `{"query":"echo"}`)); !strings.Contains(s, `"tool":"echo"`) {
		t.Errorf("from the cache: got %s", s)
	}
	if s := text(t, callRaw(t, d, "describe_tool", `{"server":"one","tool":"echo"}`)); !strings.Contains(s, `"inputSchema":{`) {
		t.Errorf("from the cache: got %s", s)
	}
	if after, _ := fake.ReadRecords(record); len(after) != len(before) {
		t.Errorf("the server heard of a search: %v", after[len(before):])
	}
}

// A result is what the server wrote, to the byte, with our note added to its _meta.
func TestResultsPassWhole(t *testing.T) {
	servers := map[string]fake.Script{
		"legacy": {Era: fake.Legacy, Tools: fake.Builtin("blocks", "structured", "fail", "echo_params", "bytes", "rpcerror")},
		"modern": {Era: fake.Modern, Tools: fake.Builtin("blocks", "structured", "fail", "echo_params", "bytes", "rpcerror")},
	}
	both(t, func(t *testing.T) string {
		entries := map[string]server{}
		for id, s := range servers {
			entries[id] = stdioServer(s, nil)
			h := httptest.NewServer(fake.New(s).HTTP())
			t.Cleanup(h.Close)
			entries[id+"-http"] = server{"url": h.URL + "/mcp"}
		}
		sse := httptest.NewServer(fake.New(servers["legacy"]).SSE())
		t.Cleanup(sse.Close)
		entries["legacy-sse"] = server{"type": "sse", "url": sse.URL + "/sse"}
		return configFile(t, entries, explicit)
	}, func(t *testing.T, c client) {
		for _, id := range []string{"legacy", "modern", "legacy-http", "modern-http", "legacy-sse"} {
			t.Run(id, func(t *testing.T) {
				result := callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":%q,"tool":"blocks","arguments":{}}`, id))
				for _, key := range []string{"content", "structuredContent", "isError", "x-extra"} {
					if got, want := jsonrpc.Member(result, key), jsonrpc.Member(json.RawMessage(fake.Blocks), key); string(got) != string(want) {
						t.Errorf("%s: got %s, want %s", key, got, want)
					}
				}
				for _, path := range [][]string{{"_meta", "cost"}, {"_meta", "vendor/key"}} {
					if got, want := jsonrpc.Member(result, path...), jsonrpc.Member(json.RawMessage(fake.Blocks), path...); string(got) != string(want) {
						t.Errorf("%v: got %s, want %s", path, got, want)
					}
				}
				note := jsonrpc.Member(result, "_meta", "mcpproxy/call")
				if got := jsonrpc.Unquote(jsonrpc.Member(note, "server")); got != id {
					t.Errorf("note: got %s", note)
				}
				if result := callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":%q,"tool":"fail","arguments":{}}`, id)); string(jsonrpc.Member(result, "isError")) != "true" {
					t.Errorf("a failed tool: got %s", result)
				}
				args := `{"z":1.0,"a":null,"nested":{"b":null,"big":9007199254740993},"extra":[1e2]}`
				if got := call(t, c, id, "echo_params", args); got != args {
					t.Errorf("the server got %s, want %s", got, args)
				}
				result = callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":%q,"tool":"rpcerror","arguments":{}}`, id))
				up := jsonrpc.Member(json.RawMessage(text(t, result)), "error", "upstream")
				if code(t, result) != "upstream_error" || string(jsonrpc.Member(up, "code")) != "-32099" || jsonrpc.Member(up, "data") == nil {
					t.Errorf("a JSON-RPC error: got %s", result)
				}
				if got := call(t, c, id, "bytes", `{"n":40000}`); got != fake.Text(40000) {
					t.Errorf("40,000 bytes came as %d", len(got))
				}
			})
		}
	})
}

// What is over the caps is cut with a notice, and can be read on to the last byte.
func TestLargeResult(t *testing.T) {
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("bytes")}, nil)}, explicit))
	initialize(t, c)
	const size = 11 << 20
	result := callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":"s","tool":"bytes","arguments":{"n":%d}}`, size))
	note := jsonrpc.Member(result, "_meta", "mcpproxy/call")
	id := jsonrpc.Unquote(jsonrpc.Member(note, "cache", "id"))
	head := text(t, result)
	if len(result) > 60<<10 || string(jsonrpc.Member(note, "truncation", "totalBytes")) != fmt.Sprint(size) || !strings.HasPrefix(id, "mcpout_") ||
		!strings.Contains(string(result), "Read on: ") || head != fake.Text(size)[:len(head)] {
		t.Fatalf("got %d bytes, note %s", len(result), note)
	}
	whole := strings.Builder{}
	whole.WriteString(head)
	for cursor := ""; ; {
		args := fmt.Sprintf(`{"cacheId":%q,"offset":%d}`, id, whole.Len())
		if cursor != "" {
			args = fmt.Sprintf(`{"cacheId":%q,"cursor":%q}`, id, cursor)
		}
		page := json.RawMessage(call(t, c, "mcpproxy", "read_cache", args))
		whole.WriteString(jsonrpc.Unquote(jsonrpc.Member(page, "content")))
		if cursor = jsonrpc.Unquote(jsonrpc.Member(page, "nextCursor")); cursor == "" {
			break
		}
	}
	if whole.String() != fake.Text(size) {
		t.Errorf("the pages put together are %d bytes, not the %d that the server sent", whole.Len(), size)
	}
}

// Ids come back as they went out, 1 and "1" are two requests, and slow calls do not stand in the way of fast ones.
func TestIDsAndConcurrency(t *testing.T) {
	both(t, func(t *testing.T) string {
		return configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("echo", "sleep")}, nil)}, nil)
	}, func(t *testing.T, c client) {
		for _, id := range []string{`"1"`, `1`, `"a/b"`, `9007199254740993`, `-7`, `"é"`} {
			for _, m := range []string{"ping", "no/such/method"} {
				if got := parse(t, c.request(t, id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q}`, id, m))); string(got.ID) != id || (got.Error != nil) != (m != "ping") {
					t.Errorf("%s %s: got %s, error %s", m, id, got.ID, got.Error)
				}
			}
		}
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if got, want := call(t, c, "s", "echo", fmt.Sprintf(`{"text":"t%d"}`, i)), fmt.Sprintf("t%d", i); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
		all.Wait()
	})
}

func TestSlowCallsAndTwinIDs(t *testing.T) {
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("echo", "sleep")}, nil)}, nil))
	initialize(t, c)
	call(t, c, "s", "echo", `{"text":"warm"}`)
	slow := c.send(t, `1`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call_tool","arguments":{"server":"s","tool":"sleep","arguments":{"ms":1500}}}}`)
	fast := c.send(t, `"1"`, `{"jsonrpc":"2.0","id":"1","method":"tools/call","params":{"name":"call_tool","arguments":{"server":"s","tool":"echo","arguments":{"text":"fast"}}}}`)
	if got := text(t, parse(t, c.await(t, fast)).Result); got != "fast" {
		t.Errorf("got %s", got)
	}
	select {
	case <-slow:
		t.Error("the slow call was answered before the fast one, or with its answer")
	default:
	}
	c.await(t, slow)

	// A cancelled request gets no answer, and others go on.
	cancelled := c.send(t, `7`, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"call_tool","arguments":{"server":"s","tool":"sleep","arguments":{"ms":30000}}}}`)
	c.send(t, "", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	if got := call(t, c, "s", "echo", `{"text":"on"}`); got != "on" {
		t.Errorf("got %s", got)
	}
	select {
	case line := <-cancelled:
		t.Errorf("a cancelled request was answered: %s", line)
	default:
	}

	if got := parse(t, c.request(t, "null", `[{"jsonrpc":"2.0","id":3,"method":"ping"}]`)); got.Err() == nil || got.Err().Code != jsonrpc.CodeInvalidRequest {
		t.Errorf("a batch: got %+v", got)
	}
}

// Names: every spelling of one tool, twins on two servers, odd characters, the nearest for a near miss.
func TestNames(t *testing.T) {
	tool := func(name string) fake.Tool {
		return fake.Tool{Do: "echo_params", Raw: fmt.Sprintf(`{"name":%q,"description":"Do %s","inputSchema":{"type":"object"}}`, name, name)}
	}
	long := strings.Repeat("long_", 8) + "server"
	both(t, func(t *testing.T) string {
		return configFile(t, map[string]server{
			"fs":  stdioServer(fake.Script{Tools: []fake.Tool{tool("search"), tool("read_file")}}, nil),
			"git": stdioServer(fake.Script{Tools: []fake.Tool{tool("search"), tool("log")}}, nil),
			"数据库": stdioServer(fake.Script{Tools: []fake.Tool{tool("greet/tool"), tool("My Query Tool"), tool("files.read"), tool("查询")}}, nil),
			long:  stdioServer(fake.Script{Tools: []fake.Tool{tool(strings.Repeat("tool", 12))}}, nil),
		}, nil)
	}, func(t *testing.T, c client) {
		eventually(t, "all servers are listed", func() bool {
			return !strings.Contains(text(t, callRaw(t, c, "search_tools", `{"query":"x"}`)), `"missing"`)
		})
		for _, args := range []string{
			`{"server":"fs","tool":"read_file","arguments":{"a":1}}`, `{"tool":"read_file","arguments":{"a":1}}`,
			`{"tool":"fs.read_file","arguments":{"a":1}}`, `{"tool":"fs:read_file","arguments":{"a":1}}`, `{"tool":"fs/read_file","arguments":{"a":1}}`,
			`{"tool":"mcp__fs__read_file","arguments":{"a":1}}`, `{"server":"fs","tool":"fs.read_file","arguments":"{\"a\":1}"}`,
			`{"server":"fs","tool":"read_file","argumentsJson":"{\"a\":1}"}`,
			`{"server":"数据库","tool":"greet/tool","arguments":{"a":1}}`, `{"server":"数据库","tool":"My Query Tool","arguments":{"a":1}}`,
			`{"tool":"数据库.files.read","arguments":{"a":1}}`, `{"tool":"查询","arguments":{"a":1}}`,
			fmt.Sprintf(`{"server":%q,"tool":%q,"arguments":{"a":1}}`, long, strings.Repeat("tool", 12)),
		} {
			if got := text(t, callRaw(t, c, "call_tool", args)); got != `{"a":1}` {
				t.Errorf("%s: got %s", args, got)
			}
		}
		for args, want := range map[string]string{
			`{"tool":"search","arguments":{}}`:                   "ambiguous_tool",
			`{"server":"fs","tool":"raed_file","arguments":{}}`:  "unknown_tool",
			`{"server":"fs","tool":"READ_FILE","arguments":{}}`:  "unknown_tool",
			`{"server":"fz","tool":"read_file","arguments":{}}`:  "unknown_server",
			`{"server":"fs","tool":"read_file","arguments":[1]}`: "invalid_arguments",
			`{"server":"fs","tool":"read_file","path":"/"}`:      "invalid_arguments",
			`{"server":"fs"}`: "invalid_arguments",
		} {
			if result := callRaw(t, c, "call_tool", args); code(t, result) != want {
				t.Errorf("%s: got %s, want %s", args, result, want)
			}
		}
		if s := text(t, callRaw(t, c, "call_tool", `{"server":"fs","tool":"raed_file","arguments":{}}`)); !strings.Contains(s, `"nearest":["fs.read_file"`) {
			t.Errorf("got %s", s)
		}
		if s := text(t, callRaw(t, c, "call_tool", `{"tool":"search","arguments":{}}`)); !strings.Contains(s, `{"server":"fs","tool":"search"}`) || !strings.Contains(s, `{"server":"git","tool":"search"}`) {
			t.Errorf("got %s", s)
		}
	})
}

// Odd schemas: every tool of the list is there, described with the server's own bytes, and callable; arguments are mended
// or refused with what to mend.
func TestSchemas(t *testing.T) {
	ref := `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"query":{"$ref":"#/$defs/Q"}, "n":{"type":"integer"}},"required":["query"],"$defs":{"Q":{"type":"object","properties":{"s":{"type":"string","maxLength":9007199254740993}},"required":["s"]}}}`
	schemas := map[string]string{"ref": ref, "empty": `{}`, "string": `{"type":"string"}`, "null": `null`, "required": `{"type":"object","properties":{"q":{}},"required":null}`,
		"bool": `{"type":"object","properties":{"a":true}}`, "types": `{"type":["object","null"],"properties":{}}`}
	var tools []fake.Tool
	for _, name := range []string{"ref", "empty", "string", "null", "required", "bool", "types"} {
		tools = append(tools, fake.Tool{Do: "echo_params", Raw: fmt.Sprintf(`{"name":%q,"description":"Tool %s","inputSchema":%s}`, name, name, schemas[name])})
	}
	tools = append(tools, fake.Tool{Do: "echo_params", Raw: `{"name":"none"}`})
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: tools, PageSize: 3}, nil)}, explicit))
	initialize(t, c)
	list := call(t, c, "mcpproxy", "refresh", `{"server":"s"}`)
	if got := string(jsonrpc.Member(json.RawMessage(list), "servers")); !strings.Contains(got, `"cached":8`) {
		t.Fatalf("got %s", got)
	}
	for _, name := range []string{"empty", "null", "required", "bool", "types", "none"} {
		if got := call(t, c, "s", name, `{"q":1}`); got != `{"q":1}` {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if d := text(t, callRaw(t, c, "describe_tool", `{"server":"s","tool":"ref"}`)); string(jsonrpc.Member(json.RawMessage(d), "inputSchema")) != ref {
		t.Errorf("the schema has changed: %s", d)
	}
	result := callRaw(t, c, "call_tool", `{"server":"s","tool":"ref","arguments":{"query":"{\"s\":\"x\"}","n":"5"}}`)
	if got, want := text(t, result), `{"query":{"s":"x"},"n":5}`; got != want || len(string(jsonrpc.Member(result, "_meta", "mcpproxy/call", "mended"))) == 0 {
		t.Errorf("mended: got %s, want %s; %s", got, want, result)
	}
	for _, args := range []string{``, `,"arguments":null`, `,"arguments":{}`, `,"arguments":""`} {
		if got := text(t, callRaw(t, c, "call_tool", `{"server":"s","tool":"empty"`+args+`}`)); got != `{}` {
			t.Errorf("arguments %s: the server got %s", args, got)
		}
	}
	result = callRaw(t, c, "call_tool", `{"server":"s","tool":"ref","arguments":{"query":{"s":5.5},"n":"five"}}`)
	if s := text(t, result); code(t, result) != "invalid_arguments" || !strings.Contains(s, `"pointer":"/n"`) {
		t.Errorf("got %s", s)
	}
}

// A server that dies in mid-call: the caller learns that the outcome is unknown, others notice nothing, the next call works.
func TestDeathInMidCall(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	c := startStdio(t, configFile(t, map[string]server{
		"dies":  stdioServer(fake.Script{Tools: fake.Builtin("echo", "exit"), Record: record}, nil),
		"lives": stdioServer(fake.Script{Tools: fake.Builtin("echo", "sleep")}, nil),
	}, nil))
	initialize(t, c)
	call(t, c, "lives", "echo", `{"text":"warm"}`)
	slow := c.send(t, `5`, `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"call_tool","arguments":{"server":"lives","tool":"sleep","arguments":{"ms":800}}}}`)
	result := callRaw(t, c, "call_tool", `{"server":"dies","tool":"exit","arguments":{"code":7}}`)
	if code(t, result) != "outcome_unknown" || !strings.Contains(text(t, result), "exit code 7") {
		t.Errorf("got %s", text(t, result))
	}
	if got := call(t, c, "dies", "echo", `{"text":"again"}`); got != "again" {
		t.Errorf("the next call: got %s", got)
	}
	if m := parse(t, c.await(t, slow)); string(jsonrpc.Member(m.Result, "isError")) == "true" || m.Error != nil {
		t.Errorf("the other server's call: got %s %s", m.Result, m.Error)
	}
	records, err := fake.ReadRecords(record)
	if err != nil {
		t.Fatal(err)
	}
	exits := 0
	for _, r := range fake.Select(records, "tools/call") {
		if strings.Contains(string(r.Message().Params), `"exit"`) {
			exits++
		}
	}
	if exits != 1 {
		t.Errorf("the fatal call was sent %d times", exits)
	}
}

// A server gets the environment that its entry names and the baseline, and nothing else.
func TestEnvironment(t *testing.T) {
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("env")}, nil)}, nil))
	initialize(t, c)
	for name, want := range map[string]bool{"PATH": true, "HOME": true, "AMBIENT_SECRET": false, "XDG_STATE_HOME": false} {
		got := call(t, c, "s", "env", fmt.Sprintf(`{"name":%q}`, name))
		if (got != "" && !strings.Contains(got, "unset")) != want {
			t.Errorf("%s: got %q, want it set: %v", name, got, want)
		}
	}
}

// Excluded tools are nowhere: not listed, not searched, not described, not called.
func TestExcludedTools(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("echo", "fail"), Record: record},
		server{"excludeTools": []string{"fa*"}})}, nil))
	initialize(t, c)
	call(t, c, "s", "echo", `{"text":"x"}`)
	for _, q := range []string{"fail", "always fails"} {
		if s := text(t, callRaw(t, c, "search_tools", fmt.Sprintf(`{"query":%q}`, q))); strings.Contains(s, `"tool":"fail"`) {
			t.Errorf("search shows it: %s", s)
		}
	}
	for tool, args := range map[string]string{"describe_tool": `{"server":"s","tool":"fail"}`, "call_tool": `{"tool":"s.fail","arguments":{}}`} {
		if result := callRaw(t, c, tool, args); code(t, result) != "not_permitted" {
			t.Errorf("%s: got %s", tool, result)
		}
	}
	if s := text(t, callRaw(t, c, "call_tool", `{"server":"s","tool":"fai","arguments":{}}`)); strings.Contains(s, "s.fail") {
		t.Errorf("a hint names it: %s", s)
	}
	records, _ := fake.ReadRecords(record)
	if calls := fake.Select(records, "tools/call"); len(calls) != 1 {
		t.Errorf("the server got %d calls, want the one of echo", len(calls))
	}
}

// The data directory holds nothing that others may read, and the fakes' secrets are in none of its files.
func TestDataDirectory(t *testing.T) {
	data := t.TempDir()
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("bytes")}, nil)}, nil), "--data-dir", filepath.Join(data, "d"))
	initialize(t, c)
	callRaw(t, c, "call_tool", `{"server":"s","tool":"bytes","arguments":{"n":200000}}`)
	files := 0
	err := filepath.WalkDir(filepath.Join(data, "d"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if want := map[bool]os.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s: mode %o, want %o", path, info.Mode().Perm(), want)
		}
		if !d.IsDir() {
			files++
		}
		return nil
	})
	if err != nil || files < 2 {
		t.Errorf("got %d files, %v", files, err)
	}
}

// Odd but honest servers: noise before the handshake, answers with string ids, floods on stderr, early notifications.
func TestOddServers(t *testing.T) {
	scripts := map[string]fake.Script{
		"noisy":            {Stdio: fake.Stdio{Banner: []string{"Server v1 running on stdio", "", "\x1b[32mready\x1b[0m", `{"foo":1}`}, Noise: "log: something", StderrBytes: 1 << 20}},
		"ids":              {StringIDs: true, NullErrors: true},
		"early":            {Before: map[string][]string{"initialize": {`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"up"}}`}}},
		"dies on discover": {Era: fake.Legacy, Exit: &fake.Exit{On: "server/discover", Code: 1}},
		"strict":           {Era: fake.Legacy, RefuseSecondInitialize: true, AskRoots: true},
		"pages":            {Many: 101, PageSize: 50},
		"stuck":            {Many: 5, PageSize: 5, StuckCursor: true},
	}
	entries := map[string]server{}
	for id, s := range scripts {
		s.Tools = append(slices.Clone(s.Tools), fake.Builtin("echo")...)
		entries[id] = stdioServer(s, nil)
	}
	entries["late"] = stdioServer(fake.Script{Tools: []fake.Tool{fake.Builtin("echo")[0], {Do: "add", Late: true}}}, nil)
	c := startStdio(t, configFile(t, entries, nil))
	initialize(t, c)
	for id := range entries {
		t.Run(id, func(t *testing.T) {
			for range 5 {
				if got := call(t, c, strings.ReplaceAll(id, " ", "-"), "echo", `{"text":"hi"}`); got != "hi" {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	for id, want := range map[string]string{"pages": `"cached":102`, "stuck": `"cached":`, "late": `"cached":2`} {
		if got := call(t, c, "mcpproxy", "refresh", fmt.Sprintf(`{"server":%q}`, id)); !strings.Contains(got, want) {
			t.Errorf("%s: got %s", id, got)
		}
	}
}

// Results that are odd at the edges trouble nobody: each comes as a result or an error, and the proxy lives on.
func TestOddResults(t *testing.T) {
	results := map[string]string{
		"meta_number": `{"content":[],"_meta":5}`,
		"meta_list":   `{"content":[],"_meta":[1,2]}`,
		"meta_text":   `{"content":[],"_meta":"s"}`,
		"empty":       `{}`,
		"null":        `null`,
		"no_list":     `{"content":{}}`,
		"structured":  `{"content":[],"structuredContent":{"ok":true}}`,
		"surrogate":   `{"content":[{"type":"text","text":"\ud800"}]}`,
	}
	var tools []fake.Tool
	for name, r := range results {
		tools = append(tools, fake.Tool{Raw: fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name), Result: r})
	}
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: tools}, nil)}, nil))
	initialize(t, c)
	for name := range results {
		result := callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":"s","tool":%q,"arguments":{}}`, name))
		if name == "no_list" {
			if code(t, result) != "upstream_error" {
				t.Errorf("%s: got %s", name, result)
			}
			continue
		}
		if content := string(jsonrpc.Member(result, "content")); !strings.HasPrefix(content, "[") || jsonrpc.Member(result, "_meta", "mcpproxy/call", "server") == nil {
			t.Errorf("%s: got %s", name, result)
		}
	}
	if got := text(t, callRaw(t, c, "call_tool", `{"server":"s","tool":"structured","arguments":{}}`)); got != `{"ok":true}` {
		t.Errorf("structured content alone has no text: %s", got)
	}
}

// Whatever part of a result is over-large, what goes inline is bounded, and the whole can be read.
func TestEveryPartIsBounded(t *testing.T) {
	long := strings.Repeat("0123456789 lines and words\\n", 8000)
	results := map[string]string{
		"text":       `{"content":[{"type":"text","text":"` + long + `"}]}`,
		"both":       `{"content":[{"type":"text","text":"` + long + `"}],"structuredContent":{"content":"` + long + `"}}`,
		"structured": `{"content":[{"type":"text","text":"short"}],"structuredContent":{"rows":["` + long + `","x"]}}`,
		"link":       `{"content":[{"type":"resource_link","uri":"` + long + `","name":"n"}]}`,
		"note":       `{"content":[{"type":"text","text":"short","annotations":{"x":"` + long + `"}}]}`,
		"meta":       `{"content":[],"_meta":{"x":"` + long + `"}}`,
		"unknown":    `{"content":[],"zzz":"` + long + `"}`,
		"resource":   `{"content":[{"type":"resource","resource":{"uri":"u","text":"` + long + `"}}]}`,
	}
	var file []string
	for name, r := range results {
		raw, _ := json.Marshal(fake.Tool{Raw: fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name), Result: r})
		file = append(file, string(raw))
	}
	raw, _ := json.Marshal(fake.Tool{Raw: `{"name":"error","inputSchema":{"type":"object"}}`, Error: `{"code":-32000,"message":"` + long + `","data":"` + long + `"}`})
	path := filepath.Join(t.TempDir(), "tools.json")
	if err := os.WriteFile(path, []byte("["+strings.Join(append(file, string(raw)), ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startStdio(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{ToolsFile: path}, nil)}, nil))
	initialize(t, c)
	for name := range results {
		result := callRaw(t, c, "call_tool", fmt.Sprintf(`{"server":"s","tool":%q,"arguments":{}}`, name))
		read := jsonrpc.Unquote(jsonrpc.Member(result, "_meta", "mcpproxy/call", "cache", "read"))
		if len(result) > 128<<10 || !strings.HasPrefix(read, "call_tool ") {
			t.Errorf("%s: %d bytes inline, read on with %q", name, len(result), read)
			continue
		}
		page := json.RawMessage(text(t, callRaw(t, c, "call_tool", strings.TrimPrefix(read, "call_tool "))))
		if (name == "text" || name == "both") && string(jsonrpc.Member(page, "totalLines")) != "8000" {
			t.Errorf("%s: stored is not the text: %.300s", name, page)
		}
		if name == "text" || name == "both" || name == "structured" {
			if content := jsonrpc.Unquote(jsonrpc.Member(page, "content")); content == "" {
				t.Errorf("%s: reading on gives %.300s", name, page)
			}
		}
	}
	if result := callRaw(t, c, "call_tool", `{"server":"s","tool":"error","arguments":{}}`); len(result) > 64<<10 || code(t, result) != "upstream_error" {
		t.Errorf("an error of 400 KB came as %d bytes", len(result))
	}
}

// A client that floods is read no faster than it is answered, and one that stops reading can't keep the proxy alive.
func TestGreedyClients(t *testing.T) {
	c := startStdio(t, configFile(t, nil, nil))
	initialize(t, c)
	var answers []<-chan []byte
	var lines strings.Builder
	for i := range 5000 {
		ch := make(chan []byte, 1)
		c.mu.Lock()
		c.waiting[fmt.Sprint(10000+i)] = ch
		c.mu.Unlock()
		answers = append(answers, ch)
		fmt.Fprintf(&lines, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", 10000+i)
	}
	go func() { _, _ = c.stdin.Write([]byte(lines.String())) }()
	for _, ch := range answers {
		if m := parse(t, c.await(t, ch)); m.Error != nil {
			t.Fatalf("got %s", m.Error)
		}
	}

	// The pipe of a process whose output nobody reads is full after 64 KB.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	deaf := start(t, w, "stdio", "--config", configFile(t, nil, nil))
	_ = w.Close()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 20_000 { // blocks once nothing is read any more
			if _, err := io.WriteString(deaf.stdin, `{"jsonrpc":"2.0","method":"x"}`+"\n"+`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`+"\n"); err != nil {
				return
			}
		}
	}()
	select {
	case <-written:
		t.Error("it reads on without end, though nobody takes its answers")
	case <-time.After(3 * time.Second):
	}
	_ = deaf.Process.Signal(os.Interrupt)
	select {
	case <-deaf.done:
	case <-time.After(patience):
		t.Error("it does not end while its client reads nothing")
	}
	<-written
}
