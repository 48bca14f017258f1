// Package webui is everything over HTTP: the guard in front of it, the routes, and the MCP endpoint mounted on them.
// It has no logic of actions: it asks the gateway.
package webui

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/go-chi/chi/v5"

	"github.com/mcpproxy/mcpproxy/proxy"
)

// Handler serves a gateway on the address that it listens on (host:port).
func Handler(g *proxy.Gateway, addr string) http.Handler {
	r := chi.NewRouter()
	r.Use(recovered, guard(addr))
	endpoint := proxy.NewEndpoint(g)
	for _, path := range []string{"/mcp", "/mcp/", "/mcp/proxy"} { // both spellings, no redirect: some clients lose the body on one
		r.Handle(path, endpoint)
	}
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "nothing is served at "+r.URL.Path+"; MCP is at /mcp")
	})
	return r
}

// recovered answers 500 for a request whose handling panics; the others never notice.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler:
				panic(p) // net/http's own way to break off
			default:
				slog.Error("a request panicked", "path", r.URL.Path, "err", p, "stack", string(debug.Stack()))
				problem(w, http.StatusInternalServerError, "this is a mistake in mcpproxy; its log has the details")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// problem answers with an error for programs and people (RFC 9457).
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "title": http.StatusText(status), "detail": detail})
}
