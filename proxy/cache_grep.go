package proxy

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"time"
)

// grep shows the lines that match, as "12:text", with context as "11-text" and "--" between what is apart. Of a long line
// it shows what is around each match, as "12@2048:…text…", where 2048 is the match's offset in the output.
func (p *cachePage) grep(all []byte, q cacheQuery, pos cursorAt, limit int) (*cursorAt, error) {
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
func (g *grepper) run(all []byte, at, number int) (*cursorAt, error) {
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

func (g *grepper) line(l grepLine) (*cursorAt, error) {
	loc := g.re.FindIndex(l.text)
	switch {
	case g.q.Count:
		return nil, g.count(l.text, loc)
	case loc != nil:
		return g.match(l, loc)
	case g.after > 0:
		if !g.write(l, '-', clipLine(l.text)) {
			return &cursorAt{At: int64(l.at), Line: l.number, After: g.after}, nil
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
func (g *grepper) match(l grepLine, loc []int) (*cursorAt, error) {
	start := append(g.before, l)[0]
	mark := g.out.Len()
	full := func(at grepLine) *cursorAt { // the context goes with the match, unless it fills the answer alone
		if mark > 0 {
			kept := g.out.String()[:mark]
			g.out.Reset()
			g.out.WriteString(kept)
			at = start
		}
		return &cursorAt{At: int64(at.at), Line: at.number}
	}
	for _, b := range g.before {
		if !g.write(b, '-', clipLine(b.text)) {
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
			return &cursorAt{At: int64(l.at + from), Line: l.number}, nil // the rest of the line counts as a line
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

// clipLine is a context line, cut where it is long.
func clipLine(line []byte) string {
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
