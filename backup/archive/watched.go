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
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// watched is a watch of a cluster's key space through one of its members.
type watched struct {
	config  cluster.Config
	cluster *cluster.Cluster
	member  *cluster.Server
	leases  *watch.Leases
	stream  *watch.Stream // nil until the start is known
	// compacted is the newest revision to which the member is known to have compacted; 1: none is known.
	compacted int64
}

func openWatch(ctx context.Context, config Config) (source, error) {
	w := &watched{config: config.Etcd}
	return w, w.choose(ctx)
}

// choose connects to the cluster and selects a member through which a leader responds. A cluster with another id than before is
// left to the next turn.
func (w *watched) choose(ctx context.Context) error {
	c, err := cluster.Connect(ctx, w.config)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(c.Servers, func(s *cluster.Server) bool { return s.ReachesLeader })
	switch {
	case i < 0:
		c.Close()
		return fmt.Errorf("%w: no leader responds through any of the endpoints: check that a quorum of members runs", cluster.ErrCutOff)
	case w.cluster != nil && w.cluster.ID != c.ID:
		c.Close()
		return fmt.Errorf("%w: the endpoints lead to cluster %x, before to %x: check --endpoints if the cluster was not replaced",
			fault.Unreachable, c.ID, w.cluster.ID)
	case w.cluster != nil:
		w.cluster.Close()
	}
	w.cluster, w.member, w.leases, w.compacted = c, c.Servers[i], watch.NewLeases(c.Servers[i]), 1
	return nil
}

// mayDropEvents reports whether a server of this version may lose or duplicate events of watches that lag or are moved to another
// member. Servers before 3.4.36 and 3.5.18 may.
func mayDropEvents(version string) bool {
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

// continueAfter opens a stream after the stored end. If there was a stream, it broke, so continueAfter first chooses a member again.
func (w *watched) continueAfter(ctx context.Context, after segment.End) error {
	if w.stream != nil {
		w.stream.Close()
		err := w.choose(ctx)
		if err != nil {
			return err
		}
	}
	stream, err := watch.Follow(ctx, w.member, w.leases, after)
	if err == nil {
		w.stream = stream
	}
	return err
}

func (w *watched) skipTo(ctx context.Context, from uint64) (err error) {
	w.stop()
	w.stream, err = watch.From(ctx, w.member, w.leases, int64(from))
	return err
}

// startNew begins at the current revision. Earlier changes that the member still has may be many, and are not needed, because a new
// lineage begins with a backup.
func (w *watched) startNew(ctx context.Context) (uint64, error) {
	now, err := w.member.Revision(ctx)
	if err != nil {
		return 0, err
	}
	return uint64(now), w.skipTo(ctx, uint64(now)+1)
}

func (w *watched) take(ctx context.Context, maxBytes int) (segment.Batch, error) {
	return w.stream.Take(ctx, maxBytes)
}

func (w *watched) listen(context.Context) (bool, error) { return false, nil }

// watchSlow is the normal delay of a large change: etcd needs half a minute of CPU to split a change of 60,000 keys into fragments,
// and longer on a busy host.
const watchSlow = time.Minute

func (w *watched) normalDelay() time.Duration { return watchSlow }

func (w *watched) lastDataAt() time.Time {
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

// markPatience bounds how long a mark waits for the changes up to its revision to arrive, so that they are stored together.
const markPatience = 200 * time.Millisecond

// mark reads the compact revision first, so that the compaction happened before the revision that is the mark's position.
func (w *watched) mark(ctx context.Context) (segment.Mark, error) {
	err := w.findCompaction(ctx)
	if err != nil {
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

// findCompaction sets w.compacted, with one request if it has not changed. A member does not report its compact revision, but
// refuses to read older ones.
func (w *watched) findCompaction(ctx context.Context) error {
	held, err := w.member.Holds(ctx, w.compacted)
	if err != nil || held { // nothing was compacted since
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

// hasher returns a function that asks the member that is watched now. A linearizable read confirms the member's revision first.
func (w *watched) hasher() func(context.Context, cluster.HashLimit) (segment.Hash, error) {
	member := w.member
	return func(ctx context.Context, limit cluster.HashLimit) (segment.Hash, error) {
		_, err := member.Revision(ctx)
		if err != nil {
			return segment.Hash{}, err
		}
		h, err := hashNewest(ctx, member, limit)
		if err != nil {
			return segment.Hash{}, err
		}
		h.Position = uint64(h.Revision) // positions of a watch are revisions
		return h, nil
	}
}
