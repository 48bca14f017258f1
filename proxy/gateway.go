// Package proxy is the gateway: it carries out actions with the catalog, the pool of servers and the policy, keeps
// outputs within bounds, writes the journal, and speaks MCP to clients.
//
// Actions are declared once, in a table; everything that can be asked of the program is made from it. The package knows
// no HTTP routes and starts no server that the configuration doesn't name.
package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/policy"
	"github.com/mcpproxy/mcpproxy/upstream"
)

// Options are what a gateway is made of.
type Options struct {
	Config  *configs.Config
	DataDir string       // where catalog and outputs live; made when absent
	Log     *slog.Logger // nil discards
	Version string       // of this program, told to clients and servers
}

// Gateway is the whole program behind its surfaces. It is safe for concurrent use.
type Gateway struct {
	catalog *index.Catalog
	pool    *upstream.Pool
	outputs *outputs
	journal *Journal
	checker *checker
	log     *slog.Logger
	version string
	started time.Time
	calls   atomic.Uint64

	view     atomic.Pointer[view] // replaced whole by Apply
	applying sync.Mutex

	life        context.Context // ends with Close
	end         context.CancelFunc
	discoveries sync.WaitGroup
	discovering atomic.Int32 // discoveries under way
}

// view is one configuration and what follows from it; a request loads it once and uses it to its end.
type view struct {
	config *configs.Config
	policy *policy.Policy
}

// New opens the data directory and applies the configuration. Nothing is discovered until Discover is called.
func New(o Options) (*Gateway, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w (choose another with --data-dir)", err)
	}
	catalog, err := index.Open(filepath.Join(o.DataDir, "catalog"), o.Log.Warn, builtinListing(o.Version))
	if err != nil {
		return nil, fmt.Errorf("catalog: %w (choose another place with --data-dir)", err)
	}
	store, err := openOutputs(filepath.Join(o.DataDir, "outputs"), outputOptions{TTL: o.Config.Settings.OutputTTL})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("output store: %w (choose another place with --data-dir)", err), catalog.Close())
	}
	g := &Gateway{catalog: catalog, outputs: store, journal: newJournal(), checker: newChecker(), log: o.Log,
		version: o.Version, started: time.Now()}
	g.life, g.end = context.WithCancel(context.Background())
	g.view.Store(&view{config: o.Config, policy: policy.New(o.Config)})
	g.pool = upstream.New(upstream.Options{Catalog: catalog, Log: o.Log, Version: o.Version,
		Redact:  func(s string) string { return g.view.Load().policy.Text(s) },
		Changed: func(server string) { g.journal.add(Event{Kind: StatusChanged, Server: server}) }})
	g.Apply(o.Config)
	return g, nil
}

// Apply makes another configuration the effective one: policy and view first, so that what is revoked is out of reach
// before anything else moves, then the servers.
func (g *Gateway) Apply(c *configs.Config) {
	g.applying.Lock()
	defer g.applying.Unlock()
	v := &view{config: c, policy: policy.New(c)}
	g.view.Store(v)
	g.pool.Apply(v.policy.Servers())
	g.journal.add(Event{Kind: ServersChanged})
}

// Discover lists, in the background, the servers that were never listed under their present configuration, unless
// settings.discovery is explicit.
func (g *Gateway) Discover() {
	if g.Config().Settings.Discovery == "explicit" {
		return
	}
	g.discovering.Add(1)
	g.discoveries.Go(func() {
		defer g.journal.add(Event{Kind: ServersChanged}) // wakes searches that wait
		defer g.discovering.Add(-1)
		g.pool.Discover(g.life)
	})
}

// DiscoverNow is Discover that waits until every server was tried or ctx ends.
func (g *Gateway) DiscoverNow(ctx context.Context) { g.pool.Discover(ctx) }

// Config is the effective configuration.
func (g *Gateway) Config() *configs.Config { return g.view.Load().config }

// Journal is what happened.
func (g *Gateway) Journal() *Journal { return g.journal }

// Version is this program's version.
func (g *Gateway) Version() string { return g.version }

// Close ends the servers and everything else; ctx bounds the polite part.
func (g *Gateway) Close(ctx context.Context) error {
	g.end()
	err := g.pool.Close(ctx)
	g.discoveries.Wait()
	return errors.Join(err, g.catalog.Close())
}

// Ask is one action asked of the gateway.
type Ask struct {
	Action  string
	Input   json.RawMessage
	Meta    json.RawMessage // the _meta of the client's request; passed on with a call, but for the progress token's value
	Notify  func(method string, params json.RawMessage)
	Surface string // mcp, api, cli, page, internal
}

// request is an Ask under way: the view it started with, and who listens.
type request struct {
	*view
	Ask
}

// Reply is an action's answer.
type Reply struct {
	Result  json.RawMessage // a whole MCP CallToolResult
	Value   json.RawMessage // the gateway's own answer; nil where Result came from a server
	IsError bool
	Err     *Error // the gateway's error, also in Value
}

// Do carries out one action. It always has a reply: what goes wrong stands in it.
func (g *Gateway) Do(ctx context.Context, a Ask) *Reply {
	v := g.view.Load()
	act := action(a.Action)
	if act == nil {
		return failed(&Error{Code: UnknownAction, Message: fmt.Sprintf("there is no action %q", a.Action), Hint: "ask for one of: " + actionNames()})
	}
	answer, err := act.run(g, ctx, &request{view: v, Ask: a}, a.Input)
	if err != nil {
		return failed(asError(err, v.policy))
	}
	return replyOf(answer)
}

func actionNames() string {
	s := ""
	for i, a := range actions {
		if i > 0 {
			s += ", "
		}
		s += a.Name
	}
	return s
}

// passed is a server's result on its way through.
type passed struct {
	result  json.RawMessage
	isError bool
}

func replyOf(answer any) *Reply {
	switch a := answer.(type) {
	case *Reply:
		return a
	case passed:
		return &Reply{Result: a.result, IsError: a.isError}
	case json.RawMessage: // already in its final bytes
		return &Reply{Result: textResult(a, false), Value: a}
	}
	raw, err := compact(answer)
	if err != nil {
		return failed(&Error{Code: UpstreamError, Message: err.Error()})
	}
	return &Reply{Result: textResult(raw, false), Value: raw}
}

func failed(e *Error) *Reply {
	raw, _ := compact(struct {
		Error *Error `json:"error"`
	}{e}) // plain data: always encodes
	return &Reply{Result: textResult(raw, true), Value: raw, IsError: true, Err: e}
}

// textResult is a CallToolResult of one text block.
func textResult(text []byte, isError bool) json.RawMessage {
	b := append([]byte(`{"content":[{"type":"text","text":`), quote(string(text))...)
	b = append(b, `}]`...)
	if isError {
		b = append(b, `,"isError":true`...)
	}
	return append(b, '}')
}

// builtinListing is the built-in server: the actions that are no meta-tools, found and called like any other tool.
func builtinListing(version string) *index.Listing {
	l := &index.Listing{Server: policy.Builtin, Fetched: time.Now(), Volatile: true}
	info, _ := json.Marshal(map[string]string{"name": policy.Builtin, "version": version})
	l.ServerInfo = info
	for i := range actions {
		if !actions[i].Meta {
			l.Tools = append(l.Tools, actions[i].tool())
		}
	}
	return l
}
