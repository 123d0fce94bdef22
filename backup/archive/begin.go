package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// begin continues the log of the repository, or starts a new lineage if it cannot.
func (a *archiver) begin(ctx context.Context, from source) (*work, error) {
	tail, err := a.to.Log().Tail(ctx)
	if err != nil {
		return nil, err
	}
	err = a.config.refuseExposing(tail.Last)
	if err != nil {
		return nil, err
	}
	w := &work{archiver: a, source: from, heardAt: time.Now(), takenAt: time.Now(), emptiedAt: time.Now()}
	w.version = from.version()
	w.setStored(tail.Last)
	err = w.loadUnindexed(ctx, tail)
	if err != nil {
		return nil, err
	}
	err = w.loadSpool(&tail)
	if err != nil {
		return nil, err
	}
	why, after := a.newLineageReason(from, tail)
	if why != "" {
		return w, w.beginLineage(ctx, why, after)
	}
	last := tail.Last
	w.next = segment.Header{Lineage: last.Lineage, Seq: last.Seq + 1, Previous: last.Digest}
	w.pending = startAfter(last.End)
	b := a.breach
	if b != nil && b.from > 0 { // no other agent has continued the log
		return w, w.continueAfterGap(ctx, b)
	}
	err = from.continueAfter(ctx, last.End)
	if err != nil {
		return nil, w.recordBreach(err)
	}
	w.note("continues lineage %s after position %d", last.Lineage, last.Last)
	w.requestHashAtResume(ctx)
	return w, w.needBase(ctx)
}

// refuseExposing returns an error if the log would be stored without encryption although last is encrypted.
func (c Config) refuseExposing(last catalog.Segment) error {
	if c.Plain || last.Seal.Encryption == "" || c.To.Seal().Encryption != "" {
		return nil
	}
	return fmt.Errorf("%w: no recipient is given, and the log of %s is encrypted up to segment %d: pass --recipient (DR_RECIPIENT), "+
		"or --plain to store every secret of etcd without encryption", fault.Refused, last.Cluster, last.Seq)
}

// setStored sets s as the last stored segment.
func (w *work) setStored(s catalog.Segment) {
	w.stored = s.End
	w.publishLogEnd(s)
	n := len(s.Marks)
	if n > 0 {
		w.lastMark = s.Marks[n-1]
	}
}

// publishLogEnd publishes s as the end of the log, in the lease, for the agents on standby.
func (w *work) publishLogEnd(s catalog.Segment) {
	if s.Seq > 0 {
		w.logEnd.Store(&lease.LogEnd{Lineage: s.Lineage, Seq: s.Seq})
	}
}

// newLineageReason returns why the log cannot be continued, "" if it can. after names the last segment of the log; nil if there is
// none.
func (a *archiver) newLineageReason(from source, tail log.Tail) (why string, after *segment.After) {
	last := tail.Last
	if tail.Lineage == "" {
		return "the first of this cluster", nil
	}
	if last.Seq > 0 {
		after = &segment.After{Lineage: last.Lineage, Seq: last.Seq, Position: last.Last, Time: last.Written}
		n := len(last.Marks)
		if n > 0 {
			after.Time = last.Marks[n-1].NotAfter
		}
	}
	if a.breach != nil && a.breach.end != last.End { // another agent has continued the log meanwhile
		a.breach = nil
	}
	switch {
	case tail.Broken != nil:
		return fmt.Sprintf("the previous log cannot be continued: %v", tail.Broken), after
	case !catalog.SameClusterID(last.ClusterID, from.clusterID()):
		return fmt.Sprintf("cluster id %s differs from the log's, %s", from.clusterID(), last.ClusterID), after
	case last.Source != a.config.Source:
		return fmt.Sprintf("the source changed from %s to %s", last.Source, a.config.Source), after
	case a.breach != nil && a.breach.from == 0:
		return a.breach.why, after
	}
	return "", after
}

// beginLineage starts a new lineage and requests its base backup.
func (w *work) beginLineage(ctx context.Context, why string, after *segment.After) error {
	w.next = segment.Header{Lineage: newLineage(), Seq: 1, Reason: why, After: after}
	w.stored, w.unindexed = segment.End{}, nil
	before, err := w.source.startNew(ctx)
	if err != nil {
		return err
	}
	w.pending = startAfter(segment.End{Position: before})
	w.breach = nil
	w.lastHash = time.Time{}
	w.warn("begins lineage %s: %s", w.next.Lineage, why)
	if after != nil {
		w.board.set(func(s *Status) { s.recordGap(time.Now(), why) })
	}
	w.snapshot(ctx, why)
	return nil
}

// requestHashAtResume requests the member's hash at the point where a watch continues, so that a replay can check the whole key space there.
// An equal last revision alone does not prove an equal history: the last write of two histories may be the same.
func (w *work) requestHashAtResume(ctx context.Context) {
	if w.config.Source != segment.Watch || w.config.HashEvery == 0 || w.pending.last == 0 {
		return
	}
	member, id, revision := w.source.server(), w.source.clusterID(), int64(w.pending.last)
	w.startHash(ctx, func(ctx context.Context) (segment.Hash, error) {
		limit := w.hashLimit(ctx, id)
		now, err := member.Now(ctx)
		if err != nil {
			return segment.Hash{}, err
		}
		h, err := member.HashKVWithin(ctx, revision, now, limit)
		if err != nil {
			return segment.Hash{}, err
		}
		return segment.Hash{Position: uint64(revision), Revision: revision, CompactRevision: h.CompactRevision, Hash: h.Hash}, nil
	})
}

// continueAfterGap continues the same lineage after positions that are lost.
func (w *work) continueAfterGap(ctx context.Context, b *breach) error {
	err := w.source.skipTo(ctx, b.from)
	if err != nil {
		return err
	}
	w.next.Reason = b.why
	w.breach = nil
	w.warn("records a gap: %s", b.why)
	w.board.set(func(s *Status) { s.recordGap(time.Now(), b.why) })
	w.snapshot(ctx, b.why)
	return nil
}

// basesRead is how many of the newest backups are read to find a base. Survey also reads those near the beginning of a window.
const basesRead = 8

// needBase takes a backup if the log that is continued has no base, for example because the last snapshot failed. It uses Survey,
// which folds the log: the segment headers of a month need a gigabyte, and the agent runs next to a member.
func (w *work) needBase(ctx context.Context) error {
	c, err := w.to.Survey(ctx, repository.SurveyOptions{Newest: basesRead})
	if err != nil {
		return err
	}
	for _, window := range c.Windows() {
		if window.Lineage == w.next.Lineage && window.To.Position == w.stored.Position {
			w.based.Store(true)
			w.snapshots.Go(func() { w.watchHistory(ctx) })
			return nil
		}
	}
	for _, b := range c.Backups { // a backup later than the stored log: the next segments will reach it
		begin, _ := b.Span(w.config.Source)
		if catalog.SameClusterID(b.ClusterID, w.source.clusterID()) && begin > w.stored.Position &&
			b.Started.After(w.lastMark.NotBefore) && b.CheckUsable() == nil {
			w.based.Store(true)
			w.snapshots.Go(func() { w.watchHistory(ctx) })
			return nil
		}
	}
	w.snapshot(ctx, "the log had no backup to continue from")
	return nil
}

// hashLimit returns the limit for a HashKV of the cluster with the given id. It reads the manifest of the newest backup, which contains the
// number of entries.
func (a *archiver) hashLimit(ctx context.Context, clusterID string) cluster.HashLimit {
	limit := cluster.HashLimit{Stall: a.config.HashMax}
	c, err := a.to.Load(ctx, backups.LoadOptions{Newest: 1})
	if err == nil && len(c.Backups) > 0 && catalog.SameClusterID(c.Backups[0].ClusterID, clusterID) {
		limit.Density = c.Backups[0].Density()
	}
	return limit
}

// snapshot takes a backup concurrently with archiving, and retries until it has one or ctx ends.
func (w *work) snapshot(ctx context.Context, why string) {
	take := w.config.Snapshot
	w.snapshots.Go(func() {
		for wait := firstWait; ; wait = min(2*wait, lastWait) {
			err := take(ctx, why)
			if err == nil {
				w.based.Store(true)
				w.watchHistory(ctx)
				return
			}
			if ctx.Err() != nil {
				return
			}
			if w.baseFailure.Swap(err.Error()) != err.Error() { // once for each cause, not for each try
				w.warn("cannot take the backup that the log needs: %v", err)
			}
			_ = storage.Sleep(ctx, wait) // if ctx ends, the next take returns an error
		}
	})
}

// loadUnindexed reads the headers that no index contains yet. An index must have no hole, so if one header cannot be read, none of
// them is indexed, and readers read them one by one.
func (w *work) loadUnindexed(ctx context.Context, tail log.Tail) error {
	if len(tail.Unindexed) < 2 {
		return nil
	}
	segments, err := w.to.Log().Segments(ctx, tail.Lineage, tail.Unindexed)
	if errors.Is(err, catalog.ErrDamaged) || errors.Is(err, storage.ErrNotExist) {
		w.warn("the segments before the next index are not indexed: %v", err)
		return nil
	}
	w.unindexed = segments
	return err
}
