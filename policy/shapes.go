package policy

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
)

// shape is a kind of token that is known by how it looks: a prefix at the start of a word, then at least min characters.
type shape struct {
	prefix string
	min    int
	chars  string
}

const (
	alnum  = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	word   = alnum + "_"
	dashed = word + "-"
	dotted = dashed + "."
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	bearer = dotted + "~+/=" // RFC 6750 section 2.1
)

var shapes = []shape{
	{"ghp_", 10, word}, {"gho_", 10, word}, {"ghu_", 10, word}, {"ghs_", 10, dotted}, {"ghr_", 10, word}, // GitHub
	{"github_pat_", 10, word},
	{"glpat-", 10, dotted}, {"gldt-", 10, dashed}, {"glrt-", 10, dashed}, // GitLab
	{"xoxa-", 8, dashed}, {"xoxb-", 8, dashed}, {"xoxc-", 8, dashed}, {"xoxd-", 8, dashed}, {"xoxe-", 8, dashed},
	{"xoxp-", 8, dashed}, {"xoxr-", 8, dashed}, {"xoxs-", 8, dashed}, {"xapp-", 8, dashed}, // Slack
	{"sk-", 16, dashed}, {"sk-ant-", 8, dashed}, {"sk_live_", 8, alnum}, {"sk_test_", 8, alnum}, {"rk_live_", 8, alnum},
	{"rk_test_", 8, alnum}, {"whsec_", 16, bearer}, // OpenAI, Anthropic, Stripe
	{"AKIA", 16, upper}, {"ASIA", 16, upper}, // AWS
	{"AIza", 30, dashed}, {"ya29.", 16, dashed}, {"GOCSPX-", 16, dashed}, // Google
	{"npm_", 30, alnum}, {"pypi-", 30, dashed}, {"hf_", 20, alnum}, {"dop_v1_", 20, alnum}, {"doo_v1_", 20, alnum},
	{"SG.", 20, dotted}, {"shpat_", 16, alnum}, {"shpca_", 16, alnum}, {"shppa_", 16, alnum}, {"shpss_", 16, alnum},
	{"ATATT3", 20, bearer}, {"lin_api_", 16, alnum}, {"ntn_", 30, alnum}, {"secret_", 36, alnum}, {"figd_", 16, dashed},
	{"dckr_pat_", 16, dashed}, {"glsa_", 20, word}, {"sntrys_", 20, bearer}, {"sbp_", 30, alnum}, {"gsk_", 20, alnum},
	{"tvly-", 16, dashed}, {"pplx-", 20, alnum}, {"xai-", 20, alnum}, {"r8_", 20, alnum}, {"AGE-SECRET-KEY-", 20, upper},
}

// byFirst are the shapes by the first byte of their prefix.
var byFirst = func() (t [256][]shape) {
	for _, s := range shapes {
		t[s.prefix[0]] = append(t[s.prefix[0]], s)
	}
	return t
}()

// kinds of bytes that the scan stops at.
const (
	inWord = 1 << iota
	begins // of a shape, a JWT or a scheme
	stops  // = : and -
)

var kind = func() (t [256]byte) {
	for i := range t {
		c := byte(i)
		if c >= 0x80 || strings.IndexByte(word, c) >= 0 {
			t[i] = inWord
		}
		if byFirst[i] != nil || c == 'e' || c|0x20 == 'b' {
			t[i] |= begins
		}
	}
	t['='] |= stops
	t[':'] |= stops
	t['-'] |= stops
	return t
}()

// hideShapes replaces what looks like a secret. Text without one is returned as it is, after one pass over it.
func hideShapes(s string) string {
	var out strings.Builder
	done := 0 // s[:done] is in out
	hide := func(from, to int) {
		out.WriteString(s[done:from])
		out.WriteString(redacted)
		done = to
	}
	for i := 0; i < len(s); {
		k := kind[s[i]]
		from, to := 0, 0
		switch {
		case k&stops != 0:
			from, to = stop(s, i, done)
		case k&begins != 0 && startsWord(s, i):
			from, to = token(s, i)
		}
		if to > 0 {
			hide(from, to)
			i = to
		} else {
			i++
		}
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// startsWord tells that no word goes on at i; the end of an escape (\n, %3D) is none.
func startsWord(s string, i int) bool {
	return i == 0 || kind[s[i-1]]&inWord == 0 || i > 1 && s[i-2] == '\\' || i > 2 && s[i-3] == '%'
}

// run is the end of the characters that begin at i.
func run(s string, i int, chars string) int {
	for i < len(s) && strings.IndexByte(chars, s[i]) >= 0 {
		i++
	}
	return i
}

// token finds a secret that begins with the word at i; 0, 0 when there is none.
func token(s string, i int) (from, to int) {
	for _, sh := range byFirst[s[i]] {
		if strings.HasPrefix(s[i:], sh.prefix) {
			if end := run(s, i+len(sh.prefix), sh.chars); end-i-len(sh.prefix) >= sh.min {
				return i, i + len(strings.TrimRight(s[i:end], "."))
			}
		}
	}
	switch {
	case strings.HasPrefix(s[i:], "eyJ") && (i == 0 || s[i-1] != '-'): // {" in base64: a JWT, whole or only its header and payload
		if dot := run(s, i, dashed); dot-i >= 8 && dot < len(s) && s[dot] == '.' {
			return i, run(s, i, dotted)
		}
	case hasFold(s[i:], "bearer "):
		from = i + len("bearer ")
		to = run(s, from, bearer)
		w := s[from:to]
		parameter := strings.Contains(w, "=") && strings.HasPrefix(s[to:], `"`) // realm="x" of WWW-Authenticate
		if len(w) >= 4 && !parameter && !prose[strings.ToLower(strings.Trim(w, ".,"))] {
			return from, to
		}
	case hasFold(s[i:], "basic "):
		from = i + len("basic ")
		to = run(s, from, bearer)
		plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s[from:to], "="))
		if err == nil && bytes.IndexByte(plain, ':') >= 0 {
			return from, to
		}
	}
	return 0, 0
}

func hasFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// prose are words that follow "bearer", "token: " and the like without being secrets.
var prose = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`token tokens auth authentication authorization scheme credentials header format and or
		is are was not no must may can invalid missing required expired unexpected unknown unauthorized forbidden denied
		null nil none true false undefined empty string number boolean object array the a an`) {
		m[w] = true
	}
	return m
}()

// stop looks at a '=', ':' or '-' for a secret that stands before or behind it.
func stop(s string, i, done int) (from, to int) {
	switch {
	case s[i] == '-':
		switch {
		case strings.HasPrefix(s[i:], "-----BEGIN "):
			return pem(s, i)
		case strings.HasPrefix(s[i:], "--") && (i == 0 || strings.IndexByte(" \t\n\"'`[,(", s[i-1]) >= 0):
			return flag(s, i)
		}
		return 0, 0
	case strings.HasPrefix(s[i:], "://"):
		return userinfo(s, i+3)
	}
	return pair(s, i, done)
}

// pem is a private key in PEM armour; one without an end runs to the end of the text.
func pem(s string, i int) (from, to int) {
	line, _, _ := strings.Cut(s[i:min(len(s), i+80)], "\n")
	if !strings.Contains(line, "PRIVATE KEY") {
		return 0, 0
	}
	end := strings.Index(s[i:], "-----END ")
	if end < 0 {
		return i, len(s)
	}
	end += i + len("-----END ")
	if close := strings.Index(s[end:], "-----"); close >= 0 && close < 60 {
		end += close + len("-----")
	}
	return i, end
}

// flag is the value of a secret option of a command line: --api-key abc.
func flag(s string, i int) (from, to int) {
	end := run(s, i, dashed)
	if end == len(s) || s[end] != ' ' || !secretKey(s[i:end], false) {
		return 0, 0
	}
	from = run(s, end, " ")
	if from < len(s) && s[from] == '-' {
		return 0, 0
	}
	return value(s, from, false)
}

// userinfo is what stands before the @ of a URL's authority. A user alone is hidden too, as many services take a token
// there; "git" is none.
func userinfo(s string, i int) (from, to int) {
	end := i
	for end < len(s) && strings.IndexByte("/?# \t\r\n\"'`<>\\", s[end]) < 0 {
		end++
	}
	at := strings.LastIndexByte(s[i:end], '@')
	if at <= 0 || s[i:i+at] == "git" || s[i:i+at] == redacted {
		return 0, 0
	}
	return i, i + at
}

// pair is the value behind a secret-looking key: password=x, "token": "x", ?sig=x, Authorization: x. Nothing before done
// counts.
func pair(s string, i, done int) (from, to int) {
	end := len(strings.TrimRight(s[done:i], " ")) + done
	end = len(strings.TrimRight(s[done:end], "\"'`\\")) + done
	begin := end
	for begin > done && end-begin < 64 && strings.IndexByte(dotted, s[begin-1]) >= 0 {
		begin--
	}
	key := s[begin:end]
	inURL := s[i] == '=' && begin > 0 && strings.IndexByte("?&#;", s[begin-1]) >= 0
	if len(key) < 3 || !secretKey(key, inURL) {
		return 0, 0
	}
	from = i + 1
	if strings.HasPrefix(s[from:], ">") { // 'password' => 'x'
		from++
	}
	spaced := from
	from = run(s, from, " \t")
	if s[i] == ':' && from > spaced && from < len(s) {
		w := run(s, from, alnum+".,")
		if (w == len(s) || s[w] == ' ' || s[w] == '\n') && prose[strings.ToLower(strings.Trim(s[from:w], ".,"))] {
			return 0, 0
		}
	}
	header := s[i] == ':' && (endsFold(key, "authorization") || endsFold(key, "cookie"))
	return value(s, from, header)
}

func endsFold(s, end string) bool {
	return len(s) >= len(end) && strings.EqualFold(s[len(s)-len(end):], end)
}

// reference is ${NAME} without a default: the name of a secret.
var reference = regexp.MustCompile(`^\$\{[^}:]*(:[^-}][^}]*)?\}$`)

// value is the extent of the value that begins at i: in quotes, or up to what ends a word, or as a header to the end of
// its line or of the quotes around it. 0, 0 for one that is empty, hidden already, or a reference.
func value(s string, i int, header bool) (from, to int) {
	open := run(s, i, `\`)
	if open < len(s) && strings.IndexByte("\"'`", s[open]) >= 0 {
		quote := s[i : open+1]
		if end := closing(s, open+1, quote); end > open+1 && s[open+1:end] != redacted {
			return open + 1, end
		}
		return 0, 0
	}
	ends := " \t\r\n\"'`,;&<"
	if header {
		ends = "\r\n\"'`"
	}
	to = i
	for to < len(s) && strings.IndexByte(ends, s[to]) < 0 {
		to++
	}
	v := s[i:to]
	if v != "" && strings.IndexByte("[{$", v[0]) < 0 {
		v = strings.TrimRight(v, ")]}>.")
	}
	if v == "" || v == redacted || v == "{" || v == "[" || len(v) < 200 && reference.MatchString(v) {
		return 0, 0
	}
	return i, i + len(v)
}

// closing is where the quotes that were opened before i close; the end of the text where they don't. Quotes that are
// escaped once more than the opening ones belong to the value.
func closing(s string, i int, quote string) int {
	level, q := len(quote)-1, quote[len(quote)-1]
	for j := i; j < len(s); j++ {
		n := run(s, j, `\`) - j
		if j += n; j < len(s) && s[j] == q && n%(2*(level+1)) == level {
			return j - level
		}
	}
	return len(s)
}
