package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	cancelTime = 2 * time.Second  // to tell a server that an answer is not waited for any more
	awakeAfter = time.Second      // of silence a process is pinged before it gets a call
	awakeTime  = 20 * time.Second // for the answer
)

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

// awake makes sure, after a silence, that a process which answers pings still does, before it gets a call: a call to
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
