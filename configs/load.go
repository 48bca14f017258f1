package configs

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// Empty is the configuration of nothing but defaults.
func Empty() *Config {
	c := &Config{Settings: defaults()}
	c.Hash = effectiveHash(c)
	return c
}

func defaults() Settings {
	return Settings{
		Enabled: true, Mode: "proxy", Discovery: "background", Resources: "explicit", Prompts: "user-preview",
		DirectTools: false, DefaultProjectTrust: "ask", Listen: "127.0.0.1:6270",
		SessionIdleTimeout: time.Hour, OutputTTL: 7 * day,
		Limits: Limits{
			ConnectTimeout: 15 * time.Second, DiscoveryTimeout: 10 * time.Second, CallTimeout: 10 * time.Minute,
			MaxCallTimeout: time.Hour, IdleTimeout: 10 * time.Minute, MetadataRefresh: day,
			MaxOutputBytes: 51200, MaxOutputLines: 2000,
		},
	}
}

// Load reads, merges and checks. It always answers with a usable value: what could not be read or is wrong stands in
// Diagnostics, and a bad entry or file never drops the rest.
//
// Relative commands, working directories and ${file:…} start from the directory of the file that they stand in; in a
// project's files, of both kinds, from the project's directory.
func Load(o Options) *Config {
	l := &loader{Options: o.filled()}
	var user, project []*source
	if o.File != "" {
		path := absolute(o.File)
		user = append(user, read(path, Temporary, filepath.Dir(path)))
	} else {
		for _, path := range UserFiles(l.Options) {
			user = append(user, read(path, User, filepath.Dir(path)))
		}
		for _, path := range ProjectFiles(l.Options) {
			project = append(project, read(path, Project, l.Project))
		}
	}
	docs := l.documents(user)
	servers := l.merge(nil, docs)
	if l.trusts(settingsOf(docs).get("defaultProjectTrust"), project) {
		own := l.documents(project)
		servers = l.merge(servers, own)
		docs = append(docs, own...)
	}
	settings := settingsOf(docs)
	c := &Config{Settings: l.readSettings(settings), tree: treeOf(settings, servers)}
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		s := l.readServer(id, servers[id], c.Settings.Limits)
		s.Enabled = s.Enabled && c.Settings.Enabled
		c.Servers = append(c.Servers, s)
	}
	order := map[string]int{}
	for i, s := range append(user, project...) {
		c.Files = append(c.Files, s.File)
		order[s.Path] = i
	}
	c.Diagnostics = l.diagnostics
	slices.SortStableFunc(c.Diagnostics, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(order[a.Origin.File], order[b.Origin.File]), cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Origin.Column, b.Origin.Column))
	})
	c.Hash = effectiveHash(c)
	return c
}

// loader is one Load: where to look, and what was found to be wrong so far.
type loader struct {
	Options
	diagnostics []Diagnostic
}

func (l *loader) add(d Diagnostic) { l.diagnostics = append(l.diagnostics, d) }

// report is about a value that belongs to no server.
func (l *loader) report(sev Severity, n *node, at Origin, message, hint string) {
	l.add(Diagnostic{Severity: sev, Message: message, Hint: hint, Path: n.pointer(), Origin: at})
}

// trusts decides about the project's files as they were read. They are executable configuration: without trust nothing
// of them is used.
func (l *loader) trusts(byDefault *node, project []*source) bool {
	files := []File{}
	for _, s := range project {
		if s.State != Absent {
			files = append(files, s.File)
		}
	}
	hint := "read it, then start with --approve to load it for this run"
	switch always := byDefault != nil && byDefault.text == "always"; {
	case len(files) == 0:
		return false
	case l.Deny:
		hint = "--no-approve was given"
	case l.Approve || always:
		return true
	case byDefault != nil && byDefault.text == "never":
		hint = "defaultProjectTrust is never; start with --approve to load it for this run"
	case l.Trusted != nil && l.Trusted(l.Project, files):
		return true
	}
	for _, s := range project {
		if s.State != Absent {
			s.State = Untrusted
			l.add(Diagnostic{Severity: Warning, Message: "the project's file is ignored: it is not trusted", Hint: hint,
				Origin: Origin{File: s.Path}})
		}
	}
	return false
}

func (l *loader) readSettings(n *node) Settings {
	s := defaults()
	if n != nil {
		decode(&scan{loader: l}, settingsFields, n, &s, []string{"$schema"})
		s.Limits.settle(n)
	}
	return s
}
