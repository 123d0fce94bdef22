package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// header returns the header of the next segment, which contains p. The times of marks never decrease in a lineage, even if the
// agents' clocks differ.
func (w *work) header(p pending) segment.Header {
	h := w.next
	h.Cluster, h.Source, h.ServerVersion = w.to.Name(), w.config.Source, w.version
	h.First, h.Last, h.End, h.GuessedLeases = p.first, p.last, p.end, p.guessed
	h.ClusterID, h.Member = w.source.clusterID(), w.source.server().ID()
	h.Writer, h.Written, h.DRVersion = w.writer, time.Now().UTC(), w.config.Version
	h.Diverged = w.members.difference()
	for _, hash := range p.hashes {
		if hash.Position+1 >= p.first {
			h.Hashes = append(h.Hashes, hash)
		}
	}
	for _, m := range p.marks {
		if m.Position+1 < p.first {
			continue
		}
		m.NotBefore, m.NotAfter = storage.Later(m.NotBefore, w.lastMark.NotBefore), storage.Later(m.NotAfter, w.lastMark.NotAfter)
		h.Marks = append(h.Marks, m)
	}
	return h
}

// store stores s with once, which makes one try. It retries until s is stored, can never be stored, or ctx ends.
func (w *work) store(ctx context.Context, s catalog.Segment, once func(context.Context) error) error {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := once(ctx)
		if err == nil || isUnstorable(err) || ctx.Err() != nil {
			return err
		}
		w.warn("segment %d of lineage %s is not stored yet, %s keeps it: %v", s.Seq, s.Lineage, w.keeper(), err)
		w.storeFailure.Store(err.Error())
		w.board.set(func(s *Status) { s.Failures++ })
		_ = storage.Sleep(ctx, wait) // the next try reports the end of ctx
	}
}

// keeper returns the place that keeps segments that cannot be stored yet, for messages.
func (w *work) keeper() string {
	switch {
	case w.config.Source == segment.WAL:
		return "the member's log"
	case w.config.Spool != "":
		return "the spool"
	}
	return "memory (and the cluster, until it compacts)"
}

// storeTime bounds one try: a store that accepts a request and never responds must not block archiving.
const storeTime = 2 * time.Minute

// finishStore handles the outcome of storing the current segment, and starts to store the next one.
func (w *work) finishStore(ctx context.Context, outcome error) error {
	w.storing = nil
	w.storeFailure.Store("")
	if w.queue[0].stranded {
		return w.finishStranded(ctx, outcome)
	}
	if isUnstorable(outcome) {
		w.board.set(func(s *Status) { s.StoredByOthers++ })
		// %v hides a storage.ErrDamaged, which would end the agent: the damage is in the store, not in the member's log.
		return w.clearSpool(fmt.Errorf("%w: %v", errTaken, outcome))
	}
	if outcome != nil {
		return outcome
	}
	s, err := w.dequeue()
	if err != nil {
		return err
	}
	if s.Lineage == w.next.Lineage {
		w.stored = s.End
	}
	if s.Seq == 1 {
		w.unindexed = nil
	}
	w.unindexed = append(w.unindexed, s)
	w.board.set(func(b *Status) { b.addEnd(s, time.Now()) })
	w.publishLogEnd(s)
	w.source.release(s.Last)
	return errors.Join(w.index(ctx), w.sendNext(ctx))
}

// finishStranded is like finishStore, for a segment that does not continue the log of this turn.
func (w *work) finishStranded(ctx context.Context, outcome error) error {
	if outcome != nil && !isUnstorable(outcome) {
		return outcome
	}
	s := w.queue[0].Segment
	w.queue = w.queue[1:]
	w.finishSpooled(s, outcome)
	return w.sendNext(ctx)
}

// dequeue removes the segment that was stored from the queue and the spool, and returns it.
func (w *work) dequeue() (catalog.Segment, error) {
	first := w.queue[0]
	w.queue = w.queue[1:]
	if first.encoded != nil {
		return first.Segment, nil
	}
	return first.Segment, w.spool.remove(first.Segment)
}

// An index is written once so many segments have none, or once the oldest of at least two has this age. Until then the recent index is replaced
// after every recentSegments segments.
const (
	indexSegments  = 512
	indexAge       = time.Hour
	recentSegments = 64
)

// Bounds for a store that takes no index.
const (
	indexTime     = 10 * time.Second  // of one try: nothing is archived meanwhile
	indexPause    = time.Minute       // between a failure and the next try
	mostUnindexed = 8 * indexSegments // more are dropped: readers read their headers one by one
)

// index stores many headers in one object when they are due, so that a log of a year can be listed fast. A failure only makes
// readers slower.
func (w *work) index(ctx context.Context) error {
	n := len(w.unindexed)
	due := n >= indexSegments || n >= 2 && time.Since(w.unindexed[0].Written) >= indexAge
	if !due && n%recentSegments != 0 || time.Since(w.indexFailedAt) < indexPause {
		return nil
	}
	put := w.to.Log().StoreRecent
	if due {
		put = w.to.Log().StoreIndex
	}
	ctx, cancel := context.WithTimeout(ctx, indexTime)
	defer cancel()
	err := put(ctx, w.unindexed[0].Lineage, w.unindexed)
	w.reportIndex(err)
	switch {
	case due && errors.Is(err, storage.ErrExist):
		w.unindexed = w.unindexed[1:] // the next one begins within the existing index
	case due && err == nil, n >= mostUnindexed:
		w.unindexed = nil
	}
	return nil
}

// reportIndex warns once of each reason why no index is stored: a policy may forbid replacing objects.
func (w *work) reportIndex(err error) {
	if err == nil {
		w.indexFailure, w.indexFailedAt = "", time.Time{}
		return
	}
	w.indexFailedAt = time.Now()
	if err.Error() != w.indexFailure {
		w.indexFailure = err.Error()
		w.warn("the newest segments are not indexed, which only slows down lists: %v", err)
	}
}
