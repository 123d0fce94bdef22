package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/test/process"
)

const (
	pollInterval = 50 * time.Millisecond
	askTimeout   = 2 * time.Second
)

// state is a member's state from its metrics: the only source that is the same in every version, without a login and
// with an alarm raised.
type state struct {
	id        uint64
	hasLeader bool
	isLeader  bool
}

// waitReady waits until each of the members knows a leader.
func (c *Cluster) waitReady(t testing.TB, members []*Member) error {
	t.Helper()
	client := c.httpClient(t)
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(readyTimeout)
	for _, m := range members {
		for {
			err := ready(t.Context(), client, m)
			if err == nil {
				break
			}
			failed := c.gaveUp(m, deadline, err)
			if failed != nil {
				return failed
			}
			time.Sleep(pollInterval)
		}
	}
	return nil
}

// ready checks the log first: if another server has the port, it would answer in place of a member that is about to
// end.
func ready(ctx context.Context, client *http.Client, m *Member) error {
	if !m.process.Said("serving client traffic") {
		return errors.New("it does not serve clients yet")
	}
	s, err := askState(ctx, client, m)
	if err == nil && !s.hasLeader {
		return errors.New("it knows no leader")
	}
	return err
}

// gaveUp returns an error if it is useless to wait for a member any longer.
func (c *Cluster) gaveUp(m *Member, deadline time.Time, last error) error {
	if !m.running() {
		err := fmt.Errorf("%s ended: %v; its log:\n%s", m.Name, m.process.State(), process.Excerpt(m.LogFile))
		if m.process.Said("address already in use") {
			return errors.Join(syscall.EADDRINUSE, err)
		}
		return err
	}
	if time.Now().After(deadline) {
		return fmt.Errorf("%s is not ready after %v: %v; its log:\n%s", m.Name, readyTimeout, last, process.Excerpt(m.LogFile))
	}
	return nil
}

// Leader waits until exactly one running member reports that it leads, and returns its number.
func (c *Cluster) Leader(t testing.TB) int {
	t.Helper()
	leader, _ := c.leader(t)
	return leader
}

func (c *Cluster) leader(t testing.TB) (int, []state) {
	t.Helper()
	client := c.httpClient(t)
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); time.Sleep(pollInterval) {
		states := c.states(t.Context(), client)
		leader, ok := onlyLeader(states)
		if ok {
			return leader, states
		}
	}
	t.Fatalf("the cluster has no leader after %v", readyTimeout)
	return 0, nil
}

// states returns the state of every member, zero for one that does not answer.
func (c *Cluster) states(ctx context.Context, client *http.Client) []state {
	states := make([]state, len(c.Members))
	for i, m := range c.Members {
		if !m.running() || m.paused {
			continue
		}
		s, err := askState(ctx, client, m)
		if err == nil {
			states[i] = s
		}
	}
	return states
}

func onlyLeader(states []state) (leader int, ok bool) {
	leaders := 0
	for i, s := range states {
		if s.isLeader && s.hasLeader {
			leader = i
			leaders++
		}
	}
	return leader, leaders == 1
}

// MoveLeader makes member to the leader and waits until it reports that.
func (c *Cluster) MoveLeader(t testing.TB, to int) {
	t.Helper()
	from, states := c.leader(t)
	if from == to {
		return
	}
	client := c.Client(t, At(c.Members[from]))
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	_, err := client.MoveLeader(ctx, states[to].id)
	if err != nil {
		t.Fatalf("move the leader from %s to %s: %v", c.Members[from].Name, c.Members[to].Name, err)
	}
	for c.Leader(t) != to {
		if ctx.Err() != nil {
			t.Fatalf("%s does not lead after %v", c.Members[to].Name, readyTimeout)
		}
		time.Sleep(pollInterval)
	}
}

func (c *Cluster) httpClient(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	if c.options.TLS {
		transport.TLSClientConfig = c.Certificates.Config(t)
	}
	return &http.Client{Transport: transport, Timeout: askTimeout}
}

func askState(ctx context.Context, client *http.Client, m *Member) (state, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.ClientURL+"/metrics", nil)
	if err != nil {
		return state{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return state{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return state{}, fmt.Errorf("its metrics answer %s", response.Status)
	}
	return readState(response.Body)
}

func readState(metrics io.Reader) (state, error) {
	var s state
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch {
		case name == "etcd_server_has_leader":
			s.hasLeader = value == "1"
		case name == "etcd_server_is_leader":
			s.isLeader = value == "1"
		case strings.HasPrefix(name, "etcd_server_id{"):
			// etcd_server_id{server_id="8e9e05c52164694d"} 1
			_, quoted, _ := strings.Cut(name, `"`)
			hex, _, _ := strings.Cut(quoted, `"`)
			id, err := strconv.ParseUint(hex, 16, 64)
			if err != nil {
				return state{}, err
			}
			s.id = id
		}
	}
	return s, lines.Err()
}
