package upstream

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
)

const (
	firstStart  = 60 * time.Second // npx and uvx download a server before they start it
	respawnTime = time.Second      // for the process that a probe has upset to end
)

// hint is what attempts to connect have taught about a server, besides what its listing tells.
type hint struct {
	noProbe bool // a process did not survive being asked for its era
	sse     bool // Streamable HTTP was refused, HTTP+SSE was not
}

// connectTimeout is the time for one attempt.
func (s *Server) connectTimeout() time.Duration {
	spec := s.Config()
	if spec.Transport == configs.Stdio && !spec.Limits.ConnectSet && s.known() == nil {
		return max(firstStart, spec.Limits.ConnectTimeout)
	}
	return spec.Limits.ConnectTimeout
}

// reach is one attempt to connect: a wire and the handshake over it, by the second way where the server refuses the first.
// before is closed when the process before this one has ended. A connection that comes with an error is to be closed.
func (s *Server) reach(ctx context.Context, h *hint, before <-chan struct{}) (*Conn, error) {
	for _, c := range []<-chan struct{}{before, s.after} {
		if c != nil {
			succeed(ctx, c)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.connectTimeout())
	defer cancel()
	version := ""
	if l := s.known(); l != nil {
		version = l.ProtocolVersion
	}
	spec := *s.Config()
	if h.sse {
		spec.Transport = configs.SSE
	}
	probe := spec.Transport != configs.SSE && (version == "" && !h.noProbe || modern(version))
	var first error
	for {
		c, err := s.open(ctx, &spec)
		if err == nil {
			if err = c.negotiate(ctx, probe); err == nil {
				c.spawn(c.listen)
				return c, nil
			}
		}
		var refused *httpError
		switch {
		case ctx.Err() != nil || c == nil:
		case c.stdio && probe && upset(err):
			probe, h.noProbe = false, true
			s.pool.Log.Debug("started once more, without a probe for its era", "server", s.id, "err", err)
			s.drop(c)
			continue
		case spec.Fallback && spec.Transport == configs.StreamableHTTP && errors.As(err, &refused) && notThere(refused.status):
			first, h.sse, spec.Transport, probe = err, true, configs.SSE, false
			s.drop(c)
			continue
		}
		h.sse = false
		if first != nil && !(errors.As(err, &refused) && refused.status == http.StatusUnauthorized) {
			err = first
		}
		return c, err
	}
}

// succeed waits for another process to end, but not for long.
func succeed(ctx context.Context, ended <-chan struct{}) {
	t := time.NewTimer(successionTime)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	case <-ctx.Done():
	}
}

// upset tells an error that a server may give only because it was probed.
func upset(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// notThere are the statuses by which, as the specification has it, an older server refuses Streamable HTTP.
func notThere(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// open makes a wire and the connection over it.
func (s *Server) open(ctx context.Context, spec *configs.Server) (*Conn, error) {
	c := newConn(s, spec.Transport == configs.Stdio)
	w, err := s.pool.dial(ctx, spec, c.hear)
	if err != nil {
		c.end()
		return nil, err
	}
	c.wire = w
	c.spawn(c.respond)
	s.starts.Add(1)
	s.latest.Store(c)
	return c, nil
}

// drop closes a connection within an attempt.
func (s *Server) drop(c *Conn) {
	ctx, cancel := context.WithTimeout(s.polite, respawnTime)
	defer cancel()
	if err := c.close(ctx); err != nil {
		s.pool.Log.Warn("could not end the connection", "server", s.id, "err", err)
	}
}
