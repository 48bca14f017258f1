package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// decode reads an action's input strictly. What is plainly meant is taken (absent or null input, a whole input in a
// string, "8" for 8, one string for a list of one); anything else is invalid_arguments that names the field.
func decode(a *Action, raw json.RawMessage, in any) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) > 0 && raw[0] == '"' {
		raw = json.RawMessage(jsonrpc.Unquote(raw))
	}
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	var out bytes.Buffer
	out.WriteByte('{')
	given := map[string]bool{}
	var bad *Error
	err := jsonrpc.Members(raw, func(key string, val json.RawMessage) bool {
		i := slices.IndexFunc(a.Fields, func(f Field) bool { return f.Name == key })
		if i < 0 {
			bad = unknownField(a, key)
			return false
		}
		if string(val) == "null" {
			return true
		}
		if val, bad = a.Fields[i].accept(val); bad != nil {
			bad.Message = a.Name + ": " + bad.Message
			return false
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		given[key] = true
		out.Write(quote(key))
		out.WriteByte(':')
		out.Write(val)
		return true
	})
	if err != nil {
		return &Error{Code: InvalidArguments, Message: a.Name + " takes a JSON object: " + err.Error(), Hint: usage(a)}
	}
	if bad != nil {
		return bad
	}
	for _, f := range a.Fields {
		// What can be had from elsewhere (a server from a combined name, phrasings) is asked for, not insisted on.
		if f.Required && !given[f.Name] && f.Name != "server" && f.Name != "also" {
			return &Error{Code: InvalidArguments, Message: fmt.Sprintf("%s needs %q", a.Name, f.Name), Hint: usage(a)}
		}
	}
	out.WriteByte('}')
	dec := json.NewDecoder(&out)
	if err := dec.Decode(in); err != nil && !errors.Is(err, io.EOF) {
		return &Error{Code: InvalidArguments, Message: a.Name + ": " + err.Error(), Hint: usage(a)}
	}
	return nil
}

// accept checks one value against the field, mending what is plainly meant.
func (f Field) accept(val json.RawMessage) (json.RawMessage, *Error) {
	wrong := func() *Error {
		return invalid("%q is %s, not %s", f.Name, cutBytes(string(val), 60), f.Type)
	}
	switch f.Type {
	case "object": // checked by whoever uses it
	case "string":
		if val[0] != '"' {
			return nil, wrong()
		}
		if s := jsonrpc.Unquote(val); f.Enum != nil && !slices.Contains(f.Enum, s) {
			return nil, invalid("%q is %q; it can be %s", f.Name, s, strings.Join(f.Enum, ", "))
		}
	case "boolean":
		if s := strings.Trim(string(val), `"`); s == "true" || s == "false" {
			return json.RawMessage(s), nil
		}
		return nil, wrong()
	case "integer":
		s := strings.Trim(string(val), `"`)
		var n json.Number
		if json.Unmarshal([]byte(s), &n) != nil {
			return nil, wrong()
		}
		i, err := n.Int64()
		if err != nil {
			return nil, wrong()
		}
		if f.Max > 0 && i != 0 { // 0 is the default
			if i < 0 {
				return nil, invalid("%q is %d; it can be %d to %d", f.Name, i, f.Min, f.Max)
			}
			i = min(i, int64(f.Max))
		}
		return fmt.Appendf(nil, "%d", i), nil
	case "string[]":
		if val[0] == '"' {
			if s := jsonrpc.Unquote(val); strings.HasPrefix(strings.TrimSpace(s), "[") && jsonrpc.Valid([]byte(s)) {
				val = json.RawMessage(s)
			} else {
				val = slices.Concat([]byte("["), val, []byte("]"))
			}
		}
		if json.Unmarshal(val, new([]string)) != nil {
			return nil, wrong()
		}
	}
	return val, nil
}

func unknownField(a *Action, key string) *Error {
	e := &Error{Code: InvalidArguments, Message: fmt.Sprintf("%s has no field %q", a.Name, cutBytes(key, maxNamed)), Hint: usage(a)}
	if a.Name == "call_tool" {
		e.Hint = `put the tool's own parameters into "arguments": ` + e.Hint
	}
	return e
}

// usage is an action's input in one line.
func usage(a *Action) string {
	parts := make([]string, len(a.Fields))
	for i, f := range a.Fields {
		parts[i] = f.Name
		if !f.Required {
			parts[i] += "?"
		}
		parts[i] += ": " + f.Type
	}
	return a.Name + " {" + strings.Join(parts, ", ") + "}"
}

func quote(s string) []byte { return jsonrpc.Quote(s) }

// compact is v as JSON in the fewest bytes, with <, > and & as they are.
func compact(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// cutBytes is s in at most n bytes, cut on a rune.
func cutBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
