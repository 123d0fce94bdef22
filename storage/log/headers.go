package log

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Headers caches the headers of segments that are in no index, and folded indexes, so that a process that loads the log
// repeatedly reads each once. Segments never change, but an object that is listed with another size, or that was read more
// than headersFor ago, is read again. A Headers must be used for one cluster of one repository under one Policy only. The
// zero Headers is empty; a nil *Headers caches nothing. It is safe for concurrent use.
type Headers struct {
	mu         sync.Mutex
	newer      map[string]keptHeader // by key
	earlier    map[string]keptHeader // by key; dropped when newer is full
	folds      map[string]keptFold   // by key of the index
	foldsUntil time.Time             // when all folds are dropped
	count      *atomic.Int64         // the number of folds, which foldsKept includes; nil before the first
}

// keptFold is a folded index.
type keptFold struct {
	segments []catalog.Segment
	listed   uint64 // listing.sum of its segments
	last     uint64 // the last seq of the stored index; higher than that of segments if the next index overlaps this one
}

// maxFolds limits the folded indexes that a process caches, of about 3 KiB each. A log of 60 days at --flush 2s has 5,000.
const maxFolds = 16384

// foldsKept is the number of folded indexes in all Headers.
var foldsKept atomic.Int64

// keptHeader is a segment whose header was read.
type keptHeader struct {
	segment catalog.Segment
	until   time.Time // when it is read again
}

const (
	headersKept = 1024          // in each of the two maps; an index has 512
	headersFor  = 6 * time.Hour // damage in the store is noticed within this time
)

// get returns the segment under key if it is cached with that size, in bytes. Size 0 matches nothing.
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

// remember caches s, which was just read from key.
func (h *Headers) remember(key string, s catalog.Segment) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(key, keptHeader{s, time.Now().Add(headersFor)})
}

// put adds an entry, and drops the older half when there are too many. The caller holds h.mu.
func (h *Headers) put(key string, kept keptHeader) {
	if h.newer == nil || len(h.newer) >= headersKept {
		h.newer, h.earlier = map[string]keptHeader{}, h.newer
	}
	h.newer[key] = kept
}

// fold returns the folded index under key, if it is cached.
func (h *Headers) fold(key string) (keptFold, bool) {
	if h == nil {
		return keptFold{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	kept, ok := h.folds[key]
	return kept, ok && !time.Now().After(h.foldsUntil)
}

// rememberFold caches segments, the folded index under key, whose last seq is last. It does nothing if they were not folded.
func (h *Headers) rememberFold(key string, segments []catalog.Segment, stored listing, last uint64) {
	if len(segments) == 0 || segments[len(segments)-1].Folded == 0 {
		return
	}
	sum, _ := stored.sum(segments[0].Seq, segments[len(segments)-1].Seq)
	h.keep(key, keptFold{slices.Clone(segments), sum, last})
}

// keep caches a folded index, unless the process has cached maxFolds.
func (h *Headers) keep(key string, kept keptFold) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count == nil {
		h.count = &atomic.Int64{}
		runtime.AddCleanup(h, func(count *atomic.Int64) { foldsKept.Add(-count.Load()) }, h.count)
	}
	if h.folds == nil || time.Now().After(h.foldsUntil) {
		foldsKept.Add(-h.count.Swap(0))
		h.folds, h.foldsUntil = map[string]keptFold{}, time.Now().Add(headersFor)
	}
	_, known := h.folds[key]
	if !known && foldsKept.Load() >= maxFolds {
		return
	}
	if !known {
		h.count.Add(1)
		foldsKept.Add(1)
	}
	h.folds[key] = kept
}
