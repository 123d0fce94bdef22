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
	stranded bool             // it is of the log before another agent began anew: see storeStranded
}

// send cuts what is pending, and puts it on its way. One segment at a time: if one is not stored, those behind it must not
// be. So they wait in the spool, if there is one, and so does the first then: it is what the others continue.
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

// cutUpTo takes s for the last one that was cut.
func (w *work) cutUpTo(s catalog.Segment) {
	if n := len(s.Marks); n > 0 {
		w.lastMark = s.Marks[n-1]
	}
	w.next.Seq, w.next.Previous, w.next.Reason, w.next.After = s.Seq+1, s.Digest, "", nil
}

// spoolQueue moves what waits in memory into the spool. Where that fails it stays in memory, and no more is cut until it
// is tried again: see canSpool.
func (w *work) spoolQueue() {
	for i := range w.queue {
		one := &w.queue[i]
		if one.encoded == nil || w.spool.dir == "" {
			continue
		}
		if err := w.spool.put(*one.encoded); err != nil {
			w.warn("%v", err)
			w.spoolFailed = time.Now()
			return
		}
		one.encoded = nil
	}
}

// canSpool says whether what is pending may be cut behind what waits already.
func (w *work) canSpool() bool {
	if !w.spool.has(w.pending.bytes) || time.Since(w.spoolFailed) < spoolEvery {
		return false
	}
	if len(w.queue) > 1 {
		w.spoolQueue() // what a full disk has not taken before
	}
	return len(w.queue) < 2 || w.queue[len(w.queue)-1].encoded == nil
}

// sendNext puts the first that waits on its way, unless one is.
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
		return e, fmt.Errorf("what was in the spool is lost, and read again as far as the cluster has it: %v", w.clearSpool(err))
	}
	return e, err
}

// loadSpool queues what an earlier run has left in the spool. tail then is as if that were stored which continues it.
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

// clearSpool removes what can never be stored.
func (w *work) clearSpool(why error) error {
	for _, one := range w.queue {
		if one.encoded == nil && !one.stranded {
			w.removeUseless(one.Segment, why)
		}
	}
	w.queue = nil
	return why
}
