package test

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/test/fake"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// A web page, or a name that points here from elsewhere, reaches nothing.
func TestForeignRequests(t *testing.T) {
	c := startHTTP(t, configFile(t, nil, nil))
	u, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	own := c.url
	for _, path := range []string{"/mcp", "/", "/healthz", "/api/v1/servers"} {
		c.url = u.Scheme + "://" + u.Host + path
		for _, h := range [][]string{{"Host", "evil.example:" + u.Port()}, {"Origin", "http://evil.example"}, {"Origin", "null"}} {
			if resp, body := c.post(t, ping, h...); resp.StatusCode != http.StatusForbidden || resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s %v: got %d %s", path, h, resp.StatusCode, body)
			}
		}
	}
	c.url = own
	for _, h := range [][]string{{"Host", "localhost:" + u.Port()}, {"Origin", "http://127.0.0.1:" + u.Port()}} {
		if resp, body := c.post(t, ping, h...); resp.StatusCode != http.StatusOK {
			t.Errorf("%v: got %d %s", h, resp.StatusCode, body)
		}
	}
}

// Sessions: an unknown one is 404, a deleted one too, and a client without one is served.
func TestHTTPSessions(t *testing.T) {
	c := startHTTP(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("echo")}, nil)}, nil))
	initialize(t, c)
	if c.session == "" {
		t.Fatal("no session id")
	}
	if resp, _ := c.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); resp.StatusCode != http.StatusAccepted {
		t.Errorf("a notification: got %d", resp.StatusCode)
	}
	if resp, _ := c.post(t, ping, "Mcp-Session-Id", "unknown"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown session: got %d", resp.StatusCode)
	}
	if resp, _ := c.post(t, ping, "Mcp-Protocol-Version", "1999-01-01"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown version: got %d", resp.StatusCode)
	}
	if resp, _ := c.post(t, ping, "Content-Type", "text/plain"); resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: got %d", resp.StatusCode)
	}
	for _, body := range []string{`{`, `[` + ping + `]`, `{"foo":1}`, ``} {
		if resp, answer := c.post(t, body); resp.StatusCode != http.StatusBadRequest || !bytes.Contains(answer, []byte(`"error"`)) {
			t.Errorf("%s: got %d %s", body, resp.StatusCode, answer)
		}
	}
	req, err := http.NewRequest("DELETE", c.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", c.session)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp, _ := c.post(t, ping); resp.StatusCode != http.StatusNotFound {
		t.Errorf("after DELETE: got %d", resp.StatusCode)
	}
	c.session = ""
	if resp, _ := c.post(t, ping); resp.StatusCode != http.StatusOK {
		t.Errorf("without a session: got %d", resp.StatusCode)
	}
	c.url += "/"
	if resp, _ := c.post(t, ping); resp.StatusCode != http.StatusOK {
		t.Errorf("/mcp/: got %d", resp.StatusCode)
	}
}

// A client of the stateless era needs no handshake, and is held to that era's rules.
func TestStatelessClient(t *testing.T) {
	c := startHTTP(t, configFile(t, map[string]server{"s": stdioServer(fake.Script{Tools: fake.Builtin("echo")}, nil)}, nil))
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	version := []string{"Mcp-Protocol-Version", "2026-07-28"}
	with := func(h ...string) []string { return append(h, version...) }
	_, body := c.post(t, `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+meta+`}}`, with("Mcp-Method", "server/discover")...)
	m := parse(t, body)
	if !strings.Contains(string(jsonrpc.Member(m.Result, "supportedVersions")), "2026-07-28") || jsonrpc.Unquote(jsonrpc.Member(m.Result, "resultType")) != "complete" {
		t.Fatalf("got %s", body)
	}
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"call_tool","arguments":{"server":"s","tool":"echo","arguments":{"text":"hi"}},` + meta + `}}`
	_, body = c.post(t, call, with("Mcp-Method", "tools/call", "Mcp-Name", "call_tool")...)
	if m := parse(t, body); text(t, m.Result) != "hi" || jsonrpc.Unquote(jsonrpc.Member(m.Result, "resultType")) != "complete" {
		t.Errorf("got %s", body)
	}
	for _, tt := range []struct {
		name, body string
		header     []string
		status     int
		code       int64
	}{
		{"no method header", call, with(), 400, jsonrpc.CodeHeaderMismatch},
		{"another name", call, with("Mcp-Method", "tools/call", "Mcp-Name", "other"), 400, jsonrpc.CodeHeaderMismatch},
		{"unknown method", `{"jsonrpc":"2.0","id":3,"method":"no/such","params":{` + meta + `}}`, with("Mcp-Method", "no/such"), 404, jsonrpc.CodeMethodNotFound},
		{"unknown version", `{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01"}}}`, nil, 400, jsonrpc.CodeUnsupportedProtocol},
	} {
		resp, body := c.post(t, tt.body, tt.header...)
		if m := parse(t, body); resp.StatusCode != tt.status || m.Err() == nil || m.Err().Code != tt.code {
			t.Errorf("%s: got %d %s", tt.name, resp.StatusCode, body)
		}
	}
}

// A command line that can't be carried out ends at once, and says why.
func TestRefusedStarts(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		has  []string
	}{
		{[]string{"serve", "--listen", "0.0.0.0:0", "--config", configFile(t, nil, nil)}, 2, []string{"--allow-remote", "token"}},
		{[]string{"serve", "--config", "/no/such/file.json"}, 2, []string{"/no/such/file.json"}},
		{[]string{"no-such-command"}, 2, []string{"no-such-command"}},
		{[]string{"status", "--no-such-flag"}, 2, []string{"no-such-flag"}},
	} {
		p := start(t, nil, tt.args...)
		<-p.done
		for _, has := range tt.has {
			if !strings.Contains(p.stderr.String(), has) {
				t.Errorf("%v: stderr says %q, not %s", tt.args, p.stderr, has)
			}
		}
		if got := p.ProcessState.ExitCode(); got != tt.code {
			t.Errorf("%v: exit code %d, want %d", tt.args, got, tt.code)
		}
	}
}
