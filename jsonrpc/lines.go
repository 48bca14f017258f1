package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrLineTooLong is returned by ReadLine for a line over the limit. The stream can't be read further.
var ErrLineTooLong = errors.New("line too long")

// Lines reads newline-delimited messages (MCP stdio transport) with a bound on each.
type Lines struct {
	r   *bufio.Reader
	max int
}

// NewLines reads lines of at most max bytes from r.
func NewLines(r io.Reader, max int) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10), max: max}
}

// ReadLine returns the next line without its line end (LF or CRLF), in memory of its own. Blank lines are skipped. A
// last line without an end is returned before io.EOF.
func (l *Lines) ReadLine() ([]byte, error) {
	for {
		line, err := l.line()
		if line = bytes.TrimRight(line, "\r\n"); len(bytes.TrimSpace(line)) > 0 && !errors.Is(err, ErrLineTooLong) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (l *Lines) line() ([]byte, error) {
	part, err := l.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return bytes.Clone(part), err
	}
	line := make([]byte, 0, 4*len(part))
	for {
		if line = append(line, part...); len(line) > l.max {
			return nil, ErrLineTooLong
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
		part, err = l.r.ReadSlice('\n')
	}
}
