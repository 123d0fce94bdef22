package archive

import (
	"context"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// source is where the log comes from: a member's disk, or a watch. It belongs to one turn, and its methods to one
// goroutine at a time.
type source interface {
	// server is the member that is read or watched.
	server() *cluster.Server
	clusterID() string // as etcdctl prints it
	// version is that of the member's server, as it was last heard.
	version() string
	// name says where the log is, for people.
	name() string

	// hold keeps what the member may throw away meanwhile, while this agent stands by or the store is behind.
	hold() error
	// goOn makes take go on behind what is stored. That it is the same history may be seen only later: by take.
	goOn(ctx context.Context, after segment.End) error
	// resume goes on at a position, or the first one behind it that is to be had: what lies before it is a gap.
	resume(ctx context.Context, from uint64) error
	// restart goes on where a new lineage begins, and says behind which position that is; 0: only the first batch does.
	restart(ctx context.Context) (behind uint64, err error)

	// take returns what is committed and was not taken yet, up to about maxBytes; nothing if there is none, and an error
	// if there will be none: see work.broken.
	take(ctx context.Context, maxBytes int) (segment.Batch, error)
	// listen finds out what is committed, where that must be asked for; asked is false where it need not be.
	listen(ctx context.Context) (asked bool, err error)
	// mark is a place in the log and a time, which a leader has confirmed: all that a client was told before NotBefore is
	// at Position or before, and nothing up to it was written after NotAfter.
	mark(ctx context.Context) (segment.Mark, error)
	// hasher returns a function that asks the member for its HashKV at its newest revision, in any goroutine. It returns an
	// error where the key space is larger than Config.HashMax.
	hasher() func(ctx context.Context) (segment.Hash, error)

	// heardAt is when a part of a change last came in that take could not return yet; zero where changes come whole.
	heardAt() time.Time
	// slow is how long what is committed may take at least until it comes.
	slow() time.Duration
	// waiting gets a value when something should be taken at once; it may be nil.
	waiting() <-chan struct{}
	// release lets go of what is stored up to a position; it may be called before anything was taken.
	release(position uint64)
	// headroom is how far the log is from losing something, if nothing of it were archived any more.
	headroom() Headroom
	// close may be called twice.
	close()
}

// open finds the source of this turn.
func (a *archiver) open(ctx context.Context) (source, error) {
	if a.config.Source == segment.Watch {
		return openWatch(ctx, a.config)
	}
	return openDisk(ctx, a.config)
}
