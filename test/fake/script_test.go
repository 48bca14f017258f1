package fake_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/test/fake"
)

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{}}}`
const ready = `{"jsonrpc":"2.0","method":"notifications/initialized"}`

// meta makes a request one of 2026-07-28.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func ask(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, id, method, params)
}

// talk feeds lines to a server in a bubble of fake time, and hour long after each of them. What the server wrote comes
// back line by line, and how it ended.
func talk(t *testing.T, script fake.Script, lines ...string) (said []string, ended error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fake.New(script)
		in, feed := io.Pipe()
		read, out := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- s.ServeStdio(in, out)
			in.Close()
			out.Close()
		}()
		heard := make(chan []string)
		go func() {
			var all []string
			for r := bufio.NewReader(read); ; {
				line, err := r.ReadString('\n')
				if line != "" {
					all = append(all, strings.TrimSuffix(line, "\n"))
				}
				if err != nil {
					heard <- all
					return
				}
			}
		}()
		for _, line := range lines {
			go func() { _, _ = io.WriteString(feed, line+"\n") }()
			time.Sleep(time.Hour)
		}
		feed.Close()
		time.Sleep(time.Hour)
		s.Close()
		said, ended = <-heard, <-done
	})
	return said, ended
}

func TestScript(t *testing.T) {
	const initialized = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{"logging":{}},"serverInfo":{"name":"fake","version":"1.0.0"}}}`
	const ping, pong = `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"result":{}}`
	for _, tc := range []struct {
		name   string
		script fake.Script
		lines  []string
		want   []string // each line that the server says begins with it
	}{
		{"handshake", fake.Script{}, []string{hello, ready, ping}, []string{initialized, pong}},
		{"before initialize", fake.Script{Tools: fake.Builtin("echo")}, []string{ask(2, "tools/list", ""), ping},
			[]string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32600`, pong}},
		{"unknown method", fake.Script{}, []string{hello, ask(2, "tools/list", "")},
			[]string{initialized, `{"jsonrpc":"2.0","id":2,"error":{"code":-32601`}},
		{"no JSON", fake.Script{}, []string{`{"jsonrpc`, ping}, []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700`, pong}},
		{"batch", fake.Script{}, []string{`[` + ping + `]`}, []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32600`}},
		{"version not spoken", fake.Script{Versions: []string{"2024-11-05"}}, []string{hello},
			[]string{`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05"`}},
		{"version refused", fake.Script{Versions: []string{"2024-11-05"}, RefuseVersions: true}, []string{hello},
			[]string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05"],"requested":"2025-06-18"}}}`}},
		{"modern only", fake.Script{Era: fake.Modern}, []string{hello, ask(2, "server/discover", meta)},
			[]string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32022`, `{"jsonrpc":"2.0","id":2,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"logging":{}},"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1.0.0"}},"ttlMs":0,"cacheScope":"private"}}`}},
		{"modern version not spoken", fake.Script{}, []string{ask(2, "server/discover", strings.Replace(meta, "2026-07-28", "2027-01-01", 1))},
			[]string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28","2025-11-25"`}},
		{"modern without capabilities", fake.Script{}, []string{ask(2, "server/discover", `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`)},
			[]string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32602`}},
		{"modern has no ping", fake.Script{}, []string{ask(2, "ping", meta)}, []string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32601`}},
		{"legacy has no discover", fake.Script{Era: fake.Legacy}, []string{ask(2, "server/discover", meta)},
			[]string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32601`}},
		{"second initialize", fake.Script{RefuseSecondInitialize: true}, []string{hello, hello},
			[]string{initialized, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"duplicate initialize"}}`}},
		{"initialize after discover", fake.Script{RefuseSecondInitialize: true}, []string{ask(2, "server/discover", meta), hello},
			[]string{`{"jsonrpc":"2.0","id":2,"result":{"supportedVersions"`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600`}},
		{"notifications before the answer", fake.Script{Before: map[string][]string{"initialize": {`{"early":1}`, "noise"}}}, []string{hello},
			[]string{`{"early":1}`, "noise", initialized}},
		{"noise", fake.Script{Stdio: fake.Stdio{Banner: []string{"Server v1", ""}, Noise: "\x1b[32mok"}}, []string{hello},
			[]string{"Server v1", "", "\x1b[32mok", initialized}},
		{"string ids", fake.Script{StringIDs: true}, []string{hello, ping, `{"jsonrpc":"2.0","id":"x","method":"ping"}`},
			[]string{strings.Replace(initialized, `"id":1`, `"id":"1"`, 1), `{"jsonrpc":"2.0","id":"2","result":{}}`, `{"jsonrpc":"2.0","id":"x","result":{}}`}},
		{"arrays", fake.Script{Arrays: true}, []string{ping}, []string{"[" + pong + "]"}},
		{"null errors", fake.Script{NullErrors: true}, []string{ping}, []string{`{"jsonrpc":"2.0","id":2,"result":{},"error":null}`}},
		{"silence", fake.Script{Silent: []string{"server/discover"}}, []string{ask(2, "server/discover", meta), ping}, []string{pong}},
		{"half a line", fake.Script{Stdio: fake.Stdio{HalfLine: "ping"}}, []string{hello, ping, ping}, []string{initialized, pong[:len(pong)/2]}},
		{"stops reading", fake.Script{Stdio: fake.Stdio{StopReading: "notifications/initialized"}}, []string{hello, ready, ping}, []string{initialized}},
		{"scripted result and error", fake.Script{Results: map[string]string{"ping": "null"}, Errors: map[string]string{"x": `{"code":7,"message":"m","data":[1.50]}`}},
			[]string{ping, ask(3, "x", "")},
			[]string{`{"jsonrpc":"2.0","id":2,"result":null}`, `{"jsonrpc":"2.0","id":3,"error":{"code":7,"message":"m","data":[1.50]}}`}},
		{"late tools", fake.Script{Tools: []fake.Tool{{Do: "echo"}, {Do: "add", Late: true}}},
			[]string{hello, ask(2, "tools/list", ""), ready, ask(3, "tools/list", "")},
			[]string{`{"jsonrpc":"2.0","id":1`, `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"echo","description":"Echo the text back","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]},"annotations":{"readOnlyHint":true}}]}}`,
				`{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"echo"`}},
		{"stuck cursor", fake.Script{Many: 2, PageSize: 1, StuckCursor: true}, []string{ask(2, "tools/list", meta), ask(3, "tools/list", `"cursor":"again",`+meta)},
			[]string{`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"tool_0001"`, `{"jsonrpc":"2.0","id":3,"result":{"tools":[{"name":"tool_0001"`}},
		{"bad cursor", fake.Script{Many: 2, PageSize: 1}, []string{ask(2, "tools/list", `"cursor":"again",`+meta)},
			[]string{`{"jsonrpc":"2.0","id":2,"error":{"code":-32602`}},
		{"end cursor", fake.Script{Resources: []fake.Resource{{URI: "a:b"}}, EndCursor: "null"}, []string{ask(2, "resources/list", meta)},
			[]string{`{"jsonrpc":"2.0","id":2,"result":{"resources":[{"uri":"a:b","name":"a:b"}],"nextCursor":null`}},
		{"storm", fake.Script{ListChanged: &fake.ListChanged{AfterMs: 1000, Times: 3}}, []string{hello, ready},
			slices.Concat([]string{initialized}, slices.Repeat([]string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`}, 3))},
		{"listening", fake.Script{ListChanged: &fake.ListChanged{}}, []string{ask(2, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`+meta)},
			[]string{`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`,
				`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}`}},
		{"listening for something else", fake.Script{ListChanged: &fake.ListChanged{}}, []string{ask(2, "subscriptions/listen", `"notifications":{},`+meta)},
			[]string{`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"`}},
		{"roots", fake.Script{AskRoots: true}, []string{hello, ready}, []string{initialized, `{"jsonrpc":"2.0","id":"ask-1","method":"roots/list"}`}},
		{"many lines of JSON", fake.Script{Tools: []fake.Tool{{Raw: "{\n\t\"name\": \"a&b\",\r\n \"n\": 1.50 }"}}}, []string{ask(2, "tools/list", meta)},
			[]string{`{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"a&b","n":1.50}]`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := talk(t, tc.script, tc.lines...)
			if err != nil {
				t.Errorf("ended with %v", err)
			}
			compare(t, got, tc.want)
		})
	}
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("got\n  %s\nwant beginnings\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestTools(t *testing.T) {
	result := func(r string) []string { return []string{`{"jsonrpc":"2.0","id":9,"result":` + r} }
	block := func(text string) []string {
		return result(`{"content":[{"type":"text","text":` + string(jsonrpc.Quote(text)) + `}]`)
	}
	for _, tc := range []struct {
		name, args string
		want       []string
	}{
		{"echo", `{"text":"a<b"}`, block("a<b")},
		{"echo_params", `{"n": 9007199254740993, "a":null}`,
			result(`{"content":[{"type":"text","text":"{\"n\": 9007199254740993, \"a\":null}"}],"structuredContent":{"n": 9007199254740993, "a":null}`)},
		{"add", `{"a":1.5,"b":2}`, block("3.5")},
		{"add", `{"a":"1","b":2}`, []string{`{"jsonrpc":"2.0","id":9,"error":{"code":-32602`}},
		{"count", `{}`, block("1")},
		{"env", `{"name":"SURELY_NOT_SET"}`, block("<unset>")},
		{"sleep", `{"ms":60000}`, block("slept 60000 ms")},
		{"bytes", `{"n":20}`, block("0000000 0000008 0000")},
		{"lines", `{"n":2}`, block("line 1\nline 2\n")},
		{"fail", `{"text":"no"}`, result(`{"content":[{"type":"text","text":"no"}],"isError":true}`)},
		{"rpcerror", `{}`, []string{`{"jsonrpc":"2.0","id":9,"error":{"code":-32099,"message":"custom failure","data":{"z":9007199254740993,"a":[1.50]}}}`}},
		{"blocks", `{}`, result(fake.Blocks)},
		{"structured", `{}`, result(`{"content":[],"structuredContent":{"ok":true,"score":7,"big":9007199254740993}}`)},
		{"progress", `{"n":2,"ms":100}`, []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1,"total":2}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":2,"total":2}}`, block("reported 2 times")[0]}},
		{"log", `{"n":1}`, []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"fake","data":"message 1"}}`, block("logged 1 times")[0]}},
		{"notify", `{"method":"x/y","params":{"z":1},"times":2}`, []string{`{"jsonrpc":"2.0","method":"x/y","params":{"z":1}}`, `{"jsonrpc":"2.0","method":"x/y","params":{"z":1}}`, block("sent 2 times")[0]}},
		{"sample", `{}`, []string{`{"jsonrpc":"2.0","id":"ask-1","method":"sampling/createMessage","params":{"messages":[`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := talk(t, fake.Script{Tools: fake.Builtin(tc.name)}, hello, ready,
				ask(9, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s,"_meta":{"progressToken":"t"}`, tc.name, tc.args)))
			if err != nil {
				t.Errorf("ended with %v", err)
			}
			compare(t, got[1:], tc.want)
		})
	}
}

func TestToolsInTheModernEra(t *testing.T) {
	got, _ := talk(t, fake.Script{Tools: fake.Builtin("elicit", "blocks", "log")},
		ask(1, "tools/call", `"name":"elicit",`+meta),
		ask(2, "tools/call", `"name":"elicit","inputResponses":{"q":{"action":"accept"}},"requestState":"state-1",`+meta),
		ask(3, "tools/call", `"name":"blocks",`+meta),
		ask(4, "tools/call", `"name":"log","arguments":{"n":1},`+meta))
	compare(t, got, []string{
		`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Which colour?"`,
		`{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"{\"q\":{\"action\":\"accept\"}} \"state-1\""}],"resultType":"complete"`,
		`{"jsonrpc":"2.0","id":3,"result":` + strings.TrimSuffix(fake.Blocks, "}") + `,"resultType":"complete"}`,
		`{"jsonrpc":"2.0","id":4,"result":{"content":[{"type":"text","text":"nobody wants logs"}]`,
	})
}

func TestCancel(t *testing.T) {
	call := ask(9, "tools/call", `"name":"hang"`)
	late := ask(9, "tools/call", `"name":"sleep","arguments":{"ms":7200000}`)
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`
	script := fake.Script{Tools: append(fake.Builtin("sleep"), fake.Tool{Raw: `{"name":"hang"}`, Hang: true})}
	for _, tc := range []struct {
		name   string
		ignore bool
		call   string
		want   int // answers to the call
	}{{"hang", false, call, 0}, {"sleep", false, late, 0}, {"ignored", true, late, 1}} {
		t.Run(tc.name, func(t *testing.T) {
			script.IgnoreCancel = tc.ignore
			got, _ := talk(t, script, hello, tc.call, cancel, ready, ready)
			if len(got)-1 != tc.want {
				t.Errorf("got %q, want %d answers", got, 1+tc.want)
			}
		})
	}
}

func TestExit(t *testing.T) {
	call := ask(9, "tools/call", `"name":"exit","arguments":{"code":7}`)
	for _, tc := range []struct {
		name   string
		script fake.Script
		want   int // lines before the end
	}{
		{"at start", fake.Script{Exit: &fake.Exit{Code: 7}}, 0},
		{"on discover", fake.Script{Exit: &fake.Exit{On: "server/discover", Code: 7}}, 1},
		{"on a notification", fake.Script{Exit: &fake.Exit{On: "notifications/initialized", Code: 7}}, 2},
		{"some time after initialize", fake.Script{Exit: &fake.Exit{On: "initialize", Code: 7, AfterMs: 1000}}, 1},
		{"in mid-call", fake.Script{Tools: fake.Builtin("exit")}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := talk(t, tc.script, hello, ask(2, "server/discover", ""), ready, call)
			var exit *fake.ExitError
			if !errors.As(err, &exit) || exit.Code != 7 {
				t.Errorf("ended with %v, want code 7", err)
			}
			if len(got) != tc.want {
				t.Errorf("said %q, want %d lines", got, tc.want)
			}
		})
	}
}

// child starts a script as a process and returns it with its streams and its record file.
func child(t *testing.T, script fake.Script) (cmd *exec.Cmd, in io.WriteCloser, out *bufio.Reader, stderr *strings.Builder, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "record")
	script.Record = file
	command, args, env := fake.Child(script)
	cmd = exec.Command(command, args...)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	stderr = &strings.Builder{}
	cmd.Stderr = stderr
	in, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, in, bufio.NewReader(stdout), stderr, file
}

func TestChildEndsAsScripted(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script fake.Script
		code   int
		stderr int // bytes at least
	}{
		{"exits at start", fake.Script{Exit: &fake.Exit{Code: 3}, Stdio: fake.Stdio{Stderr: "fatal: missing key\n"}}, 3, 19},
		{"exits on a request", fake.Script{Exit: &fake.Exit{On: "initialize", Code: 4}}, 4, 0},
		{"ends with its input", fake.Script{}, 0, 0},
		{"floods stderr", fake.Script{Stdio: fake.Stdio{StderrBytes: 1 << 20}}, 0, 1 << 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd, in, out, stderr, _ := child(t, tc.script)
			_, _ = io.WriteString(in, hello+"\n") // it may be gone already
			answer, _ := out.ReadString('\n')
			if (answer != "") != (tc.code == 0) {
				t.Errorf("answer: got %q", answer)
			}
			in.Close()
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != tc.code {
				t.Errorf("exit code: got %d, want %d", got, tc.code)
			}
			if stderr.Len() < tc.stderr {
				t.Errorf("stderr: got %d bytes, want %d", stderr.Len(), tc.stderr)
			}
		})
	}
}

func TestFlood(t *testing.T) {
	cmd, in, out, _, _ := child(t, fake.Script{Tools: fake.Builtin("flood")})
	_, _ = io.WriteString(in, ask(1, "tools/call", `"name":"flood",`+meta)+"\n")
	got := make([]byte, 100<<20)
	if _, err := io.ReadFull(out, got); err != nil {
		t.Fatal(err)
	}
	if bytes.IndexByte(got, '\n') >= 0 {
		t.Error("the line ends")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestToolsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.json")
	write := func(name string) {
		if err := os.WriteFile(file, fmt.Appendf(nil, `[{"Do":%q}]`, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("echo")
	s := fake.New(fake.Script{ToolsFile: file})
	web := httptest.NewServer(s.HTTP())
	defer web.Close()
	defer s.Close()
	for _, name := range []string{"echo", "add"} {
		write(name)
		_, body := post(t, web.URL, ask(1, "tools/list", meta), modernHeaders("tools/list", "")...)
		if !strings.Contains(body, `"name":"`+name+`"`) {
			t.Errorf("got %s, want the tool %s", body, name)
		}
	}
}
