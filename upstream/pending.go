package upstream

import (
	"encoding/json"
	"math"
	"strconv"
	"sync"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// pending matches answers to requests by id. The zero value is ready; it is safe for concurrent use.
type pending struct {
	mu    sync.Mutex
	waits map[int64]chan answer
	dead  error // after fail
}

// answer is what came of a request: a response, or the reason why there will be none.
type answer struct {
	m   jsonrpc.Message
	err error
}

// add announces a request before it is sent. The channel gets one answer, unless drop comes first. It fails after fail.
func (p *pending) add(id int64) (<-chan answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead != nil {
		return nil, p.dead
	}
	if p.waits == nil {
		p.waits = map[int64]chan answer{}
	}
	c := make(chan answer, 1)
	p.waits[id] = c
	return c, nil
}

// drop forgets a request: a late answer to it is dropped.
func (p *pending) drop(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waits, id)
}

// settle hands a response to the request it answers and tells whether there was one. Our ids are numbers, so a string
// that holds one can only mean the same request.
func (p *pending) settle(m jsonrpc.Message) bool {
	id, ok := requestID(m.ID)
	if !ok {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.waits[id]
	if ok {
		delete(p.waits, id)
		c <- answer{m: m}
	}
	return ok
}

// fail gives every waiting request, and every later one, err. Only the first call counts.
func (p *pending) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead != nil {
		return
	}
	p.dead = err
	for _, c := range p.waits {
		c <- answer{err: err}
	}
	p.waits = nil
}

// requestID reads the id of a response as one of ours: a number, the same as 3.0 or 3e0 from servers that keep numbers as
// floats, or as a string from servers that keep ids as text.
func requestID(raw json.RawMessage) (int64, bool) {
	s := string(raw)
	if len(s) >= 2 && s[0] == '"' {
		s = jsonrpc.Unquote(raw)
		id, err := strconv.ParseInt(s, 10, 64)
		return id, err == nil
	}
	if id, err := strconv.ParseInt(s, 10, 64); err == nil {
		return id, true
	}
	f, err := strconv.ParseFloat(s, 64)
	return int64(f), err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53
}
