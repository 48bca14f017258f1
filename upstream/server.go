package upstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// Status is a server's condition in one word (DESIGN 4).
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

// Server is one upstream server. It is safe for concurrent use; all that changes is owned by its goroutine.
type Server struct{ server }

type server struct{} // stub

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
func (s *Server) ID() string { panic("stub") }

// Config is the server's present configuration.
func (s *Server) Config() *configs.Server { panic("stub") }

// State is the present condition.
func (s *Server) State() State { panic("stub") }

// Do lends the connection to f, connecting if need be; callers that come while it connects share one attempt. It fails
// with a *Failure when there is no connection to be had, else with f's error.
func (s *Server) Do(ctx context.Context, f func(context.Context, *Conn) error) error { panic("stub") }

// Call makes one request under the server's call timeout. A call whose connection broke before its request was written is
// made once more; after that only if the request says Repeatable. Errors: *jsonrpc.Error as the server answered it,
// *Failure (no connection), *LostError (broken in mid-call), *TimeoutError, ctx's error.
func (s *Server) Call(ctx context.Context, r Request) (json.RawMessage, error) { panic("stub") }

// Refresh connects if need be and lists everything anew into the catalog.
func (s *Server) Refresh(ctx context.Context) error { panic("stub") }

// Disconnect ends the connection once its leases are back; the next use connects again.
func (s *Server) Disconnect(ctx context.Context) error { panic("stub") }

// Request is one call to a server.
type Request struct {
	Method     string
	Params     json.RawMessage // our _meta keys and progress token are spliced in
	Repeatable bool            // may be sent twice: the tool is annotated read-only or idempotent
	// Notify receives what the server sends in connection with this request (notifications/progress with the token of
	// Params' own _meta, notifications/message), in order and before the result. It must not block. May be nil.
	Notify func(method string, params json.RawMessage)
}

// Stage is how far an attempt to use a server came.
type Stage string

const (
	Resolve   Stage = "resolve"   // find the command, expand the configuration
	Spawn     Stage = "spawn"     // start the process, reach the host
	Handshake Stage = "handshake" // initialize, server/discover
	List      Stage = "list"      // read what it offers
	Calling   Stage = "call"
)

// Failure is why there is no connection.
type Failure struct {
	Server     string
	Stage      Stage
	NeedsAuth  bool
	Message    string   // one sentence
	ExitCode   *int     // stdio: of the process, when it ended
	HTTPStatus int      // HTTP: of the refusing answer
	Stderr     []string // last lines, redacted
	Noise      []string // sample of stdout lines that were no messages, redacted
	Hint       string   // what to do next
	At         time.Time
	Retry      time.Time // when the next attempt is due; zero: at the next use
	Err        error
}

func (f *Failure) Error() string { panic("stub") }
func (f *Failure) Unwrap() error { return f.Err }

// LostError is a connection that broke while a call was under way.
type LostError struct {
	Server string
	Sent   bool // the request may have been executed
	Err    error
}

func (e *LostError) Error() string { panic("stub") }
func (e *LostError) Unwrap() error { return e.Err }

// TimeoutError is a call that took longer than the server's call timeout.
type TimeoutError struct {
	Server string
	After  time.Duration
}

func (e *TimeoutError) Error() string { panic("stub") }

// Conn is one live connection; it is only valid inside Do.
type Conn struct{ conn }

type conn struct{} // stub

// ProtocolVersion is what was negotiated.
func (c *Conn) ProtocolVersion() string { panic("stub") }

// Call sends one request and waits for its answer; *jsonrpc.Error is the server's. When ctx ends the server is told.
func (c *Conn) Call(ctx context.Context, r Request) (json.RawMessage, error) { panic("stub") }

var _ = jsonrpc.ErrBatch
