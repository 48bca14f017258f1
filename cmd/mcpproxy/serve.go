package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/proxy"
	"github.com/mcpproxy/mcpproxy/webui"
)

// shutdownGrace bounds the polite end of everything: servers that do not end by themselves are killed then.
const shutdownGrace = 2500 * time.Millisecond

func stdioCommand(sh *shell) *cobra.Command {
	return &cobra.Command{Use: "stdio", Short: "Serve one agent over stdin and stdout", Args: noArgs,
		Long: "Serve one agent over stdin and stdout: the command that an MCP client launches. stdout carries nothing but JSON-RPC; the end of stdin ends everything.",
		RunE: func(cmd *cobra.Command, _ []string) error { return sh.serveStdio(cmd.Context()) }}
}

func (sh *shell) serveStdio(ctx context.Context) error {
	g, log, err := sh.gateway(slog.LevelInfo)
	if err != nil {
		return err
	}
	report(g, log)
	g.Discover()
	return errors.Join(g.ServeStdio(ctx, sh.stdin, sh.stdout), closeGateway(g))
}

func serveCommand(sh *shell) *cobra.Command {
	var listen string
	cmd := &cobra.Command{Use: "serve", Short: "Serve agents over Streamable HTTP", Args: noArgs,
		Long: "Serve any number of agents over Streamable HTTP, at http://HOST:PORT/mcp, until it is told to end.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			g, log, err := sh.gateway(slog.LevelInfo)
			if err != nil {
				return err
			}
			report(g, log)
			if listen == "" {
				listen = g.Config().Settings.Listen
			}
			g.Discover()
			return errors.Join(serveHTTP(cmd.Context(), g, listen, log), closeGateway(g))
		}}
	cmd.Flags().StringVar(&listen, "listen", "", "`HOST:PORT` to listen on; loopback only (default 127.0.0.1:6270)")
	return cmd
}

// serveHTTP serves a gateway until ctx ends.
func serveHTTP(ctx context.Context, g *proxy.Gateway, listen string, log *slog.Logger) error {
	if err := loopback(listen); err != nil {
		return &usageError{err}
	}
	if g.Config().Settings.RequireToken {
		return &usageError{errors.New("settings.requireToken is set, and this version can't ask for a token: remove it, or use stdio")}
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("%w (another mcpproxy may be serving there; choose another address with --listen)", err)
	}
	addr := l.Addr().String()
	srv := &http.Server{Handler: webui.Handler(g, addr), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	log.Info("serving", "mcp", "http://"+addr+"/mcp", "version", g.Version())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// Requests under way see their context end, and answer or break off; streams end.
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close() // what did not end by itself
	}
	<-served
	return nil
}

// loopback refuses an address that other machines reach.
func loopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w (give HOST:PORT, such as 127.0.0.1:6270)", listen, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("--listen %s would serve other machines: that needs --allow-remote and a token, which this version does not have; use 127.0.0.1", listen)
}

func closeGateway(g *proxy.Gateway) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownGrace)
	defer cancel()
	return g.Close(ctx)
}

// report logs what is wrong with the configuration, a line each.
func report(g *proxy.Gateway, log *slog.Logger) {
	for _, d := range g.Diagnostics() {
		level := map[configs.Severity]slog.Level{configs.Error: slog.LevelError, configs.Warning: slog.LevelWarn}[d.Severity]
		if d.Severity == configs.Note {
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, diagnostic(d))
	}
}
