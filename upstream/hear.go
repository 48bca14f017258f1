package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	respondTime = 10 * time.Second // to answer a server's request
	respondMax  = 64               // answers that wait
)

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
		c.server.pool.Log.Debug("a server's request is not answered: too many wait", "server", c.server.id)
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
