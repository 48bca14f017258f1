package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// maxDepth bounds nesting, as encoding/json does.
const maxDepth = 10_000

// SyntaxError is malformed JSON and where.
type SyntaxError struct {
	Msg    string
	Offset int // bytes from the start
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("malformed JSON at byte %d: %s", e.Offset, e.Msg)
}

// scanner walks JSON text (RFC 8259) without building anything.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) fail(msg string) error { return &SyntaxError{Msg: msg, Offset: s.i} }

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// value steps over one value.
func (s *scanner) value(depth int) error {
	if depth > maxDepth {
		return s.fail("nested too deeply")
	}
	if s.i >= len(s.b) {
		return s.fail("unexpected end")
	}
	switch c := s.b[s.i]; {
	case c == '{':
		return s.object(depth, nil)
	case c == '[':
		return s.array(depth, nil)
	case c == '"':
		return s.str()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	return s.fail("unexpected character")
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		return s.fail("unexpected word")
	}
	s.i += len(w)
	return nil
}

func (s *scanner) digits() bool {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > from
}

func (s *scanner) number() error {
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !s.digits() {
		return s.fail("bad number")
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		if s.i++; !s.digits() {
			return s.fail("bad fraction")
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		if s.i++; s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return s.fail("bad exponent")
		}
	}
	return nil
}

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// special has a top bit set in each byte of w that ends a plain run of a string: quote, backslash, control.
func special(w uint64) uint64 {
	q := w ^ ones*'"'
	e := w ^ ones*'\\'
	return ((q-ones)&^q | (e-ones)&^e | (w-ones*0x20)&^w) & tops
}

// str steps over a string, eight plain bytes at a time.
func (s *scanner) str() error {
	s.i++
	for {
		for s.i+8 <= len(s.b) && special(binary.LittleEndian.Uint64(s.b[s.i:])) == 0 {
			s.i += 8
		}
		if s.i >= len(s.b) {
			return s.fail("unterminated string")
		}
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < 0x20:
			return s.fail("control character in a string")
		default:
			s.i++
		}
	}
}

func (s *scanner) escape() error {
	if s.i+1 >= len(s.b) {
		return s.fail("unterminated escape")
	}
	switch s.b[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return nil
	case 'u':
		if s.i+6 > len(s.b) {
			return s.fail("short \\u escape")
		}
		for _, c := range s.b[s.i+2 : s.i+6] {
			if l := c | 0x20; (c < '0' || c > '9') && (l < 'a' || l > 'f') {
				return s.fail("bad \\u escape")
			}
		}
		s.i += 6
		return nil
	}
	return s.fail("bad escape")
}

// object steps over an object; member, when given, is called with each raw key (without quotes, unescaped only when
// it has escapes) and raw value.
func (s *scanner) object(depth int, member func(key, val []byte)) error {
	if s.i >= len(s.b) || s.b[s.i] != '{' {
		return s.fail("no object")
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == '}' {
		s.i++
		return nil
	}
	for {
		s.space()
		from := s.i
		if s.i >= len(s.b) || s.b[s.i] != '"' {
			return s.fail("no key")
		}
		if err := s.str(); err != nil {
			return err
		}
		key := s.b[from:s.i]
		s.space()
		if s.i >= len(s.b) || s.b[s.i] != ':' {
			return s.fail("no colon")
		}
		s.i++
		s.space()
		from = s.i
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if member != nil {
			if key = key[1 : len(key)-1]; bytes.IndexByte(key, '\\') >= 0 {
				key = []byte(Unquote(append(append([]byte{'"'}, key...), '"')))
			}
			member(key, s.b[from:s.i:s.i])
		}
		if more, err := s.more('}'); !more {
			return err
		}
	}
}

// array steps over an array, handing each raw element to elem when given.
func (s *scanner) array(depth int, elem func(val []byte)) error {
	if s.i >= len(s.b) || s.b[s.i] != '[' {
		return s.fail("no array")
	}
	s.i++
	s.space()
	if s.i < len(s.b) && s.b[s.i] == ']' {
		s.i++
		return nil
	}
	for {
		s.space()
		from := s.i
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if elem != nil {
			elem(s.b[from:s.i:s.i])
		}
		if more, err := s.more(']'); !more {
			return err
		}
	}
}

// more steps over a comma (true) or the closing bracket (false).
func (s *scanner) more(end byte) (bool, error) {
	s.space()
	if s.i >= len(s.b) {
		return false, s.fail("unexpected end")
	}
	c := s.b[s.i]
	s.i++
	if c == ',' {
		return true, nil
	}
	if c != end {
		s.i--
		return false, s.fail("no comma or closing bracket")
	}
	return false, nil
}

// Members calls f with each member of a raw object, in order, until f returns false. It fails for what is no object.
func Members(obj json.RawMessage, f func(key string, val json.RawMessage) bool) error {
	s := scanner{b: obj}
	s.space()
	stopped := false
	return s.object(0, func(k, v []byte) {
		if !stopped {
			stopped = !f(string(k), v)
		}
	})
}

// Elements calls f with each element of a raw array, in order, until f returns false. It fails for what is no array.
func Elements(arr json.RawMessage, f func(val json.RawMessage) bool) error {
	s := scanner{b: arr}
	s.space()
	stopped := false
	return s.array(0, func(v []byte) {
		if !stopped {
			stopped = !f(v)
		}
	})
}

// Member is the raw value at a path of object keys, nil when there is none. Of a repeated key the last one counts, as
// in encoding/json.
func Member(obj json.RawMessage, path ...string) json.RawMessage {
	for _, p := range path {
		from, to := find(obj, p)
		if to == 0 {
			return nil
		}
		obj = obj[from:to:to]
	}
	return obj
}

// find is where the value of a member stands; 0, 0 when there is none.
func find(obj json.RawMessage, key string) (from, to int) {
	s := scanner{b: obj}
	s.space()
	err := s.object(0, func(k, v []byte) {
		if string(k) == key {
			from, to = s.i-len(v), s.i
		}
	})
	if err != nil {
		return 0, 0
	}
	return from, to
}

// SetMember returns obj with the member key set to val: replaced where it stands, else added at the end. A nil or
// null obj, and what is no object at all, counts as empty. All other bytes stay as they are; obj itself is not changed.
func SetMember(obj json.RawMessage, key string, val json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(obj)
	if len(trimmed) < 2 || trimmed[0] != '{' {
		trimmed = json.RawMessage("{}")
	}
	if from, to := find(trimmed, key); to > 0 {
		out := make([]byte, 0, len(trimmed)-(to-from)+len(val))
		out = append(append(out, trimmed[:from]...), val...)
		return append(out, trimmed[to:]...)
	}
	body := bytes.TrimSpace(trimmed[1 : len(trimmed)-1])
	out := make([]byte, 0, len(trimmed)+len(key)+len(val)+8)
	out = append(out, '{')
	if out = append(out, body...); len(body) > 0 {
		out = append(out, ',')
	}
	out = append(append(out, Quote(key)...), ':')
	return append(append(out, val...), '}')
}

// Valid tells whether b is one well-formed JSON value.
func Valid(b []byte) bool {
	s := scanner{b: b}
	s.space()
	if s.value(0) != nil {
		return false
	}
	s.space()
	return s.i == len(b)
}
