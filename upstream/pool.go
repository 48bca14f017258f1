// Package upstream keeps the servers: transports, child processes, life cycle, one owner goroutine each.
//
// A connection is lent, never given: it is reachable only inside Server.Do, so that idling, reloading or shutting down
// never cuts a call. Payloads stay raw. The package knows nothing of the tools that the proxy itself offers.
package upstream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
)

const (
	discoverAtOnce = 4               // first discoveries side by side
	refreshAtOnce  = 8               // refreshes side by side
	killTime       = 2 * time.Second // for what Close kills when its ctx has ended
)

// Options are what a pool is made of.
type Options struct {
	Catalog *index.Catalog
	Log     *slog.Logger        // nil discards
	Redact  func(string) string // what failures, stderr and noise pass through before anyone sees them; nil changes nothing
	Changed func(server string) // a hint that a server's state or listing changed; must not block
	Version string              // ours, told to servers
}

// Pool owns the servers of one configuration. It is safe for concurrent use.
type Pool struct {
	Options
	client *http.Client
	dial   dialer

	applying sync.Mutex // one Apply at a time

	mu      sync.Mutex // not held while a server is told anything: Changed may ask the pool
	servers map[string]*Server
	leaving []*Server // replaced or removed, with calls that still run
	closed  bool
}

// dialer makes a wire to a server, over the transport that spec names.
type dialer func(ctx context.Context, spec *configs.Server, in inbound) (wire, error)

// New makes an empty pool.
func New(o Options) *Pool {
	p := &Pool{Options: o, client: newClient(), servers: map[string]*Server{}}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Redact == nil {
		p.Redact = func(s string) string { return s }
	}
	if p.Changed == nil {
		p.Changed = func(string) {}
	}
	p.dial = p.dialTransport
	return p
}

// Apply reconciles the pool with a configuration: servers whose Hash is the same live on, untouched, with their new
// filters and limits; others are closed and made anew. Eager and keep-alive servers connect at once. It does not wait
// for connections, neither to open nor to close.
func (p *Pool) Apply(servers []*configs.Server) {
	p.applying.Lock()
	defer p.applying.Unlock()
	kept, left := p.replace(servers)
	for spec, s := range kept {
		s.swap(spec)
	}
	for _, s := range left {
		s.leave()
	}
}

// replace makes these the pool's servers. Those of before that go on are returned by their new configuration, and those
// that don't.
func (p *Pool) replace(servers []*configs.Server) (kept map[*configs.Server]*Server, left []*Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil
	}
	before := p.servers
	p.servers, kept = map[string]*Server{}, map[*configs.Server]*Server{}
	for _, spec := range servers {
		if !spec.Enabled || spec.Err != nil {
			continue
		}
		old := before[spec.ID]
		if old != nil && old.Config().Hash == spec.Hash {
			p.servers[spec.ID], kept[spec] = old, old
			delete(before, spec.ID)
			continue
		}
		var after <-chan struct{}
		if old != nil && old.State().Leases == 0 {
			after = old.done // two processes of one server may be in each other's way
		}
		p.servers[spec.ID] = newServer(p, spec, after)
	}
	p.leaving = slices.DeleteFunc(p.leaving, (*Server).ended)
	for _, old := range before {
		left = append(left, old)
	}
	p.leaving = append(p.leaving, left...)
	return kept, left
}

// Server is the server of that id: configured, enabled and without configuration error.
func (p *Pool) Server(id string) (*Server, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.servers[id]
	return s, ok
}

// Servers are all of them, sorted by id.
func (p *Pool) Servers() []*Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Server, 0, len(p.servers))
	for _, s := range p.servers {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Server) int { return cmp.Compare(a.id, b.id) })
	return all
}

// Discover lists the servers that were never listed under their present configuration, a few at a time, and returns when
// all were tried or ctx ends. A server's trouble stands in its State.
func (p *Pool) Discover(ctx context.Context) {
	p.each(ctx, discoverAtOnce, func(s *Server) {
		if s.known() == nil {
			_ = s.list(ctx, true) // stands in its State
		}
	})
}

// RefreshAll is Refresh of every server, some of them at a time. A server's trouble stands in its State.
func (p *Pool) RefreshAll(ctx context.Context) {
	p.each(ctx, refreshAtOnce, func(s *Server) {
		_ = s.Refresh(ctx) // stands in its State
	})
}

// each calls f for every server, n at a time, and returns when all calls have.
func (p *Pool) each(ctx context.Context, n int, f func(*Server)) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, n)
	for _, s := range p.Servers() {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-slots }()
			f(s)
		})
	}
}

// Close ends all servers and their processes and waits until nothing of them is left. When ctx ends, what is left is
// killed.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := p.leaving
	for _, s := range p.servers {
		all = append(all, s)
	}
	p.leaving, p.servers = nil, map[string]*Server{}
	p.mu.Unlock()

	defer p.client.CloseIdleConnections()
	for _, s := range all {
		s.stop()
	}
	rush := context.AfterFunc(ctx, func() {
		for _, s := range all {
			s.rush()
		}
	})
	defer rush()
	for _, s := range all {
		select {
		case <-s.done:
			continue
		case <-ctx.Done():
		}
		if !await(s.done, killTime) {
			return fmt.Errorf("close server %q: %w", s.id, ctx.Err())
		}
	}
	return nil
}
