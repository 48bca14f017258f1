package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// entry is a listing and its items. It is immutable; all raw parts share one piece of memory, the text of its file.
type entry struct {
	listing *Listing
	shelves map[Kind]shelf
}

// shelf is what a listing holds of one kind.
type shelf struct {
	items []*Item
	named map[string]*Item
}

func (l *Listing) raws(k Kind) *[]json.RawMessage {
	switch k {
	case Resource:
		return &l.Resources
	case Template:
		return &l.Templates
	case Prompt:
		return &l.Prompts
	}
	return &l.Tools
}

// naming is the member that names an item of each kind, members the one that holds them in a file.
var (
	naming  = map[Kind]string{Tool: "name", Resource: "uri", Template: "uriTemplate", Prompt: "name"}
	members = map[Kind]string{Tool: "tools", Resource: "resources", Template: "templates", Prompt: "prompts"}
)

// newEntry makes an entry of a listing as it came, and the text of its file.
func newEntry(l *Listing) (*entry, []byte, error) {
	own := *l
	own.Hash, own.Warnings = "", slices.Clone(l.Warnings)
	for _, part := range []struct {
		name string
		raw  *json.RawMessage
	}{{"server info", &own.ServerInfo}, {"capabilities", &own.Capabilities}} {
		if *part.raw = bytes.TrimSpace(*part.raw); len(*part.raw) > 0 && !jsonrpc.Valid(*part.raw) {
			own.Warnings = append(own.Warnings, part.name+" left out: no JSON")
			*part.raw = nil
		}
	}
	text, err := encode(build(&own, nil, false))
	if err != nil {
		return nil, nil, err
	}
	e, err := decode(text)
	if err != nil {
		return nil, nil, err
	}
	e.listing.Volatile = l.Volatile
	return e, text, nil
}

// build makes the items of a listing, and takes out of it what can't be an item. Hashes that are given are believed,
// and what is known to be JSON is not looked through again.
func build(l *Listing, hashes map[Kind][]string, valid bool) *entry {
	e := &entry{listing: l, shelves: map[Kind]shelf{}}
	for _, k := range kinds {
		raws := l.raws(k)
		known := hashes[k]
		if len(known) != len(*raws) {
			known = nil
		}
		s := shelf{items: make([]*Item, 0, len(*raws)), named: make(map[string]*Item, len(*raws))}
		kept := make([]json.RawMessage, 0, len(*raws))
		store := make([]Item, len(*raws))
		for i, raw := range *raws {
			it := &store[i]
			if why := it.read(l.Server, k, bytes.TrimSpace(raw), valid); why != "" {
				l.Warnings = append(l.Warnings, fmt.Sprintf("%s %d of %d left out: %s", k, i+1, len(*raws), why))
				continue
			}
			if s.named[it.Name] != nil {
				warning := fmt.Sprintf("%s %q is listed more than once: the first counts", k, cut(it.Name, 80))
				l.Warnings = append(l.Warnings, warning)
				continue
			}
			if known != nil {
				it.Hash = known[i]
			} else {
				it.Hash = hash(canonical(nil, it.Raw, 0))
			}
			s.items, s.named[it.Name] = append(s.items, it), it
			kept = append(kept, it.Raw)
		}
		if *raws = kept; len(kept) == 0 && k != Tool {
			*raws = nil
		}
		e.shelves[k] = s
	}
	if l.Hash == "" {
		l.Hash = e.hash()
	}
	return e
}

// read fills the item from its object; the answer tells why it can't be one.
func (it *Item) read(server string, k Kind, raw json.RawMessage, valid bool) (why string) {
	if !valid && !jsonrpc.Valid(raw) {
		return "no JSON"
	}
	it.Ref, it.Raw = Ref{Server: server, Kind: k}, raw
	var annotated string
	err := jsonrpc.Members(raw, func(key string, val json.RawMessage) bool {
		switch key {
		case naming[k]:
			it.Name = jsonrpc.Unquote(val)
		case "title":
			it.Title = jsonrpc.Unquote(val)
		case "description":
			it.Description = jsonrpc.Unquote(val)
		case "annotations":
			annotated = jsonrpc.Unquote(jsonrpc.Member(val, "title"))
		}
		return true
	})
	if err != nil {
		return "no object"
	}
	if strings.TrimSpace(it.Name) == "" {
		return fmt.Sprintf("no usable %q", naming[k])
	}
	if it.Title == "" {
		it.Title = annotated
	}
	return ""
}

// hash is over all items, whatever their order: servers that list from a map would seem to change with every listing.
func (e *entry) hash() string {
	var all []string
	for _, k := range kinds {
		for _, it := range e.shelves[k].items {
			all = append(all, string(k)+" "+it.Hash)
		}
	}
	slices.Sort(all)
	return hash([]byte(strings.Join(all, "\n")))
}

func hash(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// difference is what after changed against before, which may be nil.
func difference(before, after *entry) Diff {
	var d Diff
	if before == nil {
		before = &entry{}
	}
	for _, k := range kinds {
		for _, it := range after.shelves[k].items {
			switch old := before.shelves[k].named[it.Name]; {
			case old == nil:
				d.Added = append(d.Added, it.Ref)
			case old.Hash != it.Hash:
				d.Changed = append(d.Changed, it.Ref)
			}
		}
		for _, it := range before.shelves[k].items {
			if after.shelves[k].named[it.Name] == nil {
				d.Removed = append(d.Removed, it.Ref)
			}
		}
	}
	return d
}

// fileVersion is the format of a listing's file. Members that are not known are ignored.
const fileVersion = 1

// header is what stands in a listing's file besides the raw parts.
type header struct {
	Version         int               `json:"version"`
	Server          string            `json:"server"`
	SpecHash        string            `json:"specHash"`
	ProtocolVersion string            `json:"protocolVersion"`
	Instructions    string            `json:"instructions,omitempty"`
	Fetched         time.Time         `json:"fetched"`
	TTL             int64             `json:"ttlMs,omitempty"`
	Hash            string            `json:"hash"`
	Hashes          map[Kind][]string `json:"hashes"` // of the items, in order
	Warnings        []string          `json:"warnings,omitempty"`
}

// encode writes a listing's file. Raw parts are spliced in: json.Marshal would write them anew.
func encode(e *entry) ([]byte, error) {
	l := e.listing
	h := header{Version: fileVersion, Server: l.Server, SpecHash: l.SpecHash, ProtocolVersion: l.ProtocolVersion,
		Instructions: l.Instructions, Fetched: l.Fetched, TTL: l.TTL.Milliseconds(),
		Hash: l.Hash, Hashes: map[Kind][]string{}, Warnings: l.Warnings}
	size := len(l.ServerInfo) + len(l.Capabilities)
	for k, s := range e.shelves {
		for _, it := range s.items {
			h.Hashes[k] = append(h.Hashes[k], it.Hash)
			size += len(it.Raw) + 2
		}
	}
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(head)+size+128)
	b = append(b, head[:len(head)-1]...)
	if len(l.ServerInfo) > 0 {
		b = append(append(b, ",\n\"serverInfo\":"...), l.ServerInfo...)
	}
	if len(l.Capabilities) > 0 {
		b = append(append(b, ",\n\"capabilities\":"...), l.Capabilities...)
	}
	for _, k := range kinds {
		if len(e.shelves[k].items) == 0 {
			continue
		}
		b = append(append(append(b, ",\n\""...), members[k]...), `":[`...)
		for i, it := range e.shelves[k].items {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, '\n'), it.Raw...)
		}
		b = append(b, ']')
	}
	return append(b, "}\n"...), nil
}

// decode reads a listing's file; the entry keeps b.
func decode(b []byte) (*entry, error) {
	if !bytes.HasSuffix(bytes.TrimRight(b, " \t\r\n"), []byte("}")) {
		return nil, errors.New("not whole")
	}
	l := &Listing{}
	head := []byte{'{'}
	err := jsonrpc.Members(b, func(key string, val json.RawMessage) bool {
		switch key {
		case "serverInfo":
			l.ServerInfo = val
			return true
		case "capabilities":
			l.Capabilities = val
			return true
		}
		for _, k := range kinds {
			if key == members[k] {
				_ = jsonrpc.Elements(val, func(raw json.RawMessage) bool { // no array: nothing of that kind
					*l.raws(k) = append(*l.raws(k), raw)
					return true
				})
				return true
			}
		}
		if len(head) > 1 {
			head = append(head, ',')
		}
		head = append(append(append(head, jsonrpc.Quote(key)...), ':'), val...)
		return true
	})
	if err != nil {
		return nil, err
	}
	var h header
	if err := json.Unmarshal(append(head, '}'), &h); err != nil {
		return nil, err
	}
	if h.Version != fileVersion {
		return nil, fmt.Errorf("format version %d, this program reads %d", h.Version, fileVersion)
	}
	l.Server, l.SpecHash, l.ProtocolVersion, l.Instructions = h.Server, h.SpecHash, h.ProtocolVersion, h.Instructions
	l.Fetched, l.TTL, l.Hash, l.Warnings = h.Fetched, time.Duration(h.TTL)*time.Millisecond, h.Hash, h.Warnings
	return build(l, h.Hashes, true), nil
}

// cut shortens a text for a message.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
