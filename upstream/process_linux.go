package upstream

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfPath is this program, also when its file was replaced or removed.
func selfPath() (string, error) { return "/proc/self/exe", nil }

func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // since Linux 3.4

// processes are all that can be seen, without zombies.
func processes() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []proc
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := process(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// process is one by its id; false when it has ended.
func process(pid int) (proc, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	// pid (name) state ppid pgrp session … starttime as the 22nd; the name may hold anything
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return proc{}, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	return proc{pid: pid, ppid: number(1), pgid: number(2), sid: number(3), start: int64(number(19))}, true
}
