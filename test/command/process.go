package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/test/process"
)

// maxRun is far beyond the time of any command in a test: dr is killed then, and the test fails.
const maxRun = 15 * time.Minute

// Process is one running dr, in its own process group, which is killed when the test ends. Its output must be read, by Wait at the latest.
type Process struct {
	cmd            *exec.Cmd
	lines          *bufio.Reader
	stdout, stderr bytes.Buffer
	stage          string // of the last event read
	limit          *time.Timer
	hung           atomic.Bool // killed by limit
	waited         atomic.Bool // Wait was called
}

// Start starts dr as Run does.
func Start(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: prepare(t, env, args...)}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewReader(out)
	err = process.StartGroup(p.cmd)
	if err != nil {
		t.Fatalf("start dr %s: %v", strings.Join(args, " "), err)
	}
	p.limit = time.AfterFunc(maxRun, func() {
		p.hung.Store(true)
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // it may have ended
	})
	t.Cleanup(func() {
		if !p.waited.Load() {
			p.limit.Stop()
			_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // all may have ended
			_ = p.cmd.Wait()                            // the test did not ask for its result
		}
	})
	return p
}

// PID returns the process id, which is also the id of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Line returns the next line on stdout, and false after the last one.
func (p *Process) Line() ([]byte, bool) {
	text, _ := p.lines.ReadBytes('\n') // the end of stdout is the only error
	p.stdout.Write(text)
	return text, len(text) > 0
}

// Next returns the next event of a dr with -o json, and false after the last one.
func (p *Process) Next() (storage.Event, bool) {
	for text, ok := p.Line(); ok; text, ok = p.Line() {
		var line document.Line
		if bytes.HasPrefix(text, []byte(`{"event":`)) && json.Unmarshal(text, &line) == nil {
			p.stage = line.Event.Stage
			return *line.Event, true
		}
	}
	return storage.Event{}, false
}

// Until reads to the nth event of a stage. It returns false if dr ended before.
func (p *Process) Until(n int, stage string) bool {
	for n > 0 {
		event, ok := p.Next()
		if !ok {
			return false
		}
		if event.Stage == stage {
			n--
		}
	}
	return true
}

// Signal sends a signal to dr, which may have ended.
func (p *Process) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	err := p.cmd.Process.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
}

// Wait reads the rest of the output, and waits for the end. It fails the test if dr had to be killed at maxRun.
func (p *Process) Wait(t testing.TB) Output {
	t.Helper()
	for more := true; more; {
		_, more = p.Next()
	}
	p.waited.Store(true)
	err := p.cmd.Wait()
	p.limit.Stop()
	_, exited := errors.AsType[*exec.ExitError](err)
	if err != nil && !exited {
		t.Fatalf("run dr %s: %v", strings.Join(p.cmd.Args[1:], " "), err)
	}
	out := Output{p.cmd.Args[1:], p.stdout.String(), p.stderr.String(), p.cmd.ProcessState.ExitCode(), p.stage}
	if p.hung.Load() {
		t.Fatalf("dr hung: killed after %v\n%s", maxRun, out)
	}
	return out
}
