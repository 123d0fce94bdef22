package document

import (
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Prune is the result of dr prune.
type Prune struct {
	Cluster string         `json:"cluster"`
	DryRun  bool           `json:"dryRun"`  // nothing was removed
	Backups []PrunedBackup `json:"backups"` // all undamaged ones, newest first
	Log     []PrunedLog    `json:"log"`     // the parts that are removed from the front of lineages
	// Damaged are backups that cannot be used. They are kept, so that the operator can inspect them.
	Damaged []Damage `json:"damaged"`
	// Untrusted are backups that no trusted key has signed. They are kept too.
	Untrusted []Damage       `json:"untrusted"`
	Locked    []LockedObject `json:"locked"`       // objects that cannot be removed before a date
	Swept     int            `json:"swept"`        // objects removed for good: of backups that were deleted or killed before the grace period
	SweptSize int64          `json:"sweptBytes"`   // the size of these objects
	Kept      int64          `json:"keptBytes"`    // the stored size of the backups and the log that stay
	Removed   int64          `json:"removedBytes"` // the stored size of the backups and the log that are removed
	Over      int64          `json:"overBytes"`    // by how much the objects that must stay exceed --max-size
}

// PrunedBackup is the decision on one backup.
type PrunedBackup struct {
	ID      catalog.ID `json:"id"`
	Started time.Time  `json:"started"`         // of its manifest
	Size    int64      `json:"size"`            // bytes, as stored
	Keep    bool       `json:"keep"`            // false: it is removed
	Reasons []string   `json:"reasons"`         // all that keep it, or the one for its removal
	Doubt   string     `json:"doubt,omitempty"` // why it takes no slot of a good one; absent if nothing is known against it
}

// PrunedLog is the removed front of a lineage.
type PrunedLog struct {
	Lineage  string `json:"lineage"`
	Upto     uint64 `json:"upto"`     // number of the last segment
	Segments int    `json:"segments"` // how many
	Size     int64  `json:"size"`     // bytes, as stored
	Reason   string `json:"reason"`
}

// LockedObject is an object that its lock protects from removal.
type LockedObject struct {
	Key   string    `json:"key"`            // of the object
	Until time.Time `json:"until,omitzero"` // absent if the store does not report it
}

// Pins is the document of dr pin and dr unpin.
type Pins struct {
	Backup catalog.ID    `json:"backup"`
	Pins   []catalog.Pin `json:"pins"`   // those that hold now
	Lifted []catalog.Pin `json:"lifted"` // those that this call lifted
}

// NewPrune returns the document of the decisions d on the catalog c, corrected by the result r of carrying them out.
func NewPrune(c catalog.Catalog, d retention.Decisions, r repository.PruneResult, dryRun bool) Prune {
	p := Prune{
		Cluster: c.Cluster, DryRun: dryRun, Backups: []PrunedBackup{}, Log: []PrunedLog{}, Damaged: []Damage{}, Untrusted: []Damage{},
		Locked: []LockedObject{}, Swept: len(r.Swept), Kept: d.Kept, Removed: d.Removed, Over: d.Over,
	}
	stays := staying(r)
	for _, b := range d.Backups {
		pruned := PrunedBackup{ID: b.ID, Started: b.Started, Size: b.Stored.Size, Keep: b.Keep, Reasons: b.Reasons, Doubt: b.Doubt}
		why, ok := stays[b.ID]
		if ok {
			pruned.Keep, pruned.Reasons = true, []string{why}
			p.Kept += pruned.Size
			p.Removed -= pruned.Size
		}
		p.Backups = append(p.Backups, pruned)
	}
	for _, l := range d.Log {
		p.Log = append(p.Log, PrunedLog{l.Lineage, l.Upto, l.Segments, l.Bytes, l.Reason})
	}
	for _, b := range c.Damaged {
		p.Damaged = append(p.Damaged, Damage{c.Cluster, b.ID, b.Err.Error()})
	}
	for _, b := range c.Untrusted {
		p.Untrusted = append(p.Untrusted, Damage{c.Cluster, b.ID, b.Err.Error()})
	}
	for _, l := range r.Locked {
		p.Locked = append(p.Locked, LockedObject{l.Key, l.Until})
	}
	for _, l := range r.Swept {
		p.SweptSize += l.Size
	}
	return p
}

// staying returns the backups that should have been removed and were not, with the reason.
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
