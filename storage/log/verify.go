package log

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// verifiers is how many segments are read at the same time: each takes a few MiB, and a core to decrypt.
const verifiers = 4

// VerifyOptions has the options of Verify.
type VerifyOptions struct {
	Keys   seal.Keys // none: encrypted segments are not opened, only compared with their digests
	Report storage.Report
	// Check reads the records of each segment that is opened; it must not be nil. An error that matches catalog.ErrDamaged,
	// catalog.ErrNotFound or seal.ErrWrongKey becomes a fault of the segment; any other ends Verify. Several goroutines call it at the same time.
	Check func(ctx context.Context, s catalog.Segment, records iter.Seq2[segment.Record, error]) error
}

// Verify reads every segment of l to its end and returns l with a fault for each that is missing, is damaged or does not open
// with the keys. It opens and decodes the segments. Without keys it only compares the stored bytes of encrypted segments with
// their digests.
func (log *Log) Verify(ctx context.Context, l catalog.Lineage, with VerifyOptions) (catalog.Lineage, error) {
	v := verifying{log: log, with: with, bad: map[uint64]error{}}
	for _, s := range l.Segments {
		v.total += s.Size
	}
	var whole []catalog.Segment // those of l, each chunk with a bad segment unfolded
	for some := range slices.Chunk(l.Segments, foldedAtOnce) {
		left, err := v.read(ctx, some)
		if err != nil {
			return catalog.Lineage{}, fmt.Errorf("verify lineage %s of cluster %s: %w", l.ID, log.store.Cluster, err)
		}
		whole = append(whole, left...)
	}
	l.Segments = whole
	for _, seq := range slices.Sorted(maps.Keys(v.bad)) {
		l = l.Without(seq, v.bad[seq])
	}
	return l, nil
}

// foldedAtOnce is how many segments of the catalog are unfolded in memory at the same time. Each can be a whole index.
const foldedAtOnce = 16

// verifying is the state of one Verify.
type verifying struct {
	log  *Log
	with VerifyOptions

	mu          sync.Mutex       // guards done and bad
	done, total int64            // bytes
	bad         map[uint64]error // by seq
}

// read reads all segments that some include. It returns some, or all of these segments if one of them is bad.
func (v *verifying) read(ctx context.Context, some []catalog.Segment) ([]catalog.Segment, error) {
	var segments []catalog.Segment
	for _, s := range some {
		unfolded, err := v.log.Unfold(ctx, s)
		if err != nil {
			return nil, err
		}
		segments = append(segments, unfolded...)
	}
	before := len(v.bad)
	err := records.Parallel(ctx, verifiers, len(segments), func(ctx context.Context, i int) error { return v.readOne(ctx, segments[i]) })
	if len(v.bad) > before {
		return segments, err
	}
	return some, err
}

// readOne reads one segment and records it in v.bad if it is missing, is damaged or does not open.
func (v *verifying) readOne(ctx context.Context, s catalog.Segment) error {
	err := v.log.verifySegment(ctx, s, v.with)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.done += s.Size
	v.with.Report.Say(storage.Event{
		Stage: "read", Message: "reading the log", Object: catalog.SegmentKey(v.log.store.Cluster, s.Lineage, s.Seq), Done: v.done, Total: v.total,
	})
	if errors.Is(err, catalog.ErrDamaged) || errors.Is(err, catalog.ErrNotFound) || errors.Is(err, seal.ErrWrongKey) {
		v.bad[s.Seq], err = err, nil
	}
	return err
}

// verifySegment reads one segment to its end. If the segment itself and with.Check fail, it returns the error of the segment.
func (log *Log) verifySegment(ctx context.Context, s catalog.Segment, with VerifyOptions) error {
	if with.Keys.None() && s.Seal.Encryption != "" {
		return log.checkSegment(ctx, s)
	}
	r, err := log.OpenSegment(ctx, s, with.Keys)
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
		return fmt.Errorf("%s: %w", catalog.SegmentKey(log.store.Cluster, s.Lineage, s.Seq), err)
	}
	return nil
}

// checkSegment compares the stored bytes of a segment with its digests, without decrypting it.
func (log *Log) checkSegment(ctx context.Context, s catalog.Segment) error {
	key := catalog.SegmentKey(log.store.Cluster, s.Lineage, s.Seq)
	source, _, err := log.store.Bucket.Open(ctx, key, storage.OpenOptions{})
	if records.IsAbsent(err) {
		return Missing(key)
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
		return fmt.Errorf("%s: %w: its header is not the one in the catalog", key, catalog.ErrDamaged)
	}
	return nil
}
