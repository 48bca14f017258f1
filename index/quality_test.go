package index_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/mcpproxy/mcpproxy/index"
)

// Floors of the ranking over testdata (README there). Raise them with the ranking; a change that goes below is a loss.
const (
	floorRecall8 = 0.82
	floorMRR8    = 0.68
)

func TestQuality(t *testing.T) {
	c, _ := open(t, "")
	byServer := map[string][]string{}
	for _, line := range lines[struct {
		Server, Tool, Description string
		InputSchema               json.RawMessage
	}](t, "testdata/tools.jsonl") {
		raw, err := json.Marshal(map[string]any{
			"name": line.Tool, "description": line.Description, "inputSchema": line.InputSchema})
		if err != nil {
			t.Fatal(err)
		}
		byServer[line.Server] = append(byServer[line.Server], string(raw))
	}
	for server, tools := range byServer {
		put(t, c, server, tools...)
	}
	recall, mrr := 0.0, 0.0
	queries := lines[struct {
		Query string
		Gold  [][]struct{ Server, Tool string } // for each needed tool those that answer
	}](t, "testdata/queries.jsonl")
	for _, q := range queries {
		hits := c.Search(index.Query{Text: q.Query, Limit: 8}).Hits
		best := len(hits)
		met := 0
		for _, answers := range q.Gold {
			at := slices.IndexFunc(hits, func(h index.Hit) bool {
				return slices.ContainsFunc(answers, func(a struct{ Server, Tool string }) bool {
					return a.Server == h.Item.Server && a.Tool == h.Item.Name
				})
			})
			if at >= 0 {
				met++
				best = min(best, at)
			}
		}
		if met < len(q.Gold) {
			t.Logf("missed: %s %v", q.Query, q.Gold)
		}
		recall += float64(met) / float64(len(q.Gold)) / float64(len(queries))
		if met > 0 {
			mrr += 1 / float64(best+1) / float64(len(queries))
		}
	}
	t.Logf("recall@8 %.3f, MRR@8 %.3f", recall, mrr)
	if recall < floorRecall8 || mrr < floorMRR8 {
		t.Errorf("got recall@8 %.3f and MRR@8 %.3f, want at least %.3f and %.3f", recall, mrr, floorRecall8, floorMRR8)
	}
}

func lines[T any](t *testing.T, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []T
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, v)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
