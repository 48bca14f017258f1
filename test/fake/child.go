package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	scriptEnv = "FAKE_MCP_SCRIPT"
	idleEnv   = "FAKE_MCP_IDLE"
	scriptMax = 100_000 // Linux takes 128 KiB per variable
	// lifetime ends processes that a failed test has left behind.
	lifetime = 10 * time.Minute
)

// Child tells how to start the running test binary as a server over stdio. Its TestMain must call Main first.
func Child(script Script) (command string, args []string, env map[string]string) {
	command, err := os.Executable()
	if err != nil {
		panic(err)
	}
	b, err := json.Marshal(script)
	if err != nil {
		panic(err)
	}
	if len(b) > scriptMax {
		panic(fmt.Sprintf("fake: a script of %d bytes is too long for the environment; use Many or ToolsFile", len(b)))
	}
	return command, nil, map[string]string{scriptEnv: string(b)}
}

// Main is to be called first in TestMain. In a process that Child describes it serves and does not return.
func Main() {
	if how := os.Getenv(idleEnv); how != "" {
		if how == "stubborn" {
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		}
		time.Sleep(lifetime)
		os.Exit(0)
	}
	text, ok := os.LookupEnv(scriptEnv)
	if !ok {
		return
	}
	var script Script
	if err := json.Unmarshal([]byte(text), &script); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", scriptEnv, err)
		os.Exit(2)
	}
	time.AfterFunc(lifetime, func() { os.Exit(99) })
	if script.Stdio.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	}
	s := New(script)
	s.stderr = os.Stderr
	s.record(Record{Event: "start", PID: os.Getpid()})
	if script.Stdio.Grandchild != "" {
		s.bear()
	}
	code := 0
	var exit *ExitError
	if err := s.ServeStdio(os.Stdin, os.Stdout); errors.As(err, &exit) {
		code = exit.Code
	}
	s.record(Record{Event: "exit", PID: os.Getpid()})
	os.Exit(code)
}

// bear starts the grandchild.
func (s *Server) bear() {
	how := "meek"
	if s.script.Stdio.IgnoreTerm {
		how = "stubborn"
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), idleEnv+"="+how)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if s.script.Stdio.Grandchild == "setsid" {
		ownSession(cmd)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	s.record(Record{Event: "grandchild", PID: cmd.Process.Pid})
}
