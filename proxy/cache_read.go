package proxy

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cacheQuery is what is asked of a stored output: a page of bytes, or one of lines, tail, grep, pointer and jq (jq behind
// pointer), count, diff.
type cacheQuery struct {
	CacheID string `json:"cacheId" required:"1" doc:"As a truncated result names it"`
	Offset  *int64 `json:"offset" doc:"First byte of the page; default 0"`
	Cursor  string `json:"cursor" doc:"nextCursor of the answer before; enough by itself"`
	Limit   int    `json:"limit" range:"1,51200" doc:"Bytes of the answer; default and most 51200"`
	Lines   string `json:"lines" doc:"Lines \"1001-1010\", from 1, both included; also \"7\" and \"1001-\""`
	Tail    int    `json:"tail" doc:"The last so many lines"`
	Grep    string `json:"grep" doc:"Lines that match this RE2 expression, with their numbers"`
	Context int    `json:"context" range:"0,50" doc:"Lines around each match of grep"`
	Pointer string `json:"pointer" doc:"JSON Pointer to a part, \"/items/0\""`
	JQ      string `json:"jq" doc:"jq program; strings are shown raw"`
	Count   bool   `json:"count" doc:"Only count: bytes and lines; with grep: matches"`
	Diff    string `json:"diff" doc:"cacheId of another output: what differs in it"`
}

// cachePage is one answer.
type cachePage struct {
	Action     string `json:"action"`
	CacheID    string `json:"cacheId"`
	Content    string `json:"content"`
	StartByte  *int64 `json:"startByte,omitempty"` // of a page of bytes
	NextCursor string `json:"nextCursor,omitempty"`
	TotalBytes int64  `json:"totalBytes"`
	TotalLines int    `json:"totalLines"`
	Matches    *int   `json:"matches,omitempty"` // of a counted grep
	Matching   *int   `json:"matchingLines,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"` // the output was too large to be kept whole
	Note       string `json:"note,omitempty"`
}

// cursorAt is what a cursor says: where to go on in which query.
type cursorAt struct {
	Entry string      `json:"e"`           // the end of its id
	Query *cacheQuery `json:"q,omitempty"` // nil: a page of bytes
	At    int64       `json:"a"`
	Line  int         `json:"l,omitempty"` // grep: the line at At
	After int         `json:"c,omitempty"` // grep: context that is still due
}

// read answers a query by whoever is allowed to read what its owner may.
func (s *outputs) read(q cacheQuery, allowed func(outputOwner) bool) (cachePage, error) {
	h, text, err := s.open(q.CacheID, allowed)
	if err != nil {
		return cachePage{}, err
	}
	defer text.close()
	id, limit := q.CacheID, min(cmp.Or(q.Limit, maxPage), maxPage)
	pos, q, err := q.start(h)
	if err != nil {
		return cachePage{}, err
	}
	page := cachePage{Action: "read_cache", CacheID: id, TotalBytes: h.Bytes, TotalLines: h.Lines}
	if h.Whole > h.Bytes {
		page.Truncated, page.Note = true, fmt.Sprintf("only the first %d of %d bytes were kept", h.Bytes, h.Whole)
	}
	next := &cursorAt{}
	switch {
	case q == cacheQuery{}:
		next, err = page.bytes(text, pos, limit)
	case q.Count && q.Grep == "":
		page.Content = fmt.Sprintf("%d bytes, %d lines", h.Bytes, h.Lines)
		next = nil
	default:
		next, err = s.query(&page, q, text, pos, limit, allowed)
	}
	if err != nil {
		return cachePage{}, err
	}
	if next != nil {
		if next.Entry = id[len(id)-8:]; q != (cacheQuery{}) {
			next.Query = &q
		}
		raw, err := json.Marshal(next)
		if err != nil {
			return cachePage{}, err
		}
		page.NextCursor = base64.RawURLEncoding.EncodeToString(raw)
	}
	return page, nil
}

// start checks a query and finds where it begins. What it returns is the query alone: no id, cursor, offset or limit.
func (q cacheQuery) start(h *outputEntry) (cursorAt, cacheQuery, error) {
	id, cursor, offset := q.CacheID, q.Cursor, q.Offset
	bad := func(format string, a ...any) (cursorAt, cacheQuery, error) {
		return cursorAt{}, q, badQuery(format, a...)
	}
	if q.Limit < 0 || q.Tail < 0 || q.Context < 0 {
		return bad("limit, tail and context can't be negative")
	}
	q.Limit, q.CacheID, q.Cursor, q.Offset = 0, "", "", nil
	var pos cursorAt
	if cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || json.Unmarshal(raw, &pos) != nil || min(pos.At, int64(pos.Line), int64(pos.After)) < 0 ||
			pos.At > max(h.Bytes, 4*maxDiff) {
			return bad("%q is no cursor; give the nextCursor of the answer before", plain(cursor, 40))
		}
		of := cacheQuery{}
		if pos.Query != nil {
			of = *pos.Query
			of.Limit, of.CacheID, of.Cursor, of.Offset = 0, "", "", nil
		}
		switch {
		case pos.Entry != id[len(id)-8:]:
			return bad("the cursor is of another output")
		case q != cacheQuery{} && q != of:
			return bad("the cursor is of another query; give it by itself")
		case offset != nil:
			return bad("give offset or cursor, not both")
		}
		q = of
	}
	if offset != nil {
		switch {
		case q != cacheQuery{}:
			return bad("offset goes with no other query")
		case *offset < 0 || *offset > h.Bytes:
			return bad("offset %d is outside of the output's %d bytes", *offset, h.Bytes)
		}
		pos.At = *offset
	}
	n := 0
	for _, given := range []bool{
		q.Lines != "", q.Tail > 0, q.Grep != "", q.Pointer != "" || q.JQ != "", q.Diff != "", q.Count && q.Grep == "",
	} {
		if given {
			n++
		}
	}
	switch {
	case n > 1:
		return bad("give one of lines, tail, grep, pointer or jq, count, diff (count goes with grep)")
	case q.Context > 0 && q.Grep == "":
		return bad("context goes with grep")
	case max(len(q.Grep), len(q.JQ), len(q.Pointer)) > maxExpression:
		return bad("the expression has over %d bytes", maxExpression)
	}
	return pos, q, nil
}

// bytes is a page of the text as it is stored; pages follow each other without gap or overlap, each cut on a rune.
func (p *cachePage) bytes(text *storedText, pos cursorAt, limit int) (*cursorAt, error) {
	from := min(pos.At, text.size)
	b, err := text.slice(max(from-utf8.UTFMax, 0), min(from+int64(max(limit, utf8.UTFMax))+utf8.UTFMax, text.size))
	if err != nil {
		return nil, err
	}
	lead := int(from - max(from-utf8.UTFMax, 0)) // what stands before the page
	begin := runeEnd(b, lead)
	b, from = b[begin:], from-int64(lead-begin)
	end := len(b)
	if end > limit {
		if end = runeEnd(b, limit); end == 0 {
			_, end = utf8.DecodeRune(b)
		}
	}
	p.Content, p.StartByte = string(b[:end]), &from
	if to := from + int64(end); to < text.size {
		return &cursorAt{At: to}, nil
	}
	return nil, nil
}

// runeEnd is the last place up to n at which b can be cut without cutting a rune.
func runeEnd(b []byte, n int) int {
	if n >= len(b) {
		return len(b)
	}
	for i := n - 1; i >= 0 && i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if _, size := utf8.DecodeRune(b[i:]); i+size > n {
				return i
			}
			break
		}
	}
	return n
}

// query answers what needs the whole text.
func (s *outputs) query(
	p *cachePage, q cacheQuery, text *storedText, pos cursorAt, limit int, allowed func(outputOwner) bool,
) (*cursorAt, error) {
	all, err := text.all()
	if err != nil {
		return nil, err
	}
	switch {
	case q.Lines != "":
		from, to, err := lineRange(q.Lines, p.TotalLines)
		if err != nil {
			return nil, err
		}
		return p.part(all[lineStart(all, from-1):lineStart(all, to)], pos, limit), nil
	case q.Tail > 0:
		return p.part(all[lineStart(all, max(p.TotalLines-q.Tail, 0)):], pos, limit), nil
	case q.Grep != "":
		return p.grep(all, q, pos, limit)
	case q.Diff != "":
		_, other, err := s.open(q.Diff, allowed)
		if err != nil {
			return nil, err
		}
		defer other.close()
		if max(text.size, other.size) > maxDiff {
			return nil, badQuery("diff takes outputs of up to %d bytes", maxDiff)
		}
		b, err := other.all()
		if err != nil {
			return nil, err
		}
		return p.part(diffTexts(p.CacheID, q.Diff, all, b), pos, limit), nil
	}
	if all, err = selectJSON(all, q); err != nil {
		return nil, err
	}
	return p.part(all, pos, limit), nil
}

// part is a page of an answer that is made anew for each page.
func (p *cachePage) part(answer []byte, pos cursorAt, limit int) *cursorAt {
	from := int(min(pos.At, int64(len(answer))))
	end := runeEnd(answer, min(from+limit, len(answer)))
	if end <= from && from < len(answer) {
		_, n := utf8.DecodeRune(answer[from:])
		end = from + n
	}
	p.Content = string(answer[from:end])
	if end < len(answer) {
		return &cursorAt{At: int64(end)}
	}
	return nil
}

// lineRange reads "7", "7-", "7-9": lines counted from 1, both included.
func lineRange(s string, total int) (from, to int, err error) {
	first, last, isRange := strings.Cut(strings.TrimSpace(s), "-")
	from, err = strconv.Atoi(strings.TrimSpace(first))
	to = from
	if last = strings.TrimSpace(last); err == nil && isRange {
		if to = total; last != "" {
			to, err = strconv.Atoi(last)
		}
	}
	switch {
	case err != nil || from < 1 || to < from && last != "":
		return 0, 0, badQuery("lines is %q, not like \"1001-1010\"", plain(s, 40))
	case from > total:
		return 0, 0, badQuery("line %d is behind the last one: there are %d", from, total)
	}
	return from, min(to, total), nil
}

// lineStart is where line n, counted from 0, begins.
func lineStart(b []byte, n int) int {
	at := 0
	for ; n > 0; n-- {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return len(b)
		}
		at += i + 1
	}
	return at
}
