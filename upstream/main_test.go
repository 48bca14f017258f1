package upstream

import (
	"fmt"
	"os"
	"testing"
)

// roles are what this binary plays when a test starts it as a child process with TEST_ROLE in its environment. Test files
// add theirs in an init function.
var roles = map[string]func(){}

func TestMain(m *testing.M) {
	WatchOrphans()
	if name := os.Getenv("TEST_ROLE"); name != "" {
		role, ok := roles[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such role:", name)
			os.Exit(2)
		}
		role()
		os.Exit(0)
	}
	os.Exit(m.Run())
}
