package policy

import (
	"strings"
	"unicode/utf8"
)

// match tells whether a name is the pattern itself or fits it as a glob: * is any run of characters ("/" and "." too), ?
// is one character, [a-z] and [^a-z] are classes, \ takes the next character as it is. A "[" that is never closed stands
// for itself. It takes at most len(pattern)·len(name) steps.
func match(pattern, name string) bool {
	if pattern == name {
		return true
	}
	star, resume := "", "" // the pattern behind the last *, and where in name it is tried next
	starred := false
	for p := pattern; ; {
		if strings.HasPrefix(p, "*") {
			p = p[1:]
			star, resume, starred = p, name, true
			continue
		}
		if p == "" && name == "" {
			return true
		}
		if p != "" && name != "" {
			if size, width, ok := one(p, name); ok {
				p, name = p[size:], name[width:]
				continue
			}
		}
		if !starred || resume == "" {
			return false
		}
		_, width := utf8.DecodeRuneInString(resume)
		resume = resume[width:]
		p, name = star, resume
	}
}

// one matches the first element of a pattern against the first character of a name: how long both are, and whether they
// fit.
func one(p, name string) (size, width int, ok bool) {
	r, width := utf8.DecodeRuneInString(name)
	switch p[0] {
	case '?':
		return 1, width, true
	case '[':
		if size, in := class(p, r); size > 0 {
			return size, width, in
		}
	case '\\':
		if len(p) > 1 {
			want, n := utf8.DecodeRuneInString(p[1:])
			return 1 + n, width, want == r
		}
	}
	want, size := utf8.DecodeRuneInString(p)
	return size, width, want == r
}

// class reads a character class: its length, 0 where it is never closed, and whether r is in it.
func class(p string, r rune) (size int, in bool) {
	i, not := 1, false
	if strings.HasPrefix(p[1:], "^") || strings.HasPrefix(p[1:], "!") {
		i, not = 2, true
	}
	next := func() (c rune) {
		if p[i] == '\\' && i+1 < len(p) {
			i++
		}
		c, n := utf8.DecodeRuneInString(p[i:])
		i += n
		return c
	}
	for first := true; i < len(p); first = false {
		if p[i] == ']' && !first {
			return i + 1, in != not
		}
		lo := next()
		hi := lo
		if i+1 < len(p) && p[i] == '-' && p[i+1] != ']' {
			i++
			hi = next()
		}
		in = in || lo <= r && r <= hi
	}
	return 0, false
}
