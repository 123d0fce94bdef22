package log

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Headers remembers the headers of segments that no index has yet, and what indexes were folded into, so that a process which reads
// the log again and again asks for each of them once. A segment is created only once; one that is listed with another size, or was read long ago, is read
// anew. They hold for one cluster in one repository under one Policy. The zero Headers is empty.
type Headers struct {
	mu      sync.Mutex
	newer   map[string]keptHeader // by key
	earlier map[string]keptHeader // those that were not asked for since newer was begun are dropped with it
	folds   map[string]keptFold   // of indexes, by key
	foldsTo time.Time             // when all of them are dropped, to be read anew
	count   *atomic.Int64         // of folds, in foldsKept too; nil before the first
}

// keptFold is what an index was folded into.
type keptFold struct {
	segments []catalog.Segment
	listed   uint64 // listing.sum of its segments
	last     uint64 // the last seq of the index, which reaches beyond segments where the next one begins earlier
}

// maxFolds is how many folded indexes a process remembers, of 3 KiB or so each. A log of 60 days at --flush 2s has 5,000.
const maxFolds = 16384

// foldsKept is how many there are in all Headers.
var foldsKept atomic.Int64

type keptHeader struct {
	segment catalog.Segment
	until   time.Time
}

const (
	headersKept = 1024          // in each of both maps: an index has 512
	headersFor  = 6 * time.Hour // what rots in a store is seen by then
)

// get returns the segment under key, if it is remembered with that size.
func (h *Headers) get(key string, size int64) (catalog.Segment, bool) {
	if h == nil || size == 0 {
		return catalog.Segment{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	kept, ok := h.newer[key]
	if !ok {
		kept, ok = h.earlier[key]
	}
	if !ok || kept.segment.Size != size || time.Now().After(kept.until) {
		return catalog.Segment{}, false
	}
	h.put(key, kept)
	return kept.segment, true
}

// remember keeps s, as it was read just now.
func (h *Headers) remember(key string, s catalog.Segment) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(key, keptHeader{s, time.Now().Add(headersFor)})
}

// put needs mu.
func (h *Headers) put(key string, kept keptHeader) {
	if h.newer == nil || len(h.newer) >= headersKept {
		h.newer, h.earlier = map[string]keptHeader{}, h.newer
	}
	h.newer[key] = kept
}

// fold returns what the index under key was folded into, if its segments are listed as they were then. next is where the next
// index begins, 0 if there is none.
func (h *Headers) fold(key string, there listing, next uint64) ([]catalog.Segment, bool) {
	if h == nil {
		return nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	kept, ok := h.folds[key]
	if !ok || time.Now().After(h.foldsTo) {
		return nil, false
	}
	first, last := kept.segments[0].Seq, kept.segments[len(kept.segments)-1].Seq
	cut := kept.last
	if next > 0 {
		cut = min(cut, next-1)
	}
	sum, whole := there.sum(first, last)
	return slices.Clone(kept.segments), whole && sum == kept.listed && cut == last
}

// rememberFold keeps what an index up to last was folded into.
func (h *Headers) rememberFold(key string, segments []catalog.Segment, there listing, last uint64) {
	if h == nil || len(segments) == 0 || segments[len(segments)-1].Folded == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count == nil {
		h.count = &atomic.Int64{}
		runtime.AddCleanup(h, func(count *atomic.Int64) { foldsKept.Add(-count.Load()) }, h.count)
	}
	if h.folds == nil || time.Now().After(h.foldsTo) {
		foldsKept.Add(-h.count.Swap(0))
		h.folds, h.foldsTo = map[string]keptFold{}, time.Now().Add(headersFor)
	}
	_, known := h.folds[key]
	if !known && foldsKept.Load() >= maxFolds {
		return
	}
	if !known {
		h.count.Add(1)
		foldsKept.Add(1)
	}
	sum, _ := there.sum(segments[0].Seq, segments[len(segments)-1].Seq)
	h.folds[key] = keptFold{slices.Clone(segments), sum, last}
}
