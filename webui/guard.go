package webui

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// guard refuses what does not come from this machine's own programs: a Host that is not ours (DNS rebinding) and an
// Origin that is not ours (a web page on another origin). It stands before everything, also before reading a body.
func guard(addr string) func(http.Handler) http.Handler {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = addr, ""
	}
	ours := func(hostport string) bool {
		h, p, err := net.SplitHostPort(hostport)
		if err != nil {
			h, p = strings.Trim(hostport, "[]"), "80"
		}
		return p == port && (strings.EqualFold(h, "localhost") || h == "127.0.0.1" || h == "::1" || h == host)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !ours(r.Host) {
				problem(w, http.StatusForbidden, "this server is not "+r.Host)
				return
			}
			for _, origin := range r.Header.Values("Origin") {
				if u, err := url.Parse(origin); err != nil || u.Scheme != "http" || !ours(u.Host) {
					problem(w, http.StatusForbidden, "requests from the origin "+origin+" are not taken")
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}
