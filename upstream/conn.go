package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	cancelTime  = 2 * time.Second  // to tell a server that an answer is not waited for any more
	respondTime = 10 * time.Second // to answer a server's request
	respondMax  = 64               // answers that wait
	awakeAfter  = time.Second      // of silence a process is pinged before it gets a call
	awakeTime   = 20 * time.Second // for the answer
)

var (
	errHung     = errors.New("it does not answer pings, and has been silent")
	errTimeout  = errors.New("call timeout")
	errNoAnswer = errors.New("no answer to a ping")
)

// Conn is one live connection; it is only valid inside Do. It is safe for concurrent use.
type Conn struct {
	server *Server
	stdio  bool
	wire   wire // set before anything is sent
	hello       // set before the first lease

	life    context.Context // of what the connection does of itself
	end     context.CancelFunc
	ids     atomic.Int64
	born    time.Time
	heard   atomic.Int64  // when the server last said anything, since born
	pongs   atomic.Bool   // it has answered a ping
	served  atomic.Bool   // it has answered a call
	changed chan struct{} // a hint, of one: what it offers has changed
	replies chan []byte   // to the server's requests

	mu     sync.Mutex
	calls  map[int64]*call // under way, by our id, which is our progress token too
	closed bool
	work   sync.WaitGroup // none is added once closed
	why    error          // why broken is closed
	broken chan struct{}  // unusable, though the wire may live

	// The machine's:
	opened      time.Time
	leases      int
	retired     bool
	closing     bool
	pinged      bool
	farewells   []*want
	listLife    context.Context
	stopListing context.CancelFunc
}

func newConn(s *Server, stdio bool) *Conn {
	c := &Conn{
		server: s, stdio: stdio, born: time.Now(), calls: map[int64]*call{},
		changed: make(chan struct{}, 1), replies: make(chan []byte, respondMax), broken: make(chan struct{}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.listLife, c.stopListing = context.WithCancel(c.life)
	return c
}

// ProtocolVersion is what was negotiated.
func (c *Conn) ProtocolVersion() string { return c.version }

// call is a request on somebody's behalf, as what the server says meanwhile finds it.
type call struct {
	mu     sync.Mutex
	over   bool
	notify func(method string, params json.RawMessage) // may be nil
	token  json.RawMessage                             // the caller's own, nil when it wants no progress
	extend func()
}

// Call sends one request and waits for its answer, no longer than the server's call timeout, which progress extends. When
// it ends without an answer the server is told. Errors are those of Server.Call.
func (c *Conn) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	if err := c.awake(ctx); err != nil {
		return nil, err
	}
	id := c.ids.Add(1)
	params, token, err := c.params(r.Params, id)
	if err != nil {
		return nil, err
	}
	limits := c.server.Config().Limits
	began := time.Now()
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(min(limits.CallTimeout, limits.MaxCallTimeout), func() { cancel(errTimeout) })
	defer timer.Stop()
	k := &call{notify: r.Notify, token: token, extend: func() {
		timer.Reset(min(limits.CallTimeout, limits.MaxCallTimeout-time.Since(began)))
	}}
	c.enter(id, k)
	m, err := c.exchange(inner, id, r.Method, params, c.version)
	c.leave(id, k)
	switch {
	case err == nil:
		c.served.Store(true)
		if e := m.Err(); e != nil {
			return nil, e
		}
		if string(m.Result) == "null" {
			m.Result = json.RawMessage("{}")
		}
		return m.Result, nil
	case inner.Err() == nil || !errors.Is(err, inner.Err()):
		return nil, c.explain(err)
	case errors.Is(context.Cause(inner), errTimeout):
		after := time.Since(began).Round(time.Millisecond)
		c.tellCancelled(id, fmt.Sprintf("not answered within %v", after))
		return nil, &TimeoutError{Server: c.server.id, After: after}
	}
	c.tellCancelled(id, "the client does not wait for the answer any more")
	return nil, ctx.Err()
}

// explain is what a caller is told of a request that was not answered.
func (c *Conn) explain(err error) error {
	var refused *httpError
	var broken *wireError
	switch {
	case errors.As(err, &broken):
		return &LostError{Server: c.server.id, Sent: broken.sent, Err: err}
	case !errors.As(err, &refused):
		return err
	case refused.lost:
		return &LostError{Server: c.server.id, Err: err}
	case refused.status/100 == 5:
		return &LostError{Server: c.server.id, Sent: true, Err: err}
	}
	return c.server.fail(Calling, err, c)
}

// request is one of our own: lists and the like. On the end of ctx the server is told.
func (c *Conn) request(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	id := c.ids.Add(1)
	if c.modern {
		params = c.meta(params, c.version)
	}
	m, err := c.exchange(ctx, id, method, params, c.version)
	if err != nil {
		if ctx.Err() != nil && c.life.Err() == nil {
			c.tellCancelled(id, "not answered in time")
		}
		return nil, err
	}
	if e := m.Err(); e != nil {
		return nil, e
	}
	return m.Result, nil
}

// exchange sends one request and returns what answers it. version is what an HTTP request says of itself; for the eras
// that begin with a handshake the wire knows. Errors that mean the end of the connection end it.
func (c *Conn) exchange(ctx context.Context, id int64, method string, params json.RawMessage, version string) (jsonrpc.Message, error) {
	body := make([]byte, 0, len(params)+len(method)+64)
	body = jsonrpc.AppendRequest(body, strconv.AppendInt(nil, id, 10), method, params)
	m, err := c.wire.request(ctx, outgoing{id: id, method: method, body: body, header: c.header(method, params, version)})
	if err == nil {
		c.hears()
		return m, nil
	}
	var refused *httpError
	var broken *wireError
	switch {
	case errors.As(err, &refused) && (refused.lost || refused.status == http.StatusUnauthorized),
		errors.As(err, &broken) && c.stdio:
		c.lose(err)
	}
	return m, err
}

// header are the headers that HTTP requests of the modern era repeat from their bodies.
func (c *Conn) header(method string, params json.RawMessage, version string) http.Header {
	if c.stdio || !modern(version) {
		return nil
	}
	h := http.Header{mcp.HeaderProtocolVersion: {version}}
	for k, v := range mcp.StandardHeaders(version, mcp.MCPMethod(method), params) {
		h.Set(k, v)
	}
	if method != "tools/call" {
		return h
	}
	name := jsonrpc.Unquote(jsonrpc.Member(params, "name"))
	it, ok := c.server.pool.Catalog.Item(index.Ref{Server: c.server.id, Kind: index.Tool, Name: name})
	if ok && bytes.Contains(it.Raw, []byte("x-mcp-header")) {
		tool := &mcp.Tool{RawInputSchema: jsonrpc.Member(it.Raw, "inputSchema")}
		for k, v := range mcp.GenerateParamHeaders(tool, params) {
			h.Set(k, v)
		}
	}
	return h
}

// params splices our progress token, and what the modern era wants, into a caller's params. The token that stood there is
// returned.
func (c *Conn) params(p json.RawMessage, token int64) (params, own json.RawMessage, err error) {
	if p = bytes.TrimSpace(p); len(p) == 0 || string(p) == "null" {
		p = json.RawMessage("{}")
	}
	if p[0] != '{' || !jsonrpc.Valid(p) {
		return nil, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "params are no JSON object; nothing was sent")
	}
	meta := object(jsonrpc.Member(p, "_meta"))
	if own = jsonrpc.Member(meta, "progressToken"); string(own) == "null" {
		own = nil
	}
	meta = jsonrpc.SetMember(meta, "progressToken", strconv.AppendInt(nil, token, 10))
	if c.modern {
		meta = c.aboutUs(meta, c.version)
	}
	return jsonrpc.SetMember(p, "_meta", meta), own, nil
}

// meta adds to params of ours what every request of the modern era carries.
func (c *Conn) meta(params json.RawMessage, version string) json.RawMessage {
	return jsonrpc.SetMember(params, "_meta", c.aboutUs(nil, version))
}

func (c *Conn) aboutUs(meta json.RawMessage, version string) json.RawMessage {
	meta = jsonrpc.SetMember(meta, mcp.MetaKeyProtocolVersion, jsonrpc.Quote(version))
	meta = jsonrpc.SetMember(meta, mcp.MetaKeyClientInfo, c.server.clientInfo())
	return jsonrpc.SetMember(meta, mcp.MetaKeyClientCapabilities, json.RawMessage("{}"))
}

// object is raw when it is an object, else nil.
func object(raw json.RawMessage) json.RawMessage {
	if len(raw) > 0 && raw[0] == '{' {
		return raw
	}
	return nil
}

func (c *Conn) enter(id int64, k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[id] = k
}

// leave ends a call: after that nothing is said about it any more.
func (c *Conn) leave(id int64, k *call) {
	c.mu.Lock()
	delete(c.calls, id)
	c.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
}

func (c *Conn) callsUnderWay() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// tellCancelled says that the answer to a request is not waited for, without waiting for that to be heard. By modern HTTP
// it is said by the end of the request's stream.
func (c *Conn) tellCancelled(id int64, reason string) {
	if c.modern && !c.stdio {
		return
	}
	params := jsonrpc.SetMember(nil, "requestId", strconv.AppendInt(nil, id, 10))
	params = jsonrpc.SetMember(params, "reason", jsonrpc.Quote(reason))
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.life, cancelTime)
		defer cancel()
		if err := c.wire.send(ctx, jsonrpc.AppendRequest(nil, nil, "notifications/cancelled", params)); err != nil {
			c.server.pool.Log.Debug("could not tell that a request is cancelled", "server", c.server.id, "err", err)
		}
	})
}

// hear takes what the server says of itself, and in the course of calls.
func (c *Conn) hear(m jsonrpc.Message, during int64) {
	c.hears()
	switch m.Method {
	case "notifications/progress":
		c.progress(m.Params)
	case "notifications/message":
		if k := c.concerned(during); k != nil {
			k.say(m.Method, m.Params)
		}
	case "notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed":
		select {
		case c.changed <- struct{}{}:
		default:
		}
	default:
		if m.IsRequest() {
			c.answer(m)
		}
	}
}

// hears notes the sign of life.
func (c *Conn) hears() { c.heard.Store(int64(time.Since(c.born))) }

// quiet is for how long the server has said nothing.
func (c *Conn) quiet() time.Duration { return time.Since(c.born) - time.Duration(c.heard.Load()) }

// progress goes to the call whose token it bears: the time that it may take begins anew.
func (c *Conn) progress(params json.RawMessage) {
	id, ok := requestID(jsonrpc.Member(params, "progressToken"))
	if !ok {
		return
	}
	c.mu.Lock()
	k := c.calls[id]
	c.mu.Unlock()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return
	}
	k.extend()
	if k.notify != nil && k.token != nil {
		k.notify("notifications/progress", jsonrpc.SetMember(params, "progressToken", k.token))
	}
}

// concerned is the call that a message belongs to: the one on whose stream it came, or the only one there is.
func (c *Conn) concerned(during int64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.calls[during]; k != nil || during != 0 || len(c.calls) != 1 {
		return k
	}
	for _, k := range c.calls {
		return k
	}
	return nil
}

func (k *call) say(method string, params json.RawMessage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over && k.notify != nil {
		k.notify(method, params)
	}
}

// forbidden are the requests of servers that the configuration would have to allow. Nothing is allowed, and so nothing was
// declared to any server.
var forbidden = map[string]string{
	"sampling/createMessage": "sampling",
	"elicitation/create":     "elicitation",
	"roots/list":             "roots",
}

// answer answers a request of the server's. One that asks faster than it reads is not answered any more.
func (c *Conn) answer(m jsonrpc.Message) {
	var b []byte
	if m.Method == "ping" {
		b = jsonrpc.AppendResult(nil, m.ID, json.RawMessage("{}"))
	} else {
		e := jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "%s is not known to this client", cut(m.Method))
		if what := forbidden[m.Method]; what != "" {
			e.Message = what + " is not allowed by the configuration of this client"
			c.server.pool.Log.Info("refused a server's request", "server", c.server.id, "method", m.Method)
		}
		b = jsonrpc.AppendError(nil, m.ID, e)
	}
	select {
	case c.replies <- b:
	default:
		c.server.pool.Log.Debug("a server's request is not answered: too many wait", "server", c.server.id, "method", cut(m.Method))
	}
}

// respond sends the answers to the server's requests.
func (c *Conn) respond() {
	for {
		select {
		case b := <-c.replies:
			ctx, cancel := context.WithTimeout(c.life, respondTime)
			if err := c.wire.send(ctx, b); err != nil {
				c.server.pool.Log.Debug("could not answer a server's request", "server", c.server.id, "err", err)
			}
			cancel()
		case <-c.life.Done():
			return
		}
	}
}

// ping tells whether the server answers; whatever it answers. It fails with errNoAnswer when it is silent.
func (c *Conn) ping(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	method := "ping"
	var params json.RawMessage
	if c.modern { // it has no ping
		method, params = "server/discover", c.meta(nil, c.version)
	}
	_, err := c.exchange(ctx, c.ids.Add(1), method, params, c.version)
	var refused *httpError
	switch {
	case err == nil:
		c.pongs.Store(true)
	case errors.As(err, &refused) && refused.status/100 != 5 && !refused.lost && refused.status != http.StatusUnauthorized:
		err = nil
	case errors.Is(err, context.DeadlineExceeded):
		err = errNoAnswer
	}
	return err
}

// awake makes sure, after a long silence, that a process which answers pings still does, before it gets a call: a call to
// one that hangs would take all of the call timeout, and nobody could tell whether it was carried out. Beside other calls
// it may just be busy.
func (c *Conn) awake(ctx context.Context) error {
	if !c.stdio || !c.pongs.Load() || c.quiet() < awakeAfter || c.callsUnderWay() > 0 {
		return nil
	}
	err := c.ping(ctx, awakeTime)
	if !errors.Is(err, errNoAnswer) || ctx.Err() != nil || c.callsUnderWay() > 0 {
		return ctx.Err()
	}
	err = fmt.Errorf("%w for %v", errHung, c.quiet().Round(time.Second))
	c.lose(err)
	return &LostError{Server: c.server.id, Err: err}
}

// listen keeps the stream open on which a modern server tells of changes, where it says that it does. Nothing depends on
// it. The first answer to it is its end.
func (c *Conn) listen() {
	var filter json.RawMessage
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if string(jsonrpc.Member(c.capabilities, kind, "listChanged")) == "true" {
			filter = jsonrpc.SetMember(filter, kind+"ListChanged", json.RawMessage("true"))
		}
	}
	if !c.modern || filter == nil {
		return
	}
	params := jsonrpc.SetMember(nil, "notifications", filter)
	for fails := 0; ; fails++ {
		began := time.Now()
		_, err := c.request(c.life, "subscriptions/listen", params)
		var refused *httpError
		if errors.As(err, new(*jsonrpc.Error)) || errors.As(err, &refused) && refused.status < 500 {
			c.server.pool.Log.Debug("the server does not tell of changes", "server", c.server.id, "err", err)
			return
		}
		if time.Since(began) >= listenLonger/2 {
			fails = 0
		}
		pause := time.NewTimer(listenWait(fails, rand.Float64()))
		select {
		case <-pause.C:
		case <-c.wire.done():
			pause.Stop()
			return
		case <-c.life.Done():
			pause.Stop()
			return
		}
		select { // it may have told nobody
		case c.changed <- struct{}{}:
		default:
		}
	}
}

// lose makes the connection unusable; the first reason counts.
func (c *Conn) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		c.why = err
		close(c.broken)
	}
}

// reason is why the connection ended, nil when it has not ended of itself.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return c.why
	}
	return c.wire.vitals().lastErr
}

// gone tells whether the wire is dead.
func (c *Conn) gone() bool {
	select {
	case <-c.wire.done():
		return true
	default:
		return false
	}
}

// spawn runs f in a goroutine that close waits for; not at all after close.
func (c *Conn) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Go(f)
	}
}

// close ends the connection, and returns when nothing of it is left.
func (c *Conn) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	err := c.wire.close(ctx)
	c.work.Wait()
	return err
}
