package proxy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestSignature(t *testing.T) {
	for _, tt := range []struct{ name, schema, want string }{
		// input schemas of real servers (GitHub, filesystem, Slack, memory, Kubernetes), their descriptions left out
		{"create_issue", `{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"title":{"type":"string"},"body":{"type":"string"},"assignees":{"type":"array","items":{"type":"string"}},"milestone":{"type":"number"},"labels":{"type":"array","items":{"type":"string"}}},"required":["owner","repo","title"],"additionalProperties":false}`,
			`{owner: string, repo: string, title: string, body?: string, assignees?: string[], milestone?: number, labels?: string[]}`},
		{"list_issues", `{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"direction":{"type":"string","enum":["asc","desc"]},"labels":{"type":"array","items":{"type":"string"}},"page":{"type":"number"},"since":{"type":"string"},"sort":{"type":"string","enum":["created","updated","comments"]},"state":{"type":"string","enum":["open","closed","all"]}},"required":["owner","repo"]}`,
			`{owner: string, repo: string, direction?: "asc"|"desc", labels?: string[], page?: number, since?: string, sort?: "created"|"updated"|"comments", state?: "open"|"closed"|"all"}`},
		{"edit_file", `{"type":"object","properties":{"path":{"type":"string"},"edits":{"type":"array","items":{"type":"object","properties":{"oldText":{"type":"string"},"newText":{"type":"string"}},"required":["oldText","newText"]}},"dryRun":{"default":false,"type":"boolean"}},"required":["path","edits"]}`,
			`{path: string, edits: {oldText, newText}[], dryRun?: boolean}`},
		{"slack_post_message", `{"type":"object","properties":{"channel_id":{"type":"string"},"text":{"type":"string"}},"required":["channel_id","text"]}`,
			`{channel_id: string, text: string}`},

		// what schemas are made of
		{"nothing", ``, `{}`},
		{"null", `null`, `{}`},
		{"true", `true`, `{}`},
		{"no properties", `{"type":"object","properties":{}}`, `{}`},
		{"required first, else in their order", `{"properties":{"b":{},"z":{"type":"string"},"a":{}},"required":["a","z"]}`, `{z: string, a: any, b?: any}`},
		{"several types", `{"properties":{"a":{"type":["string","null","integer"]},"b":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"number"}},{"type":"null"}]}}}`,
			`{a?: string|integer, b?: string|number[]}`},
		{"lists of several types", `{"properties":{"a":{"type":"array","items":{"type":["string","integer"]}},"b":{"type":"array","items":{"enum":["x","y"]}}}}`,
			`{a?: (string|integer)[], b?: ("x"|"y")[]}`},
		{"lists of what is not said", `{"properties":{"a":{"type":"array"},"b":{"items":{}},"c":{"type":"array","items":[{"type":"string"}]}}}`,
			`{a?: array, b?: any[], c?: array}`},
		{"long enums", `{"properties":{"a":{"type":"string","enum":["1","2","3","4","5"]},"b":{"type":"string","enum":["` + strings.Repeat("long", 20) + `"]},"c":{"enum":[1,2,null]},"d":{"const":true}}}`,
			`{a?: "1"|"2"|"3"|"4"|…, b?: string, c?: 1|2, d?: true}`},
		{"objects", `{"properties":{"a":{"type":"object"},"b":{"type":"object","properties":{"x":{},"y":{}},"required":["x"]},"c":{"properties":{"1":{},"2":{},"3":{},"4":{},"5":{}}}}}`,
			`{a?: object, b?: {x, y?}, c?: object}`},
		{"references", `{"$defs":{"a b":{"type":"string"},"L":{"type":"array","items":{"$ref":"#/$defs/a%20b"}}},"definitions":{"x/y":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/L"},"b":{"$ref":"#/definitions/x~1y"},"c":{"$ref":"#/none"},"d":{"$ref":"other.json"}}}`,
			`{a?: string[], b?: integer, c?: any, d?: any}`},
		{"a reference to itself", `{"properties":{"a":{"$ref":"#/properties/a"},"b":{"type":"array","items":{"$ref":"#/properties/b"}}}}`,
			`{a?: any, b?: any[][][][]}`},
		{"properties behind a reference", `{"$ref":"#/$defs/Q","$defs":{"Q":{"properties":{"q":{"type":"string"}},"required":["q"]}}}`, `{q: string}`},
		{"properties of all parts", `{"allOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"b":{"type":"string"}},"required":["b"]}],"required":["a"]}`,
			`{a: string, b: string}`},
		{"one of several shapes", `{"oneOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{}}}]}`, `{a: string}|…`},
		{"strange names", `{"properties":{"a b":{"type":"string"},"q\"":{},"\u202ex\u0000":{},"":{}}}`, `{"a b"?: string, "q\""?: any, "\\u{202E}x\\u{0}"?: any, ""?: any}`},
		{"strange types", `{"properties":{"a":{"type":"file\u0007"},"b":{"type":5},"c":5}}`, `{a?: file\u{7}, b?: any, c?: any}`},
	} {
		if got := signature(json.RawMessage(tt.schema), 240); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

// Optional properties give way to required ones, types of required ones to their names.
func TestSignatureIsBounded(t *testing.T) {
	schema := func(required, optional int) json.RawMessage {
		props, names := []string{}, []string{}
		for i := range optional {
			props = append(props, fmt.Sprintf(`"optional_%d":{"type":"string","enum":["one","two","three"]}`, i))
		}
		for i := range required {
			props = append(props, fmt.Sprintf(`"required_%d":{"type":"string","enum":["one","two","three"]}`, i))
			names = append(names, fmt.Sprintf(`"required_%d"`, i))
		}
		return json.RawMessage(`{"properties":{` + strings.Join(props, ",") + `},"required":[` + strings.Join(names, ",") + `]}`)
	}
	for _, tt := range []struct {
		required, optional, max int
		want                    string
	}{
		{1, 1, 240, `{required_0: "one"|"two"|"three", optional_0?: "one"|"two"|"three"}`},
		{1, 9, 120, `{required_0: "one"|"two"|"three", optional_0?: string, optional_1?: string, optional_2?: string, …}`},
		{3, 9, 110, `{required_0: "one"|"two"|"three", required_1: "one"|"two"|"three", required_2: "one"|"two"|"three", …}`},
		{3, 9, 90, `{required_0: string, required_1: string, required_2: string, optional_0?: string, …}`},
		{4, 9, 100, `{required_0: string, required_1: string, required_2: string, required_3: string, …}`},
		{6, 9, 100, `{required_0, required_1, required_2, required_3, required_4, required_5, optional_0?, …}`},
		{20, 9, 100, `{required_0, required_1, required_2, required_3, required_4, required_5, required_6, …}`},
		{0, 9, 40, `{optional_0?: string, …}`},
		{1, 0, 10, `{…}`},
	} {
		got := signature(schema(tt.required, tt.optional), tt.max)
		if got != tt.want || len(got) > tt.max {
			t.Errorf("%d, %d in %d:\n got %s\nwant %s", tt.required, tt.optional, tt.max, got, tt.want)
		}
	}
}

func TestPlain(t *testing.T) {
	for _, tt := range []struct {
		in   string
		max  int
		want string
	}{
		{"", 10, ""},
		{"plain text", 10, "plain text"},
		{"plain text", 9, "plain …"},
		{" a\n\tb \r\n c\u00a0d\u2028e ", 99, "a b c d e"},
		{"\x1b[31mred\x1b[0m", 99, `\u{1B}[31mred\u{1B}[0m`},
		{"a\u202eb\u2066c\u200bd\u200de\ufefff\u00adg", 99, `a\u{202E}b\u{2066}c\u{200B}d\u{200D}e\u{FEFF}f\u{AD}g`},
		{"x\U000E0041\U000E0042", 99, `x\u{E0041}\u{E0042}`},
		{"x\U000E0100\u3164\u2800\ue000", 99, `x\u{E0100}\u{3164}\u{2800}\u{E000}`},
		{"a\x00b\x7f", 99, `a\u{0}b\u{7F}`},
		{"日本語 ✔️ 🎉", 99, "日本語 ✔️ 🎉"},
		{"日本語日本語", 10, "日本…"},
		{"abc\u202e", 10, "abc…"},
		{"abcdef\u202e", 10, "abcdef…"},
		{"abcd", 2, ""},
		{"a\xffb", 99, "a\ufffdb"},
	} {
		got := plain(tt.in, tt.max)
		if got != tt.want || len(got) > tt.max || !utf8.ValidString(got) {
			t.Errorf("plain(%q, %d): got %q, want %q", tt.in, tt.max, got, tt.want)
		}
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"two\n\tlines":            "two\n\tlines",
		"a\r\nb\rc":               "a\r\nb\\u{D}c",
		"a\u202eb\x1b[0m\u2028":   `a\u{202E}b\u{1B}[0m\u{2028}`,
		"tags \U000E0041 and é 🎉": `tags \u{E0041} and é 🎉`,
	} {
		if got := escape(in); got != want {
			t.Errorf("escape(%q): got %q, want %q", in, got, want)
		}
	}
}

// A schema that branches without end is cut short.
func TestSignatureIsQuick(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{"$ref":"#"},`, 1000), ",")
	start := time.Now()
	got := signature(json.RawMessage(`{"anyOf":[`+many+`],"properties":{"a":{"$ref":"#"},"b":{"oneOf":[`+many+`]}}}`), 240)
	if took := time.Since(start); took > 5*time.Second || len(got) > 240 {
		t.Errorf("got %s in %v", got, took)
	}
}

func FuzzSignature(f *testing.F) {
	f.Add(`{"properties":{"a":{"anyOf":[{"$ref":"#"}]}},"required":["a"]}`, 240)
	f.Add(`{"allOf":[{"$ref":"#"},{"oneOf":[{"properties":{"a":{"items":{"enum":[1]}}}}]}]}`, 20)
	f.Fuzz(func(t *testing.T, schema string, max int) {
		if max = max & 0xff; max < 10 || !json.Valid([]byte(schema)) {
			return
		}
		if got := signature(json.RawMessage(schema), max); len(got) > max || !utf8.ValidString(got) || strings.ContainsFunc(got, hidden) {
			t.Errorf("%s in %d: got %q of %d bytes", schema, max, got, len(got))
		}
	})
}

func BenchmarkSignature(b *testing.B) {
	schema := json.RawMessage(`{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"state":{"enum":["open","closed"]},
		"labels":{"type":"array","items":{"type":"string"}},"milestone":{"type":"number"}},"required":["owner","repo"]}`)
	for b.Loop() {
		signature(schema, 240)
	}
}
