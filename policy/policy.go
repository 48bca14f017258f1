// Package policy answers what one configuration allows: which servers may load, which items may be seen and called, how
// risky a tool is, and what must not be shown. A Policy is a pure function of its configuration: it does no I/O and never
// talks to a server.
package policy

import (
	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
)

// Policy is made from one configuration and never changes.
type Policy struct {
	*Redactor
	policy
}

type policy struct{} // stub

// New makes the policy of a configuration.
func New(c *configs.Config) *Policy { panic("stub") }

// Denial says which rule keeps an item from being used.
type Denial struct {
	Ref    index.Ref
	Rule   string         // "excludeTools: delete_*", "not in includeTools", "server disabled"
	Origin configs.Origin // where the rule stands
}

func (d *Denial) Error() string { panic("stub") }

// Visible tells whether an item may be listed, searched, described and called. Items of servers that are not configured
// or disabled are not visible.
func (p *Policy) Visible(r index.Ref) bool { panic("stub") }

// Check is nil when an item is visible, else why not.
func (p *Policy) Check(r index.Ref) *Denial { panic("stub") }
