package proxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

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
func (c *checker) check(hash string, schema, args json.RawMessage) (
	out json.RawMessage, mended []Mend, violations []Violation, warning string,
) {
	out = args
	trimmed := json.RawMessage(bytes.Trim(args, " \t\r\n"))
	if len(trimmed) > 0 && trimmed[0] == '"' {
		switch s := bytes.TrimSpace([]byte(jsonrpc.Unquote(trimmed))); {
		case len(s) == 0, string(s) == "null":
			trimmed = nil
		case s[0] == '{' && jsonrpc.Valid(s):
			mended = []Mend{{"", shown(trimmed), shown(s)}}
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
		msg := fmt.Sprintf("arguments must be an object like %s; found %s", signature(schema, 200), found)
		return out, nil, []Violation{{Message: msg}}, ""
	}
	switch {
	case len(schema) > maxSchemaSize:
		return out, mended, nil, unchecked("its input schema has over %d bytes", maxSchemaSize)
	case len(out) > maxArguments:
		return out, mended, nil, unchecked("they have over %d bytes", maxArguments)
	}
	s, err := c.compile(hash, schema)
	if err != nil {
		return out, mended, nil, fmt.Sprintf("the input schema of this tool can't be compiled (%s): arguments were not checked",
			plain(err.Error(), 200))
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

// schemaLocation is what the compiler calls the schema.
const schemaLocation = "mcpproxy:///inputSchema"

func (s *compiled) compileAs(doc map[string]any, draft *jsonschema.Draft) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(draft)
	c.UseLoader(noLoader{})
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: budget, Validate: func(any) error { s.spend(1); return nil }})
	c.UseRegexpEngine(s.pattern)
	if err := c.AddResource(schemaLocation, doc); err != nil {
		return nil, err
	}
	return c.Compile(schemaLocation)
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

// costedPattern is a regular expression that spends what matching costs: text times the size of its program.
type costedPattern struct {
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
	return costedPattern{re, len(prog.Inst), s.spend}, nil
}

func (p costedPattern) MatchString(text string) bool {
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
		case key == "properties", key == "patternProperties", key == "$defs", key == "definitions",
			strings.HasPrefix(key, "depend"):
			if m, ok := val.(map[string]any); ok {
				for _, sub := range m {
					s.tolerateAll(sub)
				}
			}
		default:
			s.tolerateAll(val)
		}
	}
	dropDefaulted(schema)
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

// dropDefaulted takes out of required what has a default: servers that generate their schemas list every parameter, and
// fill in those that are absent.
func dropDefaulted(schema map[string]any) {
	required, _ := schema["required"].([]any)
	properties, _ := schema["properties"].(map[string]any)
	if required == nil || properties == nil {
		return
	}
	schema["required"] = slices.DeleteFunc(slices.Clone(required), func(name any) bool {
		key, _ := name.(string)
		property, _ := properties[key].(map[string]any)
		_, has := property["default"]
		return has
	})
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
		for _, e := range v {
			if s, ok := e.(string); !ok || !knownTypes(s) {
				return false
			}
		}
		return len(v) > 0
	}
	return false
}
