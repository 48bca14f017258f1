package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/itchyny/gojq"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// selectJSON is a part of a JSON text: by a pointer, a jq program, or one behind the other. Strings are decoded, as text
// inside JSON is easier to read without escapes.
func selectJSON(all []byte, q cacheQuery) ([]byte, error) {
	if !jsonrpc.Valid(all) {
		return nil, badQuery("this output is no JSON, so pointer and jq have nothing to hold on to; use grep, lines or offset")
	}
	if q.Pointer != "" {
		var err error
		if all, err = resolvePointer(all, q.Pointer); err != nil {
			return nil, err
		}
	}
	if q.JQ != "" {
		return runJQ(all, q.JQ)
	}
	if len(all) > 0 && all[0] == '"' {
		return []byte(jsonrpc.Unquote(all)), nil
	}
	return all, nil
}

func resolvePointer(all json.RawMessage, ptr string) (json.RawMessage, error) {
	if ptr[0] != '/' {
		return nil, badQuery("pointer is %q; a JSON Pointer begins with /", plain(ptr, 80))
	}
	here := bytes.TrimSpace(all)
	var path []string
	for part := range strings.SplitSeq(ptr[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next := valueAt(here, []string{part})
		if next == nil {
			return nil, badQuery("there is nothing at %q: %q is %s", plain(ptr, 120), plain(pointerTo(path), 120), outline(here))
		}
		path, here = append(path, part), next
	}
	return here, nil
}

// outline is what a JSON value is, in few words.
func outline(v json.RawMessage) string {
	all := spans(v)
	switch kindOf(v) {
	case "object":
		var names []string
		for _, s := range all[:min(len(all), 20)] {
			names = append(names, s.key)
		}
		return plain(fmt.Sprintf("an object with %d members: %s", len(all), strings.Join(names, ", ")), 300)
	case "array":
		return fmt.Sprintf("an array of %d", len(all))
	}
	return "a " + kindOf(v)
}

// runJQ runs a jq program within bounds of time, memory and output. It has no environment, files or modules.
func runJQ(all json.RawMessage, program string) ([]byte, error) {
	if len(all) > maxJQ {
		return nil, badQuery("jq takes up to %d bytes of JSON; narrow it down with pointer", maxJQ)
	}
	parsed, err := gojq.Parse(program)
	if err != nil {
		return nil, badQuery("jq: %s", plain(err.Error(), 200))
	}
	code, err := gojq.Compile(parsed)
	if err != nil {
		return nil, badQuery("jq: %s", plain(err.Error(), 200))
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(all))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, badQuery("jq: %s", plain(err.Error(), 200))
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxQueryTime)
	defer cancel()
	defer watchMemory(ctx, cancel)()
	var out []byte
	for iter := code.RunWithContext(ctx, v); ; {
		v, more := iter.Next()
		if !more {
			return bytes.TrimSuffix(out, []byte("\n")), nil
		}
		if err, failed := v.(error); failed {
			var halt *gojq.HaltError
			switch {
			case errors.As(err, &halt) && halt.Value() == nil:
				return out, nil
			case ctx.Err() != nil:
				return nil, badQuery("jq took over %v or too much memory; ask for less", maxQueryTime)
			}
			return nil, badQuery("jq: %s", plain(err.Error(), 300))
		}
		if s, ok := v.(string); ok {
			out = append(out, s...)
		} else {
			raw, err := gojq.Marshal(v)
			if err != nil {
				return nil, badQuery("jq: %s", plain(err.Error(), 200))
			}
			out = append(out, raw...)
		}
		if out = append(out, '\n'); len(out) > maxJQResult {
			return nil, badQuery("jq made over %d bytes; ask for less", maxJQResult)
		}
	}
}

// watchMemory cancels when the heap grows by more than maxJQMemory. The function that it returns ends the watch.
func watchMemory(ctx context.Context, cancel func()) (end func()) {
	done := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	most := m.HeapAlloc + maxJQMemory
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if runtime.ReadMemStats(&m); m.HeapAlloc > most {
					cancel()
				}
			}
		}
	}()
	return func() { stop(); <-done }
}
