package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// probeTime is how long a server may be silent about its era before it is initialised; its answer still counts then.
const probeTime = 2 * time.Second

// handshakes are the protocol versions that begin with initialize, newest first.
var handshakes = mcp.LegacyProtocolVersions()

// modern tells the stateless era, whose requests each carry what the handshake would have agreed on.
func modern(version string) bool { return mcp.IsModernProtocol(version) }

// hello is what a server says of itself.
type hello struct {
	version      string
	modern       bool
	info         json.RawMessage
	capabilities json.RawMessage
	instructions string
}

var errNotDiscovered = errors.New("its answer to server/discover is none")

// negotiate agrees with the server on the version. Only with probe is it asked first whether it is modern.
func (c *Conn) negotiate(ctx context.Context, probe bool) error {
	h, err := c.greet(ctx, probe)
	if err != nil {
		return err
	}
	c.hello = h
	c.wire.negotiated(h.version, h.modern)
	if h.modern {
		return nil
	}
	return c.wire.send(ctx, jsonrpc.AppendRequest(nil, nil, "notifications/initialized", nil))
}

// greeting is what became of one way to greet.
type greeting struct {
	hello hello
	err   error
}

// greet finds the era. A server that is silent about it is initialised beside: it may be old, or just slow to start, and
// then it reads both, and the first answer that settles the matter counts.
func (c *Conn) greet(ctx context.Context, probe bool) (hello, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if !probe {
		h, err := c.initialize(ctx, handshakes[0])
		if err != nil && modernOnly(err) {
			if m, probeErr := c.discover(ctx); probeErr == nil {
				return m, nil
			}
		}
		return h, err
	}
	found, begun := make(chan greeting, 1), make(chan greeting, 1)
	c.spawn(func() {
		h, err := c.discover(ctx)
		found <- greeting{h, err}
	})
	silence := time.NewTimer(probeTime)
	defer silence.Stop()
	select {
	case g := <-found:
		offer, old := legacy(g.err, c.stdio)
		if !old {
			return g.hello, g.err
		}
		return c.initialize(ctx, offer)
	case <-silence.C:
	}
	c.spawn(func() {
		h, err := c.initialize(ctx, handshakes[0])
		begun <- greeting{h, err}
	})
	var refused error // by initialize
	for {
		select {
		case g := <-found:
			if _, old := legacy(g.err, c.stdio); !old || refused != nil {
				return g.hello, g.err
			}
			found = nil
		case g := <-begun:
			if g.err == nil || found == nil || !modernOnly(g.err) {
				return g.hello, g.err
			}
			refused, begun = g.err, nil
			silence.Reset(probeTime)
		case <-silence.C:
			return hello{}, refused
		}
	}
}

// discover asks a modern server for what it is.
func (c *Conn) discover(ctx context.Context) (hello, error) {
	version := mcp.ProtocolVersion20260728
	for again := false; ; again = true {
		m, err := c.exchange(ctx, c.ids.Add(1), "server/discover", c.meta(nil, version), version)
		if err != nil {
			return hello{}, err
		}
		if e := m.Err(); e != nil {
			if e.Code == jsonrpc.CodeUnsupportedProtocol && !again && slices.Contains(supported(e), version) {
				continue
			}
			return hello{}, e
		}
		offered := quoted(jsonrpc.Member(m.Result, "supportedVersions"))
		if len(offered) == 0 {
			return hello{}, errNotDiscovered
		}
		if !slices.Contains(offered, version) {
			data, _ := json.Marshal(map[string][]string{"supported": offered}) // strings always encode
			return hello{}, &jsonrpc.Error{
				Code: jsonrpc.CodeUnsupportedProtocol, Message: fmt.Sprintf("it speaks protocol versions %q", offered), Data: data,
			}
		}
		return hello{
			version: version, modern: true,
			info:         jsonrpc.Member(m.Result, "_meta", mcp.MetaKeyServerInfo),
			capabilities: jsonrpc.Member(m.Result, "capabilities"),
			instructions: jsonrpc.Unquote(jsonrpc.Member(m.Result, "instructions")),
		}, nil
	}
}

// initialize begins a session, up to the notification that ends the handshake.
func (c *Conn) initialize(ctx context.Context, offer string) (hello, error) {
	for again := false; ; again = true {
		params := jsonrpc.SetMember(nil, "protocolVersion", jsonrpc.Quote(offer))
		params = jsonrpc.SetMember(params, "capabilities", json.RawMessage("{}"))
		params = jsonrpc.SetMember(params, "clientInfo", c.server.clientInfo())
		m, err := c.exchange(ctx, c.ids.Add(1), "initialize", params, "")
		if err != nil {
			return hello{}, err
		}
		if e := m.Err(); e != nil {
			if v := best(supported(e)); v != "" && !again {
				offer = v
				continue
			}
			return hello{}, e
		}
		version := jsonrpc.Unquote(jsonrpc.Member(m.Result, "protocolVersion"))
		if !slices.Contains(handshakes, version) {
			return hello{}, fmt.Errorf("it speaks protocol version %q, which is not known: known are %q", cut(version), handshakes)
		}
		return hello{
			version:      version,
			info:         jsonrpc.Member(m.Result, "serverInfo"),
			capabilities: jsonrpc.Member(m.Result, "capabilities"),
			instructions: jsonrpc.Unquote(jsonrpc.Member(m.Result, "instructions")),
		}, nil
	}
}

// legacy tells whether what came of a probe is the way of a server that knows nothing of it, and which version to offer
// it. Refused access, and what keeps the server from being reached, say nothing of eras.
func legacy(err error, stdio bool) (offer string, old bool) {
	var (
		answer  *jsonrpc.Error
		refused *httpError
		broken  *wireError
	)
	switch {
	case err == nil:
		return "", false
	case errors.As(err, &answer):
		versions := supported(answer)
		if offer = best(versions); offer == "" && len(versions) == 0 {
			offer = handshakes[0]
		}
		return offer, offer != ""
	case errors.As(err, &refused):
		switch s := refused.status; s {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusTooManyRequests:
			return "", false
		default:
			return handshakes[0], s < 500 || s == http.StatusNotImplemented
		}
	case errors.As(err, &broken):
		return handshakes[0], !stdio && broken.sent // 202 and nothing more, or a closed connection
	}
	return handshakes[0], errors.Is(err, errNotDiscovered)
}

// modernOnly tells an answer to initialize of a server that may know server/discover instead.
func modernOnly(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && best(supported(e)) == ""
}

// supported are the versions that an error names.
func supported(e *jsonrpc.Error) []string {
	if v := quoted(jsonrpc.Member(e.Data, "supported")); v != nil {
		return v
	}
	return quoted(jsonrpc.Member(e.Data, "supportedVersions"))
}

// best is the newest of the versions that begins with initialize, "" when there is none.
func best(versions []string) string {
	for _, v := range handshakes {
		if slices.Contains(versions, v) {
			return v
		}
	}
	return ""
}

// quoted are the strings in a raw array.
func quoted(raw json.RawMessage) []string {
	var out []string
	_ = jsonrpc.Elements(raw, func(v json.RawMessage) bool { // no array: none
		if s := jsonrpc.Unquote(v); s != "" {
			out = append(out, s)
		}
		return true
	})
	return out
}

// clientInfo is what we say of ourselves.
func (s *Server) clientInfo() json.RawMessage {
	info := jsonrpc.SetMember(nil, "name", json.RawMessage(`"mcpproxy"`))
	version := s.pool.Version
	if version == "" {
		version = "dev"
	}
	return jsonrpc.SetMember(info, "version", jsonrpc.Quote(version))
}
