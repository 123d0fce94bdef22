package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

const million1000 = 1_000_000_000

// twice returns the catalog of a Kubernetes cluster that was restored once: its first history ended at revision 400, and its
// second began a bump above that, and ended at revision 1000000500.
func twice() catalog.Catalog {
	c := restored(evenCatalog(30, 1, 150), true)
	l := c.Lineages[1]
	for i := range l.Segments {
		l.Segments[i].Marks[0].Revision += million1000
	}
	l.Segments[1].Marks[0].Revision = million1000 + 500
	c.Backups[0].Revision += million1000
	c.Backups[0].RevisionMax += million1000
	for i := range c.Backups {
		c.Backups[i].Kubernetes = true
	}
	return c
}

func before(c catalog.Catalog) catalog.Catalog {
	for i := range c.Backups {
		c.Backups[i].Kubernetes = false
	}
	return c
}

func TestPlanBump(t *testing.T) {
	kubernetes := catalogOf(fixedBackup())
	others := before(catalogOf(fixedBackup()))
	old, file := plan.Target{Revision: 153}, plan.Target{File: "/x"}
	watched := twice()
	watched.Lineages[1].Segments[1].Source, watched.Lineages[1].Segments[1].Last = segment.Watch, million1000+900
	hashed := twice()
	hashed.Lineages[1].Segments[1].Hashes = []segment.Hash{{Position: 20, Revision: million1000 + 800}}
	unmarked := twice()
	unmarked.Lineages[1].Segments[0].Marks[0].Revision = million1000 + 495
	unmarked.Lineages[1].Segments[1].Marks = nil
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		target  plan.Target
		bump    string
		live    int64
		want    plan.Bump // without its reason
		reason  string
	}{
		"kubernetes":        {kubernetes, plan.Target{}, "auto", 0, plan.Bump{To: million1000 + 4711, Known: 4711}, "Kubernetes"},
		"nothing said":      {kubernetes, plan.Target{}, "", 0, plan.Bump{To: million1000 + 4711, Known: 4711}, "Kubernetes"},
		"another key space": {others, plan.Target{}, "auto", 0, plan.Bump{To: million1000 + 4711, Known: 4711, Auto: true}, "--bump-revision"},
		"a file":            {others, file, "auto", 0, plan.Bump{By: million1000, Known: 4711, Auto: true}, "--bump-revision"},
		"asked for":         {others, plan.Target{}, "17", 0, plan.Bump{By: 17, Known: 4711}, "as requested"},
		"asked for none":    {kubernetes, plan.Target{}, "0", 0, plan.Bump{Known: 4711}, "up to 4711, does not notice"},
		"a file, as asked":  {others, file, "5", 0, plan.Bump{By: 5, Known: 4711}, "as requested"},
		"the most that there is": {others, plan.Target{}, "2305843009213693951", 0, plan.Bump{By: 1<<61 - 1, Known: 4711},
			"as requested"},

		"the old history":     {twice(), old, "auto", 0, plan.Bump{To: 2*million1000 + 500, Known: million1000 + 500}, "Kubernetes"},
		"the newest history":  {twice(), plan.Target{}, "auto", 0, plan.Bump{To: 2*million1000 + 500, Known: million1000 + 500}, "Kubernetes"},
		"one backup alone":    {twice(), plan.Target{Backup: twice().Backups[2].ID}, "auto", 0, plan.Bump{To: 2*million1000 + 500, Known: million1000 + 500}, "Kubernetes"},
		"a watched one":       {watched, old, "auto", 0, plan.Bump{To: 2*million1000 + 900, Known: million1000 + 900}, "Kubernetes"},
		"a hash is newer":     {hashed, old, "auto", 0, plan.Bump{To: 2*million1000 + 800, Known: million1000 + 800}, "Kubernetes"},
		"after the last mark": {unmarked, old, "auto", 0, plan.Bump{To: 2*million1000 + 505, Known: million1000 + 505}, "Kubernetes"},
		"a newer live one":    {twice(), old, "auto", 3 * million1000, plan.Bump{To: 4 * million1000, Known: 3 * million1000}, "Kubernetes"},
		"an older live one":   {twice(), old, "auto", 700, plan.Bump{To: 2*million1000 + 500, Known: million1000 + 500}, "Kubernetes"},
		"before Kubernetes":   {before(twice()), old, "auto", 0, plan.Bump{To: 2*million1000 + 500, Known: million1000 + 500, Auto: true}, "--bump-revision"},
		"a file, a live one":  {catalog.Catalog{}, file, "auto", 3 * million1000, plan.Bump{By: million1000, Known: 3 * million1000, Auto: true}, "--bump-revision"},
		"enough is asked for": {twice(), old, "1000000349", 0, plan.Bump{To: million1000 + 502, Known: million1000 + 500}, "as requested"},
		"more than enough":    {twice(), plan.Target{}, "2", 0, plan.Bump{To: million1000 + 502, Known: million1000 + 500}, "as requested"},
	} {
		p, err := planBump(test.catalog, test.target, test.bump, test.live)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		reason := p.Bump.Reason
		p.Bump.Reason = ""
		if p.Bump != test.want || !strings.Contains(reason, test.reason) {
			t.Errorf("%s: bump %+v because %q, want %+v with %q", name, p.Bump, reason, test.want, test.reason)
		}
	}
}

func planBump(c catalog.Catalog, target plan.Target, bump string, live int64) (plan.Plan, error) {
	members := []plan.Member{{Name: "a", PeerURLs: []string{"http://h:1"}}}
	return plan.New(c, target, plan.Layout{Members: members, Token: "t", Bump: bump, Known: live}, now)
}

func TestPlanRefusesABumpBelowKnownRevisions(t *testing.T) {
	old := plan.Target{Revision: 153}
	for name, test := range map[string]struct {
		target plan.Target
		bump   string
		live   int64
		cure   string
	}{
		"a little":            {old, "1", 0, "clients may have seen revision 1000000500: use --bump-revision 2000000347, or auto"},
		"as before":           {old, "1000000000", 0, "would continue from 1000000153"},
		"to the very one":     {old, "1000000347", 0, "--bump-revision 2000000347"},
		"to the one after it": {old, "1000000348", 0, "--bump-revision 2000000347"},
		"a live one is newer": {plan.Target{}, "1000", million1000 + 9999, "--bump-revision 1000009499"},
		"of the newest":       {plan.Target{}, "1", 0, "would continue from 1000000501"},
		"no room":             {old, "auto", 1 << 61, "--bump-revision 0"},
		"no room for a few":   {old, "5", 1 << 61, "--bump-revision 0"},
	} {
		_, err := planBump(twice(), test.target, test.bump, test.live)
		if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), test.cure) {
			t.Errorf("%s: %v, want a refusal with %q", name, err, test.cure)
		}
	}
	_, err := planBump(twice(), old, "0", 1<<61)
	if err != nil {
		t.Errorf("without any: %v", err)
	}
}

// Requests after the last mark may have made one revision each.
func TestPlanCountsRequestsAfterTheLastMark(t *testing.T) {
	c := evenCatalog(30, 1, 150)
	c.Lineages[0].Segments[29].Marks = nil // ten requests after revision 390
	_, err := planBump(c, plan.Target{Revision: 153}, "247", 0)
	if !errors.Is(err, fault.Refused) || !strings.Contains(err.Error(), "continue from 400, and clients may have seen revision 400") {
		t.Errorf("%v, want a refusal", err)
	}
	p, err := planBump(c, plan.Target{Revision: 153}, "249", 0)
	if err != nil || p.Bump.To != 402 {
		t.Errorf("bump %+v, %v", p.Bump, err)
	}
}

// A plan counts a known revision even if the backup or segment that names it is unusable.
func TestAroundRemembersRevisions(t *testing.T) {
	c := evenCatalog(3, 1)
	newest := backupAt(second(2000), 900)
	newest.Kubernetes = true
	c.Backups = append([]catalog.Backup{newest}, c.Backups...)
	p, err := pursue(c, plan.Target{Best: true}, func(p plan.Plan) *plan.Obstacle {
		if p.Backup.ID == newest.ID {
			return &plan.Obstacle{Base: true}
		}
		return nil
	})
	if err != nil || p.Backup.ID == newest.ID || p.Bump.Known != 1000 || p.Bump.To != million1000+1000 {
		t.Errorf("plan of %s, bump %+v, %v", p.Backup.ID, p.Bump, err)
	}
}
