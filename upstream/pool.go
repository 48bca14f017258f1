// Package upstream keeps the servers: transports, child processes, life cycle, one owner goroutine each.
//
// A connection is lent, never given: it is reachable only inside Server.Do, so that idling, reloading or shutting down
// never cuts a call. Payloads stay raw. The package knows nothing of the tools that the proxy itself offers.
package upstream

import (
	"context"
	"log/slog"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
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
type Pool struct{ pool }

type pool struct{} // stub

// New makes an empty pool.
func New(o Options) *Pool { panic("stub") }

// Apply reconciles the pool with a configuration: servers whose Hash is the same live on, untouched, with their new
// filters and limits; others are closed and made anew. Eager and keep-alive servers connect at once. It does not wait
// for connections, neither to open nor to close.
func (p *Pool) Apply(servers []*configs.Server) { panic("stub") }

// Server is the server of that id: configured, enabled and without configuration error.
func (p *Pool) Server(id string) (*Server, bool) { panic("stub") }

// Servers are all of them, sorted by id.
func (p *Pool) Servers() []*Server { panic("stub") }

// Discover lists the servers that were never listed under their present configuration, a few at a time, and returns when
// all were tried or ctx ends. A server's trouble stands in its State.
func (p *Pool) Discover(ctx context.Context) { panic("stub") }

// Close ends all servers and their processes and waits until nothing of them is left, or ctx ends.
func (p *Pool) Close(ctx context.Context) error { panic("stub") }
