package fake

// Era says which generations of the protocol a server speaks.
type Era string

const (
	Both   Era = ""       // both, as each request asks
	Legacy Era = "legacy" // the handshake: 2024-11-05 to 2025-11-25
	Modern Era = "modern" // without sessions: 2026-07-28
)

// Script is what a server offers and how it behaves. The zero Script is a correct server of both eras without anything
// to offer. Fields that hold JSON are strings, so that they pass to a child process byte for byte.
type Script struct {
	Name         string // in serverInfo; "fake" when empty
	Version      string // in serverInfo; "1.0.0" when empty
	Instructions string
	Era          Era
	Versions     []string // handshake versions spoken, best first; all four when empty
	// RefuseVersions answers an initialize that asks for another version with an error that lists Versions, instead of
	// offering the first of them.
	RefuseVersions bool
	Capabilities   string // JSON in place of the capabilities that follow from the rest
	TTLMs          int64  // ttlMs of lists (2026-07-28)

	Tools       []Tool
	ToolsFile   string // a file with a JSON array of Tool, read anew at each list and call, in place of Tools
	Many        int    // further tools tool_0001, tool_0002, …, each an echo_params
	Resources   []Resource
	Templates   []string            // entries of resources/templates/list
	Prompts     []string            // entries of prompts/list; prompts/get answers with the arguments it was given
	Completions map[string][]string // values by argument name

	PageSize    int    // of every list; 0: one page
	StuckCursor bool   // every page is the first one, and names the same next cursor
	EndCursor   string // JSON of nextCursor on the last page, e.g. `""` or `null`

	DelayMs map[string]int      // wait before answering, by method
	Silent  []string            // methods that are never answered
	Results map[string]string   // JSON results in place of the usual ones, by method
	Errors  map[string]string   // JSON error objects in place of results, by method
	Before  map[string][]string // raw lines sent just before the answer, by method
	Exit    *Exit

	RefuseSecondInitialize bool // also one that comes after a served server/discover
	IgnoreCancel           bool // notifications/cancelled is recorded, the call goes on and is answered late
	AskRoots               bool // sends roots/list at once after notifications/initialized
	ListChanged            *ListChanged

	StringIDs  bool // answers carry the id as a string
	Arrays     bool // answers are wrapped in an array
	NullErrors bool // answers carry `"error":null` beside the result

	Record string // a file that everything received is appended to; see ReadRecords
	Stdio  Stdio
	HTTP   HTTP
}

// Tool is one tool.
type Tool struct {
	Do      string // the built-in that carries out calls; see Builtins
	Raw     string // JSON entry of tools/list; the built-in's own when empty
	Result  string // JSON result of every call, in place of Do
	Error   string // JSON error object that answers every call, in place of Do
	DelayMs int    // wait before each call
	Hang    bool   // calls are never answered
	Late    bool   // listed only after notifications/initialized

	known string // its name
}

// Resource is one resource with its content.
type Resource struct {
	URI  string
	Raw  string // JSON entry of resources/list; one with uri and name when empty
	Text string
	Blob string // base64, in place of Text
}

// Exit ends the server. Over HTTP it breaks the connection that brought the request, and the server lives on.
type Exit struct {
	On      string // the method that sets it off; "" is the start
	Code    int
	AfterMs int // 0: in place of an answer; else the method is answered as usual and the exit comes later (stdio only)
}

// ListChanged sends notifications/tools/list_changed to each client: after notifications/initialized, or on its
// subscriptions/listen stream.
type ListChanged struct {
	AfterMs int // the first
	EveryMs int // between them; 0: all at once
	Times   int // 0: once
}

// Stdio is how the server behaves as a process, or on ServeStdio. What concerns the process itself (stderr, signals,
// grandchildren) has no effect in process.
type Stdio struct {
	Banner      []string // lines on stdout before anything is read
	Noise       string   // a line on stdout before each answer
	Stderr      string   // text on stderr at start
	StderrBytes int      // on stderr before each answer
	HalfLine    string   // the answer to this method is written by half, without a line end; nothing is written after it
	StopReading string   // stdin is not read any more after this method
	IgnoreEOF   bool     // goes on after the end of stdin
	IgnoreTerm  bool     // goes on after SIGTERM and SIGINT, and so does its grandchild
	// Grandchild starts a process that inherits stdout and stderr and lives on: "group" (in the same process group) or
	// "setsid" (in a session of its own). Its pid is recorded.
	Grandchild string
}

// HTTP is how the server behaves over HTTP and SSE.
type HTTP struct {
	NoSessions bool              // no Mcp-Session-Id
	Lost       *Answer           // to an unknown session; 404 when nil
	Get        string            // to GET: "" a stream, "405", "404", or "hang": accepts and never sends headers
	SSE        bool              // answers are event streams; else JSON until there is something to send before the result
	Redirect   *Redirect         // of every request
	Require    map[string]string // headers that must have these values, else 400
	// StrictVersion asks the negotiated MCP-Protocol-Version of each request after initialize, else 400.
	StrictVersion bool
	Bearer        string  // token that every request must carry, else 401 with Challenge
	Challenge     string  // WWW-Authenticate; `Bearer` when empty
	Faults        []Fault // the first that matches answers in place of the server
	Accepted      *Answer // to notifications and responses; 202 when nil
	Delete        *Answer // to DELETE; 200 when nil
	Endpoint      string  // what the legacy SSE stream names for messages; /messages beside the stream when empty
}

// Answer is an HTTP answer.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
}

// Fault is an HTTP answer to requests that are not carried out.
type Fault struct {
	Method string // JSON-RPC method, or GET or DELETE; "" any POST
	Skip   int    // let as many through before
	Times  int    // how often; 0 always
	Answer
}

// Redirect sends requests on to another path or URL. With the status of a redirect and To "loop" it never ends.
type Redirect struct {
	Status int
	To     string // requests to this path are served
}
