// Package agent runs a log archiver for tests, dr archive or dr serve, as a process that can be stopped, frozen and
// killed.
package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/process"
)

const (
	waitTimeout  = 3 * time.Minute // far beyond the time of any step
	pollInterval = 50 * time.Millisecond
)

// Agent is one running dr archive, or a dr serve that archives one cluster's log.
type Agent struct {
	*command.Service
	status func(*command.Service) (document.Agent, error)
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
	return Run(t, env, append(first, args...)...)
}

// Run starts dr archive with exactly these arguments, the verb included, and an address of its own to listen at.
func Run(t testing.TB, env []string, args ...string) *Agent {
	t.Helper()
	return &Agent{command.Listen(t, env, args...), alone}
}

func alone(s *command.Service) (document.Agent, error) {
	var status document.ArchiveStatus
	err := s.DecodeStatus(&status)
	return status.Agent, err
}

// Serve starts dr serve with a configuration of one cluster, whose log it archives.
func Serve(t testing.TB, env []string, config string) *Agent {
	t.Helper()
	return &Agent{command.Serve(t, env, config), served}
}

func served(s *command.Service) (document.Agent, error) {
	var status document.ServeStatus
	err := s.DecodeStatus(&status)
	if err != nil {
		return document.Agent{}, err
	}
	if len(status.Clusters) != 1 || status.Clusters[0].Archive == nil {
		return document.Agent{}, errors.New("it does not archive")
	}
	return *status.Clusters[0].Archive, nil
}

// Status returns the agent's status, over HTTP.
func (a *Agent) Status() (document.Agent, error) { return a.status(a.Service) }

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
			running += btoi(a.Running())
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

// Pause freezes the agent: it keeps its connections and files, and does nothing.
func (a *Agent) Pause(t testing.TB) {
	t.Helper()
	err := process.Freeze(a.PID())
	if err != nil {
		t.Fatal(err)
	}
}

// Resume lets a paused agent continue.
func (a *Agent) Resume(t testing.TB) { t.Helper(); a.Signal(t, syscall.SIGCONT) }
