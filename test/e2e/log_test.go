package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/database"
	"github.com/etcd-dr/etcd-dr/test/history"
	"github.com/etcd-dr/etcd-dr/test/process"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// archiving starts an agent next to a member of the cluster, or one that watches.
func (j job) archiving(t *testing.T, c *servers.Cluster, member int, args ...string) *agent.Agent {
	t.Helper()
	dir := c.Members[member].DataDir
	if j.watches {
		dir = ""
	}
	return agent.Start(t, j.env, dir, append(reach(c), args...)...)
}

// fromEach runs a test with agents next to members, and with agents that watch.
func fromEach(t *testing.T, test func(*testing.T, job)) {
	t.Helper()
	for _, watches := range []bool{false, true} {
		t.Run(map[bool]string{false: "wal", true: "watch"}[watches], func(t *testing.T) {
			j := newJob(t)
			j.watches = watches
			test(t, j)
		})
	}
}

// firstWindow writes a key, because a log begins with a request, and waits until a point can be restored. An agent that
// watches sees only later writes.
func (j job) firstWindow(t *testing.T, client *clientv3.Client, agents ...*agent.Agent) {
	t.Helper()
	if j.watches {
		agent.Working(t, agents...)
	}
	// If the agent's backup is late and contains the newest write, it is in no window until the next.
	j.untilListed(t, "a window", func(l document.List) bool {
		put(t, client, "first", "of the log")
		return len(l.Windows) == 1
	})
	agent.CatchUp(t, agents...)
}

// untilWindows waits until n recovery windows are listed: the backup that a log needs is taken concurrently.
func (j job) untilWindows(t *testing.T, n int) document.List {
	t.Helper()
	return j.untilListed(t, fmt.Sprint(n, " windows"), func(l document.List) bool { return len(l.Windows) >= n })
}

func (j job) untilListed(t *testing.T, what string, ok func(document.List) bool) document.List {
	t.Helper()
	for start := time.Now(); ; time.Sleep(process.Pause(start)) {
		list, out := j.list(t)
		if ok(list) {
			return list
		}
		if time.Since(start) > patience {
			t.Fatalf("not listed: %s\n%s%s", what, out.Stdout, out.Stderr)
		}
	}
}

func (j job) list(t *testing.T) (document.List, command.Output) {
	t.Helper()
	out := command.Run(t, j.env, "list", "-o", "json")
	var list document.List
	if out.Stdout != "" {
		out.Decode(t, &list)
	}
	return list, out
}

// verifyLog runs dr archive verify, which has to end with the exit code.
func (j job) verifyLog(t *testing.T, code int, args ...string) document.ArchiveVerify {
	t.Helper()
	out := command.Run(t, j.env, append([]string{"archive", "verify", "-o", "json"}, args...)...)
	out.Ended(t, code)
	var verify document.ArchiveVerify
	out.Decode(t, &verify)
	return verify
}

// oneLog fails the test unless the log is complete and of one history.
func (j job) oneLog(t *testing.T) {
	t.Helper()
	v := j.verifyLog(t, 0)
	if v.Verdict != "passed" || v.Depth != "opened" || v.Found == 0 || len(v.Windows) != 1 {
		t.Errorf("dr archive verify: %+v", v)
	}
	lineages := j.lineages(t)
	if len(lineages) != 1 {
		t.Errorf("there are the lineages %q, want one", lineages)
	}
}

// lineages returns the histories in the repository, in no order.
func (j job) lineages(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(j.repo, "prod", "log"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// restoreArgs returns arguments to restore one member into a new directory.
func restoreArgs(t *testing.T, args ...string) (dir string, all []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "m1")
	return dir, append([]string{"restore", "--name", "m1", "--data-dir", dir, "--old-is-dead",
		"--initial-cluster", "m1=http://127.0.0.1:2380"}, args...)
}

// image restores, and returns the key space of the resulting database.
func (j job) image(t *testing.T, args ...string) (database.Image, document.Restore) {
	t.Helper()
	db, r := j.database(t, args...)
	image, _, err := database.Newest(db)
	if err != nil {
		t.Fatal(err)
	}
	return image, r
}

// database restores one member's data dir and returns the path of its database.
func (j job) database(t *testing.T, args ...string) (string, document.Restore) {
	t.Helper()
	dir, all := restoreArgs(t, args...)
	return filepath.Join(dir, "member", "snap", "db"), command.Result[document.Restore](t, j.env, all...)
}

// wantRestored fails the test unless a restore results in the key space of the image.
func (j job) wantRestored(t *testing.T, want database.Image, args ...string) document.Restore {
	t.Helper()
	got, r := j.image(t, args...)
	found := want.Differences(got)
	if len(found) > 0 {
		t.Errorf("restore %q: live first, restored second:\n%s", args, strings.Join(found, "\n"))
	}
	return r
}

// wantRefused fails the test unless a restore ends with the exit code and these words, and leaves nothing.
func (j job) wantRefused(t *testing.T, code int, words string, args ...string) {
	t.Helper()
	dir, all := restoreArgs(t, args...)
	command.Run(t, j.env, append(all, "-o", "json")...).Ended(t, code, words)
	left, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(left) > 0 {
		t.Errorf("restore %q was refused and left %v, %v", args, left, err)
	}
}

// live returns the key space of a running cluster at a revision, 0 for the newest.
func live(t *testing.T, client *clientv3.Client, revision int64) database.Image {
	t.Helper()
	response, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(revision))
	if err != nil {
		t.Fatalf("read the key space at revision %d: %v", revision, err)
	}
	if revision == 0 {
		revision = response.Header.Revision
	}
	return database.Image{Revision: revision, KVs: response.Kvs}
}

// told is a random history with images of its states.
type told struct {
	*history.Writer
	random  *rand.Rand
	images  []database.Image
	moments []moment
}

// moment is a time at which the key space was certainly that of the image.
type moment struct {
	at time.Time
	database.Image
}

// tell writes a random history while an agent archives it.
func tell(t *testing.T, c *servers.Cluster, a *agent.Agent, seed uint64) *told {
	t.Helper()
	h := &told{random: rand.New(rand.NewPCG(seed, 3))}
	h.Writer = history.New(t, c, seed, history.Options{Auth: true, Alarms: true, Compacting: h.look})
	for n := range 9 {
		h.Write(40 + h.random.IntN(60))
		h.look()
		if n%3 == 1 {
			h.rest(t, a)
		}
	}
	h.waitForLeases(t)
	t.Logf("seed %d: %s", seed, h.Counts())
	return h
}

// look reads the key space now, and at some revision since it was last read.
func (h *told) look() {
	since := int64(2)
	n := len(h.images)
	if n > 0 {
		since = h.images[n-1].Revision
	}
	newest, err := h.TryImage(0)
	if err != nil || newest.Revision <= since {
		return
	}
	between, err := h.TryImage(since + 1 + h.random.Int64N(newest.Revision-since))
	if err == nil {
		h.images = append(h.images, between)
	}
	h.images = append(h.images, newest)
}

// rest finds a moment without changes, and waits for a while without changes after it. The state at that moment is thus
// certain: it is not merely the last one before the moment was chosen.
func (h *told) rest(t *testing.T, a *agent.Agent) {
	t.Helper()
	for { // a lease may end together with its keys
		before := h.Image(0)
		agent.CatchUp(t, a)
		at := time.Now()
		time.Sleep(1600 * time.Millisecond)
		agent.CatchUp(t, a)
		after := h.Image(0)
		if after.Revision == before.Revision {
			h.moments = append(h.moments, moment{at, before})
			return
		}
	}
}

// waitForLeases waits until the short leases have expired.
func (h *told) waitForLeases(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		leases, err := h.Client().Leases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		short := slices.ContainsFunc(leases.Leases, func(l clientv3.LeaseStatus) bool {
			left, err := h.Client().TimeToLive(t.Context(), l.ID)
			return err != nil || left.GrantedTTL < 60
		})
		if !short {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("leases of a few seconds do not end")
		}
	}
}

// TestLogVersions archives the log of members with TLS, users, leases, alarms and compactions, of several versions, while a random history is written. The end of it, any revision and any second can be restored, for three members.
func TestLogVersions(t *testing.T) {
	withServers(t)
	for i, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			members := 3
			if version == "3.4" { // 3.4.23: when users change, its members diverge
				members = 1
			}
			source := servers.Start(t, servers.Options{Version: version, Members: members, TLS: true})
			j := newJob(t)
			a := j.archiving(t, source, 0, "--hash-every", "1s")
			j.firstWindow(t, source.Client(t), a)
			h := tell(t, source, a, uint64(i+1))
			snapshot := h.Snapshot()
			agent.CatchUp(t, a)

			j.comesBackWhole(t, source, h, snapshot)
			h.random.Shuffle(len(h.images), func(i, k int) { h.images[i], h.images[k] = h.images[k], h.images[i] })
			for _, image := range h.images[:5] {
				j.wantRestored(t, image, "--to-revision", fmt.Sprint(image.Revision))
			}
			j.wantRestored(t, h.images[0], "--before-revision", fmt.Sprint(h.images[0].Revision+1))
			for _, m := range h.moments {
				j.wantRestored(t, m.Image, "--to", m.at.Format(time.RFC3339Nano))
			}
			j.oneLog(t)
			a.Stop(t)
			j.oneLog(t)
			j.pack(t)
			j.oneLog(t)
			j.wantRestored(t, h.images[1], "--to-revision", fmt.Sprint(h.images[1].Revision))
			j.wantRestored(t, h.moments[0].Image, "--to", h.moments[0].at.Format(time.RFC3339Nano))
		})
	}
}

// pack lets two prunes pack the log, as if its segments had been stored two hours ago. No segment stays an object of its own.
func (j job) pack(t *testing.T) {
	t.Helper()
	bucket, err := file.Open(j.repo)
	if err != nil {
		t.Fatal(err)
	}
	c, err := repository.Open(bucket, "prod")
	if err != nil {
		t.Fatal(err)
	}
	lineages, err := c.Log().Load(t.Context(), log.LoadOptions{Details: true})
	if err != nil || len(lineages) != 1 {
		t.Fatal(lineages, err)
	}
	l := lineages[0]
	err = c.Log().StoreIndex(t.Context(), l.ID, l.Segments) // the agent stores it after an hour
	if err != nil {
		t.Fatal(err)
	}
	age := func(kind string) (n int) {
		files, err := filepath.Glob(filepath.Join(j.repo, "prod", "log", l.ID, kind))
		for _, name := range files {
			err = errors.Join(err, os.Chtimes(name, time.Time{}, time.Now().Add(-2*time.Hour)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	age("*.seg")
	first := command.Result[document.Prune](t, j.env, "prune", "--keep-last", "100", "--grace", "1h")
	packs, segments := age("pack-*.segs"), age("*.seg")
	second := command.Result[document.Prune](t, j.env, "prune", "--keep-last", "100", "--grace", "1h")
	if first.Packs != 1 || first.Packed != len(l.Segments) || packs != 1 || segments != len(l.Segments) || second.Swept != segments || age("*.seg") > 0 {
		t.Errorf("a log of %d segments: %+v, then %d packs and %d segments, then %+v, then %d segments", len(l.Segments), first, packs, segments, second, age("*.seg"))
	}
}

// comesBackWhole restores the end of the log: one database is compared bucket by bucket with a member's, and three
// members are booted and compared through their clients.
func (j job) comesBackWhole(t *testing.T, source *servers.Cluster, h *told, snapshot string) {
	t.Helper()
	db, _ := j.database(t)
	found, err := database.Differences(snapshot, db, database.Exempt{Passwords: source.Version == "3.4"})
	if err != nil || len(found) > 0 {
		t.Errorf("the member's database first, the restored one second: %v\n%s", err, strings.Join(found, "\n"))
	}
	newest := h.Image(0).Revision
	booted, r := restored(t, j, servers.Options{Version: source.Version, TLS: true, Certificates: source.Certificates})
	if r.Revision != newest {
		t.Errorf("restored at revision %d, the cluster is at %d", r.Revision, newest)
	}
	checkSame(t, source, booted, newest)
	booted.StopAll(t)
}
