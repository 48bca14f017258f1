package configs

import (
	"maps"
	"slices"
	"strings"
)

// Explanation says where an effective value comes from.
type Explanation struct {
	Path    string  `json:"path"`
	Value   any     `json:"value"` // as the file has it, references unresolved; a literal secret is the caller's to redact
	File    string  `json:"file"`
	Line    int     `json:"line"`
	Shadows []Place `json:"shadows"` // where values stand that this one replaces, nearest first
}

// Place is a line of a file.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// Explain looks up a value that some file gives: "servers.github.command", "settings.mode", or a JSON pointer. Keys are
// our own and servers have their ids, whatever the file calls them. It answers false for what no file gives.
func (c *Config) Explain(path string) (Explanation, bool) {
	if strings.HasPrefix(path, "/") {
		n := c.tree
		for key := range strings.SplitSeq(path[1:], "/") {
			n = n.get(strings.NewReplacer("~1", "/", "~0", "~").Replace(key))
		}
		return n.explanation(path)
	}
	return c.tree.find(path).explanation(path)
}

func (n *node) explanation(path string) (Explanation, bool) {
	if n == nil || n.from == nil {
		return Explanation{}, false
	}
	at := n.origin()
	e := Explanation{path, n.value(), at.File, at.Line, []Place{}}
	for b := n.below; b != nil; b = b.below {
		at := b.origin()
		e.Shadows = append(e.Shadows, Place{at.File, at.Line})
	}
	return e, true
}

// find follows a path with dots, which may stand in keys too.
func (n *node) find(path string) *node {
	if n == nil {
		return nil
	}
	for _, k := range n.kids {
		rest, ok := strings.CutPrefix(path, k.key)
		switch {
		case !ok || k.kind == 'n':
		case rest == "":
			return k
		case rest[0] == '.':
			if found := k.find(rest[1:]); found != nil {
				return found
			}
		}
	}
	return nil
}

// treeOf puts the merged parts together as a file would have them.
func treeOf(settings *node, servers map[string]*node) *node {
	all := &node{key: "servers", kind: '{'}
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		all.kids = append(all.kids, servers[id])
	}
	root := &node{kind: '{', kids: []*node{all}}
	if settings != nil {
		root.kids = append(root.kids, settings)
	}
	return root
}
