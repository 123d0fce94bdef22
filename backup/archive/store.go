package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// outcome is what became of one segment.
type outcome struct {
	stored repository.Segment
	err    error
}

// send puts what is pending on its way. One segment at a time: each names the one before.
func (w *work) send(ctx context.Context) {
	p := w.pending.cut()
	h := w.header(p)
	w.storing = make(chan outcome, 1)
	go func() { w.storing <- w.store(ctx, h, p.requests) }()
}

// header is the next segment's, for p. Times never go back in a lineage, whatever the clocks of its agents say.
func (w *work) header(p pending) segment.Header {
	h := w.next
	h.Cluster, h.Source, h.ServerVersion = w.to.Name(), segment.WAL, w.version
	h.First, h.Last, h.End = p.first, p.last, p.end
	h.ClusterID, h.Member = w.member.clusterID(), w.member.server.ID()
	h.Writer, h.Written, h.DRVersion = w.writer, time.Now().UTC(), w.config.Version
	for _, hash := range p.hashes {
		if hash.Position+1 >= p.first {
			h.Hashes = append(h.Hashes, hash)
		}
	}
	for _, m := range p.marks {
		if m.Position+1 < p.first {
			continue
		}
		m.NotBefore, m.NotAfter = later(m.NotBefore, w.lastMark.NotBefore), later(m.NotAfter, w.lastMark.NotAfter)
		h.Marks = append(h.Marks, m)
	}
	return h
}

// store seals a segment and puts it into the repository, however long that takes.
func (w *work) store(ctx context.Context, h segment.Header, requests []segment.Record) outcome {
	encoded, err := segment.Encode(h, requests, w.config.To)
	if err == nil {
		encoded, err = encoded.Signed(w.to.Policy().Key)
	}
	if err != nil {
		return outcome{err: err}
	}
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := w.storeOnce(ctx, encoded)
		if err == nil || isTaken(err) || ctx.Err() != nil {
			return outcome{repository.SegmentOf(encoded), err}
		}
		w.warn("segment %d of lineage %s is not stored yet, the member's log keeps it: %v", h.Seq, h.Lineage, err)
		w.away.Store(err.Error())
		w.board.set(func(s *Status) { s.Failures++ })
		_ = sleep(ctx, wait) // the next try says if ctx has ended
	}
}

// storeTime is what one try may take: a store that accepts and never answers must not end the archive.
const storeTime = 2 * time.Minute

func (w *work) storeOnce(ctx context.Context, e segment.Encoded) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	return w.to.StoreSegment(ctx, e)
}

// isTaken: something stands under the segment's name, whole or not.
func isTaken(err error) bool {
	return errors.Is(err, repository.ErrTaken) || errors.Is(err, repository.ErrDamaged)
}

// settle takes note of what became of the segment on its way.
func (w *work) settle(ctx context.Context, o outcome) error {
	w.storing = nil
	w.away.Store("")
	if isTaken(o.err) {
		w.board.set(func(s *Status) { s.Taken++ })
		return fmt.Errorf("%w: %v", errTaken, o.err) // damage there is no damage of the member's log
	}
	if o.err != nil {
		return o.err
	}
	s := o.stored
	w.stored = s.End
	if n := len(s.Marks); n > 0 {
		w.lastMark = s.Marks[n-1]
	}
	w.next.Seq, w.next.Previous, w.next.Reason, w.next.After = s.Seq+1, s.Digest, "", nil
	w.unindexed = append(w.unindexed, s)
	w.board.set(func(b *Status) {
		b.Durable, b.DurableAt = s.Last, time.Now().UTC()
		b.StoredSegments++
		b.StoredRequests += int64(s.Requests)
		b.StoredBytes += s.Size
	})
	w.log.Release(s.Last)
	return w.index(ctx)
}

// An index is written when it saves a listing much.
const (
	indexSegments = 512
	indexAge      = time.Hour
)

// index repeats the headers in one object, so that a year lists fast. Without it everything works, and slower.
func (w *work) index(ctx context.Context) error {
	if len(w.unindexed) < 2 || len(w.unindexed) < indexSegments && time.Since(w.unindexed[0].Written) < indexAge {
		return nil
	}
	if err := w.to.StoreIndex(ctx, w.next.Lineage, w.unindexed); err != nil {
		w.warn("the index of lineage %s is not stored: %v", w.next.Lineage, err)
		return nil
	}
	w.unindexed = nil
	return nil
}
