package index

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// canonicalDepth is as deep as objects are put in order; below it they count as they are written, which bounds the work
// on hostile nesting.
const canonicalDepth = 32

// canonical appends well-formed JSON with its keys in the order of RFC 8785, numbers as they were written, strings in
// their shortest form, no space. All of repeated keys are kept, so that none can change unseen.
func canonical(dst []byte, v json.RawMessage, depth int) []byte {
	type member struct {
		key string
		val json.RawMessage
	}
	switch {
	case v[0] == '{' && depth < canonicalDepth:
		var all []member
		_ = jsonrpc.Members(v, func(k string, val json.RawMessage) bool {
			all = append(all, member{k, val})
			return true
		})
		slices.SortStableFunc(all, func(a, b member) int { return compareUTF16(a.key, b.key) })
		dst = append(dst, '{')
		for i, m := range all {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = canonical(append(appendString(dst, m.key), ':'), m.val, depth+1)
		}
		return append(dst, '}')
	case v[0] == '[' && depth < canonicalDepth:
		dst = append(dst, '[')
		first := len(dst)
		_ = jsonrpc.Elements(v, func(val json.RawMessage) bool {
			if len(dst) > first {
				dst = append(dst, ',')
			}
			dst = canonical(dst, val, depth+1)
			return true
		})
		return append(dst, ']')
	case v[0] == '"':
		return appendString(dst, jsonrpc.Unquote(v))
	}
	return append(dst, v...)
}

// compareUTF16 orders by UTF-16 code units, which differs from the order of bytes from U+E000 on.
func compareUTF16(a, b string) int {
	if ascii(a) || ascii(b) {
		return strings.Compare(a, b)
	}
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// appendString writes a JSON string with no more escapes than JSON asks for.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c >= '\b' && c <= '\r' && c != '\v':
			dst = append(dst, '\\', "btn_fr"[c-'\b'])
		default:
			dst = fmt.Appendf(dst, `\u%04x`, c)
		}
	}
	return append(dst, '"')
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
