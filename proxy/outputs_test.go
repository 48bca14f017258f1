package proxy

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

func everybody(outputOwner) bool { return true }

// testStore is a store in a directory of its own, and its clock.
func testStore(t testing.TB, o outputOptions) (*outputs, *time.Time) {
	t.Helper()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o.now = func() time.Time { return now }
	s, err := openOutputs(filepath.Join(t.TempDir(), "outputs"), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, &now
}

func putOutput(t testing.TB, s *outputs, text string) string {
	t.Helper()
	id, err := s.put(outputOwner{Server: "github", Tool: "list"}, []byte(text), true)
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^mcpout_[a-z2-7]{26}$`).MatchString(id) {
		t.Fatalf("got id %q", id)
	}
	return id
}

// outputCode is an error's code, "" for none.
func outputCode(err error) string {
	var e *outputError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	}
	return "other: " + err.Error()
}

// allPages reads to the end, each page within limit.
func allPages(t testing.TB, s *outputs, q cacheQuery, limit int) []string {
	t.Helper()
	var pages []string
	q.Limit = limit
	for {
		p, err := s.read(q, everybody)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		pages = append(pages, p.Content)
		if p.NextCursor == "" {
			return pages
		}
		if p.Content == "" || len(pages) > 100_000 {
			t.Fatalf("%+v: page %d is empty, and yet there are more", q, len(pages))
		}
		q = cacheQuery{CacheID: q.CacheID, Cursor: p.NextCursor, Limit: limit} // the cursor is enough
	}
}

func numberedLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

// Pages follow each other byte for byte, whatever is cut.
func TestPagesOfBytes(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	texts := []string{"", "a", "héllo wörld 日本語 🎉🎉🎉 end", numberedLines(20_000), strings.Repeat("é", 60_000), `{"a":"` + strings.Repeat("x", 200_000) + `"}`}
	for _, text := range texts {
		id := putOutput(t, s, text)
		for _, limit := range []int{0, 1, 2, 3, 5, 1000, 51_200, 1 << 30} {
			if limit > 0 && limit < 1000 && len(text) > 1000 {
				continue
			}
			pages := allPages(t, s, cacheQuery{CacheID: id}, limit)
			if got := strings.Join(pages, ""); got != text {
				t.Errorf("pages of %d of %d bytes differ from the original: %d bytes", limit, len(text), len(got))
			}
			for _, p := range pages {
				if !utf8.ValidString(p) || len(p) > max(min(max(limit, 0), maxPage), 4) && limit != 0 || len(p) > maxPage {
					t.Errorf("pages of %d: got one of %d bytes", limit, len(p))
				}
			}
		}
	}
}

func TestOffset(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	id := putOutput(t, s, "aé日b")
	for _, tt := range []struct {
		offset, start int64
		content, code string
	}{
		{0, 0, "aé日b", ""}, {1, 1, "é日b", ""}, {2, 1, "é日b", ""}, {3, 3, "日b", ""}, {5, 3, "日b", ""}, {6, 6, "b", ""}, {7, 7, "", ""},
		{8, 0, "", "invalid_arguments"}, {-1, 0, "", "invalid_arguments"},
	} {
		p, err := s.read(cacheQuery{CacheID: id, Offset: &tt.offset}, everybody)
		if outputCode(err) != tt.code {
			t.Errorf("offset %d: got %v, want %q", tt.offset, err, tt.code)
			continue
		}
		if err == nil && (p.Content != tt.content || *p.StartByte != tt.start || p.TotalBytes != 7 || p.TotalLines != 1 || p.NextCursor != "") {
			t.Errorf("offset %d: got %+v, want %q from %d", tt.offset, p, tt.content, tt.start)
		}
	}
}

func TestQueries(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	text := putOutput(t, s, "alpha\nbeta 1\ngamma\ndelta\nbeta 2\nomega")
	doc := putOutput(t, s, `{"items":[{"name":"x","n":12345678901234567890},{"name":"a\nb","n":2}],"a/b":{"~":null},"":0}`)
	other := putOutput(t, s, "alpha\nbeta 1\ngamma\nnew\nbeta 2\nomega")
	same := putOutput(t, s, "alpha\nbeta 1\ngamma\ndelta\nbeta 2\nomega")
	for _, tt := range []struct {
		q    cacheQuery
		want string
		code string
	}{
		{cacheQuery{CacheID: text, Lines: "2-3"}, "beta 1\ngamma\n", ""},
		{cacheQuery{CacheID: text, Lines: "6"}, "omega", ""},
		{cacheQuery{CacheID: text, Lines: " 5 - "}, "beta 2\nomega", ""},
		{cacheQuery{CacheID: text, Lines: "5-99"}, "beta 2\nomega", ""},
		{cacheQuery{CacheID: text, Lines: "7-8"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Lines: "0-3"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Lines: "3-2"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Lines: "x"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Lines: "-3"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Tail: 2}, "beta 2\nomega", ""},
		{cacheQuery{CacheID: text, Tail: 99}, "alpha\nbeta 1\ngamma\ndelta\nbeta 2\nomega", ""},
		{cacheQuery{CacheID: text, Grep: "beta"}, "2:beta 1\n5:beta 2\n", ""},
		{cacheQuery{CacheID: text, Grep: "^(?i)BETA \\d$"}, "2:beta 1\n5:beta 2\n", ""},
		{cacheQuery{CacheID: text, Grep: "alpha|omega", Context: 1}, "1:alpha\n2-beta 1\n--\n5-beta 2\n6:omega\n", ""},
		{cacheQuery{CacheID: text, Grep: "beta", Context: 1}, "1-alpha\n2:beta 1\n3-gamma\n4-delta\n5:beta 2\n6-omega\n", ""},
		{cacheQuery{CacheID: text, Grep: "none"}, "", ""},
		{cacheQuery{CacheID: text, Grep: "("}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Count: true}, "37 bytes, 6 lines", ""},
		{cacheQuery{CacheID: text, Grep: "a", Count: true}, "8 matches in 6 lines", ""},
		{cacheQuery{CacheID: text, Grep: "^", Count: true}, "6 matches in 6 lines", ""},
		{cacheQuery{CacheID: text, Grep: "x*", Count: true}, "38 matches in 6 lines", ""},
		{cacheQuery{CacheID: doc, Pointer: "/items/0/n"}, "12345678901234567890", ""},
		{cacheQuery{CacheID: doc, Pointer: "/items/1"}, `{"name":"a\nb","n":2}`, ""},
		{cacheQuery{CacheID: doc, Pointer: "/items/1/name"}, "a\nb", ""},
		{cacheQuery{CacheID: doc, Pointer: "/a~1b/~0"}, "null", ""},
		{cacheQuery{CacheID: doc, Pointer: "/"}, "0", ""},
		{cacheQuery{CacheID: doc, Pointer: "/items/2"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: doc, Pointer: "/items/01"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: doc, Pointer: "items"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Pointer: "/items"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: doc, JQ: ".items[].n"}, "12345678901234567890\n2", ""},
		{cacheQuery{CacheID: doc, JQ: ".items[0]"}, `{"n":12345678901234567890,"name":"x"}`, ""},
		{cacheQuery{CacheID: doc, JQ: ".items[].name"}, "x\na\nb", ""},
		{cacheQuery{CacheID: doc, JQ: "empty"}, "", ""},
		{cacheQuery{CacheID: doc, JQ: "$ENV, env"}, "{}\n{}", ""},
		{cacheQuery{CacheID: doc, Pointer: "/items", JQ: "length"}, "2", ""},
		{cacheQuery{CacheID: doc, JQ: ".items["}, "", "invalid_arguments"},
		{cacheQuery{CacheID: doc, JQ: ".items + 1"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: doc, JQ: `import "a" as a; .`}, "", "invalid_arguments"},
		{cacheQuery{CacheID: doc, JQ: "input"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, JQ: "."}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Diff: other}, "--- " + text + "\n+++ " + other + "\n@@ -1,6 +1,6 @@\n alpha\n beta 1\n gamma\n-delta\n+new\n beta 2\n omega\n\\ No newline at end\n", ""},
		{cacheQuery{CacheID: text, Diff: same}, "no difference\n", ""},
		{cacheQuery{CacheID: text, Diff: "mcpout_" + strings.Repeat("a", 26)}, "", "unknown_cache_id"},
		{cacheQuery{CacheID: text, Diff: "../" + other}, "", "unknown_cache_id"},
		{cacheQuery{CacheID: text, Lines: "1", Grep: "a"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Lines: "1", Count: true}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Lines: "1", Offset: new(int64)}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Context: 1}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Tail: -1}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Limit: -1}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Cursor: "xyz"}, "", "invalid_arguments"},
		{cacheQuery{CacheID: text, Grep: strings.Repeat("x", maxExpression+1)}, "", "invalid_arguments"},
	} {
		p, err := s.read(tt.q, everybody)
		if p.Content != tt.want || outputCode(err) != tt.code {
			t.Errorf("%+v:\n got %q, %v\nwant %q, %q", tt.q, p.Content, err, tt.want, tt.code)
		}
		if err == nil && (p.StartByte != nil || p.Action != "read_cache" || p.CacheID != tt.q.CacheID || p.TotalLines == 0) {
			t.Errorf("%+v: got %+v", tt.q, p)
		}
	}
}

// Every answer is bounded, and goes on by its cursor.
func TestQueriesInPages(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	text := numberedLines(30_000)
	id := putOutput(t, s, text)
	lines := slices.Collect(strings.Lines(text))
	list := putOutput(t, s, "["+strings.Join(strings.Fields(strings.Repeat("1234567 ", 20_000)), ",")+"]")
	grepped := ""
	for i, l := range lines {
		if strings.Contains(l, "7") {
			grepped += fmt.Sprintf("%d:%s", i+1, l)
		}
	}
	for _, tt := range []struct {
		q    cacheQuery
		want string
	}{
		{cacheQuery{CacheID: id, Lines: "11-29990"}, strings.Join(lines[10:29_990], "")},
		{cacheQuery{CacheID: id, Tail: 15_000}, strings.Join(lines[15_000:], "")},
		{cacheQuery{CacheID: id, Grep: "7"}, grepped},
		{cacheQuery{CacheID: list, JQ: ".[]"}, strings.TrimSuffix(strings.Repeat("1234567\n", 20_000), "\n")},
		{cacheQuery{CacheID: list, Pointer: "/19999"}, "1234567"},
	} {
		for _, limit := range []int{0, 10_000} {
			pages := allPages(t, s, tt.q, limit)
			if got := strings.Join(pages, ""); got != tt.want {
				t.Errorf("%+v: %d pages of %d bytes in all, want %d bytes", tt.q, len(pages), len(got), len(tt.want))
			}
			for _, p := range pages {
				if len(p) > maxPage || limit > 0 && len(p) > limit {
					t.Errorf("%+v: got a page of %d bytes", tt.q, len(p))
				}
			}
		}
	}
	// Context goes with its match over the end of a page.
	id = putOutput(t, s, numberedLines(3000))
	whole := allPages(t, s, cacheQuery{CacheID: id, Grep: "00$", Context: 3}, 0)
	for _, limit := range []int{1, 10, 25, 60, 200} {
		got := strings.ReplaceAll(strings.Join(allPages(t, s, cacheQuery{CacheID: id, Grep: "00$", Context: 3}, limit), ""), "--\n", "")
		if want := strings.ReplaceAll(strings.Join(whole, ""), "--\n", ""); got != want {
			t.Errorf("grep with context in pages of %d: %d bytes, want %d", limit, len(got), len(want))
		}
	}
}

func TestCursorIsBoundToItsQuery(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	id, other := putOutput(t, s, numberedLines(30_000)), putOutput(t, s, numberedLines(30_000))
	p, err := s.read(cacheQuery{CacheID: id, Grep: "line", Limit: 1000}, everybody)
	if err != nil {
		t.Fatal(err)
	}
	forged := base64.RawURLEncoding.EncodeToString([]byte(`{"e":"` + id[len(id)-8:] + `","a":9223372036854775807}`))
	for _, tt := range []struct {
		q    cacheQuery
		code string
	}{
		{cacheQuery{CacheID: id, Cursor: p.NextCursor}, ""},
		{cacheQuery{CacheID: id, Cursor: p.NextCursor, Grep: "line"}, ""},
		{cacheQuery{CacheID: id, Cursor: p.NextCursor, Grep: "other"}, "invalid_arguments"},
		{cacheQuery{CacheID: id, Cursor: p.NextCursor, Tail: 5}, "invalid_arguments"},
		{cacheQuery{CacheID: id, Cursor: p.NextCursor, Offset: new(int64)}, "invalid_arguments"},
		{cacheQuery{CacheID: other, Cursor: p.NextCursor}, "invalid_arguments"},
		{cacheQuery{CacheID: id, Cursor: forged}, "invalid_arguments"},
	} {
		if _, err := s.read(tt.q, everybody); outputCode(err) != tt.code {
			t.Errorf("%+v: got %v, want %q", tt.q, err, tt.code)
		}
	}
}

// In long lines grep shows what is around each match.
func TestGrepLongLines(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, `{"name":"é item %d","text":"%s"},`, i, strings.Repeat("x", 500))
	}
	text := b.String()
	id := putOutput(t, s, text)
	got := strings.Join(allPages(t, s, cacheQuery{CacheID: id, Grep: `item \d+`}, 20_000), "")
	for _, i := range []int{0, 1, 1500, 2999} {
		if !strings.Contains(got, fmt.Sprintf("item %d\"", i)) {
			t.Errorf("item %d is not shown", i)
		}
	}
	first, _, _ := strings.Cut(got, "\n")
	if at := strings.Index(text, "item 0"); !strings.HasPrefix(first, fmt.Sprintf("1@%d:", at)) || len(first) > 500 {
		t.Errorf("got %s, want what is around byte %d", first, at)
	}
	if !utf8.ValidString(got) {
		t.Error("a rune is cut")
	}
	p, err := s.read(cacheQuery{CacheID: id, Grep: `item \d+`, Count: true}, everybody)
	if err != nil || *p.Matches != 3000 || *p.Matching != 1 {
		t.Errorf("got %+v, %v; want 3000 matches in 1 line", p, err)
	}
}

// Queries that would take for ever, or all memory, end.
func TestQueriesAreBounded(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	id := putOutput(t, s, `{"a":1}`)
	for _, program := range []string{"[range(1e12)] | length", "def f: f; f", `"x" * 1e12`} {
		start := time.Now()
		p, err := s.read(cacheQuery{CacheID: id, JQ: program}, everybody)
		if took := time.Since(start); outputCode(err) != "invalid_arguments" || took > 20*time.Second {
			t.Errorf("%s: got %d bytes, %v after %v", program, len(p.Content), err, took)
		}
	}
	large := putOutput(t, s, strings.Repeat("x", 20<<20))
	if _, err := s.read(cacheQuery{CacheID: large, Grep: "(x{1,20}){1,20}y"}, everybody); outputCode(err) != "invalid_arguments" {
		t.Errorf("complex expression: got %v", err)
	}
	if _, err := s.read(cacheQuery{CacheID: large, Diff: id}, everybody); outputCode(err) != "invalid_arguments" {
		t.Errorf("large diff: got %v", err)
	}
}

// Only ids that were given out open anything, and messages name no path.
func TestIDIsNoPath(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	id := putOutput(t, s, "text")
	secret := filepath.Join(filepath.Dir(s.dir), "secret")
	if err := os.WriteFile(secret, []byte(`{"owner":{},"created":"2026-01-02T03:04:05Z","bytes":0}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "../secret", "../../config", "..%2fsecret", secret, "./" + id, id + "/", id + "\x00", id + ".gone", strings.ToUpper(id), "mcpout_",
		"mcpout_" + strings.Repeat("a", 25), "mcpout_" + strings.Repeat("a", 26), "mcpout_../../../../../../etc/pas", strings.Repeat("a", 4096), id + id, "\u202e" + id, ".tmp-1"} {
		_, err := s.read(cacheQuery{CacheID: bad}, everybody)
		if outputCode(err) != "unknown_cache_id" || strings.Contains(err.Error(), s.dir) || len(err.Error()) > 300 {
			t.Errorf("%.60q: got %v", bad, err)
		}
	}
}

// What may be read is asked anew for each read.
func TestOwner(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	id, err := s.put(outputOwner{Server: "a", Tool: "b", Scope: "c"}, []byte("text"), true)
	if err != nil {
		t.Fatal(err)
	}
	var asked outputOwner
	_, err = s.read(cacheQuery{CacheID: id}, func(o outputOwner) bool { asked = o; return false })
	if want := (outputOwner{"a", "b", "c"}); outputCode(err) != "not_permitted" || asked != want {
		t.Errorf("got %v for %+v, want not_permitted for %+v", err, asked, want)
	}
	mine := putOutput(t, s, "mine")
	if _, err := s.read(cacheQuery{CacheID: mine, Diff: id}, func(o outputOwner) bool { return o.Server == "github" }); outputCode(err) != "not_permitted" {
		t.Errorf("diff with another's output: got %v", err)
	}
}

func TestFilesAreOurs(t *testing.T) {
	s, _ := testStore(t, outputOptions{})
	id := putOutput(t, s, "text")
	for path, want := range map[string]os.FileMode{s.dir: 0o700 | os.ModeDir, s.path(id): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode() != want { // there the directory's list decides
			t.Errorf("%s: got %v, want %v", filepath.Base(path), info.Mode(), want)
		}
	}
	if files, _ := os.ReadDir(s.dir); len(files) != 1 {
		t.Errorf("got %d files, want 1", len(files))
	}
}

// Entries end after their time, even where nothing sweeps; their ids are known to have expired, and in the end forgotten.
func TestTTL(t *testing.T) {
	s, now := testStore(t, outputOptions{TTL: time.Hour})
	id := putOutput(t, s, "text")
	*now = now.Add(time.Hour)
	if _, err := s.read(cacheQuery{CacheID: id}, everybody); err != nil {
		t.Errorf("in time: %v", err)
	}
	*now = now.Add(time.Second)
	if _, err := s.read(cacheQuery{CacheID: id}, everybody); outputCode(err) != "expired_cache_id" {
		t.Errorf("too late: got %v", err)
	}
	putOutput(t, s, "another") // sweeps
	if _, err := os.Stat(s.path(id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	if _, err := s.read(cacheQuery{CacheID: id}, everybody); outputCode(err) != "expired_cache_id" {
		t.Errorf("after a sweep: got %v", err)
	}
	*now = now.Add(3 * time.Hour)
	if _, err := openOutputs(s.dir, s.o); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(cacheQuery{CacheID: id}, everybody); outputCode(err) != "unknown_cache_id" {
		t.Errorf("long after: got %v", err)
	}
}

// The oldest entries make room.
func TestMaxTotal(t *testing.T) {
	s, now := testStore(t, outputOptions{MaxTotal: 10_000})
	var ids []string
	for range 20 {
		*now = now.Add(time.Second)
		ids = append(ids, putOutput(t, s, strings.Repeat("x", 1000)))
	}
	var size int64
	files, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 12_000 {
		t.Errorf("%d bytes are kept, want about 10000", size)
	}
	for i, want := range map[int]string{0: "expired_cache_id", 5: "expired_cache_id", 19: ""} {
		if _, err := s.read(cacheQuery{CacheID: ids[i]}, everybody); outputCode(err) != want {
			t.Errorf("entry %d: got %v, want %q", i, err, want)
		}
	}
}

func TestMaxEntry(t *testing.T) {
	s, _ := testStore(t, outputOptions{MaxEntry: 100})
	id := putOutput(t, s, strings.Repeat("é", 33)+"a"+strings.Repeat("é", 33))
	p, err := s.read(cacheQuery{CacheID: id}, everybody)
	if err != nil || !p.Truncated || p.TotalBytes != 99 || !utf8.ValidString(p.Content) || !strings.Contains(p.Note, "99 of 133 bytes") {
		t.Errorf("got %+v, %v", p, err)
	}
}

// What a crash leaves behind is no entry: half files, foreign files, empty ones.
func TestHalfWrittenIsNoEntry(t *testing.T) {
	s, now := testStore(t, outputOptions{})
	id := putOutput(t, s, numberedLines(100))
	whole, err := os.ReadFile(s.path(id))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 10, slices.Index(whole, '\n'), slices.Index(whole, '\n') + 1, len(whole) - 1} {
		if err := os.WriteFile(s.path(id), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := s.read(cacheQuery{CacheID: id}, everybody); outputCode(err) != "unknown_cache_id" {
			t.Errorf("%d of %d bytes: got %+v, %v", n, len(whole), p, err)
		}
	}
	if err := os.WriteFile(s.path(".tmp-123"), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(s.path(".tmp-123"), *now, *now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if err := s.sweep(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(s.path(".tmp-123")); (err == nil) != want {
			t.Errorf("a half-written file: %v, want it there: %v", err, want)
		}
		*now = now.Add(2 * time.Hour)
	}
	if err := os.Mkdir(s.path("mcpout_"+strings.Repeat("b", 26)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(cacheQuery{CacheID: "mcpout_" + strings.Repeat("b", 26)}, everybody); outputCode(err) != "unknown_cache_id" {
		t.Errorf("a directory: got %v", err)
	}
}

// Several stores over one directory, as several processes have them, put, read, sweep and evict side by side.
func TestSharedDirectory(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		s, err := openOutputs(dir, outputOptions{MaxTotal: 200_000})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for i := range 40 {
				text := numberedLines(100 + i)
				id, err := s.put(outputOwner{Server: "s", Tool: "t"}, []byte(text), true)
				if err != nil {
					t.Error(err)
					return
				}
				p, err := s.read(cacheQuery{CacheID: id}, everybody)
				if c := outputCode(err); c == "" && p.Content != text || c != "" && c != expiredCacheID {
					t.Errorf("got %d bytes, %v", len(p.Content), err)
				}
				if err := s.sweep(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestDiff(t *testing.T) {
	for _, tt := range []struct{ name, a, b, want string }{
		{"same", "x\n", "x\n", "no difference\n"},
		{"to nothing", "x\ny\n", "", "--- a\n+++ b\n@@ -1,2 +0,0 @@\n-x\n-y\n"},
		{"from nothing", "", "x\n", "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+x\n"},
		{"apart", numberedLines(20), strings.Replace(strings.Replace(numberedLines(20), "line 2\n", "", 1), "line 19\n", "line x\n", 1),
			"--- a\n+++ b\n@@ -1,5 +1,4 @@\n line 1\n-line 2\n line 3\n line 4\n line 5\n@@ -16,5 +15,5 @@\n line 16\n line 17\n line 18\n-line 19\n+line x\n line 20\n"},
		{"JSON in one line", `{"a":1,"b":2}`, `{"a":1,"b":3}`, "--- a\n+++ b\n@@ -1,4 +1,4 @@\n {\n   \"a\": 1,\n-  \"b\": 2\n+  \"b\": 3\n }\n\\ No newline at end\n"},
	} {
		if got := string(diffTexts("a", "b", []byte(tt.a), []byte(tt.b))); got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

// Applying a difference to one side makes the other, however the two differ.
func TestEditsAreRight(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n, kinds int) (out []string) {
		for range r.IntN(n + 1) {
			out = append(out, fmt.Sprint(r.IntN(kinds)))
		}
		return out
	}
	check := func(a, b []string) (changed int) {
		var got []string
		at := 0
		for _, c := range lineEdits(a, b) {
			if c.fromA < at || c.toA > len(a) || c.fromB > c.toB || c.toB > len(b) {
				t.Fatalf("%q, %q: bad change %+v", a, b, c)
			}
			got = append(append(got, a[at:c.fromA]...), b[c.fromB:c.toB]...)
			at = c.toA
			changed += c.toA - c.fromA + c.toB - c.fromB
		}
		if got = append(got, a[at:]...); !slices.Equal(got, b) {
			t.Fatalf("%q to %q: got %q", a, b, got)
		}
		return changed
	}
	for range 2000 {
		a, b := random(12, 3), random(12, 3)
		if got, want := check(a, b), fewest(a, b); got != want {
			t.Fatalf("%q to %q: %d lines changed, %d would do", a, b, got, want)
		}
	}
	check(random(9000, 1000), random(9000, 1000))
	check(strings.Split(numberedLines(5000), "\n"), nil)
}

// fewest is how many lines must go and come, by the textbook.
func fewest(a, b []string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		last := row[0]
		row[0]++
		for j := range b {
			next := min(row[j], row[j+1]) + 1
			if a[i] == b[j] {
				next = last
			}
			last, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

func TestCutInline(t *testing.T) {
	for _, tt := range []struct {
		text            string
		bytes, maxLines int
		head            string
		lines           int
		cut             bool
	}{
		{"", 10, 10, "", 0, false},
		{"a\nb\nc\n", 10, 10, "a\nb\nc\n", 3, false},
		{"a\nb\nc", 10, 3, "a\nb\nc", 3, false},
		{"a\nb\nc", 10, 2, "a\nb\n", 2, true},
		{"a\nb\nc\n", 10, 2, "a\nb\n", 2, true},
		{"aaaa\nbbbb\ncccc\n", 12, 10, "aaaa\nbbbb\n", 2, true},
		{"a\nbbbbbbbbbbbbbbb", 10, 10, "a\nbbbbbbbb", 2, true},
		{"ééééé", 5, 10, "éé", 1, true},
		{"日本", 2, 10, "", 0, true},
		{"abc", 0, 10, "", 0, true},
		{"abc", -1, 10, "", 0, true},
		{"abc", 10, 0, "", 0, true},
		{"abc", 10, -1, "", 0, true},
		{"\n\n\n", 2, 10, "\n\n", 2, true},
	} {
		head, lines, cut := cutInline(tt.text, tt.bytes, tt.maxLines)
		if head != tt.head || lines != tt.lines || cut != tt.cut {
			t.Errorf("%q in %d bytes, %d lines: got %q, %d, %v; want %q, %d, %v", tt.text, tt.bytes, tt.maxLines, head, lines, cut, tt.head, tt.lines, tt.cut)
		}
	}
}

func TestOpenOutputsFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openOutputs(file, outputOptions{}); err == nil {
		t.Error("a file was opened as a directory")
	}
}

// Whatever is asked, the answer is bounded and its cursor leads on to an end.
func FuzzReadCache(f *testing.F) {
	f.Add("a\nb\nc", `{"grep":"b","context":1}`)
	f.Add(`{"a":[1]}`, `{"pointer":"/a","jq":".[]"}`)
	f.Add("é\xff\n日", `{"lines":"1-2","limit":3}`)
	f.Add("x", `{"offset":1}`)
	s, _ := testStore(f, outputOptions{})
	f.Fuzz(func(t *testing.T, text, query string) {
		var q cacheQuery
		if json.Unmarshal([]byte(query), &q) != nil || len(text) > 5000 || q.JQ != "" && len(q.JQ) > 20 {
			return
		}
		q.CacheID = putOutput(t, s, text)
		for n := 0; ; n++ {
			p, err := s.read(q, everybody)
			if err != nil {
				if c := outputCode(err); c != "invalid_arguments" && c != "unknown_cache_id" {
					t.Errorf("%s of %q: %v", query, text, err)
				}
				return
			}
			if len(p.Content) > maxPage || n > 20_000 {
				t.Fatalf("%s of %q: page %d of %d bytes", query, text, n, len(p.Content))
			}
			if p.NextCursor == "" {
				return
			}
			q = cacheQuery{CacheID: q.CacheID, Cursor: p.NextCursor, Limit: q.Limit}
		}
	})
}
