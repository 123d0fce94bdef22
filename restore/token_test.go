package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// As etcd's documentation has it: each host restores its own member from the same file, and no host knows of the others' runs.
func TestRestoresOfOneMemberEachFormOneCluster(t *testing.T) {
	t.Parallel()
	d := plainDatabase(t)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(file, d.snapshot(), 0o600); err != nil {
		t.Fatal(err)
	}
	digest, err := restore.FileDigest(file, false)
	if err != nil {
		t.Fatal(err)
	}
	urls := servers.FreeURLs(t, 3)
	names := []string{"m1", "m2", "m3"}
	var members []plan.Member
	for i, name := range names {
		members = append(members, memberAt(name, urls[i]))
	}
	var launched []*embed.Etcd
	for i, name := range names {
		into := one(t, name)
		p, err := plan.New(catalog.Catalog{}, plan.Target{File: file, FileDigest: digest},
			plan.Layout{Members: members, Into: into}, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := restore.Run(t.Context(), p, nil, seal.Keys{}, nil); err != nil {
			t.Fatal(err)
		}
		launched = append(launched, launch(t, name, into.DataDir, p.InitialCluster(), urls[i]))
	}
	for _, e := range launched {
		wait(t, e)
	}
	wantServing(t, launched, d)
}

// The file on another host may be another one of the same name.
func TestRestoreOfAnotherFileThanPlannedIsRefused(t *testing.T) {
	p := filePlan(t, plainDatabase(t).snapshot(), false)
	p.FileDigest = strings.Repeat("0", 64)
	_, err := restore.Run(t.Context(), p, nil, seal.Keys{}, nil)
	if !errors.Is(err, plan.ErrRefused) || !strings.Contains(err.Error(), "is not the file that the plan was made for") {
		t.Errorf("error %v", err)
	}
	wantNothing(t, p.Into)
}

func tokenOf(t *testing.T, c catalog.Catalog, target plan.Target, l plan.Layout) string {
	t.Helper()
	p, err := plan.New(c, target, l, now)
	if err != nil {
		t.Fatal(err)
	}
	return p.Token
}

// The token is the same wherever members may form one cluster, and another one wherever they must not.
func TestTokenIsDerived(t *testing.T) {
	backup := fixedBackup()
	older := changed(backup, func(b *catalog.Backup) { b.ID, b.Started = "20261120T000000Z-0000000000000001", b.Started.Add(-1) })
	cat := catalogOf(backup, older)
	token := tokenOf(t, cat, plan.Target{}, plan.Layout{})
	since := changed(backup, func(b *catalog.Backup) { b.ID, b.ClusterID = "20261123T000000Z-0000000000000001", "abc" })
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		layout  plan.Layout
		same    bool
	}{
		"again":                       {same: true},
		"another host's member":       {layout: plan.Layout{Into: plan.Into{Name: "m2", DataDir: "/d"}}, same: true},
		"members in another order":    {layout: plan.Layout{Members: []plan.Member{memberAt("b", "http://h:2"), memberAt("a", "http://h:1")}}},
		"another backup":              {target: plan.Target{Backup: older.ID}},
		"another jump of revisions":   {layout: plan.Layout{Bump: "5"}},
		"alarms are kept":             {layout: plan.Layout{KeepAlarms: true}},
		"a fresh one":                 {layout: plan.Layout{Salt: "random"}},
		"a cluster restored before":   {catalog: catalogOf(since, backup, older), target: plan.Target{Backup: backup.ID}},
		"the same cluster, backed up": {catalog: catalogOf(backup, older, changed(older, func(b *catalog.Backup) { b.ID = "20261119T000000Z-0000000000000001" })), same: true},
		"another name in the storage": {catalog: catalog.Catalog{Cluster: "other", Backups: cat.Backups}},
		"a plain file":                {target: plan.Target{File: "/x"}, layout: plan.Layout{Members: []plan.Member{memberAt("a", "http://h:1")}}},
	} {
		if test.catalog.Cluster == "" {
			test.catalog = cat
		}
		got := tokenOf(t, test.catalog, test.target, test.layout)
		if same := got == token; same != test.same {
			t.Errorf("%s: token %s, the first was %s", name, got, token)
		}
	}
	file := func(digest string) string {
		l := plan.Layout{Members: []plan.Member{memberAt("a", "http://h:1")}}
		return tokenOf(t, cat, plan.Target{File: "/x", FileDigest: digest}, l)
	}
	first, again := file("1"), file("1")
	if first == file("2") || first != again {
		t.Error("the token of a file does not follow its digest")
	}
}

// What is stored later of a restored cluster shows by its id that dr made it.
func TestTokenMarksTheClusterID(t *testing.T) {
	p, err := plan.New(catalogOf(fixedBackup()), plan.Target{}, plan.Layout{Salt: "random"}, now)
	if err != nil {
		t.Fatal(err)
	}
	urls, err := types.NewURLsMap(p.InitialCluster())
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := membership.NewClusterFromURLsMap(zap.NewNop(), p.Token, urls)
	if err != nil {
		t.Fatal(err)
	}
	if id := cluster.ID().String(); !catalog.IsRestored(clusterName, id) || catalog.IsRestored("another", id) {
		t.Errorf("cluster id %s, mark %s", id, catalog.RestoreMark(clusterName))
	}
}
