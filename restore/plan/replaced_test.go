package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Data that was built while the cluster ran serves for the same target after its end, but not for another target.
func TestEquivalent(t *testing.T) {
	alone := []plan.Member{memberAt("a", "https://10.0.0.1:2380")}
	c := evenCatalog(10, 5, 52)
	planned := func(target plan.Target, l plan.Layout) plan.Plan {
		t.Helper()
		if l.Members == nil {
			l.Members = alone
		}
		p, err := plan.New(c, target, l, now)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := planned(plan.Target{Position: 40}, plan.Layout{Salt: "1", Known: 100_000})
	file := func(bump string, known int64) plan.Plan { // only the run knows the last revision of a file
		return planned(plan.Target{File: "/x"}, plan.Layout{Bump: bump, Known: known})
	}
	two := []plan.Member{alone[0], memberAt("b", "https://10.0.0.2:2380")}
	several := planned(plan.Target{}, plan.Layout{Members: two})
	for name, test := range map[string]struct {
		built, now plan.Plan
		want       bool
	}{
		"the same":              {first, first, true},
		"another token":         {first, planned(plan.Target{Position: 40}, plan.Layout{Salt: "2", Known: 100_000}), true},
		"the cluster has ended": {first, planned(plan.Target{Position: 40}, plan.Layout{Salt: "2"}), true},
		"a few writes later":    {first, planned(plan.Target{Position: 40}, plan.Layout{Known: 200_000}), true},
		"far more revisions":    {first, planned(plan.Target{Position: 40}, plan.Layout{Known: 900_000_000}), false},
		"another target":        {first, planned(plan.Target{Position: 41}, plan.Layout{}), false},
		"another bump":          {first, planned(plan.Target{Position: 40}, plan.Layout{Bump: "5000000000"}), false},
		"no bump":               {first, planned(plan.Target{Position: 40}, plan.Layout{Bump: "0"}), false},
		"other members":         {first, planned(plan.Target{Position: 40}, plan.Layout{Members: []plan.Member{two[1]}}), false},
		"alarms":                {first, planned(plan.Target{Position: 40}, plan.Layout{KeepAlarms: true}), false},
		"a file, as requested":  {file("700", 5000), file("700", 4000), true},
		"and more revisions":    {file("700", 5000), file("700", 5001), false},
		"a file of Kubernetes":  {file("auto", 5000), file("auto", 9000), true},
		"and far more":          {file("auto", 5000), file("auto", 900_000_000), false},
		"one plan of several":   {several, several, true},
		"plans of several":      {several, planned(plan.Target{}, plan.Layout{Members: two, Known: 100_000}), false},
	} {
		got := test.built.Equivalent(test.now)
		if got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A restore does not go over the data of another cluster or of another member.
func TestCheckReplaced(t *testing.T) {
	b := fixedBackup()
	b.Members = []catalog.Member{
		{ID: "a", Name: "m1", PeerURLs: []string{"http://10.0.0.1:2380"}}, {ID: "b", Name: "m2", PeerURLs: []string{"http://10.0.0.2:2380"}},
	}
	p, err := plan.New(catalogOf(b), plan.Target{}, plan.Layout{Into: plan.Into{Name: "m1", DataDir: "/etcd"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	ours := []disk.Database{{Members: b.Members}}
	strange := []disk.Database{{Members: []catalog.Member{{ID: "c", Name: "x1", PeerURLs: []string{"http://10.0.9.1:2380"}}}}}
	for name, test := range map[string]struct {
		disk disk.Disk
		want string // in the error; "": none
	}{
		"its own data":                      {disk.Disk{Cluster: b.ClusterID, Member: "a", Databases: ours}, ""},
		"after a restore":                   {disk.Disk{Cluster: "ffff", Member: "a", Databases: ours}, ""},
		"another member's":                  {disk.Disk{Cluster: b.ClusterID, Member: "b", Databases: ours}, "belongs to member m2, not to m1"},
		"another cluster's":                 {disk.Disk{Cluster: "ffff", Member: "c", Databases: strange}, "belongs to another cluster, with the members x1"},
		"another cluster's, with --wal-dir": {disk.Disk{Databases: strange}, "belongs to another cluster"},
		"its own, with --wal-dir":           {disk.Disk{Databases: ours}, ""},
		"too damaged to tell":               {disk.Disk{Databases: []disk.Database{{Damage: "damaged"}}}, ""},
	} {
		test.disk.Dir = "/etcd"
		err := p.CheckReplaced(test.disk)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}
