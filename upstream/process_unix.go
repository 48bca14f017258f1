//go:build linux || darwin

package upstream

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
)

// child is a started process together with all that it starts. It leads a session and process group of its own; what
// leaves those is found by descent. What has left both, and whose parent had ended before anyone looked, can't be told
// from other servers' any more; on Linux the keeper ends it with the proxy.
//
// exited and code may be used from anywhere, the methods by one goroutine.
type child struct {
	pid    int
	exited chan struct{} // closed when the process itself has ended and was reaped
	code   int           // after that: its exit code, or the negative number of the signal that ended it
	link   *link
	strays []proc // descendants outside the group, as of the last look
	empty  bool   // the group was seen without members: its number may be another's by now
}

// proc is a line of the process table.
type proc struct {
	pid, ppid, pgid, sid int
	start                int64 // tells a process from a later one with the same id
}

// family are those processes that in holds for, and all their descendants.
func family(all []proc, in func(proc) bool) []proc {
	byParent := map[int][]proc{}
	for _, p := range all {
		byParent[p.ppid] = append(byParent[p.ppid], p)
	}
	seen := map[int]bool{os.Getpid(): true}
	var found []proc
	var add func(p proc)
	add = func(p proc) {
		if seen[p.pid] {
			return
		}
		seen[p.pid] = true
		found = append(found, p)
		for _, c := range byParent[p.pid] {
			add(c)
		}
	}
	for _, p := range all {
		if in(p) {
			add(p)
		}
	}
	return found
}

// startChild starts a program through the keeper. The files are the child's stdin, stdout and stderr; the caller keeps
// its own copies and closes them.
func startChild(ctx context.Context, c command, files ...*os.File) (*child, error) {
	l, err := openLink()
	if err != nil {
		return nil, err
	}
	o := order{Path: c.path, Args: c.args, Env: c.env, Dir: c.dir}
	if o.Dir == "" {
		if o.Dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	return l.start(ctx, o, files)
}

// look finds the descendants that have left the group; those found before stay known. Descendants can only be found
// while their parents live, so it comes before each signal.
func (c *child) look() {
	found := family(processes(), func(p proc) bool {
		return !c.empty && (p.pgid == c.pid || p.sid == c.pid) || slices.ContainsFunc(c.strays, p.same)
	})
	for _, p := range found {
		if (c.empty || p.pgid != c.pid) && !slices.ContainsFunc(c.strays, p.same) {
			c.strays = append(c.strays, p)
		}
	}
}

// same tells whether two readings are of the same process.
func (p proc) same(q proc) bool { return p.pid == q.pid && p.start == q.start }

// term asks all of it to end and tells whether there is a way to ask.
func (c *child) term() bool {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT) // a stopped process would not see the first
	return true
}

// kill ends all of it.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

func (c *child) signal(sig syscall.Signal) {
	c.look()
	if !c.empty {
		_ = syscall.Kill(-c.pid, sig) // gone is fine
	}
	for _, s := range c.strays {
		if p, ok := process(s.pid); ok && p.same(s) {
			_ = syscall.Kill(s.pid, sig)
		}
	}
}

// alive tells whether anything is left of the group or of those that have left it.
func (c *child) alive() bool {
	if !c.empty {
		err := syscall.Kill(-c.pid, 0)
		if err == nil || err == syscall.EPERM && runtime.GOOS != "darwin" { // macOS says EPERM of a group of zombies
			return true
		}
		c.empty = true
	}
	for _, s := range c.strays {
		if p, ok := process(s.pid); ok && p.same(s) {
			return true
		}
	}
	return false
}

// release is called when nothing is left.
func (c *child) release() { c.link.send(order{Forget: c.pid}, nil) }

// link is the proxy's end of the connection to the keeper.
type link struct {
	conn *net.UnixConn

	sending sync.Mutex // keeps an order and its descriptors together; the keeper always reads
	buf     bytes.Buffer
	enc     *gob.Encoder

	mu       sync.Mutex
	dead     bool
	last     int
	waits    map[int]chan started
	children map[int]*child
}

type started struct {
	child *child
	err   error
}

// theLink is the way to the keeper: one per process, opened with the first child and anew if the keeper dies.
var theLink struct {
	sync.Mutex
	*link
}

func openLink() (*link, error) {
	theLink.Lock()
	defer theLink.Unlock()
	if l := theLink.link; l != nil && !l.isDead() {
		return l, nil
	}
	l, err := newLink()
	theLink.link = l
	return l, err
}

func newLink() (*link, error) {
	if !reexecutes.Load() {
		return nil, errors.New("this program can't start servers: main does not call upstream.WatchOrphans first")
	}
	self, err := selfPath()
	if err != nil {
		return nil, fmt.Errorf("find this program to watch over its servers: %w", err)
	}
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("connect to the process that watches over servers: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "keeper"), os.NewFile(uintptr(fds[1]), "keeper")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	_ = ours.Close() // conn has a copy
	if err != nil {
		return nil, fmt.Errorf("connect to the process that watches over servers: %w", err)
	}
	cmd := &exec.Cmd{
		Path: self, Args: []string{"mcp-keeper"}, Env: []string{keeperEnv + "=1"}, Dir: "/",
		ExtraFiles: []*os.File{theirs}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start the process that watches over servers: %w", err)
	}
	l := &link{conn: conn.(*net.UnixConn), waits: map[int]chan started{}, children: map[int]*child{}}
	l.enc = gob.NewEncoder(&l.buf)
	go func() { // ends with the keeper, which lives as long as this process
		l.receive()
		_ = conn.Close()
		_ = cmd.Wait()
	}()
	return l, nil
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *link) start(ctx context.Context, o order, files []*os.File) (*child, error) {
	wait := make(chan started, 1)
	l.mu.Lock()
	l.last++
	o.ID = l.last
	if l.dead {
		wait <- started{err: errKeeper}
	} else {
		l.waits[o.ID] = wait
	}
	l.mu.Unlock()
	l.send(o, files)
	select {
	case s := <-wait:
		return s.child, s.err
	case <-ctx.Done():
		l.mu.Lock()
		delete(l.waits, o.ID)
		l.mu.Unlock()
		select {
		case s := <-wait: // it came at the same moment
			return s.child, s.err
		default:
			return nil, ctx.Err()
		}
	}
}

var errKeeper = errors.New("the process that watches over servers has died; try again")

func (l *link) send(o order, files []*os.File) {
	l.sending.Lock()
	defer l.sending.Unlock()
	l.buf.Reset()
	if err := l.enc.Encode(o); err != nil {
		_ = l.conn.Close() // can't happen with these types; receive tells everybody
		return
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = syscall.UnixRights(fds...)
	}
	n, _, err := l.conn.WriteMsgUnix(l.buf.Bytes(), rights, nil)
	if err == nil && n < l.buf.Len() {
		_, err = l.conn.Write(l.buf.Bytes()[n:])
	}
	if err != nil {
		_ = l.conn.Close()
	}
}

// receive hands out what the keeper tells until it is gone; then all its children are, as far as anybody can know.
func (l *link) receive() {
	dec := gob.NewDecoder(l.conn)
	for {
		var n news
		if dec.Decode(&n) != nil {
			break
		}
		l.mu.Lock()
		if n.Ended {
			if c := l.children[n.PID]; c != nil {
				c.code = n.Code
				close(c.exited)
				delete(l.children, n.PID)
			}
		} else {
			l.began(n)
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, c := range l.children {
		c.code = -int(syscall.SIGKILL)
		close(c.exited)
	}
	for _, wait := range l.waits {
		wait <- started{err: errKeeper}
	}
	l.children, l.waits = nil, nil
}

func (l *link) began(n news) {
	wait := l.waits[n.ID]
	delete(l.waits, n.ID)
	switch {
	case n.Errno != 0:
		if wait != nil {
			wait <- started{err: syscall.Errno(n.Errno)}
		}
	case wait == nil: // nobody waits any more
		_ = syscall.Kill(-n.PID, syscall.SIGKILL)
	default:
		c := &child{pid: n.PID, exited: make(chan struct{}), link: l}
		l.children[n.PID] = c
		wait <- started{child: c}
	}
}

// signalName names the signal of a negative exit code.
func signalName(code int) string { return syscall.Signal(-code).String() }
