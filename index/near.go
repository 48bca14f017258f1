package index

import (
	"slices"
	"strings"
)

// Near are the refs of that kind whose names are nearest to name (edit distance and shared parts), best first; accept,
// when given, filters.
func (c *Catalog) Near(k Kind, name string, n int, accept func(*Item) bool) []Ref {
	x := lexicon{}
	asked := x.spell(name)
	var near []likeness[Ref]
	v := c.current()
	for _, id := range v.ids {
		server := x.spell(id)
		for _, it := range v.servers[id].shelves[k].items {
			s := x.spell(it.Name)
			l := max(asked.like(s), asked.like(server.with(s)))
			if l >= alike && (accept == nil || accept(it)) {
				near = append(near, likeness[Ref]{it.Ref, it.Server + " " + it.Name, l})
			}
		}
	}
	return best(near, n)
}

// Nearest are those of names that are nearest to name, best first.
func Nearest(name string, names []string, n int) []string {
	x := lexicon{}
	asked := x.spell(name)
	var near []likeness[string]
	for _, s := range names {
		if l := asked.like(x.spell(s)); l >= alike {
			near = append(near, likeness[string]{s, s, l})
		}
	}
	return best(near, n)
}

// alike is the likeness, of 0 to 1, from which on a name is worth telling.
const alike = 0.45

type likeness[T any] struct {
	of    T
	order string // among equals
	like  float64
}

func best[T any](all []likeness[T], n int) []T {
	slices.SortFunc(all, func(a, b likeness[T]) int {
		switch {
		case a.like > b.like:
			return -1
		case a.like < b.like:
			return 1
		}
		return strings.Compare(a.order, b.order)
	})
	var of []T
	for _, l := range all[:min(len(all), max(n, 0))] {
		of = append(of, l.of)
	}
	return of
}

// spelling is a name as it is compared: in its letters and digits alone, and in its parts.
type spelling struct {
	letters []rune
	parts   []string
}

const maxSpelling = 100 // longer names are compared by their beginning

func (x lexicon) spell(name string) spelling {
	var s spelling
	name = fold(name[:min(len(name), 4*maxSpelling)])
	x.read(name, func(t term) {
		if !slices.Contains(s.parts, t.text) {
			s.parts = append(s.parts, t.text)
		}
	})
	for _, r := range strings.ToLower(name) {
		if c := classify(r); (c.word() || c == pictogram) && len(s.letters) < maxSpelling {
			s.letters = append(s.letters, r)
		}
	}
	return s
}

// with is one name after another.
func (s spelling) with(o spelling) spelling {
	return spelling{slices.Concat(s.letters, o.letters), slices.Concat(s.parts, o.parts)}
}

// like is 1 for the same letters, 0 for nothing in common.
func (s spelling) like(o spelling) float64 {
	longer, shorter := max(len(s.letters), len(o.letters)), min(len(s.letters), len(o.letters))
	if longer == 0 {
		return 0
	}
	shared := 0
	for _, p := range s.parts {
		if slices.Contains(o.parts, p) {
			shared++
		}
	}
	parts := 2 * float64(shared) / float64(len(s.parts)+len(o.parts))
	edits := 0.0
	if 2*shorter >= longer { // else more than half would have to change
		edits = 1 - float64(distance(s.letters, o.letters))/float64(longer)
	}
	return max(edits, (edits+2*parts)/3)
}

// distance counts the letters to insert, remove, change or swap with their neighbour (optimal string alignment).
func distance(a, b []rune) int {
	before, last, this := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i, x := range a {
		this[0] = i + 1
		for j, y := range b {
			change := last[j]
			if x != y {
				change++
			}
			d := min(change, last[j+1]+1, this[j]+1)
			if i > 0 && j > 0 && x == b[j-1] && a[i-1] == y {
				d = min(d, before[j-1]+1)
			}
			this[j+1] = d
		}
		before, last, this = last, this, before
	}
	return last[len(b)]
}
