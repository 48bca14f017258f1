package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/upstream"
)

// TestMain makes the test binary the program itself when it is started with a command instead of test flags, so that it
// can be its own child.
func TestMain(m *testing.M) {
	upstream.WatchOrphans()
	switch {
	case len(os.Args) > 1 && os.Args[1] == "other-office":
		other := server.NewMCPServer("other-office", "1")
		for _, t := range openHarbour().tools() {
			if t.Tool.Name == "harbour_chart" { // the answer of this tool is another than the harbour office's
				t.Handler = openHarbour().tools()[0].Handler
			}
			other.AddTools(t)
		}
		if err := server.NewStdioServer(other).Listen(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
	case len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-"):
		main()
	default:
		os.Exit(m.Run())
	}
}

// tempDir makes all temporary directories of the test ones of its own.
func tempDir(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, dir)
	}
	return dir
}

// wantNothingLeft fails when a demo has left a process or a file.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if got := officeProcesses(t); len(got) != 0 {
		t.Errorf("processes left over: got %q, want none", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("files left over: got %v (%v), want none", left, err)
	}
}

// officeProcesses are the command lines of all processes that play this test binary's harbour office.
func officeProcesses(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	switch runtime.GOOS {
	case "linux":
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil { // else it has ended
				all = append(all, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
			}
		}
	case "windows":
		out, err := exec.Command("powershell", "-NoProfile", "-Command",
			"(Get-CimInstance Win32_Process).CommandLine").Output()
		if err != nil {
			t.Fatal(err)
		}
		all = strings.Split(string(out), "\n")
	default:
		out, err := exec.Command("ps", "-A", "-o", "args=").Output()
		if err != nil {
			t.Fatal(err)
		}
		all = strings.Split(string(out), "\n")
	}
	return slices.DeleteFunc(all, func(line string) bool {
		return !strings.Contains(line, self) || !strings.Contains(line, "demo-server")
	})
}

func TestDemo(t *testing.T) {
	dir := tempDir(t)
	var out, errOut bytes.Buffer
	if code := run([]string{"demo"}, os.Stdin, &out, &errOut); code != 0 || errOut.Len() != 0 {
		t.Fatalf("demo: got exit status %d and on stderr %q, want 0 and nothing; stdout:\n%s", code, &errOut, &out)
	}
	text := out.String()
	if strings.Contains(text, "\x1b") {
		t.Errorf("got colour without a terminal:\n%q", text)
	}
	shown := strings.Split(text, "\n")
	if len(shown) > 100 {
		t.Errorf("got %d lines, want at most 100 (two screens)", len(shown))
	}
	for _, l := range shown {
		if n := len([]rune(l)); n > demoWidth {
			t.Errorf("got a line of %d columns, want at most %d: %s", n, demoWidth, l)
		}
	}
	for _, want := range []string{"search_tools", "describe_tool", "call_tool", "book_berth", "humpback whale",
		"read_cache", "Booked: berth R1 for Kestrel", "each as expected"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the output:\n%s", want, text)
		}
	}
	wantNothingLeft(t, dir)
}

// heads are the heads of steps in a demo's output: what was asked, and the bytes of the answer.
var heads = regexp.MustCompile(`(?m)^ ?\d+  ([a-z_/]+) +([0-9,]+) bytes, about ([0-9,]+) tokens$`)

func figure(t *testing.T, s string) int {
	n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
	if err != nil {
		t.Fatalf("no figure: %v", err)
	}
	return n
}

func TestDemoFiguresAreMeasured(t *testing.T) {
	dir := tempDir(t)
	var out, errOut bytes.Buffer
	if code := run([]string{"demo"}, os.Stdin, &out, &errOut); code != 0 {
		t.Fatalf("demo: got exit status %d, want 0: %s", code, &errOut)
	}
	text := out.String()

	printed := map[string]int{}
	total := 0
	for _, h := range heads.FindAllStringSubmatch(text, -1) {
		n := figure(t, h[2])
		if got := figure(t, h[3]); got != tokens(n) {
			t.Errorf("%s: got %d tokens for %d bytes, want %d", h[1], got, n, tokens(n))
		}
		printed[h[1]] = n
		total += n
	}
	if len(printed) != 5 {
		t.Fatalf("got heads for %v, want initialize, tools/list and the three tools:\n%s", printed, text)
	}

	// The same questions, asked by hand of the same program as a process.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "mcp.json")
	entry, err := json.Marshal(map[string]any{"servers": map[string]any{"harbour": map[string]any{"command": self,
		"args": []string{"demo-server"}, "description": "the office of a small harbour"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, entry, 0o600); err != nil {
		t.Fatal(err)
	}
	describe := `{"name":"describe_tool","arguments":{"server":"harbour","tool":"book_berth"}}`
	proxied := converse(t, self, []string{"stdio", "--config", config, "--data-dir", t.TempDir()}, map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"demo","version":"1"}}`,
		"tools/list": `{}`, "tools/call": describe})
	direct := converse(t, self, []string{"demo-server"}, map[string]string{"tools/list": `{}`})

	for name, want := range map[string]int{"initialize": len(proxied["initialize"]),
		"tools/list": len(proxied["tools/list"]), "describe_tool": len(proxied["tools/call"])} {
		if printed[name] != want {
			t.Errorf("%s: got %d bytes printed, want the %d of the answer", name, printed[name], want)
		}
	}
	var listing struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(direct["tools/list"], &listing); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("own list of %d tools, %s.", len(listing.Tools), size(len(direct["tools/list"])))
	if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
		t.Errorf("%q is not in the output:\n%s", want, text)
	}

	// The balance adds up.
	const cell = `([0-9,]+) bytes +[0-9,]+ tokens`
	rows := regexp.MustCompile(`(?m)^    ([a-z ]+?)  +(?:` + cell + `|–) +` + cell + `$`)
	var sum [2]int
	for _, r := range rows.FindAllStringSubmatch(text, -1) {
		n := [2]int{figure(t, "0"+r[2]), figure(t, r[3])}
		switch r[1] {
		case "what the agent wrote":
			total += n[1]
		case "the whole conversation":
			if n != sum || n[1] != total {
				t.Errorf("whole conversation: got %v, want the sum of the rows %v, and %d by the heads", n, sum, total)
			}
			wantNothingLeft(t, dir)
			return
		}
		sum[0], sum[1] = sum[0]+n[0], sum[1]+n[1]
	}
	t.Errorf("no row for the whole conversation:\n%s", text)
}

// converse starts the program, makes one request of each method, and is gone when they are answered.
func converse(t *testing.T, program string, args []string, requests map[string]string) map[string]json.RawMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	answers := jsonrpc.NewLines(out, 64<<20)
	got := map[string]json.RawMessage{}
	for _, method := range []string{"initialize", "tools/list", "tools/call"} {
		params, ok := requests[method]
		if !ok {
			continue
		}
		request := jsonrpc.AppendRequest(nil, json.RawMessage("1"), method, json.RawMessage(params))
		if _, err := in.Write(append(request, '\n')); err != nil {
			t.Fatal(err)
		}
		line, err := answers.ReadLine()
		if err != nil {
			t.Fatalf("%s of %v: %v", method, args, err)
		}
		m, err := jsonrpc.Parse(line)
		if err != nil || m.Err() != nil {
			t.Fatalf("%s of %v: got %s (%v), want a result", method, args, line, err)
		}
		got[method] = m.Result
	}
	_ = in.Close() // ends it
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: got %v at its end, want exit status 0", args, err)
	}
	return got
}

func TestDemoSaysWhatWentWrong(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		command []string
		want    string
	}{
		{"no such server", []string{filepath.Join(t.TempDir(), "absent")},
			"demo: step 3: want harbour book_berth among the matches"},
		{"another server", []string{self, "other-office"},
			"demo: step 6: want the server's own content of harbour_chart"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tempDir(t)
			d := demo{shell: shell{stdout: t.Output(), stderr: t.Output()}, command: c.command}
			if err := d.run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got error %v, want one that begins with %q", err, c.want)
			}
			wantNothingLeft(t, dir)
		})
	}
}

func TestDemoInterrupted(t *testing.T) {
	dir := tempDir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		d := demo{shell: shell{stdout: w, stderr: t.Output()}, command: []string{self, "demo-server"}}
		ended <- d.run(ctx)
		_ = w.Close()
	}()
	for s := bufio.NewScanner(r); s.Scan(); {
		if strings.Contains(s.Text(), "berth_plan") { // the server is connected
			cancel()
		}
	}
	if err := <-ended; err == nil || err.Error() != "demo: interrupted" {
		t.Errorf("got error %v, want demo: interrupted", err)
	}
	wantNothingLeft(t, dir)
}

func TestDemoServe(t *testing.T) {
	dir := tempDir(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	_ = l.Close() // the demo takes it

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		cmd := demoCommand()
		cmd.SetArgs([]string{"--serve", "--listen", listen})
		cmd.SetOut(w)
		cmd.SetErr(t.Output())
		ended <- cmd.ExecuteContext(ctx)
		_ = w.Close()
	}()
	url, serving := "http://"+listen+"/mcp", false
	lines := bufio.NewScanner(r)
	for !serving && lines.Scan() {
		serving = strings.HasSuffix(lines.Text(), "claude mcp add --transport http mcpproxy "+url)
	}
	if !serving {
		t.Fatalf("the demo has ended without telling its URL: %v", <-ended)
	}
	answer := post(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+
		`{"name":"call_tool","arguments":{"server":"harbour","tool":"berth_plan","arguments":{}}}}`)
	if !strings.Contains(answer, "Kestrel") {
		t.Errorf("berth_plan over HTTP: got %s, want the demo's booking in it", answer)
	}
	if got := officeProcesses(t); len(got) != 1 {
		t.Errorf("processes while it serves: got %q, want one", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("end: got %v, want none", err)
	}
	wantNothingLeft(t, dir)
}

// post sends one message, as soon as somebody listens.
func post(t *testing.T, url, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("nobody listens at %s: %v", url, err)
		}
	}
}

func TestDemoRefusesOtherAddresses(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:6270", "127.0.0.1:0", "6270"} {
		var out, errOut bytes.Buffer
		code := run([]string{"demo", "--serve", "--listen", listen}, os.Stdin, &out, &errOut)
		if code != exitUsage || !strings.Contains(errOut.String(), "--listen "+listen) || out.Len() != 0 {
			t.Errorf("--listen %s: got exit status %d, stderr %q, stdout %q; want %d and a word about it",
				listen, code, &errOut, &out, exitUsage)
		}
	}
}

// TestHarbour makes one day of work in the office, so that every tool is called.
func TestHarbour(t *testing.T) {
	steps := []struct{ tool, args, want string }{
		{"find_ships", `{"query":"kes"}`, "IMO 9417720  Kestrel"},
		{"find_ships", `{"query":"titanic"}`, "No such ship"},
		{"get_ship", `{"imo":"9301842"}`, "Berth Q1 until 2026-01-07, booking B-100"},
		{"get_ship", `{"imo":"1234567"}`, "error: No ship with IMO number"},
		{"list_arrivals", `{"date":"2026-01-06"}`, "2026-01-06 06:10 Polar Tern"},
		{"announce_arrival", `{"imo":"9078245","date":"2026-01-06","time":"05:00","from":"Leith"}`, "2026-01-06 05:00"},
		{"list_arrivals", `{"date":"2026-01-06"}`, "Duchess of Fife (IMO 9078245) from Leith\n2026-01-06 06:10 Polar"},
		{"berth_plan", `{"freeOnly":true}`, "Q3  140 m long, 7.5 m deep, general    free\nR1"},
		{"book_berth", `{"imo":"9188034","berth":"R1","date":"2026-01-06","nights":1}`, "error: Ocean Maid is"},
		{"book_berth", `{"imo":"9620993","berth":"R1","date":"2026-01-06","nights":1}`, "error: Polar Tern draws"},
		{"book_berth", `{"imo":"9620993","berth":"Q1","date":"2026-01-06","nights":1}`, "error: Berth Q1 is taken"},
		{"book_berth", `{"imo":"9417720","berth":"Q3","date":"2026-01-31","nights":2}`, "2026-02-02. Booking"},
		{"release_berth", `{"booking":"B-701"}`, "Berth Q3 is free again"},
		{"release_berth", `{"booking":"B-701"}`, "error: There is no booking"},
		{"tide_table", `{"date":"2026-01-05"}`, "high water"},
		{"tide_table", `{"date":"2026-02-31"}`, "error: \"2026-02-31\" is no date"},
		{"tidal_window", `{"date":"2026-01-05","draughtM":5}`, "high water"},
		{"tidal_window", `{"date":"2026-01-05","draughtM":12}`, "No window"},
		{"hoist_storm_signal", `{"level":"2"}`, "pier head: 2"},
		{"weather_report", `{}`, "Storm signal: 2\n2026-01-05 00:00  wind"},
		{"harbour_chart", `{}`, "Free (green): Q3 R1 F1"},
		{"order_pilot", `{"imo":"9301842","movement":"leave","date":"2026-01-07","time":"11:00","tugs":1}`, "Annalisa"},
		{"change_crew", `{"imo":"9417720","person":"A. Lind, mate","change":"off"}`, "Kestrel now has a crew of 1"},
		{"change_crew", `{"imo":"9417720","person":"I. Solberg, master","change":"off"}`, "error: The master"},
		{"change_crew", `{"imo":"9417720","person":"T. Moe, master","change":"on"}`, "a crew of 2"},
		{"crew_list", `{"imo":"9417720"}`, "T. Moe, master\nI. Solberg, master"},
		{"check_dangerous_goods", `{"unNumber":"3480"}`, "class 9"},
		{"declare_cargo", `{"imo":"9078245","goods":"batteries","tonnes":2.5,"unNumber":"3480"}`, "batteries, UN 3480"},
		{"cargo_manifest", `{"imo":"9078245"}`, "2.5 t batteries, UN 3480"},
		{"quote_dues", `{"imo":"9550216","nights":2}`, "654.00 EUR"},
		{"issue_invoice", `{"imo":"9550216","nights":2}`, "I-703  Sint Joris"},
		{"void_invoice", `{"invoice":"I-703","reason":"wrong ship"}`, "Void: I-703"},
		{"void_invoice", `{"invoice":"I-500","reason":"wrong ship"}`, "error: Invoice I-500 is paid"},
		{"list_invoices", `{"state":"void"}`, "I-703"},
		{"add_log_entry", `{"time":"08:15","text":"Flag hoisted"}`, "Written: 2026-01-05 08:15"},
		{"log_book", `{"year":2026}`, "2026-01-05 08:15  office     Flag hoisted"},
		{"log_book", `{"year":2025,"month":8}`, "2025-08-"},
	}
	d := demo{office: harbourServer()}
	called := map[string]bool{}
	for _, s := range steps {
		result, err := d.askOffice("tools/call", toolCall(s.tool, s.args))
		if err != nil {
			t.Fatalf("%s %s: %v", s.tool, s.args, err)
		}
		got := text(result, 0)
		if string(jsonrpc.Member(result, "isError")) == "true" {
			got = "error: " + got
		}
		if !strings.Contains(got, s.want) || strings.HasPrefix(got, "error: ") != strings.HasPrefix(s.want, "error: ") {
			t.Errorf("%s %s: got %q, want %q in it", s.tool, s.args, cut(got, 500), s.want)
		}
		called[s.tool] = true
	}
	tools := openHarbour().tools()
	if len(tools) != 24 {
		t.Errorf("got %d tools, want 24", len(tools))
	}
	for _, tool := range tools {
		if !called[tool.Tool.Name] {
			t.Errorf("%s was not called", tool.Tool.Name)
		}
	}
	log := strings.Join(logOf(openHarbour().ships), "\n")
	if n := strings.Count(log, "\n") + 1; n != logLines || len(log) < 380_000 || strings.Count(log, "whale") != 1 {
		t.Errorf("log book: got %d lines, %d bytes; want %d lines, about 400 KB, one whale", n, len(log), logLines)
	}
}
