package upstream

import (
	"log/slog"
	"strings"
	"testing"
)

// An answer that can't be read fails the request that it names at once; what only looks like one is noise.
func TestSpoiltAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		settles    bool
	}{
		{"NaN", `{"jsonrpc":"2.0","id":5,"result":{"mean":NaN}}`, true},
		{"the id in a string, at the end", `{"jsonrpc":"2.0","result":{"mean":NaN},"id":"5"}`, true},
		{"no result", `{"jsonrpc": "2.0", "id": 5, "error": null}`, true},
		{"nested too deeply", `{"jsonrpc":"2.0","id":5,"result":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, true},
		{"another id", `{"jsonrpc":"2.0","id":6,"result":NaN}`, false},
		{"no JSON-RPC", `{"id":5,"result":NaN}`, false},
		{"a request", `{"jsonrpc":"2.0","id":5,"method":"ping",}`, false},
		{"a banner", `Server started, id 5`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &stdioWire{server: "s", log: slog.New(slog.DiscardHandler), dead: make(chan struct{})}
			got, err := w.pending.add(5)
			if err != nil {
				t.Fatal(err)
			}
			w.take([]byte(tt.line))
			select {
			case a := <-got:
				if e := a.m.Err(); !tt.settles || e == nil || !strings.Contains(e.Message, "can't be read") {
					t.Errorf("got %+v", a.m)
				}
			default:
				if tt.settles || w.noise != 1 {
					t.Errorf("not settled; noise %d", w.noise)
				}
			}
		})
	}
}
