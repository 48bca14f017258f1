package fake

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
)

// checkHeaders checks that the headers of a 2026-07-28 message say what its body says.
func checkHeaders(h http.Header, m jsonrpc.Message) *jsonrpc.Error {
	meta := jsonrpc.Unquote(jsonrpc.Member(m.Params, "_meta", metaVersion))
	version := h.Get(headerVersion)
	if meta == "" && m.IsRequest() {
		return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "missing _meta field %s", metaVersion)
	}
	if version == "" || meta != "" && version != meta {
		return jsonrpc.Errorf(jsonrpc.CodeHeaderMismatch, "header %s is %q, the body says %q", headerVersion, version, meta)
	}
	if !m.IsRequest() {
		return nil
	}
	if got := h.Get(headerMethod); got != m.Method {
		return jsonrpc.Errorf(jsonrpc.CodeHeaderMismatch, "header %s is %q, the body says %q", headerMethod, got, m.Method)
	}
	member := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}[m.Method]
	if member == "" {
		return nil
	}
	want := jsonrpc.Unquote(jsonrpc.Member(m.Params, member))
	if got, ok := decodeHeader(h.Get(headerName)); !ok || got != want {
		return jsonrpc.Errorf(jsonrpc.CodeHeaderMismatch,
			"header %s is %q, the body says %q", headerName, h.Get(headerName), want)
	}
	return nil
}

// decodeHeader reads a header value that may be wrapped as =?base64?…?=.
func decodeHeader(v string) (string, bool) {
	inner, ok := strings.CutPrefix(v, "=?base64?")
	if inner, end := strings.CutSuffix(inner, "?="); ok && end {
		b, err := base64.StdEncoding.DecodeString(inner)
		return string(b), err == nil
	}
	return v, true
}

// checkParamHeaders checks the headers of arguments whose schema has x-mcp-header.
func checkParamHeaders(h http.Header, tool, args json.RawMessage) error {
	var mismatch *jsonrpc.Error
	var walk func(schema, value json.RawMessage)
	walk = func(schema, value json.RawMessage) {
		properties := jsonrpc.Member(schema, "properties")
		if properties == nil {
			return
		}
		_ = jsonrpc.Members(properties, func(name string, property json.RawMessage) bool {
			v := jsonrpc.Member(value, name)
			walk(property, v)
			header := jsonrpc.Unquote(jsonrpc.Member(property, "x-mcp-header"))
			if header == "" || mismatch != nil {
				return true
			}
			want := string(v)
			if len(v) > 0 && v[0] == '"' {
				want = jsonrpc.Unquote(v)
			}
			_, sent := h[http.CanonicalHeaderKey(headerParam+header)]
			got, ok := decodeHeader(h.Get(headerParam + header))
			absent := v == nil || string(v) == "null"
			if !ok || absent && got != "" || !absent && (!sent || got != want) {
				mismatch = jsonrpc.Errorf(jsonrpc.CodeHeaderMismatch,
					"header %s%s is %q, the body says %s", headerParam, header, got, v)
			}
			return true
		}) // no object: nothing to check
	}
	walk(jsonrpc.Member(tool, "inputSchema"), args)
	if mismatch != nil {
		return mismatch
	}
	return nil
}
