package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcpproxy/mcpproxy/configs"
	"github.com/mcpproxy/mcpproxy/jsonrpc"
)

func init() {
	// runaway is a server with a stubborn worker that has left its group and session.
	roles["runaway"] = func() { startDetached(); scripted() }
	// launcher starts such a worker through a process that has ended already.
	roles["launcher"] = func() {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "TEST_ROLE=detach")
		if err := c.Run(); err != nil {
			panic(err)
		}
		scripted()
	}
	roles["detach"] = startDetached
	roles["proxy"] = func() {
		for _, role := range strings.Fields(os.Getenv("TEST_SERVERS")) {
			s := spec(role, "TEST_MARK="+os.Getenv("TEST_MARK"))
			w, err := dialStdio(context.Background(), s, func(jsonrpc.Message, int64) {}, slog.New(slog.DiscardHandler))
			if err != nil {
				panic(err)
			}
			for id, method := range []string{"echo", os.Getenv("TEST_THEN")} {
				if method != "" {
					if _, err := w.request(context.Background(), message(int64(id), method, "0")); err != nil {
						panic(err)
					}
				}
			}
		}
		fmt.Println("keeper", keeperPID(os.Getpid()))
		if os.Getenv("TEST_RETURN") == "" {
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
	}
}

func startDetached() {
	startWorker(func(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} })
}

func keeperPID(of int) int {
	for _, p := range processes() {
		if cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); p.ppid == of && string(cmdline) == "mcp-keeper\x00" {
			return p.pid
		}
	}
	return 0
}

// marked are the processes whose environment has TEST_MARK=mark, with their roles.
func marked(mark string) map[int]string {
	found := map[int]string{}
	for _, p := range processes() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if err != nil || !bytes.Contains(env, []byte("TEST_MARK="+mark+"\x00")) {
			continue
		}
		_, role, _ := strings.Cut(string(env), "TEST_ROLE=")
		found[p.pid], _, _ = strings.Cut(role, "\x00")
	}
	return found
}

// noneLeft fails when something with the mark is left after a while.
func noneLeft(t *testing.T, mark string) {
	t.Helper()
	for end := time.Now().Add(eventually); ; time.Sleep(5 * time.Millisecond) {
		left := marked(mark)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			for pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			t.Fatalf("left: %v", left)
		}
	}
}

func TestNothingSurvivesTheProxy(t *testing.T) {
	for _, tt := range []struct {
		name, servers, then string
		end                 func(p *exec.Cmd, keeper int)
		want                []string // roles that run before
	}{
		{
			name: "killed", servers: "scripted stubborn runaway launcher", then: "",
			end:  func(p *exec.Cmd, _ int) { _ = p.Process.Kill() },
			want: []string{"launcher", "proxy", "runaway", "scripted", "stubborn", "worker", "worker"},
		},
		{
			name: "killed with workers in the groups", servers: "scripted stubborn", then: "spawn",
			end:  func(p *exec.Cmd, _ int) { _ = p.Process.Kill() },
			want: []string{"proxy", "scripted", "stubborn", "worker", "worker"},
		},
		{
			name: "killed together with the keeper", servers: "scripted stubborn", then: "",
			end: func(p *exec.Cmd, keeper int) {
				_ = p.Process.Signal(syscall.SIGSTOP)
				_ = syscall.Kill(keeper, syscall.SIGKILL)
				_ = p.Process.Kill()
			},
			want: []string{"proxy", "scripted", "stubborn"},
		},
		{
			name: "returns without closing", servers: "scripted stubborn runaway", then: "",
			end:  func(p *exec.Cmd, _ int) {},
			want: nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mark := fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
			p := exec.Command(os.Args[0])
			p.Env = append(os.Environ(), "TEST_ROLE=proxy", "TEST_MARK="+mark, "TEST_THEN="+tt.then, "TEST_SERVERS="+tt.servers)
			if tt.want == nil {
				p.Env = append(p.Env, "TEST_RETURN=1")
			}
			p.Stderr = os.Stderr
			stdin, err := p.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			stdout, err := p.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			var keeper int
			if _, err := fmt.Fscanf(bufio.NewReader(stdout), "keeper %d\n", &keeper); err != nil || keeper == 0 {
				t.Fatalf("the proxy said %v, keeper %d", err, keeper)
			}
			keeperProc, _ := process(keeper)
			if tt.want != nil {
				var got []string
				for _, role := range marked(mark) {
					got = append(got, role)
				}
				slices.Sort(got)
				if !slices.Equal(got, tt.want) {
					t.Errorf("before: got %v, want %v", got, tt.want)
				}
			}
			tt.end(p, keeper)
			_ = p.Wait()
			noneLeft(t, mark)
			for end := time.Now().Add(eventually); ; time.Sleep(5 * time.Millisecond) {
				if k, ok := process(keeper); !ok || k.start != keeperProc.start {
					return
				}
				if time.Now().After(end) {
					t.Fatal("the keeper is left")
				}
			}
		})
	}
}

func TestCloseReachesWhatLeftTheGroup(t *testing.T) {
	mark := fmt.Sprint(time.Now().UnixNano())
	w := start(t, spec("runaway", "TEST_MARK="+mark), impatient, nil)
	ask(t, w, 1, "echo", "1")
	if got := marked(mark); len(got) != 2 {
		t.Fatalf("before: got %v, want a runaway and a worker", got)
	}
	if err := w.close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := marked(mark); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestDeathOfTheKeeper(t *testing.T) {
	w := start(t, spec("scripted"), impatient, nil)
	ask(t, w, 1, "spawn", "0")
	theLink.Lock()
	l := theLink.link
	theLink.Unlock()
	_ = syscall.Kill(keeperPID(os.Getpid()), syscall.SIGKILL)
	waitFor(t, w.done(), "the end of the wire")
	waitFor(t, w.gone, "the end of the worker")
	for end := time.Now().Add(eventually); !l.isDead(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the link lives on")
		}
	}
	ask(t, start(t, spec("scripted"), impatient, nil), 1, "echo", "1")
}

func TestStartIsBoundByItsContext(t *testing.T) {
	mark := fmt.Sprint(time.Now().UnixNano())
	ask(t, start(t, spec("scripted"), impatient, nil), 1, "echo", "1") // so that there is a keeper
	keeper := keeperPID(os.Getpid())
	_ = syscall.Kill(keeper, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := dialStdio(ctx, spec("scripted", "TEST_MARK="+mark), nil, slog.New(slog.DiscardHandler))
	_ = syscall.Kill(keeper, syscall.SIGCONT)
	var failed *startError
	if !errors.As(err, &failed) || failed.stage != Spawn || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a spawn error by the deadline", err)
	}
	ask(t, start(t, spec("scripted"), impatient, nil), 1, "echo", "1") // orders are done in order
	noneLeft(t, mark)
}

func TestChildHasNoTerminalAndOnlyItsPipes(t *testing.T) {
	w := start(t, spec("scripted"), impatient, nil)
	ask(t, w, 1, "echo", "1")
	p, _ := process(w.child.pid)
	if p.pgid != p.pid || p.sid != p.pid {
		t.Errorf("got group %d, session %d of %d, want its own", p.pgid, p.sid, p.pid)
	}
	for fd := range 3 {
		flags, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", w.child.pid, fd))
		if err != nil {
			t.Fatal(err)
		}
		_, octal, _ := strings.Cut(string(flags), "flags:\t")
		n, _ := strconv.ParseInt(strings.Fields(octal)[0], 8, 64)
		if n&syscall.O_NONBLOCK != 0 {
			t.Errorf("descriptor %d is non-blocking, which programs don't expect", fd)
		}
	}
	ready := make(chan struct{})
	cat := start(t, &configs.Server{ID: "cat", Command: "cat"}, impatient, func(jsonrpc.Message, int64) { close(ready) })
	if err := cat.send(t.Context(), []byte(`{"method":"x"}`)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, ready, "the echo") // it has opened and closed what it needs to start
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", cat.child.pid))
	if err != nil || len(fds) != 3 {
		t.Errorf("got %v, %v, want three descriptors", fds, err)
	}
}

func TestStartAndCloseLeaveNothing(t *testing.T) {
	count := func() (goroutines, ours, keepers int) {
		fds := func(pid string) int {
			names, _ := filepath.Glob("/proc/" + pid + "/fd/*")
			return len(names)
		}
		return runtime.NumGoroutine(), fds("self"), fds(strconv.Itoa(keeperPID(os.Getpid())))
	}
	s := &configs.Server{ID: "cat", Command: "cat"}
	cycle := func() {
		got := make(chan string, 1)
		w, err := dialStdio(t.Context(), s, func(m jsonrpc.Message, _ int64) { got <- m.Method }, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.send(t.Context(), []byte(`{"method":"x"}`)); err != nil {
			t.Fatal(err)
		}
		if m := <-got; m != "x" {
			t.Fatalf("got %q, want x", m)
		}
		if err := w.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	goroutines, ours, keepers := count()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 125 {
				cycle()
			}
		})
	}
	all.Wait()
	for end := time.Now().Add(eventually); ; time.Sleep(5 * time.Millisecond) {
		g, o, k := count()
		if g <= goroutines && o <= ours && k <= keepers {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines %d, then %d; descriptors %d, then %d; the keeper's %d, then %d", goroutines, g, ours, o, keepers, k)
		}
	}
	theLink.mu.Lock()
	defer theLink.mu.Unlock()
	if n := len(theLink.children); n != 0 {
		t.Errorf("the link still knows %d children", n)
	}
}
