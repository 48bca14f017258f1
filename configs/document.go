package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode"

	"github.com/tailscale/hujson"
)

// document is what one file says.
type document struct {
	settings *node
	servers  []*node // entries in our own keys, by id
}

// documents parses what could be read.
func (l *loader) documents(sources []*source) []*document {
	var docs []*document
	for _, s := range sources {
		switch {
		case errors.Is(s.err, fs.ErrNotExist) && s.Scope == Temporary:
			l.add(Diagnostic{Severity: Error, Message: "the file " + s.Path + " does not exist",
				Hint: "give --config the path of an existing file", Origin: Origin{File: s.Path}})
		case s.State == Absent:
		case s.err != nil:
			l.add(Diagnostic{Severity: Error, Message: fmt.Sprintf("can't read %s: %v", s.Path, s.err),
				Hint: "make it a readable file", Origin: Origin{File: s.Path}})
		default:
			root, twice, err := parse(s)
			if err != nil {
				s.State = Unreadable
				l.add(Diagnostic{Severity: Error, Message: fmt.Sprintf("can't read %s: %s", s.Path, err.message), Hint: err.hint,
					Origin: Origin{s.Path, err.at.line, err.at.column}})
				continue
			}
			docs = append(docs, l.document(root, twice))
		}
	}
	return docs
}

// sections are the parts of a file.
type sections struct{ version, settings, servers, mcpServers *node }

var sectionFields = table[sections]{
	"version":    section(func(s *sections) **node { return &s.version }, '0'),
	"settings":   section(func(s *sections) **node { return &s.settings }, '{'),
	"servers":    section(func(s *sections) **node { return &s.servers }, '{'),
	"mcpServers": section(func(s *sections) **node { return &s.mcpServers }, '{'),
}

func section(of func(*sections) **node, kind hujson.Kind) field[sections] {
	return func(s *scan, parts *sections, n *node) {
		if s.is(n, kind) {
			*of(parts) = n
		}
	}
}

// ownSettings are the user's alone: a project must not open the proxy to others or trust itself.
var ownSettings = []string{"defaultProjectTrust", "requireToken", "listen"}

func (l *loader) document(root *node, twice []duplicate) *document {
	for _, t := range twice {
		message := fmt.Sprintf("%s stands twice in one object, in lines %d and %d; the last holds", quoteKey(t.again),
			t.first.keyAt.line, t.again.keyAt.line)
		l.report(Warning, t.again, t.again.keyOrigin(), message, "remove one of them")
	}
	var parts sections
	decode(&scan{loader: l}, sectionFields, root, &parts, []string{"$schema", "inputs"})
	if v := parts.version; v != nil && v.text != "1" {
		l.report(Warning, v, v.origin(), "version "+clip(v.text)+" is not known; the file is read as version 1",
			`write "version": 1`)
	}
	d := &document{settings: parts.settings}
	if d.settings != nil && root.from.Scope == Project {
		d.settings = l.withoutOwn(d.settings)
	}
	taken := map[string]*node{}
	for _, section := range []*node{parts.servers, parts.mcpServers} {
		if section != nil {
			d.servers = append(d.servers, l.entries(section, taken)...)
		}
	}
	return d
}

func (l *loader) withoutOwn(settings *node) *node {
	c := *settings
	c.kids = nil
	for _, k := range settings.kids {
		if slices.Contains(ownSettings, k.key) {
			l.report(Warning, k, k.keyOrigin(), quoteKey(k)+" has no effect in a project's file", "set it in the user's file")
			continue
		}
		c.kids = append(c.kids, k)
	}
	return &c
}

// entries are the servers of one object under their ids. The first one of an id holds.
func (l *loader) entries(section *node, taken map[string]*node) []*node {
	var all []*node
	for _, n := range section.kids {
		id := normalized(n.key)
		s := &scan{loader: l, id: id}
		reject := func(sev Severity, message, hint string) { s.report(sev, n, n.keyOrigin(), message, hint) }
		switch first := taken[id]; {
		case ourselves(n):
			reject(Note, fmt.Sprintf("the entry %q is this proxy itself and is left out", clip(n.key)), "nothing: it is meant for the clients that start it")
		case id == "" || len(id) > 100:
			reject(Error, quoteKey(n)+" can't be the name of a server", "use letters, digits, -, _ and ., at most 100 bytes")
		case strings.EqualFold(id, Reserved):
			reject(Error, fmt.Sprintf("the name %q is the proxy's own", clip(n.key)), "rename the server")
		case first != nil && first.written == n.key:
			reject(Warning, fmt.Sprintf("server %q stands in %s too, in line %d, and that one holds", clip(n.key),
				quoteKey(first.parent), first.keyAt.line), "remove one of them")
		case first != nil:
			reject(Error, fmt.Sprintf("the names %q and %q (line %d) make the same id %q; the first one holds", clip(n.key),
				clip(first.written), first.keyAt.line, id), "rename one of them")
		default:
			taken[id] = n
			n = s.canonical(n).as(id)
			all = append(all, n)
		}
	}
	return all
}

// ourselves recognises what a client's file says to start this proxy: taken for a server, it would be its own upstream.
func ourselves(n *node) bool {
	command := n.get("command")
	if command == nil {
		return false
	}
	words := command.kids // a command may be a list, with its arguments in it
	if words == nil {
		words = []*node{command}
	}
	if args := n.get("args"); args != nil {
		words = append(slices.Clone(words), args.kids...)
	}
	name := words[0].text[strings.LastIndexAny(words[0].text, `/\\`)+1:]
	return strings.TrimSuffix(strings.ToLower(name), ".exe") == "mcpproxy" &&
		(len(words) == 1 || slices.ContainsFunc(words[1:], func(w *node) bool { return w.text == "stdio" }))
}

// Reserved is the id of the proxy's own tools.
const Reserved = "mcpproxy"

// normalized makes an id of a server's name: letters and digits of any script, "-", "_" and "."; a run of anything else
// becomes one "-". It begins with none of these signs but "_", so that it is a harmless file name.
func normalized(name string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.TrimSpace(name) {
		if unicode.In(r, unicode.L, unicode.M, unicode.N) || strings.ContainsRune("-_.", r) {
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			b.WriteRune(r)
			gap = false
			continue
		}
		gap = true
	}
	return strings.TrimLeft(b.String(), "-.")
}
