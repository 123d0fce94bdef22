package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/test/command"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// load puts keys from several goroutines until it is ended, and remembers the acknowledged ones.
type load struct {
	stop  context.CancelFunc
	group sync.WaitGroup
	mu    sync.Mutex
	acked map[string]string
}

func startLoad(t *testing.T, client *clientv3.Client) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop, acked: map[string]string{}}
	for w := range 8 {
		l.group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key, value := fmt.Sprintf("load/%d/%05d", w, n), fmt.Sprintf("value %d of %d", n, w)
				_, err := client.Put(ctx, key, value)
				if err != nil { // the cluster elects a leader, or was killed
					time.Sleep(10 * time.Millisecond)
					continue
				}
				l.mu.Lock()
				l.acked[key] = value
				l.mu.Unlock()
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// until waits for so many acknowledged writes.
func (l *load) until(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); l.count() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d writes were acknowledged, want %d", l.count(), n)
		}
	}
}

func (l *load) end() {
	l.stop()
	l.group.Wait()
}

// killAll ends all members as a power failure would, in that order.
func killAll(t *testing.T, c *servers.Cluster, order ...int) {
	t.Helper()
	for _, i := range order {
		c.Kill(t, i)
	}
}

// dirs returns the data dirs of members in the format of --from-data-dir.
func dirs(c *servers.Cluster, members ...int) string {
	var all []string
	for _, i := range members {
		all = append(all, c.Members[i].DataDir)
	}
	return strings.Join(all, ",")
}

// content returns a digest of every file below a directory.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%x", sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// salvage restores one member from data dirs, checks that they are unchanged, and boots it on the same version.
func salvage(t *testing.T, version string, env []string, from string, args ...string) (*clientv3.Client, document.Restore) {
	t.Helper()
	before := map[string]map[string]string{}
	for _, dir := range strings.Split(from, ",") {
		before[dir] = content(t, dir)
	}
	url := servers.FreeURLs(t, 1)[0]
	dir := filepath.Join(t.TempDir(), "m1")
	r := command.Result[document.Restore](t, env, append([]string{"restore", "--name", "m1", "--data-dir", dir,
		"--initial-cluster", "m1=" + url, "--from-data-dir", from}, args...)...)
	for dir, was := range before {
		now := content(t, dir)
		if fmt.Sprint(was) != fmt.Sprint(now) {
			t.Errorf("%s was changed:\n%v\n%v", dir, was, now)
		}
	}
	if r.Salvaged == nil {
		t.Fatalf("nothing was salvaged: %+v", r)
	}
	booted := servers.Boot(t, servers.Options{Version: version}, servers.Existing{Name: "m1", DataDir: dir, PeerURL: url})
	return booted.Client(t), r
}

// salvagePlan returns the plan for data dirs.
func salvagePlan(t *testing.T, env []string, from string, args ...string) plan.Plan {
	t.Helper()
	p := command.Result[plan.Plan](t, env, append([]string{"restore", "--dry-run", "--from-data-dir", from}, args...)...)
	if p.Salvage == nil {
		t.Fatalf("no plan: %+v", p)
	}
	return p
}

// holds fails the test unless the cluster has every acknowledged write.
func (l *load) holds(t *testing.T, name string, client *clientv3.Client) {
	t.Helper()
	all, err := client.Get(t.Context(), "load/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, kv := range all.Kvs {
		got[string(kv.Key)] = string(kv.Value)
	}
	var lost []string
	for key, value := range l.acked {
		if got[key] != value {
			lost = append(lost, key)
		}
	}
	slices.Sort(lost)
	if len(lost) > 0 {
		t.Errorf("%s: %d of %d acknowledged writes are lost, such as %s", name, len(lost), len(l.acked), lost[0])
	}
}

// TestSalvageFromAMajority kills all members under load, like a power failure: from any majority of the disks every
// acknowledged write is restored.
func TestSalvageFromAMajority(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{Version: version, Members: 3})
			servers.Fill(t, c.Client(t), 5, servers.FillOptions{})
			l := startLoad(t, c.Client(t))
			l.until(t, 500)
			killAll(t, c, 0, 1, 2)
			l.end()
			for _, members := range [][]int{{0, 1, 2}, {0, 2}} {
				client, r := salvage(t, version, nil, dirs(c, members...))
				l.holds(t, fmt.Sprint(members), client)
				if len(r.Salvaged.Disks) == 0 || r.Salvaged.Position == 0 || r.Salvaged.Revision != r.Revision {
					t.Errorf("result %+v", r.Salvaged)
				}
				put(t, client, "afterwards", "a write goes through")
			}
		})
	}
}

// TestSalvageOneSurvivor covers case T15: writes acknowledged by two of three members are on one of the two
// remaining disks, and nowhere else.
func TestSalvageOneSurvivor(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{Version: version, Members: 3})
			a := c.Leader(t)
			b, behind := (a+1)%3, (a+2)%3
			put(t, c.Client(t), "on all", "three")
			waitForDatabase() // 3.4 writes only then how far its database is
			c.Pause(t, behind)
			for n := range 20 {
				put(t, c.Client(t, servers.At(c.Members[a])), fmt.Sprintf("on two/%02d", n), "acknowledged")
			}
			killAll(t, c, a, b, behind)
			for name, c := range map[string]struct {
				from string
				args []string
				want int64
			}{
				"both":      {dirs(c, b, behind), nil, 20},
				"one, all":  {dirs(c, b), []string{"--salvage-tail", "all"}, 20},
				"the other": {dirs(c, behind), []string{"--salvage-tail", "all"}, 0},
			} {
				client, _ := salvage(t, version, nil, c.from, c.args...)
				got, err := client.Get(t.Context(), "on two/", clientv3.WithPrefix())
				if err != nil || got.Count != c.want {
					t.Errorf("%s: %d of the writes came back, want %d (%v)", name, got.Count, c.want, err)
				}
			}
			p := salvagePlan(t, nil, dirs(c, b))
			l, disk := p.Salvage.Log, p.Salvage.Disks[0]
			whole := l == nil && disk.Database >= disk.Commit // the database had everything that is known to be committed
			if p.Salvage.Majority || !whole && (l == nil || l.UpTo != l.Commit || p.Salvage.LeftOut.Requests > 5) {
				t.Errorf("the plan for one of three: %+v, %+v", p.Salvage, l)
			}
		})
	}
}

// TestSalvageFromTheOnlyMember kills the only member under load: its own disk has everything.
func TestSalvageFromTheOnlyMember(t *testing.T) {
	withServers(t)
	for _, version := range servers.Some(t) {
		t.Run(version, func(t *testing.T) {
			c := servers.Start(t, servers.Options{Version: version})
			l := startLoad(t, c.Client(t))
			l.until(t, 500)
			c.Kill(t, 0)
			l.end()
			client, r := salvage(t, version, nil, dirs(c, 0), "--salvage-tail", "all")
			l.holds(t, version, client)

			// To a revision: directly after the request that made it.
			p := salvagePlan(t, nil, dirs(c, 0))
			revision := (p.Salvage.Database.Revision + r.Revision + 1) / 2
			_, r = salvage(t, version, nil, dirs(c, 0), "--to-revision", fmt.Sprint(revision))
			if r.Revision != revision {
				t.Errorf("it ends at revision %d, want %d", r.Revision, revision)
			}
			command.Run(t, nil, "restore", "--from-data-dir", dirs(c, 0), "--dry-run", "--to-revision", "1000000").
				Ended(t, 3, "--best")
		})
	}
}

// TestSalvageByAPlan checks that a salvage plan is executed as it is, or not at all if the disk has changed since.
func TestSalvageByAPlan(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{})
	put(t, c.Client(t), "first", "v")
	waitForDatabase()
	put(t, c.Client(t), "second", "v")
	c.Kill(t, 0)
	dir := t.TempDir()
	plan := filepath.Join(dir, "plan.json")
	command.Must(t, nil, "restore", "--from-data-dir", dirs(c, 0), "--plan-out", plan)
	command.Must(t, nil, "restore", "--plan", plan, "--name", "m1", "--data-dir", filepath.Join(dir, "one"))
	c.Restart(t)
	refused := func(word string) {
		t.Helper()
		command.Run(t, nil, "restore", "--plan", plan, "--name", "m1", "--data-dir", filepath.Join(dir, "two")).
			Ended(t, 4, word)
	}
	refused("a process has the data dir")
	put(t, c.Client(t), "third", "v")
	waitForDatabase() // or the database would not have changed yet
	c.Kill(t, 0)
	refused("make")
	_, err := os.Stat(filepath.Join(dir, "two"))
	if err == nil {
		t.Error("something was restored")
	}
}

func TestSalvageRefuses(t *testing.T) {
	withServers(t)
	c := servers.Start(t, servers.Options{Members: 2})
	put(t, c.Client(t), "k", "v")
	other := servers.Start(t, servers.Options{})
	put(t, other.Client(t), "k", "v")
	copied := filepath.Join(t.TempDir(), "copy")
	into := filepath.Join(t.TempDir(), "restored")
	refused := func(name string, code int, word string, args ...string) {
		t.Helper()
		command.Run(t, nil, append([]string{"restore", "--output-dir", into}, args...)...).Ended(t, code, word)
		_, err := os.Stat(into)
		if err == nil {
			t.Errorf("%s: something was restored", name)
		}
	}
	refused("a member that runs", 4, "--old-is-dead", "--from-data-dir", dirs(c, 0))
	put(t, c.Client(t), "k", "it was not disturbed")
	c.StopAll(t)
	other.StopAll(t)
	err := os.CopyFS(copied, os.DirFS(c.Members[0].DataDir))
	if err != nil {
		t.Fatal(err)
	}
	refused("another cluster's", 4, "cluster", "--from-data-dir", dirs(c, 0)+","+dirs(other, 0))
	refused("the same member twice", 4, "both of member", "--from-data-dir", dirs(c, 0)+","+copied)
	refused("no data dir", 2, "member", "--from-data-dir", t.TempDir())
	refused("a time", 2, "times", "--from-data-dir", dirs(c, 0), "--to", "1h ago")
	refused("a backup too", 2, "use one of them", "--from-data-dir", dirs(c, 0), "latest")
	err = os.Rename(filepath.Join(other.Members[0].DataDir, "member", "snap", "db"), filepath.Join(copied, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	refused("another cluster's database", 4, "does not know it", "--from-data-dir", copied)
}
