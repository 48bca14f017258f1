package proxy

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// What every agent carries in every conversation: three tools in under 2,400 bytes, without root combinators or output schemas.
func TestThreeSmallTools(t *testing.T) {
	list := metaTools()
	if len(list) >= 2400 || !jsonrpc.Valid(list) {
		t.Errorf("tools/list is %d bytes, want under 2,400 of valid JSON", len(list))
	}
	var got struct {
		Tools []struct {
			Name         string
			InputSchema  map[string]any
			OutputSchema any
			Meta         map[string]any `json:"_meta"`
		}
	}
	if err := json.Unmarshal(list, &got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range got.Tools {
		names = append(names, tool.Name)
		if tool.Meta["anthropic/alwaysLoad"] != true || tool.InputSchema["type"] != "object" || tool.OutputSchema != nil ||
			tool.InputSchema["anyOf"] != nil || tool.InputSchema["oneOf"] != nil || tool.InputSchema["allOf"] != nil {
			t.Errorf("%s: got %v", tool.Name, tool)
		}
	}
	if got := strings.Join(names, " "); got != "search_tools describe_tool call_tool" {
		t.Errorf("got %s", got)
	}
	t.Logf("tools/list: %d bytes", len(list))
}

func TestDecode(t *testing.T) {
	type in struct {
		Query string   `json:"query" required:"1"`
		Also  []string `json:"also" required:"1"`
		Limit int      `json:"limit" range:"1,20"`
		Risk  string   `json:"risk" enum:"read,write"`
		Count bool     `json:"count"`
		Tail  *int64   `json:"tail"`
	}
	a := do("act", "read", func(*Gateway, context.Context, *request, in) (any, error) { return nil, nil })
	tests := []struct{ name, raw, want, wrong string }{
		{"plain", `{"query":"a","also":["b"],"limit":3,"count":true,"tail":7}`, `{"query":"a","also":["b"],"limit":3,"risk":"","count":true,"tail":7}`, ""},
		{"also may be absent", `{"query":"a"}`, `{"query":"a","also":null,"limit":0,"risk":"","count":false,"tail":null}`, ""},
		{"one phrasing in a string", `{"query":"a","also":"b"}`, `{"query":"a","also":["b"],"limit":0,"risk":"","count":false,"tail":null}`, ""},
		{"a list in a string", `{"query":"a","also":"[\"b\",\"c\"]"}`, `{"query":"a","also":["b","c"],"limit":0,"risk":"","count":false,"tail":null}`, ""},
		{"numbers in strings, out of range", `{"query":"a","limit":"99","count":"true"}`, `{"query":"a","also":null,"limit":20,"risk":"","count":true,"tail":null}`, ""},
		{"the whole input in a string", `"{\"query\":\"a\"}"`, `{"query":"a","also":null,"limit":0,"risk":"","count":false,"tail":null}`, ""},
		{"null fields", `{"query":"a","risk":null}`, `{"query":"a","also":null,"limit":0,"risk":"","count":false,"tail":null}`, ""},
		{"missing", `{}`, "", `act needs "query"`},
		{"absent", ``, "", `act needs "query"`},
		{"unknown field", `{"query":"a","foo":1}`, "", `act has no field "foo"`},
		{"not in the enum", `{"query":"a","risk":"bad"}`, "", `"risk" is "bad"; it can be read, write`},
		{"wrong type", `{"query":5}`, "", `act: "query" is 5, not string`},
		{"a fraction", `{"query":"a","limit":1.5}`, "", `"limit" is 1.5, not integer`},
		{"no object", `[1]`, "", `act takes a JSON object`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got in
			err := decode(&a, json.RawMessage(tt.raw), &got)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) || !strings.Contains(err.Error(), "act {query: string") && !strings.Contains(tt.wrong, `"`) {
					t.Errorf("got %v, want %s", err, tt.wrong)
				}
				return
			}
			if raw, _ := json.Marshal(got); err != nil || string(raw) != tt.want {
				t.Errorf("got %s, %v; want %s", raw, err, tt.want)
			}
		})
	}
}

func TestJournal(t *testing.T) {
	j := newJournal()
	_, _, more := j.Since(0)
	for range journalSize + 10 {
		j.add(Event{Kind: CallEnd, Server: "a", Call: &CallInfo{Server: "a"}})
	}
	<-more
	events, reset, _ := j.Since(5)
	if !reset || len(events) != journalSize || events[0].Seq != 11 || events[len(events)-1].Seq != journalSize+10 {
		t.Errorf("got %d events from %d, reset %v", len(events), events[0].Seq, reset)
	}
	if events, reset, _ = j.Since(journalSize + 8); reset || len(events) != 2 {
		t.Errorf("got %d events, reset %v; want 2 and none", len(events), reset)
	}
	if _, reset, _ = j.Since(1 << 40); !reset {
		t.Error("a number from the future is no reset")
	}
	if got := len(j.Recent("a", 1000)); got != recentSize {
		t.Errorf("got %d recent calls, want %d", got, recentSize)
	}
	if got := len(j.Recent("b", 10)); got != 0 {
		t.Errorf("got %d calls of a server that had none", got)
	}
}

func TestCompactSchema(t *testing.T) {
	long := strings.Repeat("word ", 4000)
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","description":"` + long + `"},"deep":{"type":"object","properties":{"x":{"type":"object","properties":{"y":{"type":"object","properties":{"z":{"type":"string"}}}}}}}},"required":["a"]}`)
	got := compactSchema(schema, 2000)
	if len(got) > 2000 || !jsonrpc.Valid(got) || string(jsonrpc.Member(got, "required")) != `["a"]` ||
		string(jsonrpc.Member(got, "properties", "deep", "properties", "x", "properties", "y", "properties", "z", "type")) != `"string"` {
		t.Errorf("got %s", got)
	}
	if got := compactSchema(schema, 60); len(got) > 60 || !jsonrpc.Valid(got) {
		t.Errorf("got %s", got)
	}
}
