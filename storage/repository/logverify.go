package repository

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// verifiers is how many segments are read at a time: each takes a few MiB, and a core to unseal.
const verifiers = 4

// LogReader is how VerifyLineage reads a log.
type LogReader struct {
	Keys   seal.Keys // none: the stored bytes are compared with their digests, and nothing is opened
	Report storage.Report
	// Check gets the records of each segment that is opened. An error that matches ErrDamaged is a fault of that segment; any
	// other ends the reading. It is called from several goroutines.
	Check func(ctx context.Context, s Segment, records iter.Seq2[segment.Record, error]) error
}

// VerifyLineage reads every segment of l to its end: without a key it holds the stored bytes against their digests, with
// one it opens and decodes them too. What is missing, damaged or does not open is a fault of the returned lineage, and in
// none of its stretches.
func (c *Cluster) VerifyLineage(ctx context.Context, l Lineage, with LogReader) (Lineage, error) {
	var mu sync.Mutex
	bad := map[uint64]error{}
	var done, total int64
	for _, s := range l.Segments {
		total += s.Size
	}
	err := atOnce(ctx, verifiers, len(l.Segments), func(ctx context.Context, i int) error {
		s := l.Segments[i]
		err := c.verifySegment(ctx, s, with)
		mu.Lock()
		defer mu.Unlock()
		done += s.Size
		with.Report.Say(storage.Event{Stage: "read", Message: "reading the log", Object: c.segmentKey(s.Lineage, s.Seq), Done: done, Total: total})
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) || errors.Is(err, seal.ErrWrongKey) {
			bad[s.Seq], err = err, nil
		}
		return err
	})
	if err != nil {
		return Lineage{}, fmt.Errorf("verify lineage %s of cluster %s: %w", l.ID, c.name, err)
	}
	for _, seq := range slices.Sorted(maps.Keys(bad)) {
		l = l.Without(seq, bad[seq])
	}
	return l, nil
}

func (c *Cluster) verifySegment(ctx context.Context, s Segment, with LogReader) error {
	if with.Keys.None() && s.Seal.Encryption != "" {
		return c.checkSegment(ctx, s)
	}
	r, err := c.OpenSegment(ctx, s, with.Keys)
	if err != nil {
		return err
	}
	defer r.Close()
	var unread error // why the segment cannot be read to its end
	err = with.Check(ctx, s, func(yield func(segment.Record, error) bool) {
		for record, err := range r.Records() {
			unread = err
			if !yield(record, err) || err != nil {
				return
			}
		}
	})
	if unread != nil {
		return unread
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.segmentKey(s.Lineage, s.Seq), err)
	}
	return nil
}

func (c *Cluster) checkSegment(ctx context.Context, s Segment) error {
	key := c.segmentKey(s.Lineage, s.Seq)
	source, _, err := c.bucket.Open(ctx, key, storage.OpenOptions{})
	if isAbsent(err) {
		return missing(key)
	}
	if err != nil {
		return fmt.Errorf("open segment %s: %w", key, err)
	}
	defer source.Close()
	_, digest, err := segment.Check(source)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if digest != s.Digest {
		return fmt.Errorf("%s: %w: its header is another one than the catalog's", key, ErrDamaged)
	}
	return nil
}
