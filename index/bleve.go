package index

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/blevesearch/bleve/v2/document"
	"github.com/blevesearch/bleve/v2/index/scorch"
	bleve "github.com/blevesearch/bleve_index_api"
)

// engine is bleve's in-memory index, without what bleve wraps round it: the terms come from our own analyzer, the scoring
// is our own, and its workers live as long as the Catalog. Its owner is whoever holds Catalog.writing.
type engine struct {
	index   bleve.Index
	workers *bleve.AnalysisQueue
}

// docs is the index at one moment. It is immutable and holds nothing but memory.
type docs struct {
	reader bleve.IndexReader // nil while nothing was ever indexed
	tools  []*Item           // by number; nil for what is gone
	live   int
	called map[string][]string // by server: the words that name it
}

const field = "bag"

func newEngine() (*engine, error) {
	workers := bleve.NewAnalysisQueue(1)
	ix, err := scorch.NewScorch(scorch.Name, map[string]any{"path": ""}, workers)
	if err == nil {
		err = ix.Open()
	}
	if err != nil {
		workers.Close()
		return nil, err
	}
	return &engine{ix, workers}, nil
}

func (x *engine) close() error {
	defer x.workers.Close()
	return x.index.Close()
}

// update takes the tools of gone out and those of come in. All of it shows at once, in the docs that are returned.
func (x *engine) update(before docs, gone, come []*entry) (docs, error) {
	removal := bleve.NewBatch()
	for _, it := range toolsOf(gone) {
		removal.Delete(docID(it))
	}
	if len(removal.IndexOps) > 0 {
		if err := x.index.Batch(removal); err != nil {
			return before, err
		}
	}
	items := toolsOf(come)
	half := len(items)
	if half >= 200 {
		half /= 2 // one for each of two cores
	}
	var work sync.WaitGroup
	var errs [2]error
	for i, part := range [][]*Item{items[:half], items[half:]} {
		if len(part) > 0 {
			work.Go(func() { errs[i] = x.add(part) })
		}
	}
	work.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return before, err
	}
	reader, err := x.index.Reader()
	if err != nil {
		return before, err
	}
	return docs{reader: reader}, nil
}

func (x *engine) add(items []*Item) error {
	batch, words := bleve.NewBatch(), lexicon{}
	for _, it := range items {
		doc := document.NewDocument(docID(it))
		doc.AddField(words.weigh(it))
		batch.Update(doc)
	}
	return x.index.Batch(batch)
}

func toolsOf(entries []*entry) []*Item {
	var items []*Item
	for _, e := range entries {
		if e != nil {
			items = append(items, e.shelves[Tool].items...)
		}
	}
	return items
}

func docID(it *Item) string { return it.Server + "\x00" + it.Name }

// resolved returns d with its numbers bound to items anew.
func (d docs) resolved(find func(server, name string) *Item) docs {
	if d.reader == nil {
		return d
	}
	r := docs{reader: d.reader, called: map[string][]string{}}
	all, err := d.reader.DocIDReaderAll()
	if err != nil {
		return r
	}
	defer all.Close()
	for {
		id, err := all.Next()
		if err != nil || id == nil {
			return r
		}
		n := id.Value()
		for uint64(len(r.tools)) <= n {
			r.tools = append(r.tools, nil)
		}
		ext, err := d.reader.ExternalID(id)
		if err != nil {
			return r
		}
		server, name, _ := strings.Cut(ext, "\x00")
		if r.tools[n] = find(server, name); r.tools[n] == nil {
			continue
		}
		if r.live++; r.called[server] == nil {
			r.called[server] = called(server)
		}
	}
}

// posting is one document that a term stands in.
type posting struct {
	doc  int
	freq float64
	norm float64 // 1/√(length of the document)
}

// postings calls f with each posting of a term, in the order of documents, and returns how many there are.
func (d docs) postings(term string, f func(posting)) int {
	if d.reader == nil {
		return 0
	}
	r, err := d.reader.TermFieldReader(context.Background(), []byte(term), field, true, true, false)
	if err != nil {
		return 0
	}
	defer r.Close()
	n := int(r.Count())
	if f == nil {
		return n
	}
	var hit bleve.TermFieldDoc
	for {
		next, err := r.Next(&hit)
		if err != nil || next == nil {
			return n
		}
		f(posting{int(next.ID.Value()), float64(next.Freq), next.Norm})
	}
}

// bag is what a tool is found by: its terms, each as often as it weighs. It is the one field of the tool's document.
type bag struct {
	terms  bleve.TokenFrequencies
	store  []bleve.TokenFreq
	length int // of all terms but stop words
}

func (b *bag) put(t term, weight int) {
	f := b.terms[t.text]
	if f == nil {
		if len(b.store) == cap(b.store) {
			b.store = make([]bleve.TokenFreq, 0, 32)
		}
		b.store = append(b.store, bleve.TokenFreq{Term: []byte(t.text)})
		f = &b.store[len(b.store)-1]
		b.terms[t.text] = f
	}
	f.SetFrequency(f.Frequency() + weight)
	if !t.stop {
		b.length += weight
	}
}

func (*bag) Analyze()                                           {}
func (*bag) Name() string                                       { return field }
func (*bag) Value() []byte                                      { return nil }
func (*bag) ArrayPositions() []uint64                           { return nil }
func (*bag) EncodedFieldType() byte                             { return 't' }
func (*bag) Options() bleve.FieldIndexingOptions                { return bleve.IndexField }
func (*bag) NumPlainTextBytes() uint64                          { return 0 }
func (*bag) Size() int                                          { return 0 }
func (b *bag) AnalyzedLength() int                              { return b.length }
func (b *bag) AnalyzedTokenFrequencies() bleve.TokenFrequencies { return b.terms }
