package restore_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// silent takes connections and never says a word, as a stopped process does.
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
		"nobody":               {url: deadURL, id: id},
		"a URL of no use":      {url: "unix://x", id: id},
		"a URL that is broken": {url: "http://127.0.0.1:1%zz", id: id},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := store(t, plainDatabase(t), func(m *catalog.Manifest) {
				m.ClusterID = test.id
				m.Members[1].ClientURLs = []string{deadURL, test.url}
			})
			p := s.plan(t, plan.Layout{OldIsDead: test.dead, Into: one(t, "m1")})
			if test.refused {
				_, err := restore.Run(t.Context(), p, s.cluster, s.keys, nil)
				if !errors.Is(err, plan.ErrRefused) || !strings.Contains(err.Error(), test.url) ||
					!strings.Contains(err.Error(), "--old-is-dead") {
					t.Errorf("error %v", err)
				}
				wantNothing(t, p.Into)
				return
			}
			_, events := run(t, s, p)
			if said := messages(events); said != test.note {
				t.Errorf("said %q, want %q", said, test.note)
			}
		})
	}
}

// After a restore the cluster has another id than the backup that a second restore begins with; both are in the repository.
// A cluster that no backup knows is the old one all the same if it has one of the members.
func TestClusterThatWasRestoredIsNotAStranger(t *testing.T) {
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
			_, err = restore.Run(t.Context(), p, s.cluster, s.keys, nil)
			if errors.Is(err, plan.ErrRefused) != test.refused || err != nil && !strings.Contains(err.Error(), alive) {
				t.Errorf("error %v, want a refusal: %v", err, test.refused)
			}
		})
	}
	t.Run("a file", func(t *testing.T) {
		p := filePlan(t, d.snapshot(), false)
		p.Members, p.Old.ClientURLs, p.Into.Name = []plan.Member{memberAt("living", peer)}, []string{alive}, "living"
		_, err := restore.Run(t.Context(), p, nil, s.keys, nil)
		if !errors.Is(err, plan.ErrRefused) || !strings.Contains(err.Error(), alive) {
			t.Errorf("error %v, want a refusal", err)
		}
	})
}

// Every URL that any backup names is asked, and on hosts of which none is known etcd's own port; each once, and not too many.
func TestAskedURLs(t *testing.T) {
	backup := fixedBackup()
	other := changed(backup, func(b *catalog.Backup) {
		b.ID, b.Members = "20261120T000000Z-0000000000000001", []catalog.Member{{Name: "x", ClientURLs: []string{deadURL, "https://10.0.0.9:4001"}}}
	})
	members := []plan.Member{memberAt("a", "https://10.0.0.1:2380"), memberAt("b", "https://10.0.0.9:2380"), memberAt("c", "http://[fd00::2]:2380")}
	layout := plan.Layout{Members: members}
	guesses := []string{"http://10.0.0.1:2379", "https://10.0.0.1:2379"}
	six := []string{"http://[fd00::2]:2379", "https://[fd00::2]:2379"}
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		layout  plan.Layout
		want    []string
	}{
		"the members of the backup": {catalog: catalogOf(backup, other), want: []string{deadURL, "https://10.0.0.9:4001"}},
		"new members":               {catalog: catalogOf(backup, other), layout: layout, want: slices.Concat([]string{deadURL}, guesses, six, []string{"https://10.0.0.9:4001"})},
		"a file": {target: plan.Target{File: "/x"}, layout: layout,
			want: slices.Concat(guesses, []string{"http://10.0.0.9:2379", "https://10.0.0.9:2379"}, six)},
	} {
		p, err := plan.New(test.catalog, test.target, test.layout, now)
		if diff := cmp.Diff(test.want, p.Old.ClientURLs); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	many := changed(other, func(b *catalog.Backup) {
		for i := range 100 {
			b.Members[0].ClientURLs = append(b.Members[0].ClientURLs, fmt.Sprintf("http://10.1.0.%d:2379", i))
		}
	})
	p, err := plan.New(catalogOf(backup, many), plan.Target{}, plan.Layout{}, now)
	if n := len(p.Old.ClientURLs); err != nil || n != 64 || !strings.Contains(strings.Join(p.Notes, "\n"), "client URLs") {
		t.Errorf("%d URLs, error %v, notes %q", n, err, p.Notes)
	}
}

// A base may be months old, and the membership is not in the log.
func TestMembersAreThoseOfTheNewestBackupUpToTheTarget(t *testing.T) {
	c := evenCatalog(10, 5, 52)
	newest := &c.Backups[0]
	newest.Plain.Size *= 100000 // so that the older one is the base
	newest.Members = []catalog.Member{{ID: "e", Name: "new1", PeerURLs: []string{"https://10.1.0.1:2380"}, ClientURLs: []string{"https://10.1.0.1:2379"}}}
	for name, test := range map[string]struct {
		target plan.Target
		want   string
		noted  bool
	}{
		"to the end":             {want: "new1=https://10.1.0.1:2380"},
		"to a later revision":    {target: plan.Target{Revision: 190}, want: "new1=https://10.1.0.1:2380"},
		"to an earlier one":      {target: plan.Target{Revision: 120}, want: "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:2381,m3=http://127.0.0.1:2382", noted: true},
		"to an earlier time":     {target: plan.Target{Time: second(41)}, want: "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:2381,m3=http://127.0.0.1:2382", noted: true},
		"to a later time":        {target: plan.Target{Time: second(71)}, want: "new1=https://10.1.0.1:2380"},
		"the older backup alone": {target: plan.Target{Backup: c.Backups[1].ID}, want: "m1=http://127.0.0.1:2380,m2=http://127.0.0.1:2381,m3=http://127.0.0.1:2382", noted: true},
	} {
		p, err := plan.New(c, test.target, plan.Layout{}, now)
		if err != nil {
			t.Fatal(err)
		}
		if p.Backup.ID != c.Backups[1].ID {
			t.Errorf("%s: base %s", name, p.Backup.ID)
		}
		noted := strings.Contains(strings.Join(p.Notes, "\n"), "names others: new1=https://10.1.0.1:2380")
		if p.InitialCluster() != test.want || noted != test.noted {
			t.Errorf("%s: members %s, want %s; notes %q, want one of the later members: %v", name, p.InitialCluster(), test.want, p.Notes, test.noted)
		}
	}
}
