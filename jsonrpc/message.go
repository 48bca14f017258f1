// Package jsonrpc is the wire: JSON-RPC 2.0 messages whose payloads stay raw.
//
// A message is scanned once, from the outside in. What it carries (params, result, error) is a slice of the bytes
// that arrived, so that schemas, big integers, unknown fields and the order of properties pass through a proxy
// untouched. The package promises that what Parse accepts is well-formed JSON and can be spliced into another
// message. It never interprets a payload and does no I/O besides reading lines.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Error codes of JSON-RPC 2.0 section 5.1 and of the MCP revision 2026-07-28.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603

	CodeResourceNotFound    = -32002
	CodeHeaderMismatch      = -32020
	CodeMissingCapability   = -32021
	CodeUnsupportedProtocol = -32022
)

// ErrBatch is returned by Parse for a JSON array: batches existed in revision 2025-03-26 only.
var ErrBatch = errors.New("a JSON-RPC batch (array) where one message is due")

// ErrNotMessage is returned by Parse for well-formed JSON that is no JSON-RPC message.
var ErrNotMessage = errors.New("no JSON-RPC message")

// Message is one request, notification or response. Its raw fields alias the bytes given to Parse.
type Message struct {
	ID     json.RawMessage // as it was written, `1` or `"a"`; nil when absent
	Method string          // "" in a response
	Params json.RawMessage // nil when absent
	Result json.RawMessage // nil when absent; `null` when it was null
	Error  json.RawMessage // nil when absent or null
}

// IsRequest tells a call that wants an answer.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification tells a message that wants none.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse tells an answer to a request of ours.
func (m *Message) IsResponse() bool { return m.Method == "" }

// Err decodes the error of a response; nil when there is none. An error that is not an object with a code becomes
// an internal error that carries it as data.
func (m *Message) Err() *Error {
	if m.Error == nil {
		return nil
	}
	var e Error
	if err := json.Unmarshal(m.Error, &e); err != nil {
		return &Error{Code: CodeInternalError, Message: "malformed error object", Data: m.Error}
	}
	return &e
}

// Error is a JSON-RPC 2.0 error object. Data keeps its bytes.
type Error struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (JSON-RPC error %d)", e.Message, e.Code) }

// Errorf makes an error object without data.
func Errorf(code int64, format string, a ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, a...)}
}

// Parse scans one message. It fails with ErrBatch for an array, with ErrNotMessage for other JSON that is no message
// (a response needs "result" or "error"), and with a *SyntaxError for what is not JSON.
func Parse(b []byte) (Message, error) {
	var m Message
	s := scanner{b: b}
	s.space()
	if s.i < len(b) && b[s.i] == '[' {
		return m, ErrBatch
	}
	if s.i < len(b) && b[s.i] != '{' {
		if err := s.value(0); err != nil {
			return m, err
		}
		return m, ErrNotMessage
	}
	result := false
	err := s.object(0, func(key, val []byte) {
		switch string(key) {
		case "id":
			if m.ID = val; string(val) == "null" {
				m.ID = nil
			}
		case "method":
			if len(val) > 0 && val[0] == '"' {
				m.Method = Unquote(val)
			}
		case "params":
			m.Params = val
		case "result":
			m.Result, result = val, true
		case "error":
			if string(val) != "null" {
				m.Error = val
			}
		}
	})
	if err != nil {
		return m, err
	}
	if s.space(); s.i != len(b) {
		return m, s.fail("something after the message")
	}
	if m.Method == "" && !result && m.Error == nil {
		return m, ErrNotMessage
	}
	return m, nil
}

// ParseBatch scans an array of messages (JSON-RPC 2.0 section 6); parts that are no message are reported in errs by
// their position.
func ParseBatch(b []byte) (msgs []Message, errs map[int]error, err error) {
	i := 0
	err = Elements(b, func(v json.RawMessage) bool {
		m, perr := Parse(v)
		if perr != nil {
			if errs == nil {
				errs = map[int]error{}
			}
			errs[i] = perr
		}
		msgs = append(msgs, m)
		i++
		return true
	})
	return msgs, errs, err
}

// AppendRequest appends a request, or a notification when id is nil, without a newline. Params may be nil.
func AppendRequest(dst []byte, id json.RawMessage, method string, params json.RawMessage) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != nil {
		dst = append(append(append(dst, `"id":`...), id...), ',')
	}
	dst = appendString(append(dst, `"method":`...), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// AppendResult appends the answer to request id.
func AppendResult(dst []byte, id, result json.RawMessage) []byte {
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), idOrNull(id)...), `,"result":`...)
	return append(append(dst, result...), '}')
}

// AppendError appends the error answer to request id; a nil id is written as null.
func AppendError(dst []byte, id json.RawMessage, e *Error) []byte {
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), idOrNull(id)...), `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, e.Code, 10)
	dst = appendString(append(dst, `,"message":`...), e.Message)
	if e.Data != nil {
		dst = append(append(dst, `,"data":`...), e.Data...)
	}
	return append(dst, "}}"...)
}

func idOrNull(id json.RawMessage) json.RawMessage {
	if id == nil {
		return json.RawMessage("null")
	}
	return id
}

func appendString(dst []byte, s string) []byte { return append(dst, Quote(s)...) }

// Quote writes s as a JSON string; unlike json.Marshal it leaves <, > and & as they are.
func Quote(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Unquote reads a JSON string; "" when it is none.
func Unquote(raw json.RawMessage) string {
	if len(raw) >= 2 && raw[0] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(bytes.ToValidUTF8(raw[1:len(raw)-1], []byte("\uFFFD")))
	}
	var s string
	_ = json.Unmarshal(raw, &s) // not a string: ""
	return s
}
