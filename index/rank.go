package index

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	bleve "github.com/blevesearch/bleve_index_api"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// Weights of the places where a term can stand.
const (
	nameWeight        = 4
	serverWeight      = 3
	titleWeight       = 2
	descriptionWeight = 2
	parameterWeight   = 1
)

// Bounds on what of one tool is read, far above what honest ones have.
const (
	maxDescription = 16 << 10
	maxParameters  = 500
	maxNesting     = 3
)

// weigh makes the bag of a tool.
func (x lexicon) weigh(it *Item) *bag {
	b := &bag{terms: make(bleve.TokenFrequencies, min(32+len(it.Raw)/24, 256))}
	left := maxParameters
	b.add(x, it.Name, nameWeight)
	b.add(x, it.Server, serverWeight)
	b.add(x, it.Title, titleWeight)
	b.add(x, it.Description, descriptionWeight)
	b.schema(x, jsonrpc.Member(it.Raw, "inputSchema"), maxNesting, &left)
	return b
}

func (b *bag) add(x lexicon, text string, weight int) {
	x.read(text[:min(len(text), maxDescription)], func(t term) { b.put(t, weight) })
}

// schema adds what a schema says, and the names and schemas of its properties.
func (b *bag) schema(x lexicon, schema json.RawMessage, depth int, left *int) {
	if depth < 0 {
		return
	}
	_ = jsonrpc.Members(schema, func(key string, val json.RawMessage) bool { // no object: nothing to read
		switch key {
		case "description":
			b.add(x, jsonrpc.Unquote(val), parameterWeight)
		case "items":
			b.schema(x, val, depth-1, left)
		case "properties":
			_ = jsonrpc.Members(val, func(name string, of json.RawMessage) bool {
				*left--
				b.add(x, name, parameterWeight)
				b.schema(x, of, depth-1, left)
				return *left > 0
			})
		}
		return true
	})
}

// maxTerms is as many different terms of one phrasing as count, the rarest ones; maxText is as much of it as is read.
const (
	maxTerms = 64
	maxText  = 16 << 10
)

// asked is a term of a phrasing and what it weighs: 1 + ln(tools / tools that have it).
type asked struct {
	term string
	idf  float64
}

// phrase reads a phrasing. Stop words count only where there is nothing else.
func (d docs) phrase(text string) []asked {
	var words, stops []string
	seen := map[string]bool{}
	lexicon(nil).read(text[:min(len(text), maxText)], func(t term) {
		switch {
		case seen[t.text]:
		case t.stop:
			stops = append(stops, t.text)
		default:
			words = append(words, t.text)
		}
		seen[t.text] = true
	})
	if len(words) == 0 {
		words = stops
		if len(stops) > 1 {
			words = append(words, stem(strings.Join(stops, ""))) // "who am I" and whoami
		}
	}
	all := make([]asked, len(words))
	for i, w := range words {
		all[i] = asked{w, 1 + math.Log(float64(d.live)/float64(d.postings(w, nil)+1))}
	}
	if len(all) > maxTerms {
		all = slices.DeleteFunc(all, func(a asked) bool { return d.postings(a.term, nil) == 0 })
		slices.SortStableFunc(all, func(a, b asked) int { return cmp.Compare(b.idf, a.idf) })
		all = all[:min(len(all), maxTerms)]
	}
	return all
}

// namedServer is what a tool gains when a phrasing names its server.
const namedServer = 1.4

// score adds to sum, by document, how well each answers one phrasing: tf-idf as bleve and Lucene have it, times the share
// of terms found, over the root of what the phrasing's terms weigh together, so that phrasings of any length add up.
func (d docs) score(text string, sum []float64) {
	phrase := d.phrase(text)
	points, found := make([]float64, len(d.tools)), make([]uint8, len(d.tools))
	mass := 0.0
	for _, a := range phrase {
		mass += a.idf
		d.postings(a.term, func(p posting) {
			points[p.doc] += math.Sqrt(p.freq) * p.norm * a.idf * a.idf
			found[p.doc]++
		})
	}
	named := d.named(phrase)
	for i, n := range found {
		if n == 0 || d.tools[i] == nil {
			continue
		}
		s := points[i] * float64(n) / float64(len(phrase)) / math.Sqrt(mass)
		if named[d.tools[i].Server] {
			s *= namedServer
		}
		sum[i] += s
	}
}

// named are the servers that a phrasing names with all words of their ids.
func (d docs) named(phrase []asked) map[string]bool {
	has := map[string]bool{}
	for _, a := range phrase {
		has[a.term] = true
	}
	named := map[string]bool{}
	for server, words := range d.called {
		unsaid := slices.ContainsFunc(words, func(w string) bool { return !has[w] })
		named[server] = len(words) > 0 && !unsaid
	}
	return named
}

// called are the words of a server's id that a request would name it by.
func called(server string) []string {
	var words []string
	between := func(r rune) bool { return !classify(r).word() && classify(r) != pictogram }
	for _, part := range strings.FieldsFunc(server, between) {
		if part = strings.ToLower(part); part != "mcp" && part != "server" && len(words) < 8 {
			lexicon(nil).read(part, func(t term) {
				if !t.stop {
					words = append(words, t.text)
				}
			})
		}
	}
	return words
}
