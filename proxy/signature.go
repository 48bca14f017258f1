package proxy

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// signature is an input schema in one line of at most max bytes: {owner: string, state?: "open"|"closed", labels?: string[]}.
// Required properties come first, and are the last to be cut. It is for reading: what it can't say it leaves out.
func signature(inputSchema json.RawMessage, max int) string {
	w := signer{root: inputSchema}
	props := w.properties(inputSchema, 0)
	more := ""
	if len(props) == 0 {
		// One of several shapes: the first stands for all.
		n := w.node(inputSchema, 0)
		if alternatives := slices.Concat(n.anyOf, n.oneOf); len(alternatives) > 0 {
			props, more = w.properties(alternatives[0], 0), "|…"
		}
	}
	if len(props) == 0 {
		return "{}"
	}
	slices.SortStableFunc(props, func(a, b prop) int { return requiredFirst(a.required, b.required) })
	required := 0
	for required < len(props) && props[required].required {
		required++
	}
	line := ""
	for i, d := range []details{{allDetail, allDetail}, {allDetail, lessDetail}, {lessDetail, lessDetail}, {noDetail, noDetail}} {
		w.steps = 0
		var shown int
		if line, shown = w.line(props, d, max-len(more)); shown == len(props) || i > 0 && shown >= required {
			break
		}
	}
	return line + more
}

// requiredFirst sorts true before false.
func requiredFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// detail is how much of a type is said.
type detail int

const (
	allDetail  detail = iota
	lessDetail        // no enums, no parts of objects
	noDetail          // names alone
)

// details are how much is said of required and of optional properties.
type details struct{ required, optional detail }

// signer writes the types of one schema.
type signer struct {
	root   json.RawMessage
	detail detail
	steps  int // schemas looked at
}

// prop is one property of an object.
type prop struct {
	name     string
	schema   json.RawMessage
	required bool
}

// line writes as many properties as fit, and tells how many those are.
func (w *signer) line(props []prop, d details, max int) (string, int) {
	var b strings.Builder
	b.WriteByte('{')
	for i, p := range props {
		if w.detail = d.optional; p.required {
			w.detail = d.required
		}
		part := w.name(p)
		if w.detail != noDetail {
			part += ": " + w.typ(p.schema, 0)
		}
		if i > 0 {
			part = ", " + part
		}
		end := len("}")
		if i+1 < len(props) {
			end = len(", …}")
		}
		if b.Len()+len(part)+end > max {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString("…}")
			return b.String(), i
		}
		b.WriteString(part)
	}
	b.WriteByte('}')
	return b.String(), len(props)
}

func (w *signer) name(p prop) string {
	name := plain(p.name, 64)
	if name == "" || strings.Trim(name, identifier) != "" {
		name = string(quote(name))
	}
	if !p.required {
		name += "?"
	}
	return name
}

const identifier = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$.-"

// schemaNode is what a signature needs of one schema.
type schemaNode struct {
	types        []string
	ref          string
	values       []json.RawMessage // of enum, or of const
	anyOf, oneOf []json.RawMessage
	allOf        []json.RawMessage
	items        json.RawMessage
	properties   json.RawMessage
	required     []string
}

const (
	maxRefs = 4   // levels to which references and combinations are followed
	maxLook = 300 // schemas looked at for one line
)

// node reads a schema, following a reference. Where too many have been read it says nothing.
func (w *signer) node(schema json.RawMessage, depth int) (n schemaNode) {
	if w.steps++; w.steps > maxLook {
		return schemaNode{}
	}
	_ = jsonrpc.Members(schema, func(key string, val json.RawMessage) bool { // what is no object says nothing
		switch key {
		case "type":
			n.types = stringsOf(val)
		case "$ref":
			n.ref = jsonrpc.Unquote(val)
		case "enum":
			n.values = arrayElements(val)
		case "const":
			n.values = []json.RawMessage{val}
		case "anyOf":
			n.anyOf = arrayElements(val)
		case "oneOf":
			n.oneOf = arrayElements(val)
		case "allOf":
			n.allOf = arrayElements(val)
		case "items":
			n.items = val
		case "properties":
			n.properties = val
		case "required":
			n.required = stringsOf(val)
		}
		return true
	})
	if target := w.resolve(n.ref); target != nil && depth < maxRefs {
		if n.types == nil && n.values == nil && n.properties == nil && n.anyOf == nil && n.oneOf == nil {
			return w.node(target, depth+1)
		}
	}
	return n
}

// resolve finds what a local reference points to; nil for any other.
func (w *signer) resolve(ref string) json.RawMessage {
	pointer, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	at := w.root
	for part := range strings.SplitSeq(pointer, "/") {
		if p, err := url.PathUnescape(part); err == nil {
			part = p
		}
		at = jsonrpc.Member(at, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	return at
}

// properties are those of an object schema and of all that it is combined from, in their order.
func (w *signer) properties(schema json.RawMessage, depth int) (props []prop) {
	n := w.node(schema, depth)
	_ = jsonrpc.Members(n.properties, func(key string, val json.RawMessage) bool { // no properties where it is no object
		props = append(props, prop{key, val, slices.Contains(n.required, key)})
		return true
	})
	if depth < maxRefs {
		for _, part := range n.allOf {
			for _, p := range w.properties(part, depth+1) {
				if !slices.ContainsFunc(props, func(q prop) bool { return q.name == p.name }) {
					p.required = p.required || slices.Contains(n.required, p.name)
					props = append(props, p)
				}
			}
		}
	}
	return props
}

// typ is a schema's type in the manner of TypeScript.
func (w *signer) typ(schema json.RawMessage, depth int) string {
	if depth > maxRefs {
		return "any"
	}
	n := w.node(schema, depth)
	if len(n.values) > 0 && w.detail == allDetail {
		if s := literals(n.values); s != "" {
			return s
		}
	}
	var alternatives []string
	add := func(t string) {
		if t != "null" && !slices.Contains(alternatives, t) {
			alternatives = append(alternatives, t)
		}
	}
	for _, s := range slices.Concat(n.anyOf, n.oneOf) {
		add(w.typ(s, depth+1))
	}
	if len(alternatives) == 0 && len(n.types) == 0 && len(n.allOf) > 0 {
		for _, s := range n.allOf {
			if t := w.typ(s, depth+1); t != "any" {
				add(t)
				break
			}
		}
	}
	if len(alternatives) == 0 {
		for _, t := range n.types {
			add(w.one(t, n, depth))
		}
	}
	switch {
	case len(alternatives) > 4:
		return strings.Join(alternatives[:3], "|") + "|…"
	case len(alternatives) > 0:
		return strings.Join(alternatives, "|")
	case slices.Contains(n.types, "null"):
		return "null"
	case n.properties != nil:
		return w.one("object", n, depth)
	case n.items != nil:
		return w.one("array", n, depth)
	case len(n.values) > 0:
		return kindOf(n.values[0])
	}
	return "any"
}

// one is the name of one type, with what it is made of.
func (w *signer) one(t string, n schemaNode, depth int) string {
	switch t {
	case "array":
		if n.items == nil || n.items[0] == '[' {
			return "array"
		}
		item := w.typ(n.items, depth+1)
		if strings.Contains(item, "|") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case "object":
		if names := w.tiny(n, depth); names != "" {
			return names
		}
	}
	return plain(t, 20)
}

// tiny is a small object with its properties' names; "" for one that is not small.
func (w *signer) tiny(n schemaNode, depth int) string {
	if w.detail != allDetail || depth > 2 {
		return ""
	}
	var names []string
	_ = jsonrpc.Members(n.properties, func(key string, _ json.RawMessage) bool { // no object: no names
		names = append(names, w.name(prop{name: key, required: slices.Contains(n.required, key)}))
		return len(names) <= 4
	})
	if s := "{" + strings.Join(names, ", ") + "}"; len(names) > 0 && len(names) <= 4 && len(s) <= 40 {
		return s
	}
	return ""
}

// literals are up to four short values, "" where they are not short.
func literals(values []json.RawMessage) string {
	var out []string
	for _, v := range values {
		if string(v) == "null" {
			continue
		}
		if len(out) == 4 {
			out = append(out, "…")
			break
		}
		s := plain(string(v), 26)
		if len(v) > 26 || v[0] == '{' || v[0] == '[' {
			return ""
		}
		out = append(out, s)
	}
	return strings.Join(out, "|")
}

// kindOf is the JSON type of a value.
func kindOf(v json.RawMessage) string {
	if len(v) == 0 {
		return "nothing"
	}
	switch v[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

func arrayElements(arr json.RawMessage) (out []json.RawMessage) {
	_ = jsonrpc.Elements(arr, func(v json.RawMessage) bool { // what is no array has none
		out = append(out, v)
		return true
	})
	return out
}

// stringsOf is a string, or the strings of an array.
func stringsOf(raw json.RawMessage) []string {
	if len(raw) > 0 && raw[0] == '"' {
		return []string{jsonrpc.Unquote(raw)}
	}
	var out []string
	for _, v := range arrayElements(raw) {
		if len(v) > 0 && v[0] == '"' {
			out = append(out, jsonrpc.Unquote(v))
		}
	}
	return out
}

// plain is untrusted text made safe for one line: whitespace folded, what can't be seen or would steer a terminal or a
// reader shown as \u{202E}, at most max bytes, cut with "…".
func plain(s string, max int) string {
	var b strings.Builder
	space := false // before the next character
	for _, r := range s {
		if unicode.IsSpace(r) {
			space = b.Len() > 0
			continue
		}
		piece := visible(r)
		if space {
			piece, space = " "+piece, false
		}
		if b.Len()+len(piece) > max {
			return cutPlain(b.String(), max)
		}
		b.WriteString(piece)
	}
	return b.String()
}

// cutPlain is s, which fits into max bytes, with "…" in place of what must go for it.
func cutPlain(s string, max int) string {
	const mark = "…"
	for len(s) > 0 && len(s)+len(mark) > max {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	if i := strings.LastIndex(s, `\u{`); i >= 0 && !strings.Contains(s[i:], "}") {
		s = s[:i]
	}
	if max < len(mark) {
		return ""
	}
	return s + mark
}

// escape is untrusted text of several lines with what can't be seen, or would steer a terminal or a reader, shown as
// \u{202E}.
func escape(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && hidden(r) }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == '\n' || r == '\t' || r == '\r' && strings.HasPrefix(s[i:], "\r\n"):
			b.WriteRune(r)
		default:
			b.WriteString(visible(r))
		}
	}
	return b.String()
}

func visible(r rune) string {
	if hidden(r) {
		return fmt.Sprintf(`\u{%X}`, r)
	}
	return string(r)
}

// hidden tells what has no shape of its own: control and format characters (bidi controls, zero-width characters and
// tags are among these), line separators, fillers and blanks, private use, and the variation selectors that emoji have no
// use for.
func hidden(r rune) bool {
	if r >= 0x20 && r < 0x7F {
		return false
	}
	switch {
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
		return true
	case r >= 0xFE00 && r <= 0xFE0D, r >= 0xE0100 && r <= 0xE01EF, r >= 0x180B && r <= 0x180F:
		return true
	}
	return slices.Contains(blanks, r)
}

// blanks are letters and symbols that show nothing: joiners and vowels without shape, Hangul fillers, the empty Braille
// pattern.
var blanks = []rune{0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0}
