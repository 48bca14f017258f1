//go:build linux || darwin

package upstream

import (
	"encoding/gob"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The keeper is a second process of this program, the parent of every child that the proxy starts. It exists because
// only another process can clean up after a proxy that was killed: when its connection to the proxy ends, however that
// came about, it ends all that is left, first politely, then not, and exits.
//
//   - It is alone in a session without a terminal and takes no notice of signals that a terminal or an init system sends
//     to all: the proxy decides when children end.
//   - On Linux it is a subreaper: what a child leaves behind, in whatever group or session, becomes the keeper's own
//     child. So nothing escapes it, no process id can be mistaken for another, and no zombies are left where the init
//     process of a container reaps nothing. Children die with it (parent-death signal).
//   - On macOS it ends the groups and sessions of the children that it was told of, and all that descends from them.
const keeperEnv = "MCPPROXY_KEEPER"

// keeperGrace is how long the keeper waits between SIGTERM and SIGKILL.
const keeperGrace = 2 * time.Second

// reexecutes is set once WatchOrphans was called: this program can be its own keeper.
var reexecutes atomic.Bool

// WatchOrphans makes this process the keeper of another one's children if it was started for that, and then does not
// return. It must be called first in main, and in TestMain of a test that starts stdio servers.
func WatchOrphans() {
	reexecutes.Store(true)
	if os.Getenv(keeperEnv) == "" {
		return
	}
	closeOnExec()
	conn, err := net.FileConn(os.NewFile(3, "proxy"))
	link, ok := conn.(*net.UnixConn)
	if err != nil || !ok {
		fmt.Fprintln(os.Stderr, keeperEnv+" is set, which is for this program's own use; unset it")
		os.Exit(2)
	}
	k := keeper{children: map[int]bool{}, groups: map[int]bool{}, more: make(chan struct{}, 1), news: gob.NewEncoder(link)}
	k.run(link)
	os.Exit(0)
}

// order is what the proxy tells the keeper: start a process, whose stdin, stdout and stderr come along as descriptors, or
// forget one of which nothing is left.
type order struct {
	ID     int // of the order; 0: forget
	Path   string
	Args   []string
	Env    []string
	Dir    string
	Forget int
}

// news is what the keeper tells the proxy: the answer to an order, or the end of a process.
type news struct {
	ID    int
	PID   int
	Errno int // of starting
	Ended bool
	Code  int // exit code; negative: the signal
}

type keeper struct {
	more chan struct{} // a hint to the reaper that there are children again

	mu       sync.Mutex
	news     *gob.Encoder
	children map[int]bool // started and not reaped
	groups   map[int]bool // started and not forgotten
}

func (k *keeper) run(link *net.UnixConn) {
	runtime.LockOSThread() // the parent-death signal is tied to the thread that forks
	becomeSubreaper()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go k.reap() // ends with the process
	in := &fdReader{conn: link}
	orders := gob.NewDecoder(in)
	for {
		var o order
		if orders.Decode(&o) != nil {
			break
		}
		if o.ID != 0 {
			k.start(o, in.take(3))
			continue
		}
		k.mu.Lock()
		delete(k.groups, o.Forget)
		k.mu.Unlock()
	}
	k.endAll()
}

func (k *keeper) start(o order, fds []uintptr) {
	k.mu.Lock() // the answer must come before the news of the child's end
	defer k.mu.Unlock()
	pid, err := syscall.ForkExec(o.Path, o.Args, &syscall.ProcAttr{Dir: o.Dir, Env: o.Env, Files: fds, Sys: childAttr()})
	for _, fd := range fds {
		_ = syscall.Close(int(fd))
	}
	n := news{ID: o.ID, PID: pid}
	if errno, ok := err.(syscall.Errno); ok {
		n.Errno = int(errno)
	} else if err != nil {
		n.Errno = int(syscall.EINVAL)
	} else {
		k.children[pid], k.groups[pid] = true, true
		select {
		case k.more <- struct{}{}:
		default:
		}
	}
	_ = k.news.Encode(n) // a proxy that is gone shows as the end of its orders
}

// reap waits for every child, adopted ones included.
func (k *keeper) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.ECHILD {
			<-k.more
		}
		if err != nil {
			continue
		}
		k.mu.Lock()
		if k.children[pid] {
			delete(k.children, pid)
			n := news{PID: pid, Ended: true, Code: ws.ExitStatus()}
			if ws.Signaled() {
				n.Code = -int(ws.Signal())
			}
			_ = k.news.Encode(n)
		}
		k.mu.Unlock()
	}
}

// endAll ends all that is left of the children.
func (k *keeper) endAll() {
	k.signal(syscall.SIGTERM)
	for end := time.Now().Add(keeperGrace); time.Now().Before(end) && len(k.left()) > 0; {
		time.Sleep(10 * time.Millisecond)
	}
	for end := time.Now().Add(keeperGrace); time.Now().Before(end) && k.signal(syscall.SIGKILL); {
		time.Sleep(10 * time.Millisecond)
	}
}

func (k *keeper) left() []proc {
	k.mu.Lock()
	defer k.mu.Unlock()
	self := os.Getpid()
	return family(processes(), func(p proc) bool { return p.ppid == self || k.groups[p.pgid] || k.groups[p.sid] })
}

// signal tells whether there was anything left.
func (k *keeper) signal(sig syscall.Signal) bool {
	left := k.left()
	for _, p := range left {
		_ = syscall.Kill(p.pid, sig) // gone is fine
	}
	return len(left) > 0
}

// fdReader reads a stream and keeps the descriptors that come along, in order.
type fdReader struct {
	conn *net.UnixConn
	fds  []uintptr
}

func (r *fdReader) Read(p []byte) (int, error) {
	oob := make([]byte, 256)
	n, oobn, _, _, err := r.conn.ReadMsgUnix(p, oob)
	messages, _ := syscall.ParseSocketControlMessage(oob[:max(0, oobn)]) // malformed: there will be too few
	for _, m := range messages {
		fds, _ := syscall.ParseUnixRights(&m)
		for _, fd := range fds {
			r.fds = append(r.fds, uintptr(fd))
		}
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(0, n), err
}

// take removes the first n descriptors, or fewer when fewer have come.
func (r *fdReader) take(n int) []uintptr {
	n = min(n, len(r.fds))
	fds := r.fds[:n:n]
	r.fds = r.fds[n:]
	return fds
}

// closeOnExec keeps the connection, and what the launcher of the proxy has left open, from the children.
func closeOnExec() {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		syscall.CloseOnExec(3)
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
