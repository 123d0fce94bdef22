package plan_test

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

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
		same := got == token
		if same != test.same {
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
