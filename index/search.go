package index

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

// Search finds tools: exact names first, then by score, ties by server and name. It is deterministic.
func (c *Catalog) Search(q Query) Result { panic("stub") }
