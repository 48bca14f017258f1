// Package index remembers what every server offers and finds it again.
//
// The Catalog holds each server's last whole listing, one JSON file each, and a search index over them that is derived
// and disposable. It never connects to anything: an answer may be stale, and says so.
package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Kind is what an item is.
type Kind string

const (
	Tool     Kind = "tool"
	Resource Kind = "resource"
	Template Kind = "template"
	Prompt   Kind = "prompt"
)

var kinds = []Kind{Tool, Resource, Template, Prompt}

// Ref names one item: a tool or prompt by its name, a resource by its URI, a template by its URI template.
type Ref struct {
	Server string `json:"server"`
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
}

// Item is one thing that a server offers. It is immutable.
type Item struct {
	Ref
	Title       string          // title, else annotations.title, else ""
	Description string          // as the server wrote it: untrusted
	Raw         json.RawMessage // the whole object as it came
	Hash        string          // "sha256:…" of Raw's canonical JSON (RFC 8785 order, numbers as written)
}

// Listing is all that one server offered at one moment. It is immutable once put.
type Listing struct {
	Server          string          `json:"server"`
	SpecHash        string          `json:"specHash"` // configs.Server.Hash that it was fetched under
	ProtocolVersion string          `json:"protocolVersion"`
	ServerInfo      json.RawMessage `json:"serverInfo,omitempty"`
	Capabilities    json.RawMessage `json:"capabilities,omitempty"`
	Instructions    string          `json:"instructions,omitempty"`
	Fetched         time.Time       `json:"fetched"`
	TTL             time.Duration   `json:"ttl,omitempty"` // the server's own ttlMs; 0: none given
	Hash            string          `json:"hash"`          // over all items' hashes, whatever their order; set by Put
	Warnings        []string        `json:"warnings,omitempty"`
	Volatile        bool            `json:"-"` // lives in memory alone, never in a file

	Tools     []json.RawMessage `json:"tools"`
	Resources []json.RawMessage `json:"resources,omitempty"`
	Templates []json.RawMessage `json:"templates,omitempty"`
	Prompts   []json.RawMessage `json:"prompts,omitempty"`
}

// Diff is what a new listing changed against the one before it.
type Diff struct{ Added, Removed, Changed []Ref }

// Empty tells that nothing changed.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Catalog is safe for concurrent use, and several processes may share its directory: whoever writes a server last wins,
// and the others notice within a moment, when they are next asked.
type Catalog struct {
	dir  string // "": in memory alone
	warn func(msg string, args ...any)

	view    atomic.Pointer[view] // replaced whole by whoever holds writing
	indexed chan struct{}        // closed when what Open found is in the search index

	nextLook atomic.Int64 // when the directory may be looked at again, since opened
	opened   time.Time

	writing sync.Mutex // one writer at a time, its file included; readers never wait for it
	engine  *engine
	folder  folder
	closed  bool
}

// view is one consistent state of everything; it is immutable.
type view struct {
	servers map[string]*entry
	ids     []string // sorted
	docs    docs     // the search index as it was at this moment
}

// Open reads what is in dir (made when absent, 0700). A damaged file is reported in the log, set aside, and costs that
// server's listing only. With dir "" the catalog lives in memory alone. further listings are put into memory besides what
// is read. The search index is built in the background.
func Open(dir string, warn func(msg string, args ...any), further ...*Listing) (*Catalog, error) {
	if warn == nil {
		warn = func(string, ...any) {}
	}
	c := &Catalog{dir: dir, warn: warn, indexed: make(chan struct{}), opened: time.Now()}
	if dir != "" {
		if err := c.folder.open(dir, warn); err != nil {
			return nil, fmt.Errorf("catalog: %w", err)
		}
	}
	loaded, _ := c.folder.changes()
	for _, l := range further {
		e, _, err := newEntry(l)
		if err != nil {
			return nil, fmt.Errorf("catalog: %s: %w", l.Server, err)
		}
		loaded = append(loaded, e)
	}
	servers := map[string]*entry{}
	for _, e := range loaded {
		servers[e.listing.Server] = e
	}
	c.nextLook.Store(int64(lookEvery))
	c.view.Store(newView(servers, docs{}))
	var err error
	if c.engine, err = newEngine(); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	if len(servers) == 0 {
		close(c.indexed)
		return c, nil
	}
	c.writing.Lock()
	go func() { // ends when all is indexed; Close waits for it
		defer c.writing.Unlock()
		c.swap(servers, nil, loaded)
		close(c.indexed)
		debug.FreeOSMemory() // analysing all at once leaves many times more garbage than index
	}()
	return c, nil
}

// Put stores a whole listing: file first (atomic), then the index, then memory, swapped whole. Items without a name and
// later twins of a name are left out with a warning in the stored listing; l itself is not changed. When the file can't
// be written, the listing serves from memory all the same, and the error says so.
func (c *Catalog) Put(l *Listing) (Diff, error) {
	if l.Server == "" || !utf8.ValidString(l.Server) || strings.ContainsRune(l.Server, 0) {
		return Diff{}, fmt.Errorf("catalog: %q can't be a server's id", l.Server)
	}
	e, file, err := newEntry(l)
	if err != nil {
		return Diff{}, fmt.Errorf("catalog: %s: %w", l.Server, err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return Diff{}, errClosed
	}
	var failed error
	if c.dir != "" && !l.Volatile {
		if err := c.folder.write(l.Server, file); err != nil {
			failed = fmt.Errorf("catalog: %s is kept in memory only: %w", l.Server, err)
		}
	}
	old := c.view.Load().servers
	before := old[l.Server]
	diff := difference(before, e)
	servers := maps.Clone(old)
	servers[l.Server] = e
	if before != nil && before.listing.Hash == e.listing.Hash {
		c.swap(servers, nil, nil)
	} else {
		c.swap(servers, []*entry{before}, []*entry{e})
	}
	return diff, failed
}

// Drop forgets a server.
func (c *Catalog) Drop(server string) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return errClosed
	}
	err := c.folder.remove(server)
	old := c.view.Load().servers
	if e := old[server]; e != nil {
		servers := maps.Clone(old)
		delete(servers, server)
		c.swap(servers, []*entry{e}, nil)
	}
	if err != nil {
		return fmt.Errorf("catalog: forget %s: %w", server, err)
	}
	return nil
}

var errClosed = errors.New("catalog: closed")

// swap replaces the view, after the documents of gone have left the index and those of come have entered it, in one
// step. The caller holds writing.
func (c *Catalog) swap(servers map[string]*entry, gone, come []*entry) {
	d := c.view.Load().docs
	if len(gone)+len(come) > 0 {
		next, err := c.engine.update(d, gone, come)
		if err != nil {
			c.warn("the search index could not take a change", "err", err)
		} else {
			d = next
		}
	}
	c.view.Store(newView(servers, d))
}

func newView(servers map[string]*entry, d docs) *view {
	v := &view{servers: servers, ids: slices.Sorted(maps.Keys(servers))}
	v.docs = d.resolved(func(server, name string) *Item {
		if e := servers[server]; e != nil {
			return e.shelves[Tool].named[name]
		}
		return nil
	})
	return v
}

// lookEvery is how often, at most, the directory is looked at for what other processes wrote.
const lookEvery = 200 * time.Millisecond

// current is the view to answer from. Now and then, and only when somebody asks, it looks first for what other
// processes wrote; a writer in this process is not waited for.
func (c *Catalog) current() *view {
	now, next := int64(time.Since(c.opened)), c.nextLook.Load()
	if c.dir != "" && now >= next && c.nextLook.CompareAndSwap(next, now+int64(lookEvery)) && c.writing.TryLock() {
		if !c.closed && c.folder.stirred() {
			c.reload()
		}
		c.writing.Unlock()
	}
	return c.view.Load()
}

// reload takes in the files that changed. The caller holds writing.
func (c *Catalog) reload() {
	come, missing := c.folder.changes()
	if len(come)+len(missing) == 0 {
		return
	}
	var gone []*entry
	servers := maps.Clone(c.view.Load().servers)
	for _, id := range missing {
		if e := servers[id]; e != nil {
			gone = append(gone, e)
			delete(servers, id)
		}
	}
	var differing []*entry
	for _, e := range come {
		id := e.listing.Server
		before := servers[id]
		if servers[id] = e; before == nil || before.listing.Hash != e.listing.Hash {
			gone, differing = append(gone, before), append(differing, e)
		}
	}
	c.swap(servers, gone, differing)
}

// Listing is the last whole listing of a server.
func (c *Catalog) Listing(server string) (*Listing, bool) {
	if e := c.current().servers[server]; e != nil {
		return e.listing, true
	}
	return nil, false
}

// Item is one item of the last listing.
func (c *Catalog) Item(r Ref) (*Item, bool) {
	if e := c.current().servers[r.Server]; e != nil {
		it, ok := e.shelves[r.Kind].named[r.Name]
		return it, ok
	}
	return nil, false
}

// Items are a server's items of one kind in the server's order; of all servers (sorted by id) when server is "".
func (c *Catalog) Items(server string, k Kind) []*Item { return c.current().items(server, k) }

func (v *view) items(server string, k Kind) []*Item {
	ids := v.ids
	if server != "" {
		ids = []string{server}
	}
	var all []*Item
	for _, id := range ids {
		if e := v.servers[id]; e != nil {
			all = append(all, e.shelves[k].items...)
		}
	}
	return all
}

// Close releases what the index holds. What was found stays readable.
func (c *Catalog) Close() error {
	<-c.indexed
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.engine.close()
}
