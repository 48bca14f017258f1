package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
	"github.com/mcpproxy/mcpproxy/proxy"
)

// firstListing bounds how long a command waits for servers that were never listed.
const firstListing = 60 * time.Second

// actionCommand makes a command of an action: its positional fields are arguments, the others flags.
func actionCommand(sh *shell, a proxy.Action) *cobra.Command {
	var flags []proxy.Field
	use := a.Command
	for _, f := range a.Fields {
		if !positional(a, f.Name) {
			flags = append(flags, f)
		}
	}
	least := 0
	for _, name := range a.Positional {
		f := field(a, name)
		word := strings.ToUpper(map[string]string{"argumentsJson": "arguments"}[f.Name])
		if word == "" {
			word = strings.ToUpper(f.Name)
		}
		if f.Required {
			least++
			use += " " + word
		} else {
			use += " [" + word + "]"
		}
	}
	if a.Name == "search_tools" { // a query is many words
		use += "…"
	}
	cmd := &cobra.Command{Use: use, Short: shortDoc(a), Long: a.Doc}
	if a.Name == "call_tool" {
		cmd.Example = `  mcpproxy call files read_text_file '{"path": "notes.txt"}'
  mcpproxy call files.list_allowed_directories`
	}
	if a.Name == "call_tool" || a.Name == "describe_tool" {
		least = 1 // SERVER.TOOL in one word does as well
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) < least || a.Name != "search_tools" && len(args) > len(a.Positional) {
			return &usageError{fmt.Errorf("usage: mcpproxy %s", use)}
		}
		return nil
	}
	for _, f := range flags {
		doc := f.Doc
		if f.Enum != nil {
			doc = strings.TrimSpace(doc + " (" + strings.Join(f.Enum, ", ") + ")")
		}
		switch f.Type {
		case "boolean":
			cmd.Flags().Bool(f.Name, false, doc)
		case "string[]":
			cmd.Flags().StringArray(f.Name, nil, doc)
		case "object": // given as argumentsJson
		case "integer":
			cmd.Flags().Int(f.Name, 0, doc)
		default:
			cmd.Flags().String(f.Name, "", doc)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return sh.act(cmd.Context(), a, input(cmd, a, flags, args))
	}
	return cmd
}

func positional(a proxy.Action, name string) bool {
	for _, p := range a.Positional {
		if p == name {
			return true
		}
	}
	return false
}

func field(a proxy.Action, name string) proxy.Field {
	for _, f := range a.Fields {
		if f.Name == name {
			return f
		}
	}
	return proxy.Field{Name: name}
}

// shortDoc is the first sentence of an action's text.
func shortDoc(a proxy.Action) string {
	s, _, _ := strings.Cut(a.Doc, ".")
	s, _, _ = strings.Cut(s, ":")
	return s
}

// input makes the action's input of the command line.
func input(cmd *cobra.Command, a proxy.Action, flags []proxy.Field, args []string) json.RawMessage {
	in := map[string]any{}
	switch {
	case a.Name == "search_tools":
		in["query"] = strings.Join(args, " ")
	case a.Name == "call_tool" && len(args) == 2 && strings.HasPrefix(strings.TrimSpace(args[1]), "{"):
		in["tool"], in["argumentsJson"] = args[0], args[1]
	case (a.Name == "call_tool" || a.Name == "describe_tool") && len(args) == 1:
		in["tool"] = args[0]
	default:
		for i, arg := range args {
			in[a.Positional[i]] = arg
		}
	}
	for _, f := range flags {
		if !cmd.Flags().Changed(f.Name) {
			continue
		}
		switch f.Type {
		case "boolean":
			in[f.Name], _ = cmd.Flags().GetBool(f.Name)
		case "string[]":
			in[f.Name], _ = cmd.Flags().GetStringArray(f.Name)
		case "integer":
			in[f.Name], _ = cmd.Flags().GetInt(f.Name)
		default:
			in[f.Name], _ = cmd.Flags().GetString(f.Name)
		}
	}
	raw, _ := json.Marshal(in) // strings, lists of strings, booleans: always encodes
	return raw
}

// act carries out one action in this process and prints its answer.
func (sh *shell) act(ctx context.Context, a proxy.Action, in json.RawMessage) error {
	g, log, err := sh.gateway(slog.LevelError)
	if err != nil {
		return err
	}
	if a.Name != "status" { // which shows them all
		for _, d := range g.Diagnostics() {
			if d.Severity == configs.Error && d.Server == "" { // those of a server are told where it is missed
				fmt.Fprintln(sh.stderr, "mcpproxy:", diagnostic(d))
			}
		}
	}
	if a.Name != "call_tool" { // a call reads what it needs by itself
		first, cancel := context.WithTimeout(ctx, firstListing)
		word := time.AfterFunc(time.Second, func() {
			fmt.Fprintln(sh.stderr, "mcpproxy: listing servers that were never seen; this is done once …")
		})
		g.DiscoverNow(first)
		word.Stop()
		cancel()
	}
	reply := g.Do(ctx, proxy.Ask{Action: a.Name, Input: in, Surface: "cli"})
	sh.print(a, reply)
	if err := closeGateway(g); err != nil {
		log.Warn("shutdown", "err", err)
	}
	if reply.Err != nil && reply.Err.Code == proxy.InvalidArguments {
		return exitCode(exitUsage)
	}
	if reply.IsError {
		return exitCode(exitFailed)
	}
	return nil
}

// print shows an answer: JSON where it is asked for, else words and tables.
func (sh *shell) print(a proxy.Action, r *proxy.Reply) {
	switch {
	case sh.json && r.Value != nil:
		fmt.Fprintf(sh.stdout, "%s\n", r.Value)
	case sh.json:
		fmt.Fprintf(sh.stdout, "%s\n", r.Result)
	case r.Err != nil:
		sh.printError(r.Err)
	case r.Value == nil:
		sh.printResult(r.Result)
	case printers[a.Name] != nil:
		printers[a.Name](sh, r.Value)
	default:
		fmt.Fprintf(sh.stdout, "%s\n", r.Value)
	}
}

func (sh *shell) printError(e *proxy.Error) {
	fmt.Fprintf(sh.stderr, "mcpproxy: %s: %s\n", e.Code, e.Message)
	for _, v := range e.Violations {
		at := v.Pointer
		if at == "" {
			at = "arguments"
		}
		fmt.Fprintf(sh.stderr, "  %s: %s\n", at, v.Message)
	}
	for _, line := range e.Stderr {
		fmt.Fprintf(sh.stderr, "  stderr: %s\n", line)
	}
	for _, line := range e.Stdout {
		fmt.Fprintf(sh.stderr, "  stdout: %s\n", line)
	}
	if e.Nearest != nil {
		fmt.Fprintf(sh.stderr, "  nearest: %s\n", strings.Join(e.Nearest, ", "))
	}
	for _, c := range e.Candidates {
		fmt.Fprintf(sh.stderr, "  candidate: %s %s\n", c.Server, c.Tool)
	}
	if e.Hint != "" {
		fmt.Fprintf(sh.stderr, "  next: %s\n", e.Hint)
	}
}

// printResult shows a tool's result: its text, and in a line each what is no text.
func (sh *shell) printResult(result json.RawMessage) {
	shown := 0
	_ = jsonrpc.Elements(jsonrpc.Member(result, "content"), func(b json.RawMessage) bool { // no content: nothing to show
		shown++
		switch kind := jsonrpc.Unquote(jsonrpc.Member(b, "type")); kind {
		case "text":
			fmt.Fprintln(sh.stdout, jsonrpc.Unquote(jsonrpc.Member(b, "text")))
		case "resource_link":
			fmt.Fprintf(sh.stdout, "[link %s]\n", jsonrpc.Unquote(jsonrpc.Member(b, "uri")))
		case "resource":
			if t := jsonrpc.Member(b, "resource", "text"); t != nil {
				fmt.Fprintln(sh.stdout, jsonrpc.Unquote(t))
				break
			}
			fmt.Fprintf(sh.stdout, "[resource %s, %d bytes]\n", jsonrpc.Unquote(jsonrpc.Member(b, "resource", "uri")), len(b))
		default:
			fmt.Fprintf(sh.stdout, "[%s %s, %s bytes]\n", kind, jsonrpc.Unquote(jsonrpc.Member(b, "mimeType")), strconv.Itoa(len(b)))
		}
		return true
	})
	if s := jsonrpc.Member(result, "structuredContent"); shown == 0 && s != nil {
		fmt.Fprintf(sh.stdout, "%s\n", s)
	}
}
