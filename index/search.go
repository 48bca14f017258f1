package index

import (
	"slices"
	"strings"
)

// Query is one search over tools.
type Query struct {
	Text   string           // what is looked for
	Also   []string         // further phrasings of the same, at most 4 count
	Accept func(*Item) bool // nil accepts all; called while collecting, so that limits count what is accepted
	Limit  int              // at most this many hits
	Offset int
}

// Hit is one match.
type Hit struct {
	Item  *Item
	Score float64 // comparable within one result only
	Exact bool    // the query names the tool
}

// Result is what a search found.
type Result struct {
	Hits  []Hit
	Total int // accepted matches, Hits included
}

const maxAlso = 4

// Search finds tools: exact names first, then by score, ties by server and name. It is deterministic.
func (c *Catalog) Search(q Query) Result {
	<-c.indexed
	v := c.current()
	scores := make([]float64, len(v.docs.tools))
	v.docs.score(q.Text, scores)
	for _, phrasing := range q.Also[:min(len(q.Also), maxAlso)] {
		v.docs.score(phrasing, scores)
	}
	var r Result
	name := strings.Trim(q.Text, " \t\r\n\"'`")
	offset := max(q.Offset, 0)
	room := offset + max(q.Limit, 0)
	for n, it := range v.docs.tools {
		if it == nil {
			continue
		}
		h := Hit{it, scores[n], names(name, it)}
		if h.Score == 0 && !h.Exact || q.Accept != nil && !q.Accept(it) {
			continue
		}
		r.Total++
		at, _ := slices.BinarySearchFunc(r.Hits, h, Hit.compare)
		if at < room {
			r.Hits = slices.Insert(r.Hits, at, h)
			r.Hits = r.Hits[:min(len(r.Hits), room)]
		}
	}
	r.Hits = r.Hits[min(offset, len(r.Hits)):]
	return r
}

// compare orders hits, the best first.
func (h Hit) compare(o Hit) int {
	switch {
	case h.Exact != o.Exact:
		if h.Exact {
			return -1
		}
		return 1
	case h.Score != o.Score:
		if h.Score > o.Score {
			return -1
		}
		return 1
	case h.Item.Server != o.Item.Server:
		return strings.Compare(h.Item.Server, o.Item.Server)
	}
	return strings.Compare(h.Item.Name, o.Item.Name)
}

// names tells whether text is the tool's name in any casing, alone or with its server's in one of the usual ways.
func names(text string, it *Item) bool {
	head := len(text) - len(it.Name)
	switch head {
	case 0, len(it.Server) + len(":"), len(it.Server) + len("mcp____"):
	default:
		return false
	}
	if !strings.EqualFold(text[head:], it.Name) {
		return false
	}
	switch text = text[:head]; head - len(it.Server) {
	case len(":"):
		return strings.EqualFold(text[:head-1], it.Server) && strings.IndexByte(":./", text[head-1]) >= 0
	case len("mcp____"):
		return strings.EqualFold(text, "mcp__"+it.Server+"__")
	}
	return head == 0
}
