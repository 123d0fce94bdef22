package log

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// The recent index contains the headers of the newest segments, which no other index contains yet. It has the form of an index, and only saves
// time, as every index does. The agent replaces it. A process with a cache reads each header once anyway, and does not use it.

// StoreRecent replaces the recent index with an index of these segments of a lineage. They must be stored, and have consecutive seqs.
func (log *Log) StoreRecent(ctx context.Context, lineage string, segments []catalog.Segment) error {
	data, err := log.encodeIndex(lineage, segments)
	if err != nil {
		return err
	}
	key := catalog.RecentIndexKey(log.store.Cluster)
	_, err = log.store.Bucket.Put(ctx, key, bytes.NewReader(data), storage.PutOptions{SizeHint: int64(len(data))})
	if err != nil {
		return fmt.Errorf("store the recent index, %s: %w", key, err)
	}
	return nil
}

// recentIndex reads the recent index once, when it is first needed.
type recentIndex struct {
	once  sync.Once
	index index // of no lineage if it is missing or cannot be used
}

// read returns the recent index of log.
func (r *recentIndex) read(ctx context.Context, log *Log) index {
	r.once.Do(func() {
		data, err := log.store.ReadUpTo(ctx, catalog.RecentIndexKey(log.store.Cluster), MaxIndex)
		if err != nil {
			return
		}
		x, err := ParseIndex(data)
		if err == nil && x.Cluster == log.store.Cluster {
			r.index = x
		}
	})
	return r.index
}

// fillFromRecent fills the empty slots whose segments the recent index contains with the listed sizes. It leaves all empty if that index
// cannot be used, or if the headers can be read in parallel.
func (l *lineageLoad) fillFromRecent(ctx context.Context) {
	empty := l.empty()
	if l.log.Headers != nil || len(empty) <= headReaders {
		return
	}
	x := l.recent.read(ctx, l.log)
	if x.Lineage != l.folder.lineage {
		return
	}
	segments, err := x.Segments(ctx, l.log.DecodeHeader)
	if err != nil {
		return
	}
	for _, s := range empty {
		if s.seq < x.First || s.seq > x.Last || segments[s.seq-x.First].Size != s.size {
			continue
		}
		known := segments[s.seq-x.First] // a copy, so that no other header stays in memory
		s.segment, s.indexed, s.recent = &known, true, true
	}
}

// emptyRecent empties the slots that the recent index has filled.
func (l *lineageLoad) emptyRecent() {
	for i := range l.slots {
		s := &l.slots[i]
		if s.recent {
			s.segment, s.indexed, s.recent = nil, false, false
		}
	}
}
