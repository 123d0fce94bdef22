package convert

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Prune returns the document of the decisions d on the catalog c, corrected by the result r of carrying them out.
func Prune(c catalog.Catalog, d retention.Decisions, r repository.PruneResult, dryRun bool) document.Prune {
	p := document.Prune{
		Cluster: c.Cluster, DryRun: dryRun, Backups: []document.PrunedBackup{}, Log: []document.PrunedLog{},
		Damaged: document.Damages(c.Cluster, c.Damaged), Untrusted: document.Damages(c.Cluster, c.Untrusted),
		Locked: []document.LockedObject{}, Swept: len(r.Swept), Packed: r.Packed.Segments, Packs: r.Packed.Packs, Kept: d.Kept, Removed: d.Removed,
	}
	stays := staying(r)
	for _, b := range d.Backups {
		pruned := document.PrunedBackup{ID: b.ID, Started: b.Started, Size: b.Stored.Size, Keep: b.Keep, Reasons: b.Reasons, Doubt: b.Doubt}
		why, ok := stays[b.ID]
		if ok {
			pruned.Keep, pruned.Reasons = true, []string{why}
			p.Kept += pruned.Size
			p.Removed -= pruned.Size
		}
		p.Backups = append(p.Backups, pruned)
	}
	p.Over = d.Over(p.Kept)
	for _, l := range d.Log {
		p.Log = append(p.Log, document.PrunedLog{Lineage: l.Lineage, Upto: l.Upto, Segments: l.Segments, Size: l.Bytes, Reason: l.Reason})
	}
	for _, l := range r.Locked {
		p.Locked = append(p.Locked, document.LockedObject{Key: l.Key, Until: l.Until})
	}
	p.Swept += len(r.Packed.Removed)
	for _, l := range slices.Concat(r.Swept, r.Packed.Removed) {
		p.SweptSize += l.Size
	}
	return p
}

// staying returns the reason for each backup that should have been removed and was not.
func staying(r repository.PruneResult) map[catalog.ID]string {
	stays := map[catalog.ID]string{}
	for _, id := range r.Pinned {
		stays[id] = "pinned meanwhile"
	}
	for _, l := range r.Locked {
		if l.Backup != "" {
			stays[l.Backup] = fmt.Sprintf("locked until %s", l.Until.UTC().Format(time.RFC3339))
		}
	}
	return stays
}
