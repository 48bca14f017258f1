package upstream

import (
	"bytes"
	"strings"
	"sync"
)

const (
	ringBytes = 64 << 10
	ringLines = 200
	ringLine  = 4 << 10
)

// ring keeps the end of an endless text: the last 64 KiB, read as at most 200 lines of at most 4 KiB. The zero value is
// ready; it is safe for concurrent use.
type ring struct {
	mu  sync.Mutex
	buf []byte // at most twice ringBytes, so that text moves once per ringBytes written
	cut bool   // something before buf was dropped
}

// Write never fails and never waits for a reader.
func (r *ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(p)
	if len(p) > ringBytes {
		p, r.buf, r.cut = p[len(p)-ringBytes:], r.buf[:0], true
	}
	if len(r.buf)+len(p) > 2*ringBytes {
		keep := copy(r.buf, r.buf[len(r.buf)-(ringBytes-len(p)):])
		r.buf, r.cut = r.buf[:keep], true
	}
	r.buf = append(r.buf, p...)
	return n, nil
}

// lines are the last lines as they came, without line ends, invalid UTF-8 replaced. A line that is longer than 4 KiB is
// cut into several.
func (r *ring) lines() []string {
	r.mu.Lock()
	text, cut := r.buf, r.cut
	if len(text) > ringBytes {
		text, cut = text[len(text)-ringBytes:], true
	}
	text = bytes.Clone(text)
	r.mu.Unlock()

	if i := bytes.IndexByte(text, '\n'); cut && i >= 0 { // the first line has lost its beginning
		text = text[i+1:]
	}
	var out []string
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		for len(line) > ringLine {
			out = append(out, strings.ToValidUTF8(string(line[:ringLine]), "\uFFFD"))
			line = line[ringLine:]
		}
		out = append(out, strings.ToValidUTF8(string(line), "\uFFFD"))
	}
	return out[max(0, len(out)-ringLines):]
}
