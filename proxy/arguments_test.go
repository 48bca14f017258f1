package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// wrongWords are a violation in few words.
func wrongWords(v []Violation) (out []string) {
	for _, v := range v {
		out = append(out, v.Pointer+": "+v.Message)
	}
	return out
}

func mendWords(m []Mend) (out []string) {
	for _, m := range m {
		to := string(m.To)
		if m.To == nil {
			to = "absent"
		}
		out = append(out, fmt.Sprintf("%s: %s → %s", m.Pointer, m.From, to))
	}
	return out
}

func TestCheck(t *testing.T) {
	const add = `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a"]}`
	for _, tt := range []struct {
		name, schema, args, out string
		mended, violations      []string
	}{
		// what passes keeps its bytes
		{"valid", add, ` {"b":2 ,"a":1.0} `, ` {"b":2 ,"a":1.0} `, nil, nil},
		{"nulls, order, extra keys and big numbers stay", `{"type":"object","properties":{"a":{}}}`,
			`{"z":12345678901234567890123,"a":null,"nested":{"b":null},"extra":1e2}`,
			`{"z":12345678901234567890123,"a":null,"nested":{"b":null},"extra":1e2}`, nil, nil},
		{"nothing demanded", `{}`, `{"a":1}`, `{"a":1}`, nil, nil},
		{"no schema", ``, `{"a":1}`, `{"a":1}`, nil, nil},
		{"null schema", `null`, `{"a":1}`, `{"a":1}`, nil, nil},
		{"schema is no object", `true`, `{"a":1}`, `{"a":1}`, nil, nil},

		// whole arguments
		{"absent", `{"type":"object"}`, ``, `{}`, nil, nil},
		{"null", `{"type":"object"}`, `null`, `{}`, nil, nil},
		{"empty string", `{"type":"object"}`, `""`, `{}`, nil, nil},
		{"required, but with a default of its own", `{"type":"object","properties":{"scale":{"type":"string","default":"css"},"x":{}},"required":["scale","x"]}`,
			`{"x":1}`, `{"x":1}`, nil, nil},
		{"absent, but some needed", add, ``, `{}`, nil, []string{`: missing required property "a"`}},
		{"an object in a string", add, `"{\"a\":1,\"b\":2}"`, `{"a":1,"b":2}`, []string{`: "{\"a\":1,\"b\":2}" → {"a":1,"b":2}`}, nil},
		{"array", add, `[1,2]`, `[1,2]`, nil, []string{`: arguments must be an object like {a: integer, b?: integer}; found array`}},
		{"number", add, `5`, `5`, nil, []string{`: arguments must be an object like {a: integer, b?: integer}; found number`}},
		{"text", add, `"hello"`, `"hello"`, nil, []string{`: arguments must be an object like {a: integer, b?: integer}; found string`}},
		{"array, no schema", ``, `[]`, `[]`, nil, []string{`: arguments must be an object like {}; found array`}},
		{"broken", add, `{"a":`, `{"a":`, nil, []string{`: arguments must be an object like {a: integer, b?: integer}; found text that is no JSON`}},

		// mends
		{"numbers in strings", add, `{"a":"1", "b" : "2.0","c":"3"}`, `{"a":1, "b" : 2,"c":"3"}`, []string{`/a: "1" → 1`, `/b: "2.0" → 2`}, nil},
		{"big integer in a string", add, `{"a":"12345678901234567890123"}`, `{"a":12345678901234567890123}`,
			[]string{`/a: "12345678901234567890123" → 12345678901234567890123`}, nil},
		{"no integer", add, `{"a":"1.5"}`, `{"a":"1.5"}`, nil, []string{`/a: expected integer, found string "1.5"`}},
		{"no number as JSON writes it", add, `{"a":"0x10"}`, `{"a":"0x10"}`, nil, []string{`/a: expected integer, found string "0x10"`}},
		{"leading zero", add, `{"a":"007"}`, `{"a":"007"}`, nil, []string{`/a: expected integer, found string "007"`}},
		{"text", add, `{"a":"abc"}`, `{"a":"abc"}`, nil, []string{`/a: expected integer, found string "abc"`}},
		{"number too large for anybody", `{"properties":{"n":{"type":"number"}}}`, `{"n":"1e999"}`, `{"n":"1e999"}`, nil,
			[]string{`/n: expected number, found string "1e999"`}},
		{"number", `{"properties":{"n":{"type":"number"}}}`, `{"n":"-1.50"}`, `{"n":-1.50}`, []string{`/n: "-1.50" → -1.50`}, nil},
		{"boolean", `{"properties":{"f":{"type":"boolean"}}}`, `{"f":"true"}`, `{"f":true}`, []string{`/f: "true" → true`}, nil},
		{"no boolean", `{"properties":{"f":{"type":"boolean"}}}`, `{"f":"yes"}`, `{"f":"yes"}`, nil,
			[]string{`/f: expected boolean, found string "yes"`}},
		{"no boolean either", `{"properties":{"f":{"type":"boolean"}}}`, `{"f":1}`, `{"f":1}`, nil,
			[]string{`/f: expected boolean, found number 1`}},
		{"number for a string", `{"properties":{"s":{"type":"string"}}}`, `{"s":1.0}`, `{"s":"1.0"}`, []string{`/s: 1.0 → "1.0"`}, nil},
		{"boolean for a string", `{"properties":{"s":{"type":"string"}}}`, `{"s":false}`, `{"s":"false"}`, []string{`/s: false → "false"`}, nil},
		{"number where more than strings fit", `{"properties":{"s":{"type":["string","array"]}}}`, `{"s":1}`, `{"s":1}`, nil,
			[]string{`/s: expected string or array, found number 1`}},
		{"object in a string", `{"properties":{"user":{"type":"object","properties":{"n":{"type":"integer"}}}}}`,
			`{"user":"{\"n\":1}"}`, `{"user":{"n":1}}`, []string{`/user: "{\"n\":1}" → {"n":1}`}, nil},
		{"and in it a number in a string", `{"properties":{"user":{"type":"object","properties":{"n":{"type":"integer"}}}}}`,
			`{"user":"{\"n\":\"1\"}"}`, `{"user":{"n":1}}`, []string{`/user: "{\"n\":\"1\"}" → {"n":"1"}`, `/user/n: "1" → 1`}, nil},
		{"JSON in a string where a string is due", `{"properties":{"s":{"type":"string"}}}`, `{"s":"{\"n\":1}"}`, `{"s":"{\"n\":1}"}`, nil, nil},
		{"array in a string", `{"properties":{"l":{"type":"array","items":{"type":"string"}}}}`, `{"l":"[\"a\"]"}`, `{"l":["a"]}`,
			[]string{`/l: "[\"a\"]" → ["a"]`}, nil},
		{"a single value for a list", `{"properties":{"l":{"type":"array","items":{"type":"string"}}}}`, `{"l":"a"}`, `{"l":["a"]}`,
			[]string{`/l: "a" → ["a"]`}, nil},
		{"a single value that the list doesn't take", `{"properties":{"l":{"type":"array","items":{"type":"string"}}}}`, `{"l":5}`, `{"l":5}`, nil,
			[]string{`/l: expected array, found number 5`}},
		{"in a list", `{"properties":{"l":{"type":"array","items":{"type":"integer"}}}}`, `{"l":[1, "2"]}`, `{"l":[1, 2]}`, []string{`/l/1: "2" → 2`}, nil},
		{"null for what can be left out", add, `{"a":1, "b":null}`, `{"a":1}`, []string{`/b: null → absent`}, nil},
		{"null first", add, `{ "b":null, "a":1}`, `{ "a":1}`, []string{`/b: null → absent`}, nil},
		{"null for what is needed", add, `{"a":null}`, `{"a":null}`, nil, []string{`/a: expected integer, found null`}},
		{"null beside what is missing", `{"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`, `{"b":null}`, `{"b":null}`, nil,
			[]string{`/b: expected integer, found null`, `: missing required property "a"`}},
		{"null in a list", `{"properties":{"l":{"type":"array","items":{"type":"integer"}}}}`, `{"l":[1,null]}`, `{"l":[1,null]}`, nil,
			[]string{`/l/1: expected integer, found null`}},
		{"null that is allowed", `{"properties":{"b":{"type":["integer","null"]}}}`, `{"b":null}`, `{"b":null}`, nil, nil},
		{"nullable as in OpenAPI", `{"properties":{"b":{"type":"string","nullable":true,"enum":["x"]}}}`, `{"b":null}`, `{"b":null}`, nil, nil},
		{"one of several types", `{"properties":{"v":{"anyOf":[{"type":"integer"},{"type":"boolean"}]}}}`, `{"v":"5"}`, `{"v":5}`, []string{`/v: "5" → 5`}, nil},
		{"two ways to read it are none", `{"properties":{"v":{"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"string"}}]}}}`, `{"v":"5"}`, `{"v":"5"}`, nil,
			[]string{`/v: expected integer or array, found string "5"`}},
		{"mended, and still wrong", `{"properties":{"a":{"type":"integer","maximum":3}}}`, `{"a":"5"}`, `{"a":5}`, []string{`/a: "5" → 5`},
			[]string{`/a: maximum: got 5, want 3`}},
		{"mended beside what is wrong", add, `{"b":"5"}`, `{"b":5}`, []string{`/b: "5" → 5`}, []string{`: missing required property "a"`}},
		{"strange keys", `{"additionalProperties":{"type":"integer"}}`, `{"a/b~c":"1","\u00e9":"2"}`, `{"a/b~c":1,"\u00e9":2}`,
			[]string{`/a~1b~0c: "1" → 1`, `/é: "2" → 2`}, nil},
		{"a repeated key", `{"properties":{"a":{"type":"integer"}}}`, `{"a":1,"a":"2"}`, `{"a":1,"a":2}`, []string{`/a: "2" → 2`}, nil},

		// violations
		{"unexpected", `{"properties":{"repo":{},"owner":{}},"additionalProperties":false}`, `{"repository":1,"zzz":2}`, `{"repository":1,"zzz":2}`, nil,
			[]string{`/repository: unexpected property "repository" (did you mean "repo"?)`, `/zzz: unexpected property "zzz" (there are repo, owner)`}},
		{"unevaluated", `{"properties":{"repo":{}},"unevaluatedProperties":false}`, `{"repos":1}`, `{"repos":1}`, nil,
			[]string{`/repos: unexpected property "repos" (did you mean "repo"?)`}},
		{"missing, something like it given", `{"properties":{"file_path":{}},"required":["file_path"]}`, `{"filePath":1}`, `{"filePath":1}`, nil,
			[]string{`: missing required property "file_path" ("filePath" is given)`}},
		{"enum", `{"properties":{"s":{"enum":["open","closed",1]}}}`, `{"s":"opened"}`, `{"s":"opened"}`, nil,
			[]string{`/s: expected one of "open", "closed", 1, found string "opened"`}},
		{"const", `{"properties":{"s":{"const":"x"}}}`, `{"s":"y"}`, `{"s":"y"}`, nil, []string{`/s: expected "x", found string "y"`}},
		{"the alternative that is meant", `{"properties":{"v":{"anyOf":[{"type":"string"},{"type":"object","required":["x"]}]}}}`, `{"v":{}}`, `{"v":{}}`, nil,
			[]string{`/v: missing required property "x"`}},
		{"none of the alternatives", `{"properties":{"v":{"oneOf":[{"type":"object","required":["x"]},{"type":"object","required":["y"]}]}}}`, `{"v":{}}`, `{"v":{}}`, nil,
			[]string{`/v: object fits none of the 2 alternatives`}},
		{"two of the alternatives", `{"properties":{"v":{"oneOf":[{"type":"object"},{"minProperties":0}]}}}`, `{"v":{}}`, `{"v":{}}`, nil,
			[]string{`/v: fits alternatives 1 and 2 of oneOf, may fit only one`}},
		{"deep down", `{"properties":{"a":{"type":"array","items":{"type":"object","properties":{"b":{"minLength":2}}}}}}`, `{"a":[{},{"b":"x"}]}`, `{"a":[{},{"b":"x"}]}`, nil,
			[]string{`/a/1/b: minLength: got 1, want 2`}},
		{"formats are not asserted", `{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"m":{"type":"string","format":"email"}}}`, `{"m":"x"}`, `{"m":"x"}`, nil, nil},
		{"a property called format", `{"properties":{"format":{"type":"integer"}}}`, `{"format":"x"}`, `{"format":"x"}`, nil,
			[]string{`/format: expected integer, found string "x"`}},

		// dialects and what is tolerated
		{"references are followed", `{"$defs":{"Q":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}},"properties":{"query":{"$ref":"#/$defs/Q"}},"required":["query"]}`,
			`{"query":{}}`, `{"query":{}}`, nil, []string{`/query: missing required property "text"`}},
		{"what is referred to is mended too", `{"definitions":{"N":{"type":"integer"}},"properties":{"n":{"$ref":"#/definitions/N"}}}`, `{"n":"1"}`, `{"n":1}`, []string{`/n: "1" → 1`}, nil},
		{"draft-07 with $defs", `{"$schema":"http://json-schema.org/draft-07/schema#","$defs":{"N":{"type":"integer"}},"properties":{"n":{"$ref":"#/$defs/N"}}}`,
			`{"n":true}`, `{"n":true}`, nil, []string{`/n: expected integer, found boolean true`}},
		{"reference to a property", `{"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a"}}}`, `{"b":true}`, `{"b":true}`, nil,
			[]string{`/b: expected integer, found boolean true`}},
		{"reference to an unknown keyword", `{"components":{"schemas":{"N":{"type":"integer","format":"int32"}}},"properties":{"n":{"$ref":"#/components/schemas/N"}}}`, `{"n":"1"}`, `{"n":1}`, []string{`/n: "1" → 1`}, nil},
		{"recursive", `{"properties":{"sub":{"$ref":"#"},"n":{"type":"integer"}}}`, `{"sub":{"sub":{"n":"x"}}}`, `{"sub":{"sub":{"n":"x"}}}`, nil,
			[]string{`/sub/sub/n: expected integer, found string "x"`}},
		{"$id", `{"$id":"https://example.com/tool","$defs":{"N":{"type":"integer"}},"properties":{"n":{"$ref":"https://example.com/tool#/$defs/N"}}}`, `{"n":"1"}`, `{"n":1}`, []string{`/n: "1" → 1`}, nil},
		{"required: null", `{"type":"object","properties":{"q":{"type":"integer"}},"required":null}`, `{"q":"1"}`, `{"q":1}`, []string{`/q: "1" → 1`}, nil},
		{"required: true of draft-03", `{"properties":{"q":{"type":"integer","required":true}}}`, `{}`, `{}`, nil, nil},
		{"unknown types", `{"properties":{"q":{"type":"any"},"r":{"type":"integer"}}}`, `{"q":1,"r":"2"}`, `{"q":1,"r":2}`, []string{`/r: "2" → 2`}, nil},
		{"boolean schemas", `{"properties":{"q":true,"r":false}}`, `{"q":1,"r":2}`, `{"q":1,"r":2}`, nil, []string{`/r: nothing is allowed here, found number 2`}},
		{"tuples of draft-07 without $schema", `{"properties":{"l":{"type":"array","items":[{"type":"integer"}]}}}`, `{"l":["1"]}`, `{"l":[1]}`, []string{`/l/0: "1" → 1`}, nil},
		{"tuples of 2020-12", `{"properties":{"l":{"type":"array","prefixItems":[{"type":"integer"}]}}}`, `{"l":["1"]}`, `{"l":[1]}`, []string{`/l/0: "1" → 1`}, nil},
		{"exclusiveMinimum of draft-04", `{"properties":{"n":{"minimum":1,"exclusiveMinimum":true}}}`, `{"n":1}`, `{"n":1}`, nil, []string{`/n: exclusiveMinimum: got 1, want 1`}},
		{"draft 2019-09", `{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"n":{"type":"integer"}}}`, `{"n":"1"}`, `{"n":1}`, []string{`/n: "1" → 1`}, nil},
		{"draft-06", `{"$schema":"http://json-schema.org/draft-06/schema","properties":{"n":{"type":"integer"}}}`, `{"n":"1"}`, `{"n":1}`, []string{`/n: "1" → 1`}, nil},
		{"draft-04", `{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"n":{"type":"integer"}}}`, `{"n":"1"}`, `{"n":1}`, []string{`/n: "1" → 1`}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newChecker()
			for range 2 { // the second time from the cache
				out, mended, violations, warning := c.check("h", json.RawMessage(tt.schema), json.RawMessage(tt.args))
				if string(out) != tt.out || warning != "" {
					t.Errorf("got %s, warning %q; want %s", out, warning, tt.out)
				}
				if got, want := fmt.Sprintf("%q", mendWords(mended)), fmt.Sprintf("%q", tt.mended); got != want {
					t.Errorf("mends:\n got %s\nwant %s", got, want)
				}
				got := wrongWords(violations)
				if len(got) != len(tt.violations) {
					t.Fatalf("violations:\n got %q\nwant %q", got, tt.violations)
				}
				for _, want := range tt.violations {
					if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
						t.Errorf("violations:\n got %q\nwant %q", got, tt.violations)
					}
				}
			}
		})
	}
}

// The schema part is what was broken, as the server wrote it.
func TestViolationSchema(t *testing.T) {
	long := strings.Repeat("long ", 200)
	for _, tt := range []struct{ schema, args, want string }{
		{`{"properties":{"a":{"type":"integer","format":"int32","description":"d"}}}`, `{"a":true}`, `{"type":"integer","format":"int32","description":"d"}`},
		{`{"properties":{"a":{"enum":[1,2],"description":"` + long + `"}}}`, `{"a":3}`, `{"enum":[1,2]}`},
		{`{"required":["x","y"],"description":"` + long + `"}`, `{"x":1}`, `{"required":["x","y"]}`},
		{`{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, `{"a":true}`, `{"anyOf":[{"type":"integer"},{"type":"null"}]}`},
		{`{"$defs":{"a b":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/a%20b"}}}`, `{"a":true}`, `{"type":"integer"}`},
	} {
		_, _, violations, _ := newChecker().check("", json.RawMessage(tt.schema), json.RawMessage(tt.args))
		if len(violations) != 1 || string(violations[0].Schema) != tt.want {
			t.Errorf("%s: got %s, want %s", tt.schema, mustJSON(compact(violations)), tt.want)
		}
	}
}

func mustJSON(raw json.RawMessage, err error) json.RawMessage {
	if err != nil {
		panic(err)
	}
	return raw
}

func TestViolationsAreBounded(t *testing.T) {
	schema := json.RawMessage(`{"additionalProperties":{"type":"integer","description":"` + strings.Repeat("x", 5000) + `"}}`)
	args := "{"
	for i := range 1000 {
		args += fmt.Sprintf(`"key%d":"%s",`, i, strings.Repeat("v", 500))
	}
	args = strings.TrimSuffix(args, ",") + "}"
	_, _, violations, _ := newChecker().check("", schema, json.RawMessage(args))
	if raw := mustJSON(compact(violations)); len(violations) != maxViolations || len(raw) > 8*1000 {
		t.Errorf("got %d violations of %d bytes, want %d of at most 8000", len(violations), len(raw), maxViolations)
	}
}

func TestUnchecked(t *testing.T) {
	deep := strings.Repeat(`{"allOf":[`, 3000) + `{}` + strings.Repeat(`]}`, 3000)
	var chain, deps strings.Builder // 2^40 ways through
	for i := range 40 {
		fmt.Fprintf(&chain, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
		fmt.Fprintf(&deps, `"d%d":{"dependentSchemas":{"p":{"$ref":"#/$defs/d%d"},"q":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	list := strings.Join(many, ",")
	for _, tt := range []struct{ name, schema, args, warning string }{
		{"reference to elsewhere", `{"$ref":"https://example.com/schema.json"}`, `{"a":1}`, "can't be compiled"},
		{"reference to a file", `{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, `{"a":1}`, "can't be compiled"},
		{"reference to a relative file", `{"properties":{"a":{"$ref":"other.json#/x"}}}`, `{"a":1}`, "can't be compiled"},
		{"unknown dialect", `{"$schema":"https://example.com/dialect","type":"object"}`, `{"a":1}`, "can't be compiled"},
		{"bad expression", `{"properties":{"a":{"pattern":"(?!x)"}}}`, `{"a":"1"}`, "can't be compiled"},
		{"dangling reference", `{"properties":{"a":{"$ref":"#/$defs/none"}}}`, `{"a":1}`, "can't be compiled"},
		{"not a schema", `{"properties":5}`, `{"a":1}`, "can't be compiled"},
		{"not JSON", `{"properties":`, `{"a":1}`, "can't be compiled"},
		{"large schema", `{"description":"` + strings.Repeat("x", maxSchemaSize) + `"}`, `{"a":1}`, "over 1048576 bytes"},
		{"large arguments", `{"type":"object"}`, `{"a":"` + strings.Repeat("x", maxArguments) + `"}`, "over 8388608 bytes"},
		{"number of astronomic size", `{"properties":{"a":{"type":"integer","maximum":5}}}`, `{"a":1e1000000000}`, "too large"},
		{"exponential", `{"$defs":{` + chain.String() + `"d40":{"type":"object"}},"$ref":"#/$defs/d0"}`, `{"a":1}`, "too many steps"},
		{"exponential in dependencies", `{"$defs":{` + deps.String() + `"d40":{"type":"string"}},"not":{"$ref":"#/$defs/d0"}}`, `{"p":1,"q":1}`, "too many steps"},
		{"endless enum", `{"properties":{"a":{"items":{"enum":[` + list + `]}}}}`, `{"a":[` + list + `]}`, "too many steps"},
		{"slow expression", `{"properties":{"a":{"pattern":"(x{1,30}){1,30}y"}}}`, `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, "too many steps"},
		{"very deep", deep, `{"a":1}`, "too many levels"},
		{"reference to itself", `{"$ref":"#"}`, `{"a":1}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newChecker()
			start := time.Now()
			out, mended, violations, warning := c.check("h", json.RawMessage(tt.schema), json.RawMessage(tt.args))
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if !strings.Contains(warning, tt.warning) || tt.warning != "" && (violations != nil || mended != nil || string(out) != tt.args) {
				t.Errorf("got %d bytes, %v, %v, warning %q; want the arguments and %q", len(out), mended, wrongWords(violations), warning, tt.warning)
			}
			if len(warning) > 500 {
				t.Errorf("a warning of %d bytes", len(warning))
			}
		})
	}
}

func TestLongMendsAreShownCut(t *testing.T) {
	args := `{"o":"{\"text\":\"` + strings.Repeat("é", 5000) + `\"}"}`
	out, mended, violations, _ := newChecker().check("", json.RawMessage(`{"properties":{"o":{"type":"object"}}}`), json.RawMessage(args))
	if len(mended) != 1 || violations != nil || len(out) < 10000 {
		t.Fatalf("got %d bytes, %v, %v", len(out), mended, violations)
	}
	if raw := mustJSON(compact(mended)); len(raw) > 700 || !jsonrpc.Valid(raw) {
		t.Errorf("got %s", raw)
	}
}

func TestCheckerIsBoundedAndConcurrent(t *testing.T) {
	c := newChecker()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 3 * maxCompiled / 2 {
				n := (i*7 + w) % (2 * maxCompiled)
				schema := fmt.Appendf(nil, `{"properties":{"a":{"type":"integer","maximum":%d}}}`, n)
				out, _, violations, warning := c.check(fmt.Sprint(n), schema, fmt.Appendf(nil, `{"a":"%d"}`, n))
				if want := fmt.Sprintf(`{"a":%d}`, n); string(out) != want || violations != nil || warning != "" {
					t.Errorf("got %s, %v, %q; want %s", out, violations, warning, want)
				}
			}
		})
	}
	wg.Wait()
	if n := len(c.compiled); n > maxCompiled {
		t.Errorf("%d schemas are kept, want at most %d", n, maxCompiled)
	}
}

// Mended or not, what comes out is an object of the same meaning, or is refused.
func FuzzCheck(f *testing.F) {
	f.Add(`{"properties":{"a":{"type":"integer"},"l":{"type":"array"},"o":{"type":"object"}},"required":["a"]}`, `{"a":"1","l":"x","o":"{}"}`)
	f.Add(`{"properties":{"a":{"$ref":"#/properties/a"}}}`, `{"a":null}`)
	f.Add(`{"items":[{}],"nullable":true,"type":["x"],"enum":null}`, `"{}"`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		if !jsonrpc.Valid([]byte(schema)) || len(args) > 10_000 || len(schema) > 10_000 {
			return
		}
		out, mended, violations, _ := newChecker().check("", json.RawMessage(schema), json.RawMessage(args))
		switch {
		case len(violations) == 0 && (!jsonrpc.Valid(out) || kindOf([]byte(strings.TrimSpace(string(out)))) != "object"):
			t.Errorf("%s for %s: passed as %s", args, schema, out)
		case len(violations) == 0 && mended == nil && string(out) != args && string(out) != "{}":
			t.Errorf("%s for %s: changed to %s without a word", args, schema, out)
		}
		if raw := mustJSON(compact(violations)); !jsonrpc.Valid(raw) {
			t.Errorf("%s for %s: violations are no JSON: %s", args, schema, raw)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	schema := json.RawMessage(`{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"title":{"type":"string"},
		"labels":{"type":"array","items":{"type":"string"}},"draft":{"type":"boolean"}},"required":["owner","repo"],"additionalProperties":false}`)
	small := json.RawMessage(`{"owner":"octocat","repo":"hello-world","title":"Fix the greeting","labels":["bug","small"],"draft":true}`)
	large := json.RawMessage(`{"owner":"octocat","repo":"hello-world","labels":["` + strings.Repeat(`a label of some length","`, 420) + `x"]}`)
	for _, args := range []json.RawMessage{small, large} {
		b.Run(fmt.Sprintf("%dB", len(args)), func(b *testing.B) {
			c := newChecker()
			for b.Loop() {
				if _, _, violations, warning := c.check("h", schema, args); violations != nil || warning != "" {
					b.Fatal(violations, warning)
				}
			}
		})
	}
}
