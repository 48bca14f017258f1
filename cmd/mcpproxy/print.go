package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/mcpproxy/mcpproxy/configs"
)

// printers show the gateway's own answers to people, by action.
var printers = map[string]func(*shell, json.RawMessage){
	"search_tools":  (*shell).printMatches,
	"describe_tool": (*shell).printTool,
	"status":        (*shell).printStatus,
	"list_tools":    (*shell).printTools,
}

// coloured tells whether stdout is a terminal that wants colour.
func (sh *shell) coloured() bool {
	f, ok := sh.stdout.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
}

func (sh *shell) paint(code, s string) string {
	if !sh.coloured() {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (sh *shell) table(rows func(w *tabwriter.Writer)) {
	w := tabwriter.NewWriter(sh.stdout, 0, 4, 2, ' ', 0)
	rows(w)
	_ = w.Flush() // stdout is gone: nobody reads
}

// decoded reads an answer that this program itself has written.
func decoded[T any](raw json.RawMessage) T {
	var v T
	_ = json.Unmarshal(raw, &v)
	return v
}

type coverageView struct {
	Missing []struct{ Server, Why, Next string }
}

func (sh *shell) printMissing(c coverageView) {
	for _, m := range c.Missing {
		fmt.Fprintf(sh.stderr, "not known: %s: %s (%s)\n", m.Server, m.Why, m.Next)
	}
}

func (sh *shell) printMatches(raw json.RawMessage) {
	a := decoded[struct {
		Matches []struct {
			Server, Tool, Summary, Risk, Args, State string
			Stale                                    bool
		}
		Coverage coverageView
		Next     string
	}](raw)
	for _, m := range a.Matches {
		fmt.Fprintf(sh.stdout, "%s %s  %s", m.Server, sh.paint("1", m.Tool), sh.paint("2", m.Risk))
		if m.State != "" {
			fmt.Fprintf(sh.stdout, "  %s", sh.paint("31", m.State))
		}
		if m.Stale {
			fmt.Fprintf(sh.stdout, "  %s", sh.paint("33", "stale"))
		}
		fmt.Fprintf(sh.stdout, "\n    %s\n    %s\n", m.Summary, sh.paint("2", m.Args))
	}
	if len(a.Matches) == 0 {
		fmt.Fprintln(sh.stdout, "No tool fits. Try other words, or list what there is: mcpproxy list")
	}
	sh.printMissing(a.Coverage)
}

func (sh *shell) printTool(raw json.RawMessage) {
	d := decoded[struct {
		Server, Tool, Description, Risk, MetadataHash, Freshness, Elided string
		InputSchema                                                      json.RawMessage
	}](raw)
	fmt.Fprintf(sh.stdout, "%s %s  %s, %s\n%s\n\n%s\n\n%s\n", d.Server, sh.paint("1", d.Tool), d.Risk, d.Freshness, sh.paint("2", d.MetadataHash),
		d.Description, indented(d.InputSchema))
	if d.Elided != "" {
		fmt.Fprintln(sh.stdout, d.Elided)
	}
}

func indented(raw json.RawMessage) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if e.Encode(raw) != nil {
		return string(raw)
	}
	return strings.TrimSpace(b.String())
}

func (sh *shell) printTools(raw json.RawMessage) {
	a := decoded[struct {
		Tools []struct{ Server, Tool, Risk, Summary string }
		coverageView
		Total int
	}](raw)
	sh.table(func(w *tabwriter.Writer) {
		for _, t := range a.Tools {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Server, t.Tool, t.Risk, t.Summary)
		}
	})
	if len(a.Tools) < a.Total {
		fmt.Fprintf(sh.stderr, "%d of %d tools; see more with --limit or --cursor %d\n", len(a.Tools), a.Total, len(a.Tools))
	}
	sh.printMissing(a.coverageView)
}

func (sh *shell) printStatus(raw json.RawMessage) {
	a := decoded[struct {
		Summary string
		Servers []struct {
			ID, Status, Transport, SourceLabel, LastError, LastErrorStage, Next string
			ToolCounts                                                          struct{ Cached, Enabled int }
			StderrTail                                                          []string
			Stale                                                               bool
		}
		Diagnostics []struct {
			Severity, Message, Hint, Server, File string
			Line, Column                          int
		}
	}](raw)
	fmt.Fprintln(sh.stdout, a.Summary)
	sh.table(func(w *tabwriter.Writer) {
		for _, s := range a.Servers {
			tools := fmt.Sprintf("%d tools", s.ToolCounts.Enabled)
			if s.ToolCounts.Enabled < s.ToolCounts.Cached {
				tools = fmt.Sprintf("%d of %d tools", s.ToolCounts.Enabled, s.ToolCounts.Cached)
			}
			if s.Stale {
				tools += ", stale"
			}
			state := s.Status
			if state == "cold" {
				state = "cold (starts when used)"
			}
			if s.ToolCounts.Cached == 0 && s.LastError != "" {
				tools = "tools unknown"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", s.ID, state, s.Transport, tools, s.SourceLabel)
		}
	})
	told := map[string]bool{}
	for _, s := range a.Servers {
		if s.LastError == "" {
			continue
		}
		told[s.ID] = true
		fmt.Fprintf(sh.stdout, "\n%s (%s): %s\n", sh.paint("31", s.ID), s.Transport, s.LastError)
		for _, line := range s.StderrTail {
			fmt.Fprintf(sh.stdout, "    stderr: %s\n", line)
		}
		if s.Next != "" {
			fmt.Fprintf(sh.stdout, "    next: %s\n", s.Next)
		}
	}
	for _, d := range a.Diagnostics {
		if told[d.Server] && d.Severity == "error" {
			continue
		}
		at := configs.Origin{File: d.File, Line: d.Line, Column: d.Column}
		line := diagnostic(configs.Diagnostic{Message: d.Message, Server: d.Server, Origin: at})
		fmt.Fprintf(sh.stdout, "\n%s: %s\n", d.Severity, line)
		if d.Hint != "" {
			fmt.Fprintf(sh.stdout, "    next: %s\n", d.Hint)
		}
	}
	if len(a.Servers) == 0 && len(a.Diagnostics) == 0 {
		fmt.Fprintln(sh.stdout, "No server is configured. Try `mcpproxy demo`, or put your servers into ~/.config/mcpproxy/mcp.json (the format of .mcp.json).")
	}
}
