// Package policy answers what one configuration allows: which servers may load, which items may be seen and called, how
// risky a tool is, and what must not be shown. A Policy is a pure function of its configuration: it does no I/O and never
// talks to a server.
package policy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
)

// Builtin is the id of the proxy's own server: its items are always visible, and no configured server has it.
const Builtin = "mcpproxy"

// Policy is made from one configuration and never changes.
type Policy struct {
	*Redactor
	config *configs.Config
	usable []*configs.Server
}

// New makes the policy of a configuration.
func New(c *configs.Config) *Policy {
	p := &Policy{config: c}
	var secrets []string
	for _, s := range c.Servers {
		secrets = append(secrets, s.Secrets...)
		if p.refuse(s) == nil {
			p.usable = append(p.usable, s)
		}
	}
	p.Redactor = NewRedactor(secrets)
	return p
}

// Servers are those that may run, sorted by id: enabled and without an error in their configuration.
func (p *Policy) Servers() []*configs.Server { return slices.Clone(p.usable) }

// Denial says which rule keeps an item from being used.
type Denial struct {
	Ref    index.Ref
	Rule   string         // "excludeTools: delete_*", "not in includeTools", "server disabled"
	Origin configs.Origin // where the rule stands
}

func (d *Denial) Error() string {
	name := d.Ref.Server
	if d.Ref.Name != "" {
		name += "." + d.Ref.Name
	}
	msg := fmt.Sprintf("%s is not permitted: %s", strconv.Quote(name), d.Rule)
	if d.Origin.File != "" {
		msg += " (" + d.Origin.File
		if d.Origin.Line > 0 {
			msg += ":" + strconv.Itoa(d.Origin.Line)
		}
		msg += ")"
	}
	return msg
}

// Visible tells whether an item may be listed, searched, described and called. Items of servers that are not configured
// or disabled, or whose configuration is in error, are not visible.
func (p *Policy) Visible(r index.Ref) bool { return p.Check(r) == nil }

// Check is nil when an item is visible, else why not.
func (p *Policy) Check(r index.Ref) *Denial {
	if r.Server == Builtin {
		return nil
	}
	s := p.config.Server(r.Server)
	if s == nil {
		return &Denial{Ref: r, Rule: "server not configured"}
	}
	d := p.refuse(s)
	if d == nil && r.Kind == index.Tool {
		d = filter(s, r.Name)
	}
	if d != nil {
		d.Ref = r
	}
	return d
}

// refuse says why nothing of a server may be used; nil where it may.
func (p *Policy) refuse(s *configs.Server) *Denial {
	switch {
	case s.ID == Builtin:
		return &Denial{Rule: "the id " + Builtin + " is reserved", Origin: s.Origin}
	case !s.Enabled:
		return &Denial{Rule: "server disabled", Origin: originOf(s, "/enabled")}
	case s.Err != nil:
		return &Denial{Rule: "server in error: " + s.Err.Message, Origin: s.Err.Origin}
	}
	return nil
}

// filter applies a server's include and exclude lists to a tool; exclude wins.
func filter(s *configs.Server, tool string) *Denial {
	fits := func(pattern string) bool { return match(pattern, tool) }
	if i := slices.IndexFunc(s.ExcludeTools, fits); i >= 0 {
		return &Denial{Rule: "excludeTools: " + s.ExcludeTools[i],
			Origin: originOf(s, "/excludeTools/"+strconv.Itoa(i), "/excludeTools")}
	}
	if len(s.IncludeTools) > 0 && !slices.ContainsFunc(s.IncludeTools, fits) {
		return &Denial{Rule: "not in includeTools", Origin: originOf(s, "/includeTools")}
	}
	return nil
}

// originOf is where the first of these values stands, else where the server's entry does.
func originOf(s *configs.Server, pointers ...string) configs.Origin {
	for _, p := range pointers {
		if o, ok := s.Origins[p]; ok {
			return o
		}
	}
	return s.Origin
}
