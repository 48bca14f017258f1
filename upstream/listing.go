package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	pagesMax  = 1000
	itemsMax  = 100_000
	listTimes = 10 // all pages of all lists may take so many times what one page may
)

// seen is what a listing has brought.
type seen struct {
	changed bool
	fresh   time.Duration // for how long it counts
}

// kinds are what a server can list. Tools are asked for even where they are not declared: there are servers that forget to.
var kinds = []struct {
	method, member, capability string
	optional                   bool // a server that does not know the method has none
	of                         func(*index.Listing) *[]json.RawMessage
}{
	{"tools/list", "tools", "tools", true, func(l *index.Listing) *[]json.RawMessage { return &l.Tools }},
	{"resources/list", "resources", "resources", false, func(l *index.Listing) *[]json.RawMessage { return &l.Resources }},
	{"resources/templates/list", "resourceTemplates", "resources", true,
		func(l *index.Listing) *[]json.RawMessage { return &l.Templates }},
	{"prompts/list", "prompts", "prompts", false, func(l *index.Listing) *[]json.RawMessage { return &l.Prompts }},
}

// list reads everything that the server offers into the catalog. When its tools can't be read all stays as it was; of
// another kind the last good list is kept.
func (c *Conn) list() (seen, error) {
	spec := c.server.Config()
	ctx, cancel := context.WithTimeout(c.listLife, listTimes*spec.Limits.DiscoveryTimeout)
	defer cancel()
	before := c.server.known()
	l := &index.Listing{
		Server: c.server.id, SpecHash: spec.Hash, ProtocolVersion: c.version, ServerInfo: object(c.info),
		Capabilities: object(c.capabilities), Instructions: c.instructions, Fetched: time.Now(),
	}
	for _, k := range kinds {
		if k.method != "tools/list" && object(jsonrpc.Member(c.capabilities, k.capability)) == nil {
			continue
		}
		err := c.pages(ctx, k.method, k.member, spec.Limits.DiscoveryTimeout, k.of(l), l)
		var answer *jsonrpc.Error
		if k.optional && errors.As(err, &answer) && answer.Code == jsonrpc.CodeMethodNotFound {
			err = nil
		}
		switch {
		case err == nil:
		case k.method == "tools/list" || c.listLife.Err() != nil:
			return seen{}, err
		default:
			*k.of(l) = nil
			if before != nil {
				*k.of(l) = *k.of(before)
			}
			l.Warnings = append(l.Warnings, c.server.pool.Redact(fmt.Sprintf("%s failed: %s", k.method, plain(c.server.id, err))))
		}
	}
	if err := c.listLife.Err(); err != nil { // somebody else speaks for this server by now
		return seen{}, err
	}
	diff, err := c.server.pool.Catalog.Put(l)
	if err != nil {
		c.server.pool.Log.Warn("could not keep a listing", "server", c.server.id, "err", err)
	}
	fresh := spec.Limits.MetadataRefresh
	if l.TTL > 0 {
		fresh = l.TTL
	}
	return seen{changed: !diff.Empty(), fresh: fresh}, nil
}

// pages reads one list to its end into items.
func (c *Conn) pages(
	ctx context.Context, method, member string, perPage time.Duration, items *[]json.RawMessage, l *index.Listing,
) error {
	warn := func(format string, a ...any) {
		l.Warnings = append(l.Warnings, method+": "+fmt.Sprintf(format, a...))
	}
	params := json.RawMessage("{}")
	known := map[string]bool{}
	for page := 1; ; page++ {
		result, err := c.page(ctx, method, params, perPage)
		if err != nil {
			return err
		}
		list := jsonrpc.Member(result, member)
		err = jsonrpc.Elements(list, func(raw json.RawMessage) bool {
			if why := c.unfit(method, raw); why != "" {
				warn("left out %s", why)
				return true
			}
			*items = append(*items, raw)
			return len(*items) < itemsMax
		})
		if err != nil && list != nil && string(list) != "null" || list == nil && page == 1 && object(result) == nil {
			return fmt.Errorf("its answer to %s holds no list of %s", method, member)
		}
		c.age(result, l)
		cursor := jsonrpc.Member(result, "nextCursor")
		switch {
		case cursor == nil || string(cursor) == "null" || string(cursor) == `""`:
			return nil
		case known[string(cursor)]:
			warn("stopped at page %d, whose cursor was there before", page)
			return nil
		case page == pagesMax || len(*items) >= itemsMax:
			warn("stopped after %d pages and %d items", page, len(*items))
			return nil
		}
		known[string(cursor)] = true
		params = jsonrpc.SetMember(nil, "cursor", cursor)
	}
}

func (c *Conn) page(
	ctx context.Context, method string, params json.RawMessage, within time.Duration,
) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return c.request(ctx, method, params)
}

// unfit tells why a tool must not be used, "" when it may be: over modern HTTP a tool whose x-mcp-header annotations are
// not valid is to be left out.
func (c *Conn) unfit(method string, raw json.RawMessage) string {
	if method != "tools/list" || c.stdio || !c.modern || !bytes.Contains(raw, []byte("x-mcp-header")) {
		return ""
	}
	err := mcp.ValidateParamHeaderAnnotations(&mcp.Tool{RawInputSchema: jsonrpc.Member(raw, "inputSchema")})
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%q: %v", cut(jsonrpc.Unquote(jsonrpc.Member(raw, "name"))), err)
}

// age takes over how long the server says that a page counts: the shortest of all counts. At once means: next to nothing.
func (c *Conn) age(result json.RawMessage, l *index.Listing) {
	var ms float64
	raw := jsonrpc.Member(result, "ttlMs")
	if raw == nil || json.Unmarshal(raw, &ms) != nil || ms < 0 {
		return
	}
	ttl := max(time.Millisecond, time.Duration(min(ms, 1e12))*time.Millisecond)
	if l.TTL == 0 || ttl < l.TTL {
		l.TTL = ttl
	}
}
