package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// wire is one live way to a server, below the protocol: it carries JSON-RPC messages and matches answers to requests by
// id. It knows nothing of eras, tools or time limits other than ctx. The ids of our requests are numbers; an answer whose
// id is the same number in a string is accepted when no other pending request claims it.
type wire interface {
	// request sends one request and returns the answering message (result or error, as it came). When ctx ends it
	// returns at once with ctx's error; telling the server is the caller's business. Other errors: *wireError, *httpError.
	request(ctx context.Context, q outgoing) (jsonrpc.Message, error)
	// send delivers a notification, or the answer to a server's request. It does not wait for a reader that has stopped
	// reading longer than ctx.
	send(ctx context.Context, msg []byte) error
	// negotiated is told the protocol version after the handshake, so that HTTP can send it along (and, for the handshake
	// eras, open the optional GET stream, which never blocks or fails anything).
	negotiated(version string, modern bool)
	// done is closed when the wire is dead: process gone, stream lost for good.
	done() <-chan struct{}
	// vitals is what is known of the far end, at any time, also after its death.
	vitals() vitals
	// close ends it (stdio: the shutdown ladder; HTTP: DELETE of the session) and returns when nothing of it is left.
	// ctx bounds the polite part; what remains then is killed. Safe to call more than once.
	close(ctx context.Context) error
}

// inbound receives what arrives besides answers: notifications and requests of the server. It is called in order and
// must not block. during is the id of our request on whose own stream the message came (Streamable HTTP), 0 when that
// can't be known.
type inbound func(m jsonrpc.Message, during int64)

// outgoing is one request on its way.
type outgoing struct {
	id     int64
	method string
	body   []byte      // the whole JSON-RPC message, without newline
	header http.Header // HTTP only: further headers (Mcp-Method, Mcp-Name, Mcp-Param-…); may be nil
}

// vitals is what a wire can tell of the far end.
type vitals struct {
	pid      int
	exitCode *int     // stdio: once the process has ended; negative: the signal
	stderr   []string // stdio: last lines, as they came
	noise    int      // stdout lines that were no messages
	sample   []string // the first few of them, cut
	lastErr  error    // why done is closed
}

// wireError is a transport failure.
type wireError struct {
	sent bool // the request, or part of it, may have reached the server
	err  error
}

func (e *wireError) Error() string { return e.err.Error() }
func (e *wireError) Unwrap() error { return e.err }

// httpError is an answer that refuses at the HTTP level: no JSON-RPC message in it.
type httpError struct {
	status  int
	header  http.Header
	message string // at most 300 characters of readable text from the body, markup removed
	lost    bool   // the server does not know our session any more: nothing was executed
	url     string // without userinfo and query
}

func (e *httpError) Error() string {
	s := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", e.status, http.StatusText(e.status))) + " from " + e.url
	if e.message != "" {
		s += ": " + e.message
	}
	return s
}
