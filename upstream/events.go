package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"
)

// tooLargeError is a message over what is accepted of a server.
type tooLargeError struct {
	size  int64 // 0: it was not read to its end
	limit int
}

func (e *tooLargeError) Error() string {
	if e.size == 0 {
		return fmt.Sprintf("a message of more than the limit of %d bytes", e.limit)
	}
	return fmt.Sprintf("a message of %d bytes, over the limit of %d bytes", e.size, e.limit)
}

// event is one event of a text/event-stream.
type event struct {
	kind string // "" is the default, "message"
	data []byte // in memory of its own
}

// events reads a text/event-stream (WHATWG HTML, section 9.2) of which no event may be larger than max.
type events struct {
	lastID string        // of the last whole event that had an id
	retry  time.Duration // what the server wants as a pause before a reconnect; 0 when it has not said

	r       *bufio.Reader
	max     int
	begun   bool // the first line was read
	afterCR bool // a LF that comes next belongs to the line before
}

func newEvents(r io.Reader, max int) *events { return &events{r: bufio.NewReader(r), max: max} }

// proceed goes on with the stream that continues the one before.
func (e *events) proceed(r io.Reader) {
	e.r.Reset(r)
	e.begun, e.afterCR = false, false
}

// next returns the next event that has data. An event that the end of the stream has cut off from its empty line is
// returned, but its id does not count: what there is of it may not be all.
func (e *events) next() (event, error) {
	var ev event
	id := e.lastID
	for {
		line, own, err := e.line()
		if err == io.EOF && ev.data != nil {
			return ev, nil
		}
		if err != nil {
			return event{}, err
		}
		if !e.begun {
			e.begun = true
			line = bytes.TrimPrefix(line, []byte(bomUTF8))
		}
		if len(line) == 0 {
			e.lastID = id
			if ev.data != nil {
				return ev, nil
			}
			ev.kind = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'}) // a comment is a field without name
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "data":
			switch {
			case ev.data == nil && own && value != nil:
				ev.data = value
			case ev.data == nil:
				ev.data = append(make([]byte, 0, len(value)), value...)
			case len(ev.data)+len(value) >= e.max:
				return event{}, &tooLargeError{limit: e.max}
			default:
				ev.data = append(append(ev.data, '\n'), value...)
			}
		case "event":
			ev.kind = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// line returns the next line without its end (LF, CR or CRLF). Its memory is the caller's when own is true, else it is
// only valid until the next call. It never waits for more than the line's end.
func (e *events) line() (line []byte, own bool, err error) {
	for {
		if _, err := e.r.Peek(1); err != nil {
			if err == io.EOF && line != nil {
				return line, true, nil
			}
			return nil, false, err
		}
		chunk, _ := e.r.Peek(e.r.Buffered())
		if e.afterCR {
			if e.afterCR = false; chunk[0] == '\n' {
				_, _ = e.r.Discard(1) // it is there
				continue
			}
		}
		end := bytes.IndexByte(chunk, '\n')
		if end < 0 {
			end = len(chunk)
		}
		if cr := bytes.IndexByte(chunk[:end], '\r'); cr >= 0 {
			end = cr
		}
		if len(line)+end > e.max {
			return nil, false, &tooLargeError{limit: e.max}
		}
		if end == len(chunk) {
			line = append(line, chunk...)
			_, _ = e.r.Discard(end)
			continue
		}
		e.afterCR = chunk[end] == '\r'
		_, _ = e.r.Discard(end + 1)
		if line == nil {
			return chunk[:end], false, nil
		}
		return append(line, chunk[:end]...), true, nil
	}
}
