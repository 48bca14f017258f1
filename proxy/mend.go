package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// mend changes what is plainly recoverable, place by place, as what was in a string may itself want mending. It returns
// what is still wrong then, nil when nothing is.
func (s *compiled) mend(args json.RawMessage, fault *jsonschema.ValidationError) (
	json.RawMessage, []Mend, *jsonschema.ValidationError,
) {
	var mended []Mend
	tried := map[string]bool{}
	for fault != nil && len(mended) < maxMends && len(tried) < 4*maxMends && len(tried)*len(args) < 4*maxArguments {
		places := wrongTypes(fault)
		i := slices.IndexFunc(places, func(p place) bool { return !tried[pointerTo(p.path)] })
		if i < 0 {
			break
		}
		p := places[i]
		was := valueAt(args, p.path)
		tried[pointerTo(p.path)] = true
		var fitting []json.RawMessage
		var left *jsonschema.ValidationError
		for _, r := range readings(was, p, kindOf(valueAt(args, p.path[:len(p.path)-1])) == "object") {
			f, err := s.validate(splice(args, p.path, r.val))
			if err != nil {
				return args, mended, fault // no more steps left to try others
			}
			if f == nil || helps(fault, f, p, r) {
				fitting, left = append(fitting, r.val), f
			}
		}
		if len(fitting) == 1 { // two ways to read it are none
			args, fault = splice(args, p.path, fitting[0]), left
			mended = append(mended, Mend{pointerTo(p.path), shown(was), shown(fitting[0])})
			maps.DeleteFunc(tried, func(t string, _ bool) bool { return strings.HasPrefix(t, pointerTo(p.path)+"/") })
		}
	}
	return args, mended, fault
}

// place is where a type is wrong, and which would be right.
type place struct {
	path []string
	want []string
}

// wrongTypes are the places at which a type is wrong, in the order of their pointers.
func wrongTypes(fault *jsonschema.ValidationError) []place {
	all := map[string]*place{}
	walkFault(fault, func(e *jsonschema.ValidationError) {
		if t, ok := e.ErrorKind.(*kind.Type); ok && len(e.InstanceLocation) > 0 && len(all) < 4*maxMends {
			key := pointerTo(e.InstanceLocation)
			if all[key] == nil {
				all[key] = &place{path: e.InstanceLocation}
			}
			for _, w := range t.Want {
				if !slices.Contains(all[key].want, w) {
					all[key].want = append(all[key].want, w)
				}
			}
		}
	})
	out := make([]place, 0, len(all))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, *all[key])
	}
	return out
}

// walkFault visits the leaves of a fault.
func walkFault(e *jsonschema.ValidationError, visit func(*jsonschema.ValidationError)) {
	if len(e.Causes) == 0 {
		visit(e)
	}
	for _, c := range e.Causes {
		walkFault(c, visit)
	}
}

// helps tells that a reading has put its place right and broken nothing elsewhere. At and below it something else may
// still be wrong: it is told then.
func helps(before, after *jsonschema.ValidationError, p place, r reading) bool {
	old := map[string]bool{}
	walkFault(before, func(e *jsonschema.ValidationError) { old[leafName(e)] = true })
	ok, here := true, pointerTo(p.path)
	walkFault(after, func(e *jsonschema.ValidationError) {
		loc := pointerTo(e.InstanceLocation)
		_, wrongType := e.ErrorKind.(*kind.Type)
		switch {
		case loc == here:
			ok = ok && !wrongType
		case strings.HasPrefix(loc, here+"/"):
			ok = ok && !r.whole
		default:
			ok = ok && old[leafName(e)]
		}
	})
	return ok
}

// leafName names one thing that is wrong.
func leafName(e *jsonschema.ValidationError) string {
	name := fmt.Sprintf("%s %s %T", pointerTo(e.InstanceLocation), e.SchemaURL, e.ErrorKind)
	if r, ok := e.ErrorKind.(*kind.Required); ok {
		name += strings.Join(r.Missing, " ")
	}
	return name
}

// reading is a way to read a value as another type.
type reading struct {
	val   json.RawMessage // nil drops the property
	whole bool            // counts only where nothing in it is wrong
}

// readings are the ways to read a value as one of the types that would be right, none of which changes what it says.
func readings(v json.RawMessage, p place, inObject bool) (out []reading) {
	wants := func(t string) bool { return slices.Contains(p.want, t) }
	add := func(val string, whole bool) { out = append(out, reading{json.RawMessage(val), whole}) }
	text, inString := "", false
	if len(v) > 0 && v[0] == '"' {
		text, inString = strings.TrimSpace(jsonrpc.Unquote(v)), true
	}
	holds := func(open string) bool {
		return inString && strings.HasPrefix(text, open) && jsonrpc.Valid([]byte(text))
	}
	found := kindOf(v)
	switch {
	case found == "null" && inObject:
		return []reading{{}}
	case found == "null", found == "nothing":
		return nil
	case wants("object") && holds("{"), wants("array") && holds("["):
		add(text, false)
		return out
	}
	if inString && (wants("integer") || wants("number")) {
		if n := numberIn(text, !wants("number")); n != "" {
			add(n, false)
		}
	}
	if inString && wants("boolean") && (text == "true" || text == "false") {
		add(text, false)
	}
	scalar := found == "number" || found == "boolean"
	if len(p.want) == 1 && wants("string") && scalar {
		add(string(quote(string(v))), false)
	}
	if wants("array") && found != "array" && !(wants("string") && scalar) && single(v, text, inString) {
		add("["+string(v)+"]", true)
	}
	return out
}

// single tells whether a value is plainly one element of a list: not nothing, and not a list in another spelling.
func single(v json.RawMessage, text string, inString bool) bool {
	text = strings.TrimSpace(text)
	switch {
	case !inString:
		return string(v) != "null" && v[0] != '{'
	case text == "" || text == "null":
		return false
	}
	return !strings.ContainsAny(text, ",;\n") && text[0] != '[' && text[0] != '{'
}

// numberIn is the JSON number that a text spells, "" where it spells none. An integer is written without a fraction.
func numberIn(text string, integer bool) string {
	if text == "" || !jsonrpc.Valid([]byte(text)) || kindOf(json.RawMessage(text)) != "number" || len(text) > maxDigits {
		return ""
	}
	if integer {
		whole, fraction, _ := strings.Cut(text, ".")
		if strings.Trim(fraction, "0") != "" || strings.ContainsAny(whole, "eE") || whole == "-0" {
			return ""
		}
		return whole
	}
	if f, err := strconv.ParseFloat(text, 64); err != nil || f == 0 && exponent(text) > 0 {
		return "" // no float holds it
	}
	return text
}

// valueAt is the value at a path, nil when there is none. Of a repeated key the last one counts.
func valueAt(raw json.RawMessage, path []string) json.RawMessage {
	for _, key := range path {
		var next json.RawMessage
		for _, s := range spans(raw) {
			if s.key == key {
				next = raw[s.val:s.end]
			}
		}
		raw = next
	}
	return raw
}

// splice puts val in the place of what stands at a path; nil drops that member. All other bytes stay.
func splice(raw json.RawMessage, path []string, val json.RawMessage) json.RawMessage {
	if len(path) == 0 {
		return val
	}
	all := spans(raw)
	for i := len(all) - 1; i >= 0; i-- {
		s := all[i]
		if s.key != path[0] {
			continue
		}
		if len(path) > 1 || val != nil {
			return slices.Concat(raw[:s.val], splice(raw[s.val:s.end], path[1:], val), raw[s.end:])
		}
		switch {
		case i+1 < len(all):
			raw = slices.Concat(raw[:s.from], raw[all[i+1].from:])
		case i > 0:
			raw = slices.Concat(raw[:all[i-1].end], raw[s.end:])
		default:
			raw = slices.Concat(raw[:s.from], raw[s.end:])
		}
		return splice(raw, path, nil) // a repeated key
	}
	return raw
}

// span is where one member of an object or element of an array stands: from its key, the value from val to end.
type span struct {
	key            string
	from, val, end int
}

// spans are the members of an object or the elements of an array (their keys are their indices) of well-formed JSON.
func spans(raw json.RawMessage) (out []span) {
	if len(raw) == 0 {
		return nil
	}
	i := bytes.IndexAny(raw, "{[") + 1
	skip := func(chars string) {
		for i < len(raw) && strings.IndexByte(chars, raw[i]) >= 0 {
			i++
		}
	}
	switch raw[max(i-1, 0)] {
	case '{':
		_ = jsonrpc.Members(raw, func(key string, val json.RawMessage) bool { // well-formed
			skip(" \t\r\n,")
			s := span{key: key, from: i}
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			i++
			skip(" \t\r\n:")
			s.val, s.end = i, i+len(val)
			i = s.end
			out = append(out, s)
			return true
		})
	case '[':
		_ = jsonrpc.Elements(raw, func(val json.RawMessage) bool { // well-formed
			skip(" \t\r\n,")
			out = append(out, span{strconv.Itoa(len(out)), i, i, i + len(val)})
			i += len(val)
			return true
		})
	}
	return out
}

// pointerTo writes a path as a JSON Pointer (RFC 6901).
func pointerTo(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(p))
	}
	return b.String()
}
