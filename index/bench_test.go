package index_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/index"
)

var syllables = strings.Fields("ba co di fu gel hap im jo kre lun mi nor op qua ri ste")

// synthetic fills dir with about n tools of 40 to a server, each of about the size that real ones have (2.5 KB).
func synthetic(b *testing.B, dir string, n int) {
	b.Helper()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	vocabulary := make([]string, 4000)
	for i := range vocabulary {
		var w strings.Builder
		for range 2 + r.IntN(3) {
			w.WriteString(syllables[r.IntN(len(syllables))])
		}
		vocabulary[i] = w.String()
	}
	text := func(words int) string {
		all := make([]string, words)
		for i := range all {
			all[i] = vocabulary[int(float64(len(vocabulary))*r.Float64()*r.Float64()*r.Float64())]
		}
		return strings.Join(all, " ")
	}
	c, err := index.Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	for s := range n / 40 {
		var tools []string
		for i := range 40 {
			var params []string
			for range 8 {
				params = append(params, strings.ReplaceAll(text(2), " ", "_"), text(25))
			}
			tools = append(tools, tool(fmt.Sprintf("%s_%d", strings.ReplaceAll(text(2), " ", "_"), i), text(60), params...))
		}
		put(b, c, fmt.Sprintf("server%d", s), tools...)
	}
	if err := c.Close(); err != nil {
		b.Fatal(err)
	}
}

func sizes(b *testing.B, f func(b *testing.B, dir string)) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := b.TempDir()
			synthetic(b, dir, n)
			f(b, dir)
		})
	}
}

// From opening the directory to the first answer, and the heap that is held from then on.
func BenchmarkOpen(b *testing.B) {
	sizes(b, func(b *testing.B, dir string) {
		held := 0.0
		for b.Loop() {
			before := heap()
			start := time.Now()
			c, err := index.Open(dir, nil)
			if err != nil {
				b.Fatal(err)
			}
			c.Search(index.Query{Text: "banor codi", Limit: 8})
			b.ReportMetric(float64(time.Since(start).Milliseconds()), "first-answer-ms")
			c.Close()
			held = heap() - before
			runtime.KeepAlive(c)
		}
		b.ReportMetric(held/1e6, "heap-MB")
	})
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func indexed(b *testing.B, dir string) *index.Catalog {
	c, _ := open(b, dir)
	c.Search(index.Query{Text: "banor", Limit: 1}) // waits
	return c
}

func BenchmarkSearch(b *testing.B) {
	sizes(b, func(b *testing.B, dir string) {
		c := indexed(b, dir)
		for b.Loop() {
			c.Search(index.Query{Text: "banor codi fugel lunmi of the quari", Limit: 8})
		}
	})
}

func BenchmarkPut(b *testing.B) {
	sizes(b, func(b *testing.B, dir string) {
		c := indexed(b, dir)
		l, _ := c.Listing("server0")
		for i := 0; b.Loop(); i++ {
			changed := *l
			changed.Tools = l.Tools[i%2:]
			if _, err := c.Put(&changed); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkNear(b *testing.B) {
	sizes(b, func(b *testing.B, dir string) {
		c := indexed(b, dir)
		for b.Loop() {
			c.Near(index.Tool, "banor_codj_1", 5, nil)
		}
	})
}
