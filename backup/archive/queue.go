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

// waiting is a segment that was cut and is not stored yet.
type waiting struct {
	catalog.Segment
	encoded  *segment.Encoded // nil: it is in the spool
	stranded bool             // it continues a lineage that another agent has replaced: see storeStranded
}

// send cuts a segment from the pending requests, and starts to store it. Segments are stored one at a time: if one fails, the
// later ones must not be stored. They wait in the spool, if there is one, with the first one, which they continue.
func (w *work) send(ctx context.Context) error {
	p := w.pending.cut()
	e, err := segment.Encode(w.header(p), p.requests, w.config.To)
	if err == nil {
		e, err = e.Signed(w.to.Policy().Key)
	}
	if err != nil {
		return err
	}
	w.queue = append(w.queue, waiting{Segment: catalog.SegmentOf(e), encoded: &e})
	w.cutUpTo(w.queue[len(w.queue)-1].Segment)
	if len(w.queue) > 1 {
		w.spoolQueue()
	}
	return w.sendNext(ctx)
}

// cutUpTo sets s as the last segment that was cut.
func (w *work) cutUpTo(s catalog.Segment) {
	n := len(s.Marks)
	if n > 0 {
		w.lastMark = s.Marks[n-1]
	}
	w.next.Seq, w.next.Previous, w.next.Reason, w.next.After = s.Seq+1, s.Digest, "", nil
}

// spoolQueue moves waiting segments from memory into the spool. If that fails they stay in memory, and no more are cut until the
// next try: see canSpool.
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
	if !w.spool.has(w.pending.bytes) || time.Since(w.spoolFailed) < spoolEvery {
		return false
	}
	if len(w.queue) > 1 {
		w.spoolQueue() // segments that did not fit on a full disk before
	}
	return len(w.queue) < 2 || w.queue[len(w.queue)-1].encoded == nil
}

// sendNext starts to store the first waiting segment, unless one is being stored.
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
func (w *work) encoded(one waiting) (segment.Encoded, error) {
	if one.encoded != nil {
		return *one.encoded, nil
	}
	e, err := w.spool.get(one.Header)
	if errors.Is(err, storage.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return e, fmt.Errorf("segments in the spool are lost; the agent reads those changes again unless the cluster has compacted them: %v", w.clearSpool(err))
	}
	return e, err
}

// loadSpool queues the segments that an earlier run has left in the spool. It changes tail as if those that continue it were
// stored.
func (w *work) loadSpool(tail *log.Tail) error {
	following, stranded, err := w.spool.sort(*tail)
	if err != nil {
		return err
	}
	for _, s := range stranded {
		w.queue = append(w.queue, waiting{Segment: s, stranded: true})
	}
	for _, s := range following {
		w.queue = append(w.queue, waiting{Segment: s})
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
		w.stored = segment.End{} // of another history
	}
	tail.Lineage, tail.Last, tail.Broken = last.Lineage, last, nil
	return nil
}

// clearSpool removes segments that can never be stored.
func (w *work) clearSpool(why error) error {
	for _, one := range w.queue {
		if one.encoded == nil && !one.stranded {
			w.removeUseless(one.Segment, why)
		}
	}
	w.queue = nil
	return why
}
