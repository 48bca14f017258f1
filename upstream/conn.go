package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
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
func (c *Conn) exchange(
	ctx context.Context, id int64, method string, params json.RawMessage, version string,
) (jsonrpc.Message, error) {
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
