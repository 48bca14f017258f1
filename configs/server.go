package configs

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// scan reads one object of the merged configuration: the settings, or a server's entry.
type scan struct {
	*loader
	id     string  // of the server
	server *Server // nil while the settings are read
	failed int     // how often fail was called
}

func (s *scan) report(sev Severity, n *node, at Origin, message, hint string) {
	s.add(Diagnostic{sev, message, hint, s.id, n.pointer(), at})
}

// fail reports what makes the server unusable; for one that is switched off that is only a warning.
func (s *scan) fail(n *node, message, hint string) {
	s.failed++
	d := Diagnostic{Error, message, hint, s.id, n.pointer(), n.origin()}
	if s.server != nil {
		if !s.server.Enabled {
			d.Severity = Warning
		}
		if s.server.Err == nil {
			s.server.Err = &d
		}
	}
	s.add(d)
}

// expand is a string with its references resolved. What they resolve to is hidden.
func (s *scan) expand(n *node, p place) (string, bool) {
	if !s.is(n, '"') {
		return "", false
	}
	e := expander{Options: s.Options, base: n.from.base}
	out, err := e.expand(n.text, p)
	s.server.hide("", slices.DeleteFunc(e.found, func(v string) bool { return v == s.Home || v == s.Project })...)
	switch p, _ := err.(*problem); {
	case p != nil:
		s.fail(n, p.message, p.hint)
	case strings.ContainsRune(out, 0):
		s.fail(n, quoteKey(n)+" holds a NUL character", "remove it")
	default:
		return out, true
	}
	return "", false
}

// readServer makes a server of its merged entry.
func (l *loader) readServer(id string, n *node, limits Limits) *Server {
	t := &Server{
		ID: id, Name: n.written, Scope: n.from.Scope, Origin: n.keyOrigin(), Origins: map[string]Origin{},
		Enabled: true, Lifecycle: Lazy, Share: "machine", Auth: Auth{Type: "none"}, Limits: limits,
	}
	if on := n.get("enabled"); on != nil && on.kind == 'f' {
		t.Enabled = false
	}
	s := &scan{loader: l, id: id, server: t}
	if s.is(n, '{') {
		decode(s, serverFields, n, t, toleratedServer, slices.Collect(maps.Keys(serverAliases))...)
		t.Limits.settle(n)
		s.reach(n)
	} else {
		t.Transport = Stdio
	}
	if n.from.Scope == Project && t.Dir == "" {
		t.Dir = l.Project
	}
	n.origins("", t.Origins)
	t.hideArgs()
	slices.Sort(t.Secrets)
	t.Secrets = slices.Compact(t.Secrets)
	t.Hash = connectionHash(t)
	return t
}

// reach settles the transport from what is named and what is given.
func (s *scan) reach(n *node) {
	t, command, url, named := s.server, n.get("command"), n.get("url"), n.get("transport")
	clash := func(given, hint string) {
		s.fail(named, fmt.Sprintf("%s is %q, but %s is given", quoteKey(named), clip(named.text), given), hint)
	}
	switch {
	case command != nil && url != nil:
		s.fail(url, `"command" and "url" are both given`, "keep one of them; null removes what another file gives")
	case command == nil && url == nil:
		s.fail(n, `neither "command" nor "url" is given`, `give "command" for a local server, "url" for a remote one`)
	case command != nil && t.Transport != Stdio && t.Transport != "":
		clash(`"command"`, `a command goes with "stdio"; or give "url" instead`)
	case url != nil && t.Transport == Stdio:
		clash(quoteKey(url), `a URL goes with "streamable-http" or "sse"; or give "command" instead`)
	}
	switch {
	case t.Transport != "":
	case command != nil || url == nil:
		t.Transport = Stdio
	default:
		t.Transport, t.Fallback = StreamableHTTP, true
	}
	if t.Err != nil {
		return
	}
	onPath := command != nil && filepath.Base(t.Command) == t.Command
	if onPath && strings.Contains(t.Command, " ") && n.get("args") == nil {
		s.report(Note, command, command.origin(), quoteKey(command)+" is the name of one program, spaces and all",
			`arguments go into "args"`)
	}
	idle := []string{"headers", "auth"}
	if t.Transport != Stdio {
		idle = []string{"args", "cwd", "env", "envAllowlist"}
	}
	for _, key := range idle {
		if m := n.get(key); m != nil && (m.kind == '"' || len(m.kids) > 0) {
			s.report(Note, m, m.keyOrigin(), fmt.Sprintf("%s has no effect where the transport is %s", quoteKey(m), t.Transport),
				"remove it")
		}
	}
}

// origins notes where each value below n stands.
func (n *node) origins(pointer string, all map[string]Origin) {
	for _, k := range n.kids {
		if k.kind != 'n' {
			p := pointer + "/" + escapePointer.Replace(k.key)
			all[p] = k.origin()
			k.origins(p, all)
		}
	}
}

// transports are the spellings in use, without case, "-" and "_".
var transports = map[string]Transport{
	"stdio": Stdio, "local": Stdio, "command": Stdio,
	"http": StreamableHTTP, "https": StreamableHTTP, "streamablehttp": StreamableHTTP, "streamable": StreamableHTTP,
	"httpstream": StreamableHTTP, "remote": StreamableHTTP,
	"sse": SSE,
}

func transport(s *scan, t *Server, n *node) {
	if !s.is(n, '"') {
		return
	}
	name := strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(n.text))
	known, ok := transports[name]
	if !ok {
		s.fail(n, fmt.Sprintf("%s is %q, which is not known", quoteKey(n), clip(n.text)),
			"accepted are stdio (local), streamable-http (http, streamableHttp, streamable_http, http-stream, remote) and sse")
		return
	}
	t.Transport, t.Fallback = known, name == "remote"
}

// command is a program on the PATH, or one in a file where it has a separator.
func command(s *scan, t *Server, n *node) {
	v, ok := s.expand(n, inCommand)
	switch {
	case !ok:
	case strings.TrimSpace(v) == "":
		s.fail(n, quoteKey(n)+" is empty", "name the program to start")
	case filepath.Base(v) != v:
		t.Command = under(n.from.base, v)
	default:
		t.Command = v
	}
}

func args(s *scan, t *Server, n *node) {
	if !s.is(n, '[') {
		return
	}
	for _, k := range n.kids {
		v, _ := s.expand(k, inArg)
		t.Args = append(t.Args, v)
	}
}

func cwd(s *scan, t *Server, n *node) {
	if v, _ := s.expand(n, inDir); v != "" {
		t.Dir = under(n.from.base, v)
	}
}

func env(s *scan, t *Server, n *node) {
	if !s.is(n, '{') {
		return
	}
	t.Env = map[string]string{}
	for _, k := range n.kids {
		switch {
		case k.kind == 'n':
		case k.key == "" || strings.ContainsAny(k.key, "=\x00"):
			s.fail(k, fmt.Sprintf("%s can't be the name of an environment variable", quoteKey(k)), "rename it")
		default:
			if v, ok := s.expand(k, inEnv); ok {
				t.Env[k.key] = v
				t.hide(k.key, v)
			}
		}
	}
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func headers(s *scan, t *Server, n *node) {
	if !s.is(n, '{') {
		return
	}
	t.Headers = map[string]string{}
	for _, k := range n.kids {
		if k.kind == 'n' {
			continue
		}
		v, ok := s.expand(k, inHeader)
		t.hideHeader(k.key, v)
		switch {
		case !ok:
		case !headerName.MatchString(k.key):
			s.fail(k, fmt.Sprintf("%s can't be the name of a header", quoteKey(k)), "rename it")
		case strings.ContainsAny(v, "\r\n"):
			s.fail(k, fmt.Sprintf("the value of %s holds a line break", quoteKey(k)), "a header is one line")
		default:
			t.Headers[k.key] = v
		}
	}
}

// address reads a URL. Its errors do not repeat it, as it may hold secrets.
func address(s *scan, t *Server, n *node) {
	v, ok := s.expand(n, inURL)
	if !ok {
		return
	}
	t.URL = strings.TrimSpace(v)
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		t.hide("", t.URL)
		s.fail(n, quoteKey(n)+" is no URL of a server", "write http://HOST/PATH or https://HOST/PATH")
		return
	}
	t.hideURL(u)
}

func auth(s *scan, t *Server, n *node) {
	if !s.is(n, '{') {
		return
	}
	before, a := s.failed, Auth{}
	decode(s, authFields, n, &a, nil)
	switch {
	case a.Type != "":
	case n.get("token") != nil || n.get("env") != nil:
		a.Type = "bearer"
	case len(n.kids) > 0:
		a.Type = "oauth"
	default:
		a.Type = "none"
	}
	if (a.Type == "bearer" || a.Type == "env") && a.Token == "" && s.failed == before {
		s.fail(n, fmt.Sprintf("auth of type %s has no token", a.Type), `give "token": "${env:NAME}" or "env": "NAME"`)
	}
	t.Auth = a
}

func overrides(s *scan, t *Server, n *node) {
	if s.is(n, '{') {
		t.Overrides, _ = n.value().(map[string]any)
	}
}

// toleratedServer are keys of other programs that mean nothing here.
var toleratedServer = strings.Fields(`$schema alwaysAllow alwaysLoad authProviderType autoApprove autoStart deferTools
	dev displayName gallery icon icons id inputs metadata name sandbox sandboxEnabled tags title trust version watch`)

// serverAliases and authAliases are other programs' keys for ours.
var (
	serverAliases = map[string]string{
		"type": "transport", "transportType": "transport", "serverUrl": "url", "httpUrl": "url", "uri": "url",
		"cmd": "command", "environment": "env", "disabledTools": "excludeTools", "tools": "includeTools",
		"timeout": "callTimeoutMs", "disabled": "enabled", "oauth": "auth",
	}
	authAliases = map[string]string{
		"scopes": "scope", "CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "client_id": "clientId",
		"client_secret": "clientSecret",
	}
)

// as is a copy of n under another key.
func (n *node) as(key string) *node {
	c := *n
	c.key = key
	return &c
}

// made is a value that n implies.
func (n *node) made(key string, kind hujson.Kind, text string) *node {
	c := n.as(key)
	c.kind, c.text, c.kids = kind, text, nil
	return c
}

// canonical is an entry in our own keys, so that entries of different programs' files merge.
func (s *scan) canonical(entry *node) *node {
	if entry.kind != '{' {
		return entry
	}
	c := s.renamed(entry, serverAliases, s.translate)
	if a := c.get("auth"); a != nil && a.kind == '{' {
		c = c.with(s.renamed(a, authAliases, func(m *node) []*node { return []*node{m} }))
	}
	program := c.get("command")
	if program == nil || program.kind != '[' || len(program.kids) == 0 {
		return c
	}
	args := c.get("args")
	if args == nil {
		args = program.made("args", '[', "")
	}
	if args.kind == '[' {
		args = args.as("args")
		args.kids = slices.Concat(program.kids[1:], args.kids)
		for i, k := range args.kids {
			args.kids[i] = k.as(strconv.Itoa(i))
		}
	}
	return c.with(program.kids[0].as("command")).with(args)
}

// renamed is n with aliases replaced; our own key wins over an alias of it.
func (s *scan) renamed(n *node, aliases map[string]string, translate func(*node) []*node) *node {
	c, seen := *n, map[string]*node{}
	c.kids = nil
	for _, k := range n.kids {
		if _, ok := aliases[k.key]; !ok {
			seen[k.key] = k
		}
	}
	for _, k := range n.kids {
		key, ok := aliases[k.key]
		if !ok {
			c.kids = append(c.kids, k)
			continue
		}
		for _, m := range translate(k.as(key)) {
			if before := seen[m.key]; before != nil {
				if m.key == key {
					s.report(Warning, k, k.keyOrigin(), fmt.Sprintf("%s has no effect beside %s", quoteKey(k), quoteKey(before)),
						"keep one of them")
				}
				break
			}
			seen[m.key] = m
			c.kids = append(c.kids, m)
		}
	}
	return &c
}

// translate gives other programs' values, already under our key, our meaning.
func (s *scan) translate(m *node) []*node {
	switch m.written {
	case "disabled":
		switch m.kind {
		case 't':
			m.kind = 'f'
		case 'f':
			m.kind = 't'
		}
	case "httpUrl":
		named := func(k *node) bool {
			return k.written == "type" || k.written == "transport" || k.written == "transportType"
		}
		if m.kind == '"' && !slices.ContainsFunc(m.parent.kids, named) {
			return []*node{m, m.made("transport", '"', string(StreamableHTTP))}
		}
	case "timeout":
		// Milliseconds for most programs, seconds for some; nobody gives a call less than a second.
		if v, err := strconv.ParseFloat(m.text, 64); m.kind == '0' && err == nil && v > 0 && v < 1000 {
			m.text = strconv.FormatFloat(v*1000, 'f', -1, 64)
			s.report(Note, m, m.origin(), quoteKey(m)+" is below 1000 and read as seconds",
				`write "callTimeoutMs" for milliseconds`)
		}
	case "tools":
		// A list of the tools to offer; the other shapes in use describe tools.
		if m.kind != '[' || len(m.kids) == 0 || slices.ContainsFunc(m.kids, func(k *node) bool { return k.kind != '"' }) {
			return nil
		}
	case "oauth":
		switch m.kind {
		case 'f':
			return nil
		case 't':
			m = m.made("auth", '{', "")
		}
		if m.kind == '{' && m.get("type") == nil {
			m = m.with(m.made("type", '"', "oauth"))
		}
	}
	return []*node{m}
}
