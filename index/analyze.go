package index

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"golang.org/x/text/unicode/norm"
)

// term is a word as it is indexed and looked up.
type term struct {
	text string
	stop bool // a stop word
}

// lexicon remembers the terms of words while many texts are read. It has one user at a time; nil remembers nothing.
type lexicon map[string][]term

// read calls emit with each term of a text. Words are folded to plain lower-case letters and stemmed; identifiers
// (create_issue, create-issue, createIssue, s3.putObject) yield their parts and the joined form; scripts without spaces
// yield pairs of characters. What is indexed and what is asked go through here alike.
func (x lexicon) read(text string, emit func(term)) {
	text = fold(text)
	for i := 0; i < len(text); {
		c, size := classAt(text, i)
		end := i + size
		switch {
		case c == pictogram:
			for next, size := classAt(text, end); next == pictogram; next, size = classAt(text, end) {
				end += size
			}
			rs := []rune(text[i:end])
			for j := 0; j == 0 || j < len(rs)-1; j++ {
				emit(term{string(rs[j:min(j+2, len(rs))]), false})
			}
		case c.word():
			for next, size := classAt(text, end); next.word() || next >= joiner; next, size = classAt(text, end) {
				if after, _ := classAt(text, end+size); next >= joiner && !after.word() {
					break
				}
				end += size
			}
			for _, t := range x.chunk(text[i:end]) {
				emit(t)
			}
		}
		i = end
	}
}

func (x lexicon) chunk(s string) []term {
	found, ok := x[s]
	if !ok {
		found = chunk([]rune(s))
		if x != nil && len(s) <= joinedMax {
			x[s] = found
		}
	}
	return found
}

// fold takes accents off, and brings full-width, ligature and other compatibility forms back to plain letters.
func fold(text string) string {
	if ascii(text) {
		return text
	}
	return norm.NFC.String(strings.Map(func(r rune) rune {
		if r >= 0x300 && r <= 0x36F {
			return -1
		}
		if l, ok := undecomposed[r]; ok {
			return l
		}
		return r
	}, norm.NFKD.String(text)))
}

// undecomposed are letters that Unicode takes for whole, and the apostrophe that editors put in.
var undecomposed = map[rune]rune{
	'ø': 'o', 'Ø': 'O', 'ł': 'l', 'Ł': 'L', 'đ': 'd', 'Đ': 'D', 'ß': 's', 'æ': 'a', 'Æ': 'A', 'œ': 'o', 'ı': 'i', '’': '\'',
}

type class byte

const (
	other class = iota
	lower
	upper
	digit
	pictogram // of a script that puts no spaces between words
	joiner    // within an identifier: create_issue
	divider   // between identifiers: github.create_issue
	quote
)

func (c class) word() bool { return c == lower || c == upper || c == digit }

// classAt is the class of the character at a place in a text, and its size; other and 0 at the end.
func classAt(text string, i int) (class, int) {
	if i >= len(text) {
		return other, 0
	}
	if text[i] < utf8.RuneSelf {
		return asciiClass[text[i]], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	return classify(r), size
}

var asciiClass = func() (of [utf8.RuneSelf]class) {
	for r := range of {
		of[r] = classify(rune(r))
	}
	return of
}()

func classify(r rune) class {
	switch {
	case r >= 'a' && r <= 'z':
		return lower
	case r >= 'A' && r <= 'Z':
		return upper
	case r >= '0' && r <= '9':
		return digit
	case r == '_' || r == '-':
		return joiner
	case r == '.' || r == '/' || r == ':':
		return divider
	case r == '\'':
		return quote
	case r < 0x80 || r == utf8.RuneError:
		return other
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul):
		return pictogram
	case unicode.IsUpper(r):
		return upper
	case unicode.IsLetter(r) || unicode.IsMark(r):
		return lower
	case unicode.IsDigit(r):
		return digit
	}
	return other
}

// joinedMax is as long as a joined form is of use: longer ones are paths and the like.
const joinedMax = 40

// chunk is the terms of a run of letters, digits and single joiners.
func chunk(rs []rune) []term {
	var all []term
	var parts []string
	flush := func() {
		for _, p := range parts {
			if len(parts) > 1 && len(p) == 1 && p[0] >= 'a' {
				continue // the x of x-axis
			}
			all = append(all, word(p))
		}
		if joined := strings.Join(parts, ""); len(parts) > 1 && len(joined) <= joinedMax {
			all = append(all, term{stem(joined), false})
		}
		parts = parts[:0]
	}
	begin := 0
	for i := range rs {
		c, next := classify(rs[i]), other
		if i+1 < len(rs) {
			next = classify(rs[i+1])
		}
		switch {
		case !c.word():
			begin = i + 1
			if c == divider {
				flush()
			}
			if c == quote { // the s of today's, the t of don't
				for begin < len(rs) && classify(rs[begin]) == lower {
					begin++
				}
			}
		case i >= begin && ends(c, next, rs[i:]):
			parts = append(parts, strings.ToLower(string(rs[begin:i+1])))
			begin = i + 1
		}
	}
	flush()
	return all
}

// ends tells whether a part of an identifier ends with the first of rest, which is of class c and followed by next.
func ends(c, next class, rest []rune) bool {
	if !next.word() {
		return true
	}
	if c == upper && next == upper { // the P of HTTPServer, not that of APIs
		plural := len(rest) > 2 && rest[2] == 's' && (len(rest) == 3 || classify(rest[3]) != lower)
		return len(rest) > 2 && classify(rest[2]) == lower && !plural
	}
	if c == upper && next == lower { // the I of APIs is no end; nor is that of Issue
		return false
	}
	return c != next
}

func word(w string) term {
	if stopWords[w] {
		return term{w, true}
	}
	return term{stem(w), false}
}

// stem takes the endings off an English word; words of other scripts stay as they are.
func stem(w string) string {
	if len(w) < 3 || !ascii(w) {
		return w
	}
	env := snowballstem.NewEnv(w)
	english.Stem(env)
	return env.Current()
}

// stopWords say nothing about what a tool does, least of all in a request.
var stopWords = func() map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(`
		a about above after again against all also am an and any are aren as at be because been before being below between
		both but by can cannot could couldn did didn do does doesn doing don down during each few for from further had hadn
		has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just let
		ll me more most mustn my myself no nor not now of off on once only or other ought our ours ourselves out over own
		re s same shan she should shouldn so some such t than that the their theirs them themselves then there these they
		this those through to too under until up upon us ve very via was wasn we were weren what when where which while who
		whom whose why will with within without won would wouldn you your yours yourself yourselves
		please help want wants wanted need needs needed like able me kindly hello hi hey thanks thank
		gonna wanna trying`) {
		words[w] = true
	}
	return words
}()
