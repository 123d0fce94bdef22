// Package process runs servers for tests as child processes that cannot outlive the test binary.
package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is one running program whose output goes to a file. Its methods may be called by several goroutines at once.
type Process struct {
	cmd      *exec.Cmd
	exited   chan struct{} // closed after Wait
	log      string
	logStart int64 // where this run's part of the log begins
}

// Start runs the command and appends its output to the file log, so that a restart keeps the earlier output. The kernel
// kills the program when the test binary ends for any reason (on Linux).
func Start(log string, cmd *exec.Cmd) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = diesWithParent()
	err = onStarterThread(cmd.Start)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, exited: make(chan struct{}), log: log, logStart: info.Size()}
	go func() {
		// cmd.ProcessState has the result; a killed server is no error here.
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// StartGroup starts the command in its own process group. The kernel kills the program, not its children, when the test
// binary ends for any reason (on Linux).
func StartGroup(cmd *exec.Cmd) error {
	cmd.SysProcAttr = diesWithParent()
	cmd.SysProcAttr.Setpgid = true
	return onStarterThread(cmd.Start)
}

// Environment returns the environment without the variables that have one of these prefixes: a program reads its
// settings there, and the machine's are not the test's.
func Environment(without ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return slices.ContainsFunc(without, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
	})
}

// ID returns the process id, also after the end.
func (p *Process) ID() int {
	return p.cmd.Process.Pid
}

// Running reports whether the program has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// State returns in words how the program ended, or that it runs.
func (p *Process) State() string {
	if p.Running() {
		return "running"
	}
	return p.cmd.ProcessState.String()
}

// Signal sends a signal without waiting.
func (p *Process) Signal(signal os.Signal) error {
	return p.cmd.Process.Signal(signal)
}

// End sends a signal and waits until the process is gone.
func (p *Process) End(signal os.Signal) error {
	if !p.Running() {
		return nil
	}
	err := p.Signal(signal)
	if err != nil && p.Running() {
		return fmt.Errorf("signal %v to process %d: %w", signal, p.ID(), err)
	}
	<-p.exited
	return nil
}

// Wait waits for the end, at most for the timeout, and returns the exit code: -1 after a signal. It returns false if the
// program still runs.
func (p *Process) Wait(timeout time.Duration) (code int, ended bool) {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), true
	case <-time.After(timeout):
		return 0, false
	}
}

// Kill also ends a process that is stopped by SIGSTOP.
func (p *Process) Kill() error {
	return p.End(syscall.SIGKILL)
}

// Said reports whether the process has written the words since it started.
func (p *Process) Said(words string) bool {
	data, err := os.ReadFile(p.log)
	return err == nil && int64(len(data)) >= p.logStart && bytes.Contains(data[p.logStart:], []byte(words))
}

// onStarterThread runs start on one OS thread that lives as long as the test binary: the kernel sends the parent-death
// signal when the thread that started the child ends, and Go ends threads at any time (golang/go#27505).
func onStarterThread(start func() error) error {
	result := make(chan error)
	starter() <- func() { result <- start() }
	return <-result
}

var starter = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// Excerpt returns the beginning of a log, where a wrong flag is named, and its end.
func Excerpt(log string) string {
	const first, last = 3, 20
	data, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) > first+last {
		lines = slices.Concat(lines[:first], []string{"..."}, lines[len(lines)-last:])
	}
	return strings.Join(lines, "\n")
}
