package proxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/itchyny/gojq"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// outputOptions bound the output store; zero values are the defaults.
type outputOptions struct {
	TTL      time.Duration    // default 7 days
	MaxEntry int64            // bytes kept of one output; default 64 MiB
	MaxTotal int64            // bytes kept in all; default 512 MiB
	now      func() time.Time // default time.Now
}

// outputs keeps results that are too large for one answer, each in a file of its own under an id that can't be guessed.
// It is safe for concurrent use, and several processes may share its directory: files appear whole by a rename, are never
// changed, and disappear whole.
type outputs struct {
	dir string
	o   outputOptions

	used atomic.Int64 // bytes in the directory at the last sweep and put by us since
	next atomic.Int64 // time of the next sweep
}

// outputOwner is whose call an output came from.
type outputOwner struct {
	Server string `json:"server"`
	Tool   string `json:"tool"`
	Scope  string `json:"scope,omitempty"`
}

// entry is the first line of an output's file; the text follows.
type entry struct {
	Owner   outputOwner `json:"owner"`
	Created time.Time   `json:"created"`
	Bytes   int64       `json:"bytes"` // of the text in the file
	Whole   int64       `json:"whole"` // of the text before it was cut
	Lines   int         `json:"lines"`
	IsText  bool        `json:"isText"` // else JSON
}

// outputError is what is wrong with a query.
type outputError struct {
	Code, Msg, Hint string
}

func (e *outputError) Error() string { return e.Msg }

func badQuery(format string, a ...any) error {
	return &outputError{Code: string(InvalidArguments), Msg: "read_cache: " + fmt.Sprintf(format, a...)}
}

const (
	unknownCacheID = "unknown_cache_id"
	expiredCacheID = "expired_cache_id"

	maxPage       = 50 << 10 // bytes of one answer
	maxHeader     = 8 << 10
	sweepEvery    = time.Minute
	maxExpression = 4 << 10  // bytes of a grep, jq or pointer
	maxJQ         = 16 << 20 // bytes of JSON that jq is given
	maxJQResult   = 4 << 20
	maxJQMemory   = 512 << 20
	maxQueryTime  = 2 * time.Second
	maxDiff       = 8 << 20 // bytes of each side
	maxEdits      = 2000    // lines that differ before a diff shows the rest as one block
	longLine      = 2000    // bytes from which on grep shows what is around a match
	goneSuffix    = ".gone" // of the empty file that an expired entry leaves behind
	tmpPrefix     = ".tmp-"
)

var cacheID = regexp.MustCompile(`^mcpout_[a-z2-7]{26}$`)

// openOutputs opens a store in dir, which is made when absent, and clears away what is too old.
func openOutputs(dir string, o outputOptions) (*outputs, error) {
	o.TTL, o.MaxEntry, o.MaxTotal = cmp.Or(o.TTL, 7*24*time.Hour), cmp.Or(o.MaxEntry, 64<<20), cmp.Or(o.MaxTotal, 512<<20)
	if o.now == nil {
		o.now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, err
	}
	s := &outputs{dir: dir, o: o}
	return s, s.sweep()
}

// put keeps a text, or the JSON of a result. What is over MaxEntry is kept cut; readers are told.
func (s *outputs) put(owner outputOwner, text []byte, isText bool) (id string, err error) {
	h := entry{Owner: owner, Created: s.o.now(), Whole: int64(len(text)), IsText: isText}
	if h.Whole > s.o.MaxEntry {
		text = text[:runeEnd(text, int(s.o.MaxEntry))]
	}
	h.Bytes, h.Lines = int64(len(text)), lineCount(string(text))
	head, err := compact(h)
	if err != nil {
		return "", err
	}
	if len(head) > maxHeader {
		return "", errors.New("the names of server and tool are too long")
	}
	var random [17]byte         // 130 bits are needed
	_, _ = rand.Read(random[:]) // never fails
	id = "mcpout_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:]))[:26]
	if err := s.write(id, append(head, '\n'), text, h.Created); err != nil {
		return "", withoutPath(err)
	}
	if s.used.Add(h.Bytes) > s.o.MaxTotal || s.o.now().UnixNano() >= s.next.Load() {
		_ = s.sweep() // the entry is kept all the same, and the next put tries again
	}
	return id, nil
}

// write makes the file of an entry appear whole. Its time is the entry's, so that a sweep need not open it.
func (s *outputs) write(id string, head, text []byte, created time.Time) error {
	f, err := os.CreateTemp(s.dir, tmpPrefix+"*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(head)
	if err == nil {
		_, err = f.Write(text)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Chtimes(f.Name(), created, created)
	}
	if err == nil {
		err = os.Rename(f.Name(), s.path(id))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // best effort: a sweep removes it later
	}
	return err
}

func (s *outputs) path(id string) string { return filepath.Join(s.dir, id) }

// withoutPath is what is wrong with a file, without where it is.
func withoutPath(err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &at):
		return fmt.Errorf("output store: %s: %w", at.Op, at.Err)
	case errors.As(err, &link):
		return fmt.Errorf("output store: %s: %w", link.Op, link.Err)
	}
	return err
}

// sweep buries entries that are too old, and the oldest ones while all together are too large. Several sweeps at once,
// by whatever process, do no harm.
func (s *outputs) sweep() error {
	now := s.o.now()
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return withoutPath(err)
	}
	var kept []fs.FileInfo
	var used int64
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // gone, or none of ours
		}
		id, gone := strings.CutSuffix(f.Name(), goneSuffix)
		age := now.Sub(info.ModTime())
		switch {
		case strings.HasPrefix(f.Name(), tmpPrefix) && age > time.Hour, gone && cacheID.MatchString(id) && age > 2*s.o.TTL:
			err = os.Remove(s.path(f.Name()))
		case gone && info.Size() > 0 && cacheID.MatchString(id):
			err = s.empty(f.Name(), info.ModTime())
		case !cacheID.MatchString(f.Name()):
		case age > s.o.TTL:
			err = s.bury(f.Name(), info.ModTime())
		default:
			kept, used = append(kept, info), used+info.Size()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return withoutPath(err)
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range kept {
		if used <= s.o.MaxTotal {
			break
		}
		if err := s.bury(info.Name(), info.ModTime()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return withoutPath(err)
		}
		used -= info.Size()
	}
	s.used.Store(used)
	s.next.Store(now.Add(sweepEvery).UnixNano())
	return nil
}

// bury removes an entry and leaves an empty file, so that its id is known to have expired.
func (s *outputs) bury(id string, created time.Time) error {
	if err := os.Rename(s.path(id), s.path(id+goneSuffix)); err != nil {
		return err
	}
	return s.empty(id+goneSuffix, created)
}

func (s *outputs) empty(name string, created time.Time) error {
	return errors.Join(os.Truncate(s.path(name), 0), os.Chtimes(s.path(name), created, created))
}

// open finds an entry that the asker may read. The reader begins at the text.
func (s *outputs) open(id string, allowed func(outputOwner) bool) (*entry, *stored, error) {
	unknown := &outputError{Code: unknownCacheID, Msg: fmt.Sprintf("there is no stored output %q", plain(id, 60)),
		Hint: "give a cacheId that a truncated result named; or make the call again"}
	expired := &outputError{Code: expiredCacheID, Msg: fmt.Sprintf("the stored output %q is not kept any more", plain(id, 60)),
		Hint: "make the call again"}
	if !cacheID.MatchString(id) { // before it is part of a path
		return nil, nil, unknown
	}
	f, err := os.Open(s.path(id))
	if err != nil {
		if _, gone := os.Lstat(s.path(id + goneSuffix)); gone == nil {
			return nil, nil, expired
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, withoutPath(err)
		}
		return nil, nil, unknown
	}
	h, from := header(f)
	switch {
	case h == nil:
		err = unknown // damaged: a crash of the machine may leave that
	case s.o.now().Sub(h.Created) > s.o.TTL:
		err = expired
	case !allowed(h.Owner):
		err = &outputError{Code: string(NotPermitted), Msg: fmt.Sprintf("the stored output %q is of a tool that is not permitted", id),
			Hint: "the user's configuration forbids it"}
	default:
		return h, &stored{f, from, h.Bytes}, nil
	}
	_ = f.Close() // was only read
	return nil, nil, err
}

// header reads the first line of an entry's file; nil where the file is not whole.
func header(f *os.File) (*entry, int64) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, 0
	}
	b := make([]byte, min(info.Size(), maxHeader+1))
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, 0
	}
	line, _, found := bytes.Cut(b, []byte("\n"))
	var h entry
	if !found || json.Unmarshal(line, &h) != nil || h.Created.IsZero() || int64(len(line))+1+h.Bytes != info.Size() {
		return nil, 0
	}
	return &h, int64(len(line)) + 1
}

// stored is the text of an entry in its file.
type stored struct {
	f    *os.File
	from int64
	size int64
}

// close ends reading; a file that was only read has nothing to lose.
func (t *stored) close() { _ = t.f.Close() }

// slice reads a part of the text.
func (t *stored) slice(from, to int64) ([]byte, error) {
	b := make([]byte, to-from)
	if _, err := t.f.ReadAt(b, t.from+from); err != nil {
		return nil, withoutPath(err)
	}
	return b, nil
}

func (t *stored) all() ([]byte, error) { return t.slice(0, t.size) }

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

// position is what a cursor says: where to go on in which query.
type position struct {
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
	next := &position{}
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
func (q cacheQuery) start(h *entry) (position, cacheQuery, error) {
	id, cursor, offset := q.CacheID, q.Cursor, q.Offset
	bad := func(format string, a ...any) (position, cacheQuery, error) {
		return position{}, q, badQuery(format, a...)
	}
	if q.Limit < 0 || q.Tail < 0 || q.Context < 0 {
		return bad("limit, tail and context can't be negative")
	}
	q.Limit, q.CacheID, q.Cursor, q.Offset = 0, "", "", nil
	var pos position
	if cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || json.Unmarshal(raw, &pos) != nil || pos.At < 0 || pos.At > max(h.Bytes, maxDiff*4) || pos.Line < 0 || pos.After < 0 {
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
	for _, given := range []bool{q.Lines != "", q.Tail > 0, q.Grep != "", q.Pointer != "" || q.JQ != "", q.Diff != "", q.Count && q.Grep == ""} {
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
func (p *cachePage) bytes(text *stored, pos position, limit int) (*position, error) {
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
		return &position{At: to}, nil
	}
	return nil, nil
}

// runeEnd is the last place up to n at which b can be cut without cutting a rune.
func runeEnd(b []byte, n int) int {
	if n >= len(b) {
		return len(b)
	}
	for i := n; i > 0 && i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	if n < utf8.UTFMax && utf8.RuneStart(b[0]) {
		return 0
	}
	return n // no text
}

// query answers what needs the whole text.
func (s *outputs) query(p *cachePage, q cacheQuery, text *stored, pos position, limit int, allowed func(outputOwner) bool) (*position, error) {
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
		return p.part(diff(p.CacheID, q.Diff, all, b), pos, limit), nil
	}
	if all, err = selectJSON(all, q); err != nil {
		return nil, err
	}
	return p.part(all, pos, limit), nil
}

// part is a page of an answer that is made anew for each page.
func (p *cachePage) part(answer []byte, pos position, limit int) *position {
	from := int(min(pos.At, int64(len(answer))))
	end := runeEnd(answer, min(from+limit, len(answer)))
	if end <= from && from < len(answer) {
		_, n := utf8.DecodeRune(answer[from:])
		end = from + n
	}
	p.Content = string(answer[from:end])
	if end < len(answer) {
		return &position{At: int64(end)}
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

// grep shows the lines that match, as "12:text", with context as "11-text" and "--" between what is apart. Of a long line
// it shows what is around each match, as "12@2048:…text…", where 2048 is the match's offset in the output.
func (p *cachePage) grep(all []byte, q cacheQuery, pos position, limit int) (*position, error) {
	re, err := compileGrep(q.Grep, len(all))
	if err != nil {
		return nil, err
	}
	g := grepper{re: re, q: q, limit: limit, deadline: time.Now().Add(maxQueryTime), after: pos.After}
	at, line := min(pos.At, int64(len(all))), max(pos.Line, 1)
	next, err := g.run(all, int(at), line)
	if err != nil {
		return nil, err
	}
	if q.Count {
		p.Matches, p.Matching = &g.matches, &g.matching
		p.Content = fmt.Sprintf("%d matches in %d lines", g.matches, g.matching)
	} else if p.Content = g.out.String(); p.Content == "" && pos.At == 0 {
		p.Note = strings.TrimPrefix(p.Note+"; no line matches", "; ")
	}
	return next, nil
}

type grepExpr struct {
	*regexp.Regexp
	once bool // is anchored, so that it matches a line once at most
}

func compileGrep(expr string, size int) (*grepExpr, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, badQuery("grep: %s", plain(err.Error(), 200))
	}
	parsed, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, badQuery("grep: %s", plain(err.Error(), 200))
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, badQuery("grep: %s", plain(err.Error(), 200))
	}
	if int64(len(prog.Inst))*int64(size) > 4<<30 {
		return nil, badQuery("grep: the expression is too complex for %d bytes; use a simpler one, or lines", size)
	}
	return &grepExpr{re, prog.StartCond()&(syntax.EmptyBeginLine|syntax.EmptyBeginText) != 0}, nil
}

type grepper struct {
	re       *grepExpr
	q        cacheQuery
	limit    int
	deadline time.Time

	out      strings.Builder
	shown    int // last line written
	after    int // context that is still due
	before   []grepLine
	matches  int
	matching int
}

// grepLine is a line that may become context.
type grepLine struct {
	at, number int
	text       []byte
}

// run goes through the lines from at on, and returns where to go on when the answer is full.
func (g *grepper) run(all []byte, at, number int) (*position, error) {
	for ; at < len(all); number++ {
		if number%1024 == 0 && time.Now().After(g.deadline) {
			return nil, badQuery("grep took over %v; use a simpler expression, or lines", maxQueryTime)
		}
		end := len(all)
		if i := bytes.IndexByte(all[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := grepLine{at, number, bytes.TrimRight(all[at:end], "\r\n")}
		next, err := g.line(line)
		if next != nil || err != nil {
			return next, err
		}
		at = end
	}
	return nil, nil
}

func (g *grepper) line(l grepLine) (*position, error) {
	loc := g.re.FindIndex(l.text)
	switch {
	case g.q.Count:
		return nil, g.count(l.text, loc)
	case loc != nil:
		return g.match(l, loc)
	case g.after > 0:
		if !g.write(l, '-', clip(l.text)) {
			return &position{At: int64(l.at), Line: l.number, After: g.after}, nil
		}
		g.after--
	case g.q.Context > 0:
		if g.before = append(g.before, l); len(g.before) > g.q.Context {
			g.before = g.before[1:]
		}
	}
	return nil, nil
}

// match writes a line that matches, behind its context.
func (g *grepper) match(l grepLine, loc []int) (*position, error) {
	start := append(g.before, l)[0]
	mark := g.out.Len()
	full := func(at grepLine) *position { // the context goes with the match, unless it fills the answer alone
		if mark > 0 {
			kept := g.out.String()[:mark]
			g.out.Reset()
			g.out.WriteString(kept)
			at = start
		}
		return &position{At: int64(at.at), Line: at.number}
	}
	for _, b := range g.before {
		if !g.write(b, '-', clip(b.text)) {
			return full(b), nil
		}
	}
	g.before = nil
	if len(l.text) <= longLine {
		if !g.write(l, ':', string(l.text)) {
			return full(l), nil
		}
		g.after = g.q.Context
		return nil, nil
	}
	for from := 0; loc != nil; loc = g.re.FindIndex(l.text[from:]) {
		if time.Now().After(g.deadline) {
			return nil, badQuery("grep took over %v; use a simpler expression, or lines", maxQueryTime)
		}
		lo, hi := from+loc[0], from+loc[1]
		text, end := excerpt(l.text, lo, hi)
		if !g.write(l, '@', fmt.Sprintf("%d:%s", l.at+lo, text)) {
			if from == 0 {
				return full(l), nil
			}
			return &position{At: int64(l.at + from), Line: l.number}, nil // the rest of the line counts as a line
		}
		if from = end; g.re.once || from >= len(l.text) {
			break
		}
	}
	g.after = g.q.Context
	return nil, nil
}

// write adds a line and tells whether it fitted. The first one always does.
func (g *grepper) write(l grepLine, sign byte, text string) bool {
	piece := fmt.Sprintf("%d%c%s\n", l.number, sign, text)
	if g.q.Context > 0 && g.shown > 0 && l.number > g.shown+1 {
		piece = "--\n" + piece
	}
	if g.out.Len() > 0 && g.out.Len()+len(piece) > g.limit {
		return false
	}
	g.out.WriteString(piece)
	g.shown = l.number
	return true
}

func (g *grepper) count(line []byte, loc []int) error {
	if loc == nil {
		return nil
	}
	g.matching++
	if len(line) <= longLine {
		g.matches += len(g.re.FindAllIndex(line, -1))
		return nil
	}
	for from := 0; loc != nil; loc = g.re.FindIndex(line[from:]) {
		if g.matches++; g.matches%1024 == 0 && time.Now().After(g.deadline) {
			return badQuery("grep took over %v; use a simpler expression", maxQueryTime)
		}
		if from += max(loc[1], 1); from >= len(line) || g.re.once { // an empty match steps over a byte
			break
		}
	}
	return nil
}

// clip is a context line, cut where it is long.
func clip(line []byte) string {
	if len(line) <= longLine {
		return string(line)
	}
	return string(line[:runeEnd(line, longLine)]) + "…"
}

// excerpt is what is around a match in a long line, and where it ends.
func excerpt(line []byte, lo, hi int) (string, int) {
	const around, most = 200, 1000
	from := runeEnd(line, max(lo-around, 0))
	end := runeEnd(line, min(min(hi, lo+most)+around, len(line)))
	text := string(line[from:end])
	if from > 0 {
		text = "…" + text
	}
	if end < len(line) {
		text += "…"
	}
	return text, max(end, lo+1)
}

// selectJSON is a part of a JSON text: by a pointer, a jq program, or one behind the other. Strings are decoded, as text
// inside JSON is easier to read without escapes.
func selectJSON(all []byte, q cacheQuery) ([]byte, error) {
	if !jsonrpc.Valid(all) {
		return nil, badQuery("this output is no JSON, so pointer and jq have nothing to hold on to; use grep, lines or offset")
	}
	if q.Pointer != "" {
		var err error
		if all, err = resolvePointer(all, q.Pointer); err != nil {
			return nil, err
		}
	}
	if q.JQ != "" {
		return runJQ(all, q.JQ)
	}
	if len(all) > 0 && all[0] == '"' {
		return []byte(jsonrpc.Unquote(all)), nil
	}
	return all, nil
}

func resolvePointer(all json.RawMessage, ptr string) (json.RawMessage, error) {
	if ptr[0] != '/' {
		return nil, badQuery("pointer is %q; a JSON Pointer begins with /", plain(ptr, 80))
	}
	here := bytes.TrimSpace(all)
	var path []string
	for part := range strings.SplitSeq(ptr[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next := at(here, []string{part})
		if next == nil {
			return nil, badQuery("there is nothing at %q: %q is %s", plain(ptr, 120), plain(pointerTo(path), 120), outline(here))
		}
		path, here = append(path, part), next
	}
	return here, nil
}

// outline is what a JSON value is, in few words.
func outline(v json.RawMessage) string {
	all := spans(v)
	switch kindOf(v) {
	case "object":
		var names []string
		for _, s := range all[:min(len(all), 20)] {
			names = append(names, s.key)
		}
		return plain(fmt.Sprintf("an object with %d members: %s", len(all), strings.Join(names, ", ")), 300)
	case "array":
		return fmt.Sprintf("an array of %d", len(all))
	}
	return "a " + kindOf(v)
}

// runJQ runs a jq program within bounds of time, memory and output. It has no environment, files or modules.
func runJQ(all json.RawMessage, program string) ([]byte, error) {
	if len(all) > maxJQ {
		return nil, badQuery("jq takes up to %d bytes of JSON; narrow it down with pointer", maxJQ)
	}
	parsed, err := gojq.Parse(program)
	if err != nil {
		return nil, badQuery("jq: %s", plain(err.Error(), 200))
	}
	code, err := gojq.Compile(parsed)
	if err != nil {
		return nil, badQuery("jq: %s", plain(err.Error(), 200))
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(all))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, badQuery("jq: %s", plain(err.Error(), 200))
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxQueryTime)
	defer cancel()
	defer watchMemory(ctx, cancel)()
	var out []byte
	for iter := code.RunWithContext(ctx, v); ; {
		v, more := iter.Next()
		if !more {
			return bytes.TrimSuffix(out, []byte("\n")), nil
		}
		if err, failed := v.(error); failed {
			var halt *gojq.HaltError
			switch {
			case errors.As(err, &halt) && halt.Value() == nil:
				return out, nil
			case ctx.Err() != nil:
				return nil, badQuery("jq took over %v or too much memory; ask for less", maxQueryTime)
			}
			return nil, badQuery("jq: %s", plain(err.Error(), 300))
		}
		if s, ok := v.(string); ok {
			out = append(out, s...)
		} else {
			raw, err := gojq.Marshal(v)
			if err != nil {
				return nil, badQuery("jq: %s", plain(err.Error(), 200))
			}
			out = append(out, raw...)
		}
		if out = append(out, '\n'); len(out) > maxJQResult {
			return nil, badQuery("jq made over %d bytes; ask for less", maxJQResult)
		}
	}
}

// watchMemory cancels when the heap grows by more than maxJQMemory. The function that it returns ends the watch.
func watchMemory(ctx context.Context, cancel func()) (end func()) {
	done := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	most := m.HeapAlloc + maxJQMemory
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if runtime.ReadMemStats(&m); m.HeapAlloc > most {
					cancel()
				}
			}
		}
	}()
	return func() { stop(); <-done }
}

// diff is the difference of two texts in unified form. JSON in one line is laid out first, so that it has lines.
func diff(nameA, nameB string, a, b []byte) []byte {
	if bytes.Equal(a, b) {
		return []byte("no difference\n")
	}
	if !bytes.ContainsRune(bytes.TrimSpace(a), '\n') || !bytes.ContainsRune(bytes.TrimSpace(b), '\n') {
		a, b = layOut(a), layOut(b)
	}
	linesA, linesB := splitLines(a), splitLines(b)
	out := fmt.Appendf(nil, "--- %s\n+++ %s\n", nameA, nameB)
	return appendHunks(out, linesA, linesB, edits(linesA, linesB))
}

func layOut(b []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, b, "", "  ") != nil {
		return b
	}
	return out.Bytes()
}

func splitLines(b []byte) []string {
	return slices.Collect(strings.Lines(string(b)))
}

// change says that lines a[fromA:toA] became b[fromB:toB].
type change struct{ fromA, toA, fromB, toB int }

// edits are the changes between two lists of lines: the fewest (Myers, "An O(ND) Difference Algorithm", 1986), unless
// more than maxEdits lines differ; what differs is then one change.
func edits(a, b []string) []change {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	a, b = a[head:len(a)-tail], b[head:len(b)-tail]
	n, m := len(a), len(b)
	most := min(n+m, maxEdits)
	v := make([]int32, 2*most+2) // v[most+k]: how far a path on diagonal k has come in a
	var trace [][]int32          // v[most-d:most+d+1] before step d
	for d := 0; d <= most; d++ {
		trace = append(trace, slices.Clone(v[most-d:most+d+1]))
		for k := -d; k <= d; k += 2 {
			x := 0
			switch {
			case d == 0:
			case k == -d || k != d && v[most+k-1] < v[most+k+1]:
				x = int(v[most+k+1])
			default:
				x = int(v[most+k-1]) + 1
			}
			for x < n && x-k < m && x-k >= 0 && a[x] == b[x-k] {
				x++
			}
			v[most+k] = int32(x)
			if x >= n && x-k >= m {
				return backtrack(trace, n, m, head)
			}
		}
	}
	return []change{{head, head + n, head, head + m}}
}

// backtrack follows the shortest path back from its end and joins its steps to changes.
func backtrack(trace [][]int32, x, y, head int) (out []change) {
	for d := len(trace) - 1; d > 0; d-- {
		at := func(k int) int { // before step d
			if k < -d || k > d {
				return -1
			}
			return int(trace[d][d+k])
		}
		k := x - y
		prev := k - 1
		if k == -d || k != d && at(k-1) < at(k+1) {
			prev = k + 1
		}
		px := at(prev)
		py := px - prev
		c := change{px + head, px + head, py + head, py + head}
		if prev == k+1 {
			c.toB++
		} else {
			c.toA++
		}
		if len(out) > 0 && out[len(out)-1].fromA == c.toA && out[len(out)-1].fromB == c.toB {
			c.toA, c.toB = out[len(out)-1].toA, out[len(out)-1].toB
			out = out[:len(out)-1]
		}
		out = append(out, c)
		x, y = px, py
	}
	slices.Reverse(out)
	return out
}

// appendHunks writes changes with three lines of context.
func appendHunks(out []byte, a, b []string, changes []change) []byte {
	const context = 3
	add := func(sign byte, lines []string) {
		for _, l := range lines {
			out = append(append(out, sign), l...)
			if !strings.HasSuffix(l, "\n") {
				out = append(out, "\n\\ No newline at end\n"...)
			}
		}
	}
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].fromA-changes[n-1].toA <= 2*context {
			n++
		}
		first, last := changes[0], changes[n-1]
		before := min(context, first.fromA)
		after := min(context, len(a)-last.toA)
		fromA, toA, fromB, toB := first.fromA-before, last.toA+after, first.fromB-before, last.toB+after
		out = fmt.Appendf(out, "@@ -%s +%s @@\n", hunkRange(fromA, toA), hunkRange(fromB, toB))
		at := fromA
		for _, c := range changes[:n] {
			add(' ', a[at:c.fromA])
			add('-', a[c.fromA:c.toA])
			add('+', b[c.fromB:c.toB])
			at = c.toA
		}
		add(' ', a[at:toA])
		changes = changes[n:]
	}
	return out
}

// hunkRange is "line,count" of a hunk; an empty one names the line before it.
func hunkRange(from, to int) string {
	if from == to {
		return fmt.Sprintf("%d,0", from)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

// cutInline is the head of a text in at most so many bytes and lines, how many lines it has, and whether it is not the
// whole. It ends with a line where one ends in the last half of what may be shown, else on a rune.
func cutInline(text string, maxBytes, maxLines int) (head string, lines int, cut bool) {
	end := 0
	for n := 0; n < maxLines && end < len(text); n++ {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			i = len(text) - end - 1
		}
		end += i + 1
	}
	if maxBytes = max(maxBytes, 0); end > maxBytes {
		end = maxBytes
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		if i := strings.LastIndexByte(text[:end], '\n'); i >= end/2 {
			end = i + 1
		}
	}
	head = text[:end]
	return head, lineCount(head), end < len(text)
}
