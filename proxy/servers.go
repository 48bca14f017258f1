package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/policy"
	"github.com/mcpproxy/mcpproxy/upstream"
)

// ServerSummary is one server as every surface shows it.
type ServerSummary struct {
	ID              string             `json:"id"`
	DisplayName     string             `json:"displayName"`
	Description     string             `json:"description,omitempty"`
	SourceScope     string             `json:"sourceScope"` // user, project, temporary
	SourceLabel     string             `json:"sourceLabel"` // file:line
	Enabled         bool               `json:"enabled"`
	ActiveInSession bool               `json:"activeInSession"`
	Transport       string             `json:"transport"` // stdio, streamable_http, sse
	Lifecycle       string             `json:"lifecycle"` // lazy, eager, keep_alive
	Status          string             `json:"status"`
	AuthState       string             `json:"authState"` // none, required, pending, authenticated, failed
	ProtocolVersion string             `json:"protocolVersion,omitempty"`
	ToolCounts      ToolCounts         `json:"toolCounts"`
	ResourceCount   int                `json:"resourceCount"`
	PromptCount     int                `json:"promptCount"`
	RecentCalls     []CallInfo         `json:"recentCalls"`
	LastError       string             `json:"lastError,omitempty"`
	LastErrorStage  string             `json:"lastErrorStage,omitempty"`
	Next            string             `json:"next,omitempty"` // what to do about the last error
	RetryAt         *time.Time         `json:"retryAt,omitempty"`
	StderrTail      []string           `json:"stderrTail,omitempty"`
	StdoutNoise     int                `json:"stdoutNoise,omitempty"` // lines that were no messages
	LastConnectedAt *time.Time         `json:"lastConnectedAt,omitempty"`
	ListedAt        *time.Time         `json:"listedAt,omitempty"`
	Stale           bool               `json:"stale,omitempty"`
	Warnings        []string           `json:"warnings,omitempty"` // of its last listing
	Capabilities    ServerCapabilities `json:"capabilities"`
}

// ToolCounts counts what is in the catalog, what of it the live connection offers, and what policy lets through.
type ToolCounts struct {
	Cached  int  `json:"cached"`
	Live    *int `json:"live,omitempty"`
	Enabled int  `json:"enabled"`
}

// ServerCapabilities are the actions that can be taken on a server.
type ServerCapabilities struct {
	CanEnable         bool `json:"canEnable"`
	CanConnect        bool `json:"canConnect"`
	CanDisconnect     bool `json:"canDisconnect"`
	CanRefresh        bool `json:"canRefresh"`
	CanAuthenticate   bool `json:"canAuthenticate"`
	CanPersistChanges bool `json:"canPersistChanges"`
}

// DiagnosticInfo is one problem of the configuration.
type DiagnosticInfo struct {
	Severity string `json:"severity"`
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
	Server   string `json:"server,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
}

type serverList struct {
	Action  string          `json:"action"`
	Servers []ServerSummary `json:"servers"`
}

type statusAnswer struct {
	Action      string           `json:"action"`
	Summary     string           `json:"summary"`
	Version     string           `json:"version"`
	Servers     []ServerSummary  `json:"servers"`
	Diagnostics []DiagnosticInfo `json:"diagnostics"`
}

type statusInput struct {
	Server string `json:"server" doc:"Only this server"`
}

func (g *Gateway) status(_ context.Context, rq *request, in statusInput) (any, error) {
	a := statusAnswer{Action: "status", Version: g.version, Servers: g.summaries(rq.view), Diagnostics: diagnostics(rq.view)}
	a.Summary = summaryLine(a.Servers)
	if in.Server == "" {
		return a, nil
	}
	i := slices.IndexFunc(a.Servers, func(s ServerSummary) bool { return s.ID == in.Server || s.DisplayName == in.Server })
	if i < 0 {
		if _, err := g.server(rq, in.Server); err != nil {
			return nil, err
		}
		return a, nil // the built-in server: the whole
	}
	a.Servers = a.Servers[i : i+1]
	a.Diagnostics = slices.DeleteFunc(a.Diagnostics, func(d DiagnosticInfo) bool { return d.Server != a.Servers[0].ID })
	return a, nil
}

type noInput struct{}

func (g *Gateway) listServers(_ context.Context, rq *request, _ noInput) (any, error) {
	return serverList{Action: "list_servers", Servers: g.summaries(rq.view)}, nil
}

// summaryLine is the state of everything in one line.
func summaryLine(servers []ServerSummary) string {
	var connected, auth, errs int
	for _, s := range servers {
		switch upstream.Status(s.Status) {
		case upstream.Connected, upstream.Ready:
			connected++
		case upstream.NeedsAuth, upstream.Authenticating:
			auth++
		case upstream.Errored:
			errs++
		}
	}
	line := fmt.Sprintf("MCP %d configured / %d connected", len(servers), connected)
	if auth > 0 {
		line += fmt.Sprintf(" / %d auth", auth)
	}
	if errs > 0 {
		line += fmt.Sprintf(" / %d error", errs)
	}
	return line
}

func diagnostics(v *view) []DiagnosticInfo {
	out := []DiagnosticInfo{}
	for _, d := range v.diagnostics() {
		out = append(out, DiagnosticInfo{Severity: string(d.Severity), Message: v.policy.Text(d.Message), Hint: d.Hint, Server: d.Server,
			File: d.Origin.File, Line: d.Origin.Line, Column: d.Origin.Column})
	}
	return out
}

func (g *Gateway) summaries(v *view) []ServerSummary {
	out := make([]ServerSummary, 0, len(v.config.Servers))
	for _, s := range v.config.Servers {
		out = append(out, g.summary(v, s))
	}
	return out
}

func (g *Gateway) summary(v *view, s *configs.Server) ServerSummary {
	sum := ServerSummary{ID: s.ID, DisplayName: s.Name, Description: s.Description, SourceScope: string(s.Scope),
		SourceLabel: fmt.Sprintf("%s:%d", s.Origin.File, s.Origin.Line), Enabled: s.Enabled, ActiveInSession: s.Enabled && s.Err == nil,
		Transport: strings.ReplaceAll(string(s.Transport), "-", "_"), Lifecycle: strings.ReplaceAll(string(s.Lifecycle), "-", "_"),
		AuthState: "none", Status: string(upstream.Cold), RecentCalls: g.journal.Recent(s.ID, 5)}
	for _, it := range g.catalog.Items(s.ID, index.Tool) {
		sum.ToolCounts.Cached++
		if v.policy.Visible(it.Ref) {
			sum.ToolCounts.Enabled++
		}
	}
	sum.ResourceCount = len(g.catalog.Items(s.ID, index.Resource)) + len(g.catalog.Items(s.ID, index.Template))
	sum.PromptCount = len(g.catalog.Items(s.ID, index.Prompt))
	if l, ok := g.catalog.Listing(s.ID); ok {
		sum.ListedAt, sum.Warnings = &l.Fetched, l.Warnings
		sum.Stale = g.stale(&request{view: v}, s.ID)
	}
	switch {
	case !s.Enabled:
		sum.Status = string(upstream.Disabled)
		sum.Capabilities.CanEnable = true
	case s.Err != nil:
		sum.Status, sum.LastErrorStage = string(upstream.Errored), string(upstream.Resolve)
		sum.LastError, sum.Next = v.policy.Text(s.Err.Message), s.Err.Hint
	default:
		if srv, ok := g.pool.Server(s.ID); ok {
			sum.live(srv.State())
		}
	}
	return sum
}

// live adds what the running server tells.
func (sum *ServerSummary) live(st upstream.State) {
	sum.Status, sum.ProtocolVersion = string(st.Status), st.ProtocolVersion
	sum.StderrTail, sum.StdoutNoise = st.Stderr, st.Noise
	up := st.Status == upstream.Ready || st.Status == upstream.Connected
	if st.Status == upstream.Ready {
		sum.ToolCounts.Live = new(sum.ToolCounts.Cached)
	}
	if !st.LastConnected.IsZero() {
		sum.LastConnectedAt = &st.LastConnected
	}
	if !st.NextTry.IsZero() {
		sum.RetryAt = &st.NextTry
	}
	if f := st.Failure; f != nil {
		sum.LastError, sum.LastErrorStage, sum.Next = f.Error(), string(f.Stage), f.Hint
		if f.NeedsAuth {
			sum.AuthState = "required"
		}
		if len(sum.StderrTail) == 0 {
			sum.StderrTail = f.Stderr
		}
	}
	sum.Capabilities = ServerCapabilities{CanConnect: !up, CanDisconnect: up, CanRefresh: true}
}

type toolList struct {
	Action     string     `json:"action"`
	Tools      []toolLine `json:"tools"`
	Total      int        `json:"total"`
	Missing    []missing  `json:"missing,omitempty"` // servers whose tools are not known
	NextCursor string     `json:"nextCursor,omitempty"`
}

type toolLine struct {
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Summary string `json:"summary"`
	Risk    string `json:"risk"`
}

type listInput struct {
	Server string `json:"server" doc:"Only this server"`
	Limit  int    `json:"limit" range:"1,1000" doc:"Default 100"`
	Cursor string `json:"cursor" doc:"nextCursor of the answer before"`
}

func (g *Gateway) listTools(_ context.Context, rq *request, in listInput) (any, error) {
	if in.Server != "" {
		s, err := g.server(rq, in.Server)
		if err != nil {
			return nil, err
		}
		in.Server = s.ID
	}
	offset := 0
	if in.Cursor != "" {
		if _, err := fmt.Sscanf(in.Cursor, "%d", &offset); err != nil || offset < 0 {
			return nil, invalid("%q is no cursor; give the nextCursor of the answer before, or none", cutBytes(in.Cursor, 40))
		}
	}
	if in.Limit == 0 {
		in.Limit = 100
	}
	a := toolList{Action: "list_tools", Tools: []toolLine{}, Missing: g.coverage(rq, in.Server).Missing}
	if in.Server == policy.Builtin {
		a.Missing = nil
	}
	for _, it := range g.catalog.Items(in.Server, index.Tool) {
		if !rq.policy.Visible(it.Ref) || in.Server == "" && it.Server == policy.Builtin {
			continue
		}
		if a.Total++; a.Total > offset && len(a.Tools) < in.Limit {
			a.Tools = append(a.Tools, toolLine{it.Server, it.Name, plain(it.Description, 120), string(policy.Assess(it).Risk)})
		}
	}
	if end := offset + len(a.Tools); end < a.Total {
		a.NextCursor = fmt.Sprint(end)
	}
	return a, nil
}

type serverInput struct {
	Server string `json:"server" required:"1"`
}

func (in serverInput) running(g *Gateway, rq *request) (*upstream.Server, error) {
	if in.Server == "" {
		return nil, invalid("which server? give server as list_servers shows it")
	}
	s, err := g.server(rq, in.Server)
	if err != nil {
		return nil, err
	}
	srv, ok := g.pool.Server(s.ID)
	if !ok {
		return nil, &Error{Code: Unsupported, Server: s.ID, Message: fmt.Sprintf("%q is no server that can be connected", s.ID), Hint: "list_servers shows those that can"}
	}
	return srv, nil
}

func (g *Gateway) connect(ctx context.Context, rq *request, in serverInput) (any, error) {
	return g.refreshOne(ctx, rq, "connect", in)
}

func (g *Gateway) refreshOne(ctx context.Context, rq *request, name string, in serverInput) (any, error) {
	srv, err := in.running(g, rq)
	if err != nil {
		return nil, err
	}
	if err := srv.Refresh(ctx); err != nil {
		return nil, err
	}
	return serverList{Action: name, Servers: []ServerSummary{g.summary(rq.view, srv.Config())}}, nil
}

func (g *Gateway) disconnect(ctx context.Context, rq *request, in serverInput) (any, error) {
	srv, err := in.running(g, rq)
	if err != nil {
		return nil, err
	}
	if err := srv.Disconnect(ctx); err != nil {
		return nil, err
	}
	return serverList{Action: "disconnect", Servers: []ServerSummary{g.summary(rq.view, srv.Config())}}, nil
}

type refreshInput struct {
	Server string `json:"server" doc:"Only this server; default all"`
}

// refresh reads one server anew, or all of them side by side; with all, a server's failure stands in its summary.
func (g *Gateway) refresh(ctx context.Context, rq *request, in refreshInput) (any, error) {
	if in.Server != "" {
		return g.refreshOne(ctx, rq, "refresh", serverInput(in))
	}
	g.pool.RefreshAll(ctx)
	return serverList{Action: "refresh", Servers: g.summaries(rq.view)}, nil
}

func (g *Gateway) readCache(_ context.Context, rq *request, in cacheQuery) (any, error) {
	page, err := g.outputs.read(in, func(o outputOwner) bool {
		return rq.policy.Visible(index.Ref{Server: o.Server, Kind: index.Tool, Name: o.Tool})
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}
