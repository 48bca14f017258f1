package webui

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestGuard(t *testing.T) {
	tests := []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1:6270", "", 200},
		{"localhost:6270", "", 200},
		{"LOCALHOST:6270", "http://localhost:6270", 200},
		{"[::1]:6270", "http://127.0.0.1:6270", 200},
		{"evil.example:6270", "", 403},
		{"evil.example", "", 403},
		{"127.0.0.1:80", "", 403},
		{"127.0.0.1", "", 403},
		{"localhost:6270.evil.example", "", 403},
		{"127.0.0.1:6270", "http://evil.example", 403},
		{"127.0.0.1:6270", "https://127.0.0.1:6270", 403},
		{"127.0.0.1:6270", "http://127.0.0.1:3000", 403},
		{"127.0.0.1:6270", "null", 403},
		{"127.0.0.1:6270", "http://localhost:6270@evil.example", 403},
	}
	reached := 0
	h := guard("127.0.0.1:6270")(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	for _, path := range []string{"/mcp", "/", "/api/v1/servers"} {
		for _, tt := range tests {
			r := httptest.NewRequest("POST", path, nil)
			r.Host = tt.host
			if tt.origin != "" {
				r.Header.Set("Origin", tt.origin)
			}
			w := httptest.NewRecorder()
			before := reached
			h.ServeHTTP(w, r)
			if w.Code != tt.want || (reached > before) != (tt.want == 200) {
				t.Errorf("%s Host %s Origin %s: got %d, want %d", path, tt.host, tt.origin, w.Code, tt.want)
			}
		}
	}
}
