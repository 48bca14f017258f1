//go:build unix

package fake_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/mcpproxy/mcpproxy/test/fake"
)

func TestStubbornChild(t *testing.T) {
	for _, how := range []string{"group", "setsid"} {
		t.Run(how, func(t *testing.T) {
			cmd, in, _, _, file := child(t, fake.Script{Stdio: fake.Stdio{IgnoreEOF: true, IgnoreTerm: true, Grandchild: how}})
			in.Close()
			records, err := fake.WaitRecords(deadline(t), file, func(r []fake.Record) bool {
				return slices.ContainsFunc(r, func(r fake.Record) bool { return r.Event == "eof" })
			})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(records, func(r fake.Record) bool { return r.Event == "grandchild" })
			if i < 0 {
				t.Fatalf("no grandchild in %+v", records)
			}
			grandchild := records[i].PID
			t.Cleanup(func() { _ = syscall.Kill(grandchild, syscall.SIGKILL) })
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for _, pid := range []int{cmd.Process.Pid, grandchild} {
				if err := syscall.Kill(pid, 0); err != nil {
					t.Errorf("process %d: %v, want it alive", pid, err)
				}
			}
			parent, err := syscall.Getpgid(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			group, err := syscall.Getpgid(grandchild)
			if err != nil {
				t.Fatal(err)
			}
			if same := group == parent; same != (how == "group") {
				t.Errorf("grandchild in group %d, child in %d", group, parent)
			}
		})
	}
}
