package index

import (
	"regexp"
	"strings"
	"testing"
)

var hashed = regexp.MustCompile(`^[a-z0-9_]*~[0-9a-f]{16}\.json$`)

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"order and space", ` {"b" : [ 1 , {"d":2,"c" :3} ] , "a":null}`, `{"a":null,"b":[1,{"c":3,"d":2}]}`},
		{"numbers as written", `[1.0,1e5,-0,12345678901234567890]`, `[1.0,1e5,-0,12345678901234567890]`},
		{"strings in their shortest form", `"\u0061\/\"\\\n\u0001\u007f<\u2028é"`, "\"a/\\\"\\\\\\n\\u0001\u007f<\u2028é\""},
		{"escaped keys", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{"repeated keys stay", `{"a":2,"b":0,"a":1}`, `{"a":2,"a":1,"b":0}`},
		{"UTF-16 order", "{\"\U0001F600\":1,\"\uFB33\":2}", "{\"\U0001F600\":1,\"\uFB33\":2}"},
		{"empty", `[{},[],""]`, `[{},[],""]`},
	} {
		raw := []byte(tt.in)
		for raw[0] == ' ' {
			raw = raw[1:]
		}
		if got := string(canonical(nil, raw, 0)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestFileName(t *testing.T) {
	seen := map[string]string{}
	for _, tt := range []struct{ id, want string }{
		{"github", "github.json"},
		{"a.b_c-1", "a.b_c-1.json"},
		{"GitHub", ""}, {"con", ""}, {"nul.x", ""}, {"..", ""}, {".x", ""}, {"a/b", ""}, {"../../etc/passwd", ""},
		{"häßlich", ""}, {"a~b", ""}, {"github ", ""}, {strings.Repeat("long", 30), ""},
	} {
		got := fileName(tt.id)
		if tt.want != "" && got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.id, got, tt.want)
		}
		if !plain.MatchString(got[:len(got)-len(fileEnd)]) && !hashed.MatchString(got) {
			t.Errorf("%q: got %q, no name for every system", tt.id, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q have the same file %s", tt.id, other, got)
		}
		seen[got] = tt.id
	}
}
