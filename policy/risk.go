package policy

import (
	"encoding/json"
	"strings"
	"unicode"

	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// Risk is what a tool may do to the world. It informs; it blocks nothing.
type Risk string

const (
	Read        Risk = "read"
	Write       Risk = "write"
	Destructive Risk = "destructive"
	Unknown     Risk = "unknown"
)

// rank orders the classes; Unknown is below all.
var rank = map[Risk]int{Unknown: 0, Read: 1, Write: 2, Destructive: 3}

func higher(a, b Risk) Risk {
	if rank[b] > rank[a] {
		return b
	}
	return a
}

// Assessment is a risk and whether a tool's annotations contradict its name.
type Assessment struct {
	Risk     Risk
	Conflict bool
}

// Assess classifies a tool: annotations first, then the verbs of its name, then the lead verb of its description. Where
// annotation and name contradict each other, the higher class holds and Conflict is set.
func Assess(it *index.Item) Assessment {
	var a hints
	// What is no object, or has hints of another type, is no annotation.
	_ = json.Unmarshal(jsonrpc.Member(it.Raw, "annotations"), &a)
	name, ok := ofName(it.Name)
	said := a.risk()
	switch {
	case said == Unknown && !ok:
		return Assessment{Risk: ofDescription(it.Description)}
	case said == Unknown:
		return Assessment{name.risk, name.risk == Destructive && a.Destructive.is(false)}
	case name.noun:
		return Assessment{Risk: said}
	case said == Write && name.risk == Destructive: // to say only that it writes denies nothing
		return Assessment{Destructive, a.Destructive.is(false)}
	}
	return Assessment{higher(said, name.risk), name.risk == Read && said != Read || rank[name.risk] > rank[said]}
}

// Repeatable tells whether a call may be sent twice: annotated read-only or idempotent, nothing less.
func Repeatable(it *index.Item) bool {
	var a hints
	_ = json.Unmarshal(jsonrpc.Member(it.Raw, "annotations"), &a) // as in Assess
	return a.ReadOnly.is(true) || a.Idempotent.is(true)
}

// hints are a tool's annotations. Absent is not the protocol's default here: most servers that leave a hint out have not
// thought about it.
type hints struct {
	ReadOnly    hint `json:"readOnlyHint"`
	Destructive hint `json:"destructiveHint"`
	Idempotent  hint `json:"idempotentHint"`
}

// hint is true, false, or nothing usable.
type hint string

func (h *hint) UnmarshalJSON(b []byte) error { *h = hint(b); return nil }

func (h hint) is(v bool) bool { return v && h == "true" || !v && h == "false" }

func (a hints) risk() Risk {
	switch {
	case a.ReadOnly.is(true):
		return Read
	case a.Destructive.is(true):
		return Destructive
	case a.ReadOnly.is(false):
		return Write
	}
	return Unknown
}

// verb is what a word tells of a tool.
type verb struct {
	risk Risk
	noun bool // as often a noun: counts only where no plain verb stands, and contradicts no annotation
}

// verbs are the words that decide. Those of Unknown can do anything, so that nothing else in the name decides either.
var verbs = table([]verbRow{
	{verb{risk: Read}, `get list search find read describe show fetch query count check lookup retrieve browse inspect
		compare diff explain validate verify lint analyze analyse summarize summarise calculate estimate preview
		download scan scrape crawl extract parse wait poll tail peek cat ls grep glob stat head whoami ping echo geocode
		decode detect identify recommend suggest aggregate diagnose discover display obtain is has exists view think`},
	{verb{Read, true}, `blame changelog log logs status stats info details content contents snapshot screenshot history
		summary watch monitor explore lists map directions availability health help version research test top usage
		limits return provide compute export`},
	{verb{risk: Write}, `create add update set send upload move rename edit write append insert modify change put save
		store upsert replace overwrite patch enable disable activate deactivate assign unassign invite publish unpublish
		subscribe unsubscribe approve unapprove accept decline reject dismiss snooze submit upgrade install apply sync
		register configure attach detach close start stop restart pause resume archive unarchive restore revert undo redo
		undelete merge unmerge push commit checkout rebase clone init stash fork cherry scale rollout click press fill
		hover drag swipe tap navigate resize emulate login logout authenticate duplicate mute unmute lock unlock toggle
		trigger schedule reschedule cancel transfer unset unpin unlink mark react reply provision rotate increment bump
		cordon uncordon grant launch ingest onboard migrate seed allocate reconnect mkdir touch chmod`},
	{verb{Write, true}, `post forward copy share pin link label tag comment note pull book order pay charge release
		branch star follow block draft invoice vote like bookmark type deploy import`},
	{verb{risk: Destructive}, `delete remove drop purge destroy kill wipe truncate reset uninstall revoke erase clean
		cleanup terminate unregister deregister clear rm rmdir drain evict ban prune flush nuke deprovision
		decommission`},
	{verb{risk: Unknown}, `run execute exec eval evaluate invoke call perform manage handle process do interact control
		dispatch generate make build compose convert render open connect disconnect resolve`},
})

type verbRow struct {
	verb
	words string
}

func table(rows []verbRow) map[string]verb {
	t := map[string]verb{}
	for _, row := range rows {
		for _, w := range strings.Fields(row.words) {
			t[w] = row.verb
		}
	}
	return t
}

// ofName reads a name's verbs, and tells whether one was found. The leading one decides, but a destructive one further on
// raises it, unless it stands right behind a read verb, whose object it then is (get_delete_status); so does any behind
// "and" or "or" (find_and_replace).
func ofName(name string) (verb, bool) {
	var lead, noun verb
	words := split(name)
	for i, w := range words {
		switch v, ok := verbs[w]; {
		case !ok:
		case v.noun && noun.risk == "":
			noun = v
		case v.noun:
		case lead.risk == "":
			lead = v
		case words[i-1] == "and" || words[i-1] == "or":
			lead.risk = higher(lead.risk, v.risk)
		case v.risk == Destructive && verbs[words[i-1]] != verb{risk: Read}:
			return v, true
		}
	}
	switch {
	case lead.risk != "":
		return lead, true
	case noun.risk != "":
		return noun, true
	}
	return verb{risk: Unknown}, false
}

// filler are words that stand before the verb of a description.
var filler = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`a an the this that these tool tools api function command endpoint to use used be can
		will may for you your user users us it its allows allow lets let enables helps help with which is are mcp
		please easily quickly automatically`) {
		m[w] = true
	}
	return m
}()

// ofDescription reads the verb that a description begins with: "Lists all …", "Use this tool to create …".
func ofDescription(text string) Risk {
	if len(text) > 300 {
		text = text[:300]
	}
	for _, w := range split(text) {
		if filler[w] {
			continue
		}
		for _, stem := range stems(w) {
			if v, ok := verbs[stem]; ok {
				return v.risk
			}
		}
		return Unknown
	}
	return Unknown
}

// stems are the forms that a word may be of: lists → list, fetches → fetch, modifies → modify, creating → create.
func stems(w string) []string {
	out := []string{w}
	for _, form := range []struct{ end, with string }{{"s", ""}, {"es", ""}, {"ies", "y"}, {"ing", ""}, {"ing", "e"}} {
		if stem, ok := strings.CutSuffix(w, form.end); ok && len(stem) > 1 {
			out = append(out, stem+form.with)
		}
	}
	return out
}

// split takes an identifier or text apart into lower-case words: at anything but letters and digits, and at camelCase
// and HTTPServer bounds.
func split(name string) []string {
	var words []string
	var w []rune
	flush := func() {
		if len(w) > 0 {
			words = append(words, strings.ToLower(string(w)))
			w = w[:0]
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			continue
		case unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			flush()
		}
		w = append(w, r)
	}
	flush()
	return words
}
