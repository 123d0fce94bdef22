package archive

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/backup/watch"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// watched is a cluster's key space, as it is seen through one of its members.
type watched struct {
	cluster *cluster.Cluster
	member  *cluster.Server
	leases  *watch.Leases
	stream  *watch.Stream // nil until it is known where to begin
	// compacted is the newest revision that the member is known to have compacted to. 1: none that matters.
	compacted int64
}

// openWatch chooses a member through which a leader answers.
func openWatch(ctx context.Context, config Config) (source, error) {
	c, err := cluster.Connect(ctx, config.Etcd)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Servers {
		if s.Reaches {
			return &watched{cluster: c, member: s, leases: watch.NewLeases(s), compacted: 1}, nil
		}
	}
	c.Close()
	return nil, fmt.Errorf("%w: no leader answers through any of the endpoints", cluster.ErrCutOff)
}

func (w *watched) server() *cluster.Server { return w.member }
func (w *watched) clusterID() string       { return fmt.Sprintf("%x", w.cluster.ID) }
func (w *watched) version() string         { return w.member.Status.Version }
func (w *watched) name() string            { return "the watch at " + w.member.Endpoint }
func (w *watched) hold() error             { return nil }
func (w *watched) release(uint64)          {}
func (w *watched) headroom() Headroom      { return Headroom{} }

func (w *watched) close() {
	w.stop()
	w.cluster.Close()
}

func (w *watched) stop() {
	if w.stream != nil {
		w.stream.Close()
		w.stream = nil
	}
}

func (w *watched) goOn(ctx context.Context, after segment.End) (err error) {
	w.stop()
	w.stream, err = watch.Follow(ctx, w.member, w.leases, after)
	return err
}

func (w *watched) resume(ctx context.Context, from uint64) (err error) {
	w.stop()
	w.stream, err = watch.From(ctx, w.member, w.leases, int64(from))
	return err
}

// restart begins now. What the member still has of before may be much, and the backup that a new lineage begins with
// makes it needless.
func (w *watched) restart(ctx context.Context) (uint64, error) {
	now, err := w.member.Revision(ctx)
	if err != nil {
		return 0, err
	}
	return uint64(now), w.resume(ctx, uint64(now)+1)
}

func (w *watched) take(ctx context.Context, maxBytes int) (segment.Batch, error) {
	return w.stream.Take(ctx, maxBytes)
}

func (w *watched) listen(context.Context) (bool, error) { return false, nil }

func (w *watched) waiting() <-chan struct{} {
	if w.stream == nil {
		return nil
	}
	return w.stream.Full()
}

// markPatience is how long a mark waits for what it speaks of to come in, so that they are stored together.
const markPatience = 200 * time.Millisecond

// mark asks for the compaction first: when the revision is named, that has happened.
func (w *watched) mark(ctx context.Context) (segment.Mark, error) {
	if err := w.findCompaction(ctx); err != nil {
		return segment.Mark{}, err
	}
	began := time.Now().UTC()
	revision, err := w.member.Revision(ctx)
	if err != nil {
		return segment.Mark{}, err
	}
	mark := segment.Mark{
		Position: uint64(revision), Revision: revision, Interval: segment.Interval{NotBefore: began, NotAfter: time.Now().UTC()},
	}
	if w.compacted > 1 {
		mark.CompactRevision = w.compacted
	}
	w.stream.Reached(ctx, revision, markPatience)
	return mark, nil
}

// findCompaction finds the revision that the member has compacted to, with one question if that has not changed. A member
// does not tell, but refuses to read what is older.
func (w *watched) findCompaction(ctx context.Context) error {
	held, err := w.member.Holds(ctx, w.compacted)
	if err != nil || held {
		return err
	}
	now, err := w.member.Revision(ctx)
	if err != nil {
		return err
	}
	oldest := w.compacted + 1 + int64(sort.Search(int(now-w.compacted), func(i int) bool {
		if err == nil {
			held, err = w.member.Holds(ctx, w.compacted+1+int64(i))
		}
		return held
	}))
	if err != nil {
		return err
	}
	w.compacted = min(oldest, now)
	return nil
}

func (w *watched) hash(ctx context.Context) (segment.Hash, error) {
	revision, err := w.member.Revision(ctx)
	if err != nil {
		return segment.Hash{}, err
	}
	h, err := w.member.HashKV(ctx, revision)
	if err != nil {
		return segment.Hash{}, err
	}
	return segment.Hash{
		Position: uint64(revision), Revision: h.Revision, CompactRevision: h.CompactRevision, Hash: h.Hash,
	}, nil
}
