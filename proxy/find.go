package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/policy"
	"github.com/mcpproxy/mcpproxy/upstream"
)

// Bounds of what search and describe answer.
const (
	defaultMatches = 8
	maxMatches     = 20
	searchBudget   = 3 << 10 // bytes for eight matches, as they stand escaped in the text block; more of them in proportion
	maxSearch      = 8 << 10 // bytes in all, likewise
	searchPatience = 2 * time.Second
	maxDescription = 16 << 10
	maxSchema      = 24 << 10
)

type searchInput struct {
	Query  string   `json:"query" required:"1" doc:"What the tool should do, with its object: \"create github issue\""`
	Also   []string `json:"also" required:"1" doc:"Up to 4 other phrasings: synonyms for action and object, a likely tool name in snake_case, the product's name, English if the query is not"`
	Server string   `json:"server" doc:"Only this server"`
	Risk   string   `json:"risk" enum:"read,write,destructive,unknown"`
	Limit  int      `json:"limit" range:"1,20" doc:"Default 8"`
	Cursor string   `json:"cursor" doc:"nextCursor of the answer before"`
}

type searchAnswer struct {
	Matches    []match  `json:"matches"`
	Coverage   coverage `json:"coverage"`
	Next       string   `json:"next"`
	NextCursor string   `json:"nextCursor,omitempty"`
}

// match is one tool in few words: enough to choose it, and mostly enough to call it.
type match struct {
	Server  string  `json:"server"`
	Tool    string  `json:"tool"`
	Title   string  `json:"title,omitempty"`
	Summary string  `json:"summary"`
	Risk    string  `json:"risk"`
	Args    string  `json:"args"`
	State   string  `json:"state,omitempty"` // only where it stands in the way
	Stale   bool    `json:"stale,omitempty"`
	Hash    string  `json:"metadataHash"`
	Score   float64 `json:"score"`

	item *index.Item
}

// coverage says how many servers were searched, how many of those are stale (each match of theirs says so too), and which
// were not searched.
type coverage struct {
	Searched int       `json:"searched"`
	Missing  []missing `json:"missing,omitempty"`
	Stale    int       `json:"stale,omitempty"`
}

type missing struct {
	Server string `json:"server"`
	Why    string `json:"why"`
	Next   string `json:"next"`
}

// search answers from the catalog alone; it never connects to anything. Where it finds nothing while first listings are
// under way, it waits for them a little.
func (g *Gateway) search(ctx context.Context, rq *request, in searchInput) (any, error) {
	offset := 0
	if in.Cursor != "" {
		n, err := strconv.ParseUint(in.Cursor, 36, 31)
		if err != nil {
			return nil, invalid("search_tools: %q is no cursor; give the nextCursor of the answer before, or none", cutBytes(in.Cursor, 40))
		}
		offset = int(n)
	}
	if in.Limit == 0 {
		in.Limit = defaultMatches
	}
	if in.Server != "" {
		s, err := g.server(rq, in.Server)
		if err != nil {
			return nil, err
		}
		in.Server = s.ID
	}
	q := index.Query{Text: in.Query, Also: in.Also, Limit: in.Limit, Offset: offset, Accept: func(it *index.Item) bool {
		return (in.Server == "" || it.Server == in.Server) && (in.Risk == "" || string(policy.Assess(it).Risk) == in.Risk) &&
			rq.policy.Visible(it.Ref)
	}}
	found := g.patientSearch(ctx, q)
	a := searchAnswer{Matches: []match{}, Coverage: g.coverage(rq, in.Server)}
	for _, h := range found.Hits {
		m := match{Server: h.Item.Server, Tool: h.Item.Name, Risk: string(policy.Assess(h.Item).Risk), Hash: h.Item.Hash,
			Score: math.Round(h.Score*1000) / 1000, Stale: g.stale(rq, h.Item.Server), State: g.obstacle(h.Item.Server), item: h.Item}
		a.Matches = append(a.Matches, m)
	}
	if end := offset + len(found.Hits); len(found.Hits) > 0 && end < found.Total {
		a.NextCursor = strconv.FormatUint(uint64(end), 36)
	}
	switch {
	case len(a.Matches) > 0:
		a.Next = `call_tool {server, tool, arguments}; where args does not suffice: describe_tool {server, tool}`
	case offset > 0:
		a.Next = "no more matches"
	default:
		a.Next = `No tool fits. Try other words in query and also; or list a server's tools: call_tool {"server":"mcpproxy","tool":"list_tools","arguments":{"server":"…"}}`
	}
	budget := min(max(searchBudget*len(a.Matches)/defaultMatches, searchBudget), maxSearch)
	if rq.Surface == "cli" { // people pay no tokens
		budget = math.MaxInt
	}
	return fit(a, offset, budget)
}

func (g *Gateway) patientSearch(ctx context.Context, q index.Query) index.Result {
	found := g.catalog.Search(q)
	if len(found.Hits) > 0 || g.discovering.Load() == 0 {
		return found
	}
	patience := time.NewTimer(searchPatience)
	defer patience.Stop()
	var seq uint64
	for {
		events, _, more := g.journal.Since(seq)
		if n := len(events); n > 0 {
			seq = events[n-1].Seq
		}
		if found = g.catalog.Search(q); len(found.Hits) > 0 || g.discovering.Load() == 0 {
			return found
		}
		select {
		case <-more:
		case <-patience.C:
			return found
		case <-ctx.Done():
			return found
		}
	}
}

// fit writes summaries and signatures as long as the budget allows.
func fit(a searchAnswer, offset, budget int) (json.RawMessage, error) {
	var raw json.RawMessage
	for _, room := range []struct{ summary, args int }{
		{160, 240}, {120, 200}, {110, 160}, {100, 130}, {90, 110}, {80, 95}, {70, 80}, {60, 70}, {50, 60}, {40, 40}} {
		for i := range a.Matches {
			m := &a.Matches[i]
			m.Title, m.Summary = plain(m.item.Title, 60), plain(m.item.Description, room.summary)
			if m.Title == m.Summary || room.summary < 100 {
				m.Title = ""
			}
			m.Args = signature(jsonrpc.Member(m.item.Raw, "inputSchema"), room.args)
		}
		var err error
		if raw, err = compact(a); err != nil || len(quote(string(raw))) <= budget {
			return raw, err
		}
	}
	for len(quote(string(raw))) > max(budget, maxSearch) && len(a.Matches) > 1 { // names of thousands of characters
		a.Matches = a.Matches[:len(a.Matches)-1]
		a.NextCursor = strconv.FormatUint(uint64(offset+len(a.Matches)), 36)
		raw, _ = compact(a) // as before
	}
	for len(quote(string(raw))) > max(budget, maxSearch) && len(a.Coverage.Missing) > 1 { // very many servers in trouble: status names them all
		a.Coverage.Missing = a.Coverage.Missing[:len(a.Coverage.Missing)/2]
		raw, _ = compact(a) // as before
	}
	return raw, nil
}

// coverage tells of each server (or of one) whether its tools were among those searched.
func (g *Gateway) coverage(rq *request, only string) coverage {
	var c coverage
	for _, s := range rq.config.Servers {
		if !s.Enabled || only != "" && s.ID != only {
			continue
		}
		_, listed := g.catalog.Listing(s.ID)
		if s.Err == nil && listed {
			if c.Searched++; g.stale(rq, s.ID) {
				c.Stale++
			}
			continue
		}
		c.Missing = append(c.Missing, g.whyMissing(rq, s))
	}
	return c
}

func (g *Gateway) whyMissing(rq *request, s *configs.Server) missing {
	m := missing{Server: s.ID}
	if s.Err != nil {
		m.Why, m.Next = cutBytes(rq.policy.Text(s.Err.Message), 160), cutBytes(s.Err.Hint, 160)
		return m
	}
	srv, ok := g.pool.Server(s.ID)
	if !ok {
		m.Why, m.Next = "not running", "ask the user"
		return m
	}
	st := srv.State()
	switch {
	case st.Status == upstream.Discovering || st.Status == upstream.Connecting || st.Status == upstream.Connected:
		m.Why, m.Next = "its first listing is under way", "search again in a few seconds"
	case st.Failure != nil:
		m.Why, m.Next = cutBytes(plain(st.Failure.Error(), 200), 200), cutBytes(st.Failure.Hint, 160)
	default:
		m.Why = "never listed"
		m.Next = fmt.Sprintf(`call_tool {"server":"mcpproxy","tool":"refresh","arguments":{"server":%s}}`, quote(s.ID))
	}
	return m
}

// obstacle is a server's state where it stands in the way of a call.
func (g *Gateway) obstacle(id string) string {
	if srv, ok := g.pool.Server(id); ok {
		switch st := srv.State(); st.Status {
		case upstream.Errored, upstream.NeedsAuth, upstream.Authenticating:
			return string(st.Status)
		}
	}
	return ""
}

type describeInput struct {
	Server string `json:"server" required:"1"`
	Tool   string `json:"tool" required:"1"`
}

type description struct {
	Server       string          `json:"server"`
	Tool         string          `json:"tool"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description"`
	Risk         string          `json:"risk"`
	RiskConflict bool            `json:"riskConflict,omitempty"` // the annotations contradict the name
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"`
	Hash         string          `json:"metadataHash"`
	Freshness    string          `json:"freshness"`
	Elided       string          `json:"elided,omitempty"` // what was left out, and the call that reads the whole
}

// describe answers with one tool, full enough to call it; schemas keep their bytes unless they are over-large.
func (g *Gateway) describe(ctx context.Context, rq *request, in describeInput) (any, error) {
	it, err := g.resolve(ctx, rq, in.Server, in.Tool)
	if err != nil {
		return nil, err
	}
	risk := policy.Assess(it)
	d := description{Server: it.Server, Tool: it.Name, Title: escape(it.Title), Description: escape(it.Description), Risk: string(risk.Risk),
		RiskConflict: risk.Conflict, InputSchema: jsonrpc.Member(it.Raw, "inputSchema"), OutputSchema: jsonrpc.Member(it.Raw, "outputSchema"),
		Annotations: jsonrpc.Member(it.Raw, "annotations"), Hash: it.Hash, Freshness: "fresh"}
	if len(d.InputSchema) == 0 || string(d.InputSchema) == "null" {
		d.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	if g.stale(rq, it.Server) {
		d.Freshness = "stale"
	}
	if len(d.InputSchema)+len(d.OutputSchema)+len(d.Annotations) > maxSchema || len(d.Title)+len(d.Description) > maxDescription {
		g.elide(&d, it)
	}
	return d.raw()
}

// elide cuts an over-large description to its essentials and keeps the whole in the output store.
func (g *Gateway) elide(d *description, it *index.Item) {
	d.Title, d.Description = cutBytes(d.Title, maxNamed), cutBytes(d.Description, maxDescription)
	d.InputSchema = compactSchema(d.InputSchema, maxSchema/2)
	if d.OutputSchema != nil {
		d.OutputSchema = compactSchema(d.OutputSchema, maxSchema/4)
	}
	if len(d.Annotations) > maxSchema/4 {
		d.Annotations = nil
	}
	d.Elided = fmt.Sprintf("the tool's metadata has %d bytes; descriptions and deep parts of it are left out", len(it.Raw))
	if id, err := g.outputs.put(outputOwner{Server: it.Server, Tool: it.Name}, it.Raw, false); err == nil {
		d.Elided += fmt.Sprintf(`; read the whole: call_tool {"server":"mcpproxy","tool":"read_cache","arguments":{"cacheId":"%s"}}`, id)
	}
}

// raw writes the description with the schemas' own bytes, which encoding/json would compact and escape.
func (d *description) raw() (json.RawMessage, error) {
	in, out, ann := d.InputSchema, d.OutputSchema, d.Annotations
	d.InputSchema, d.OutputSchema, d.Annotations = json.RawMessage("0"), nil, nil
	raw, err := compact(d)
	if err != nil {
		return nil, err
	}
	raw = jsonrpc.SetMember(raw, "inputSchema", in)
	if out != nil {
		raw = jsonrpc.SetMember(raw, "outputSchema", out)
	}
	if ann != nil {
		raw = jsonrpc.SetMember(raw, "annotations", ann)
	}
	return raw, nil
}
