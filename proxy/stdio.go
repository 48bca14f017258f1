package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	maxMessage = 64 << 20 // bytes of one message from a client
	eofGrace   = 1500 * time.Millisecond
)

// ServeStdio speaks MCP with one client over a pair of streams, a message a line. Requests run side by side, each in a
// goroutine of its own. It returns when in ends, out breaks or ctx ends; requests under way then get a short grace to
// finish, so that whoever pipes requests in and closes gets the answers.
func (g *Gateway) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSession(g)
	w := newLineWriter(out, cancel)
	var requests sync.WaitGroup
	read := make(chan error, 1)
	go func() { read <- s.readLines(ctx, jsonrpc.NewLines(in, maxMessage), w, &requests) }() // ends with in, or with the process

	var err error
	select {
	case err = <-read:
		finished := make(chan struct{})
		go func() { requests.Wait(); close(finished) }()
		select {
		case <-finished:
		case <-time.After(eofGrace):
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
	cancel()
	w.close()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *session) readLines(ctx context.Context, lines *jsonrpc.Lines, w *lineWriter, requests *sync.WaitGroup) error {
	slots := make(chan struct{}, maxInFlight-1)
	for {
		line, err := lines.ReadLine()
		if errors.Is(err, jsonrpc.ErrLineTooLong) {
			w.write(jsonrpc.AppendError(nil, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "message over %d bytes", maxMessage)))
			return fmt.Errorf("the client sent a message over %d bytes", maxMessage)
		}
		if err != nil {
			return err
		}
		m, err := jsonrpc.Parse(line)
		if err != nil {
			w.write(refusal(m, err))
			continue
		}
		if answer := s.receive(ctx, m); answer != nil {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			requests.Go(func() {
				w.write(answer(w.write).msg)
				<-slots
			})
		}
	}
}

// refusal answers what is no message.
func refusal(m jsonrpc.Message, err error) []byte {
	var syntax *jsonrpc.SyntaxError
	switch {
	case errors.Is(err, jsonrpc.ErrBatch):
		return jsonrpc.AppendError(nil, nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "batches are not supported: send each message by itself"))
	case errors.As(err, &syntax):
		return jsonrpc.AppendError(nil, nil, jsonrpc.Errorf(jsonrpc.CodeParseError, "%s", err))
	}
	return jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", err))
}

// lineWriter writes messages, a line each, from one goroutine that batches what has gathered.
type lineWriter struct {
	queue chan []byte
	dead  chan struct{} // closed when nothing is written any more
}

func newLineWriter(out io.Writer, broken func()) *lineWriter {
	w := &lineWriter{queue: make(chan []byte, 256), dead: make(chan struct{})}
	go w.run(out, broken)
	return w
}

// write queues one message; nil is nothing. It waits where the client reads slowly, and drops once it is gone.
func (w *lineWriter) write(msg []byte) {
	if msg == nil {
		return
	}
	select {
	case w.queue <- append(msg, '\n'):
	case <-w.dead:
	}
}

// close writes what is queued and ends the writer. Messages written after it are dropped.
func (w *lineWriter) close() {
	patience := time.NewTimer(eofGrace) // for a client that has stopped reading
	defer patience.Stop()
	select {
	case w.queue <- nil:
	case <-w.dead:
	case <-patience.C:
		return
	}
	select {
	case <-w.dead:
	case <-patience.C:
	}
}

func (w *lineWriter) run(out io.Writer, broken func()) {
	defer close(w.dead)
	var batch []byte
	for msg := range w.queue {
		batch = batch[:0]
		for more := true; more && msg != nil; {
			batch = append(batch, msg...)
			if more = len(batch) < 256<<10; more {
				select {
				case msg = <-w.queue:
				default:
					more = false
				}
			}
		}
		if len(batch) > 0 {
			if _, err := out.Write(batch); err != nil {
				broken()
				return
			}
		}
		if msg == nil {
			return
		}
		if cap(batch) > 1<<20 {
			batch = nil
		}
	}
}
