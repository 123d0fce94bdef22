package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// emptied returns an evenCatalog after which members that lost their data formed an empty cluster of the same id, with a log
// and a backup.
func emptied() (c catalog.Catalog, before, after catalog.Backup) {
	c = evenCatalog(10, 5, 52)
	before = c.Backups[0]
	from := started.Add(time.Hour)
	log := evenLog(lineageNumber(1), from, 3)
	for i := range log.Segments {
		for j := range log.Segments[i].Marks {
			log.Segments[i].Marks[j].Revision -= 100
		}
	}
	after = backupAt(from, 12)
	after.Revision, after.RevisionMax, after.Plain.Size = 12, 12, before.Plain.Size/10
	after.ID = catalog.NewID(after.Started, after.Revision)
	c.Backups = append([]catalog.Backup{after}, c.Backups...)
	c.Lineages = append(c.Lineages, log)
	return c, before, after
}

// Within seconds of a loss a supervisor makes an empty cluster of empty data dirs. It must not pass for the newest state.
func TestEmptyClusterIsNotTheNewestState(t *testing.T) {
	c, before, after := emptied()
	planned := func(c catalog.Catalog, target plan.Target) (string, error) {
		p, err := plan.New(c, target, plan.Layout{}, now.Add(time.Hour))
		if err != nil {
			return "", err
		}
		return string(p.Backup.ID), nil
	}
	_, err := planned(c, plan.Target{})
	if !errors.Is(err, catalog.ErrNotFound) {
		t.Fatalf("error %v, want that a person has to choose", err)
	}
	for _, want := range []string{string(before.ID), string(after.ID), "--lineage " + lineageNumber(0), "--lineage " + lineageNumber(1), "revision 200"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
	_, best := planned(c, plan.Target{Best: true})
	if !errors.Is(best, catalog.ErrNotFound) {
		t.Errorf("with --best: error %v", best)
	}
	for name, target := range map[string]plan.Target{
		"the lineage before": {Lineage: lineageNumber(0)}, "a revision": {Revision: 180}, "a time": {Time: second(85)}, "its backup": {Backup: before.ID},
	} {
		base, err := planned(c, target)
		if err != nil || base == string(after.ID) {
			t.Errorf("%s: base %s, error %v", name, base, err)
		}
	}
	for name, target := range map[string]plan.Target{"the new lineage": {Lineage: lineageNumber(1)}, "its backup": {Backup: after.ID}} {
		base, err := planned(c, target)
		if err != nil || base != string(after.ID) {
			t.Errorf("%s: base %s, error %v", name, base, err)
		}
	}
	small, _, _ := emptied()
	small.Backups[0].Plain.Size = before.Plain.Size - 1
	_, err = planned(small, plan.Target{})
	if !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("nearly as large as before: error %v, want that a person has to choose", err)
	}
	original, _, _ := emptied() // the cluster before was restored by dr, and so had another id
	original.Backups[1].ClusterID = "abc" + catalog.RestoreMark(clusterName)
	original.Backups[0].Plain.Size = before.Plain.Size - 1
	_, err = planned(original, plan.Target{})
	if !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("with the id that the cluster was set up with: error %v, want that a person has to choose", err)
	}
	confirmed, _, _ := emptied()
	confirmed.Backups[0].Pins = []catalog.Pin{{Confirms: true}}
	base, err := planned(confirmed, plan.Target{})
	if err != nil || base != string(after.ID) {
		t.Errorf("confirmed: base %s, error %v", base, err)
	}
	restored, _, _ := emptied()
	restored.Backups[0].ClusterID = "abc" + catalog.RestoreMark(clusterName)
	restored.Lineages = restored.Lineages[:1]
	base, err = planned(restored, plan.Target{})
	if err != nil || base != string(after.ID) {
		t.Errorf("restored by dr: base %s, error %v", base, err)
	}
}
