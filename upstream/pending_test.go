package upstream

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

func TestRequestID(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want int64
		ok   bool
	}{
		{`3`, 3, true}, {`"3"`, 3, true}, {`3.0`, 3, true}, {`3e0`, 3, true}, {`9007199254740993`, 9007199254740993, true},
		{`3.5`, 0, false}, {`"3.0"`, 0, false}, {`"a"`, 0, false}, {`""`, 0, false}, {``, 0, false}, {`true`, 0, false},
		{`1e300`, 0, false}, {`{}`, 0, false},
	} {
		if got, ok := requestID(json.RawMessage(tt.raw)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: got %d, %v, want %d, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}

func TestPending(t *testing.T) {
	var p pending
	one, _ := p.add(1)
	two, _ := p.add(2)
	three, _ := p.add(3)
	p.drop(3)
	for _, tt := range []struct {
		id   string
		want bool
	}{{`"1"`, true}, {`1`, false}, {`3`, false}, {`4`, false}, {`"x"`, false}} {
		if got := p.settle(jsonrpc.Message{ID: json.RawMessage(tt.id), Result: json.RawMessage(`{}`)}); got != tt.want {
			t.Errorf("settle %s: got %v, want %v", tt.id, got, tt.want)
		}
	}
	if a := <-one; a.err != nil || string(a.m.ID) != `"1"` {
		t.Errorf("request 1 got %v", a)
	}
	lost := errors.New("lost")
	p.fail(lost)
	p.fail(errors.New("again"))
	if a := <-two; a.err != lost {
		t.Errorf("request 2 got %v, want %v", a.err, lost)
	}
	if len(three) != 0 {
		t.Error("a dropped request got an answer")
	}
	if _, err := p.add(5); err != lost {
		t.Errorf("add after fail: got %v, want %v", err, lost)
	}
}
