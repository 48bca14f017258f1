package proxy

import (
	"encoding/json"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// compactSchema is an over-large schema cut to at most budget bytes where it can be: first without prose (descriptions,
// examples, titles), then with ever fewer levels, a cut level saying so. It is for reading, not for validating.
func compactSchema(schema json.RawMessage, budget int) json.RawMessage {
	for _, c := range []compaction{{depth: 64, prose: 120}, {depth: 64}, {depth: 8, enum: 20}, {depth: 5, enum: 10}, {depth: 4, enum: 5}, {depth: 3, enum: 3}} {
		if out := c.value(schema, 0); len(out) <= budget {
			return out
		}
	}
	return json.RawMessage(`{"type":"object","$comment":"elided"}`)
}

// compaction is how much is left out.
type compaction struct {
	depth int // levels of objects kept
	prose int // bytes of each description kept
	enum  int // values of each enum kept; a longer one is dropped; 0 keeps all
}

func (c compaction) value(v json.RawMessage, depth int) json.RawMessage {
	switch {
	case len(v) == 0:
		return v
	case v[0] == '[':
		out := []byte{'['}
		_ = jsonrpc.Elements(v, func(e json.RawMessage) bool { // well-formed: it came out of a parsed message
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, c.value(e, depth+1)...)
			return true
		})
		return append(out, ']')
	case v[0] != '{':
		return v
	case depth > c.depth:
		return json.RawMessage(`{"$comment":"elided"}`)
	}
	out := []byte{'{'}
	_ = jsonrpc.Members(v, func(key string, val json.RawMessage) bool {
		if val = c.member(key, val, depth); val == nil {
			return true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quote(key)...), ':'), val...)
		return true
	})
	return append(out, '}')
}

// member is what is kept of one keyword; nil drops it.
func (c compaction) member(key string, val json.RawMessage, depth int) json.RawMessage {
	isText := len(val) > 0 && val[0] == '"'
	switch {
	case key == "description" && isText:
		if c.prose == 0 {
			return nil
		}
		return quote(cutBytes(jsonrpc.Unquote(val), c.prose))
	case (key == "title" || key == "$comment" || key == "pattern") && isText, key == "examples" && len(val) > 0 && val[0] == '[':
		return nil
	case key == "enum" && c.enum > 0:
		n := 0
		if jsonrpc.Elements(val, func(json.RawMessage) bool { n++; return true }) == nil && n > c.enum {
			return nil
		}
	}
	return c.value(val, depth+1)
}
