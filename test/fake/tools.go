package fake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// Blocks is what the tool blocks answers: a content block of every kind and one from the future, structured content with
// numbers that float64 can't hold, and keys that no revision knows.
const Blocks = `{"content":[` +
	`{"type":"text","text":"héllo <b>&\u0041\ud83d\ude00","annotations":{"audience":["user"],"priority":0.50,"x-note":1},` +
	`"_meta":{"m":9007199254740993}},` +
	`{"type":"image","data":"` + pixel + `","mimeType":"image/png"},` +
	`{"type":"audio","data":"UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=","mimeType":"audio/wav"},` +
	`{"type":"resource","resource":{"uri":"memo://one","mimeType":"text/plain","text":"inside","x":[1.50,1e2]}},` +
	`{"type":"resource","resource":{"uri":"memo://two","mimeType":"application/octet-stream","blob":"AAEC"}},` +
	`{"type":"resource_link","uri":"memo://three","name":"three","title":"Number three","size":3,` +
	`"icons":[{"src":"data:,"}]},` +
	`{"type":"hologram","z":{"b":1,"a":2},"payload":"?"}],` +
	`"structuredContent":{"z":9007199254740993,"a":1.0,"big":123456789012345678901234567890,"none":null},` +
	`"isError":false,"_meta":{"cost":9007199254740993,"vendor/key":{"y":1,"x":2}},"x-extra":{"b":1,"a":[1.50,1e2]}}`

// Structured is what the tool structured answers.
const Structured = `{"content":[],"structuredContent":{"ok":true,"score":7,"big":9007199254740993}}`

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// Text is what the tool bytes answers: one line of n bytes, each eighth a number of where it stands.
func Text(n int) string {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		at := strconv.Itoa(len(b))
		b = append(b, "0000000"[:max(0, 7-len(at))]...)
		b = append(append(b, at...), ' ')
	}
	return string(b[:n])
}

// Lines is what the tool lines answers: n numbered lines.
func Lines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// Builtin makes tools of that name and definition, carried out by the built-in.
func Builtin(names ...string) []Tool {
	tools := make([]Tool, len(names))
	for i, n := range names {
		tools[i] = Tool{Do: n}.check()
	}
	return tools
}

// Builtins are the names of all built-in tools.
func Builtins() []string { return slices.Sorted(maps.Keys(builtins)) }

// check fills in what a tool leaves open.
func (t Tool) check() Tool {
	if t.Do == "" {
		t.Do = "echo_params"
	}
	b, ok := builtins[t.Do]
	if !ok {
		panic(fmt.Sprintf("fake: no built-in tool %q; there are %v", t.Do, Builtins()))
	}
	if t.Raw == "" {
		t.Raw = fmt.Sprintf(`{"name":%s,"description":%s,"inputSchema":%s,"annotations":{"readOnlyHint":%t}}`,
			quote(t.Do), quote(b.about), schema(b.args), b.readOnly)
	}
	raw(t.Result)
	raw(t.Error)
	t.known = jsonrpc.Unquote(jsonrpc.Member(raw(t.Raw), "name"))
	return t
}

type builtin struct {
	about    string
	args     string // "name:type" by spaces; a "!" marks required ones
	readOnly bool
	run      func(s *Server, c *call, args json.RawMessage) (string, error)
}

func schema(args string) string {
	var properties, required []string
	for arg := range strings.FieldsSeq(args) {
		name, kind, _ := strings.Cut(arg, ":")
		if n, ok := strings.CutPrefix(name, "!"); ok {
			name = n
			required = append(required, n)
		}
		if kind != "" {
			kind = `"type":` + quote(kind)
		}
		properties = append(properties, fmt.Sprintf(`%s:{%s}`, quote(name), kind))
	}
	need := ""
	if required != nil {
		need = `,"required":` + list(required)
	}
	return `{"type":"object","properties":{` + strings.Join(properties, ",") + `}` + need + `}`
}

var builtins = map[string]builtin{
	"echo":        {"Echo the text back", "!text:string", true, echo},
	"echo_params": {"Give back the arguments byte for byte, as text and as structured content", "", true, echoParams},
	"add":         {"Add two numbers", "!a:number !b:number", true, add},
	"count":       {"How many calls have reached the server", "", false, count},
	"env":         {"Read an environment variable of the server", "!name:string", true, env},
	"process":     {"Describe the server's process: pid, arguments, working directory, environment", "", true, process},
	"sleep":       {"Wait some milliseconds", "!ms:integer", true, sleep},
	"bytes":       {"Answer with a text of n bytes on one line", "!n:integer", true, sized(Text)},
	"lines":       {"Answer with n lines of text", "!n:integer", true, sized(Lines)},
	"fail":        {"Fail as tools do, with isError", "text:string", false, fail},
	"rpcerror":    {"Fail with a JSON-RPC error that has data", "", false, rpcError},
	"exit":        {"End the server in mid-call; over HTTP, break the connection", "code:integer", false, exit},
	"blocks":      {"Answer with a content block of every kind", "", true, fixed(Blocks)},
	"structured":  {"Answer with structured content and no text", "", true, fixed(Structured)},
	"progress":    {"Report progress n times, each after some milliseconds", "!n:integer ms:integer", true, progress},
	"log":         {"Send n log messages before the result", "!n:integer", true, logs},
	"notify":      {"Send a notification to all clients", "!method:string params:object times:integer", false, notify},
	"flood":       {"Send a line that does not end", "", false, flood},
	"elicit":      {"Ask the user something through the client", "", false, asking("elicitation/create", elicitation)},
	"sample":      {"Ask the client's model something", "", false, asking("sampling/createMessage", sampling)},
	"roots":       {"Ask the client for its roots", "", false, asking("roots/list", "")},
}

const (
	elicitation = `{"message":"Which colour?","requestedSchema":{"type":"object","properties":{"colour":{"type":"string"}}}}`
	sampling    = `{"messages":[{"role":"user","content":{"type":"text","text":"Say hi"}}],"maxTokens":10}`
)

func text(s string) string { return `{"content":[{"type":"text","text":` + quote(s) + `}]}` }

func number(args json.RawMessage, name string, fallback int) int {
	var n int
	if json.Unmarshal(jsonrpc.Member(args, name), &n) != nil {
		return fallback
	}
	return n
}

func fixed(result string) func(*Server, *call, json.RawMessage) (string, error) {
	return func(*Server, *call, json.RawMessage) (string, error) { return result, nil }
}

func sized(f func(int) string) func(*Server, *call, json.RawMessage) (string, error) {
	return func(_ *Server, _ *call, args json.RawMessage) (string, error) {
		return text(f(number(args, "n", 0))), nil
	}
}

func echo(_ *Server, _ *call, args json.RawMessage) (string, error) {
	return text(jsonrpc.Unquote(jsonrpc.Member(args, "text"))), nil
}

func count(s *Server, _ *call, _ json.RawMessage) (string, error) {
	return text(strconv.Itoa(s.Calls())), nil
}

func env(_ *Server, _ *call, args json.RawMessage) (string, error) {
	v, ok := os.LookupEnv(jsonrpc.Unquote(jsonrpc.Member(args, "name")))
	if !ok {
		v = "<unset>"
	}
	return text(v), nil
}

func sleep(_ *Server, c *call, args json.RawMessage) (string, error) {
	ms := number(args, "ms", 0)
	return text(fmt.Sprintf("slept %d ms", ms)), c.wait(ms)
}

func fail(_ *Server, _ *call, args json.RawMessage) (string, error) {
	t := or(jsonrpc.Unquote(jsonrpc.Member(args, "text")), "it failed")
	return fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"isError":true}`, quote(t)), nil
}

func rpcError(*Server, *call, json.RawMessage) (string, error) {
	data := json.RawMessage(`{"z":9007199254740993,"a":[1.50]}`)
	return "", &jsonrpc.Error{Code: -32099, Message: "custom failure", Data: data}
}

func exit(_ *Server, _ *call, args json.RawMessage) (string, error) {
	return "", &ExitError{number(args, "code", 0)}
}

func echoParams(_ *Server, _ *call, args json.RawMessage) (string, error) {
	if args == nil {
		return text("<none>"), nil
	}
	return fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"structuredContent":%s}`, quote(string(args)), args), nil
}

func add(_ *Server, _ *call, args json.RawMessage) (string, error) {
	var in struct{ A, B *float64 }
	if json.Unmarshal(args, &in) != nil || in.A == nil || in.B == nil {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "add: a and b must be numbers, got %s", args)
	}
	return text(strconv.FormatFloat(*in.A+*in.B, 'f', -1, 64)), nil
}

func process(*Server, *call, json.RawMessage) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", jsonrpc.Errorf(jsonrpc.CodeInternalError, "%v", err)
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, scriptEnv+"=") })
	slices.Sort(env)
	return fmt.Sprintf(`{"content":[],"structuredContent":{"pid":%d,"args":%s,"cwd":%s,"env":%s}}`,
		os.Getpid(), list(os.Args[1:]), quote(dir), list(env)), nil
}

func progress(_ *Server, c *call, args json.RawMessage) (string, error) {
	token := jsonrpc.Member(c.m.Params, "_meta", "progressToken")
	n := number(args, "n", 0)
	for i := 1; i <= n; i++ {
		if err := c.wait(number(args, "ms", 0)); err != nil {
			return "", err
		}
		if token != nil {
			c.notify("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":%d}`, token, i, n))
		}
	}
	return text(fmt.Sprintf("reported %d times", n)), nil
}

func logs(_ *Server, c *call, args json.RawMessage) (string, error) {
	n := number(args, "n", 0)
	if c.modern && jsonrpc.Member(c.m.Params, "_meta", metaLogLevel) == nil {
		return text("nobody wants logs"), nil
	}
	for i := 1; i <= n && c.ctx.Err() == nil; i++ {
		c.notify("notifications/message", fmt.Sprintf(`{"level":"info","logger":"fake","data":"message %d"}`, i))
	}
	return text(fmt.Sprintf("logged %d times", n)), nil
}

func notify(s *Server, c *call, args json.RawMessage) (string, error) {
	method, params := jsonrpc.Unquote(jsonrpc.Member(args, "method")), string(jsonrpc.Member(args, "params"))
	times := number(args, "times", 1)
	for range times {
		s.Notify(method, params)
	}
	return text(fmt.Sprintf("sent %d times", times)), nil
}

func flood(_ *Server, c *call, _ json.RawMessage) (string, error) {
	c.out.spill(c.ctx, bytes.Repeat([]byte("x"), 1<<16))
	return text("nobody takes any more"), c.ctx.Err()
}

// asking puts a question to the client, in the way of the era, and answers with what it said as text.
func asking(method, params string) func(*Server, *call, json.RawMessage) (string, error) {
	return func(_ *Server, c *call, _ json.RawMessage) (string, error) {
		if !c.modern {
			m, err := c.link.ask(c.ctx, method, params, c.out.say)
			switch {
			case err != nil:
				return "", err
			case m.Error != nil:
				return text("error " + string(m.Error)), nil
			}
			return text(string(m.Result)), nil
		}
		if answers := jsonrpc.Member(c.m.Params, "inputResponses"); answers != nil {
			return text(string(answers) + " " + string(jsonrpc.Member(c.m.Params, "requestState"))), nil
		}
		question := fmt.Sprintf(`{"method":%s,"params":%s}`, quote(method), or(params, "{}"))
		return `{"resultType":"input_required","inputRequests":{"q":` + question + `},"requestState":"state-1"}`, nil
	}
}
