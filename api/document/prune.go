package document

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Prune is the result of dr prune.
type Prune struct {
	Cluster string         `json:"cluster"`
	DryRun  bool           `json:"dryRun"`  // nothing was removed
	Backups []PrunedBackup `json:"backups"` // all undamaged ones, newest first
	Log     []PrunedLog    `json:"log"`     // the oldest segments of lineages, which are removed
	// Damaged are backups that cannot be used. They are kept, so that the operator can inspect them.
	Damaged []Damage `json:"damaged"`
	// Untrusted are backups that no trusted key has signed. They are kept too.
	Untrusted []Damage       `json:"untrusted"`
	Locked    []LockedObject `json:"locked"` // objects that cannot be removed before a date
	// Swept is the number of objects that this prune removes for good, or would remove if dryRun is false. They belong to backups and
	// log that were deleted, and to backups that were killed, longer ago than the grace period, or are segments that a pack has
	// replaced for an hour (or the grace period, if that is shorter).
	Swept     int   `json:"swept"`
	SweptSize int64 `json:"sweptBytes"`   // the size of these objects
	Packed    int   `json:"packed"`       // the number of segments that this prune stores in fewer objects, or would store so if dryRun is false
	Packs     int   `json:"packs"`        // the number of these objects
	Kept      int64 `json:"keptBytes"`    // the stored size of the backups and the log that stay
	Removed   int64 `json:"removedBytes"` // the stored size of the backups and the log that are removed
	Over      int64 `json:"overBytes"`    // by how much the objects that must stay exceed --max-size
}

// PrunedBackup is the decision on one backup.
type PrunedBackup struct {
	ID      catalog.ID `json:"id"`
	Started time.Time  `json:"started"`         // of its manifest
	Size    int64      `json:"size"`            // bytes, as stored
	Keep    bool       `json:"keep"`            // false: it is removed
	Reasons []string   `json:"reasons"`         // the rules that keep it, or the reason for its removal
	Doubt   string     `json:"doubt,omitempty"` // why it does not count as a good backup; absent if it does
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
	Until time.Time `json:"until,omitzero"` // the end of the lock; absent if the store does not report it
}

// Pins is the document of dr pin and dr unpin.
type Pins struct {
	Backup catalog.ID    `json:"backup"`
	Pins   []catalog.Pin `json:"pins"`   // those that hold now
	Lifted []catalog.Pin `json:"lifted"` // those that this call lifted
}
