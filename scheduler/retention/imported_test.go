package retention_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// importedAt returns an imported backup of another cluster, whose data are of the nth minute.
func importedAt(n int) catalog.Backup {
	b := taken(n)
	b.ID, b.ClusterID = catalog.NewImportID(b.Started, b.Revision), "f00d"
	b.Origin = &catalog.Origin{Kind: catalog.OriginFile, Imported: b.Started, Written: b.Started, File: "/srv/snapshot.db"}
	return b
}

// Whatever is imported, the rules decide the same.
func TestImportsChangeNoDecision(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		p := retention.Policy{Last: rapid.IntRange(1, 5).Draw(rt, "last"), Daily: rapid.IntRange(0, 5).Draw(rt, "daily"), Window: 48 * time.Hour}
		without, err := retention.Plan(w.catalog, p, w.now)
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "imports") {
			w.catalog.Imported = append(w.catalog.Imported, importedAt(rapid.IntRange(0, minutes).Draw(rt, "minute")))
		}
		with, err := retention.Plan(w.catalog, p, w.now)
		diff := cmp.Diff(without, with)
		if err != nil || diff != "" {
			rt.Errorf("%v\n%s", err, diff)
		}
	})
}

func TestRemoveImported(t *testing.T) {
	c := catalogOf(taken(1), taken(2))
	c.Imported = []catalog.Backup{importedAt(3), importedAt(1)}
	d, err := retention.RemoveImported(c, []catalog.ID{importedAt(1).ID})
	if err != nil || len(d.Backups) != 1 || d.Backups[0].ID != importedAt(1).ID || d.Backups[0].Keep || d.Removed != 100 || d.Kept != 300 {
		t.Errorf("%+v, %v", d, err)
	}
	c.Lineages = []catalog.Lineage{{ID: "l", Segments: []catalog.Segment{{Size: 7}, {Size: 5}}}}
	twice, err := retention.RemoveImported(c, []catalog.ID{importedAt(1).ID, importedAt(1).ID})
	if err != nil || len(twice.Backups) != 1 || twice.Removed != 100 || twice.Kept != 312 {
		t.Errorf("named twice, with a log of 12 bytes: %+v, %v", twice, err)
	}
	_, err = retention.RemoveImported(c, []catalog.ID{taken(1).ID})
	if !errors.Is(err, fault.Refused) {
		t.Errorf("a backup of the live cluster: %v", err)
	}
	_, err = retention.RemoveImported(c, []catalog.ID{importedAt(9).ID})
	if !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("a missing one: %v", err)
	}
}
