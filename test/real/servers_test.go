package real

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// entry is a server of a configuration file.
type entry struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
}

// server is a real server, what is done with it, and what of its answers changes from run to run.
type server struct {
	id    string
	start func(dir string) entry
	reset func(t *testing.T, dir string) // makes dir as it is before the first call
	query string                         // a search in plain words
	finds string                         // the tool that it must find
	calls []call
	// volatile parts are replaced before answers are compared; such answers are not compared byte for byte.
	volatile func(result string) string
}

type call struct{ tool, args string }

func node(module string, args ...string) entry {
	path, err := filepath.Abs(filepath.Join("node_modules", module))
	if err != nil {
		panic(err)
	}
	return entry{Command: "node", Args: append([]string{path}, args...)}
}

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium; run test/real/install.sh")
	return ""
}

func nothing(*testing.T, string) {}

var (
	clock = regexp.MustCompile(`\d{1,2}:\d\d:\d\d ?[AP]M`)
	stamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z`)
	image = regexp.MustCompile(`"data":"([A-Za-z0-9+/=]+)","mimeType":"image/png"`)
)

// pixels replaces PNG images by their sizes: two screenshots of a page may be compressed, or rendered, differently.
func pixels(result string) string {
	return image.ReplaceAllStringFunc(result, func(block string) string {
		data, err := base64.StdEncoding.DecodeString(image.FindStringSubmatch(block)[1])
		if err != nil {
			return "no base64: " + err.Error()
		}
		picture, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			return "no PNG: " + err.Error()
		}
		return fmt.Sprintf(`"image":"%v"`, picture.Bounds().Size())
	})
}

// servers are those of test/real/package.json. dir is a directory for their files.
func servers(t *testing.T, dir string) []server {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" { // the icon that browsers ask for
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><title>Test page</title><h1>Grüße <b>there</b></h1><button>Press</button>`))
	}))
	t.Cleanup(site.Close)
	file := func(name string) string { return string(jsonrpc.Quote(filepath.Join(dir, name))) }
	files := func(t *testing.T, dir string) {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("alpha\nbéta <&>\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	browser := chromium(t)
	page := string(jsonrpc.Quote(site.URL + "/"))
	return []server{
		{
			id:    "everything",
			start: func(string) entry { return node("@modelcontextprotocol/server-everything/dist/index.js") },
			reset: nothing, query: "add two numbers together", finds: "get-sum",
			calls: []call{
				{"echo", `{"message":"héllo <b>&\u0001 \ud83d\ude00"}`},
				{"get-sum", `{"a":2,"b":40.5}`},
				{"get-tiny-image", `{}`},
				{"get-structured-content", `{"location":"New York"}`},
				{"get-resource-links", `{"count":4}`},
				{"get-annotated-message", `{"messageType":"error","includeImage":true}`},
				{"get-sum", `{"a":1e2,"b":-0.25}`},
			},
		},
		{
			id:    "everything-clock", // its embedded resources tell the time
			start: func(string) entry { return node("@modelcontextprotocol/server-everything/dist/index.js") },
			reset: nothing, query: "resource reference for clients", finds: "get-resource-reference",
			calls: []call{
				{"get-resource-reference", `{"resourceType":"Text","resourceId":1}`},
				{"get-resource-reference", `{"resourceType":"Blob","resourceId":2}`},
			},
			volatile: withoutClock,
		},
		{
			id: "filesystem",
			start: func(dir string) entry {
				return node("@modelcontextprotocol/server-filesystem/dist/index.js", dir)
			},
			reset: files, query: "read the contents of a text file", finds: "read_text_file",
			calls: []call{
				{"read_text_file", `{"path":` + file("a.txt") + `}`},
				{"write_file", `{"path":` + file("b.txt") + `,"content":"line 1\nline 2 \u0000 ü\n"}`},
				{"read_text_file", `{"path":` + file("b.txt") + `}`},
				{"list_directory", `{"path":` + file("") + `}`},
				{"directory_tree", `{"path":` + file("") + `}`},
				{"read_text_file", `{"path":` + file("missing.txt") + `}`},
				{"read_text_file", `{"path":"/etc/hostname"}`},
			},
		},
		{
			id: "memory",
			start: func(dir string) entry {
				e := node("@modelcontextprotocol/server-memory/dist/index.js")
				e.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.jsonl")}
				return e
			},
			reset: files, query: "create entities in the knowledge graph", finds: "create_entities",
			calls: []call{
				{"create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["wrote notes","naïve?"]}]}`},
				{"read_graph", `{}`},
				{"search_nodes", `{"query":"notes"}`},
			},
		},
		{
			id: "sequential-thinking",
			start: func(string) entry {
				return node("@modelcontextprotocol/server-sequential-thinking/dist/index.js")
			},
			reset: nothing, query: "think through a problem step by step", finds: "sequentialthinking",
			calls: []call{
				{"sequentialthinking", `{"thought":"First.","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":3}`},
			},
		},
		{
			id: "playwright",
			start: func(dir string) entry {
				e := node("@playwright/mcp/cli.js", "--headless", "--no-sandbox", "--isolated",
					"--executable-path", browser, "--output-dir", filepath.Join(dir, "shots"))
				e.Env, e.Cwd = map[string]string{"CI": "1"}, dir
				return e
			},
			reset: files, query: "navigate to a URL", finds: "browser_navigate",
			calls: []call{
				{"browser_navigate", `{"url":` + page + `}`},
				{"browser_snapshot", `{}`},
				{"browser_take_screenshot", `{"type":"png","scale":"css"}`},
			},
			// The files that it writes bear the time in their names.
			volatile: func(result string) string { return stamp.ReplaceAllString(pixels(result), "STAMP") },
		},
		{
			id: "chrome-devtools",
			start: func(dir string) entry {
				e := node("chrome-devtools-mcp/build/src/bin/chrome-devtools-mcp.js", "--headless", "--isolated",
					"--executablePath", browser, "--no-performance-crux",
					"--chromeArg=--no-sandbox", "--chromeArg=--disable-gpu", "--chromeArg=--disable-background-networking")
				e.Env = map[string]string{"CI": "1"} // no usage statistics, no look for updates
				return e
			},
			reset: nothing, query: "take a screenshot of the page", finds: "take_screenshot",
			calls: []call{
				{"new_page", `{"url":` + page + `}`},
				{"take_snapshot", `{"pageId":2}`},
				{"take_screenshot", `{"pageId":2}`},
			},
			volatile: pixels,
		},
	}
}

// withoutClock replaces the time of day, in text and in base64 of text.
func withoutClock(result string) string {
	blob := regexp.MustCompile(`"blob":"([A-Za-z0-9+/=]+)"`)
	result = blob.ReplaceAllStringFunc(result, func(member string) string {
		text, err := base64.StdEncoding.DecodeString(blob.FindStringSubmatch(member)[1])
		if err != nil {
			return "no base64: " + err.Error()
		}
		return `"blob":` + string(jsonrpc.Quote(string(text)))
	})
	return clock.ReplaceAllString(result, "CLOCK")
}
