// Package agent runs a log archiver for tests, dr archive or dr serve, as a process that can be stopped, frozen and
// killed.
package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

const (
	waitTimeout  = 3 * time.Minute // far beyond the time of any step
	askTimeout   = time.Second
	pollInterval = 50 * time.Millisecond
)

// Agent is one running dr archive, or a dr serve that archives one cluster's log. It is killed when the test ends. If
// the test failed, the end of its output is shown.
type Agent struct {
	cmd    *exec.Cmd
	url    string
	log    string
	decode func(status []byte) (document.Agent, error)
	ended  chan struct{} // closed after Wait
}

// Start starts dr archive next to the member with the given data dir, or with a watch if dataDir is "". args configure
// the access. Flush and lease are faster than the defaults, unless args set them.
func Start(t testing.TB, env []string, dataDir string, args ...string) *Agent {
	t.Helper()
	first := []string{"archive", "--flush", "200ms", "--lease", "2s"}
	if dataDir == "" {
		first = append(first, "--source", "watch")
	} else {
		first = append(first, "--data-dir", dataDir)
	}
	return start(t, env, alone, append(first, args...)...)
}

func alone(status []byte) (document.Agent, error) {
	var s document.ArchiveStatus
	err := json.Unmarshal(status, &s)
	return s.Agent, err
}

// Serve starts dr serve with a configuration of one cluster, whose log it archives.
func Serve(t testing.TB, env []string, config string) *Agent {
	t.Helper()
	return start(t, env, served, "serve", "--config", config)
}

func served(status []byte) (document.Agent, error) {
	var s document.ServeStatus
	err := json.Unmarshal(status, &s)
	if err != nil {
		return document.Agent{}, err
	}
	if len(s.Clusters) != 1 || s.Clusters[0].Archive == nil {
		return document.Agent{}, errors.New("it does not archive")
	}
	return *s.Clusters[0].Archive, nil
}

func start(t testing.TB, env []string, decode func([]byte) (document.Agent, error), args ...string) *Agent {
	t.Helper()
	url := servers.FreeURLs(t, 1)[0]
	a := &Agent{url: url, log: filepath.Join(t.TempDir(), "agent.log"), decode: decode, ended: make(chan struct{})}
	a.cmd = command.Command(t, env, append(args, "--listen", strings.TrimPrefix(url, "http://"))...)
	out, err := os.Create(a.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	a.cmd.Stdout, a.cmd.Stderr = out, out
	err = a.cmd.Start()
	if err != nil {
		t.Fatalf("start dr %s: %v", args[0], err)
	}
	go func() {
		_ = a.cmd.Wait() // cmd.ProcessState has the result
		close(a.ended)
	}()
	t.Cleanup(func() { a.cleanUp(t) })
	return a
}

func (a *Agent) cleanUp(t testing.TB) {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.ended
	if t.Failed() {
		t.Logf("what dr at %s said:\n%s", a.url, a.Said())
	}
}

// Said returns everything that the agent has written to its outputs.
func (a *Agent) Said() string {
	said, err := os.ReadFile(a.log)
	if err != nil {
		return err.Error()
	}
	return string(said)
}

// PID returns the agent's process id.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Status returns the agent's status, over HTTP.
func (a *Agent) Status() (document.Agent, error) {
	client := http.Client{Timeout: askTimeout}
	defer client.CloseIdleConnections()
	response, err := client.Get(a.url + "/status")
	if err != nil {
		return document.Agent{}, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusTooManyRequests { // a service limits the requests per second
		time.Sleep(pollInterval)
		return a.Status()
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return document.Agent{}, err
	}
	s, err := a.decode(body)
	if err != nil {
		return document.Agent{}, fmt.Errorf("%s: %w", response.Status, err)
	}
	return s, nil
}

// Get returns the status code of the agent's answer at a path.
func (a *Agent) Get(t testing.TB, path string) int {
	t.Helper()
	client := http.Client{Timeout: waitTimeout}
	defer client.CloseIdleConnections()
	response, err := client.Get(a.url + path)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// Until waits until wanted accepts the agent's status, and returns it.
func (a *Agent) Until(t testing.TB, what string, wanted func(document.Agent) bool) document.Agent {
	t.Helper()
	_, s := anyUntil(t, what, wanted, a)
	return s
}

// CatchUp waits until one of the agents reports that every write acknowledged before now is stored.
func CatchUp(t testing.TB, agents ...*Agent) {
	t.Helper()
	now := time.Now()
	anyUntil(t, "all is stored", func(s document.Agent) bool { return s.ConfirmedAt.After(now) }, agents...)
}

// Working waits until one of the agents works and returns its number.
func Working(t testing.TB, agents ...*Agent) int {
	t.Helper()
	n, _ := anyUntil(t, "one works", func(s document.Agent) bool { return s.State == document.AgentWorking }, agents...)
	return n
}

// Settled waits until one of the agents works and all others stand by.
func Settled(t testing.TB, agents ...*Agent) {
	t.Helper()
	until(t, "one works and the others stand by", func(said []*document.Agent) bool {
		working, standing := 0, 0
		for _, s := range said {
			working += btoi(s != nil && s.State == document.AgentWorking)
			standing += btoi(s != nil && s.State == document.AgentStandby)
		}
		return working == 1 && working+standing == len(agents)
	}, agents...)
}

// anyUntil waits until wanted accepts the status of one of the agents.
func anyUntil(t testing.TB, what string, wanted func(document.Agent) bool, agents ...*Agent) (n int, s document.Agent) {
	t.Helper()
	until(t, what, func(said []*document.Agent) bool {
		n = slices.IndexFunc(said, func(s *document.Agent) bool { return s != nil && wanted(*s) })
		if n >= 0 {
			s = *said[n]
		}
		return n >= 0
	}, agents...)
	return n, s
}

// until waits until wanted accepts the statuses of all agents, nil for one that does not answer. It fails early when
// all have ended.
func until(t testing.TB, what string, wanted func(said []*document.Agent) bool, agents ...*Agent) {
	t.Helper()
	for deadline := time.Now().Add(waitTimeout); ; time.Sleep(pollInterval) {
		var running int
		var said []*document.Agent
		var last []string
		for _, a := range agents {
			running += btoi(a.running())
			s, err := a.Status()
			answer := &s
			if err != nil {
				answer = nil
			}
			said = append(said, answer)
			last = append(last, fmt.Sprintf("%+v, %v", s, err))
		}
		if wanted(said) {
			return
		}
		if running == 0 || time.Now().After(deadline) {
			t.Fatalf("waited for: %s; %d of %d agents run; they said last:\n%s", what, running, len(agents), strings.Join(last, "\n"))
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *Agent) running() bool {
	select {
	case <-a.ended:
		return false
	default:
		return true
	}
}

// Pause freezes the agent: it keeps its connections and files, and does nothing.
func (a *Agent) Pause(t testing.TB) {
	t.Helper()
	err := process.Freeze(a.PID())
	if err != nil {
		t.Fatal(err)
	}
}

// Resume lets a paused agent continue.
func (a *Agent) Resume(t testing.TB) { t.Helper(); a.signal(t, syscall.SIGCONT) }

// Kill ends the agent as a crash would, and waits for its end.
func (a *Agent) Kill(t testing.TB) {
	t.Helper()
	a.signal(t, syscall.SIGKILL)
	<-a.ended
}

// Stop ends the agent with SIGTERM, so that it stores the log it has read. The test fails unless the exit code is that
// of an interrupted command.
func (a *Agent) Stop(t testing.TB) {
	t.Helper()
	a.signal(t, syscall.SIGTERM)
	<-a.ended
	code := a.cmd.ProcessState.ExitCode()
	if code != 0 {
		t.Errorf("dr was stopped, exit code %d:\n%s", code, a.Said())
	}
}

// Wait waits until the agent has ended by itself, and returns its exit code.
func (a *Agent) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-a.ended:
	case <-time.After(waitTimeout):
		t.Fatalf("dr still runs:\n%s", a.Said())
	}
	return a.cmd.ProcessState.ExitCode()
}

func (a *Agent) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	err := a.cmd.Process.Signal(signal)
	if err != nil {
		t.Fatalf("signal %v to dr: %v", signal, err)
	}
}
