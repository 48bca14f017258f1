// Package index remembers what every server offers and finds it again.
//
// The Catalog holds each server's last whole listing, one JSON file each, and a search index over them that is derived
// and disposable. It never connects to anything: an answer may be stale, and says so.
package index

import (
	"encoding/json"
	"time"
)

// Kind is what an item is.
type Kind string

const (
	Tool     Kind = "tool"
	Resource Kind = "resource"
	Template Kind = "template"
	Prompt   Kind = "prompt"
)

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
	Hash            string          `json:"hash"`          // over all items' hashes; set by Put
	Warnings        []string        `json:"warnings,omitempty"`

	Tools     []json.RawMessage `json:"tools"`
	Resources []json.RawMessage `json:"resources,omitempty"`
	Templates []json.RawMessage `json:"templates,omitempty"`
	Prompts   []json.RawMessage `json:"prompts,omitempty"`
}

// Diff is what a new listing changed against the one before it.
type Diff struct{ Added, Removed, Changed []Ref }

// Empty tells that nothing changed.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Catalog is safe for concurrent use, and several processes may share its directory.
type Catalog struct{ catalog }

type catalog struct{} // stub

// Open reads what is in dir (made when absent, 0700). A damaged file is reported in the log, set aside, and costs that
// server's listing only. With dir "" the catalog lives in memory alone.
func Open(dir string, warn func(msg string, args ...any)) (*Catalog, error) { panic("stub") }

// Put stores a whole listing: file first (atomic), then the index, then memory, swapped whole. Items without a name and
// later twins of a name are left out with a warning in the stored listing.
func (c *Catalog) Put(l *Listing) (Diff, error) { panic("stub") }

// Drop forgets a server.
func (c *Catalog) Drop(server string) error { panic("stub") }

// Listing is the last whole listing of a server.
func (c *Catalog) Listing(server string) (*Listing, bool) { panic("stub") }

// Item is one item of the last listing.
func (c *Catalog) Item(r Ref) (*Item, bool) { panic("stub") }

// Items are a server's items of one kind in the server's order; of all servers (sorted by id) when server is "".
func (c *Catalog) Items(server string, k Kind) []*Item { panic("stub") }

// Near are the refs of that kind whose names are nearest to name (edit distance and shared parts), best first; accept,
// when given, filters.
func (c *Catalog) Near(k Kind, name string, n int, accept func(*Item) bool) []Ref { panic("stub") }

// Close releases what the index holds.
func (c *Catalog) Close() error { panic("stub") }
