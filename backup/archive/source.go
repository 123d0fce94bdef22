package archive

import (
	"context"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// source is the origin of the log: a member's disk, or a watch. It belongs to one turn. Its methods must not be called
// concurrently.
type source interface {
	// server returns the member that is read or watched.
	server() *cluster.Server
	clusterID() string // as etcdctl prints it
	// version returns the last known version of the member's server.
	version() string
	// name returns the location of the log, for messages.
	name() string

	// hold opens data that the member may remove, so that it stays readable. It must be called repeatedly while nothing is taken: on
	// standby, or while the store is slow.
	hold() error
	// continueAfter makes take continue after the stored end. If the source has another history, continueAfter or a later take
	// returns an error.
	continueAfter(ctx context.Context, after segment.End) error
	// skipTo continues at a position, or the first later one that is available: everything before it is a gap.
	skipTo(ctx context.Context, from uint64) error
	// startNew moves to the beginning of a new lineage, and returns the position right before that; 0 if it is known only from the first
	// batch.
	startNew(ctx context.Context) (before uint64, err error)

	// take returns committed requests that were not taken yet, up to about maxBytes; none if there are none now, and an
	// error if there will be no more.
	take(ctx context.Context, maxBytes int) (segment.Batch, error)
	// listen asks the member which requests are committed. asked is false if the source need not ask.
	listen(ctx context.Context) (asked bool, err error)
	// mark returns a position in the log with its times, as confirmed by a leader: every write that was acknowledged before
	// NotBefore is at Position or before it, and no write up to Position was made after NotAfter.
	mark(ctx context.Context) (segment.Mark, error)
	// hasher returns a function that any goroutine may call. That function returns the member's HashKV at its newest revision, or an
	// error if that exceeds the limit.
	hasher() func(context.Context, cluster.HashLimit) (segment.Hash, error)

	// lastDataAt returns when the member last sent data, even if only a part of a change; the zero time if it has sent none, and always
	// for a disk, where no change arrives in parts.
	lastDataAt() time.Time
	// normalDelay returns how long even a large change normally takes from its commit to its arrival.
	normalDelay() time.Duration
	// waiting returns a channel that receives a value when take should be called at once; it may be nil.
	waiting() <-chan struct{}
	// release frees resources that are needed only for positions up to the given one, which are stored. It may be called before
	// take.
	release(position uint64)
	// headroom returns how soon requests would be lost if archiving stopped now.
	headroom() Headroom
	// close may be called twice.
	close()
}

// open returns the source of this turn.
func (a *archiver) open(ctx context.Context) (source, error) {
	if a.config.Source == segment.Watch {
		return openWatch(ctx, a.config)
	}
	return openDisk(ctx, a.config)
}
