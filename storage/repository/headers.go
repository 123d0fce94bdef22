package repository

import (
	"sync"
	"time"
)

// Headers remembers the headers of segments that no index has yet, so that a process which reads the log again and again asks
// for each of them once. A segment is created only once; one that is listed with another size, or was read long ago, is read
// anew. They hold for one cluster in one repository under one Policy. The zero Headers is empty.
type Headers struct {
	mu      sync.Mutex
	newer   map[string]keptHeader // by key
	earlier map[string]keptHeader // those that were not asked for since newer was begun are dropped with it
}

type keptHeader struct {
	segment Segment
	until   time.Time
}

const (
	headersKept = 1024          // in each of both maps: an index has 512
	headersFor  = 6 * time.Hour // what rots in a store is seen by then
)

// Remembering makes c read headers of the log through h, and returns c.
func (c *Cluster) Remembering(h *Headers) *Cluster {
	c.headers = h
	return c
}

// get returns the segment under key, if it is remembered with that size.
func (h *Headers) get(key string, size int64) (Segment, bool) {
	if h == nil || size == 0 {
		return Segment{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	kept, ok := h.newer[key]
	if !ok {
		kept, ok = h.earlier[key]
	}
	if !ok || kept.segment.Size != size || time.Now().After(kept.until) {
		return Segment{}, false
	}
	h.put(key, kept)
	return kept.segment, true
}

// remember keeps s, as it was read just now.
func (h *Headers) remember(key string, s Segment) {
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
