package e2e

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// writing are clients that write their own keys, one after the other, and remember the acknowledged ones.
type writing struct {
	stop  context.CancelFunc
	group sync.WaitGroup
	mu    sync.Mutex
	acked map[string]int64 // revisions
}

// write runs two clients per member until end is called, so that a member that hangs does not stop the others. An
// unacknowledged write is not repeated: it may be there or not.
func write(t *testing.T, c *servers.Cluster) *writing {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writing{stop: stop, acked: map[string]int64{}}
	for n := range 2 * len(c.Members) {
		client := c.Client(t, servers.At(c.Members[n/2]))
		w.group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w.put(ctx, client, fmt.Sprintf("acked/%d/%06d", n, i))
			}
		})
	}
	t.Cleanup(w.end)
	return w
}

func (w *writing) put(ctx context.Context, client *clientv3.Client, key string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := client.Put(ctx, key, "x")
	if err != nil {
		return
	}
	w.mu.Lock()
	w.acked[key] = answer.Header.Revision
	w.mu.Unlock()
	time.Sleep(2 * time.Millisecond) // leaves CPU for the rest of the test
}

func (w *writing) end() {
	w.stop()
	w.group.Wait()
}

// more waits until n more writes were acknowledged.
func (w *writing) more(t *testing.T, n int) {
	t.Helper()
	count := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.acked) }
	begin := count()
	for deadline := time.Now().Add(patience); count() < begin+n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d writes in a minute, want %d", count()-begin, n)
		}
	}
}

// missing returns the acknowledged writes that are missing or different in the image.
func (w *writing) missing(image database.Image) map[string]int64 {
	w.mu.Lock()
	missing := maps.Clone(w.acked)
	w.mu.Unlock()
	for _, kv := range image.KVs {
		if missing[string(kv.Key)] == kv.ModRevision {
			delete(missing, string(kv.Key))
		}
	}
	return missing
}

// nothingLost ends the writing, and restores: every acknowledged write is there, and nothing that the cluster does not
// have.
func (w *writing) nothingLost(t *testing.T, j job, client *clientv3.Client, agents ...*agent.Agent) {
	t.Helper()
	w.end()
	newest := live(t, client, 0).Revision
	agent.CatchUp(t, agents...)
	got, _ := j.image(t)
	missing := w.missing(got)
	if got.Revision < newest || len(missing) > 0 {
		t.Errorf("restored at revision %d, it was %d before; of %d acknowledged writes are missing: %v",
			got.Revision, newest, len(w.acked), missing)
	}
	want := live(t, client, got.Revision) // an unacknowledged write may have come after the last one
	found := want.Differences(got)
	if len(found) > 0 {
		t.Errorf("live first, restored second: %q", found)
	}
}

// TestLogFrozenAgent freezes the working one of two agents for longer than its lease, during writes. The other takes
// over, and the first one resumes as if it still worked. The result is one log, whichever agent continues it: an agent
// that was frozen while it renewed its lease overwrites the other's lease when it resumes.
func TestLogFrozenAgent(t *testing.T) {
	withServers(t)
	fromEach(t, logFrozenAgent)
}

func logFrozenAgent(t *testing.T, j job) {
	source := servers.Start(t, servers.Options{Members: 3})
	client := source.Client(t)
	agents := []*agent.Agent{j.archiving(t, source, 0), j.archiving(t, source, 1)}
	j.firstWindow(t, client, agents...)
	w := write(t, source)
	for range 3 {
		w.more(t, 100)
		frozen := agent.Working(t, agents...)
		other := agents[1-frozen]
		agents[frozen].Pause(t)
		other.Until(t, "it takes over", func(s document.Agent) bool { return s.State == document.AgentWorking && s.StoredSegments > 0 })
		agent.CatchUp(t, other)
		agents[frozen].Resume(t)
		agent.Settled(t, agents...)
	}
	w.nothingLost(t, j, client, agents...)
	j.oneLog(t)
}

// TestLogKilledAgents kills an agent in the middle of its work; the next one continues, on the same member or another.
func TestLogKilledAgents(t *testing.T) {
	withServers(t)
	fromEach(t, logKilledAgents)
}

func logKilledAgents(t *testing.T, j job) {
	source := servers.Start(t, servers.Options{Members: 2})
	client := source.Client(t)
	a := j.archiving(t, source, 0)
	j.firstWindow(t, client, a)
	w := write(t, source)
	for n := range 4 {
		w.more(t, 60)
		a.Kill(t)
		a = j.archiving(t, source, (n+1)/2%2)
		agent.Working(t, a)
	}
	w.nothingLost(t, j, client, a)
	j.oneLog(t)
	a.Stop(t)
	j.oneLog(t)
}

// TestLogAmongFailures changes leaders, and kills, freezes and cuts off members, one of them with unacknowledged
// writes. Members get snapshots if etcd has not kept its log for them. Agents next to all three members make one log.
func TestLogAmongFailures(t *testing.T) {
	withServers(t)
	fromEach(t, logAmongFailures)
}

func logAmongFailures(t *testing.T, j job) {
	source := servers.Start(t, servers.Options{
		Members: 3, ExtraArgs: []string{"--snapshot-count", "100", "--snapshot-catchup-entries", "50"},
	})
	client := source.Client(t)
	var agents []*agent.Agent
	for i := range source.Members {
		agents = append(agents, j.archiving(t, source, i))
	}
	j.firstWindow(t, client, agents...)
	w := write(t, source)
	w.more(t, 100)
	source.MoveLeader(t, (source.Leader(t)+1)%3)
	w.more(t, 100)
	beside := agent.Working(t, agents...)
	source.Kill(t, beside)
	w.more(t, 100)
	source.Restart(t, beside)
	w.more(t, 100)
	agent.CatchUp(t, agents...) // one failure at a time: the agent that takes over has stored the log that the other could not
	beside = agent.Working(t, agents...)
	source.Pause(t, beside)
	w.more(t, 600)
	agent.CatchUp(t, agents...)
	source.Resume(t, beside)
	w.more(t, 100)
	agent.CatchUp(t, agents...)
	source.MoveLeader(t, agent.Working(t, agents...))
	cutOff(t, source, w)
	w.more(t, 100)
	w.nothingLost(t, j, client, agents...)
	got, _ := j.image(t)
	for _, kv := range got.KVs {
		if string(kv.Value) == "never" {
			t.Errorf("%s was never committed", kv.Key)
		}
	}
	j.oneLog(t)
}

// cutOff leaves the leader alone with writes that it can only add to its own log, while the others continue without it
// for longer than they keep their log.
func cutOff(t *testing.T, c *servers.Cluster, w *writing) {
	t.Helper()
	old := c.Leader(t)
	others := []int{(old + 1) % 3, (old + 2) % 3}
	for _, i := range others { // if they were only frozen, the writes would wait in their sockets
		c.Kill(t, i)
	}
	client := c.Client(t, servers.At(c.Members[old]))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var unacknowledged sync.WaitGroup
	for i := range 40 {
		unacknowledged.Go(func() {
			_, err := client.Put(ctx, fmt.Sprint("never/", i), "never")
			if err == nil {
				t.Errorf("write %d was acknowledged", i)
			}
		})
	}
	unacknowledged.Wait()
	c.Pause(t, old)
	c.Restart(t, others...)
	w.more(t, 1000)
	c.Resume(t, old)
}
