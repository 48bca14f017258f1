package fake_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/test/fake"
)

// post sends a message and returns the answer, with status 0 when the connection broke.
func post(t *testing.T, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	return do(t, http.MethodPost, url, body, headers...)
}

func do(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		return &http.Response{}, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return &http.Response{}, string(b)
	}
	return resp, string(b)
}

func modernHeaders(method, name string) []string {
	h := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		h = append(h, "Mcp-Name", name)
	}
	return h
}

func TestHTTPAnswers(t *testing.T) {
	const ping, pong = `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":2,"result":{}}`
	call := ask(9, "tools/call", `"name":"echo","arguments":{"text":"hi"},`+meta)
	headed := fake.Tool{Raw: `{"name":"q","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}`}
	callHeaded := ask(9, "tools/call", `"name":"q","arguments":{"r":"é"},`+meta)
	for _, tc := range []struct {
		name    string
		script  fake.Script
		session bool // initialize first and send its id
		body    string
		headers []string
		status  int
		want    string // in the body
	}{
		{"ping", fake.Script{}, true, ping, nil, 200, pong},
		{"event stream", fake.Script{HTTP: fake.HTTP{SSE: true}}, true, ping, nil, 200, "event: message\ndata: " + pong + "\n\n"},
		{"notification", fake.Script{}, true, ready, nil, 202, ""},
		{"notification, oddly", fake.Script{HTTP: fake.HTTP{Accepted: &fake.Answer{Status: 200, Body: "{}"}}}, true, ready, nil, 200, "{}"},
		{"no session", fake.Script{}, false, ping, nil, 400, "No valid session ID"},
		{"unknown session", fake.Script{}, false, ping, []string{"Mcp-Session-Id", "x"}, 404, "Session not found"},
		{"unknown session, oddly", fake.Script{HTTP: fake.HTTP{Lost: &fake.Answer{Status: 503, Body: "gone"}}}, false, ping, []string{"Mcp-Session-Id", "x"}, 503, "gone"},
		{"without sessions", fake.Script{HTTP: fake.HTTP{NoSessions: true}}, false, ping, nil, 200, pong},
		{"unknown version", fake.Script{}, true, ping, []string{"Mcp-Protocol-Version", "1999-01-01"}, 400, "Unsupported protocol version"},
		{"version that was not negotiated", fake.Script{HTTP: fake.HTTP{StrictVersion: true}}, true, ping, []string{"Mcp-Protocol-Version", "2025-11-25"}, 400, "negotiated was"},
		{"negotiated version", fake.Script{HTTP: fake.HTTP{StrictVersion: true}}, true, ping, []string{"Mcp-Protocol-Version", "2025-06-18"}, 200, pong},
		{"refused initialize", fake.Script{Versions: []string{"2024-11-05"}, RefuseVersions: true}, false, hello, nil, 400, `"supported":["2024-11-05"]`},
		{"accepts too little", fake.Script{}, false, hello, []string{"Accept", "application/json"}, 406, "Not Acceptable"},
		{"wrong content type", fake.Script{}, false, hello, []string{"Content-Type", "text/plain"}, 415, ""},
		{"batch", fake.Script{}, true, "[" + ping + "]", nil, 400, "-32600"},
		{"no JSON", fake.Script{}, true, "{", nil, 400, "-32700"},
		{"modern call", fake.Script{Tools: fake.Builtin("echo")}, false, call, modernHeaders("tools/call", "echo"), 200, `"text":"hi"`},
		{"other method in the header", fake.Script{Tools: fake.Builtin("echo")}, false, call, modernHeaders("tools/list", "echo"), 400, "-32020"},
		{"other name in the header", fake.Script{Tools: fake.Builtin("echo")}, false, call, modernHeaders("tools/call", "add"), 400, "-32020"},
		{"wrapped name in the header", fake.Script{Tools: fake.Builtin("echo")}, false, call, modernHeaders("tools/call", "=?base64?ZWNobw==?="), 200, `"text":"hi"`},
		{"no version in the header", fake.Script{Tools: fake.Builtin("echo")}, false, call, []string{"Mcp-Method", "tools/call", "Mcp-Name", "echo"}, 400, "-32020"},
		{"no version in the body", fake.Script{}, false, ping, modernHeaders("ping", ""), 400, "-32602"},
		{"argument in a header", fake.Script{Tools: []fake.Tool{headed}}, false, callHeaded, append(modernHeaders("tools/call", "q"), "Mcp-Param-Region", "=?base64?w6k=?="), 200, `"result"`},
		{"argument not in a header", fake.Script{Tools: []fake.Tool{headed}}, false, callHeaded, modernHeaders("tools/call", "q"), 400, "-32020"},
		{"modern unknown method", fake.Script{}, false, ask(1, "x", meta), modernHeaders("x", ""), 404, "-32601"},
		{"modern at a legacy server", fake.Script{Era: fake.Legacy}, false, ask(1, "server/discover", meta), modernHeaders("server/discover", ""), 400, "Unsupported protocol version"},
		{"redirect", fake.Script{HTTP: fake.HTTP{Redirect: &fake.Redirect{Status: 307, To: "/mcp/"}}}, false, hello, nil, 307, ""},
		{"endless redirect", fake.Script{HTTP: fake.HTTP{Redirect: &fake.Redirect{Status: 308, To: "loop"}}}, false, hello, nil, 308, ""},
		{"missing header", fake.Script{HTTP: fake.HTTP{Require: map[string]string{"X-Key": "k"}}}, false, hello, nil, 400, "X-Key"},
		{"required header", fake.Script{HTTP: fake.HTTP{Require: map[string]string{"X-Key": "k"}}}, false, hello, []string{"X-Key", "k"}, 200, "serverInfo"},
		{"no token", fake.Script{HTTP: fake.HTTP{Bearer: "s"}}, false, hello, nil, 401, ""},
		{"token", fake.Script{HTTP: fake.HTTP{Bearer: "s"}}, false, hello, []string{"Authorization", "Bearer s"}, 200, "serverInfo"},
		{"error page", fake.Script{HTTP: fake.HTTP{Faults: []fake.Fault{{Method: "ping", Answer: fake.Answer{Status: 502, Body: "<html>"}}}}}, true, ping, nil, 502, "<html>"},
		{"fault of another method", fake.Script{HTTP: fake.HTTP{Faults: []fake.Fault{{Method: "x", Answer: fake.Answer{Status: 502}}}}}, true, ping, nil, 200, pong},
		{"fault that is not due", fake.Script{HTTP: fake.HTTP{Faults: []fake.Fault{{Skip: 2, Answer: fake.Answer{Status: 502}}}}}, true, ping, nil, 200, pong},
		{"fault that is over", fake.Script{HTTP: fake.HTTP{Faults: []fake.Fault{{Method: "tools/call", Times: 1, Answer: fake.Answer{Status: 502}}}}}, true, ping, nil, 200, pong},
		{"broken call", fake.Script{Tools: fake.Builtin("exit")}, true, ask(3, "tools/call", `"name":"exit"`), nil, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := fake.New(tc.script)
			web := httptest.NewServer(s.HTTP())
			defer web.Close()
			defer s.Close()
			headers := tc.headers
			if tc.session {
				resp, body := post(t, web.URL, hello)
				id := resp.Header.Get("Mcp-Session-Id")
				if id == "" {
					t.Fatalf("no session: %d %s", resp.StatusCode, body)
				}
				headers = append(headers, "Mcp-Session-Id", id)
			}
			resp, body := post(t, web.URL+"/mcp", tc.body, headers...)
			if resp.StatusCode != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("got %d %s, want %d with %s", resp.StatusCode, body, tc.status, tc.want)
			}
		})
	}
}

func TestGetStreams(t *testing.T) {
	for _, tc := range []struct {
		how    string
		status int // 0: none for a second
	}{{"405", 405}, {"404", 404}, {"hang", 0}} {
		s := fake.New(fake.Script{HTTP: fake.HTTP{Get: tc.how}})
		web := httptest.NewServer(s.HTTP())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		switch {
		case tc.status == 0 && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("%s: got %v, %v, want no answer", tc.how, resp, err)
		case tc.status != 0 && (err != nil || resp.StatusCode != tc.status):
			t.Errorf("%s: got %v, %v, want %d", tc.how, resp, err, tc.status)
		}
		if err == nil {
			resp.Body.Close()
		}
		cancel()
		s.Close()
		web.Close()
	}
}

func TestForget(t *testing.T) {
	s := fake.New(fake.Script{})
	web := httptest.NewServer(s.HTTP())
	defer web.Close()
	defer s.Close()
	resp, _ := post(t, web.URL, hello)
	id := resp.Header.Get("Mcp-Session-Id")
	s.Forget()
	if resp, body := post(t, web.URL, ready, "Mcp-Session-Id", id); resp.StatusCode != 404 {
		t.Errorf("after Forget: got %d %s, want 404", resp.StatusCode, body)
	}
	resp, _ = post(t, web.URL, hello)
	id = resp.Header.Get("Mcp-Session-Id")
	for i, want := range []int{200, 404} {
		if resp, _ := do(t, http.MethodDelete, web.URL, "", "Mcp-Session-Id", id); resp.StatusCode != want {
			t.Errorf("DELETE %d: got %d, want %d", i+1, resp.StatusCode, want)
		}
	}
	if got := len(s.Received("initialize")); got != 2 {
		t.Errorf("initialize was received %d times, want 2", got)
	}
	if r := s.Received("notifications/initialized")[0]; r.Header.Get("Mcp-Session-Id") == "" || r.HTTP != "POST" {
		t.Errorf("record: got %+v", r)
	}
	if err := s.Wait(t.Context(), "initialize", 2); err != nil {
		t.Error(err)
	}
}
