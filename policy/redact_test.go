package policy_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/policy"
)

func TestText(t *testing.T) {
	r := policy.NewRedactor([]string{"hunter22", "hunter22-and-more", "abc", "p@ss/w\"rd\\1", "  trimmed-value\n", "redact", "line one of the key\nline two of the key"})
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig-_x"
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"nothing to hide: 5 tokens, key=value, 12:30, a://b", "nothing to hide: 5 tokens, key=value, 12:30, a://b"},

		// known values and their forms
		{"x hunter22 y hunter22-and-more z", "x [redacted] y [redacted] z"},
		{"xhunter22y", "x[redacted]y"},
		{"abc is too short", "abc is too short"},
		{"trimmed-value", "[redacted]"},
		{"redacted", "redacted"},
		{"got line two of the key", "got [redacted]"},
		{url.QueryEscape("p@ss/w\"rd\\1"), "[redacted]"},
		{strings.ToLower(url.PathEscape("p@ss/w\"rd\\1")), "[redacted]"},
		{`p@ss/w\"rd\\1`, "[redacted]"},

		// shapes
		{"use ghp_abcdefghijklmnopqrstuvwxyz0123456789 now", "use [redacted] now"},
		{"github_pat_11ABCDEFG0abcdefghijkl", "[redacted]"},
		{"glpat-abcdefghijklmnop.", "[redacted]."},
		{"(xoxb-123456789012-abcdefgh)", "([redacted])"},
		{"sk-proj-abcdefghijklmnop1234", "[redacted]"},
		{"sk-ant-api03-abc_def", "[redacted]"},
		{"AKIAIOSFODNN7EXAMPLE", "[redacted]"},
		{"AIzaSyA1234567890abcdefghijklmnopqrstuv", "[redacted]"},
		{jwt + ", next", "[redacted], next"},
		{"npm_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted]"},
		{"npm_config_registry and hf_hub_download and sk-learn", "npm_config_registry and hf_hub_download and sk-learn"},
		{"pypi-AgEIcHlwaS5vcmcCJGFiY2RlZmdoaWprbG1ub3A", "[redacted]"},
		{"SG.abcdefghijklmnop.qrstuvwxyz", "[redacted]"},
		{"hf_abcdefghijklmnopqrstuvwx", "[redacted]"},
		{"dop_v1_0123456789abcdef0123456789abcdef", "[redacted]"},
		{"shpat_0123456789abcdef0123456789abcdef", "[redacted]"},
		{`first\nghp_abcdefghijklmnop`, `first\n[redacted]`},
		{"q=%22ghp_abcdefghijklmnop", "q=%22[redacted]"},
		{"curl -H 'Authorization: Bearer a1b2c3d4'", "curl -H 'Authorization: [redacted]'"},
		{"sent Bearer a1b2c3d4 to it", "sent Bearer [redacted] to it"},
		{"the bearer token is missing", "the bearer token is missing"},
		{`WWW-Authenticate: Bearer realm="x", error="invalid_token"`, `WWW-Authenticate: Bearer realm="x", error="invalid_token"`},
		{"Basic " + base64.StdEncoding.EncodeToString([]byte("me:my pass")), "Basic [redacted]"},
		{"Basic usage of the basic tools", "Basic usage of the basic tools"},
		{"a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted]\nb"},
		{"-----BEGIN PRIVATE KEY-----\nMIIE", "[redacted]"},
		{"-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----", "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----"},

		// URLs
		{"postgres://me:pw@db:5432/x?sslmode=require", "postgres://[redacted]@db:5432/x?sslmode=require"},
		{"https://tok3n@github.com/a/b", "https://[redacted]@github.com/a/b"},
		{"ssh://git@github.com/a/b", "ssh://git@github.com/a/b"},
		{"https://h/p?a=1&token=abcd&b=2", "https://h/p?a=1&token=[redacted]&b=2"},
		{"https://h/p?key=abcd#top", "https://h/p?key=[redacted]"},
		{"https://h/cb?code=abcd&state=x", "https://h/cb?code=[redacted]&state=x"},
		{"https://b/o?X-Amz-Signature=ab12&X-Amz-Date=1", "https://b/o?X-Amz-Signature=[redacted]&X-Amz-Date=1"},
		{"mail me@example.com", "mail me@example.com"},

		// pairs
		{"password=x1 user=me", "password=[redacted] user=me"},
		{"DB_PASSWORD=x1", "DB_PASSWORD=[redacted]"},
		{"PGPASSWORD='a b' psql", "PGPASSWORD='[redacted]' psql"},
		{"token: x1, kind: y", "token: [redacted], kind: y"},
		{"unexpected token: }", "unexpected token: }"},
		{"invalid token: expired", "invalid token: expired"},
		{"secret: x1", "secret: [redacted]"},
		{"api_key=x1;b=2", "api_key=[redacted];b=2"},
		{"X-Api-Key: x1", "X-Api-Key: [redacted]"},
		{"authorization: Digest a=b, c=d\nnext", "authorization: [redacted]\nnext"},
		{"Set-Cookie: a=b; c=d\nnext", "Set-Cookie: [redacted]\nnext"},
		{`{"client_secret": "x1", "b": 1}`, `{"client_secret": "[redacted]", "b": 1}`},
		{`'password' => 'x1'`, `'password' => '[redacted]'`},
		{`say "{\"token\":\"x1\",\"b\":1}"`, `say "{\"token\":\"[redacted]\",\"b\":1}"`},
		{`"{\"token\":\"x\\\"1\",\"b\":1}"`, `"{\"token\":\"[redacted]\",\"b\":1}"`},
		{`password="a\"b" c`, `password="[redacted]" c`},
		{"max_tokens: 5, token_count=7, page_token=abc", "max_tokens: 5, token_count=7, page_token=abc"},
		{"token=${env:TOKEN}", "token=${env:TOKEN}"},
		{"token=${TOKEN:-x1}", "token=[redacted]"},
		{"(password=x1)", "(password=[redacted])"},
		{"run --api-key x1 --verbose", "run --api-key [redacted] --verbose"},
		{"run --token --verbose", "run --token --verbose"},
		{"password=[redacted] b", "password=[redacted] b"},
	} {
		if got := r.Text(tt.in); got != tt.want {
			t.Errorf("%q\n got %q\nwant %q", tt.in, got, tt.want)
		}
	}
}

// In base64 a secret is hidden wherever it stands; what is left of it are the characters that it shares with others.
func TestTextBase64(t *testing.T) {
	secret := "correct horse battery"
	r := policy.NewRedactor([]string{secret})
	for _, before := range []string{"", "u", "us", "user:", "longer user:"} {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			in := enc.EncodeToString([]byte(before + secret + "!"))
			if got := r.Text(in); !strings.Contains(got, "[redacted]") || len(got) > len("[redacted]")+len(before)*4/3+6 {
				t.Errorf("%q before: got %s of %s", before, got, in)
			}
		}
	}
}

func TestNilRedactor(t *testing.T) {
	var r *policy.Redactor
	if got, want := r.Text("password=x1 hunter22"), "password=[redacted] hunter22"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := string(r.JSON(json.RawMessage(`{"token":"x"}`))), `{"token":"[redacted]"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestJSON(t *testing.T) {
	r := policy.NewRedactor([]string{"hunter22"})
	for _, tt := range []struct{ in, want string }{
		{`{"b":1.50,"a":[1e400,null,true],  "c":"x\u0041"}`, `{"b":1.50,"a":[1e400,null,true],  "c":"x\u0041"}`},
		{`{"password":"x","user":"me"}`, `{"password":"[redacted]","user":"me"}`},
		{`{"apiKey" : {"a":["}",1]}, "z":[]}`, `{"apiKey" : "[redacted]", "z":[]}`},
		{`{"credentials":[{"a":"b"}],"Cookie":"a=b"}`, `{"credentials":"[redacted]","Cookie":"[redacted]"}`},
		{`{"maxTokens":5,"token_count":7,"tokens":9,"token":3,"password":1234}`,
			`{"maxTokens":5,"token_count":7,"tokens":9,"token":3,"password":"[redacted]"}`},
		{`{"secret":null,"password":true,"token":""}`, `{"secret":null,"password":true,"token":""}`},
		{`{"a":"it is hunter\u00322 <b>"}`, `{"a":"it is [redacted] <b>"}`},
		{`{"hunter22":1}`, `{"[redacted]":1}`},
		{`["hunter22",["Bearer a1b2c3d4"]]`, `["[redacted]",["Bearer [redacted]"]]`},
		{`"hunter22"`, `"[redacted]"`},
		{`{"a":"{\"refresh_token\":\"x\"}"}`, `{"a":"{\"refresh_token\":\"[redacted]\"}"}`},
		{`not json: hunter22`, `"not json: [redacted]"`},
		{``, `""`},
		{` {"token":"a"} `, ` {"token":"[redacted]"} `},
	} {
		in := json.RawMessage(tt.in)
		if got := string(r.JSON(in)); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.in, got, tt.want)
		}
		if string(in) != tt.in {
			t.Errorf("%s: the input was changed to %s", tt.in, in)
		}
	}
}

// Text that is made to be slow costs a pass or two like any other.
func TestTextIsLinear(t *testing.T) {
	r := policy.NewRedactor([]string{"hunter22"})
	for _, unit := range []string{"password=", "token:", "-eyJ", "://", "sk-", "Bearer ", "basic ", "--key ", "-----BEGIN ", `"password":"`, `\"`, "password=${", "=", "password=["} {
		start := time.Now()
		r.Text(strings.Repeat(unit, 1<<20/len(unit)))
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("1 MiB of %q took %v", unit, took)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("q7Zr5WnBx2", "token=", " rest")
	f.Add("q7Zr5WnBx2", `{"password":"`, `"}`)
	f.Add("q7Zr5WnBx2", "https://u:", "@host/")
	f.Add("q7Zr5WnBx2", "Authorization: Bearer ", "\n")
	f.Add("pa ss\"wo\\rd\n1", "x\\", "\\u0041")
	f.Add("ünïcode-sécret", "\xff", "\x00")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		if len(secret) < 8 || strings.Contains("redacted", secret) || strings.ContainsAny(secret, "[]") || strings.TrimSpace(secret) == "" {
			return // such a value may come about by itself
		}
		r := policy.NewRedactor([]string{secret})
		if got := r.Text(before + secret + after); strings.Contains(got, secret) {
			t.Errorf("Text(%q + %q + %q) = %q", before, secret, after, got)
		}
		raw, _ := json.Marshal(map[string]any{before: []string{secret, before + secret + after}, "n": 1, "token": after, secret: 1})
		var back map[string]any
		got := r.JSON(raw)
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("JSON(%s) = %s: %v", raw, got, err)
		}
		for key, val := range back {
			for _, s := range append(strs(val), key) {
				if strings.Contains(s, secret) {
					t.Errorf("JSON(%s) = %s", raw, got)
				}
			}
		}
		if got := r.JSON([]byte(before + secret + after)); !json.Valid(got) {
			t.Errorf("JSON(%q) = %s, which is not JSON", before+secret+after, got)
		}
	})
}

func strs(v any) (out []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			out = append(out, strs(e)...)
		}
	}
	return out
}

func BenchmarkText(b *testing.B) {
	secrets := make([]string, 50)
	for i := range secrets {
		secrets[i] = strings.Repeat(string(rune('A'+i)), 4) + "secret-value-" + string(rune('a'+i%26))
	}
	r := policy.NewRedactor(secrets)
	text := strings.Repeat("2026-01-02T15:04:05Z INFO listing tools server=github count=42 took=12ms path=/a/b/c\n", 600)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r.Text(text)
	}
}
