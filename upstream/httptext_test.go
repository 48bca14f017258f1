package upstream

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestReadable(t *testing.T) {
	long := strings.Repeat("wörter ", 60)
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", " \n", ""},
		{"text", "upstream   connect\n\terror", "upstream connect error"},
		{"control characters", "a\x00b\x1b[31mc\u200bd\u202ee \xff\xfe.", "ab[31mcde ."},
		{"long", long, string([]rune(long)[:299]) + "…"},
		{"exactly as long", strings.Repeat("ö", 300), strings.Repeat("ö", 300)},
		{"message", `{"message":"try\nlater","code":7}`, "try later"},
		{"error", `{"error":"no such \"thing\""}`, `no such "thing"`},
		{"error object", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`, "Session not found"},
		{"OAuth", `{"error":"invalid_token","error_description":"It has expired"}`, "invalid_token: It has expired"},
		{"detail", `{"detail":"Not authenticated"}`, "Not authenticated"},
		{"said twice", `{"error":"Gone","message":"Gone"}`, "Gone"},
		{"a string", `"Session \u0065xpired"`, "Session expired"},
		{"other JSON", `{"a": [1]}`, `{"a": [1]}`},
		{"no JSON", `{"error": oops`, `{"error": oops`},
		{"page", "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n" +
			"<hr><center>nginx/1.18.0</center></body></html>", "502 Bad Gateway nginx/1.18.0"},
		{"page with script", "<!DOCTYPE html><title>A &amp; B</title><style>p{color:red}</style><!-- <b>hidden</b> -->" +
			"<SCRIPT src=x>alert('<p>')</SCRIPT ><p onclick='x'>Try <b>again</b></p><script>let unfinished = ", "A & B Try again"},
	} {
		if got := readable([]byte(tt.in)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestHTTPErrorText(t *testing.T) {
	for _, tt := range []struct {
		err  httpError
		want string
	}{
		{httpError{status: 502, url: "https://a.b/mcp", message: "nginx"}, "HTTP 502 Bad Gateway from https://a.b/mcp: nginx"},
		{httpError{status: 524, url: "https://a.b/mcp"}, "HTTP 524 from https://a.b/mcp"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestSessionLost(t *testing.T) {
	for _, tt := range []struct {
		status int
		own    bool // a JSON-RPC error with the request's id
		text   string
		want   bool
	}{
		{404, false, "", true},
		{404, false, "<html>", true},
		{404, true, "Method not found", false},
		{404, true, "Session not found", true},
		{400, false, "Bad Request: No valid session ID provided", true},
		{400, false, "Bad Request: Server not initialized", true},
		{400, false, "Invalid session ID", true},
		{400, false, "Mcp-Session-Id header is required", true},
		{400, false, "session 8f14e45f has expired", true},
		{400, false, "Bad Request: Unsupported protocol version", false},
		{400, false, "invalid JSON", false},
		{400, true, "Invalid params: the browser session was not found", false},
		{400, true, "Bad Request: No valid session ID provided", true},
		{410, false, "session terminated", true},
		{503, false, "unknown session", true},
		{503, false, "Service Unavailable", false},
		{503, false, "session store is down", false},
		{500, false, "Session not found", true},
		{500, false, "SQLAlchemy: session is expired, row not found", false},
		{401, false, "session expired", false},
		{403, false, "invalid session", false},
		{429, false, "no session available", false},
		{200, false, "Session not found", true},
		{200, true, "Session not found", true},
		{200, true, "session not found.", true},
		{200, true, "MCP error -32001: Session not found", true},
		{200, true, "Session ID abc-123 not found", true},
		{200, true, "Session 'abc-123' has expired", true},
		{200, true, "Session expired. Please reconnect.", true},
		{200, true, "Invalid or expired session ID", true},
		{200, true, "Unknown session: abc-123", true},
		{200, true, "Session not found or expired", true},
		{200, true, "Browser session not found", false},
		{200, true, "Invalid session cookie", false},
		{200, true, "No session named work is running in tmux", false},
		{200, true, "Tool failed: the session of the user is invalid", false},
		{200, true, "", false},
	} {
		if got := sessionLost(tt.status, tt.own, tt.text); got != tt.want {
			t.Errorf("%d, own %v, %q: got %v, want %v", tt.status, tt.own, tt.text, got, tt.want)
		}
	}
}

func TestRedirect(t *testing.T) {
	for _, tt := range []struct {
		from     string
		status   int
		location string
		want     string
		same     bool
	}{
		{"http://a/mcp", 307, "/mcp/", "http://a/mcp/", true},
		{"http://a/mcp?k=v", 308, "http://A:80/mcp/?k=v#x", "http://A:80/mcp/?k=v", true},
		{"https://a/mcp", 301, "//a:443/b", "https://a:443/b", true},
		{"http://u:p@a/mcp", 302, "next", "http://u:p@a/next", true},
		{"http://u:p@a/mcp", 302, "http://b/next", "http://b/next", false},
		{"https://a/mcp", 303, "http://a/mcp", "http://a/mcp", false},
		{"http://a/mcp", 307, "https://a/mcp", "https://a/mcp", false},
		{"http://a/mcp", 307, "http://a:8080/mcp", "http://a:8080/mcp", false},
		{"http://a/mcp", 307, "http://a.b/mcp", "http://a.b/mcp", false},
		{"http://a/mcp", 300, "/b", "", false},
		{"http://a/mcp", 304, "/b", "", false},
		{"http://a/mcp", 307, "", "", false},
		{"http://a/mcp", 307, "http://%zz", "", false},
		{"http://a/mcp", 200, "/b", "", false},
	} {
		from, _ := url.Parse(tt.from)
		got := redirect(from, &http.Response{StatusCode: tt.status, Header: http.Header{"Location": {tt.location}}})
		switch {
		case got == nil && tt.want == "":
		case got == nil || got.String() != tt.want || sameOrigin(from, got) != tt.same:
			t.Errorf("%s, %d %q: got %v, want %s, same origin %v", tt.from, tt.status, tt.location, got, tt.want, tt.same)
		}
	}
}

func TestPrefixed(t *testing.T) {
	for _, tt := range []struct{ stream, endpoint, want string }{
		{"http://a/gw/sse", "/messages?sid=1", "http://a/gw/messages?sid=1"},
		{"http://a/gw/api/sse", "/api/messages", "http://a/gw/api/messages"},
		{"http://a/x/gw/sse", "/messages/", "http://a/x/gw/messages/"},
		{"http://a/sse", "/messages", ""},
		{"http://a/gw/sse", "messages", ""},
		{"http://a/gw/sse", "/gw/messages", ""},
		{"http://a", "/messages", ""},
	} {
		stream, _ := url.Parse(tt.stream)
		endpoint, err := stream.Parse(tt.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if u := prefixed(stream, endpoint); u != nil {
			got = u.String()
		}
		if got != tt.want {
			t.Errorf("%s, %s: got %q, want %q", tt.stream, tt.endpoint, got, tt.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"1", time.Second, true},
		{"0", 0, true},
		{"Tue, 28 Jul 2026 12:00:05 GMT", 5 * time.Second, true},
		{"Tue, 28 Jul 2026 11:00:00 GMT", 0, true},
		{"", 0, false},
		{"-1", 0, false},
		{"soon", 0, false},
	} {
		if got, ok := retryAfter(tt.in, now); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q: got %v, %v, want %v, %v", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}

func TestListenWait(t *testing.T) {
	for _, tt := range []struct {
		fails     int
		low, high time.Duration
	}{
		{0, time.Second / 2, time.Second},
		{1, time.Second, 2 * time.Second},
		{5, 16 * time.Second, 32 * time.Second},
		{6, 30 * time.Second, time.Minute},
		{1 << 40, 30 * time.Second, time.Minute},
	} {
		low, high := listenWait(tt.fails, 0), listenWait(tt.fails, 1)
		if low != tt.low || high != tt.high {
			t.Errorf("%d: got %v to %v, want %v to %v", tt.fails, low, high, tt.low, tt.high)
		}
	}
}
