package upstream

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfPath is this program.
func selfPath() (string, error) { return os.Executable() }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func becomeSubreaper() {} // there is no such thing

const zombie = 5 // SZOMB of sys/proc.h

// processes are all that can be seen, without zombies.
func processes() []proc {
	infos, _ := unix.SysctlKinfoProcSlice("kern.proc.all") // none: the groups still get their signals
	var all []proc
	for i := range infos {
		if p, ok := fromKinfo(&infos[i]); ok {
			all = append(all, p)
		}
	}
	return all
}

// process is one by its id; false when it has ended.
func process(pid int) (proc, bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return proc{}, false
	}
	return fromKinfo(info)
}

func fromKinfo(k *unix.KinfoProc) (proc, bool) {
	pid := int(k.Proc.P_pid)
	sid, _ := unix.Getsid(pid) // 0 when it has ended meanwhile
	return proc{
		pid: pid, ppid: int(k.Eproc.Ppid), pgid: int(k.Eproc.Pgid), sid: sid,
		start: k.Proc.P_starttime.Nano(),
	}, k.Proc.P_stat != zombie
}
