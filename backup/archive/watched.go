package archive

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/coreos/go-semver/semver"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/backup/watch"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// watched is a cluster's key space, as it is seen through one of its members.
type watched struct {
	config  cluster.Config
	hashMax int64
	cluster *cluster.Cluster
	member  *cluster.Server
	leases  *watch.Leases
	stream  *watch.Stream // nil until it is known where to begin
	// compacted is the newest revision that the member is known to have compacted to. 1: none that matters.
	compacted int64
}

func openWatch(ctx context.Context, config Config) (source, error) {
	w := &watched{config: config.Etcd, hashMax: config.HashMax}
	return w, w.choose(ctx)
}

// choose takes a member through which a leader answers.
func (w *watched) choose(ctx context.Context) error {
	c, err := cluster.Connect(ctx, w.config)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(c.Servers, func(s *cluster.Server) bool { return s.Reaches })
	if i < 0 || w.cluster != nil && w.cluster.ID != c.ID {
		c.Close()
		return fmt.Errorf("%w: no leader answers through any of the endpoints: check that a quorum of members runs", cluster.ErrCutOff)
	}
	if w.cluster != nil {
		w.cluster.Close()
	}
	w.cluster, w.member, w.leases, w.compacted = c, c.Servers[i], watch.NewLeases(c.Servers[i]), 1
	return nil
}

// leavesOut: servers before 3.4.36 and 3.5.18 lose or double events of watches that lag, or are moved to another member.
func leavesOut(version string) bool {
	v, err := semver.NewVersion(version)
	if err != nil || v.Major != 3 {
		return false
	}
	return v.Minor < 4 || v.Minor == 4 && v.Patch < 36 || v.Minor == 5 && v.Patch < 18
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

// goOn asks another member if the stream was broken off.
func (w *watched) goOn(ctx context.Context, after segment.End) error {
	if w.stream != nil {
		w.stream.Close()
		if err := w.choose(ctx); err != nil {
			return err
		}
	}
	stream, err := watch.Follow(ctx, w.member, w.leases, after)
	if err == nil {
		w.stream = stream
	}
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

// watchSlow: etcd needs half a minute of CPU to cut a change of 60,000 keys into fragments, and more on a busy host.
const watchSlow = time.Minute

func (w *watched) slow() time.Duration { return watchSlow }

func (w *watched) heardAt() time.Time {
	if w.stream == nil {
		return time.Time{}
	}
	return w.stream.Heard()
}

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

// hasher asks the member that is watched now. Its revision is known to have been reached by a leader's read.
func (w *watched) hasher() func(context.Context) (segment.Hash, error) {
	member, most := w.member, w.hashMax
	return func(ctx context.Context) (segment.Hash, error) {
		if _, err := member.Revision(ctx); err != nil {
			return segment.Hash{}, err
		}
		h, err := hashNewest(ctx, member, most)
		if err != nil {
			return segment.Hash{}, err
		}
		h.Position = uint64(h.Revision) // as all positions of a watch
		return h, nil
	}
}
