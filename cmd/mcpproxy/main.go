// Command mcpproxy is the process: commands, wiring, shutdown order.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/proxy"
	"github.com/mcpproxy/mcpproxy/upstream"
)

// version is set by the release build (-ldflags "-X main.version=…").
var version = "dev"

// Exit codes.
const (
	exitFailed = 1 // the action failed, or the tool said that it did
	exitUsage  = 2 // wrong flags, arguments or configuration file
)

func main() {
	upstream.WatchOrphans() // returns at once, unless this process is the watcher over our children
	debug.SetGCPercent(50)  // a proxy idles most of its life: less memory is worth a little more collecting
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program, but for its process.
func run(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	ctx, stop := signalContext()
	defer stop()
	root := rootCommand(&shell{stdin: stdin, stdout: stdout, stderr: stderr})
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, "mcpproxy:", err)
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// exitCode ends the program without a further word.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// usageError is a command line or configuration that can't be carried out.
type usageError struct{ error }

// signalContext ends at the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at once.
func signalContext() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() { // lives as long as the process
		if _, ok := <-ch; ok {
			cancel()
		}
		if _, ok := <-ch; ok {
			os.Exit(130)
		}
	}()
	return ctx, func() { signal.Stop(ch); cancel() }
}

// shell is where the program runs, and the flags that all commands share.
type shell struct {
	stdin          *os.File
	stdout, stderr io.Writer

	config, dataDir, project string
	approve, json, verbose   bool
}

func rootCommand(sh *shell) *cobra.Command {
	root := &cobra.Command{
		Use:   "mcpproxy",
		Short: "One door to all your MCP servers",
		Long: `mcpproxy stands between an AI agent and all its MCP servers. The agent sees three small tools
(search_tools, describe_tool, call_tool) instead of hundreds of schemas.

Start with:  mcpproxy demo      the whole job in a minute, no configuration needed
             mcpproxy status    what is configured here, and how it is doing`,
		Version: version, SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return &usageError{fmt.Errorf("there is no command %q (see mcpproxy --help)", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if term.IsTerminal(int(sh.stdin.Fd())) {
				return cmd.Help()
			}
			return sh.serveStdio(cmd.Context()) // launched by a client that gave no arguments
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&sh.config, "config", "", "use this configuration `file` alone")
	f.StringVar(&sh.dataDir, "data-dir", "", "keep catalog and outputs in this `directory` (default $MCPPROXY_DATA_DIR, else the user's state directory)")
	f.StringVar(&sh.project, "project", "", "project `directory` whose .mcp.json is looked at (default the working directory)")
	f.BoolVar(&sh.approve, "approve", false, "trust the project's configuration files for this run")
	f.BoolVar(&sh.json, "json", false, "print JSON")
	f.BoolVarP(&sh.verbose, "verbose", "v", false, "log more to stderr")

	root.AddCommand(stdioCommand(sh), serveCommand(sh), demoCommand(), demoServerCommand(), versionCommand(sh))
	for _, a := range proxy.Actions() {
		if a.Command != "" {
			root.AddCommand(actionCommand(sh, a))
		}
	}
	return root
}

// noArgs refuses arguments of a command that takes none.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &usageError{fmt.Errorf("mcpproxy %s takes no arguments, got %q", cmd.Name(), args[0])}
	}
	return nil
}

func versionCommand(sh *shell) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		if sh.json {
			fmt.Fprintf(sh.stdout, "{\"version\":%q}\n", version)
		} else {
			fmt.Fprintln(sh.stdout, "mcpproxy", version)
		}
		return nil
	}}
}

// load reads the configuration; a --config file that can't be read ends the program, anything less is reported and lived with.
func (sh *shell) load() (*configs.Config, error) {
	if info, err := os.Stat(sh.project); sh.project != "" && (err != nil || !info.IsDir()) {
		return nil, &usageError{fmt.Errorf("--project %s: there is no such directory", sh.project)}
	}
	c := configs.Load(configs.Options{File: sh.config, Project: sh.project, Approve: sh.approve})
	if sh.config != "" {
		for _, f := range c.Files {
			if f.State != configs.Loaded {
				for _, d := range c.Diagnostics {
					if d.Severity == configs.Error {
						return nil, &usageError{errors.New(diagnostic(d))}
					}
				}
				return nil, &usageError{fmt.Errorf("%s: %s", f.Path, f.State)}
			}
		}
	}
	return c, nil
}

// diagnostic is a problem of the configuration in one line.
func diagnostic(d configs.Diagnostic) string {
	s := d.Message
	if d.Server != "" {
		s = fmt.Sprintf("server %q: %s", d.Server, s)
	}
	switch {
	case d.Origin.Line > 0:
		s = fmt.Sprintf("%s:%d:%d: %s", d.Origin.File, d.Origin.Line, d.Origin.Column, s)
	case d.Origin.File != "" && !strings.Contains(s, d.Origin.File):
		s = d.Origin.File + ": " + s
	}
	if d.Hint != "" {
		s += " (" + d.Hint + ")"
	}
	return s
}

// gateway opens the gateway of the shell's configuration; what is less than level is logged only with --verbose.
func (sh *shell) gateway(level slog.Level) (*proxy.Gateway, *slog.Logger, error) {
	c, err := sh.load()
	if err != nil {
		return nil, nil, err
	}
	if sh.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(sh.stderr, &slog.HandlerOptions{Level: level}))
	g, err := proxy.New(proxy.Options{Config: c, DataDir: configs.DataDir(sh.dataDir, nil), Log: log, Version: version})
	return g, log, err
}
