package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// TestLogPurgedMeanwhile stops an agent for so long that the member has purged files that it had not read. The gap is
// listed, with its width; a new backup opens a new window; a point in the gap is refused with the nearest point.
func TestLogPurgedMeanwhile(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{
		ExtraArgs: []string{"--max-wals=1", "--max-snapshots=1", "--snapshot-count=100"},
	})
	client := source.Client(t)
	j := newJob(t)
	a := j.archiving(t, source, 0)
	j.firstWindow(t, client, a)
	putKeys(t, client, "before/", 30)
	agent.CatchUp(t, a)
	a.Stop(t)
	before := live(t, client, 0)

	oldest := logFiles(t, source)[0]
	for n := 0; len(logFiles(t, source)) < 3; n++ {
		put(t, client, fmt.Sprint("large/", n%5), fmt.Sprint(n, strings.Repeat("x", 1<<20)))
	}
	inside := live(t, client, 0).Revision
	at := time.Now()
	putKeys(t, client, "after/", 200) // so that etcd saves a snapshot, and purges the files before it
	for deadline := time.Now().Add(patience); exists(oldest); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not purged", oldest)
		}
	}
	a = j.archiving(t, source, 0)
	// A backup's requests go through raft too, so it is in a window only when the log has a request after them.
	j.untilListed(t, "the backup behind the gap", func(l document.List) bool { return len(l.Backups) == 2 })
	putKeys(t, client, "again/", 30)
	agent.CatchUp(t, a)
	list := j.untilWindows(t, 2)

	if len(list.Gaps) != 1 || len(list.Backups) != 2 {
		t.Fatalf("gaps %+v, %d backups", list.Gaps, len(list.Backups))
	}
	g := list.Gaps[0]
	if g.From != list.Windows[0].To.Position+1 || g.To <= g.From || g.Positions != g.To-g.From+1 || g.Seconds <= 0 || g.Reason == "" {
		t.Errorf("the gap %+v behind the window %+v", g, list.Windows[0])
	}
	j.wantRestored(t, live(t, client, 0))
	j.wantRestored(t, before, "--to-revision", fmt.Sprint(before.Revision))
	nearest := fmt.Sprintf("the nearest restorable point is revision %d ", before.Revision)
	j.wantRefused(t, 3, nearest, "--to-revision", fmt.Sprint(inside))
	j.wantRefused(t, 3, nearest, "--to", at.Format(time.RFC3339Nano))
	j.wantRestored(t, before, "--to-revision", fmt.Sprint(inside), "--best")
	j.wantRestored(t, before, "--to", at.Format(time.RFC3339Nano), "--best")
	v := j.verifyLog(t, 3)
	if len(v.Gaps) != 1 || len(v.Missing)+len(v.Damaged) > 0 {
		t.Errorf("dr archive verify: %+v", v)
	}
	known := g.Until.Add(time.Millisecond).Format(time.RFC3339Nano)
	v = j.verifyLog(t, 0, "--since", known)
	if v.Found == 0 || len(v.Gaps) != 0 {
		t.Errorf("dr archive verify --since the end of the gap: %+v", v)
	}
}

func putKeys(t *testing.T, client *clientv3.Client, prefix string, n int) {
	t.Helper()
	for i := range n {
		put(t, client, fmt.Sprint(prefix, i), "x")
	}
}

// logFiles returns those of the first member's log, oldest first.
func logFiles(t *testing.T, c *servers.Cluster) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.Members[0].DataDir, "member", "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	return files
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// forked checks that there are two lineages after a fork of the history. Both are complete, and the new one has nothing
// of the old one after the fork.
func (j job) forked(t *testing.T, a *agent.Agent, client *clientv3.Client, old database.Image, oldLineage string) {
	t.Helper()
	// The agent may have started only after the last of the test's writes: its backup is then in no window until the
	// next.
	list := j.untilListed(t, "two windows", func(l document.List) bool {
		put(t, client, "next/", fmt.Sprint(len(l.Windows)))
		return len(l.Windows) == 2
	})
	agent.CatchUp(t, a)
	n := len(j.lineages(t))
	if n != 2 || len(list.Gaps) != 1 || list.Gaps[0].Lineage != oldLineage || list.Gaps[0].NextLineage == oldLineage {
		t.Errorf("%d lineages, gaps %+v", n, list.Gaps)
	}
	newest := live(t, client, 0)
	for _, kv := range newest.KVs {
		if strings.HasPrefix(string(kv.Key), "lost/") {
			t.Fatalf("the fork has not lost %s", kv.Key)
		}
	}
	j.wantRestored(t, newest)
	j.wantRestored(t, newest, "--to-revision", fmt.Sprint(newest.Revision))
	j.wantRestored(t, old, "--lineage", oldLineage, "--to-revision", fmt.Sprint(old.Revision))
	v := j.verifyLog(t, 3)
	if len(v.Gaps) != 1 || len(v.Missing)+len(v.Damaged) > 0 {
		t.Errorf("dr archive verify: %+v", v)
	}
}

// TestLogForceNewCluster makes a member that lacks the last writes the only one of its cluster, which keeps its id: its
// next writes are another history, whether that is shorter or longer than the archived one.
func TestLogForceNewCluster(t *testing.T) {
	withServers(t)
	for _, n := range []int{5, 60} {
		t.Run(fmt.Sprint(n, " writes"), func(t *testing.T) {
			source := servers.Start(t, servers.Options{Members: 3})
			client := source.Client(t, servers.At(source.Members[0]))
			source.MoveLeader(t, 0)
			j := newJob(t)
			first := j.archiving(t, source, 0)
			j.firstWindow(t, client, first)
			second := j.archiving(t, source, 1)
			second.Until(t, "it stands by", func(s document.Agent) bool { return s.State == document.AgentStandby })
			putKeys(t, client, "kept/", 30)
			agent.CatchUp(t, first)
			oldLineage := j.lineages(t)[0]
			client, old := forceNewCluster(t, source, client, first, n)
			second.Until(t, "it begins anew", func(s document.Agent) bool { return s.Lineage != oldLineage && s.State == document.AgentWorking })
			j.forked(t, second, client, old, oldLineage)
		})
	}
}

// forceNewCluster makes the second member, which lacks the last writes, the only one of its cluster, and writes n keys
// there. It returns a client of it, and the state that is lost.
func forceNewCluster(
	t *testing.T, source *servers.Cluster, client *clientv3.Client, a *agent.Agent, n int,
) (*clientv3.Client, database.Image) {
	t.Helper()
	source.Pause(t, 1)
	putKeys(t, client, "lost/", 30)
	agent.CatchUp(t, a)
	old := live(t, client, 0)
	for i := range source.Members {
		source.Kill(t, i)
	}
	source.Members[1].ExtraArgs = []string{"--force-new-cluster"}
	source.Restart(t, 1)
	client = source.Client(t, servers.At(source.Members[1]))
	putKeys(t, client, "new/", n)
	return client, old
}

// TestLogRestoredInPlace restores a member's data dir in place, with the same URLs and the same token, and so with the
// same ids, while the agent runs.
func TestLogRestoredInPlace(t *testing.T) {
	withServers(t)
	for _, n := range []int{5, 100} {
		t.Run(fmt.Sprint(n, " writes"), func(t *testing.T) {
			fromEach(t, func(t *testing.T, j job) {
				source := servers.Start(t, servers.Options{})
				m := source.Members[0]
				client := source.Client(t)
				a := j.archiving(t, source, 0)
				j.firstWindow(t, client, a)
				putKeys(t, client, "kept/", 30)
				oldLineage := j.lineages(t)[0]
				b := j.backUp(t, source)
				putKeys(t, client, "lost/", 30)
				agent.CatchUp(t, a)
				old := live(t, client, 0)
				status, err := client.Status(t.Context(), m.ClientURL)
				if err != nil {
					t.Fatal(err)
				}
				j.restoreInPlace(t, source, b.ID)
				now, err := client.Status(t.Context(), m.ClientURL)
				if err != nil || now.Header.ClusterId != status.Header.ClusterId || now.Header.MemberId != status.Header.MemberId {
					t.Fatalf("before %v, now %v, %v", status, now, err)
				}
				putKeys(t, client, "new/", n)
				a.Until(t, "it begins anew", func(s document.Agent) bool { return s.Lineage != oldLineage && s.State == document.AgentWorking })
				j.forked(t, a, client, old, oldLineage)
			})
		})
	}
}

// restoreInPlace stops the only member of a cluster, replaces its data with a backup's, and starts it again.
func (j job) restoreInPlace(t *testing.T, c *servers.Cluster, id catalog.ID) {
	t.Helper()
	m := c.Members[0]
	c.Stop(t, 0)
	restored := filepath.Join(t.TempDir(), "restored")
	command.Must(t, j.env, "restore", string(id), "--name", m.Name, "--data-dir", restored,
		"--initial-cluster", m.Name+"="+m.PeerURL, "--initial-cluster-token", "etcd-dr-test")
	err := os.RemoveAll(m.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	err = os.Rename(restored, m.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	c.Restart(t, 0)
}
