package proxy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

var english = message.NewPrinter(language.English)

// explain says what is wrong, in at most maxViolations violations.
func (s *compiled) explain(args json.RawMessage, fault *jsonschema.ValidationError) []Violation {
	if fault == nil {
		return nil
	}
	e := explainer{s, args, nil}
	e.explain(fault)
	slices.SortFunc(e.out, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Pointer, b.Pointer), cmp.Compare(a.Message, b.Message))
	})
	e.out = slices.CompactFunc(e.out, func(a, b Violation) bool {
		return a.Pointer == b.Pointer && a.Message == b.Message
	})
	return e.out[:min(len(e.out), maxViolations)]
}

type explainer struct {
	*compiled
	args json.RawMessage
	out  []Violation
}

func (e *explainer) add(f *jsonschema.ValidationError, schema json.RawMessage, more []string, format string, a ...any) {
	path := slices.Concat(f.InstanceLocation, more)
	e.out = append(e.out, Violation{pointerTo(path), cutBytes(fmt.Sprintf(format, a...), 500), boundedPart(schema)})
}

func (e *explainer) explain(f *jsonschema.ValidationError) {
	if len(e.out) > 2*maxViolations { // more than are told
		return
	}
	slices.SortFunc(f.Causes, func(a, b *jsonschema.ValidationError) int { // properties come in random order
		return cmp.Or(slices.Compare(a.InstanceLocation, b.InstanceLocation), cmp.Compare(a.SchemaURL, b.SchemaURL))
	})
	part := e.part(f.SchemaURL)
	switch k := f.ErrorKind.(type) {
	case *kind.Type:
		e.add(f, part, nil, "expected %s, found %s", strings.Join(k.Want, " or "), e.found(f))
	case *kind.Required:
		for _, name := range k.Missing[:min(len(k.Missing), maxViolations)] {
			e.add(f, oneKeyword(part, "required"), nil, "missing required property %q%s", name, e.givenInstead(f, part, name))
		}
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		for _, name := range k.Properties[:min(len(k.Properties), maxViolations)] {
			e.unexpected(f, part, name)
		}
	case *kind.FalseSchema:
		if parent, found := strings.CutSuffix(f.SchemaURL, "/unevaluatedProperties"); found && len(f.InstanceLocation) > 0 {
			up := *f
			up.InstanceLocation = f.InstanceLocation[:len(f.InstanceLocation)-1]
			e.unexpected(&up, e.part(parent), f.InstanceLocation[len(up.InstanceLocation)])
			return
		}
		e.add(f, nil, nil, "nothing is allowed here, found %s", e.found(f))
	case *kind.Enum:
		e.add(f, oneKeyword(part, "enum"), nil, "expected one of %s, found %s", fewValues(k.Want), e.found(f))
	case *kind.Const:
		e.add(f, oneKeyword(part, "const"), nil, "expected %s, found %s", fewValues([]any{k.Want}), e.found(f))
	case *kind.AnyOf:
		e.alternatives(f, oneKeyword(part, "anyOf"))
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			e.add(f, oneKeyword(part, "oneOf"), nil, "fits alternatives %d and %d of oneOf, may fit only one",
				k.Subschemas[0]+1, k.Subschemas[1]+1)
			return
		}
		e.alternatives(f, oneKeyword(part, "oneOf"))
	case *kind.PropertyNames:
		e.add(f, part, []string{k.Property}, "%q is no allowed name of a property", k.Property)
	default:
		if len(f.Causes) == 0 && k != nil {
			e.add(f, part, nil, "%s", k.LocalizedString(english))
		}
		for _, c := range f.Causes {
			e.explain(c)
		}
	}
}

// alternatives explains what fits none of several: the types that would be right, else what is wrong with the only one
// that the value's type fits.
func (e *explainer) alternatives(f *jsonschema.ValidationError, part json.RawMessage) {
	var want []string
	var fitting []*jsonschema.ValidationError
	for _, c := range f.Causes {
		wrong := false
		walkFault(c, func(l *jsonschema.ValidationError) {
			if t, ok := l.ErrorKind.(*kind.Type); ok && len(l.InstanceLocation) == len(f.InstanceLocation) {
				wrong = true
				for _, w := range t.Want {
					if !slices.Contains(want, w) {
						want = append(want, w)
					}
				}
			}
		})
		if !wrong {
			fitting = append(fitting, c)
		}
	}
	switch {
	case len(fitting) == 1:
		e.explain(fitting[0])
	case len(fitting) == 0 && len(want) > 0:
		e.add(f, part, nil, "expected %s, found %s", strings.Join(want, " or "), e.found(f))
	default:
		e.add(f, part, nil, "%s fits none of the %d alternatives", e.found(f), len(f.Causes))
	}
}

// unexpected tells of a property that may not be there, and which one may be meant.
func (e *explainer) unexpected(f *jsonschema.ValidationError, part json.RawMessage, name string) {
	given := objectKeys(valueAt(e.args, f.InstanceLocation))
	known := without(objectKeys(jsonrpc.Member(part, "properties")), given)
	hint := ""
	if near := nearest(name, known); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	} else if len(known) > 0 {
		hint = fmt.Sprintf(" (there are %s)", cutBytes(strings.Join(known, ", "), 150))
	}
	e.add(f, nil, []string{name}, "unexpected property %q%s", name, hint)
}

// givenInstead tells of a property that was given where a missing one may be meant.
func (e *explainer) givenInstead(f *jsonschema.ValidationError, part json.RawMessage, name string) string {
	known := objectKeys(jsonrpc.Member(part, "properties"))
	if near := nearest(name, without(objectKeys(valueAt(e.args, f.InstanceLocation)), known)); near != "" {
		return fmt.Sprintf(" (%q is given)", near)
	}
	return ""
}

// nearest is the name that is most like another, or contains it (repo, repository); "" where none is.
func nearest(name string, names []string) string {
	if near := index.Nearest(name, names, 1); len(near) > 0 {
		return near[0]
	}
	for _, n := range names {
		if short, long := min(len(n), len(name)), max(len(n), len(name)); short >= 3 && long <= 3*short &&
			(strings.Contains(n, name) || strings.Contains(name, n)) {
			return n
		}
	}
	return ""
}

// without are the names that are not among the others.
func without(names, others []string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(others, n) })
}

func objectKeys(obj json.RawMessage) (out []string) {
	_ = jsonrpc.Members(obj, func(key string, _ json.RawMessage) bool { // what is no object has none
		out = append(out, key)
		return true
	})
	return out
}

// found is the value at which a fault lies, in few words.
func (e *explainer) found(f *jsonschema.ValidationError) string {
	v := valueAt(e.args, f.InstanceLocation)
	switch k := kindOf(v); k {
	case "object", "array", "null", "nothing":
		return k
	default:
		return k + " " + plain(string(v), 60)
	}
}

// fewValues are a few allowed values.
func fewValues(values []any) string {
	var out []string
	for _, v := range values {
		raw, _ := compact(v) // was decoded from JSON
		if out = append(out, plain(string(raw), 40)); len(out) == 12 {
			out = append(out, "…")
			break
		}
	}
	return strings.Join(out, ", ")
}

// part is the schema that a fault's URL names, as the server wrote it; nil where it lies in another resource.
func (s *compiled) part(schemaURL string) json.RawMessage {
	base, fragment, _ := strings.Cut(schemaURL, "#")
	if root, _, _ := strings.Cut(s.schema.Location, "#"); base != root {
		return nil
	}
	if fragment == "" {
		return s.raw
	}
	if p, err := url.PathUnescape(fragment); err == nil {
		fragment = p
	}
	var path []string
	for p := range strings.SplitSeq(strings.TrimPrefix(fragment, "/"), "/") {
		path = append(path, strings.NewReplacer("~1", "/", "~0", "~").Replace(p))
	}
	return valueAt(s.raw, path)
}

// oneKeyword is one keyword of a schema with its value, as a schema.
func oneKeyword(schema json.RawMessage, keyword string) json.RawMessage {
	val := jsonrpc.Member(schema, keyword)
	if val == nil {
		return nil
	}
	return slices.Concat([]byte("{"), quote(keyword), []byte(":"), val, []byte("}"))
}

// boundedPart is a part of a schema in at most maxPart bytes, nil where it can't be cut to them.
func boundedPart(part json.RawMessage) json.RawMessage {
	if len(part) <= maxPart {
		return part
	}
	if part = compactSchema(part, maxPart); len(part) > maxPart || jsonrpc.Member(part, "$comment") != nil {
		return nil
	}
	return part
}
