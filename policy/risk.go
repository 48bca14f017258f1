package policy

import "github.com/mcpproxy/mcpproxy/index"

// Risk is what a tool may do to the world. It informs; it blocks nothing.
type Risk string

const (
	Read        Risk = "read"
	Write       Risk = "write"
	Destructive Risk = "destructive"
	Unknown     Risk = "unknown"
)

// Assessment is a risk and whether a tool's annotations contradict its name.
type Assessment struct {
	Risk     Risk
	Conflict bool
}

// Assess classifies a tool: annotations first, then the verbs of its name, then the lead verb of its description. Where
// annotation and name contradict each other, the higher class holds and Conflict is set.
func Assess(it *index.Item) Assessment { panic("stub") }

// Repeatable tells whether a call may be sent twice: annotated read-only or idempotent, nothing less.
func Repeatable(it *index.Item) bool { panic("stub") }
