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

// verifiers is the number of segments that are verified at the same time. Each takes a few MiB of memory, and a core to decrypt.
const verifiers = 4

// VerifyOptions configures Verify.
type VerifyOptions struct {
	Keys   seal.Keys // none: encrypted segments are not decrypted, only compared with their digests
	Report storage.Report
	// Check reads the records of each segment that Verify decodes; it must not be nil. An error that matches catalog.ErrDamaged,
	// catalog.ErrNotFound or seal.ErrWrongKey becomes a fault of the segment; any other ends Verify. Several goroutines call it at the same time.
	Check func(ctx context.Context, s catalog.Segment, records iter.Seq2[segment.Record, error]) error
}

// Verify decrypts and decodes every segment of l. It returns l with a fault in place of each segment that is missing, is damaged
// or does not open with the keys. Without keys it only compares the stored bytes of encrypted segments with their digests.
func (log *Log) Verify(ctx context.Context, l catalog.Lineage, with VerifyOptions) (catalog.Lineage, error) {
	v := verifying{log: log, with: with, bad: map[uint64]error{}}
	for _, s := range l.Segments {
		v.total += s.Size
	}
	var segments []catalog.Segment // those of l, but unfolded near a bad one, so that Without removes the bad one alone
	for chunk := range slices.Chunk(l.Segments, foldedAtOnce) {
		read, err := v.read(ctx, chunk)
		if err != nil {
			return catalog.Lineage{}, fmt.Errorf("verify lineage %s of cluster %s: %w", l.ID, log.store.Cluster, err)
		}
		segments = append(segments, read...)
	}
	l.Segments = segments
	for _, seq := range slices.Sorted(maps.Keys(v.bad)) {
		l = l.Without(seq, v.bad[seq])
	}
	return l, nil
}

// foldedAtOnce is the number of the catalog's segments that are unfolded in memory at the same time. Each can stand for a whole index.
const foldedAtOnce = 16

// verifying is the state of one Verify.
type verifying struct {
	log  *Log
	with VerifyOptions

	mu          sync.Mutex       // guards done and bad
	done, total int64            // bytes
	bad         map[uint64]error // by seq: why a segment is missing, damaged or does not open
}

// read verifies all segments that chunk includes. It returns chunk or, if one of these segments is bad, all of them unfolded.
func (v *verifying) read(ctx context.Context, chunk []catalog.Segment) ([]catalog.Segment, error) {
	var segments []catalog.Segment
	for _, s := range chunk {
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
	return chunk, err
}

// readOne verifies one segment and records it in v.bad if it is missing, is damaged or does not open.
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

// verifySegment reads one segment to its end. If the segment cannot be read, it returns that error and not the error of with.Check.
func (log *Log) verifySegment(ctx context.Context, s catalog.Segment, with VerifyOptions) error {
	if with.Keys.None() && s.Seal.Encryption != "" {
		return log.checkSegment(ctx, s)
	}
	r, err := log.OpenSegment(ctx, s, with.Keys)
	if err != nil {
		return err
	}
	defer r.Close()
	var readErr error
	err = with.Check(ctx, s, func(yield func(segment.Record, error) bool) {
		for record, err := range r.Records() {
			readErr = err
			if !yield(record, err) || err != nil {
				return
			}
		}
	})
	if readErr != nil {
		return readErr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", catalog.SegmentKey(log.store.Cluster, s.Lineage, s.Seq), err)
	}
	return nil
}

// checkSegment compares the stored bytes of a segment with its digests, without decrypting it.
func (log *Log) checkSegment(ctx context.Context, s catalog.Segment) error {
	r, err := log.OpenStored(ctx, s)
	if err != nil {
		return err
	}
	defer r.Close()
	_, _, err = segment.Check(r)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	return nil
}
