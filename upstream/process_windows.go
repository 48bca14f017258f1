package upstream

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// WatchOrphans has nothing to do here: jobs end their processes when the proxy is gone, however it went.
func WatchOrphans() {}

// child is a started process in a job of its own, together with all that it starts. exited and code may be used from
// anywhere, the methods by one goroutine.
type child struct {
	pid    int
	exited chan struct{} // closed when the process itself has ended
	code   int           // after that: its exit code
	job    windows.Handle
}

// startChild starts a program in a job that ends with its last handle, which is ours. The files are the child's stdin,
// stdout and stderr; the caller keeps its own copies and closes them. A process that the child starts in the instant
// before it is in the job stays out of it.
func startChild(_ context.Context, c command, files ...*os.File) (*child, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create a job: %w", err)
	}
	limits := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
		LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
	}}
	if _, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		_ = windows.CloseHandle(job)
		return nil, fmt.Errorf("set up a job: %w", err)
	}
	cmd := &exec.Cmd{
		Path: c.path, Args: c.args, Env: c.env, Dir: c.dir, Stdin: files[0], Stdout: files[1], Stderr: files[2],
		SysProcAttr: &syscall.SysProcAttr{
			CmdLine: c.line, HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW,
		},
	}
	if err = cmd.Start(); err != nil {
		_ = windows.CloseHandle(job)
		return nil, err
	}
	assign := func(process uintptr) { err = windows.AssignProcessToJobObject(job, windows.Handle(process)) }
	if herr := cmd.Process.WithHandle(assign); herr != nil {
		err = herr
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = windows.CloseHandle(job)
		return nil, fmt.Errorf("put the process into a job: %w", err)
	}
	ch := &child{pid: cmd.Process.Pid, exited: make(chan struct{}), job: job}
	go func() { // ends with the process
		_ = cmd.Wait() // its exit code says it all
		ch.code = cmd.ProcessState.ExitCode()
		close(ch.exited)
	}()
	return ch, nil
}

// look has nothing to find: no process leaves its job.
func (c *child) look() {}

// term tells that there is no way to ask a process without a window or console.
func (c *child) term() bool { return false }

func (c *child) kill() { _ = windows.TerminateJobObject(c.job, 1) }

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	times                             [4]int64
	faults, total, active, terminated uint32
}

func (c *child) alive() bool {
	var a accounting
	err := windows.QueryInformationJobObject(c.job, 1, uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
	return err == nil && a.active > 0
}

// release is called when nothing is left.
func (c *child) release() { _ = windows.CloseHandle(c.job) }

func signalName(code int) string { return fmt.Sprint(-code) } // there are no signals

func loginPath([]string) string { return "" } // there are no login shells
