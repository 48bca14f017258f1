package fake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const lineMax = 512 << 20

// ServeStdio serves one client on a pair of streams until the input ends, the server is closed, or the script exits
// (*ExitError). Calls that are under way then end without an answer. The goroutine that reads in ends with in.
func (s *Server) ServeStdio(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	o := &stdout{w: out}
	link := s.join("", o.line)
	exits := make(chan error, 1)
	exit := func(err error) {
		select {
		case exits <- err:
		default:
		}
	}
	var calls sync.WaitGroup
	defer func() {
		s.leave(link)
		cancel()
		calls.Wait()
	}()

	if _, err := io.WriteString(s.stderr, s.script.Stdio.Stderr); err != nil {
		return err
	}
	for _, line := range s.script.Stdio.Banner {
		o.line([]byte(line))
	}
	if e := s.script.Exit; e != nil && e.On == "" {
		if e.AfterMs == 0 {
			return &ExitError{e.Code}
		}
		s.exitLater(ctx, &calls, exit)
	}
	read := make(chan []byte)
	go func() {
		defer close(read)
		r := jsonrpc.NewLines(in, lineMax)
		for {
			line, err := r.ReadLine()
			if err != nil {
				return
			}
			select {
			case read <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	lines := read // nil when it does not read any more
	for {
		select {
		case <-s.done:
			return nil
		case err := <-exits:
			return err
		case line, ok := <-lines:
			switch {
			case ok && s.take(ctx, link, o, line, &calls, exit):
			case ok: // stops reading
				lines = nil
			case s.script.Stdio.IgnoreEOF:
				s.record(Record{Event: "eof"})
				lines = nil
			default:
				s.record(Record{Event: "eof"})
				return nil
			}
		}
	}
}

// take takes one line and tells whether to read on.
func (s *Server) take(
	ctx context.Context, l *link, o *stdout, line []byte, calls *sync.WaitGroup, exit func(error),
) bool {
	m, err := jsonrpc.Parse(line)
	s.record(Record{Method: m.Method, Text: string(line)})
	switch {
	case errors.Is(err, jsonrpc.ErrBatch), errors.Is(err, jsonrpc.ErrNotMessage):
		o.line(jsonrpc.AppendError(nil, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%v", err)))
		return true
	case err != nil:
		o.line(jsonrpc.AppendError(nil, nil, jsonrpc.Errorf(jsonrpc.CodeParseError, "%v", err)))
		return true
	}
	if e := s.script.Exit; e != nil && e.On == m.Method && m.Method != "" {
		switch {
		case e.AfterMs > 0:
			s.exitLater(ctx, calls, exit)
		case m.IsNotification():
			exit(&ExitError{e.Code})
		}
	}
	if !m.IsRequest() {
		s.hear(l, m)
		return m.Method == "" || m.Method != s.script.Stdio.StopReading
	}
	c := &call{link: l, m: m, modern: s.isModern(m), out: outlet{say: o.line, spill: o.spill}}
	var end func()
	c.ctx, end = l.begin(ctx, m.ID)
	calls.Go(func() {
		defer end()
		reply, err := s.answer(c)
		if err != nil {
			exit(err)
		}
		if reply != nil && c.ctx.Err() == nil {
			s.reply(o, m.Method, reply)
		}
	})
	return m.Method != s.script.Stdio.StopReading
}

const stderrLine = "all work and no play makes a dull log\n"

func (s *Server) reply(o *stdout, method string, reply []byte) {
	if n := s.script.Stdio.StderrBytes; n > 0 {
		_, _ = s.stderr.Write(bytes.Repeat([]byte(stderrLine), n/len(stderrLine)+1)) // nobody listening is fine
	}
	if s.script.Stdio.Noise != "" {
		o.line([]byte(s.script.Stdio.Noise))
	}
	if s.script.Stdio.HalfLine == method {
		o.half(reply)
		return
	}
	o.line(reply)
}

func (s *Server) exitLater(ctx context.Context, calls *sync.WaitGroup, exit func(error)) {
	calls.Go(func() {
		timer := time.NewTimer(time.Duration(s.script.Exit.AfterMs) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			exit(&ExitError{s.script.Exit.Code})
		case <-ctx.Done():
		}
	})
}

// stdout writes whole lines. A client that is gone is no error here: the end of stdin tells.
type stdout struct {
	mu   sync.Mutex // guards all, and is held while writing
	w    io.Writer
	dead bool
}

func (o *stdout) line(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(append(bytes.Clone(b), '\n'))
}

func (o *stdout) half(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(b[:len(b)/2])
	o.dead = true
}

func (o *stdout) spill(ctx context.Context, b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ctx.Err() == nil && !o.dead {
		o.write(b)
	}
}

func (o *stdout) write(b []byte) {
	if !o.dead {
		_, err := o.w.Write(b)
		o.dead = err != nil
	}
}
