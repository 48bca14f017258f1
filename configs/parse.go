package configs

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

const (
	maxFile  = 4 << 20 // bytes of a configuration file
	maxDepth = 100     // nesting of its values; the parser recurses

	maxDuplicates = 20 // that are reported
)

// source is one file that was looked for.
type source struct {
	File
	base string // the directory that relative paths in it start from
	text []byte
	err  error // why it can't be read; fs.ErrNotExist where it is absent
}

// read opens and reads a file once, so that what is judged is what is used.
func read(path string, scope Scope, base string) *source {
	s := &source{File: File{Path: path, Scope: scope, State: Loaded}, base: base}
	s.text, s.err = readRegular(path, maxFile)
	switch {
	case errors.Is(s.err, fs.ErrNotExist):
		s.State = Absent
	case s.err != nil:
		s.State = Unreadable
	default:
		s.Hash = fmt.Sprintf("sha256:%x", sha256.Sum256(s.text))
	}
	return s
}

// readRegular is the content of a regular file of at most limit bytes. Its errors do not repeat the path. Pipes and
// devices are refused, as reading them may never end.
func readRegular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = errors.New("it is a directory")
	} else if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	if err != nil {
		return nil, withoutPath(err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return text, withoutPath(err)
}

func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// position is a place in a file; columns count characters.
type position struct{ line, column int }

// node is one JSON value and where it stands. A null is kept, since it removes what a lower file says.
type node struct {
	from    *source
	parent  *node
	key     string // the member's name, or the element's index
	written string // the key as the file has it, where aliases have changed it
	keyAt   position
	at      position
	kind    hujson.Kind // 'n' null, 't' and 'f' booleans, '"' string, '0' number, '{' object, '[' array
	text    string      // a string's value, a number as it stands
	kids    []*node     // members in order, each name once; elements
	below   *node       // what this one replaced, nil when there was nothing
}

// get is the member of that name, nil when there is none or it is null.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for _, k := range n.kids {
		if k.key == key && k.kind != 'n' {
			return k
		}
	}
	return nil
}

// with is a copy of n that has this member instead of one of the same name.
func (n *node) with(m *node) *node {
	c := *n
	c.kids = slices.DeleteFunc(slices.Clone(n.kids), func(k *node) bool { return k.key == m.key })
	c.kids = append(c.kids, m)
	return &c
}

// pointer is the JSON pointer of n in its file.
func (n *node) pointer() string {
	if n.parent == nil {
		return ""
	}
	return n.parent.pointer() + "/" + escapePointer.Replace(n.written)
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

func (n *node) origin() Origin    { return Origin{n.from.Path, n.at.line, n.at.column} }
func (n *node) keyOrigin() Origin { return Origin{n.from.Path, n.keyAt.line, n.keyAt.column} }

// what names the kind of value for messages.
func (n *node) what() string { return kindNames[n.kind] }

var kindNames = map[hujson.Kind]string{
	'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
}

// value is n as encoding/json has it.
func (n *node) value() any {
	switch n.kind {
	case 't', 'f':
		return n.kind == 't'
	case '"':
		return n.text
	case '0':
		f, _ := strconv.ParseFloat(n.text, 64)
		return f
	case '{':
		m := map[string]any{}
		for _, k := range n.kids {
			m[k.key] = k.value()
		}
		return m
	case '[':
		l := make([]any, len(n.kids))
		for i, k := range n.kids {
			l[i] = k.value()
		}
		return l
	}
	return nil
}

// duplicate is a member whose name another member of its object had before.
type duplicate struct{ first, again *node }

// syntaxError is why and where a file is no JSON.
type syntaxError struct {
	at            position
	message, hint string
}

// parse reads JSON with comments, trailing commas and a byte order mark. The answer is an object or an error.
func parse(s *source) (root *node, twice []duplicate, err *syntaxError) {
	text := bytes.TrimPrefix(s.text, []byte("\ufeff"))
	fail := func(offset int, message, hint string) (*node, []duplicate, *syntaxError) {
		c := cursor{text: text}
		return nil, nil, &syntaxError{c.to(offset), message, hint}
	}
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return fail(i, "it is no text: it holds a NUL byte", "save it as UTF-8")
	}
	if i := invalidUTF8(text); i >= 0 {
		return fail(i, "it is not valid UTF-8", "save it as UTF-8")
	}
	if i := tooDeep(text); i >= 0 {
		return fail(i, fmt.Sprintf("values are nested more than %d deep", maxDepth), "flatten it")
	}
	// The parser wants a line comment to end with its line.
	lines := append(slices.Clip(text), '\n')
	tree, perr := hujson.Parse(lines)
	if perr != nil {
		return fail(explain(lines, perr))
	}
	t := treeReader{source: s, cursor: cursor{text: text}}
	root = t.read(&tree, nil, "")
	if root.kind != '{' {
		return fail(tree.StartOffset, "expected an object, found "+root.what(), `begin with {"servers": {…}}`)
	}
	s.text = nil
	return root, t.twice, nil
}

// explain puts a parser's error into words that repeat nothing of the file: what is damaged may be a secret.
func explain(text []byte, err error) (offset int, message, hint string) {
	var line, column int
	fmt.Sscanf(err.Error(), "hujson: line %d, column %d: ", &line, &column)
	for ; line > 1; line-- {
		offset += bytes.IndexByte(text[offset:], '\n') + 1
	}
	offset = min(offset+max(column-1, 0), len(text))
	hint = "mend it there; comments and trailing commas are fine"
	_, message, _ = strings.Cut(err.Error(), fmt.Sprintf(", column %d: ", column))
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return offset, "it is empty", "write {} for a configuration of nothing"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return offset, "it ends too early", "close what is open: brackets, strings, comments"
	case strings.Contains(message, "invalid literal"):
		if offset < len(text) && text[offset] == '"' {
			return offset, "invalid string", `end it on its line; write \\ for a backslash`
		}
		return offset, "invalid value", "strings stand in double quotes; other words are true, false and null"
	}
	return offset, message, hint
}

func invalidUTF8(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size <= 1 {
			return i
		}
		i += size
	}
}

// tooDeep is where the nesting passes maxDepth, -1 when it does not. Up to a syntax error it sees strings and comments
// as the parser does.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '[', '{':
			if depth++; depth > maxDepth {
				return i
			}
		case ']', '}':
			depth--
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			for _, c := range [][2]string{{"//", "\n"}, {"/*", "*/"}} {
				if bytes.HasPrefix(text[i:], []byte(c[0])) {
					end := bytes.Index(text[i+2:], []byte(c[1]))
					if end < 0 {
						return -1
					}
					i += 2 + end + len(c[1]) - 1
					break
				}
			}
		}
	}
	return -1
}

// cursor turns rising offsets into positions in one pass.
type cursor struct {
	text   []byte
	offset int
	seen   position // of offset, counted from 0
}

func (c *cursor) to(offset int) position {
	for c.offset < offset && c.offset < len(c.text) {
		if c.text[c.offset] == '\n' {
			c.seen = position{c.seen.line + 1, 0}
		} else if utf8.RuneStart(c.text[c.offset]) {
			c.seen.column++
		}
		c.offset++
	}
	return position{c.seen.line + 1, c.seen.column + 1}
}

// treeReader makes nodes of the parser's values, in the order of the file.
type treeReader struct {
	*source
	cursor
	twice []duplicate
}

func (t *treeReader) read(v *hujson.Value, parent *node, key string) *node {
	n := &node{from: t.source, parent: parent, key: key, written: key, kind: v.Value.Kind(), at: t.to(v.StartOffset)}
	switch v := v.Value.(type) {
	case hujson.Literal:
		n.text = v.String()
	case *hujson.Array:
		for i := range v.Elements {
			k := t.read(&v.Elements[i], n, strconv.Itoa(i))
			k.keyAt = k.at
			n.kids = append(n.kids, k)
		}
	case *hujson.Object:
		index := map[string]int{}
		for i := range v.Members {
			m := &v.Members[i]
			name := m.Name.Value.(hujson.Literal).String()
			at := t.to(m.Name.StartOffset)
			k := t.read(&m.Value, n, name)
			k.keyAt = at
			if before, ok := index[name]; ok {
				if len(t.twice) < maxDuplicates {
					t.twice = append(t.twice, duplicate{n.kids[before], k})
				}
				n.kids[before] = k
				continue
			}
			index[name] = len(n.kids)
			n.kids = append(n.kids, k)
		}
	}
	return n
}
