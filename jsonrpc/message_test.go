package jsonrpc

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, in string
		want     Message
	}{
		{"request keeps the id as written", `{"jsonrpc":"2.0","id":9007199254740993,"method":"tools/call","params":{"a": 1.0}}`,
			Message{ID: raw("9007199254740993"), Method: "tools/call", Params: raw(`{"a": 1.0}`)}},
		{"string id", `{"id":"1","method":"ping"}`, Message{ID: raw(`"1"`), Method: "ping"}},
		{"notification", ` {"method":"notifications/initialized"} `, Message{Method: "notifications/initialized"}},
		{"error null is success", `{"id":1,"result":{},"error":null}`, Message{ID: raw("1"), Result: raw("{}")}},
		{"result null", `{"id":1,"result":null}`, Message{ID: raw("1"), Result: raw("null")}},
		{"error", `{"id":1,"error":{"code":-32099,"message":"m","data":[1]}}`, Message{ID: raw("1"), Error: raw(`{"code":-32099,"message":"m","data":[1]}`)}},
		{"escaped key", `{"\u0069d":7,"method":"a\u002fb"}`, Message{ID: raw("7"), Method: "a/b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.in))
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, in := range []string{`[{"id":1}]`} {
		if _, err := Parse([]byte(in)); !errors.Is(err, ErrBatch) {
			t.Errorf("%s: got %v, want ErrBatch", in, err)
		}
	}
	for _, in := range []string{`{"foo":1}`, `123`, `"x"`, `null`, `{"id":1}`, `{"id":null,"method":5}`} {
		if _, err := Parse([]byte(in)); !errors.Is(err, ErrNotMessage) {
			t.Errorf("%s: got %v, want ErrNotMessage", in, err)
		}
	}
	for _, in := range []string{``, `Server running`, `{"id":1,"result":{}`, `{"id":1,"result":{}}x`, "{\"id\":1,\"result\":\"a\nb\"}",
		`{"result":01}`, `{"result":[1,]}`, `{"result":"\x"}`, `{"result":"\u12"}`, `{"result":tru}`, `{"result":1.}`, `{"result":1e}`, `{,}`} {
		var se *SyntaxError
		if _, err := Parse([]byte(in)); !errors.As(err, &se) {
			t.Errorf("%q: got %v, want a SyntaxError", in, err)
		}
	}
	if _, err := Parse([]byte(`{"result":` + strings.Repeat("[", 1<<20))); err == nil {
		t.Error("a million brackets were accepted")
	}
}

// What the scanner accepts is what encoding/json accepts.
func FuzzValid(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,"\u00e9\n",true,false,null]}`, `"abcdefgh\"ijklmnop"`, `{"a":}`, "\"\x01\"", `-`, `01`, `1.e3`, `[]]`, ` {} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := Valid(b), json.Valid(b); got != want {
			t.Errorf("Valid(%q) = %v, encoding/json says %v", b, got, want)
		}
	})
}

func TestBatch(t *testing.T) {
	msgs, errs, err := ParseBatch([]byte(`[{"id":1,"method":"a"},7,{"method":"b"}]`))
	if err != nil || len(msgs) != 3 || msgs[0].Method != "a" || msgs[2].Method != "b" || errs[1] == nil || len(errs) != 1 {
		t.Errorf("got %v %v %v", msgs, errs, err)
	}
}

func TestAppend(t *testing.T) {
	for got, want := range map[string]string{
		string(AppendRequest(nil, raw("1"), "a", raw("{}"))):                             `{"jsonrpc":"2.0","id":1,"method":"a","params":{}}`,
		string(AppendRequest(nil, nil, "n", nil)):                                        `{"jsonrpc":"2.0","method":"n"}`,
		string(AppendResult(nil, raw(`"x"`), raw("{}"))):                                 `{"jsonrpc":"2.0","id":"x","result":{}}`,
		string(AppendError(nil, nil, &Error{Code: -1, Message: `<"`, Data: raw("[1]")})): `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"<\"","data":[1]}}`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMembers(t *testing.T) {
	obj := raw(`{"a":{"b":[1, 2]},"c":null,"a2":"x"}`)
	if got := string(Member(obj, "a", "b")); got != "[1, 2]" {
		t.Errorf("got %s", got)
	}
	if got := Member(obj, "a", "x"); got != nil {
		t.Errorf("got %s", got)
	}
	for _, tt := range []struct{ obj, key, val, want string }{
		{`{"a":1, "b":{"x":2}}`, "b", `3`, `{"a":1, "b":3}`},
		{`{"a":1}`, "b", `"v"`, `{"a":1,"b":"v"}`},
		{`{ }`, "b", `2`, `{"b":2}`},
		{``, "b", `2`, `{"b":2}`},
		{`null`, "b", `2`, `{"b":2}`},
		{`5`, "b", `2`, `{"b":2}`},
		{`[1,2]`, "b", `2`, `{"b":2}`},
		{`"s"`, "b", `2`, `{"b":2}`},
	} {
		if got := string(SetMember(raw(tt.obj), tt.key, raw(tt.val))); got != tt.want {
			t.Errorf("SetMember(%s): got %s, want %s", tt.obj, got, tt.want)
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	l := NewLines(strings.NewReader("a\r\n\n"+long+"\nlast"), 1<<20)
	for _, want := range []string{"a", long, "last"} {
		if got, err := l.ReadLine(); string(got) != want || err != nil {
			t.Fatalf("got %d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	if _, err := l.ReadLine(); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
	if _, err := NewLines(strings.NewReader(long), 100<<10).ReadLine(); !errors.Is(err, ErrLineTooLong) {
		t.Errorf("got %v, want ErrLineTooLong", err)
	}
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }
