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
	case !parts.over(limits):
		if len(parts.blocks) == 0 && parts.structured != nil { // hosts that show only content would show nothing
			result = jsonrpc.SetMember(result, "content", contentOf([]json.RawMessage{textBlock(string(parts.structured))}))
		}
	default:
		result = g.cut(it, limits, result, parts, note)
	}
	raw, err := compact(note)
	if err != nil {
		return passed{}, err
	}
	meta := jsonrpc.SetMember(jsonrpc.Member(result, "_meta"), "mcpproxy/call", raw)
	return passed{result: jsonrpc.SetMember(result, "_meta", meta), isError: parts.isError}, nil
}

// parts is a tool result taken apart, each part in its own bytes.
type parts struct {
	blocks        []json.RawMessage
	texts         []string // of text blocks, decoded; "" for other blocks
	structured    json.RawMessage
	isError       bool
	inputRequired bool
	bytes, lines  int // of all text and of structuredContent
	huge          bool
}

func partsOf(result json.RawMessage) (*parts, error) {
	p := &parts{}
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
				p.bytes += len(val)
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

func (p *parts) add(block json.RawMessage) {
	text := ""
	switch jsonrpc.Unquote(jsonrpc.Member(block, "type")) {
	case "text":
		text = jsonrpc.Unquote(jsonrpc.Member(block, "text"))
	case "resource":
		if t := jsonrpc.Member(block, "resource", "text"); t != nil {
			p.bytes += len(t)
			p.lines += bytes.Count(t, []byte(`\n`)) + 1
		} else {
			p.huge = p.huge || len(block) > maxBinary
		}
	default:
		p.huge = p.huge || len(block) > maxBinary
	}
	p.blocks = append(p.blocks, block)
	p.texts = append(p.texts, text)
	p.bytes += len(text)
	if text != "" {
		p.lines += lineCount(text)
	}
}

func (p *parts) over(l configs.Limits) bool {
	return p.huge || p.bytes > l.MaxOutputBytes || p.lines > l.MaxOutputLines
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
	if len(p.blocks) == 1 && p.texts[0] != "" && p.structured == nil {
		whole, isText = []byte(p.texts[0]), true
	}
	id, err := g.outputs.put(outputOwner{Server: it.Server, Tool: it.Name}, whole, isText)

	tr := &truncation{Truncated: true, TotalBytes: p.bytes, TotalLines: p.lines}
	blocks := make([]json.RawMessage, 0, len(p.blocks)+1)
	left := *tr // what may still go inline
	left.TotalBytes, left.TotalLines = limits.MaxOutputBytes, limits.MaxOutputLines
	structured := p.structured
	if len(structured) > left.TotalBytes/2 {
		structured = nil
	}
	left.TotalBytes -= len(structured)
	tr.ReturnedBytes = len(structured)
	for i, b := range p.blocks {
		switch {
		case p.texts[i] != "":
			head, lines, _ := cutInline(p.texts[i], left.TotalBytes, left.TotalLines)
			if head == "" {
				continue
			}
			left.TotalBytes, left.TotalLines = left.TotalBytes-len(head), left.TotalLines-lines
			tr.ReturnedBytes, tr.ReturnedLines = tr.ReturnedBytes+len(head), tr.ReturnedLines+lines
			if len(head) < len(p.texts[i]) {
				b = jsonrpc.SetMember(b, "text", quote(head))
			}
			blocks = append(blocks, b)
		case len(b) > maxBinary:
			blocks = append(blocks, textBlock(fmt.Sprintf("[mcpproxy: a block of type %q and %d bytes was left out]",
				cutBytes(jsonrpc.Unquote(jsonrpc.Member(b, "type")), 40), len(b))))
		case jsonrpc.Member(b, "resource", "text") != nil && len(b) > left.TotalBytes:
			blocks = append(blocks, textBlock(fmt.Sprintf("[mcpproxy: the embedded resource %s of %d bytes was left out]",
				quote(cutBytes(jsonrpc.Unquote(jsonrpc.Member(b, "resource", "uri")), 200)), len(b))))
		default:
			if jsonrpc.Member(b, "resource", "text") != nil {
				left.TotalBytes, tr.ReturnedBytes = left.TotalBytes-len(b), tr.ReturnedBytes+len(b)
			}
			blocks = append(blocks, b)
		}
	}
	note.Truncation = tr
	notice := fmt.Sprintf("[mcpproxy: shown are %d of %d bytes, %d of %d lines.", tr.ReturnedBytes, tr.TotalBytes, tr.ReturnedLines, tr.TotalLines)
	if err == nil {
		note.Cache = &cacheRef{ID: id, Read: readOn(id, tr.ReturnedBytes, isText)}
		notice += " Read on: " + note.Cache.Read + ". It also takes lines, tail, grep, pointer, jq and count instead of offset.]"
	} else {
		g.log.Warn("an output could not be stored", "server", it.Server, "err", err)
		notice += " The rest could not be kept: ask for less.]"
	}
	out := jsonrpc.SetMember(result, "content", contentOf(append(blocks, textBlock(notice))))
	if p.structured != nil && structured == nil {
		out = dropMember(out, "structuredContent")
	}
	return out
}

// readOn spells the call that reads a stored output further.
func readOn(id string, offset int, isText bool) string {
	if !isText {
		offset = 0
	}
	return fmt.Sprintf(`call_tool {"server":"mcpproxy","tool":"read_cache","arguments":{"cacheId":%q,"offset":%d}}`, id, offset)
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
