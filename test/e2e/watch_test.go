package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/test/agent"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/history"
	"github.com/etcd-dr/etcd-dr/test/memory"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// newWatchingJob returns a job whose agents watch.
func newWatchingJob(t *testing.T) job {
	t.Helper()
	j := newJob(t)
	j.watches = true
	return j
}

// TestWatchVersions archives members with TLS, users, leases, alarms and compactions, of several versions, through a
// client alone. Any revision can be restored, and the end of the log boots with the leases that hold keys.
func TestWatchVersions(t *testing.T) {
	withServers(t)
	watchVersions(t, 8, 1)
}

// TestSoakWatchVersions does the same with 200 revisions a version.
func TestSoakWatchVersions(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("ETCD_DR_SEED"), 10, 64)
	if !soak.On() || err != nil {
		return
	}
	watchVersions(t, 200, seed)
}

func watchVersions(t *testing.T, revisions int, seed uint64) {
	t.Helper()
	for i, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			source := servers.Start(t, servers.Options{Version: version, Members: 1, TLS: true})
			j := newWatchingJob(t)
			a := j.archiving(t, source, 0, "--hash-every", "1s")
			j.firstWindow(t, source.Client(t), a)
			h := tell(t, source, a, seed+uint64(i))
			agent.CatchUp(t, a)

			newest := h.Image(0)
			r := j.wantRestored(t, newest)
			if !strings.Contains(r.Replayed.Proven, "key space proven") {
				t.Errorf("the restore says %q", r.Replayed.Proven)
			}
			h.sample(t, revisions)
			for _, image := range h.images {
				j.wantRestored(t, image, "--to-revision", fmt.Sprint(image.Revision))
			}
			for _, m := range h.moments {
				j.wantRestored(t, m.Image, "--to", m.at.Format(time.RFC3339Nano))
			}
			j.oneLog(t)
			a.Stop(t)
			j.oneLog(t)
			booted, _ := restored(t, j, servers.Options{Version: version, TLS: true, Certificates: source.Certificates})
			sameLeases(t, h, booted.Client(t))
			booted.StopAll(t)
		})
	}
}

// sample reduces the images of the history to n random ones, or reads more of them. Where few revisions are left, because the others were
// compacted, it takes all.
func (h *told) sample(t *testing.T, n int) {
	t.Helper()
	for tries := 0; len(h.images) < n && tries < 1000; tries++ {
		since := h.images[0].Revision
		image, err := h.TryImage(since + h.random.Int64N(h.images[len(h.images)-1].Revision-since))
		if err == nil {
			h.images = slices.Insert(h.images, 1, image)
		}
	}
	h.random.Shuffle(len(h.images), func(i, k int) { h.images[i], h.images[k] = h.images[k], h.images[i] })
	h.images = h.images[:min(n, len(h.images))]
}

// sameLeases compares the leases that have keys with the live cluster's.
func sameLeases(t *testing.T, h *told, booted *clientv3.Client) {
	t.Helper()
	want, got := leasesOf(t, h.Client()), leasesOf(t, booted)
	if len(want) == 0 || !maps.Equal(want, got) {
		t.Errorf("leases with keys: live %v, restored %v", want, got)
	}
}

// leasesOf returns the TTLs and keys of the leases that have keys.
func leasesOf(t *testing.T, client *clientv3.Client) map[clientv3.LeaseID]string {
	t.Helper()
	all, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[clientv3.LeaseID]string{}
	for _, l := range all.Leases {
		lease, err := client.TimeToLive(t.Context(), l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			t.Fatal(err)
		}
		if len(lease.Keys) > 0 {
			slices.SortFunc(lease.Keys, func(a, b []byte) int { return strings.Compare(string(a), string(b)) })
			found[l.ID] = fmt.Sprintf("%d %q", lease.GrantedTTL, lease.Keys)
		}
	}
	return found
}

// TestWatchLeases keeps a lease of ten seconds alive while the log is written: its key exists at each revision, and
// none of its keys does once it has ended. The TTL of a lease that ended early is guessed.
func TestWatchLeases(t *testing.T) {
	withServers(t)
	source := servers.Start(t, servers.Options{})
	client := source.Client(t)
	j := newWatchingJob(t)
	a := j.archiving(t, source, 0)
	j.firstWindow(t, client, a)
	lease, err := client.Grant(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Put(t.Context(), "leased", "x", clientv3.WithLease(lease.ID))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 18 {
		_, err := client.KeepAliveOnce(t.Context(), lease.ID)
		if err != nil {
			t.Fatal(err)
		}
		put(t, client, fmt.Sprint("beside/", n), "x")
		time.Sleep(600 * time.Millisecond) // in all longer than its TTL
	}
	kept := live(t, client, 0)
	a.Pause(t) // so that it sees this lease only after its end
	short, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Put(t.Context(), "short", "x", clientv3.WithLease(short.ID))
	if err != nil {
		t.Fatal(err)
	}
	there := live(t, client, 0)
	_, err = client.Revoke(t.Context(), short.ID)
	if err != nil {
		t.Fatal(err)
	}
	a.Resume(t)
	for deadline := time.Now().Add(time.Minute); len(live(t, client, 0).KVs) != len(kept.KVs)-1; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the lease does not end")
		}
	}
	agent.CatchUp(t, a)
	j.wantRestored(t, kept, "--to-revision", fmt.Sprint(kept.Revision))
	j.wantRestored(t, there, "--to-revision", fmt.Sprint(there.Revision))
	j.wantRestored(t, live(t, client, 0))
	_, args := restoreArgs(t, "-o", "json")
	out := command.Run(t, j.env, args...)
	if !strings.Contains(out.Stdout+out.Stderr, "guess") {
		t.Errorf("the restore says nothing of a lease that was guessed:\n%s%s", out.Stdout, out.Stderr)
	}
}

// TestWatchLarge has one deletion of 60,000 keys, a transaction of 10,000 operations, and values of 1.5 MB while the
// agent lags: everything can be restored, and the agent's memory stays small.
func TestWatchLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers")
	}
	// Not in parallel: this uses a core most of the time.
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			source := servers.Start(t, servers.Options{Version: version, ExtraArgs: []string{
				"--max-txn-ops", "10000", "--quota-backend-bytes", fmt.Sprint(4 << 30),
			}})
			client := source.Client(t)
			j := newWatchingJob(t)
			a := j.archiving(t, source, 0)
			peak := memory.Watch(a.PID(), memory.Alone)
			j.firstWindow(t, client, a)
			for n := range 6 {
				manyKeys(t, client, n*10_000, 10_000)
			}
			_, err := client.Delete(t.Context(), "many/", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			manyKeys(t, client, 0, 10_000)
			agent.CatchUp(t, a) // else the member may have to split all these events at once, which takes minutes
			a.Pause(t)
			large := strings.Repeat("x", 1500<<10-100)
			for n := range 150 {
				put(t, client, fmt.Sprint("large/", n%7), fmt.Sprint(n)+large[len(fmt.Sprint(n)):])
			}
			middle := live(t, client, 0)
			a.Resume(t)
			put(t, client, "last", "x")
			agent.CatchUp(t, a)
			j.wantRestored(t, live(t, client, 0))
			j.wantRestored(t, middle, "--to-revision", fmt.Sprint(middle.Revision))
			j.oneLog(t)
			a.Stop(t)
			most := peak()
			if most > 200<<20 {
				t.Errorf("the agent took %d MiB, want at most 200", most>>20)
			} else {
				t.Logf("the agent took %d MiB", most>>20)
			}
		})
	}
}

func manyKeys(t *testing.T, client *clientv3.Client, from, n int) {
	t.Helper()
	ops := make([]clientv3.Op, n)
	for i := range ops {
		ops[i] = clientv3.OpPut(fmt.Sprintf("many/%06d", from+i), "x")
	}
	_, err := client.Txn(t.Context()).Then(ops...).Commit()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWatchUnderCompactions compacts the cluster every second under load, up to its newest revision: the running agent
// misses nothing, and the restored key space is compacted like the cluster's.
func TestWatchUnderCompactions(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			source := servers.Start(t, servers.Options{Version: version, Members: 3})
			client := source.Client(t)
			j := newWatchingJob(t)
			a := j.archiving(t, source, 0, "--hash-every", "1s")
			j.firstWindow(t, client, a)
			w := write(t, source)
			var compacted int64
			for range 5 {
				w.more(t, 300)
				time.Sleep(time.Second)
				compacted = live(t, client, 0).Revision - 20
				_, err := client.Compact(t.Context(), compacted)
				if err != nil {
					t.Fatal(err)
				}
			}
			w.more(t, 300)
			w.nothingLost(t, j, client, a)
			j.oneLog(t)
			booted, _ := restored(t, j, servers.Options{Version: version})
			_, err := booted.Client(t).Get(t.Context(), "first", clientv3.WithRev(compacted-1))
			if err == nil {
				t.Errorf("revision %d is there, and was compacted away", compacted-1)
			}
			_, err = booted.Client(t).Get(t.Context(), "first", clientv3.WithRev(compacted))
			if err != nil {
				t.Errorf("revision %d: %v", compacted, err)
			}
			booted.StopAll(t)
		})
	}
}

// TestWatchCompactedMeanwhile stops or freezes an agent until the cluster has compacted revisions that it had not read.
// The gap is listed, with its width; a new backup opens a new window; a point in the gap is refused with the nearest
// point.
func TestWatchCompactedMeanwhile(t *testing.T) {
	withServers(t)
	for _, stopped := range []bool{true, false} {
		t.Run(map[bool]string{true: "stopped", false: "frozen"}[stopped], func(t *testing.T) {
			source := servers.Start(t, servers.Options{})
			client := source.Client(t)
			j := newWatchingJob(t)
			a := j.archiving(t, source, 0)
			j.firstWindow(t, client, a)
			putKeys(t, client, "before/", 30)
			agent.CatchUp(t, a)
			before := live(t, client, 0)
			goOn := func() { a.Resume(t) }
			if stopped {
				a.Stop(t)
				goOn = func() { a = j.archiving(t, source, 0) }
			} else {
				a.Pause(t)
				putLarge(t, client, 200) // more than fits into connections and buffers on the way
			}
			putKeys(t, client, "inside/", 100)
			inside := live(t, client, 0).Revision
			putKeys(t, client, "after/", 30)
			_, err := client.Compact(t.Context(), live(t, client, 0).Revision-10)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
			goOn()
			a.Until(t, "it goes on behind the gap", func(s document.Agent) bool { return s.Gaps == 1 && s.State == document.AgentWorking })
			putKeys(t, client, "again/", 30)
			agent.CatchUp(t, a)
			list := j.untilWindows(t, 2)
			if len(list.Gaps) != 1 || len(list.Backups) != 2 {
				t.Fatalf("gaps %+v, %d backups", list.Gaps, len(list.Backups))
			}
			g := list.Gaps[0]
			if g.From != list.Windows[0].To.Position+1 || uint64(inside) < g.From || uint64(inside) > g.To || g.Positions != g.To-g.From+1 || g.Reason == "" {
				t.Errorf("the gap %+v behind the window %+v", g, list.Windows[0])
			}
			j.wantRestored(t, live(t, client, 0))
			j.wantRestored(t, before, "--to-revision", fmt.Sprint(before.Revision))
			j.wantRefused(t, 3, "the nearest restorable point is revision", "--to-revision", fmt.Sprint(inside))
			v := j.verifyLog(t, 3)
			if len(v.Gaps) != 1 || len(v.Missing)+len(v.Damaged) > 0 {
				t.Errorf("dr archive verify: %+v", v)
			}
		})
	}
}

func putLarge(t *testing.T, client *clientv3.Client, n int) {
	t.Helper()
	large := strings.Repeat("x", 1<<20)
	for i := range n {
		put(t, client, fmt.Sprint("large/", i%5), fmt.Sprint(i, large))
	}
}

// TestWatchForceNewCluster makes a member that lacks the last writes the only one of its cluster, which keeps its id,
// while an agent watches.
func TestWatchForceNewCluster(t *testing.T) {
	withServers(t)
	for _, n := range []int{5, 60} {
		t.Run(fmt.Sprint(n, " writes"), func(t *testing.T) {
			source := servers.Start(t, servers.Options{Members: 3})
			client := source.Client(t, servers.At(source.Members[0]))
			source.MoveLeader(t, 0)
			j := newWatchingJob(t)
			a := j.archiving(t, source, 0)
			j.firstWindow(t, client, a)
			putKeys(t, client, "kept/", 30)
			agent.CatchUp(t, a)
			oldLineage := j.lineages(t)[0]
			client, old := forceNewCluster(t, source, client, a, n)
			a.Until(t, "it begins anew", func(s document.Agent) bool { return s.Lineage != oldLineage && s.State == document.AgentWorking })
			putKeys(t, client, "newer/", 3)
			j.forked(t, a, client, old, oldLineage)
		})
	}
}

// putNoise writes 100 KB n times, which compress to no less than half.
func putNoise(t *testing.T, client *clientv3.Client, n int) {
	t.Helper()
	for range n {
		noise := make([]byte, 50_000)
		_, _ = rand.Read(noise) // never fails
		put(t, client, "a lot", hex.EncodeToString(noise))
	}
}

// TestWatchSpool checks that changes wait in the spool, sealed, while the store is unreachable, through compactions and
// the agent's death. Changes beyond the size of the spool are lost when the cluster compacts them: then there is a gap,
// and a backup at once.
func TestWatchSpool(t *testing.T) {
	withServers(t)
	store := objectstores.S3(t)
	for _, c := range []struct {
		name string
		most string
		gaps int
	}{{"enough", "64MiB", 0}, {"too small", "512KiB", 1}} {
		t.Run(c.name, func(t *testing.T) {
			source := servers.Start(t, servers.Options{})
			client := source.Client(t)
			proxy := objectstores.NewProxy(t, store.Endpoint)
			j := newWatchingJob(t)
			bucket := store.Bucket(t)
			j.env = append(j.env, store.Env()...)
			direct := j
			direct.env = append(slices.Clone(j.env), "DR_REPO="+store.URL(bucket, "p"))
			j.env = append(j.env, "DR_REPO="+store.Through(proxy).URL(bucket, "p"))
			spool := t.TempDir()
			flags := []string{"--spool", spool, "--spool-max", c.most, "--segment-size", "65536"}
			a := j.archiving(t, source, 0, flags...)
			direct.firstWindow(t, client, a)
			proxy.Cut()
			w := history.New(t, source, 9, history.Options{})
			w.Write(200)
			a.Until(t, "it notices", func(s document.Agent) bool { return s.State == document.AgentWaiting })
			putNoise(t, client, 60)
			a.Until(t, "it spools", func(s document.Agent) bool { return s.Spool.Segments > 1 })
			for name, content := range files(t, spool) {
				if strings.Contains(content, "a lot") {
					t.Errorf("%s is not sealed", name)
				}
			}
			if c.gaps == 0 {
				a.Until(t, "all is spooled", func(s document.Agent) bool { return s.PendingRequests == 0 })
				a.Kill(t)
			}
			putNoise(t, client, 60+300*c.gaps) // some may wait in connections, too
			if c.gaps > 0 {
				_, err := client.Compact(t.Context(), live(t, client, 0).Revision-1)
				if err != nil {
					t.Fatal(err)
				}
			}
			proxy.Restore()
			if c.gaps == 0 {
				a = j.archiving(t, source, 0, flags...)
			}
			list := direct.untilWindows(t, 1+c.gaps)
			agent.CatchUp(t, a)
			list, _ = direct.list(t)
			if len(list.Gaps) != c.gaps {
				t.Errorf("gaps %+v, want %d", list.Gaps, c.gaps)
			}
			direct.wantRestored(t, live(t, client, 0))
			a.Until(t, "the spool is empty", func(s document.Agent) bool { return s.Spool.Segments == 0 && s.Spool.Bytes == 0 })
			a.Stop(t)
			left := files(t, spool)
			if len(left) > 0 {
				t.Errorf("left in the spool: %v", slices.Collect(maps.Keys(left)))
			}
		})
	}
}
