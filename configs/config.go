// Package configs knows what the user configured: it reads the files, merges them and checks them, and answers with one
// immutable value that knows where each part came from and what is wrong with it.
//
// It never connects to anything and decides nothing about calls.
package configs

import "time"

// Transport is how a server is reached.
type Transport string

const (
	Stdio          Transport = "stdio"
	StreamableHTTP Transport = "streamable-http"
	SSE            Transport = "sse"
)

// Lifecycle is when a server is connected.
type Lifecycle string

const (
	Lazy      Lifecycle = "lazy"       // at the first call; the default
	Eager     Lifecycle = "eager"      // at start
	KeepAlive Lifecycle = "keep-alive" // at start, never idled out, reconnected
)

// Scope is whose file a value came from.
type Scope string

const (
	User      Scope = "user"
	Project   Scope = "project"
	Temporary Scope = "temporary" // --config
)

// Config is one effective configuration. It is immutable: whoever holds it may read all of it from any goroutine.
type Config struct {
	Settings    Settings
	Servers     []*Server // sorted by ID
	Files       []File    // all that were looked for, lowest precedence first
	Diagnostics []Diagnostic
	Hash        string // "sha256:…" of the effective values, secrets included; equal means nothing changed
	tree        *node  // what Explain walks
}

// Server is the server of that id, nil when there is none.
func (c *Config) Server(id string) *Server {
	for _, s := range c.Servers {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Settings are the defaults of all servers and the behaviour of the proxy itself (DESIGN 3 and 12).
type Settings struct {
	Enabled             bool   // default true
	Mode                string // proxy (default), single, direct
	Discovery           string // background (default), explicit
	Resources           string // explicit (default), off
	Prompts             string // user-preview (default), model, off
	DirectTools         any    // false (default), true, or []string
	DefaultProjectTrust string // ask (default), never, always
	RequireToken        bool   //
	Listen              string // default 127.0.0.1:6270
	SearchWarmup        bool   // a search may start what it finds; default false
	Limits              Limits // defaults of every server
	SessionIdleTimeout  time.Duration
	OutputTTL           time.Duration // default 7 days
}

// Limits are the bounds that a server can override.
type Limits struct {
	ConnectTimeout   time.Duration // 15 s; 60 s for a stdio server that was never seen (npx, uvx download)
	DiscoveryTimeout time.Duration // 10 s, one listing
	CallTimeout      time.Duration // 10 min; progress extends it
	MaxCallTimeout   time.Duration // 1 h; progress does not extend this
	IdleTimeout      time.Duration // 10 min
	MetadataRefresh  time.Duration // age at which cached metadata counts as stale; default 24 h
	MaxOutputBytes   int           // 51,200
	MaxOutputLines   int           // 2,000
	ConnectSet       bool          // ConnectTimeout was configured, so it holds for a first start too
}

// Server is one upstream server as configured, expanded and checked.
type Server struct {
	ID          string // normalised, stable: letters of any script, digits, "-", "_", "."
	Name        string // the key as written in the file
	Description string // the user's own words; may be shown to the model
	Enabled     bool
	Transport   Transport
	Fallback    bool // transport was not named: Streamable HTTP first, SSE when that is refused, as the spec has it
	Lifecycle   Lifecycle

	Command      string // stdio: program, absolute or to be found on PATH
	Args         []string
	Dir          string            // working directory, absolute; "" the proxy's own
	Env          map[string]string // explicit entries
	EnvAllowlist []string          // names passed on from the proxy's environment

	URL     string
	Headers map[string]string
	Auth    Auth

	IncludeTools []string // exact or glob; empty includes all
	ExcludeTools []string // exact or glob; wins over IncludeTools
	DirectTools  any      // nil: settings'; bool or []string
	Pin          bool
	Allow        []string // of sampling, elicitation, roots
	Share        string   // machine (default), session
	Overrides    map[string]any
	Limits       Limits // effective: settings' with the server's own over them

	Scope   Scope
	Origin  Origin            // where the entry stands
	Origins map[string]Origin // JSON pointer below the entry ("/command", "/env/TOKEN") → where it stands
	Err     *Diagnostic       // not nil: the server can't run, and why (unset variable, bad entry); it is listed as error
	Hash    string            // "sha256:…" of what its connection depends on: not filters, pins or call timeouts

	Secrets []string // values that must not be shown: env, headers, auth, resolved references
}

// Auth is how a remote server is signed in to.
type Auth struct {
	Type                    string // none (default), bearer, env, oauth
	Token                   string // bearer
	Flow, Scope             string
	ClientID, ClientSecret  string
	ClientMetadataURL       string
	ResourceMetadataURL     string
	TokenEndpointAuthMethod string
	CallbackPort            int
}

// Origin is a place in a file; lines and columns start at 1, 0 is unknown.
type Origin struct {
	File         string
	Line, Column int
}

// File is one configuration file that was looked for.
type File struct {
	Path  string
	Scope Scope
	State FileState
	Hash  string // "sha256:…" of its content as read, "" when there was nothing to read
}

// FileState is what became of a file.
type FileState string

const (
	Loaded     FileState = "loaded"
	Absent     FileState = "absent"
	Unreadable FileState = "unreadable" // exists, but can't be read or parsed
	Untrusted  FileState = "untrusted"  // a project file without trust: not read for servers
)

// Severity of a diagnostic.
type Severity string

const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// Diagnostic is one problem: what, where, and what to do.
type Diagnostic struct {
	Severity Severity
	Message  string
	Hint     string // what to do next
	Server   string // id, "" when it is about no server
	Path     string // JSON pointer in the file, "" when it is about the file
	Origin   Origin
}
