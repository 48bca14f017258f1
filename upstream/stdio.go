package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

const (
	lineLimit    = 64 << 20          // what a server may say in one message
	lineMax      = lineLimit + 1<<20 // with room for what is around a payload
	sampleLines  = 5                 // noise that is kept to show
	sampleLength = 200               // bytes of each
	bomUTF8      = "\xef\xbb\xbf"    // some runtimes begin their output with it
)

// patience is how long a wire waits for what.
type patience struct {
	stall time.Duration // a write without progress
	drain time.Duration // the rest of the output after the process has ended, and the reverse
	eof   time.Duration // shutdown: from the end of stdin to SIGTERM
	term  time.Duration // from SIGTERM to SIGKILL
	kill  time.Duration // until what SIGKILL does not end counts as stuck in the system
}

var usual = patience{
	stall: 10 * time.Second, drain: 200 * time.Millisecond,
	eof: 2 * time.Second, term: 3 * time.Second, kill: 900 * time.Millisecond, // less than 6 s together
}

// stdioWire is the wire to a child process: one message per line on its stdin and stdout.
//
// Its goroutines: read (stdout), write (stdin, see outbox), hear (stderr), and live, which decides when the wire is dead,
// ends what is left of the child, and waits for the others. gone is closed when none of it is left.
type stdioWire struct {
	server  string
	log     *slog.Logger
	in      inbound
	wait    patience
	child   *child
	stdin   *os.File
	stdout  *os.File
	stderr  *os.File
	pending pending
	out     outbox
	errs    ring

	closing   chan struct{} // close was called
	hurry     chan struct{} // its ctx has ended
	dead      chan struct{} // see done
	gone      chan struct{}
	closeOnce sync.Once
	hurryOnce sync.Once
	broken    chan error    // from read and write, one each
	readDone  chan struct{} // stdout was read to its end
	hearDone  chan struct{}

	mu      sync.Mutex
	noise   int
	sample  []string
	lastErr error // why dead is closed
	left    error // what could not be ended
}

var _ wire = (*stdioWire)(nil)

// exitError is the end of a child process that nobody asked for.
type exitError struct {
	server string
	code   int // negative: the signal
}

func (e *exitError) Error() string {
	if e.code < 0 {
		return fmt.Sprintf("%s: its process was ended by signal %d (%s)", e.server, -e.code, signalName(e.code))
	}
	return fmt.Sprintf("%s: its process ended with exit code %d", e.server, e.code)
}

var errClosed = errors.New("the connection was closed")

// dialStdio starts a server's process. ctx bounds the start alone. It fails with a *startError.
func dialStdio(ctx context.Context, spec *configs.Server, in inbound, log *slog.Logger) (*stdioWire, error) {
	return startStdio(ctx, spec, in, log, usual)
}

func startStdio(ctx context.Context, spec *configs.Server, in inbound, log *slog.Logger, p patience) (*stdioWire, error) {
	cmd, err := thisHost().command(spec)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, spawnError(cmd, err)
	}
	w := &stdioWire{
		server: spec.ID, log: log, in: in, wait: p,
		closing: make(chan struct{}), hurry: make(chan struct{}), dead: make(chan struct{}), gone: make(chan struct{}),
		broken: make(chan error, 2), readDone: make(chan struct{}), hearDone: make(chan struct{}),
	}
	var theirs [3]*os.File
	var errIn, errOut, errErr error
	theirs[0], w.stdin, errIn = os.Pipe()
	w.stdout, theirs[1], errOut = os.Pipe()
	w.stderr, theirs[2], errErr = os.Pipe()
	if err = errors.Join(errIn, errOut, errErr); err == nil {
		w.child, err = startChild(ctx, cmd, theirs[:]...)
	}
	for _, f := range theirs {
		_ = f.Close() // nil where the pipe failed
	}
	if err != nil {
		for _, f := range []*os.File{w.stdin, w.stdout, w.stderr} {
			_ = f.Close()
		}
		return nil, spawnError(cmd, err)
	}
	w.out = newOutbox(w.stdin, p.stall)
	go w.read()
	go w.hear()
	go w.write()
	go w.live()
	return w, nil
}

func (w *stdioWire) request(ctx context.Context, q outgoing) (jsonrpc.Message, error) {
	answers, err := w.pending.add(q.id)
	if err != nil {
		return jsonrpc.Message{}, &wireError{err: err}
	}
	defer w.pending.drop(q.id)
	p := &parcel{body: q.body}
	if err := w.put(ctx, p); err != nil {
		return jsonrpc.Message{}, err
	}
	select {
	case a := <-answers:
		if a.err != nil {
			return jsonrpc.Message{}, &wireError{sent: w.out.sent(ctx, p), err: a.err}
		}
		return a.m, nil
	case <-ctx.Done():
		p.withdraw()
		return jsonrpc.Message{}, ctx.Err()
	}
}

func (w *stdioWire) send(ctx context.Context, msg []byte) error {
	p := &parcel{body: msg, written: make(chan struct{})}
	if err := w.put(ctx, p); err != nil {
		return err
	}
	select {
	case <-p.written:
		return nil
	case <-w.dead:
		return &wireError{sent: w.out.sent(ctx, p), err: w.why()}
	case <-ctx.Done():
		p.withdraw()
		return ctx.Err()
	}
}

// put hands a parcel to the writer, which may be busy with a server that does not read.
func (w *stdioWire) put(ctx context.Context, p *parcel) error {
	if bytes.IndexByte(p.body, '\n') >= 0 { // between tokens, where JSON allows it but the transport does not
		p.body = bytes.ReplaceAll(p.body, []byte{'\n'}, []byte{' '})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case w.out.queue <- p:
		return nil
	case <-w.dead:
		return &wireError{err: w.why()}
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *stdioWire) negotiated(string, bool) {}

func (w *stdioWire) done() <-chan struct{} { return w.dead }

func (w *stdioWire) vitals() vitals {
	v := vitals{pid: w.child.pid, stderr: w.errs.lines()}
	select {
	case <-w.child.exited:
		v.exitCode = &w.child.code
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v.noise, v.sample, v.lastErr = w.noise, w.sample[:len(w.sample):len(w.sample)], w.lastErr
	return v
}

func (w *stdioWire) close(ctx context.Context) error {
	w.closeOnce.Do(func() { close(w.closing) })
	select {
	case <-w.gone:
	case <-ctx.Done():
		w.hurryOnce.Do(func() { close(w.hurry) })
		<-w.gone
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.left
}

func (w *stdioWire) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastErr
}

// live is the wire's life from its start to when nothing is left of it.
func (w *stdioWire) live() {
	defer close(w.gone)
	err := w.lasts()
	w.child.look() // before the end of its input ends what links it to its descendants

	w.mu.Lock()
	w.lastErr = err
	w.mu.Unlock()
	close(w.out.stop)
	_ = w.stdin.Close() // ends a write that is under way, too
	w.pending.fail(err)
	close(w.dead)

	left := w.end(err)
	await(w.child.exited, w.wait.drain) // the news of it comes right behind the fact
	w.mu.Lock()
	w.left = left
	w.mu.Unlock()
	_ = w.stdout.Close() // for what has escaped with a copy of the other end
	_ = w.stderr.Close()
	<-w.readDone
	<-w.hearDone
	<-w.out.done
}

// lasts returns why the wire has come to its end, as soon as that is certain.
func (w *stdioWire) lasts() error {
	var err error
	select {
	case <-w.child.exited:
	case err = <-w.broken:
		// The end of the pipes is mostly the first that is seen of the end of a process.
		if !errors.Is(err, jsonrpc.ErrLineTooLong) {
			await(w.child.exited, w.wait.drain)
		}
	case <-w.closing:
		return fmt.Errorf("%s: %w", w.server, errClosed)
	}
	select {
	case <-w.child.exited:
		await(w.readDone, w.wait.drain) // answers that were written before the end; a descendant may hold the pipe open
		await(w.hearDone, w.wait.drain) // its last words
		return &exitError{server: w.server, code: w.child.code}
	default:
		return err
	}
}

func await(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}

// end goes down the ladder: the end of input, SIGTERM, SIGKILL. What counts is whether anything is left of the child and
// all that it has started, not whether the child itself still runs.
func (w *stdioWire) end(why error) error {
	defer w.child.release()
	// When the child has ended of itself, what it has left behind serves nobody.
	if !errors.As(why, new(*exitError)) && w.waitGone(w.wait.eof) {
		return nil
	}
	if w.child.alive() && w.child.term() && w.waitGone(w.wait.term) {
		return nil
	}
	for end := time.Now().Add(w.wait.kill); w.child.alive(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%s: process group %d does not end, not even by SIGKILL", w.server, w.child.pid)
		}
		w.child.kill()
	}
	return nil
}

// waitGone waits until nothing is left of the child, and tells whether that was so in time.
func (w *stdioWire) waitGone(d time.Duration) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	for step := time.Millisecond; w.child.alive(); step = min(2*step, 20*time.Millisecond) {
		select {
		case <-over.C:
			return false
		case <-w.hurry:
			return false
		case <-time.After(step):
		}
	}
	return true
}

// hear drains stderr.
func (w *stdioWire) hear() {
	defer close(w.hearDone)
	_, _ = io.Copy(&w.errs, struct{ io.Reader }{w.stderr}) // until its end, or until it is closed
}

// read takes in what the server says, in order.
func (w *stdioWire) read() {
	defer close(w.readDone)
	lines := jsonrpc.NewLines(w.stdout, lineMax)
	for first := true; ; first = false {
		line, err := lines.ReadLine()
		if err != nil {
			w.broken <- w.readError(err)
			_ = w.stdout.Close() // what it writes after that must not make it wait
			return
		}
		if first {
			line = bytes.TrimPrefix(line, []byte(bomUTF8))
		}
		w.take(line)
	}
}

func (w *stdioWire) readError(err error) error {
	switch {
	case errors.Is(err, jsonrpc.ErrLineTooLong):
		return fmt.Errorf("%s: a line of more than %d bytes on its stdout, and a message may have %d: %w",
			w.server, lineMax, lineLimit, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: it closed its stdout but still runs", w.server)
	}
	return fmt.Errorf("%s: read its stdout: %w", w.server, err)
}

// take hands on one line: an answer to whom it is for, other messages to in. Invalid UTF-8 is mended, so that what is
// passed on is valid JSON.
func (w *stdioWire) take(line []byte) {
	raw := line
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	m, err := jsonrpc.Parse(line)
	if !errors.Is(err, jsonrpc.ErrBatch) {
		w.deliver(m, err, raw)
		return
	}
	messages, errs, err := jsonrpc.ParseBatch(line)
	if err != nil || len(messages) == 0 {
		if err == nil || !w.spoilt(raw, err) {
			w.junk(raw)
		}
		return
	}
	for i, m := range messages {
		w.deliver(m, errs[i], raw)
	}
}

func (w *stdioWire) deliver(m jsonrpc.Message, err error, raw []byte) {
	switch {
	case err != nil:
		if !w.spoilt(raw, err) {
			w.junk(raw)
		}
	case m.IsResponse():
		if !w.pending.settle(m) {
			w.log.Debug("answer that nobody waits for", "server", w.server, "id", string(m.ID))
		}
	default:
		select {
		case <-w.dead: // its last words during the shutdown
		default:
			w.in(m, 0)
		}
	}
}

// spoilt is for a line that means to be an answer and can't be read (NaN where a number is due, no result, nested too
// deeply): the request that it names fails at once, instead of waiting for an answer that has come already.
func (w *stdioWire) spoilt(line []byte, err error) bool {
	if !bytes.Contains(line, []byte(`"jsonrpc"`)) || bytes.Contains(line[:min(len(line), 200)], []byte(`"method"`)) {
		return false
	}
	for _, part := range [][]byte{line[:min(len(line), 200)], line[max(0, len(line)-200):]} {
		if id := answeredID.FindSubmatch(part); id != nil {
			e := jsonrpc.Errorf(jsonrpc.CodeParseError, "its answer can't be read: %v", err)
			m, perr := jsonrpc.Parse(jsonrpc.AppendError(nil, id[1], e))
			return perr == nil && w.pending.settle(m)
		}
	}
	return false
}

// answeredID finds the id in a line that is no well-formed JSON.
var answeredID = regexp.MustCompile(`"id"\s*:\s*"?(\d+)"?\s*[,}]`)

// junk counts a line that is no message, and keeps the first few.
func (w *stdioWire) junk(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	text := string(bytes.ToValidUTF8(line[:min(len(line), sampleLength)], []byte("\uFFFD")))
	w.mu.Lock()
	w.noise++
	first := w.noise == 1
	if len(w.sample) < sampleLines {
		w.sample = append(w.sample, text)
	}
	w.mu.Unlock()
	if first {
		w.log.Debug("lines on stdout that are no messages are skipped", "server", w.server, "first", text)
	}
}
