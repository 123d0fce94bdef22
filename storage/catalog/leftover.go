package catalog

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Leftover is what a killed or a deleted backup left: data without a manifest or with a tombstone, or a store's unfinished
// piece; or what was pruned of the log.
type Leftover struct {
	Key   string
	Size  int64
	Since time.Time // the last sign of life; a backup that still runs has one of late
	Piece *storage.Object
}
