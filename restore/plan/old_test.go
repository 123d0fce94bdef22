package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// Every URL that any backup names is asked, and on hosts of which none is known etcd's own port and every port that a backup
// names; each once, and not too many.
func TestAskedURLs(t *testing.T) {
	backup := fixedBackup()
	other := changed(backup, func(b *catalog.Backup) {
		b.ID, b.Members = "20261120T000000Z-0000000000000001", []catalog.Member{{Name: "x", ClientURLs: []string{stored.DeadURL, "https://10.0.0.9:4001"}}}
	})
	members := []plan.Member{memberAt("a", "https://10.0.0.1:2380"), memberAt("b", "https://10.0.0.9:2380"), memberAt("c", "http://[fd00::2]:2380")}
	layout := plan.Layout{Members: members}
	guesses := []string{"http://10.0.0.1:2379", "https://10.0.0.1:2379"}
	six := []string{"http://[fd00::2]:2379", "https://[fd00::2]:2379"}
	ports := []string{
		"http://10.0.0.1:1", "https://10.0.0.1:4001", "http://[fd00::2]:1", "https://[fd00::2]:4001", // 1: stored.DeadURL's
	}
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		layout  plan.Layout
		want    []string
	}{
		"the members of the backup": {catalog: catalogOf(backup, other), want: []string{stored.DeadURL, "https://10.0.0.9:4001"}},
		"new members":               {catalog: catalogOf(backup, other), layout: layout, want: slices.Concat([]string{stored.DeadURL}, guesses, six, []string{"https://10.0.0.9:4001"}, ports)},
		"a file": {target: plan.Target{File: "/x"}, layout: layout,
			want: slices.Concat(guesses, []string{"http://10.0.0.9:2379", "https://10.0.0.9:2379"}, six)},
	} {
		p, err := plan.New(test.catalog, test.target, test.layout, now)
		diff := cmp.Diff(test.want, p.Old.ClientURLs)
		if diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	many := changed(other, func(b *catalog.Backup) {
		for i := range 100 {
			b.Members[0].ClientURLs = append(b.Members[0].ClientURLs, fmt.Sprintf("http://10.1.0.%d:2379", i))
		}
	})
	p, err := plan.New(catalogOf(backup, many), plan.Target{}, plan.Layout{}, now)
	n := len(p.Old.ClientURLs)
	if err != nil || n != 64 || !strings.Contains(strings.Join(p.Notes, "\n"), "client URLs") {
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

// A log names the member that it was read from, and not the membership: a plan reports that the members were replaced after the
// newest backup.
func TestPlanNotesAMemberThatOnlyTheLogNames(t *testing.T) {
	const words = "the log was last read from member e"
	for name, test := range map[string]struct {
		member string // of the log's segments from seq 6
		target plan.Target
		layout plan.Layout
		noted  bool
	}{
		"another member":      {member: "e", noted: true},
		"a known one":         {member: "b"},
		"before it":           {member: "e", target: plan.Target{Revision: 145}},
		"after it":            {member: "e", target: plan.Target{Revision: 190}, noted: true},
		"the members are set": {member: "e", layout: plan.Layout{Members: []plan.Member{{Name: "a", PeerURLs: []string{"http://h:1"}}}}},
	} {
		c := evenCatalog(10, 5)
		for i := range c.Lineages[0].Segments {
			c.Lineages[0].Segments[i].Member = "a"
			if i >= 5 {
				c.Lineages[0].Segments[i].Member = test.member
			}
		}
		p, err := plan.New(c, test.target, test.layout, now)
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(p.Notes, "\n")
		if strings.Contains(notes, words) != test.noted || test.noted && !strings.Contains(notes, "--initial-cluster") {
			t.Errorf("%s: notes %q, want one of the member: %v", name, notes, test.noted)
		}
	}
	c := evenCatalog(10, 5, 95) // the newer backup names the members after the segments
	c.Backups[0].Plain.Size *= 100000
	c.Lineages[0].Segments[8].Member = "e"
	p, err := plan.New(c, plan.Target{Revision: 188}, plan.Layout{}, now)
	if err != nil || !strings.Contains(strings.Join(p.Notes, "\n"), words) {
		t.Errorf("a backup after the target: notes %q, %v", p.Notes, err)
	}
	p, err = plan.New(c, plan.Target{}, plan.Layout{}, now)
	if err != nil || strings.Contains(strings.Join(p.Notes, "\n"), words) {
		t.Errorf("a backup after the segment: notes %q, %v", p.Notes, err)
	}
}

// TestOwnersOf finds the members that may answer at a client URL. All members may share one, of a load balancer.
func TestOwnersOf(t *testing.T) {
	p := plan.Plan{Members: []plan.Member{{Name: "d", PeerURLs: []string{"http://10.0.0.4:2380"}}}}
	for i, name := range []string{"a", "b", "c"} {
		host := fmt.Sprintf("http://10.0.0.%d:", i+1)
		p.Old.Members = append(p.Old.Members, catalog.Member{Name: name, PeerURLs: []string{host + "2380"}, ClientURLs: []string{host + "2379", "http://balancer:2379"}})
	}
	for at, want := range map[string]string{
		"http://10.0.0.3:2379": "c", "https://10.0.0.3:4001": "c", "http://10.0.0.4:2379": "d",
		"http://balancer:2379": "a b c", "http://10.0.0.9:2379": "", "::": "",
	} {
		got := strings.Join(p.OwnersOf(at), " ")
		if got != want {
			t.Errorf("at %s may answer %q, want %q", at, got, want)
		}
	}
}

// TestIsStranger checks which servers are certainly not of the old cluster: one that may be must not run next to the restored members.
func TestIsStranger(t *testing.T) {
	old := []catalog.Member{
		{ID: "a", Name: "m1", PeerURLs: []string{"http://10.0.0.1:2380"}}, {ID: "b", Name: "m2", PeerURLs: []string{"http://10.0.0.2:2380"}},
	}
	p := plan.Plan{Members: []plan.Member{memberAt("new", "http://10.0.1.1:2380")}, Old: plan.Old{Members: old, ClusterIDs: []string{"cafe"}}}
	others := []catalog.Member{{ID: "c", Name: "x1", PeerURLs: []string{"http://10.0.9.1:2380"}}, {ID: "d", Name: "m1", PeerURLs: []string{"http://10.0.9.2:2380"}}}
	for name, c := range map[string]struct {
		id      string
		members []catalog.Member
		want    bool
	}{
		"another cluster":                 {"ffff", others, true},
		"its cluster, of other members":   {"cafe", others, false},
		"an unknown cluster":              {"", others, false},
		"restored, of an old member":      {"ffff", old[1:], false},
		"restored, of a new member":       {"ffff", []catalog.Member{{Name: "new", PeerURLs: []string{"http://10.0.1.1:2380"}}}, false},
		"a new member's name, other URLs": {"ffff", []catalog.Member{{Name: "new", PeerURLs: []string{"http://10.0.9.9:2380"}}}, true},
	} {
		if p.IsStranger(c.id, c.members) != c.want {
			t.Errorf("%s: it is a stranger: %t", name, !c.want)
		}
	}
}
