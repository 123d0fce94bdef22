package convert_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// pruned is a prune of three backups, of which one stays though no rule keeps it.
func pruned() document.Prune {
	decision := func(n int, keep bool, reason string) retention.Decision {
		d := retention.Decision{Backup: catalog.Backup{Manifest: catalog.Manifest{Stored: catalog.Blob{Size: 7000}}}, Keep: keep, Reasons: []string{reason}}
		d.Started = at.AddDate(0, 0, -n)
		d.ID = catalog.NewID(d.Started, 4711)
		return d
	}
	d := retention.Decisions{
		Backups: []retention.Decision{
			decision(0, true, "daily 1"), decision(1, false, "no rule keeps it"), decision(2, false, "no rule keeps it"),
			decision(3, false, "no rule keeps it"),
		},
		Log:  []retention.Cut{{Lineage: "x", Upto: 25, Segments: 24, Bytes: 7000, Reason: "it is older than the window of 14d"}},
		Kept: 7000, Removed: 28000, MaxSize: 20_000,
	}
	r := repository.PruneResult{
		Locked: []repository.Locked{
			{Key: "prod/backups/x/manifest.json", Backup: d.Backups[1].ID, Until: at.AddDate(0, 1, 0)}, {Key: "prod/log/x/0000000000000001.seg"},
		},
		Pinned: []catalog.ID{d.Backups[2].ID},
		Swept:  []catalog.Leftover{{Key: "prod/backups/y/snapshot.db.zst", Size: 7000}, {Key: "prod/backups/y/tombstone.json", Size: 500}},
	}
	c := catalog.Catalog{
		Cluster: "prod", Damaged: []catalog.Damage{{Err: errors.New("damaged: it is cut off")}},
		Untrusted: []catalog.Damage{{Err: errors.New("damaged: not signed by a trusted key")}},
	}
	return convert.Prune(c, d, r, true)
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

// The other fields of a prune are those of the decisions and of the result.
func TestPruneHasTheDecisions(t *testing.T) {
	got := pruned()
	got.Backups = nil
	want := document.Prune{
		Cluster: "prod", DryRun: true,
		Log:       []document.PrunedLog{{Lineage: "x", Upto: 25, Segments: 24, Size: 7000, Reason: "it is older than the window of 14d"}},
		Damaged:   []document.Damage{{Cluster: "prod", Message: "damaged: it is cut off"}},
		Untrusted: []document.Damage{{Cluster: "prod", Message: "damaged: not signed by a trusted key"}},
		Locked: []document.LockedObject{
			{Key: "prod/backups/x/manifest.json", Until: at.AddDate(0, 1, 0)}, {Key: "prod/log/x/0000000000000001.seg"},
		},
		Swept: 2, SweptSize: 7500, Kept: 21000, Removed: 14000, Over: 1000,
	}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// jq's .faults[] fails on null.
func TestCopiedWithoutFaultsHasAnEmptyList(t *testing.T) {
	if convert.Copied("prod", copying.Result{}).Faults == nil {
		t.Error("faults is null")
	}
	d := convert.Copied("prod", copying.Result{Faults: []copying.Fault{{Key: "prod/backups/x/snapshot.db.zst", Err: errors.New("damaged")}}})
	if len(d.Faults) != 1 || d.Faults[0] != (document.NotCopied{Key: "prod/backups/x/snapshot.db.zst", Message: "damaged"}) {
		t.Errorf("faults %+v", d.Faults)
	}
}
