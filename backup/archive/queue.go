package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// queued is a segment that was cut and is not stored yet.
type queued struct {
	catalog.Segment
	encoded  *segment.Encoded // nil: it is in the spool
	stranded bool             // it is from the spool and does not continue the log of this turn
}

// send cuts a segment from the pending requests, and starts to store it. Segments are stored one at a time: if one fails, the
// later ones must not be stored. If there is a spool, all of them wait there, and the first one too, because they continue it.
func (w *work) send(ctx context.Context) error {
	p := w.pending.cut()
	e, err := segment.Encode(w.header(p), p.requests, w.config.To)
	if err == nil {
		e, err = e.Signed(w.to.Policy().Key)
	}
	if err != nil {
		return err
	}
	w.queue = append(w.queue, queued{Segment: catalog.SegmentOf(e), encoded: &e})
	w.cutUpTo(w.queue[len(w.queue)-1].Segment)
	if len(w.queue) > 1 {
		w.spoolQueue()
	}
	return w.sendNext(ctx)
}

// cutUpTo records s as the last segment that was cut, so that the next one continues it.
func (w *work) cutUpTo(s catalog.Segment) {
	n := len(s.Marks)
	if n > 0 {
		w.lastMark = s.Marks[n-1]
	}
	w.next.Seq, w.next.Previous, w.next.Reason, w.next.After = s.Seq+1, s.Digest, "", nil
}

// spoolQueue moves queued segments from memory into the spool. If one cannot be written, it and the later ones stay in memory, and
// no more segments are cut until the next try (see canSpool).
func (w *work) spoolQueue() {
	for i := range w.queue {
		one := &w.queue[i]
		if one.encoded == nil || w.spool.dir == "" {
			continue
		}
		err := w.spool.put(*one.encoded)
		if err != nil {
			w.warn("%v", err)
			w.spoolFailed = time.Now()
			return
		}
		one.encoded = nil
	}
}

// canSpool reports whether another segment may be cut while others wait.
func (w *work) canSpool() bool {
	if !w.spool.hasRoom(w.pending.bytes) || time.Since(w.spoolFailed) < spoolEvery {
		return false
	}
	if len(w.queue) > 1 {
		w.spoolQueue() // segments for which the disk was full before
	}
	return len(w.queue) < 2 || w.queue[len(w.queue)-1].encoded == nil
}

// sendNext starts to store the first queued segment, unless one is being stored.
func (w *work) sendNext(ctx context.Context) error {
	if w.storing != nil || len(w.queue) == 0 {
		return nil
	}
	first := w.queue[0]
	once := func(ctx context.Context) error { return w.storeStranded(ctx, first.Segment) }
	if !first.stranded {
		e, err := w.encoded(first)
		if err != nil {
			return err
		}
		once = func(ctx context.Context) error { return w.storeOnce(ctx, e) }
	}
	w.storing = make(chan error, 1)
	go func() { w.storing <- w.store(ctx, first.Segment, once) }()
	return nil
}

// encoded returns the segment, from memory or the spool.
func (w *work) encoded(one queued) (segment.Encoded, error) {
	if one.encoded != nil {
		return *one.encoded, nil
	}
	e, err := w.spool.get(one.Header)
	if errors.Is(err, storage.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("segments in the spool are lost; the agent reads those changes again unless the cluster has compacted them: %v", w.clearSpool(err))
	}
	return e, err
}

// loadSpool queues the segments that an earlier run has left in the spool. It changes tail as if the segments that continue the log
// were stored.
func (w *work) loadSpool(tail *log.Tail) error {
	following, stranded, err := w.spool.sort(*tail)
	if err != nil {
		return err
	}
	for _, s := range stranded {
		w.queue = append(w.queue, queued{Segment: s, stranded: true})
	}
	for _, s := range following {
		w.queue = append(w.queue, queued{Segment: s})
		w.cutUpTo(s)
	}
	if len(w.queue) > 0 {
		w.note("%d segments wait in the spool, from an earlier run", len(w.queue))
	}
	if len(following) == 0 {
		return nil
	}
	last := following[len(following)-1]
	if last.Lineage != tail.Lineage {
		w.stored = segment.End{} // nothing of the spool's newer lineage is stored yet
	}
	tail.Lineage, tail.Last, tail.Broken = last.Lineage, last, nil
	return nil
}

// clearSpool empties the queue after the error why, because its segments can never be stored, and removes those that are in the
// spool, except stranded ones. It returns why.
func (w *work) clearSpool(why error) error {
	for _, one := range w.queue {
		if one.encoded == nil && !one.stranded {
			w.removeUseless(one.Segment, why)
		}
	}
	w.queue = nil
	return why
}
