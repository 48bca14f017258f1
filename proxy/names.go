package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/policy"
	"github.com/mcpproxy/mcpproxy/upstream"
)

// resolve finds the tool that is meant: by server and tool, by tool alone where that is unique, or by a combined name
// (server.tool, server:tool, server/tool, mcp__server__tool) in either field. Names are exact: a near miss is answered
// with the nearest, never called.
func (g *Gateway) resolve(ctx context.Context, rq *request, server, tool string) (*index.Item, error) {
	if server = strings.TrimSpace(server); tool == "" {
		server, tool = "", server
	}
	if tool == "" {
		return nil, invalid("which tool? give server and tool as search_tools shows them")
	}
	if server == "" {
		return g.resolveAlone(ctx, rq, tool)
	}
	spec, err := g.server(rq, server)
	if err != nil {
		return nil, err
	}
	return g.lookUp(ctx, rq, spec.ID, tool)
}

// resolveAlone finds a tool without a server.
func (g *Gateway) resolveAlone(ctx context.Context, rq *request, name string) (*index.Item, error) {
	var found []*index.Item
	var unlisted []string // servers that the name may belong to, but whose tools are not known yet
	add := func(it *index.Item) {
		if !slices.Contains(found, it) {
			found = append(found, it)
		}
	}
	ids := []string{policy.Builtin}
	for _, s := range rq.policy.Servers() {
		ids = append(ids, s.ID)
	}
	var denied *policy.Denial
	for _, id := range ids {
		for _, n := range append(inner(id, name), name) {
			it, ok := g.catalog.Item(index.Ref{Server: id, Kind: index.Tool, Name: n})
			if !ok {
				if _, listed := g.catalog.Listing(id); !listed && n != name {
					unlisted = append(unlisted, id)
				}
				continue
			}
			if d := rq.policy.Check(it.Ref); d != nil {
				denied = d
				continue
			}
			add(it)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		e := &Error{Code: AmbiguousTool, Tool: cutBytes(name, maxNamed), Message: fmt.Sprintf("%q names %d tools", name, len(found)), Hint: "say which: give server and tool"}
		for _, it := range found {
			e.Candidates = append(e.Candidates, Target{it.Server, it.Name})
		}
		return nil, e
	case denied != nil:
		return nil, denied
	case len(unlisted) > 0:
		return g.lookUp(ctx, rq, unlisted[0], name)
	}
	return nil, unknownTool("", name, g.catalog.Near(index.Tool, name, 5, func(it *index.Item) bool { return rq.policy.Visible(it.Ref) }))
}

// inner is what a combined name means on server id: the part behind the id and a separator.
func inner(id, name string) []string {
	if rest, ok := strings.CutPrefix(name, "mcp__"+id+"__"); ok && rest != "" {
		return []string{rest}
	}
	if rest, ok := strings.CutPrefix(name, id); ok && len(rest) > 1 && strings.ContainsRune(".:/", rune(rest[0])) {
		return []string{rest[1:]}
	}
	return nil
}

// server finds a usable server by its id or by its name as written in the file.
func (g *Gateway) server(rq *request, name string) (*configs.Server, error) {
	if name == policy.Builtin {
		return &configs.Server{ID: policy.Builtin, Enabled: true, Limits: rq.config.Settings.Limits}, nil
	}
	s := rq.config.Server(name)
	if s == nil {
		if i := slices.IndexFunc(rq.config.Servers, func(s *configs.Server) bool { return s.Name == name }); i >= 0 {
			s = rq.config.Servers[i]
		}
	}
	if s == nil {
		name = cutBytes(name, maxNamed)
		e := &Error{Code: UnknownServer, Server: name, Message: fmt.Sprintf("there is no server %q", name),
			Hint: "list_servers of the built-in server mcpproxy names them; the user adds servers in the configuration"}
		ids := []string{policy.Builtin}
		for _, s := range rq.config.Servers {
			if s.Enabled {
				ids = append(ids, s.ID)
			}
		}
		if e.Nearest = index.Nearest(name, ids, 5); len(e.Nearest) == 0 {
			e.Nearest = ids[:min(len(ids), 10)]
		}
		return nil, e
	}
	if !s.Enabled {
		return nil, &Error{Code: Disabled, Server: s.ID, Message: fmt.Sprintf("server %q is disabled in the configuration", s.ID),
			Hint: "only the user can enable it"}
	}
	if s.Err != nil {
		return nil, &Error{Code: ConnectFailed, Server: s.ID, Stage: string(upstream.Resolve), Message: rq.policy.Text(s.Err.Message), Hint: s.Err.Hint}
	}
	return s, nil
}

// lookUp finds a tool of one server; where its listing is absent or stale and the tool is not in it, it is read anew once.
func (g *Gateway) lookUp(ctx context.Context, rq *request, id, tool string) (*index.Item, error) {
	names := append([]string{tool}, inner(id, tool)...)
	find := func() (*index.Item, error) {
		for _, n := range names {
			if it, ok := g.catalog.Item(index.Ref{Server: id, Kind: index.Tool, Name: n}); ok {
				if d := rq.policy.Check(it.Ref); d != nil {
					return nil, d
				}
				return it, nil
			}
		}
		return nil, nil
	}
	it, err := find()
	if it != nil || err != nil {
		return it, err
	}
	if g.stale(rq, id) {
		if srv, ok := g.pool.Server(id); ok {
			if err := srv.Refresh(ctx); err != nil {
				return nil, err
			}
		}
		if it, err := find(); it != nil || err != nil {
			return it, err
		}
	}
	near := g.catalog.Near(index.Tool, tool, 5, func(it *index.Item) bool { return it.Server == id && rq.policy.Visible(it.Ref) })
	return nil, unknownTool(id, tool, near)
}

// stale tells that what is known of a server is absent, of another configuration, or old.
func (g *Gateway) stale(rq *request, id string) bool {
	if id == policy.Builtin {
		return false
	}
	l, ok := g.catalog.Listing(id)
	s := rq.config.Server(id)
	if !ok || s == nil || l.SpecHash != s.Hash {
		return true
	}
	limit := s.Limits.MetadataRefresh
	if l.TTL > 0 { // many servers say 0, "at once": what was read a moment ago is fresh all the same
		limit = max(l.TTL, time.Minute)
	}
	return limit > 0 && time.Since(l.Fetched) > limit
}
