package proxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// Mend is one place where arguments were plainly recoverable and have been changed. Over-long values are shown cut, as
// strings.
type Mend struct {
	Pointer string          `json:"pointer"` // RFC 6901, in the arguments
	From    json.RawMessage `json:"from"`
	To      json.RawMessage `json:"to,omitempty"` // absent: the property was dropped
}

// Violation is one place where arguments do not fit their schema.
type Violation struct {
	Pointer string          `json:"pointer"` // RFC 6901, in the arguments
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"` // the part of the schema that it broke, at most maxPart bytes
}

// Bounds of one check.
const (
	maxCompiled   = 256     // schemas kept compiled
	maxSchemaSize = 1 << 20 // bytes
	maxArguments  = 8 << 20 // bytes
	maxDepth      = 1000    // levels of arguments
	maxDigits     = 1000    // of a number, and the size of its exponent: numbers are compared exactly
	maxSteps      = 500_000
	maxViolations = 8
	maxPart       = 400 // bytes of a schema's part in a violation
	maxMends      = 32
	maxShown      = 200 // bytes of a value in a mend

	maxSchemaDepth = 64 // levels of a schema; compiling takes the cube of it
)

// checker checks arguments against input schemas and mends what is plainly recoverable. It keeps compiled schemas and is
// safe for concurrent use.
type checker struct {
	mu       sync.Mutex
	compiled map[string]*compiled // by the hash of the item
}

func newChecker() *checker { return &checker{compiled: map[string]*compiled{}} }

// check checks args against an input schema; hash stands for the schema, "" keeps nothing of it. Valid args come back as
// the very same bytes. Absent, null and empty args are {}. What does not fit is mended where only its spelling is wrong
// (JSON in a string, "5" for 5, a single value for a list of one, null for a property that can be left out), each mend in
// its place, so that all other bytes stay. What still doesn't fit then is a violation. The warning says that, and why, a
// schema was not used.
func (c *checker) check(hash string, schema, args json.RawMessage) (out json.RawMessage, mended []Mend, violations []Violation, warning string) {
	out = args
	trimmed := json.RawMessage(bytes.Trim(args, " \t\r\n"))
	if len(trimmed) > 0 && trimmed[0] == '"' {
		if s := bytes.TrimSpace([]byte(jsonrpc.Unquote(trimmed))); len(s) == 0 || s[0] == '{' && jsonrpc.Valid(s) || string(s) == "null" {
			if len(s) > 0 && s[0] == '{' {
				mended = []Mend{{"", shown(trimmed), shown(s)}}
			}
			out, trimmed = s, s
		}
	}
	if len(trimmed) == 0 || string(trimmed) == "null" {
		out, trimmed = json.RawMessage("{}"), json.RawMessage("{}")
	}
	if trimmed[0] != '{' || !jsonrpc.Valid(trimmed) {
		found := kindOf(trimmed)
		if !jsonrpc.Valid(trimmed) {
			found = "text that is no JSON"
		}
		return out, nil, []Violation{{Message: fmt.Sprintf("arguments must be an object like %s; found %s", signature(schema, 200), found)}}, ""
	}
	switch {
	case len(schema) > maxSchemaSize:
		return out, mended, nil, unchecked("its input schema has over %d bytes", maxSchemaSize)
	case len(out) > maxArguments:
		return out, mended, nil, unchecked("they have over %d bytes", maxArguments)
	}
	s, err := c.compile(hash, schema)
	if err != nil {
		return out, mended, nil, "the input schema of this tool can't be compiled (" + plain(err.Error(), 200) + "): arguments were not checked"
	}
	if s == nil {
		return out, mended, nil, ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = maxSteps
	fault, err := s.validate(out)
	if err == nil && fault != nil {
		var more []Mend
		out, more, fault = s.mend(out, fault)
		mended, violations = append(mended, more...), s.explain(out, fault)
	}
	if err != nil {
		return out, mended, nil, unchecked("%s", err)
	}
	return out, mended, violations, ""
}

func unchecked(format string, a ...any) string {
	return "arguments were not checked: " + plain(fmt.Sprintf(format, a...), 200)
}

// shown is a value as a mend shows it.
func shown(v json.RawMessage) json.RawMessage {
	if len(v) <= maxShown {
		return v
	}
	return quote(cutBytes(string(v), maxShown))
}

// compiled is one schema, ready to check with. Its validations run one after the other, so that each has its own budget.
type compiled struct {
	once sync.Once
	err  error

	mu     sync.Mutex
	raw    json.RawMessage
	schema *jsonschema.Schema
	widest int // values in the longest list that each value may be compared with
	steps  int // what the check under way may still spend
}

// compile makes a schema ready; nil for one that demands nothing.
func (c *checker) compile(hash string, schema json.RawMessage) (*compiled, error) {
	if schema = bytes.Trim(schema, " \t\r\n"); len(schema) == 0 || schema[0] != '{' || string(schema) == "{}" {
		return nil, nil
	}
	c.mu.Lock()
	s := c.compiled[hash]
	if s == nil || hash == "" {
		s = &compiled{}
		for k := range c.compiled {
			if len(c.compiled) < maxCompiled {
				break
			}
			delete(c.compiled, k) // whichever: it is made anew when needed
		}
		if hash != "" {
			c.compiled[hash] = s
		}
	}
	c.mu.Unlock()
	s.once.Do(func() { s.raw, s.err = schema, s.prepare(schema) })
	return s, s.err
}

// dialects are tried in turn where a schema names none, or is not of the one that it names: tuples in items are of
// draft-07, exclusiveMinimum: true is of draft-04.
var dialects = []*jsonschema.Draft{jsonschema.Draft2020, jsonschema.Draft7, jsonschema.Draft4}

func (s *compiled) prepare(schema json.RawMessage) (err error) {
	defer recovered(&err)
	doc, _, err := decodeExact(schema, maxSchemaDepth)
	if err != nil {
		return err
	}
	root := doc.(map[string]any) // compile has seen its brace
	s.tolerate(root)
	if named, ok := root["$schema"].(string); ok {
		if s.schema, err = s.compileAs(root, dialects[0]); err == nil || !strings.Contains(named, "://json-schema.org/") {
			return err
		}
	}
	delete(root, "$schema")
	for _, d := range dialects {
		var failed error
		if s.schema, failed = s.compileAs(root, d); failed == nil {
			return nil
		}
		err = cmp.Or(err, failed)
	}
	return err
}

// location is what the compiler calls the schema.
const location = "mcpproxy:///inputSchema"

func (s *compiled) compileAs(doc map[string]any, draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(draft)
	c.UseLoader(noLoader{})
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: budget, Validate: func(any) error { s.spend(1); return nil }})
	c.UseRegexpEngine(s.pattern)
	if err := c.AddResource(location, doc); err != nil {
		return nil, err
	}
	return c.Compile(location)
}

// noLoader keeps schemas from reaching files and hosts.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not followed")
}

// budget is the format of every schema: the library asks for it before it descends, which bounds the work of schemas that
// branch without end. Formats proper are not asserted, as JSON Schema 2020-12 has it.
const budget = "mcpproxy-budget"

var errBudget = errors.New("the schema takes too many steps")

func (s *compiled) spend(steps int) {
	if s.steps -= steps; s.steps < 0 {
		panic(errBudget)
	}
}

// pattern is a regular expression that spends what matching costs: text times the size of its program.
type pattern struct {
	*regexp.Regexp
	size  int
	spend func(int)
}

func (s *compiled) pattern(expr string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	return pattern{re, len(prog.Inst), s.spend}, nil
}

func (p pattern) MatchString(text string) bool {
	p.spend(1 + len(text)*p.size/128)
	return p.Regexp.MatchString(text)
}

func recovered(err *error) {
	switch p := recover(); {
	case p == errBudget:
		*err = errBudget
	case p != nil:
		*err = fmt.Errorf("the validator failed: %v", p)
	}
}

// validate is nil, nil for valid args. An error tells that they can't be checked.
func (s *compiled) validate(args json.RawMessage) (fault *jsonschema.ValidationError, err error) {
	defer recovered(&err)
	v, size, err := decodeExact(args, maxDepth)
	if err == nil && size*s.widest > 40*maxSteps {
		err = errBudget
	}
	if err != nil {
		return nil, err
	}
	if err := s.schema.Validate(v); err != nil && !errors.As(err, &fault) {
		return nil, err
	}
	return fault, nil
}

// decodeExact decodes JSON with its numbers as written, and counts its values. Numbers that no exact arithmetic should
// meet, and more levels than these, are an error.
func decodeExact(raw json.RawMessage, levels int) (v any, size int, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, 0, err
	}
	size, err = measure(v, levels)
	return v, size, err
}

func measure(v any, levels int) (size int, err error) {
	if levels < 0 {
		return 0, errors.New("too many levels")
	}
	add := func(e any) bool {
		n, bad := measure(e, levels-1)
		size, err = size+n, bad
		return bad == nil
	}
	switch v := v.(type) {
	case json.Number:
		if len(v) > maxDigits || exponent(string(v)) > maxDigits {
			err = fmt.Errorf("the number %s is too large", cutBytes(string(v), 30))
		}
	case []any:
		for _, e := range v {
			if !add(e) {
				break
			}
		}
	case map[string]any:
		for _, e := range v {
			if !add(e) {
				break
			}
		}
	}
	return size + 1, err
}

// exponent is the size of a number's exponent.
func exponent(number string) int {
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimLeft(number[i+1:], "+-"))
	if err != nil {
		return maxDigits + 1
	}
	return n
}

// tolerate changes, in a schema and all below it, what is common and harmless but not valid, and gives each schema the
// format that bounds the work. What is not known is treated like a schema, as a reference may point there.
func (s *compiled) tolerate(schema map[string]any) {
	for key, val := range schema {
		switch v := val.(type) {
		case []any:
			if key == "enum" || key == "required" {
				s.widest = max(s.widest, len(v))
			}
		case map[string]any:
			if strings.HasPrefix(key, "depend") {
				s.widest = max(s.widest, len(v))
			}
		}
		_, isArray := val.([]any)
		switch {
		case val == nil && key != "const" && key != "default",
			key == "required" && !isArray,
			key == "type" && !knownTypes(val):
			delete(schema, key)
		case key == "enum", key == "const", key == "default", strings.HasPrefix(key, "example"):
		case key == "properties", key == "patternProperties", key == "$defs", key == "definitions", strings.HasPrefix(key, "depend"):
			if m, ok := val.(map[string]any); ok {
				for _, sub := range m {
					s.tolerateAll(sub)
				}
			}
		default:
			s.tolerateAll(val)
		}
	}
	if schema["nullable"] == true { // OpenAPI 3.0
		if t, ok := schema["type"].(string); ok {
			schema["type"] = []any{t, "null"}
		}
		if e, ok := schema["enum"].([]any); ok && !slices.Contains(e, nil) {
			schema["enum"] = append(e, nil)
		}
	}
	schema["format"] = budget
}

func (s *compiled) tolerateAll(v any) {
	switch v := v.(type) {
	case map[string]any:
		s.tolerate(v)
	case []any:
		for _, e := range v {
			s.tolerateAll(e)
		}
	}
}

func knownTypes(v any) bool {
	switch v := v.(type) {
	case string:
		return slices.Contains([]string{"string", "number", "integer", "boolean", "object", "array", "null"}, v)
	case []any:
		return len(v) > 0 && !slices.ContainsFunc(v, func(e any) bool { s, ok := e.(string); return !ok || !knownTypes(s) })
	}
	return false
}

// mend changes what is plainly recoverable, place by place, as what was in a string may itself want mending. It returns
// what is still wrong then, nil when nothing is.
func (s *compiled) mend(args json.RawMessage, fault *jsonschema.ValidationError) (json.RawMessage, []Mend, *jsonschema.ValidationError) {
	var mended []Mend
	tried := map[string]bool{}
	for fault != nil && len(mended) < maxMends && len(tried) < 4*maxMends && len(tried)*len(args) < 4*maxArguments {
		places := wrongTypes(fault)
		i := slices.IndexFunc(places, func(p place) bool { return !tried[pointerTo(p.path)] })
		if i < 0 {
			break
		}
		p := places[i]
		was := at(args, p.path)
		tried[pointerTo(p.path)] = true
		var fitting []json.RawMessage
		var left *jsonschema.ValidationError
		for _, r := range readings(was, p, kindOf(at(args, p.path[:len(p.path)-1])) == "object") {
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
	walk(fault, func(e *jsonschema.ValidationError) {
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

// walk visits the leaves of a fault.
func walk(e *jsonschema.ValidationError, visit func(*jsonschema.ValidationError)) {
	if len(e.Causes) == 0 {
		visit(e)
	}
	for _, c := range e.Causes {
		walk(c, visit)
	}
}

// helps tells that a reading has put its place right and broken nothing elsewhere. At and below it something else may
// still be wrong: it is told then.
func helps(before, after *jsonschema.ValidationError, p place, r reading) bool {
	old := map[string]bool{}
	walk(before, func(e *jsonschema.ValidationError) { old[leaf(e)] = true })
	ok, here := true, pointerTo(p.path)
	walk(after, func(e *jsonschema.ValidationError) {
		loc := pointerTo(e.InstanceLocation)
		_, wrongType := e.ErrorKind.(*kind.Type)
		switch {
		case loc == here:
			ok = ok && !wrongType
		case strings.HasPrefix(loc, here+"/"):
			ok = ok && !r.whole
		default:
			ok = ok && old[leaf(e)]
		}
	})
	return ok
}

// leaf names one thing that is wrong.
func leaf(e *jsonschema.ValidationError) string {
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
		if n := number(text, !wants("number")); n != "" {
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
	if wants("array") && found != "array" && !(wants("string") && scalar) {
		add("["+string(v)+"]", true)
	}
	return out
}

// number is the JSON number that a text spells, "" where it spells none. An integer is written without a fraction.
func number(text string, integer bool) string {
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
	if f, err := strconv.ParseFloat(text, 64); err != nil || f == 0 && strings.ContainsAny(text, "123456789") && exponent(text) > 0 {
		return "" // no float can hold it
	}
	return text
}

// at is the value at a path, nil when there is none. Of a repeated key the last one counts.
func at(raw json.RawMessage, path []string) json.RawMessage {
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
	e.out = slices.CompactFunc(e.out, func(a, b Violation) bool { return a.Pointer == b.Pointer && a.Message == b.Message })
	return e.out[:min(len(e.out), maxViolations)]
}

type explainer struct {
	*compiled
	args json.RawMessage
	out  []Violation
}

func (e *explainer) add(f *jsonschema.ValidationError, schema json.RawMessage, more []string, format string, a ...any) {
	e.out = append(e.out, Violation{pointerTo(append(slices.Clone(f.InstanceLocation), more...)), cutBytes(fmt.Sprintf(format, a...), 500), bounded(schema)})
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
			e.add(f, member(part, "required"), nil, "missing required property %q%s", name, e.givenInstead(f, part, name))
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
		e.add(f, member(part, "enum"), nil, "expected one of %s, found %s", list(k.Want), e.found(f))
	case *kind.Const:
		e.add(f, member(part, "const"), nil, "expected %s, found %s", list([]any{k.Want}), e.found(f))
	case *kind.AnyOf:
		e.alternatives(f, member(part, "anyOf"))
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			e.add(f, member(part, "oneOf"), nil, "fits alternatives %d and %d of oneOf, may fit only one", k.Subschemas[0]+1, k.Subschemas[1]+1)
			return
		}
		e.alternatives(f, member(part, "oneOf"))
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
		walk(c, func(l *jsonschema.ValidationError) {
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
	given := keys(at(e.args, f.InstanceLocation))
	known := slices.DeleteFunc(keys(jsonrpc.Member(part, "properties")), func(k string) bool { return slices.Contains(given, k) })
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
	known := keys(jsonrpc.Member(part, "properties"))
	unknown := slices.DeleteFunc(keys(at(e.args, f.InstanceLocation)), func(k string) bool { return slices.Contains(known, k) })
	if near := nearest(name, unknown); near != "" {
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

func keys(obj json.RawMessage) (out []string) {
	_ = jsonrpc.Members(obj, func(key string, _ json.RawMessage) bool { // what is no object has none
		out = append(out, key)
		return true
	})
	return out
}

// found is the value at which a fault lies, in few words.
func (e *explainer) found(f *jsonschema.ValidationError) string {
	v := at(e.args, f.InstanceLocation)
	switch k := kindOf(v); k {
	case "object", "array", "null", "nothing":
		return k
	default:
		return k + " " + plain(string(v), 60)
	}
}

// list is a few allowed values.
func list(values []any) string {
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
	return at(s.raw, path)
}

// member is one keyword of a schema with its value, as a schema.
func member(schema json.RawMessage, keyword string) json.RawMessage {
	val := jsonrpc.Member(schema, keyword)
	if val == nil {
		return nil
	}
	return slices.Concat([]byte("{"), quote(keyword), []byte(":"), val, []byte("}"))
}

// bounded is a part of a schema in at most maxPart bytes, nil where it can't be cut to them.
func bounded(part json.RawMessage) json.RawMessage {
	if len(part) <= maxPart {
		return part
	}
	if part = compactSchema(part, maxPart); len(part) > maxPart || jsonrpc.Member(part, "$comment") != nil {
		return nil
	}
	return part
}
