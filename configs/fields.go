package configs

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tailscale/hujson"
)

// A table lists the keys of an object and how each is read into a T. A field reports what is wrong and leaves the
// default.
type table[T any] map[string]field[T]

type field[T any] func(s *scan, t *T, n *node)

var settingsFields = joined(limitFields(func(s *Settings) *Limits { return &s.Limits }), table[Settings]{
	"enabled":              flag(func(s *Settings) *bool { return &s.Enabled }),
	"mode":                 word(func(s *Settings) *string { return &s.Mode }, "proxy", "single", "direct"),
	"discovery":            word(func(s *Settings) *string { return &s.Discovery }, "background", "explicit"),
	"resources":            word(func(s *Settings) *string { return &s.Resources }, "explicit", "off"),
	"prompts":              word(func(s *Settings) *string { return &s.Prompts }, "user-preview", "model", "off"),
	"directTools":          directTools(func(s *Settings) *any { return &s.DirectTools }),
	"defaultProjectTrust":  word(func(s *Settings) *string { return &s.DefaultProjectTrust }, "ask", "never", "always"),
	"requireToken":         flag(func(s *Settings) *bool { return &s.RequireToken }),
	"listen":               listen,
	"searchWarmup":         flag(func(s *Settings) *bool { return &s.SearchWarmup }),
	"sessionIdleTimeoutMs": millis(func(s *Settings) *time.Duration { return &s.SessionIdleTimeout }, minTimeout, 30*day),
	"outputTtlMs":          millis(func(s *Settings) *time.Duration { return &s.OutputTTL }, time.Second, 365*day),
})

var serverFields = joined(limitFields(func(s *Server) *Limits { return &s.Limits }), table[Server]{
	"description":  text(func(s *Server) *string { return &s.Description }),
	"enabled":      flag(func(s *Server) *bool { return &s.Enabled }),
	"transport":    transport,
	"lifecycle":    word(func(s *Server) *Lifecycle { return &s.Lifecycle }, Lazy, Eager, KeepAlive),
	"command":      command,
	"args":         args,
	"cwd":          cwd,
	"env":          env,
	"envAllowlist": words[Server, string](func(s *Server) *[]string { return &s.EnvAllowlist }),
	"url":          address,
	"headers":      headers,
	"auth":         auth,
	"includeTools": words[Server, string](func(s *Server) *[]string { return &s.IncludeTools }),
	"excludeTools": words[Server, string](func(s *Server) *[]string { return &s.ExcludeTools }),
	"directTools":  directTools(func(s *Server) *any { return &s.DirectTools }),
	"pin":          flag(func(s *Server) *bool { return &s.Pin }),
	"allow":        words(func(s *Server) *[]string { return &s.Allow }, "sampling", "elicitation", "roots"),
	"share":        word(func(s *Server) *string { return &s.Share }, "machine", "session"),
	"overrides":    overrides,

	"envFile":       unsupportedField(`put its variables into "env", by reference if they are secret`),
	"headersHelper": unsupportedField(`put the headers into "headers", by reference if they are secret`),
})

var authFields = table[Auth]{
	"type":                    word(func(a *Auth) *string { return &a.Type }, "none", "bearer", "env", "oauth"),
	"token":                   secret(func(a *Auth) *string { return &a.Token }),
	"env":                     tokenVariable,
	"flow":                    word(func(a *Auth) *string { return &a.Flow }, "browser", "device", "auto"),
	"scope":                   scope,
	"clientId":                secret(func(a *Auth) *string { return &a.ClientID }),
	"clientSecret":            secret(func(a *Auth) *string { return &a.ClientSecret }),
	"clientMetadataUrl":       expanded(func(a *Auth) *string { return &a.ClientMetadataURL }, inURL),
	"resourceMetadataUrl":     expanded(func(a *Auth) *string { return &a.ResourceMetadataURL }, inURL),
	"tokenEndpointAuthMethod": word(func(a *Auth) *string { return &a.TokenEndpointAuthMethod }, authMethods...),
	"callbackPort":            whole(func(a *Auth) *int { return &a.CallbackPort }, "", 0, 65535),
}

var authMethods = []string{"client_secret_basic", "client_secret_post", "none"}

const (
	day        = 24 * time.Hour
	minTimeout = 100 * time.Millisecond
	minSize    = 1 << 10
	maxSize    = 64 << 20
)

// limitFields are the bounds that settings give for all servers and a server for itself.
func limitFields[T any](of func(*T) *Limits) table[T] {
	return table[T]{
		"connectTimeoutMs":   millis(func(t *T) *time.Duration { return &of(t).ConnectTimeout }, minTimeout, day),
		"discoveryTimeoutMs": millis(func(t *T) *time.Duration { return &of(t).DiscoveryTimeout }, minTimeout, day),
		"callTimeoutMs":      millis(func(t *T) *time.Duration { return &of(t).CallTimeout }, minTimeout, day),
		"maxCallTimeoutMs":   millis(func(t *T) *time.Duration { return &of(t).MaxCallTimeout }, minTimeout, day),
		"idleTimeoutMs":      millis(func(t *T) *time.Duration { return &of(t).IdleTimeout }, minTimeout, day),
		"metadataRefreshMs":  millis(func(t *T) *time.Duration { return &of(t).MetadataRefresh }, minTimeout, 30*day),
		"maxOutputBytes":     whole(func(t *T) *int { return &of(t).MaxOutputBytes }, " bytes", minSize, maxSize),
		"maxOutputLines":     whole(func(t *T) *int { return &of(t).MaxOutputLines }, " lines", 1, 10_000_000),
	}
}

// settle works out what the limits in n say together. A call may take as long as it is configured to, unless a cap is
// configured too.
func (l *Limits) settle(n *node) {
	l.ConnectSet = l.ConnectSet || n.get("connectTimeoutMs") != nil
	if n.get("callTimeoutMs") != nil && n.get("maxCallTimeoutMs") == nil {
		l.MaxCallTimeout = max(l.MaxCallTimeout, l.CallTimeout)
	}
}

func joined[T any](tables ...table[T]) table[T] {
	all := table[T]{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// maxUnknown is how many unknown keys of one object are reported.
const maxUnknown = 20

// decode reads the members of an object. tolerated are keys of other programs that mean nothing here; aliases
// are keys that were already replaced, for suggestions.
func decode[T any](s *scan, t table[T], n *node, into *T, tolerated []string, aliases ...string) {
	unknown := 0
	for _, m := range n.kids {
		switch read, ok := t[m.key]; {
		case m.kind == 'n':
		case ok:
			read(s, into, m)
		case slices.Contains(tolerated, m.key), unknown == maxUnknown:
		default:
			unknown++
			s.unknown(m, append(aliases, slices.Collect(maps.Keys(t))...))
		}
	}
}

// unknown reports a key that means nothing, with the known one that it may have been meant to be.
func (s *scan) unknown(m *node, known []string) {
	if near := nearest(m.key, known); near != "" {
		s.report(Warning, m, m.keyOrigin(), fmt.Sprintf("unknown key %q", clip(m.written)),
			fmt.Sprintf("did you mean %q?", near))
		return
	}
	s.report(Note, m, m.keyOrigin(), fmt.Sprintf("unknown key %q has no effect", clip(m.written)),
		"remove it unless another program reads it")
}

// is tells whether n is of the kind, and reports where it is not.
func (s *scan) is(n *node, kind hujson.Kind) bool {
	if n.what() == kindNames[kind] {
		return true
	}
	s.mistyped(n, kindNames[kind])
	return false
}

func (s *scan) mistyped(n *node, expected string) {
	s.fail(n, fmt.Sprintf("%s: expected %s, found %s", quoteKey(n), expected, n.what()), "change its value")
}

// quoteKey names a value for a message: "callTimeoutMs", element 3 of "args".
func quoteKey(n *node) string {
	if n.parent != nil && n.parent.kind == '[' {
		return fmt.Sprintf("element %s of %s", n.written, quoteKey(n.parent))
	}
	return strconv.Quote(clip(n.written))
}

func flag[T any](of func(*T) *bool) field[T] {
	return func(s *scan, t *T, n *node) {
		if s.is(n, 't') {
			*of(t) = n.kind == 't'
		}
	}
}

func text[T any](of func(*T) *string) field[T] {
	return func(s *scan, t *T, n *node) {
		if s.is(n, '"') {
			*of(t) = n.text
		}
	}
}

func word[T any, S ~string](of func(*T) *S, accepted ...S) field[T] {
	return func(s *scan, t *T, n *node) {
		if s.is(n, '"') && accept(s, n, accepted) {
			*of(t) = S(n.text)
		}
	}
}

func accept[S ~string](s *scan, n *node, accepted []S) bool {
	if len(accepted) == 0 || slices.Contains(accepted, S(n.text)) {
		return true
	}
	s.fail(n, fmt.Sprintf("%s is %q, which is not known", quoteKey(n), clip(n.text)), "accepted are "+list(accepted))
	return false
}

func list[S ~string](words []S) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// words reads an array of strings; no accepted ones accept all.
func words[T any, S ~string](of func(*T) *[]S, accepted ...S) field[T] {
	return func(s *scan, t *T, n *node) {
		if !s.is(n, '[') {
			return
		}
		all := make([]S, 0, len(n.kids))
		for _, k := range n.kids {
			if !s.is(k, '"') || !accept(s, k, accepted) {
				return
			}
			all = append(all, S(k.text))
		}
		*of(t) = all
	}
}

func millis[T any](of func(*T) *time.Duration, low, high time.Duration) field[T] {
	return func(s *scan, t *T, n *node) {
		if s.is(n, '0') {
			ms := s.bounded(n, " ms", float64(low/time.Millisecond), float64(high/time.Millisecond))
			*of(t) = time.Duration(ms) * time.Millisecond
		}
	}
}

func whole[T any](of func(*T) *int, unit string, low, high int) field[T] {
	return func(s *scan, t *T, n *node) {
		if s.is(n, '0') {
			*of(t) = int(s.bounded(n, unit, float64(low), float64(high)))
		}
	}
}

// bounded is a number held to its bounds.
func (s *scan) bounded(n *node, unit string, low, high float64) int64 {
	v, _ := strconv.ParseFloat(n.text, 64) // out of range is ±Inf
	held := min(max(v, low), high)
	if held != v {
		s.report(Warning, n, n.origin(),
			fmt.Sprintf("%s is %s%s, out of bounds; %.0f%s holds", quoteKey(n), clip(n.text), unit, held, unit),
			fmt.Sprintf("choose from %.0f to %.0f%s", low, high, unit))
	}
	return int64(held)
}

func directTools[T any](of func(*T) *any) field[T] {
	return func(s *scan, t *T, n *node) {
		var names []string
		switch n.kind {
		case 't', 'f':
			*of(t) = n.kind == 't'
		case '[':
			if words[[]string, string](func(l *[]string) *[]string { return l })(s, &names, n); names != nil {
				*of(t) = names
			}
		default:
			s.mistyped(n, "a boolean or an array of names")
		}
	}
}

func listen(s *scan, t *Settings, n *node) {
	if !s.is(n, '"') {
		return
	}
	if _, _, err := net.SplitHostPort(n.text); err != nil {
		s.fail(n, fmt.Sprintf("%s is no address", quoteKey(n)), `write HOST:PORT, as in "127.0.0.1:6270"`)
		return
	}
	t.Listen = n.text
}

// unsupportedField is another program's key that would change what a server is given, so that leaving it out is said.
func unsupportedField(hint string) field[Server] {
	return func(s *scan, _ *Server, n *node) {
		s.report(Note, n, n.keyOrigin(), quoteKey(n)+" is not supported and has no effect", hint)
	}
}

func expanded[T any](of func(*T) *string, p place) field[T] {
	return func(s *scan, t *T, n *node) { *of(t), _ = s.expand(n, p) }
}

// secret is a part of a credential.
func secret[T any](of func(*T) *string) field[T] {
	return func(s *scan, t *T, n *node) {
		*of(t), _ = s.expand(n, inHeader)
		if n.key != "clientId" {
			s.server.hide("token", *of(t))
		}
	}
}

// tokenVariable names the environment variable that holds the token.
func tokenVariable(s *scan, a *Auth, n *node) {
	if !s.is(n, '"') {
		return
	}
	v := *n
	if !strings.Contains(v.text, "${") {
		v.text = "${env:" + v.text + "}"
	}
	a.Token, _ = s.expand(&v, inHeader)
	s.server.hide("token", a.Token)
}

// scope is what OAuth asks for: words in a string, or a list as other programs have it.
func scope(s *scan, a *Auth, n *node) {
	if n.kind != '[' {
		a.Scope, _ = s.expand(n, inURL)
		return
	}
	var scopes []string
	words[[]string, string](func(l *[]string) *[]string { return l })(s, &scopes, n)
	a.Scope = strings.Join(scopes, " ")
}

// nearest is the known word that a misspelt one was most likely meant to be, "" when none is near.
func nearest(s string, known []string) string {
	slices.Sort(known)
	best, at := "", min(len(s)/3+2, 4)
	if len(s) > 64 {
		return ""
	}
	for _, k := range known {
		if d := distance(strings.ToLower(s), strings.ToLower(k)); d < at {
			best, at = k, d
		}
	}
	return best
}

// distance counts the edits between two words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
