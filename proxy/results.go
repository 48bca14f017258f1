package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/index"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

// maxBinary is how much of one image, audio or unknown block goes through inline, in bytes of its JSON.
const maxBinary = 8 << 20

// bound hands a server's result through as it came and adds the note. A result whose text is over the server's caps is
// kept whole in the output store; its head goes through with a notice that spells the call which reads on.
func (g *Gateway) bound(it *index.Item, limits configs.Limits, result json.RawMessage, note *callNote) (passed, error) {
	parts, err := partsOf(result)
	if err != nil {
		return passed{}, &Error{Code: UpstreamError, Message: fmt.Sprintf("server %q answered with something that is no tool result: %s", it.Server, err),
			Hint: "this is the server's fault; nothing can be read from its answer"}
	}
	if parts.inputRequired {
		return passed{}, &Error{Code: Unsupported, Message: errInputRequired.Error(), err: errInputRequired,
			Hint: "give all that the tool needs in its arguments"}
	}
	if parts.isError {
		note.Status = "failed"
	}
	switch {
	case parts.over(limits):
		result = g.cut(it, limits, result, parts, note)
	case len(parts.blocks) == 0 && parts.structured != nil: // hosts that show only content would show nothing
		result = jsonrpc.SetMember(result, "content", contentOf([]json.RawMessage{textBlock(string(parts.structured))}))
	case len(parts.blocks) == 0: // strict clients refuse a result without content
		result = jsonrpc.SetMember(result, "content", json.RawMessage("[]"))
	}
	raw, err := compact(note)
	if err != nil {
		return passed{}, err
	}
	meta := jsonrpc.SetMember(jsonrpc.Member(result, "_meta"), "mcpproxy/call", raw) // what is no object there gives way
	return passed{result: jsonrpc.SetMember(result, "_meta", meta), isError: parts.isError}, nil
}

// parts is a tool result taken apart, each part in its own bytes.
type parts struct {
	blocks        []block
	structured    json.RawMessage
	isError       bool
	inputRequired bool
	bytes, lines  int // of all text and of structuredContent
	binary        int // bytes of JSON that are images, audio or blobs
	rest          int // bytes of JSON that are neither: annotations, links, unknown blocks and fields
	huge          bool
}

// block is one content block.
type block struct {
	raw  json.RawMessage
	kind string
	text string // decoded, of a text block
	rest int    // bytes of JSON beside its text or binary
}

func partsOf(result json.RawMessage) (*parts, error) {
	p := &parts{rest: len(result)}
	var bad error
	err := jsonrpc.Members(result, func(key string, val json.RawMessage) bool {
		switch key {
		case "content":
			if string(val) == "null" {
				return true
			}
			bad = jsonrpc.Elements(val, func(b json.RawMessage) bool {
				p.add(b)
				return true
			})
		case "structuredContent":
			if string(val) != "null" {
				p.structured = val
				p.bytes, p.rest = p.bytes+len(val), p.rest-len(val)
			}
		case "isError":
			p.isError = string(val) == "true"
		case "resultType":
			p.inputRequired = jsonrpc.Unquote(val) == "input_required"
		}
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	return p, err
}

func (p *parts) add(raw json.RawMessage) {
	b := block{raw: raw, kind: jsonrpc.Unquote(jsonrpc.Member(raw, "type")), rest: len(raw)}
	var text, binary json.RawMessage
	switch b.kind {
	case "text":
		text = jsonrpc.Member(raw, "text")
		b.text = jsonrpc.Unquote(text)
		p.bytes, p.lines = p.bytes+len(b.text), p.lines+lineCount(b.text)
	case "image", "audio":
		binary = jsonrpc.Member(raw, "data")
	case "resource":
		if text = jsonrpc.Member(raw, "resource", "text"); text != nil {
			p.bytes, p.lines = p.bytes+len(text), p.lines+bytes.Count(text, []byte(`\n`))+1
		}
		binary = jsonrpc.Member(raw, "resource", "blob")
	}
	b.rest -= len(text) + len(binary)
	p.rest -= len(text) + len(binary)
	p.binary += len(binary)
	p.huge = p.huge || len(binary) > maxBinary
	p.blocks = append(p.blocks, b)
}

func (p *parts) over(l configs.Limits) bool {
	return p.huge || p.bytes > l.MaxOutputBytes || p.lines > l.MaxOutputLines || p.rest > l.MaxOutputBytes
}

// oneText is the text that a result comes to, where it is one text block alone, or with structured content that says the
// same: many servers send both.
func (p *parts) oneText() (string, bool) {
	if len(p.blocks) != 1 || p.blocks[0].text == "" {
		return "", false
	}
	text := p.blocks[0].text
	if p.structured == nil {
		return text, true
	}
	values, same := 0, false
	_ = jsonrpc.Members(p.structured, func(_ string, val json.RawMessage) bool { // no object: not the same
		values++
		same = jsonrpc.Unquote(val) == text
		return true
	})
	if values == 1 && same {
		return text, true
	}
	var a, b bytes.Buffer
	return text, json.Compact(&a, []byte(text)) == nil && json.Compact(&b, p.structured) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}

// lineCount counts lines; a last one without an end counts too.
func lineCount(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// cut keeps the whole in the store and makes the part that goes inline.
func (g *Gateway) cut(it *index.Item, limits configs.Limits, result json.RawMessage, p *parts, note *callNote) json.RawMessage {
	whole, isText := []byte(result), false
	if text, ok := p.oneText(); ok {
		whole, isText = []byte(text), true
	}
	id, err := g.outputs.put(outputOwner{Server: it.Server, Tool: it.Name}, whole, isText)

	room := &inlineRoom{bytes: limits.MaxOutputBytes, lines: limits.MaxOutputLines, rest: limits.MaxOutputBytes / 2}
	tr := &truncation{Truncated: true, TotalBytes: p.bytes, TotalLines: p.lines}
	if isText {
		tr.TotalBytes, tr.TotalLines = len(whole), lineCount(string(whole))
	}
	structured := p.structured
	if isText || len(structured) > room.bytes/2 {
		structured = nil
	}
	room.bytes -= len(structured)
	var blocks []json.RawMessage
	for _, b := range p.blocks {
		if out := room.fit(b); out != nil {
			blocks = append(blocks, out)
		}
	}
	tr.ReturnedBytes, tr.ReturnedLines = limits.MaxOutputBytes-room.bytes, limits.MaxOutputLines-room.lines
	note.Truncation = tr
	notice := fmt.Sprintf("[mcpproxy: shown are %d of %d bytes, %d of %d lines.", tr.ReturnedBytes, tr.TotalBytes, tr.ReturnedLines, tr.TotalLines)
	switch {
	case err != nil:
		g.log.Warn("an output could not be stored", "server", it.Server, "err", err)
		notice += " The rest could not be kept: ask for less.]"
	case isText:
		note.Cache = &cacheRef{ID: id, Read: readOn(id, fmt.Sprintf(`"offset":%d`, tr.ReturnedBytes))}
		notice += " Read on: " + note.Cache.Read + ". It also takes lines, tail, grep and count instead of offset, and jq where it is JSON.]"
	default:
		note.Cache = &cacheRef{ID: id, Read: readOn(id, `"pointer":"/content/0/text"`)}
		notice += " Stored is the whole result as JSON. Read on: " + note.Cache.Read + ". It also takes other pointers, jq and grep.]"
	}
	content := contentOf(append(blocks, textBlock(notice)))
	if p.rest > limits.MaxOutputBytes { // fields that nobody knows: they are in the store
		out := jsonrpc.SetMember(nil, "content", content)
		if p.isError {
			out = jsonrpc.SetMember(out, "isError", json.RawMessage("true"))
		}
		if structured != nil {
			out = jsonrpc.SetMember(out, "structuredContent", structured)
		}
		return out
	}
	out := jsonrpc.SetMember(result, "content", content)
	if p.structured != nil && structured == nil {
		out = dropMember(out, "structuredContent")
	}
	return out
}

// inlineRoom is what may still go inline: bytes and lines of text, and bytes of all that is neither text nor binary.
type inlineRoom struct{ bytes, lines, rest int }

// fit is what of a block goes inline, in place of the block; nil where nothing does.
func (r *inlineRoom) fit(b block) json.RawMessage {
	if b.kind == "text" {
		head, lines, _ := cutInline(b.text, r.bytes, r.lines)
		if head == "" && b.text != "" {
			return nil
		}
		r.bytes, r.lines = r.bytes-len(head), r.lines-lines
		switch {
		case b.rest > r.rest: // annotations larger than all else
			return textBlock(head)
		case len(head) < len(b.text):
			b.raw = jsonrpc.SetMember(b.raw, "text", quote(head))
		}
		r.rest -= b.rest
		return b.raw
	}
	text := len(jsonrpc.Member(b.raw, "resource", "text"))
	if b.rest > r.rest || text > r.bytes || len(b.raw)-text-b.rest > maxBinary {
		return textBlock(fmt.Sprintf("[mcpproxy: a block of type %q and %d bytes was left out]", cutBytes(b.kind, 40), len(b.raw)))
	}
	r.rest, r.bytes = r.rest-b.rest, r.bytes-text
	return b.raw
}

// readOn spells the call that reads a stored output further.
func readOn(id, how string) string {
	return fmt.Sprintf(`call_tool {"server":"mcpproxy","tool":"read_cache","arguments":{"cacheId":%q,%s}}`, id, how)
}

func textBlock(text string) json.RawMessage {
	return append(append([]byte(`{"type":"text","text":`), quote(text)...), '}')
}

func contentOf(blocks []json.RawMessage) json.RawMessage {
	return append(append([]byte{'['}, bytes.Join(rawSlices(blocks), []byte{','})...), ']')
}

func rawSlices(raws []json.RawMessage) [][]byte {
	out := make([][]byte, len(raws))
	for i, r := range raws {
		out[i] = r
	}
	return out
}

// dropMember is obj without one member.
func dropMember(obj json.RawMessage, drop string) json.RawMessage {
	b := []byte{'{'}
	_ = jsonrpc.Members(obj, func(key string, val json.RawMessage) bool { // obj was taken apart before
		if key != drop {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = append(append(append(b, quote(key)...), ':'), val...)
		}
		return true
	})
	return append(b, '}')
}
