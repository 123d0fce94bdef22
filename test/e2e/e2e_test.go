// Package e2e does the main job with the dr binary on real servers of every version.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

func TestMain(m *testing.M) { os.Exit(objectstores.Main(commands{m})) }

// commands builds dr before the tests run.
type commands struct{ m *testing.M }

func (c commands) Run() int { return command.Main(c.m) }

// job is one cluster's backups, and the access to them.
type job struct {
	repo string
	key  string // file with the identity
	to   string // recipient
	env  []string

	watches bool // its agents watch, and need no data dir
}

func newJob(t *testing.T) job {
	dir := t.TempDir()
	j := job{repo: filepath.Join(dir, "repo"), key: filepath.Join(dir, "key.txt")}
	j.to = strings.TrimSpace(command.Must(t, nil, "keygen", "--to", j.key))
	j.env = []string{"DR_REPO=file://" + j.repo, "DR_CLUSTER=prod", "DR_RECIPIENT=" + j.to, "DR_IDENTITY=" + j.key}
	return j
}

// reach returns the flags with which dr accesses a cluster.
func reach(c *servers.Cluster) []string {
	return reachAt(c, c.Endpoints()...)
}

// reachAt is reach for some endpoints.
func reachAt(c *servers.Cluster, endpoints ...string) []string {
	args := []string{"--endpoints", strings.Join(endpoints, ",")}
	if c.Certificates != nil {
		args = append(args, "--cacert", c.Certificates.CA, "--cert", c.Certificates.Cert, "--key", c.Certificates.Key)
	}
	return args
}

// backUp takes a backup of a cluster.
func (j job) backUp(t *testing.T, c *servers.Cluster) document.Backup {
	t.Helper()
	return command.Result[document.Backup](t, j.env, append([]string{"backup", "--dial-timeout", "20s"}, reach(c)...)...)
}

// restored runs dr restore for all members, on new peer URLs, and boots the result on the same version.
func restored(t *testing.T, j job, o servers.Options, args ...string) (*servers.Cluster, document.Restore) {
	t.Helper()
	urls := servers.FreeURLs(t, 3)
	if o.TLS {
		urls = servers.FreeTLSURLs(t, 3)
	}
	var members []string
	for i, u := range urls {
		members = append(members, fmt.Sprintf("m%d=%s", i+1, u))
	}
	into := filepath.Join(t.TempDir(), "restored")
	r := command.Result[document.Restore](t, j.env, append([]string{"restore", "--output-dir", into, "--old-is-dead",
		"--initial-cluster", strings.Join(members, ",")}, args...)...)
	var dirs []servers.Existing
	for i, u := range urls {
		name := fmt.Sprintf("m%d", i+1)
		dirs = append(dirs, servers.Existing{Name: name, DataDir: filepath.Join(into, name), PeerURL: u})
	}
	return servers.Boot(t, o, dirs...), r
}

// withServers skips the test with -short, and otherwise runs it in parallel: tests with real servers mostly wait.
func withServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real servers")
	}
	t.Parallel()
}

// TestEveryVersionComesBackTheSame backs up, restores and boots three members with client certificates and users, of
// every version. Both clusters have the same content.
func TestEveryVersionComesBackTheSame(t *testing.T) {
	withServers(t)
	for _, version := range servers.Versions {
		t.Run(version, func(t *testing.T) {
			source := servers.Start(t, servers.Options{Version: version, Members: 3, TLS: true, Auth: true})
			client := source.Client(t)
			servers.Fill(t, client, 1, servers.FillOptions{Keys: 2000, ValueSize: 200})

			j := newJob(t)
			b := j.backUp(t, source)
			out := command.Must(t, j.env, "verify", "--level", "booted")
			if !strings.Contains(out, "on a booted server") {
				t.Errorf("verify says nothing of a booted server:\n%s", out)
			}
			booted, r := restored(t, j, servers.Options{
				Version: version, TLS: true, Auth: true, Certificates: source.Certificates,
			})
			if r.HashKV != fmt.Sprintf("key space proven at revision %d", b.Revision) {
				t.Errorf("HashKV: %v", r.HashKV)
			}
			checkSame(t, source, booted, b.Revision)
		})
	}
}

func checkSame(t *testing.T, source, booted *servers.Cluster, revision int64) {
	t.Helper()
	a, b := source.Client(t), booted.Client(t)
	want := servers.HashKV(t, a, source.Members[0].ClientURL, revision)
	for _, m := range booted.Members {
		got := servers.HashKV(t, b, m.ClientURL, revision)
		if got.Hash != want.Hash || got.CompactRevision != want.CompactRevision {
			t.Errorf("%s: HashKV at %d is %08x from %d on, want %08x from %d on",
				m.Name, revision, got.Hash, got.CompactRevision, want.Hash, want.CompactRevision)
		}
	}
	servers.RequireSame(t, a, b, clientv3.WithRev(revision))
	put(t, b, "after the restore", "a write goes through")
}

// patience is far beyond the time of any step.
const patience = 3 * time.Minute

// put writes a key. It tries again while the cluster elects a leader, which the client does only for reads.
func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := client.Put(ctx, key, value)
		var answer rpctypes.EtcdError
		unavailable := status.Code(err) == codes.Unavailable || errors.As(err, &answer) && answer.Code() == codes.Unavailable
		switch {
		case err == nil:
			return
		case !unavailable || ctx.Err() != nil:
			t.Fatalf("put: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestOnePlanForEveryHost restores each member on its own host from one plan file; together they are one cluster.
func TestOnePlanForEveryHost(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{Members: 3})
	servers.Fill(t, source.Client(t), 2, servers.FillOptions{Keys: 500, Kubernetes: true})
	j := newJob(t)
	b := j.backUp(t, source)
	peers := peerURLs(source)
	source.StopAll(t)

	plan := filepath.Join(t.TempDir(), "plan.json")
	command.Must(t, j.env, "restore", "--plan-out", plan)
	hosts := t.TempDir()
	var dirs []servers.Existing
	for name, peer := range peers {
		dir := filepath.Join(hosts, name, "etcd")
		r := command.Result[document.Restore](t, j.env, "restore", "--plan", plan, "--name", name, "--data-dir", dir)
		if r.BumpedTo != b.Revision+1_000_000_000 {
			t.Errorf("%s: bumped to %d, the backup is at %d", name, r.BumpedTo, b.Revision)
		}
		dirs = append(dirs, servers.Existing{Name: name, DataDir: dir, PeerURL: peer})
	}
	booted := servers.Boot(t, servers.Options{}, dirs...)
	client := booted.Client(t)
	put(t, client, "/registry/after", "x")
	members, err := client.MemberList(t.Context())
	if err != nil || len(members.Members) != 3 {
		t.Fatalf("member list: %v, %v", members, err)
	}
	_, err = client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(b.Revision))
	if err == nil ||
		!strings.Contains(err.Error(), "compacted") {
		t.Errorf("a read at the old revision must say compacted, says: %v", err)
	}
}

func peerURLs(c *servers.Cluster) map[string]string {
	peers := map[string]string{}
	for _, m := range c.Members {
		peers[m.Name] = m.PeerURL
	}
	return peers
}

// TestAnOldMemberIsRefused starts an old member on its old data: the restored cluster is another one now, and refuses
// it.
func TestAnOldMemberIsRefused(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{Members: 3})
	servers.Fill(t, source.Client(t), 3, servers.FillOptions{Keys: 200})
	j := newJob(t)
	j.backUp(t, source)

	command.Run(t, j.env, "restore", "--output-dir", filepath.Join(t.TempDir(), "out")).Ended(t, 4, "still answers")
	before, err := source.Client(t).MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	source.StopAll(t)

	into := filepath.Join(t.TempDir(), "restored")
	r := command.Result[document.Restore](t, j.env, "restore", "--output-dir", into)
	old := fmt.Sprintf("%x", before.Header.ClusterId)
	if r.ClusterID == old {
		t.Errorf("the restored cluster has the old id %s", old)
	}
	// Two of the three are restored ones; the third is the old member.
	var dirs []servers.Existing
	for _, m := range source.Members[:2] {
		dirs = append(dirs, servers.Existing{Name: m.Name, DataDir: filepath.Join(into, m.Name), PeerURL: m.PeerURL})
	}
	booted := servers.Boot(t, servers.Options{}, dirs...)
	source.Launch(t, 2)
	waitForLog(t, source.Members[2].LogFile, "cluster ID mismatch")
	put(t, booted.Client(t), "still", "one cluster")
}

// TestABackupWithoutQuorumRestores takes a backup with two of three members dead: it is marked, and can be restored.
func TestABackupWithoutQuorumRestores(t *testing.T) {
	withServers(t)
	for _, version := range []string{"3.4", "3.7"} {
		t.Run(version, func(t *testing.T) {
			source := servers.Start(t, servers.Options{Version: version, Members: 3})
			revision := servers.Fill(t, source.Client(t), 4, servers.FillOptions{Keys: 300})
			servers.HashKV(t, source.Client(t), source.Members[2].ClientURL, revision) // it has all writes
			source.Kill(t, 0)
			source.Kill(t, 1)
			j := newJob(t)
			b := j.backUp(t, source)
			if !b.NoQuorum {
				t.Error("the backup is not marked no-quorum")
			}
			booted, r := restored(t, j, servers.Options{Version: version})
			if r.Revision < revision {
				t.Errorf("restored at revision %d, the cluster was at %d", r.Revision, revision)
			}
			put(t, booted.Client(t), "after", "x")
		})
	}
}

// TestNoSpaceIsCleared restores a snapshot of a cluster that ran out of space; the result accepts writes.
func TestNoSpaceIsCleared(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{QuotaBytes: 1 << 20})
	client := source.Client(t)
	for i := 0; ; i++ {
		_, err := client.Put(t.Context(), fmt.Sprint("fill/", i), strings.Repeat("x", 100<<10))
		if err != nil {
			break
		}
	}
	j := newJob(t)
	b := j.backUp(t, source)
	if len(b.Alarms) != 1 || b.Alarms[0] != "NOSPACE" {
		t.Errorf("alarms in the manifest: %v", b.Alarms)
	}
	booted, r := restored(t, j, servers.Options{})
	if len(r.Cleared) != 1 || r.Cleared[0] != "NOSPACE" {
		t.Errorf("cleared alarms: %v", r.Cleared)
	}
	put(t, booted.Client(t), "after", "x")
}

func waitForLog(t *testing.T, path, words string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		log, _ := os.ReadFile(path)
		if strings.Contains(string(log), words) {
			return
		}
	}
	t.Fatalf("%s never said %q", path, words)
}
