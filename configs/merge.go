package configs

import (
	"maps"
	"slices"
)

// settingsOf merges the files' settings, nil when there are none.
func settingsOf(docs []*document) *node {
	var all *node
	for _, d := range docs {
		if d.settings != nil {
			all = merged(all, d.settings)
		}
	}
	return all
}

// merge lays the servers of one scope over those below it. Within the scope the entries of an id merge; what comes out
// replaces what is below whole, so that nothing of a user's credentials goes to a project's server.
func (l *loader) merge(below map[string]*node, docs []*document) map[string]*node {
	scope := map[string]*node{}
	for _, d := range docs {
		for _, n := range d.servers {
			if n.kind == 'n' && scope[n.key] == nil && below[n.key] == nil {
				s := &scan{loader: l, id: n.key}
				s.report(Warning, n, n.keyOrigin(), "null removes nothing here: no lower file has this server", "remove the entry")
			}
			scope[n.key] = merged(scope[n.key], n)
		}
	}
	all := maps.Clone(below)
	if all == nil {
		all = map[string]*node{}
	}
	for id, n := range scope {
		switch off := n.get("enabled"); {
		case n.kind == 'n':
			delete(all, id)
		case off == nil || off.kind != 'f' || n.get("command") != nil || n.get("url") != nil:
			all[id] = n.over(below[id])
		case below[id] != nil && below[id].kind == '{':
			all[id] = below[id].with(off.over(below[id].get("enabled")))
		case below[id] == nil:
			s := &scan{loader: l, id: id}
			s.report(Warning, n, n.keyOrigin(), "nothing is switched off here: no lower file has this server",
				"remove the entry, or complete it")
		}
	}
	return all
}

// merged lays one value over another: objects merge, anything else replaces, null removes.
func merged(below, over *node) *node {
	if below == nil || below.kind != '{' || over.kind != '{' {
		return over.over(below)
	}
	c := *over
	c.kids = nil
	top := map[string]*node{}
	for _, k := range over.kids {
		top[k.key] = k
	}
	for _, k := range below.kids {
		if o := top[k.key]; o == nil {
			c.kids = append(c.kids, k)
		} else if o.kind != 'n' {
			c.kids = append(c.kids, merged(k, o))
		}
		delete(top, k.key)
	}
	for _, k := range over.kids {
		if top[k.key] != nil {
			c.kids = append(c.kids, k)
		}
	}
	return &c
}

// over is n with a note of what it replaces.
func (n *node) over(below *node) *node {
	if below == nil || below.kind == 'n' {
		return n
	}
	c := *n
	c.below = below
	if n.kind == '{' {
		c.kids = slices.Clone(n.kids)
		for i, k := range c.kids {
			c.kids[i] = k.over(below.get(k.key))
		}
	}
	return &c
}
