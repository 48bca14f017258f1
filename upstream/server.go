package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
)

// Status is a server's condition in one word.
type Status string

const (
	Disabled       Status = "disabled"
	Untrusted      Status = "untrusted"
	Cold           Status = "cold"
	Discovering    Status = "discovering"
	Connecting     Status = "connecting"
	Connected      Status = "connected" // handshake done, lists not yet read
	Ready          Status = "ready"
	NeedsAuth      Status = "needs_auth"
	Authenticating Status = "authenticating"
	Errored        Status = "error"
	Disconnecting  Status = "disconnecting"
	Disconnected   Status = "disconnected"
)

// Server is one upstream server. It is safe for concurrent use; all that changes is owned by its goroutine (machine).
type Server struct {
	id   string
	pool *Pool
	spec atomic.Pointer[configs.Server] // replaced whole by Apply

	inputs  chan func(*machine)
	stopped chan struct{} // the machine takes no more inputs
	done    chan struct{} // nothing is left
	after   <-chan struct{}
	work    sync.WaitGroup // dials, listings, pings, closes
	life    context.Context
	stop    context.CancelFunc // ends life: cuts everything
	polite  context.Context    // bounds the polite part of closing
	rush    context.CancelFunc // ends polite

	state  atomic.Pointer[State] // published by the machine
	latest atomic.Pointer[Conn]  // the newest connection, for what is seen of its far end
	starts atomic.Int64
}

func newServer(p *Pool, spec *configs.Server, after <-chan struct{}) *Server {
	s := &Server{
		id: spec.ID, pool: p, after: after,
		inputs: make(chan func(*machine)), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.polite, s.rush = context.WithCancel(context.Background())
	s.spec.Store(spec)
	s.state.Store(&State{Status: Cold, Since: time.Now()})
	go s.run()
	return s
}

// State is a snapshot of a server.
type State struct {
	Status          Status
	Failure         *Failure  // the last one, nil after a success
	ProtocolVersion string    // of the live connection
	PID             int       // stdio, while connected
	Since           time.Time // of Status
	LastConnected   time.Time
	Stderr          []string // the last lines of stderr, redacted
	Noise           int      // lines on stdout that were no messages
	Starts          int      // connections opened so far
	NextTry         time.Time
	Leases          int
}

// ID is the server's id.
func (s *Server) ID() string { return s.id }

// Config is the server's present configuration.
func (s *Server) Config() *configs.Server { return s.spec.Load() }

// State is the present condition.
func (s *Server) State() State {
	st := *s.state.Load()
	st.Starts = int(s.starts.Load())
	if !st.NextTry.After(time.Now()) {
		st.NextTry = time.Time{}
	}
	if c := s.latest.Load(); c != nil {
		v := c.wire.vitals()
		st.Stderr, st.Noise = s.redacted(v.stderr, stderrShown), v.noise
		if v.exitCode == nil {
			st.PID = v.pid
		}
	}
	return st
}

// Do lends the connection to f, connecting if need be; callers that come while it connects share one attempt. It fails
// with a *Failure when there is no connection to be had, else with f's error.
func (s *Server) Do(ctx context.Context, f func(context.Context, *Conn) error) error {
	a := &want{reply: make(chan grant, 1)}
	g := s.obtain(ctx, a)
	if g.err != nil {
		return g.err
	}
	defer s.tell(func(m *machine) { m.free(g.conn) })
	return f(ctx, g.conn)
}

// obtain puts a want to the machine and waits for what comes of it.
func (s *Server) obtain(ctx context.Context, a *want) grant {
	if err := ctx.Err(); err != nil {
		return grant{err: err}
	}
	if !s.tell(func(m *machine) { m.ask(a) }) {
		return grant{err: s.gone()}
	}
	select {
	case g := <-a.reply:
		return g
	case <-ctx.Done():
		s.tell(func(m *machine) { m.withdraw(a) })
		return grant{err: ctx.Err()}
	}
}

// Call makes one request under the server's call timeout. A call whose connection broke before its request was written is
// made once more; after that only if the request says Repeatable. Errors: *jsonrpc.Error as the server answered it,
// *Failure (no connection, or refused by HTTP), *LostError (broken in mid-call), *TimeoutError, ctx's error.
func (s *Server) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	for again := false; ; again = true {
		var result json.RawMessage
		err := s.Do(ctx, func(ctx context.Context, c *Conn) (err error) {
			result, err = c.Call(ctx, r)
			return err
		})
		var lost *LostError
		if again || !errors.As(err, &lost) || lost.Sent && !(r.Repeatable && lost.broken()) {
			return result, err
		}
		s.pool.Log.Debug("the call is made once more on another connection", "server", s.id, "err", err)
	}
}

// Refresh connects if need be and lists everything anew into the catalog.
func (s *Server) Refresh(ctx context.Context) error {
	err := s.list(ctx, false)
	if errors.As(err, new(*LostError)) { // a list does nothing that must not be done twice
		err = s.list(ctx, false)
	}
	return err
}

// list waits for a listing that begins after now. A discovery keeps the connection no longer than that.
func (s *Server) list(ctx context.Context, discovery bool) error {
	return s.obtain(ctx, &want{list: true, discovery: discovery, reply: make(chan grant, 1)}).err
}

// Disconnect ends the connection once its leases are back; the next use connects again.
func (s *Server) Disconnect(ctx context.Context) error {
	a := &want{reply: make(chan grant, 1)}
	if !s.tell(func(m *machine) { m.disconnect(a) }) {
		return nil
	}
	select {
	case <-a.reply:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// swap gives the server another configuration of the same Hash.
func (s *Server) swap(spec *configs.Server) {
	s.spec.Store(spec)
	s.tell((*machine).swapped)
}

// leave ends the server when its leases are back.
func (s *Server) leave() { s.tell((*machine).leave) }

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// tell hands the machine an input, and tells whether it still takes any.
func (s *Server) tell(in func(*machine)) bool {
	select {
	case s.inputs <- in:
		return true
	case <-s.stopped:
		return false
	}
}

// known is the catalog's listing of this server under its present configuration, nil when there is none.
func (s *Server) known() *index.Listing {
	if l, ok := s.pool.Catalog.Listing(s.id); ok && l.SpecHash == s.Config().Hash {
		return l
	}
	return nil
}

// Request is one call to a server.
type Request struct {
	Method     string
	Params     json.RawMessage // our _meta keys and progress token are spliced in
	Repeatable bool            // may be sent twice: the tool is annotated read-only or idempotent
	// Notify receives what the server sends in connection with this request (notifications/progress with the token of
	// Params' own _meta, notifications/message), in order and before the result. It must not block. May be nil.
	Notify func(method string, params json.RawMessage)
}
