// Package fake is a real MCP server that does as a Script says, for tests.
//
// It speaks JSON-RPC by hand, on package jsonrpc alone, so that it can misbehave to the byte; what the Script does not
// spoil is a correct server of both protocol eras. It records everything it receives. It never shares code with the
// client side under test, and knows nothing of it.
//
// One Script runs in three ways: in process on a pair of streams (ServeStdio), in process over HTTP (HTTP, SSE), or as a
// child process over stdio (Child, with Main called first in TestMain):
//
//	func TestMain(m *testing.M) { fake.Main(); os.Exit(m.Run()) }
//
//	command, args, env := fake.Child(fake.Script{Tools: fake.Builtin("echo", "exit"), Record: file})
//
// In process, a test reads back with Records, Received and Wait, and acts with SetTools, Notify and Forget. Of a child it
// reads the Record file with ReadRecords and WaitRecords; a ToolsFile changes what a child offers.
package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// Server is one fake server. It is safe for concurrent use and may serve several clients at once.
type Server struct {
	script Script
	stderr io.Writer      // of a child process; else discards
	done   chan struct{}  // closed by Close
	tasks  sync.WaitGroup // what go starts

	mu         sync.Mutex // guards what follows
	closed     bool
	tools      []Tool
	bearer     string
	links      map[*link]bool
	sessions   map[string]*link // of HTTP
	listens    map[*listen]bool
	calls      int
	discovered bool
	faults     []int // how often each fault was met
	records    []Record
	recorded   chan struct{} // closed and replaced with each record
}

// New makes a server. It panics on JSON in the script that is none, naming it.
func New(script Script) *Server {
	s := &Server{
		script: script, stderr: io.Discard, done: make(chan struct{}),
		tools: slices.Clone(script.Tools), bearer: script.HTTP.Bearer,
		links: map[*link]bool{}, sessions: map[string]*link{}, listens: map[*listen]bool{},
		faults: make([]int, len(script.HTTP.Faults)), recorded: make(chan struct{}),
	}
	for i := 1; i <= script.Many; i++ {
		s.tools = append(s.tools, Tool{
			Do:  "echo_params",
			Raw: fmt.Sprintf(`{"name":"tool_%04d","description":"Tool number %d","inputSchema":{"type":"object"}}`, i, i),
		})
	}
	for i, t := range s.tools {
		s.tools[i] = t.check()
	}
	return s
}

// Close ends all streams and calls, and waits until no goroutine of the server's own is left.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	links := slices.Collect(maps.Keys(s.links))
	s.mu.Unlock()
	for _, l := range links {
		s.leave(l)
	}
	s.tasks.Wait()
}

// spawn runs f in a goroutine that Close waits for. It ends when its client is gone.
func (s *Server) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.tasks.Go(f)
	}
}

// SetTools replaces what the server offers and tells its clients so.
func (s *Server) SetTools(tools ...Tool) {
	checked := make([]Tool, len(tools))
	for i, t := range tools {
		checked[i] = t.check()
	}
	s.mu.Lock()
	s.tools = checked
	s.mu.Unlock()
	s.Notify("notifications/tools/list_changed", "")
}

// SetBearer replaces the token that requests must carry; "" asks for none.
func (s *Server) SetBearer(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bearer = token
}

// Forget drops all HTTP sessions, as a restart does.
func (s *Server) Forget() {
	s.mu.Lock()
	sessions := slices.Collect(maps.Values(s.sessions))
	clear(s.sessions)
	s.mu.Unlock()
	for _, l := range sessions {
		s.leave(l)
	}
}

// Notify sends a notification to all clients: those of the handshake era on their own stream, those of 2026-07-28 where
// they listen for it. Params is JSON, or "" for none.
func (s *Server) Notify(method, params string) {
	s.mu.Lock()
	links, listens := slices.Collect(maps.Keys(s.links)), slices.Collect(maps.Keys(s.listens))
	s.mu.Unlock()
	for _, l := range links {
		if l.negotiated() != "" {
			l.say(notification(method, params))
		}
	}
	for _, l := range listens {
		l.say(method, params)
	}
}

// Calls is the number of tools/call requests that have reached a tool.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// link is one client as the server sees it: a stdio connection, an HTTP session, or a single request without session.
type link struct {
	id      string        // of the HTTP session; "" without
	brief   bool          // made for one request
	gone    chan struct{} // closed by leave
	sayLock sync.Mutex
	sayFunc func([]byte) // outside of answers; nil while there is no stream. Guarded by sayLock

	mu      sync.Mutex // guards what follows
	left    bool
	version string // negotiated by the handshake
	ready   bool   // notifications/initialized has come
	running map[*running]bool
	asked   map[string]chan jsonrpc.Message // requests of ours that wait for an answer
	lastAsk int
}

// running is a request that is being answered.
type running struct {
	id     string
	cancel context.CancelFunc
}

func (s *Server) join(id string, say func([]byte)) *link {
	l := &link{
		id: id, gone: make(chan struct{}), sayFunc: say,
		running: map[*running]bool{}, asked: map[string]chan jsonrpc.Message{},
	}
	s.mu.Lock()
	closed := s.closed
	s.links[l] = true
	s.mu.Unlock()
	if closed {
		s.leave(l)
	}
	return l
}

// session makes l the one that requests with its id belong to.
func (s *Server) session(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[l.id] = l
}

// leave ends a client's streams and calls.
func (s *Server) leave(l *link) {
	s.mu.Lock()
	delete(s.links, l)
	if s.sessions[l.id] == l {
		delete(s.sessions, l.id)
	}
	s.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left {
		return
	}
	l.left = true
	close(l.gone)
	for r := range l.running {
		r.cancel()
	}
}

func (l *link) say(msg []byte) {
	l.sayLock.Lock()
	defer l.sayLock.Unlock()
	if l.sayFunc != nil {
		l.sayFunc(msg)
	}
}

func (l *link) stream(say func([]byte)) {
	l.sayLock.Lock()
	defer l.sayLock.Unlock()
	l.sayFunc = say
}

func (l *link) negotiated() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.version
}

func (l *link) agree(version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = version
}

// begin makes the context of one request: it ends with parent, when the client cancels, and when it leaves.
func (l *link) begin(parent context.Context, id json.RawMessage) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	r := &running{string(id), cancel}
	l.mu.Lock()
	l.running[r] = true
	if l.left {
		cancel()
	}
	l.mu.Unlock()
	return ctx, func() {
		l.mu.Lock()
		delete(l.running, r)
		l.mu.Unlock()
		cancel()
	}
}

// cancel ends the requests of that id.
func (l *link) cancel(id json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range l.running {
		if r.id == string(id) {
			r.cancel()
		}
	}
}

// ask sends a request to the client and waits for the answer.
func (l *link) ask(ctx context.Context, method, params string, say func([]byte)) (jsonrpc.Message, error) {
	answer := make(chan jsonrpc.Message, 1)
	l.mu.Lock()
	l.lastAsk++
	id := strconv.Quote("ask-" + strconv.Itoa(l.lastAsk))
	l.asked[id] = answer
	l.mu.Unlock()
	say(jsonrpc.AppendRequest(nil, json.RawMessage(id), method, raw(params)))
	select {
	case m := <-answer:
		return m, nil
	case <-l.gone:
		return jsonrpc.Message{}, context.Canceled
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	}
}

// hear takes what wants no answer: notifications, and answers to requests of ours.
func (s *Server) hear(l *link, m jsonrpc.Message) {
	switch {
	case m.IsResponse():
		l.mu.Lock()
		waiting := l.asked[string(m.ID)]
		delete(l.asked, string(m.ID))
		l.mu.Unlock()
		if waiting != nil {
			waiting <- m
		}
	case m.Method == "notifications/cancelled" && !s.script.IgnoreCancel && !(s.script.HTTP.NoSessions && l.id == ""):
		l.cancel(jsonrpc.Member(m.Params, "requestId"))
	case m.Method == "notifications/initialized":
		l.mu.Lock()
		l.ready = true
		l.mu.Unlock()
		if c := s.script.ListChanged; c != nil {
			s.spawn(func() { c.run(l.gone, func() { l.say(notification("notifications/tools/list_changed", "")) }) })
		}
		if s.script.AskRoots {
			s.spawn(func() { _, _ = l.ask(context.Background(), "roots/list", "", l.say) }) // the answer is in the record
		}
	}
}

func (c *ListChanged) run(gone <-chan struct{}, send func()) {
	wait := c.AfterMs
	for range max(1, c.Times) {
		timer := time.NewTimer(time.Duration(wait) * time.Millisecond)
		select {
		case <-timer.C:
			send()
		case <-gone:
			timer.Stop()
			return
		}
		wait = c.EveryMs
	}
}

func notification(method, params string) []byte {
	return jsonrpc.AppendRequest(nil, nil, method, raw(params))
}

// raw is JSON of a script on one line, nil for "".
func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	if !jsonrpc.Valid([]byte(text)) {
		panic("fake: a script holds JSON that is none: " + text)
	}
	var b bytes.Buffer
	if bytes.ContainsAny([]byte(text), "\r\n") && json.Compact(&b, []byte(text)) == nil {
		return b.Bytes()
	}
	return json.RawMessage(text)
}
