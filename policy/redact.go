package policy

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const redacted = "[redacted]"

// Redactor hides secrets: values known from the configuration, well-known token shapes, URL userinfo and secret query
// parameters, and in JSON the values of secret-looking keys. The nil Redactor hides only what needs no configuration.
// It is immutable.
type Redactor struct{ known *strings.Replacer }

// NewRedactor hides these values besides what it knows by shape. Values shorter than 4 characters are left alone.
func NewRedactor(secrets []string) *Redactor {
	var all []string
	for _, s := range secrets {
		for _, f := range forms(s) {
			if len(f) >= 4 && !strings.Contains(f, redacted) && !strings.Contains(redacted, f) {
				all = append(all, f)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	all = slices.Compact(all)
	if len(all) == 0 {
		return &Redactor{}
	}
	pairs := make([]string, 0, 2*len(all))
	for _, f := range all {
		pairs = append(pairs, f, redacted)
	}
	return &Redactor{known: strings.NewReplacer(pairs...)}
}

// forms are the ways in which a secret may be written: as it is, each line of it, and escaped or encoded as programs do.
func forms(secret string) []string {
	plain := []string{secret, strings.TrimSpace(secret)}
	if strings.Contains(plain[1], "\n") {
		for line := range strings.Lines(secret) { // stderr is shown line by line
			if line = strings.TrimSpace(line); len(line) >= 16 {
				plain = append(plain, line)
			}
		}
	}
	out := plain
	for _, s := range plain {
		quoted := string(jsonrpc.Quote(s))
		html, _ := json.Marshal(s) // a string: always encodes
		out = append(out, quoted[1:len(quoted)-1], string(html[1:len(html)-1]), strings.ReplaceAll(s, "/", `\/`))
		for _, e := range []string{url.QueryEscape(s), url.PathEscape(s)} {
			out = append(out, e, percent.ReplaceAllStringFunc(e, strings.ToLower))
		}
		out = append(out, inBase64(s)...)
	}
	return out
}

var percent = regexp.MustCompile(`%[0-9A-F]{2}`)

// inBase64 is what can be seen of s in the base64 of a longer text ("user:" + s too), at each of the three positions that
// it may have there. Short values are left alone: so little of them is certain that it would hide other things.
func inBase64(s string) (out []string) {
	if len(s) < 8 {
		return nil
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before, skip := range []int{0, 2, 3} { // characters that hold bits of what stands before s
			all := enc.EncodeToString([]byte(strings.Repeat("\x00", before) + s))
			out = append(out, all[skip:(before+len(s))*8/6])
		}
	}
	return out
}

// Text is s with secrets replaced by "[redacted]".
func (r *Redactor) Text(s string) string {
	if r != nil && r.known != nil {
		s = r.known.Replace(s)
	}
	return hideShapes(s)
}

// JSON is raw with secrets in its strings, and the whole value of secret-looking keys, replaced. Numbers under token-like
// keys, true, false and null tell no secret and stay. All other bytes stay as they are. What is not JSON is treated as
// text and quoted.
func (r *Redactor) JSON(raw json.RawMessage) json.RawMessage {
	if !jsonrpc.Valid(raw) {
		return jsonrpc.Quote(r.Text(string(raw)))
	}
	w := jsonRedactor{r: r, in: raw}
	w.run()
	if w.done == 0 {
		return raw
	}
	return append(w.out, raw[w.done:]...)
}

// jsonRedactor walks well-formed JSON once, from left to right.
type jsonRedactor struct {
	r    *Redactor
	in   []byte
	out  []byte
	done int // in[:done] is in out
}

func (w *jsonRedactor) run() {
	var objects []bool // for each open bracket, whether it is an object
	key, atKey := "", false
	for i := 0; i < len(w.in); {
		switch c := w.in[i]; c {
		case '{', '[':
			if w.secret(key, i) {
				i, key = w.replace(i), ""
				continue
			}
			objects = append(objects, c == '{')
			atKey, key = c == '{', ""
			i++
		case '}', ']':
			objects = objects[:len(objects)-1]
			atKey = false
			i++
		case ',':
			atKey, key = objects[len(objects)-1], ""
			i++
		case '"':
			end := stringEnd(w.in, i)
			switch {
			case atKey:
				key, atKey = jsonrpc.Unquote(w.in[i:end]), false
				w.text(i, end)
			case w.secret(key, i):
				w.replace(i)
			default:
				w.text(i, end)
			}
			i = end
		case ' ', '\t', '\n', '\r', ':':
			i++
		default:
			end := scalarEnd(w.in, i)
			if w.secret(key, i) {
				w.replace(i)
			}
			i = end
		}
	}
}

// secret tells whether the value at i under key is hidden whole.
func (w *jsonRedactor) secret(key string, i int) bool {
	if key == "" || !secretKey(key, false) {
		return false
	}
	switch c := w.in[i]; {
	case c == 't' || c == 'f' || c == 'n':
		return false
	case c == '-' || c >= '0' && c <= '9':
		return !strings.Contains(strings.ToLower(key), "token")
	case c == '"' && w.in[i+1] == '"':
		return false
	}
	return true
}

// replace writes "[redacted]" for the value at i and returns its end.
func (w *jsonRedactor) replace(i int) int {
	end, depth := i, 0
	for {
		switch w.in[end] {
		case '{', '[':
			depth++
			end++
		case '}', ']':
			depth--
			end++
		case '"':
			end = stringEnd(w.in, end)
		case ' ', '\t', '\n', '\r', ':', ',':
			end++
		default:
			end = scalarEnd(w.in, end)
		}
		if depth == 0 {
			break
		}
	}
	w.put(i, end, `"`+redacted+`"`)
	return end
}

// text redacts the string at in[from:to]; one without secrets keeps its bytes.
func (w *jsonRedactor) text(from, to int) {
	s := jsonrpc.Unquote(w.in[from:to])
	if t := w.r.Text(s); t != s {
		w.put(from, to, string(jsonrpc.Quote(t)))
	}
}

func (w *jsonRedactor) put(from, to int, s string) {
	w.out = append(append(w.out, w.in[w.done:from]...), s...)
	w.done = to
}

// stringEnd is the end of the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// scalarEnd is the end of the number or word that begins at i.
func scalarEnd(b []byte, i int) int {
	for i < len(b) && !strings.ContainsRune(" \t\n\r,:]}", rune(b[i])) {
		i++
	}
	return i
}
