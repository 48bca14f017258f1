package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	modernVersion = "2026-07-28"
	metaVersion   = "io.modelcontextprotocol/protocolVersion"
	metaClient    = "io.modelcontextprotocol/clientCapabilities"
	metaServer    = "io.modelcontextprotocol/serverInfo"
	metaLogLevel  = "io.modelcontextprotocol/logLevel"
	metaSub       = "io.modelcontextprotocol/subscriptionId"
)

var handshakeVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// ExitError is an Exit of the script, or the tool exit.
type ExitError struct{ Code int }

func (e *ExitError) Error() string { return fmt.Sprintf("the script exits with code %d", e.Code) }

// outlet is where messages of one request go, in order: progress, logs, questions.
type outlet struct {
	say   func(msg []byte)              // one message
	spill func(context.Context, []byte) // the same bytes over and over, until nobody takes them any more
}

// call is one request on its way.
type call struct {
	ctx    context.Context
	link   *link
	m      jsonrpc.Message
	modern bool
	header http.Header // nil on stdio
	out    outlet
}

func (c *call) notify(method, params string) { c.out.say(notification(method, params)) }

// wait tells whether the time passed before the request was cancelled.
func (c *call) wait(ms int) error {
	if ms <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// method is how one method is answered.
type method struct {
	run     func(*Server, *call) (string, error)
	era     Era                // Both, or the one that has it
	offered func(*Server) bool // nil: always
	cached  bool               // the result has ttlMs and cacheScope in 2026-07-28
}

var methods = map[string]method{
	"initialize":               {run: (*Server).initialize, era: Legacy},
	"ping":                     {run: empty, era: Legacy},
	"logging/setLevel":         {run: empty, era: Legacy},
	"resources/subscribe":      {run: empty, era: Legacy, offered: hasResources},
	"resources/unsubscribe":    {run: empty, era: Legacy, offered: hasResources},
	"server/discover":          {run: (*Server).discover, era: Modern, cached: true},
	"subscriptions/listen":     {run: (*Server).listen, era: Modern},
	"tools/list":               {run: (*Server).listTools, offered: hasTools, cached: true},
	"tools/call":               {run: (*Server).callTool, offered: hasTools},
	"resources/list":           {run: (*Server).listResources, offered: hasResources, cached: true},
	"resources/templates/list": {run: (*Server).listTemplates, offered: hasResources, cached: true},
	"resources/read":           {run: (*Server).readResource, offered: hasResources, cached: true},
	"prompts/list":             {run: (*Server).listPrompts, offered: hasPrompts, cached: true},
	"prompts/get":              {run: (*Server).getPrompt, offered: hasPrompts},
	"completion/complete":      {run: (*Server).complete, offered: hasCompletions},
}

func empty(*Server, *call) (string, error) { return "{}", nil }

func hasTools(s *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tools) > 0 || s.script.ToolsFile != ""
}
func hasResources(s *Server) bool   { return len(s.script.Resources)+len(s.script.Templates) > 0 }
func hasPrompts(s *Server) bool     { return len(s.script.Prompts) > 0 }
func hasCompletions(s *Server) bool { return s.script.Completions != nil }

// isModern tells whether a message belongs to 2026-07-28, as far as this server knows it.
func (s *Server) isModern(m jsonrpc.Message) bool {
	return s.script.Era != Legacy && jsonrpc.Unquote(jsonrpc.Member(m.Params, "_meta", metaVersion)) >= modernVersion
}

// answer is the response to one request, as it goes on the wire; nil for silence. Its only error is *ExitError.
func (s *Server) answer(c *call) ([]byte, error) {
	result, err := s.scripted(c)
	var exit *ExitError
	var refused *jsonrpc.Error
	switch {
	case errors.As(err, &exit):
		return nil, exit
	case errors.As(err, &refused):
		return s.dress(jsonrpc.AppendError(nil, s.id(c.m.ID), refused)), nil
	case err != nil: // cancelled, or the client is gone
		return nil, nil
	}
	return s.dress(jsonrpc.AppendResult(nil, s.id(c.m.ID), raw(result))), nil
}

func (s *Server) id(id json.RawMessage) json.RawMessage {
	if s.script.StringIDs && len(id) > 0 && id[0] != '"' {
		return jsonrpc.Quote(string(id))
	}
	return id
}

// dress spoils an answer as the script says.
func (s *Server) dress(msg []byte) []byte {
	if s.script.NullErrors && jsonrpc.Member(msg, "error") == nil {
		msg = jsonrpc.SetMember(msg, "error", json.RawMessage("null"))
	}
	if s.script.Arrays {
		msg = append(append([]byte{'['}, msg...), ']')
	}
	return msg
}

// scripted is the result, with what the script says about the method before it.
func (s *Server) scripted(c *call) (string, error) {
	if e := s.script.Exit; e != nil && e.On == c.m.Method && e.AfterMs == 0 {
		return "", &ExitError{e.Code}
	}
	if err := c.wait(s.script.DelayMs[c.m.Method]); err != nil {
		return "", err
	}
	for _, line := range s.script.Before[c.m.Method] {
		c.out.say([]byte(line))
	}
	if slices.Contains(s.script.Silent, c.m.Method) {
		<-c.ctx.Done()
		return "", c.ctx.Err()
	}
	if e := s.script.Errors[c.m.Method]; e != "" {
		return "", asError(e)
	}
	if r := s.script.Results[c.m.Method]; r != "" {
		return r, nil
	}
	how, known := methods[c.m.Method]
	switch {
	case s.script.Era == Modern && !c.modern:
		if c.m.Method == "initialize" {
			return "", unsupported(jsonrpc.Member(c.m.Params, "protocolVersion"), []string{modernVersion})
		}
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "missing _meta field %s", metaVersion)
	case c.modern:
		if err := s.checkModern(c); err != nil {
			return "", err
		}
	}
	wrongEra := c.modern && how.era == Legacy || !c.modern && how.era == Modern
	if !known || wrongEra || how.offered != nil && !how.offered(s) {
		return "", jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "Method not found: %s", c.m.Method)
	}
	if !c.modern && c.link.negotiated() == "" && c.m.Method != "initialize" && c.m.Method != "ping" {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s before initialize", c.m.Method)
	}
	result, err := how.run(s, c)
	if err == nil && c.modern {
		result = s.modernise(result, how.cached)
	}
	return result, err
}

func asError(text string) *jsonrpc.Error {
	m := jsonrpc.Message{Error: raw(text)}
	return m.Err()
}

func unsupported(requested json.RawMessage, supported []string) error {
	if requested == nil {
		requested = json.RawMessage(`""`)
	}
	return &jsonrpc.Error{
		Code: jsonrpc.CodeUnsupportedProtocol, Message: "Unsupported protocol version",
		Data: fmt.Appendf(nil, `{"supported":%s,"requested":%s}`, list(supported), requested),
	}
}

// checkModern checks what every request of 2026-07-28 carries.
func (s *Server) checkModern(c *call) error {
	version := jsonrpc.Member(c.m.Params, "_meta", metaVersion)
	if jsonrpc.Unquote(version) != modernVersion {
		return unsupported(version, s.supported())
	}
	if capabilities := jsonrpc.Member(c.m.Params, "_meta", metaClient); len(capabilities) == 0 || capabilities[0] != '{' {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "missing or invalid _meta field %s", metaClient)
	}
	return nil
}

func (s *Server) supported() []string {
	if s.script.Era == Modern {
		return []string{modernVersion}
	}
	return append([]string{modernVersion}, s.versions()...)
}

func (s *Server) versions() []string {
	if len(s.script.Versions) > 0 {
		return s.script.Versions
	}
	return handshakeVersions
}

// modernise adds what 2026-07-28 asks of every result, where it is missing.
func (s *Server) modernise(result string, cached bool) string {
	r := raw(result)
	add := func(key, value string) {
		if jsonrpc.Member(r, key) == nil {
			r = jsonrpc.SetMember(r, key, json.RawMessage(value))
		}
	}
	add("resultType", `"complete"`)
	add("_meta", `{"`+metaServer+`":`+s.info()+`}`)
	if cached {
		add("ttlMs", strconv.FormatInt(s.script.TTLMs, 10))
		add("cacheScope", `"private"`)
	}
	return string(r)
}

func (s *Server) info() string {
	return fmt.Sprintf(`{"name":%s,"version":%s}`, quote(or(s.script.Name, "fake")), quote(or(s.script.Version, "1.0.0")))
}

func (s *Server) capabilities() string {
	if s.script.Capabilities != "" {
		return s.script.Capabilities
	}
	parts := []string{`"logging":{}`}
	if hasTools(s) {
		parts = append(parts, `"tools":{"listChanged":true}`)
	}
	if hasResources(s) {
		parts = append(parts, `"resources":{"subscribe":true,"listChanged":true}`)
	}
	if hasPrompts(s) {
		parts = append(parts, `"prompts":{"listChanged":true}`)
	}
	if hasCompletions(s) {
		parts = append(parts, `"completions":{}`)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (s *Server) initialize(c *call) (string, error) {
	asked := jsonrpc.Member(c.m.Params, "protocolVersion")
	version := jsonrpc.Unquote(asked)
	s.mu.Lock()
	discovered := s.discovered
	s.mu.Unlock()
	if s.script.RefuseSecondInitialize && (discovered || c.link.negotiated() != "") {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "duplicate initialize")
	}
	if !slices.Contains(s.versions(), version) {
		if s.script.RefuseVersions {
			e := unsupported(asked, s.versions()).(*jsonrpc.Error)
			e.Code = jsonrpc.CodeInvalidParams
			return "", e
		}
		version = s.versions()[0]
	}
	c.link.agree(version)
	return fmt.Sprintf(`{"protocolVersion":%s,"capabilities":%s,"serverInfo":%s%s}`,
		quote(version), s.capabilities(), s.info(), s.instructions()), nil
}

func (s *Server) discover(*call) (string, error) {
	s.mu.Lock()
	s.discovered = true
	s.mu.Unlock()
	return fmt.Sprintf(`{"supportedVersions":%s,"capabilities":%s%s}`,
		list(s.supported()), s.capabilities(), s.instructions()), nil
}

func (s *Server) instructions() string {
	if s.script.Instructions == "" {
		return ""
	}
	return `,"instructions":` + quote(s.script.Instructions)
}

func quote(s string) string { return string(jsonrpc.Quote(s)) }

func list(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = quote(item)
	}
	return "[" + strings.Join(quoted, ",") + "]"
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
