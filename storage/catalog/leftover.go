package catalog

import (
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Leftover is an object that can be swept: data of a backup that was killed or deleted, a part of an unfinished upload, or a
// pruned object of the log.
type Leftover struct {
	Key   string
	Size  int64
	Since time.Time       // the last write, or the pruning if that is later; recent for a running backup
	Piece *storage.Object // the part of an unfinished upload, as storage.Sweeper lists it; nil for an object
}
