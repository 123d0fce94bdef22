package restore_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/sys/unix"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/servers"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// silent returns the address of a listener that never answers, as a stopped process does.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// Two clusters that believe they are the same one are worse than none.
func TestOldClusterIsAsked(t *testing.T) {
	t.Parallel()
	peer := servers.FreeURLs(t, 1)[0]
	old := start(t, "old", t.TempDir(), "old="+peer, peer)
	alive := "http://" + old.Clients[0].Addr().String()
	id := fmt.Sprintf("%x", uint64(old.Server.Cluster().ID()))
	stopped := silent(t)
	for name, test := range map[string]struct {
		url, id string
		dead    bool
		refused bool
		note    string
	}{
		"it answers":           {url: alive, id: id, refused: true},
		"it answers, allowed":  {url: alive, id: id, dead: true},
		"another cluster":      {url: alive, id: "cafe", note: "another cluster, " + id + ", answers at " + alive},
		"a server that hangs":  {url: "http://" + stopped, id: id, refused: true},
		"and one with TLS":     {url: "https://" + stopped, id: id, refused: true},
		"hangs, allowed":       {url: "https://" + stopped, id: id, dead: true},
		"nobody":               {url: stored.DeadURL, id: id},
		"a URL of no use":      {url: "unix://x", id: id},
		"a URL that is broken": {url: "http://127.0.0.1:1%zz", id: id},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t, plainDatabase(t), func(m *catalog.Manifest) {
				m.ClusterID = test.id
				m.Members[1].ClientURLs = []string{stored.DeadURL, test.url}
			})
			p := s.plan(t, plan.Layout{OldIsDead: test.dead, Into: one(t, "m1")})
			if test.refused {
				_, err := restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
				if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), test.url) ||
					!strings.Contains(err.Error(), "--old-is-dead") {
					t.Errorf("error %v", err)
				}
				wantNothing(t, p.Into)
				return
			}
			_, events := run(t, s, p)
			said := messages(events)
			if said != test.note {
				t.Errorf("said %q, want %q", said, test.note)
			}
		})
	}
}

// After a restore the cluster has another id than the backup that a second restore begins with; both are in the repository.
// A cluster that no backup knows is the old one all the same if it has one of the members.
func TestRestoredClusterIsKnown(t *testing.T) {
	t.Parallel()
	peer := servers.FreeURLs(t, 1)[0]
	living := start(t, "living", t.TempDir(), "living="+peer, peer)
	alive := "http://" + living.Clients[0].Addr().String()
	id := fmt.Sprintf("%x", uint64(living.Server.Cluster().ID()))
	d := plainDatabase(t)
	s := store(t, d, func(m *catalog.Manifest) { m.Members[2].ClientURLs = []string{alive} })
	since := s.backup
	since.ID, since.ClusterID, since.Started = catalog.NewID(since.Started, 1), id, since.Started.Add(-1)
	unknown := since
	unknown.ClusterID = since.ClusterID[1:]
	for name, test := range map[string]struct {
		other   catalog.Backup
		members []plan.Member
		refused bool
	}{
		"its id is another backup's":         {other: since, refused: true},
		"it is unknown":                      {other: unknown},
		"it has a new member's name and URL": {other: unknown, members: []plan.Member{memberAt("living", peer)}, refused: true},
		"it has a new member's URL alone":    {other: unknown, members: []plan.Member{memberAt("m1", peer)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.catalog(t)
			c.Backups = append(c.Backups, test.other)
			into := all(t)
			p, err := plan.New(c, plan.Target{Backup: s.backup.ID}, plan.Layout{Members: test.members, Into: into}, now)
			if err != nil {
				t.Fatal(err)
			}
			_, err = restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
			if errors.Is(err, fault.Refused) != test.refused || err != nil && !strings.Contains(err.Error(), alive) {
				t.Errorf("error %v, want a refusal: %v", err, test.refused)
			}
		})
	}
	t.Run("a file", func(t *testing.T) {
		p := filePlan(t, d.snapshot(), false)
		p.Members, p.Old.ClientURLs, p.Into.Name = []plan.Member{memberAt("living", peer)}, []string{alive}, "living"
		_, err := restore.Run(t.Context(), p, child.Opened{Keys: s.keys}, nil)
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), alive) {
			t.Errorf("error %v, want a refusal", err)
		}
	})
}

// On the host of a new member that no backup names an etcd may listen on a port that only a backup names.
func TestNewHostIsAskedAtKnownPorts(t *testing.T) {
	t.Parallel()
	peer := servers.FreeURLs(t, 1)[0]
	living := start(t, "living", t.TempDir(), "living="+peer, peer)
	_, port, err := net.SplitHostPort(living.Clients[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := store(t, plainDatabase(t), func(m *catalog.Manifest) {
		m.ClusterID = fmt.Sprintf("%x", uint64(living.Server.Cluster().ID()))
		for i := range m.Members {
			m.Members[i].ClientURLs = []string{"http://127.0.0.9:" + port} // an address of the loopback device without a server
		}
	})
	p := s.plan(t, plan.Layout{Members: []plan.Member{memberAt("new", "http://127.0.0.1:2380")}, Into: one(t, "new")})
	_, err = restore.Run(t.Context(), p, child.Opened{Cluster: s.cluster, Keys: s.keys}, nil)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "http://127.0.0.1:"+port) {
		t.Errorf("error %v, want a refusal", err)
	}
	wantNothing(t, p.Into)
}

// TestSalvageOfARunningMember starts a member, whose disk is salvaged, after the plan was made: its last writes would be lost.
func TestSalvageOfARunningMember(t *testing.T) {
	stopped, running := t.TempDir(), t.TempDir()
	p := plan.Plan{Salvage: &plan.Salvage{Disks: []plan.DiskSummary{{Dir: stopped}, {Dir: running}}}}
	ask := func() error { return restore.Ask(t.Context(), p, "", nil) }
	err := ask()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(running, "member", "snap", "db")
	err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	db, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = unix.Flock(int(db.Fd()), unix.LOCK_EX)
	if err != nil {
		t.Fatal(err)
	}
	err = ask()
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "a process has the data dir "+running+" open") {
		t.Errorf("error %v", err)
	}
	p.OldIsDead = true
	err = ask()
	if err != nil {
		t.Errorf("--old-is-dead: %v", err)
	}
}

// LiveRevision asks every known client URL for the revision of a live cluster.
func TestLiveRevision(t *testing.T) {
	t.Parallel()
	peer := servers.FreeURLs(t, 1)[0]
	live := start(t, "live", t.TempDir(), "live="+peer, peer)
	c := v3client.New(live.Server)
	defer c.Close()
	put, err := c.Put(t.Context(), "key", "value")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		urls []string
		want int64
	}{
		"one answers": {[]string{stored.DeadURL, "http://" + live.Clients[0].Addr().String()}, put.Header.Revision},
		"none does":   {[]string{stored.DeadURL, "ftp://127.0.0.1:1", "http://a b:\x00", strings.Replace(stored.DeadURL, "http:", "https:", 1)}, 0},
		"none is":     {nil, 0},
	} {
		got := restore.LiveRevision(t.Context(), plan.Plan{Old: plan.Old{ClientURLs: test.urls}})
		if got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
