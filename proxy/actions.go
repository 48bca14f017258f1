package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mcpproxy/mcpproxy/policy"
)

// Action is one thing that can be asked of the gateway. The table below is the only place where actions are declared:
// the MCP tools, the built-in server, the command line and the API are made from it.
type Action struct {
	Name   string // the tool's name
	Doc    string // what a model or person reads
	Risk   policy.Risk
	Meta   bool    // one of the three tools that every agent sees; the others are tools of the built-in server
	Fields []Field // input, in order

	Command    string   // of the command line; "" has none
	Positional []string // fields that the command line takes as plain arguments; the last may be left out unless required

	run func(*Gateway, context.Context, *request, json.RawMessage) (any, error)
}

// Field is one property of an action's input.
type Field struct {
	Name     string
	Type     string // string, integer, boolean, string[], object
	Doc      string
	Required bool
	Enum     []string
	Min, Max int // integer; 0, 0: no bounds
}

// actions is filled by init, since the functions in it read the table too.
var actions []Action

func init() {
	actions = []Action{
		do("search_tools", policy.Read, (*Gateway).search, meta, command("search", "query"),
			"Find tools on all connected MCP servers by what they do. Returns matches with server, tool, summary, risk and argument signature. Search before you say that something can't be done."),
		do("describe_tool", policy.Read, (*Gateway).describe, meta, command("describe", "server", "tool"),
			"Full description and JSON schema of one found tool. Needed only where its signature does not suffice."),
		do("call_tool", policy.Unknown, (*Gateway).call, meta, command("call", "server", "tool", "argumentsJson"),
			"Call a found tool. The result is the server's own."),
		do("status", policy.Read, (*Gateway).status, command("status", "server"),
			"State of the proxy and of every server, or of one: connection, last error and what to do about it, recent calls, problems of the configuration."),
		do("list_servers", policy.Read, (*Gateway).listServers,
			"List the configured MCP servers with their state and how many tools each has."),
		do("list_tools", policy.Read, (*Gateway).listTools, command("list", "server"),
			"List the tools of one server, or of all, by name with a short summary, in pages."),
		do("connect", policy.Write, (*Gateway).connect,
			"Connect to one configured server now and read anew what it offers."),
		do("disconnect", policy.Write, (*Gateway).disconnect,
			"End the connection to one server once its calls are done. Its next use connects again."),
		do("refresh", policy.Write, (*Gateway).refresh,
			"Read anew what one server, or every server, offers."),
		do("read_cache", policy.Read, (*Gateway).readCache,
			"Read on in a stored output that was too large for one answer: pages by offset, line ranges, tail, RE2 grep, JSON Pointer, jq, count, diff."),
	}
}

// Actions are all actions, in the order of the table.
func Actions() []Action { return slices.Clone(actions) }

func action(name string) *Action {
	for i := range actions {
		if actions[i].Name == name {
			return &actions[i]
		}
	}
	return nil
}

// property is what a row says besides its name and function.
type property func(*Action)

func meta(a *Action) { a.Meta = true }

func command(name string, positional ...string) property {
	return func(a *Action) { a.Command, a.Positional = name, positional }
}

// do makes a row. The input's Go struct gives the fields: json and doc tags, `required:"1"`, `enum:"a,b"`, `range:"1,20"`.
func do[In any](name string, risk policy.Risk, f func(*Gateway, context.Context, *request, In) (any, error), rest ...any) Action {
	a := Action{Name: name, Risk: risk, Fields: fieldsOf(reflect.TypeFor[In]())}
	for _, r := range rest {
		switch r := r.(type) {
		case string:
			a.Doc = r
		case func(*Action):
			r(&a)
		case property:
			r(&a)
		}
	}
	a.run = func(g *Gateway, ctx context.Context, rq *request, raw json.RawMessage) (any, error) {
		var in In
		if err := decode(&a, raw, &in); err != nil {
			return nil, err
		}
		return f(g, ctx, rq, in)
	}
	return a
}

func fieldsOf(t reflect.Type) []Field {
	var fields []Field
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Anonymous {
			fields = append(fields, fieldsOf(sf.Type)...)
			continue
		}
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		f := Field{Name: name, Doc: sf.Tag.Get("doc"), Required: sf.Tag.Get("required") != "", Type: typeName(sf.Type)}
		if e := sf.Tag.Get("enum"); e != "" {
			f.Enum = strings.Split(e, ",")
		}
		if r := sf.Tag.Get("range"); r != "" {
			fmt.Sscanf(r, "%d,%d", &f.Min, &f.Max)
		}
		fields = append(fields, f)
	}
	return fields
}

func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return "object"
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem())
	case t.Kind() == reflect.Slice:
		return typeName(t.Elem()) + "[]"
	case t.Kind() == reflect.Bool:
		return "boolean"
	case t.Kind() == reflect.String:
		return "string"
	}
	return "integer"
}

// Schema is the JSON Schema of the input.
func (a *Action) Schema() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	var required []string
	for i, f := range a.Fields {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `%s:{`, quote(f.Name))
		if item, ok := strings.CutSuffix(f.Type, "[]"); ok {
			fmt.Fprintf(&b, `"type":"array","items":{"type":%s}`, quote(item))
		} else {
			fmt.Fprintf(&b, `"type":%s`, quote(f.Type))
		}
		if f.Enum != nil {
			e, _ := json.Marshal(f.Enum)
			fmt.Fprintf(&b, `,"enum":%s`, e)
		}
		if f.Max > 0 {
			fmt.Fprintf(&b, `,"minimum":%d,"maximum":%d`, f.Min, f.Max)
		}
		if f.Doc != "" {
			fmt.Fprintf(&b, `,"description":%s`, quote(f.Doc))
		}
		b.WriteByte('}')
		if f.Required {
			required = append(required, f.Name)
		}
	}
	b.WriteByte('}')
	if required != nil {
		r, _ := json.Marshal(required)
		fmt.Fprintf(&b, `,"required":%s`, r)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// tool is the action as an MCP tool object.
func (a *Action) tool() json.RawMessage {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"name":%s,"description":%s,"inputSchema":%s`, quote(a.Name), quote(a.Doc), a.Schema())
	switch a.Risk {
	case policy.Read:
		b.WriteString(`,"annotations":{"readOnlyHint":true}`)
	case policy.Write:
		b.WriteString(`,"annotations":{"readOnlyHint":false,"destructiveHint":false}`)
	}
	if a.Meta {
		b.WriteString(`,"_meta":{"anthropic/alwaysLoad":true}`)
	}
	b.WriteByte('}')
	return b.Bytes()
}
