package fake

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// page is a list result with one page of the items.
func (s *Server) page(c *call, key string, items []string) (string, error) {
	start := 0
	if cursor := jsonrpc.Unquote(jsonrpc.Member(c.m.Params, "cursor")); cursor != "" && !s.script.StuckCursor {
		text, err := base64.RawURLEncoding.DecodeString(cursor)
		if err == nil {
			start, err = strconv.Atoi(strings.TrimPrefix(string(text), "from:"))
		}
		if err != nil || start < 0 || start > len(items) {
			return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Invalid cursor")
		}
	}
	end := len(items)
	if s.script.PageSize > 0 {
		end = min(end, start+s.script.PageSize)
	}
	next := ""
	switch {
	case s.script.StuckCursor:
		next = `"again"`
	case end < len(items):
		next = quote(base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "from:%d", end)))
	default:
		next = s.script.EndCursor
	}
	if next != "" {
		next = `,"nextCursor":` + next
	}
	return `{"` + key + `":[` + strings.Join(items[start:end], ",") + `]` + next + `}`, nil
}

func (s *Server) offeredTools() ([]Tool, error) {
	if s.script.ToolsFile == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.tools), nil
	}
	var tools []Tool
	b, err := os.ReadFile(s.script.ToolsFile)
	if err == nil {
		err = json.Unmarshal(b, &tools)
	}
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "tools file: %v", err)
	}
	for i, t := range tools {
		tools[i] = t.check()
	}
	return tools, nil
}

func (s *Server) listTools(c *call) (string, error) {
	tools, err := s.offeredTools()
	if err != nil {
		return "", err
	}
	c.link.mu.Lock()
	ready := c.link.ready || c.modern
	c.link.mu.Unlock()
	var items []string
	for _, t := range tools {
		if ready || !t.Late {
			items = append(items, string(raw(t.Raw)))
		}
	}
	return s.page(c, "tools", items)
}

func (s *Server) callTool(c *call) (string, error) {
	tools, err := s.offeredTools()
	if err != nil {
		return "", err
	}
	name := jsonrpc.Unquote(jsonrpc.Member(c.m.Params, "name"))
	i := slices.IndexFunc(tools, func(t Tool) bool { return t.known == name })
	if i < 0 {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Unknown tool: %s", name)
	}
	t := tools[i]
	if c.modern && c.header != nil {
		if err := checkParamHeaders(c.header, raw(t.Raw), jsonrpc.Member(c.m.Params, "arguments")); err != nil {
			return "", err
		}
	}
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	if err := c.wait(t.DelayMs); err != nil {
		return "", err
	}
	switch {
	case t.Hang:
		<-c.ctx.Done()
		return "", c.ctx.Err()
	case t.Error != "":
		return "", asError(t.Error)
	case t.Result != "":
		return t.Result, nil
	}
	return builtins[t.Do].run(s, c, jsonrpc.Member(c.m.Params, "arguments"))
}

func (s *Server) listResources(c *call) (string, error) {
	var items []string
	for _, r := range s.script.Resources {
		if r.Raw == "" {
			r.Raw = fmt.Sprintf(`{"uri":%s,"name":%s}`, quote(r.URI), quote(r.URI))
		}
		items = append(items, string(raw(r.Raw)))
	}
	return s.page(c, "resources", items)
}

func (s *Server) listTemplates(c *call) (string, error) {
	return s.page(c, "resourceTemplates", oneLine(s.script.Templates))
}

func (s *Server) readResource(c *call) (string, error) {
	uri := jsonrpc.Member(c.m.Params, "uri")
	for _, r := range s.script.Resources {
		switch {
		case r.URI != jsonrpc.Unquote(uri):
		case r.Blob != "":
			return contents(uri, "application/octet-stream", "blob", r.Blob), nil
		default:
			return contents(uri, "text/plain", "text", r.Text), nil
		}
	}
	e := &jsonrpc.Error{Code: jsonrpc.CodeResourceNotFound, Message: "Resource not found"}
	if c.modern {
		e.Code = jsonrpc.CodeInvalidParams
	}
	if uri != nil {
		e.Data = fmt.Appendf(nil, `{"uri":%s}`, uri)
	}
	return "", e
}

func contents(uri json.RawMessage, kind, key, value string) string {
	return fmt.Sprintf(`{"contents":[{"uri":%s,"mimeType":%s,%s:%s}]}`, uri, quote(kind), quote(key), quote(value))
}

func (s *Server) listPrompts(c *call) (string, error) {
	return s.page(c, "prompts", oneLine(s.script.Prompts))
}

func (s *Server) getPrompt(c *call) (string, error) {
	name := jsonrpc.Unquote(jsonrpc.Member(c.m.Params, "name"))
	for _, p := range s.script.Prompts {
		if jsonrpc.Unquote(jsonrpc.Member(raw(p), "name")) == name {
			text := name + " " + string(jsonrpc.Member(c.m.Params, "arguments"))
			return fmt.Sprintf(`{"messages":[{"role":"user","content":{"type":"text","text":%s}}]}`, quote(text)), nil
		}
	}
	return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "Unknown prompt: %s", name)
}

func (s *Server) complete(c *call) (string, error) {
	name := jsonrpc.Unquote(jsonrpc.Member(c.m.Params, "argument", "name"))
	prefix := jsonrpc.Unquote(jsonrpc.Member(c.m.Params, "argument", "value"))
	var values []string
	for _, v := range s.script.Completions[name] {
		if strings.HasPrefix(v, prefix) {
			values = append(values, v)
		}
	}
	return fmt.Sprintf(`{"completion":{"values":%s,"total":%d,"hasMore":false}}`, list(values), len(values)), nil
}

func oneLine(items []string) []string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = string(raw(item))
	}
	return out
}

// listen is one subscriptions/listen stream.
type listen struct {
	id     json.RawMessage
	filter json.RawMessage
	out    outlet
}

// say sends a notification if the client listens for it.
func (l *listen) say(method, params string) {
	flags := map[string]string{
		"notifications/tools/list_changed":     "toolsListChanged",
		"notifications/prompts/list_changed":   "promptsListChanged",
		"notifications/resources/list_changed": "resourcesListChanged",
	}
	wanted := string(jsonrpc.Member(l.filter, flags[method])) == "true"
	if method == "notifications/resources/updated" {
		uri := jsonrpc.Member(raw(params), "uri")
		_ = jsonrpc.Elements(jsonrpc.Member(l.filter, "resourceSubscriptions"), func(v json.RawMessage) bool {
			wanted = wanted || string(v) == string(uri)
			return true
		}) // no array: not wanted
	}
	if wanted {
		p := jsonrpc.SetMember(raw(params), "_meta", fmt.Appendf(nil, `{"%s":%s}`, metaSub, l.id))
		l.out.say(notification(method, string(p)))
	}
}

func (s *Server) listen(c *call) (string, error) {
	l := &listen{id: c.m.ID, filter: jsonrpc.Member(c.m.Params, "notifications"), out: c.out}
	if l.filter == nil {
		return "", jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "missing notifications")
	}
	c.notify("notifications/subscriptions/acknowledged",
		fmt.Sprintf(`{"notifications":%s,"_meta":{"%s":%s}}`, l.filter, metaSub, l.id))
	s.mu.Lock()
	s.listens[l] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listens, l)
		s.mu.Unlock()
	}()
	if changed := s.script.ListChanged; changed != nil {
		changed.run(c.ctx.Done(), func() { l.say("notifications/tools/list_changed", "") })
	}
	<-c.ctx.Done()
	return "", c.ctx.Err()
}
