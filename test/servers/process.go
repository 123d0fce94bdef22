package servers

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
)

// process is one running program whose output goes to a file.
type process struct {
	cmd      *exec.Cmd
	exited   chan struct{} // closed when it has been waited for
	log      string
	logStart int64 // where this run's part of the log begins
}

// startProcess appends the program's output to log, so that a restart keeps what was said before.
func startProcess(log, program string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Env = environment()
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = diesWithParent()
	if err := onStarterThread(cmd.Start); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{}), log: log, logStart: info.Size()}
	go func() {
		// How it ended is in cmd.ProcessState; a killed server is no error here.
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// environment leaves out ETCD_*: etcd reads its settings from there, and the machine's are not the test's.
func environment() []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "ETCD_") && !strings.HasPrefix(entry, "ETCDCTL_") {
			kept = append(kept, entry)
		}
	}
	return kept
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// end sends a signal and waits until the process is gone.
func (p *process) end(signal os.Signal) error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(signal); err != nil && p.running() {
		return fmt.Errorf("signal %v to process %d: %w", signal, p.cmd.Process.Pid, err)
	}
	<-p.exited
	return nil
}

// kill also ends a process that is stopped by SIGSTOP.
func (p *process) kill() error {
	return p.end(syscall.SIGKILL)
}

// onStarterThread runs start on one OS thread that lives as long as the test binary: the kernel sends the parent-death signal when the
// thread that started the child ends, and Go ends threads at will (golang/go#27505).
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

// said reports whether the process has written the words since it started.
func (p *process) said(words string) bool {
	data, err := os.ReadFile(p.log)
	return err == nil && int64(len(data)) >= p.logStart && bytes.Contains(data[p.logStart:], []byte(words))
}

// excerpt returns the beginning of a log, where a wrong flag is named, and its end.
func excerpt(path string) string {
	const first, last = 3, 20
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) > first+last {
		lines = slices.Concat(lines[:first], []string{"..."}, lines[len(lines)-last:])
	}
	return strings.Join(lines, "\n")
}
