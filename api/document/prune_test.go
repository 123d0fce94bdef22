package document_test

import (
	"errors"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

func pin() catalog.Pin {
	return catalog.Pin{
		Format: catalog.Pins.Format, Backup: id, ID: "0123456789abcdef", Reason: "before 1.34", Time: at.Add(time.Hour), By: "host, dr v1", Confirms: true,
	}
}

// pruned is a prune of three backups, of which one stays though no rule keeps it.
func pruned() document.Prune {
	decision := func(n int, keep bool, reason, doubt string) retention.Decision {
		d := retention.Decision{Backup: catalog.Backup{Manifest: manifest()}, Keep: keep, Reasons: []string{reason}, Doubt: doubt}
		d.Started = at.AddDate(0, 0, -n)
		d.ID = catalog.NewID(d.Started, 4711)
		return d
	}
	d := retention.Decisions{
		Backups: []retention.Decision{
			decision(0, true, "daily 1", "a member had the alarm CORRUPT when it was taken"), decision(1, false, "no rule keeps it", ""),
			decision(2, false, "no rule keeps it", ""), decision(3, false, "no rule keeps it", ""),
		},
		Log:  []retention.Cut{{Lineage: lineage, Upto: 25, Segments: 24, Bytes: 7000, Reason: "it is older than the window of 14d"}},
		Kept: 7000, Removed: 28000, Over: 1000,
	}
	r := repository.PruneResult{
		Locked: []repository.Locked{
			{Key: "prod/backups/x/manifest.json", Backup: d.Backups[1].ID, Until: at.AddDate(0, 1, 0)}, {Key: "prod/log/x/0000000000000001.seg"},
		},
		Pinned: []catalog.ID{d.Backups[2].ID},
		Swept:  []catalog.Leftover{{Key: "prod/backups/y/snapshot.db.zst", Size: 7000}, {Key: "prod/backups/y/tombstone.json", Size: 500}},
	}
	c := catalog.Catalog{
		Cluster: "prod", Damaged: []catalog.Damage{{ID: id, Err: errors.New("damaged: it is cut off")}},
		Untrusted: []catalog.Damage{{ID: id, Err: errors.New("damaged: not signed by a trusted key")}},
	}
	return document.NewPrune(c, d, r, true)
}

// A backup that is locked, or was pinned meanwhile, is not among the removed ones.
func TestPruneStays(t *testing.T) {
	d := pruned()
	for i, keep := range []bool{true, true, true, false} {
		if d.Backups[i].Keep != keep {
			t.Errorf("backup %d: %+v", i, d.Backups[i])
		}
	}
	if d.Kept != 21000 || d.Removed != 14000 || d.SweptSize != 7500 {
		t.Errorf("%d bytes stay, %d go, %d went for good", d.Kept, d.Removed, d.SweptSize)
	}
}
