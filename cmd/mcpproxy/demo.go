package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/server"
	"github.com/spf13/cobra"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/proxy"
)

const (
	demoWidth = 100              // columns
	demoTime  = 60 * time.Second // for all steps; they take about one
)

func demoCommand() *cobra.Command {
	var serve bool
	var listen string
	cmd := &cobra.Command{Use: "demo", Args: noArgs, Short: "Show the whole job; no configuration, no network",
		Long: "Start a small MCP server (a child of this program) behind the proxy and talk to it as an agent does:\n" +
			"find a tool, call it, read on in an answer that was too large. Every answer is measured, and checked\n" +
			"against the server's own.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("demo: this program can't find itself to start the demo's server: %w", err)
			}
			sh := shell{stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr()}
			d := demo{shell: sh, command: []string{self, "demo-server"}}
			if serve {
				if err := loopback(listen); err != nil {
					return &usageError{err}
				}
				if strings.HasSuffix(listen, ":0") {
					return &usageError{fmt.Errorf("--listen %s: give the port that agents are to use", listen)}
				}
				free, err := net.Listen("tcp", listen) // known before the demo, rather than after it
				if err != nil {
					return fmt.Errorf("%w (another mcpproxy may be serving there; choose another address with --listen)", err)
				}
				_ = free.Close()
				d.listen = listen
			}
			return d.run(cmd.Context())
		}}
	cmd.Flags().BoolVar(&serve, "serve", false, "stay up afterwards and serve agents over HTTP, until Ctrl-C")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:6270", "`HOST:PORT` to serve on, with --serve")
	return cmd
}

// demo is an agent's conversation with a harbour office through the proxy, printed for people. The office stands twice:
// as a child process behind the proxy, and in this process as the measure: every call is asked of both, and what comes
// through the proxy has to be what the server says.
type demo struct {
	shell
	command []string // the server behind the proxy
	listen  string   // serve there afterwards; "" ends

	agent  *agent
	office *server.MCPServer // the same server without a proxy
	steps  int
	spent  [2][purposes]int // bytes by purpose, without and with the proxy
}

// What the bytes went to: the rows of the balance.
const (
	toStart = iota
	toFind
	toCall
	toReadOn
	toAsk
	purposes
)

// unexpected is an answer that is not what it has to be.
func unexpected(what string, got json.RawMessage) error {
	if len(got) > 600 {
		got = append(got[:600:600], "…"...)
	}
	return fmt.Errorf("%s; the answer was: %s", what, got)
}

// run is the whole demo; whatever happens, its processes and files are gone afterwards.
func (d *demo) run(ctx context.Context) (err error) {
	broken := make(chan os.Signal, 1) // who asks for SIGPIPE is not killed by it: `demo | head` cleans up, too
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	dir, err := os.MkdirTemp("", "mcpproxy-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	log := slog.New(slog.NewTextHandler(d.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	g, err := d.open(dir, log)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, closeGateway(g)) }()

	started := time.Now()
	if err := d.talk(ctx, g); err != nil {
		if ctx.Err() != nil {
			return errors.New("demo: interrupted")
		}
		return fmt.Errorf("demo: step %d: %w", d.steps, err)
	}
	d.balance(time.Since(started))
	if d.listen == "" {
		return nil
	}
	d.invite()
	return serveHTTP(ctx, g, d.listen, log)
}

// open makes a gateway whose only server is the harbour office.
func (d *demo) open(dir string, log *slog.Logger) (*proxy.Gateway, error) {
	type entry struct {
		Command     string   `json:"command"`
		Args        []string `json:"args"`
		Description string   `json:"description"`
	}
	file := filepath.Join(dir, "mcp.json")
	raw, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]entry{
		"harbour": {d.command[0], d.command[1:], "the office of a small harbour"}}}, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return nil, err
	}
	c := configs.Load(configs.Options{File: file})
	return proxy.New(proxy.Options{Config: c, DataDir: filepath.Join(dir, "data"), Log: log, Version: version})
}

// talk is the conversation, from greeting to good-bye.
func (d *demo) talk(ctx context.Context, g *proxy.Gateway) error {
	ctx, cancel := context.WithTimeout(ctx, demoTime)
	defer cancel()
	d.office = harbourServer()
	d.agent = newAgent(ctx, g)
	defer d.agent.close()

	d.line("An agent, mcpproxy, and behind it one MCP server: the office of a small harbour.")
	d.line("Sizes are those of the JSON that the agent gets. A token is counted as 4 bytes.")
	g.DiscoverNow(ctx) // what a proxy that just started does in the background
	for _, step := range []func() error{d.greet, d.list, d.search, d.describe, d.look, d.image, d.logBook, d.book} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) greet() error {
	params := json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},` +
		`"clientInfo":{"name":"demo","version":"1"}}`)
	hello, err := d.ask(toStart, "initialize", params)
	if err != nil {
		return err
	}
	name, words := str(hello, "serverInfo", "name"), str(hello, "instructions")
	if name != "mcpproxy" || !strings.Contains(words, "search_tools") {
		return unexpected("want the greeting of mcpproxy with its instructions", hello)
	}
	direct, err := d.askOffice("initialize", params)
	if err != nil {
		return err
	}
	d.spent[0][toStart] += len(direct)
	d.show("initialize", "", len(hello))
	d.prose("%s", words)
	return d.agent.notify("notifications/initialized")
}

func (d *demo) list() error {
	listed, err := d.ask(toStart, "tools/list", json.RawMessage("{}"))
	if err != nil {
		return err
	}
	type listing struct {
		Tools []struct{ Name, Description string }
	}
	var names []string
	tools := decoded[listing](listed).Tools
	for _, t := range tools {
		names = append(names, t.Name)
	}
	if want := []string{"search_tools", "describe_tool", "call_tool"}; !slices.Equal(names, want) {
		return unexpected("want the tools "+strings.Join(want, ", "), listed)
	}
	direct, err := d.askOffice("tools/list", json.RawMessage("{}"))
	if err != nil {
		return err
	}
	d.spent[0][toStart] += len(direct)
	d.show("tools/list", "", len(listed))
	for _, t := range tools {
		first, _, _ := strings.Cut(t.Description, ". ")
		d.line("%-14s %s", t.Name, first)
	}
	d.line("Without the proxy: the server's own list of %d tools, %s.",
		len(decoded[listing](direct).Tools), size(len(direct)))
	return nil
}

func (d *demo) search() error {
	ask := `{"query":"reserve a place at the quay for a ship","also":["book a berth","berth booking","book_berth"]}`
	answer, err := d.tool(toFind, "search_tools", ask)
	if err != nil {
		return err
	}
	type match struct{ Server, Tool, Summary, Risk, Args string }
	matches := decoded[struct{ Matches []match }](own(answer)).Matches
	if !slices.ContainsFunc(matches, func(m match) bool { return m.Server == "harbour" && m.Tool == "book_berth" }) {
		return unexpected("want harbour book_berth among the matches", own(answer))
	}
	d.show("search_tools", ask, len(answer))
	for i, m := range matches {
		if i == 3 {
			d.line("… and %d more", len(matches)-i)
			break
		}
		d.line("%s %s  %s  %s", m.Server, m.Tool, m.Risk, m.Args)
	}
	return nil
}

func (d *demo) describe() error {
	ask := `{"server":"harbour","tool":"book_berth"}`
	answer, err := d.tool(toFind, "describe_tool", ask)
	if err != nil {
		return err
	}
	direct, err := d.askOffice("tools/list", json.RawMessage("{}"))
	if err != nil {
		return err
	}
	var schema json.RawMessage
	_ = jsonrpc.Elements(jsonrpc.Member(direct, "tools"), func(t json.RawMessage) bool { // a list: its size was shown
		if str(t, "name") == "book_berth" {
			schema = jsonrpc.Member(t, "inputSchema")
		}
		return schema == nil
	})
	got := jsonrpc.Member(own(answer), "inputSchema")
	if !bytes.Equal(got, schema) {
		return unexpected("want the server's own input schema of book_berth, byte for byte", own(answer))
	}
	d.show("describe_tool", ask, len(answer))
	first, _, _ := strings.Cut(str(own(answer), "description"), ". ")
	d.line("%s.", first)
	return jsonrpc.Members(jsonrpc.Member(got, "properties"), func(name string, p json.RawMessage) bool {
		d.line("%-8s %-8s %s", name, str(p, "type"), str(p, "description"))
		return true
	})
}

// look asks for structured content.
func (d *demo) look() error {
	answer, err := d.call("berth_plan", `{"freeOnly":true}`)
	if err != nil {
		return err
	}
	return d.showPlan(answer, "R1", "")
}

// showPlan prints a berth plan and checks who lies at one berth.
func (d *demo) showPlan(answer json.RawMessage, at, want string) error {
	plan := decoded[berths](jsonrpc.Member(answer, "structuredContent"))
	i := slices.IndexFunc(plan.Berths, func(b *berth) bool { return b.Berth == at })
	if i < 0 || plan.Berths[i].Ship != want {
		return unexpected(fmt.Sprintf("want berth %s with ship %q in the structured content", at, want), answer)
	}
	for _, b := range plan.Berths {
		d.line("%s  %3.0f m long, %.1f m deep  %-9s  %s", b.Berth, b.Length, b.Depth, b.Use, cmp.Or(b.Ship, "free"))
	}
	return nil
}

func (d *demo) image() error {
	answer, err := d.call("harbour_chart", `{}`)
	if err != nil {
		return err
	}
	var pictures int
	err = jsonrpc.Elements(jsonrpc.Member(answer, "content"), func(b json.RawMessage) bool {
		if text := str(b, "text"); text != "" {
			d.line("text: %s", text)
		}
		if data := str(b, "data"); data != "" {
			png, err := base64.StdEncoding.DecodeString(data)
			if err == nil && bytes.HasPrefix(png, []byte("\x89PNG")) {
				pictures++
				d.line("image: %s of %d bytes, as the server sent it", str(b, "mimeType"), len(png))
			}
		}
		return true
	})
	if err != nil || pictures != 1 {
		return unexpected("want one PNG image", answer)
	}
	return nil
}

// logBook asks for too much, and reads on where the answer was cut.
func (d *demo) logBook() error {
	ask := `{"year":` + strconv.Itoa(logYear) + `}`
	answer, direct, err := d.both("log_book", ask)
	if err != nil {
		return err
	}
	whole, blocks := text(direct, 0), decoded[struct{ Content []json.RawMessage }](answer).Content
	head, notice := text(answer, 0), text(answer, len(blocks)-1)
	id := str(answer, "_meta", "mcpproxy/call", "cache", "id")
	switch {
	case len(blocks) != 2 || head == "" || len(head) >= len(whole) || !strings.HasPrefix(whole, head):
		return unexpected("want the beginning of the log book and a notice", answer)
	case id == "" || !strings.Contains(notice, id) || !strings.Contains(notice, "read_cache"):
		return unexpected("want a notice with the call that reads on in the stored answer", json.RawMessage(notice))
	}
	d.show("call_tool", callOf("harbour", "log_book", ask), len(answer))
	entries := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	d.line("%s", entries[0])
	d.line("… %s lines …", number(len(entries)-2))
	d.line("%s", entries[len(entries)-1])
	d.prose("%s", notice)

	grep := callOf("mcpproxy", "read_cache", `{"cacheId":"`+id+`","grep":"whale"}`)
	found, err := d.tool(toReadOn, "call_tool", grep)
	if err != nil {
		return err
	}
	content := strings.TrimSpace(str(own(found), "content"))
	i := slices.IndexFunc(logOf(openHarbour().ships), func(l string) bool { return strings.Contains(l, "whale") })
	if want := strings.Split(whole, "\n")[i]; !strings.Contains(content, want) || strings.Count(content, "\n") > 0 {
		return unexpected(fmt.Sprintf("want the one line %q", want), own(found))
	}
	d.show("call_tool", grep, len(found))
	d.prose("%s", content)
	return nil
}

// book changes the server's state and looks whether it did.
func (d *demo) book() error {
	answer, err := d.call("book_berth", `{"berth":"R1","date":"`+harbourDay+`","imo":"9417720","nights":2}`)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(text(answer, 0), "Booked: berth R1 for Kestrel") {
		return unexpected("want a booking of berth R1 for Kestrel", answer)
	}
	d.line("%s", text(answer, 0))
	if answer, err = d.call("berth_plan", `{}`); err != nil {
		return err
	}
	return d.showPlan(answer, "R1", "Kestrel")
}

// call makes and shows a call whose answer fits, and which therefore has to be the server's own.
func (d *demo) call(tool, args string) (json.RawMessage, error) {
	answer, direct, err := d.both(tool, args)
	if err != nil {
		return nil, err
	}
	for _, part := range []string{"content", "structuredContent"} {
		if got, want := jsonrpc.Member(answer, part), jsonrpc.Member(direct, part); !bytes.Equal(got, want) {
			return nil, unexpected(fmt.Sprintf("want the server's own %s of %s, which is %s", part, tool, want), answer)
		}
	}
	d.show("call_tool", callOf("harbour", tool, args), len(answer))
	return answer, nil
}

// both makes a call through the proxy and without it.
func (d *demo) both(tool, args string) (answer, direct json.RawMessage, err error) {
	if answer, err = d.tool(toCall, "call_tool", callOf("harbour", tool, args)); err != nil {
		return nil, nil, err
	}
	params := toolCall(tool, args)
	if direct, err = d.askOffice("tools/call", params); err != nil {
		return nil, nil, err
	}
	d.spent[0][toCall] += len(direct)
	d.spent[0][toAsk] += len(params)
	return answer, direct, nil
}

// tool calls one of the proxy's three tools.
func (d *demo) tool(purpose int, name, args string) (json.RawMessage, error) {
	result, err := d.ask(purpose, "tools/call", toolCall(name, args))
	if err == nil && string(jsonrpc.Member(result, "isError")) == "true" {
		err = unexpected(name+" "+args+" failed", result)
	}
	return result, err
}

// ask makes one request of the proxy and counts both ways.
func (d *demo) ask(purpose int, method string, params json.RawMessage) (json.RawMessage, error) {
	d.steps++
	result, err := d.agent.request(method, params)
	d.spent[1][purpose] += len(result)
	if method == "tools/call" {
		d.spent[1][toAsk] += len(params)
	}
	return result, err
}

// askOffice makes one request of the server without the proxy.
func (d *demo) askOffice(method string, params json.RawMessage) (json.RawMessage, error) {
	request := jsonrpc.AppendRequest(nil, json.RawMessage("1"), method, params)
	raw, err := json.Marshal(d.office.HandleMessage(context.Background(), request))
	if err != nil {
		return nil, err
	}
	m, err := jsonrpc.Parse(raw)
	if err == nil && m.Err() != nil {
		err = m.Err()
	}
	return m.Result, err
}

func toolCall(name, args string) json.RawMessage {
	return json.RawMessage(`{"name":"` + name + `","arguments":` + args + `}`)
}

func callOf(server, tool, args string) string {
	return `{"server":"` + server + `","tool":"` + tool + `","arguments":` + args + `}`
}

// str is the string at a path of object keys, "" where there is none.
func str(obj json.RawMessage, path ...string) string {
	return jsonrpc.Unquote(jsonrpc.Member(obj, path...))
}

// own is the answer of the proxy itself in a result: one text block of JSON.
func own(result json.RawMessage) json.RawMessage { return json.RawMessage(text(result, 0)) }

// text is the text of a result's block.
func text(result json.RawMessage, block int) string {
	blocks := decoded[struct{ Content []struct{ Text string } }](result).Content
	if block < 0 || block >= len(blocks) {
		return ""
	}
	return blocks[block].Text
}

// agent is an MCP client over an in-process pipe, one request at a time.
type agent struct {
	in      *io.PipeWriter
	out     *io.PipeReader
	answers *jsonrpc.Lines // of out
	id      int
	ended   chan struct{}
}

func newAgent(ctx context.Context, g *proxy.Gateway) *agent {
	fromAgent, in := io.Pipe()
	out, toAgent := io.Pipe()
	a := &agent{in: in, out: out, answers: jsonrpc.NewLines(out, 64<<20), ended: make(chan struct{})}
	go func() { // ends with in, at the latest by close
		defer close(a.ended)
		err := g.ServeStdio(ctx, fromAgent, toAgent)
		_ = fromAgent.Close()
		_ = toAgent.CloseWithError(cmp.Or(err, ctx.Err())) // nil reads as io.EOF
	}()
	return a
}

func (a *agent) close() {
	_ = a.in.Close()
	_ = a.out.Close() // no answer is due
	<-a.ended
}

func (a *agent) notify(method string) error {
	_, err := a.in.Write(append(jsonrpc.AppendRequest(nil, nil, method, nil), '\n'))
	return err
}

func (a *agent) request(method string, params json.RawMessage) (json.RawMessage, error) {
	a.id++
	id := strconv.Itoa(a.id)
	if _, err := a.in.Write(append(jsonrpc.AppendRequest(nil, json.RawMessage(id), method, params), '\n')); err != nil {
		return nil, fmt.Errorf("%s: the proxy takes no more requests: %w", method, err)
	}
	for {
		line, err := a.answers.ReadLine()
		if err != nil {
			return nil, fmt.Errorf("%s: the proxy gives no answer: %w", method, err)
		}
		m, err := jsonrpc.Parse(line)
		switch {
		case err != nil:
			return nil, unexpected(method+": want a JSON-RPC message", line)
		case !m.IsResponse(): // a notification
		case string(m.ID) != id:
			return nil, unexpected(method+": want the answer to request "+id, line)
		case m.Err() != nil:
			return nil, fmt.Errorf("%s: %w", method, m.Err())
		default:
			return m.Result, nil
		}
	}
}

// show prints the head of a step: what was asked and how large the answer is.
func (d *demo) show(what, asked string, answer int) {
	what = fmt.Sprintf("%2d  %s", d.steps, what)
	fmt.Fprintf(d.stdout, "\n%s%*s\n", d.paint("1", what), demoWidth-len(what), size(answer))
	if asked != "" {
		fmt.Fprintf(d.stdout, "    %s\n", d.paint("2", cut(asked, demoWidth-4)))
	}
}

// line prints one line, cut at the width.
func (d *demo) line(format string, a ...any) {
	fmt.Fprintf(d.stdout, "    %s\n", cut(fmt.Sprintf(format, a...), demoWidth-4))
}

// prose prints words, wrapped at the width; a word that is longer than a line (a call with a cache id) is broken.
func (d *demo) prose(format string, a ...any) {
	const width = demoWidth - 4
	line := ""
	for word := range strings.FieldsSeq(fmt.Sprintf(format, a...)) {
		if line != "" && len(line)+1+len(word) > width {
			d.line("%s", line)
			line = ""
		}
		for ; line == "" && len(word) > width; word = word[width:] {
			d.line("%s", word[:width])
		}
		line = strings.TrimSpace(line + " " + word)
	}
	d.line("%s", line)
}

// balance compares the conversation with what it had been without the proxy.
func (d *demo) balance(took time.Duration) {
	const layout = "    %-32s%32s%32s"
	var sum [2]int
	row := func(what string, direct, proxied int) {
		cell := func(n int) string {
			if n == 0 {
				return "–"
			}
			return fmt.Sprintf("%s bytes %8s tokens", number(n), number(tokens(n)))
		}
		fmt.Fprintf(d.stdout, layout+"\n", what, cell(direct), cell(proxied))
	}
	fmt.Fprintf(d.stdout, "\n%s\n", d.paint("1", fmt.Sprintf(layout, "", "without the proxy", "through mcpproxy")))
	for purpose, what := range [purposes]string{"greeting and list of tools", "finding the tool",
		"answers of the calls", "reading on in the log book", "what the agent wrote"} {
		row(what, d.spent[0][purpose], d.spent[1][purpose])
		sum[0], sum[1] = sum[0]+d.spent[0][purpose], sum[1]+d.spent[1][purpose]
	}
	row("the whole conversation", sum[0], sum[1])
	fmt.Fprintf(d.stdout, "\n")
	d.prose("%d steps, each as expected, in %s. Every further server adds its whole list to the first row on the "+
		"left, and its name on the right.", d.steps, took.Round(10*time.Millisecond))
}

// invite tells how to point an agent at the proxy that stays up.
func (d *demo) invite() {
	url := "http://" + d.listen + "/mcp"
	fmt.Fprintf(d.stdout, "\n%s\n", d.paint("1", "The proxy stays up until Ctrl-C. Point an agent at it:"))
	d.line("URL          %s  (Streamable HTTP)", url)
	d.line(`.mcp.json    {"mcpServers": {"mcpproxy": {"type": "http", "url": %q}}}`, url)
	d.line("Claude Code  claude mcp add --transport http mcpproxy %s", url)
}

func tokens(bytes int) int { return (bytes + 2) / 4 }

func size(bytes int) string {
	return fmt.Sprintf("%s bytes, about %s tokens", number(bytes), number(tokens(bytes)))
}

// number writes n with commas between thousands.
func number(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// cut is s in at most n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
