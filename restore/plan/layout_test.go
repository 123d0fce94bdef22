package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

func memberAt(name string, urls ...string) plan.Member {
	return plan.Member{Name: name, PeerURLs: urls}
}

// Each refusal matches a sentinel and names its remedy.
func TestPlanRefuses(t *testing.T) {
	backup := fixedBackup()
	damaged := catalog.Damage{ID: "20261122T000000Z-0000000000001000", Err: catalog.ErrDamaged}
	corrupt := changed(backup, func(b *catalog.Backup) { b.Alarms = []string{"CORRUPT"} })
	a, b := memberAt("a", "http://h:1"), memberAt("b", "http://h:2")
	members := func(m ...plan.Member) plan.Layout { return plan.Layout{Members: m} }
	const named = "--initial-cluster"
	into := func(i plan.Into) plan.Layout { return plan.Layout{Members: []plan.Member{a, b}, Into: i} }
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		layout  plan.Layout
		is      error // nil: ErrLayout
		cure    string
	}{
		"no backup": {catalog: catalogOf(), is: catalog.ErrNotFound, cure: "dr backup"},
		"unknown id": {target: plan.Target{Backup: "20200101T000000Z-0000000000000001"},
			is: catalog.ErrNotFound, cure: "dr list"},
		"newest is damaged": {
			catalog: catalog.Catalog{Cluster: clusterName, Backups: []catalog.Backup{backup},
				Damaged: []catalog.Damage{damaged}},
			is: catalog.ErrDamaged, cure: string(backup.ID) + ", ask for it by name",
		},
		"damaged, by name": {
			catalog: catalog.Catalog{Damaged: []catalog.Damage{damaged}}, target: plan.Target{Backup: damaged.ID},
			is: catalog.ErrDamaged, cure: "damaged",
		},
		"corrupt":              {catalog: catalogOf(corrupt), is: fault.Refused, cure: "--allow-corrupt"},
		"a file, no members":   {target: plan.Target{File: "/x"}, cure: named},
		"names twice":          {layout: members(a, memberAt("a", "http://h:3")), cure: named},
		"URLs twice":           {layout: members(a, memberAt("b", "http://h:1")), cure: named},
		"URL twice in one":     {layout: members(memberAt("a", "http://h:1", "http://h:1")), cure: named},
		"no URL":               {layout: members(memberAt("a")), cure: named},
		"URL without a scheme": {layout: members(memberAt("a", "h:1")), cure: "http, https"},
		"URL without a port":   {layout: members(memberAt("a", "http://h")), cure: "host:port"},
		"URL with a path":      {layout: members(memberAt("a", "http://h:1/x")), cure: "must not contain a path"},
		"URL that is none":     {layout: members(memberAt("a", "http://h:1%zz")), cure: "https://host:port"},
		"URL with a comma":     {layout: members(memberAt("a", "http://h:1?,b=http://h:2")), cure: "https://host:port"},
		"no name":              {layout: members(memberAt("", "http://h:1")), cure: named},
		"name ..":              {layout: members(memberAt("..", "http://h:1")), cure: named},
		"name .":               {layout: members(memberAt(".", "http://h:1")), cure: named},
		"name a/b":             {layout: members(memberAt("a/b", "http://h:1")), cure: named},
		"name a\\b":            {layout: members(memberAt(`a\b`, "http://h:1")), cure: named},
		"name a,b":             {layout: members(memberAt("a,b", "http://h:1")), cure: named},
		"name a=b":             {layout: members(memberAt("a=b", "http://h:1")), cure: named},
		"name of a work dir":   {layout: members(memberAt(".dr-restore-0123456789abcdef", "http://h:1")), cure: named},
		"bump negative":        {layout: plan.Layout{Bump: "-1"}, cure: "use auto"},
		"bump garbage":         {layout: plan.Layout{Bump: "many"}, cure: "use auto"},
		"bump overflowing":     {layout: plan.Layout{Bump: "99999999999999999999"}, cure: "too large: use at most 2305843009213693951"},
		"bump near the end":    {layout: plan.Layout{Bump: "9000000000000000000"}, cure: "too large: use at most 2305843009213693951"},
		"bump a fraction":      {layout: plan.Layout{Bump: "1.5"}, cure: "use auto"},
		"stranger's name": {layout: into(plan.Into{Name: "c", DataDir: "/d"}),
			cure: "a=http://h:1,b=http://h:2"},
		"all and one":           {layout: into(plan.Into{OutputDir: "/o", Name: "a"}), cure: "use either --output-dir or the other two"},
		"all and a data dir":    {layout: into(plan.Into{OutputDir: "/o", DataDir: "/d"}), cure: "use either --output-dir or the other two"},
		"name, no data dir":     {layout: into(plan.Into{Name: "a"}), cure: "--data-dir"},
		"data dir, no name":     {layout: into(plan.Into{DataDir: "/d"}), cure: "--name"},
		"relative output dir":   {layout: into(plan.Into{OutputDir: "o"}), cure: "absolute"},
		"relative data dir":     {layout: into(plan.Into{Name: "a", DataDir: "./d"}), cure: "absolute"},
		"a log in the data dir": {layout: into(plan.Into{Name: "a", DataDir: "/d", WALDir: "/d/wal"}), cure: "neither may be inside the other"},
		"the data dir as log":   {layout: into(plan.Into{Name: "a", DataDir: "/d", WALDir: "/d/"}), cure: "neither may be inside the other"},
		"a data dir in the log": {layout: into(plan.Into{Name: "a", DataDir: "/w/d", WALDir: "/w"}), cure: "neither may be inside the other"},
		"a relative log":        {layout: into(plan.Into{Name: "a", DataDir: "/d", WALDir: "w"}), cure: "absolute"},
		"a log, all members":    {layout: into(plan.Into{OutputDir: "/o", WALDir: "/w"}), cure: "--data-dir"},
		"other own URLs": {
			layout: plan.Layout{Members: []plan.Member{a, b}, OwnURLs: []string{"http://h:9"},
				Into: plan.Into{Name: "a", DataDir: "/d"}},
			cure: "but is http://h:1 among the members",
		},
		"more own URLs": {
			layout: plan.Layout{Members: []plan.Member{a}, OwnURLs: []string{"http://h:1", "http://h:2"},
				Into: plan.Into{Name: "a", DataDir: "/d"}},
			cure: "but is http://h:1 among the members",
		},
		"own URLs of nobody": {
			layout: plan.Layout{Members: []plan.Member{a}, OwnURLs: []string{"http://h:1"}},
			cure:   "--name",
		},
		"a member that never started": {
			catalog: catalogOf(changed(backup, func(b *catalog.Backup) {
				b.Members = append([]catalog.Member{{ID: "9", PeerURLs: []string{"http://h:9"}}}, b.Members...)
			})),
			cure: named,
		},
		"only learners": {
			catalog: catalogOf(changed(backup, func(b *catalog.Backup) { b.Members = b.Members[3:] })),
			cure:    named,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.catalog.Cluster == "" && test.catalog.Damaged == nil {
				test.catalog = catalogOf(backup)
			}
			if test.is == nil {
				test.is = plan.ErrLayout
			}
			test.layout.Token = "t"
			p, err := plan.New(test.catalog, test.target, test.layout, now)
			if !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.cure) {
				t.Errorf("plan %+v, error %v, want %v with %q", p, err, test.is, test.cure)
			}
		})
	}
}

// A password in a URL ends in no message: those go into logs and CRs.
func TestPlanHidesCredentials(t *testing.T) {
	for _, u := range []string{
		"https://root:secret@h:1", "https://root:secret@h:1/path", "https://root:secret@h", "ftp://root:secret@h:1",
		"https://root:secret@h:1%zz", "https://root:sec%ret@h:1",
	} {
		_, err := plan.ParseMembers("a=" + u)
		if !errors.Is(err, plan.ErrLayout) || strings.Contains(err.Error(), "sec") ||
			!strings.Contains(err.Error(), "https://host:port") {
			t.Errorf("%s: error %v", u, err)
		}
	}
}

func TestPlanAllowsCorruptIfAsked(t *testing.T) {
	corrupt := changed(fixedBackup(), func(b *catalog.Backup) { b.Alarms = []string{"CORRUPT"} })
	p, err := plan.New(catalogOf(corrupt), plan.Target{}, plan.Layout{Token: "t", AllowCorrupt: true}, now)
	if err != nil || !p.AllowCorrupt {
		t.Errorf("plan %+v, error %v", p, err)
	}
}

func TestPlanOwnURLs(t *testing.T) {
	two := memberAt("a", "http://h:2", "http://h:1")
	for name, l := range map[string]plan.Layout{
		"in another order":     {Members: []plan.Member{two}, OwnURLs: []string{"http://h:1", "http://h:2"}},
		"they are the members": {OwnURLs: []string{"http://h:2", "http://h:1"}},
	} {
		l.Token, l.Into = "t", plan.Into{Name: "a", DataDir: "/d"}
		p, err := plan.New(catalog.Catalog{}, plan.Target{File: "/x"}, l, now)
		if err != nil || !cmp.Equal(p.Members, []plan.Member{two}) {
			t.Errorf("%s: members %v, error %v", name, p.Members, err)
		}
	}
}

func TestPlanMembersAreSorted(t *testing.T) {
	l := plan.Layout{Members: []plan.Member{memberAt("b", "http://h:2"),
		memberAt("a", "http://h:1", "http://h:3")}, Token: "t"}
	p, err := plan.New(catalogOf(fixedBackup()), plan.Target{}, l, now)
	want := "a=http://h:1,a=http://h:3,b=http://h:2"
	if err != nil || p.InitialCluster() != want {
		t.Errorf("members %s, error %v, want %s", p.InitialCluster(), err, want)
	}
}

func TestParseMembers(t *testing.T) {
	got, err := plan.ParseMembers("m1=https://10.0.0.1:2380, m2=https://[fd00::2]:2380")
	want := []plan.Member{memberAt("m1", "https://10.0.0.1:2380"), memberAt("m2", "https://[fd00::2]:2380")}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("members %v, error %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", ",", "a", "a=", "=http://h:1", "a=http://h:1,", "a=http://h:1,a=http://h:2",
		"a=http://h:1=x"} {
		m, err := plan.ParseMembers(bad)
		if !errors.Is(err, plan.ErrLayout) {
			t.Errorf("%q: members %v, error %v", bad, m, err)
		}
	}
}

func FuzzParseMembers(f *testing.F) {
	f.Add("m1=https://10.0.0.1:2380,m2=https://[fd00::2]:2380")
	f.Add("a=unix://x:1, b=http://h:1?x=1")
	f.Add("..=http://h:1")
	f.Fuzz(func(t *testing.T, text string) {
		members, err := plan.ParseMembers(text)
		if err != nil {
			if !errors.Is(err, plan.ErrLayout) {
				t.Fatalf("error %v is no ErrLayout", err)
			}
			return
		}
		p := plan.Plan{Members: members}
		again, err := plan.ParseMembers(p.InitialCluster())
		if err != nil || !cmp.Equal(members, again) {
			t.Fatalf("%q became %q: %v", text, p.InitialCluster(), err)
		}
		for _, m := range members {
			if m.Name == "" || m.Name == "." || m.Name == ".." || strings.ContainsAny(m.Name, "/\\\x00") {
				t.Fatalf("member %q cannot be a folder", m.Name)
			}
		}
	})
}
