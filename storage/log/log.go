// Package log reads and writes the archived log of one cluster:
//
//	<cluster>/log/<lineage>/<seq, 16 hex>.seg               a segment; create-only, so that its name is the fence
//	<cluster>/log/<lineage>/index-<first seq, 16 hex>.json  the headers of many segments again, so that a year lists fast
//	<cluster>/log/<lineage>/tombstone-<seq, 16 hex>.json    the segments up to that one are pruned
//
// Load returns the lineages as package catalog describes them. A long log is listed once, read from its indexes, and folded:
// one catalog.Segment describes hundreds of stored ones until Unfold reads their headers.
package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log is the log of one cluster as it is stored.
type Log struct {
	store *records.Store
	// headers remembers those of segments; nil: nothing does.
	Headers *Headers
}

// NewLog returns the log of the store's cluster.
func New(store *records.Store) *Log { return &Log{store: store} }

// TakenError says that another archiver has stored a segment under the same name. It matches catalog.ErrTaken.
type TakenError struct {
	Segment catalog.Segment // what is stored: the loser goes on from it
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("segment %d of lineage %s: %v: it was stored by %s, go on behind it",
		e.Segment.Seq, e.Segment.Lineage, catalog.ErrTaken, e.Segment.Writer)
}

// Unwrap makes e match catalog.ErrTaken.
func (e *TakenError) Unwrap() error { return catalog.ErrTaken }

// StoreSegment stores e under the name that its lineage and seq give it. The name is the fence: of several archivers one
// wins, the others get a *TakenError. It may be repeated: nil says that e is stored, now or by an earlier call whose
// answer was lost. ErrDamaged says that the name is taken by something that nobody can go on from.
func (log *Log) StoreSegment(ctx context.Context, e segment.Encoded) error {
	lineage, seq := e.Header.Lineage, e.Header.Seq
	if err := log.owns(e.Header); err != nil {
		return fmt.Errorf("store segment %d of lineage %s: %w", seq, lineage, err)
	}
	key := catalog.SegmentKey(log.store.Cluster, lineage, seq)
	err := log.store.RefuseUnsigned(ctx)
	if err != nil {
		return fmt.Errorf("store segment %s: %w", key, err)
	}
	err = log.store.Create(ctx, key, bytes.NewReader(e.Bytes), int64(len(e.Bytes)))
	if err == nil {
		log.store.EnsureMarker(ctx)
		return nil
	}
	if !errors.Is(err, storage.ErrExist) {
		return fmt.Errorf("store segment %s: %w", key, err)
	}
	stored, err := log.ReadSegment(ctx, lineage, seq)
	if err != nil {
		return fmt.Errorf("store a segment: its name is taken, and what is there cannot be read: %w", err)
	}
	if stored.Digest != e.Digest {
		return &TakenError{stored}
	}
	return nil
}

func (log *Log) owns(h segment.Header) error {
	if h.Cluster != log.store.Cluster {
		return fmt.Errorf("it is of cluster %q, not of %q", h.Cluster, log.store.Cluster)
	}
	return catalog.ValidLineage(h.Lineage)
}

// SegmentReader reads one stored segment. Its errors name the object.
type SegmentReader struct {
	*segment.Reader
	key    string
	source io.Closer
}

// OpenSegment opens a segment of the catalog. One that is gone gives ErrNotFound. One whose header is not the catalog's
// gives ErrDamaged: it would be another segment than the plan was made for. A wrong key gives seal.ErrWrongKey.
func (log *Log) OpenSegment(ctx context.Context, s catalog.Segment, keys seal.Keys) (*SegmentReader, error) {
	key := catalog.SegmentKey(log.store.Cluster, s.Lineage, s.Seq)
	source, _, err := log.store.Bucket.Open(ctx, key, storage.OpenOptions{})
	if records.IsAbsent(err) {
		return nil, Missing(key)
	}
	if err != nil {
		return nil, fmt.Errorf("open segment %s: %w", key, err)
	}
	r, err := segment.Open(source, keys)
	if err != nil {
		source.Close()
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	opened := &SegmentReader{r, key, source}
	if r.Digest != s.Digest {
		opened.Close()
		return nil, fmt.Errorf("%s: %w: its header is another one than the catalog's", key, catalog.ErrDamaged)
	}
	return opened, nil
}

// Records is what segment.Reader yields.
func (r *SegmentReader) Records() iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		for record, err := range r.Reader.Records() {
			if err != nil {
				err = fmt.Errorf("%s: %w", r.key, err)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// Close ends the reading.
func (r *SegmentReader) Close() error {
	r.Reader.Close() // before its source
	return r.source.Close()
}

func Missing(key string) error { return fmt.Errorf("%s: the segment is %w", key, catalog.ErrNotFound) }

// usualHead holds a header and what frames it; a longer one costs a second request.
const usualHead = 16 << 10

// readSegment reads a segment's own header, and holds it against its place and size. What cannot be used gives
// ErrDamaged. Errors name the key.
func (log *Log) ReadSegment(ctx context.Context, lineage string, seq uint64) (catalog.Segment, error) {
	key := catalog.SegmentKey(log.store.Cluster, lineage, seq)
	s, err := log.readHead(ctx, key, usualHead)
	if err != nil {
		return catalog.Segment{}, fmt.Errorf("%s: %w", key, err)
	}
	if s.Cluster != log.store.Cluster || s.Lineage != lineage || s.Seq != seq {
		return catalog.Segment{}, fmt.Errorf("%s: %w: it is segment %d of lineage %s of cluster %s and was moved here",
			key, catalog.ErrDamaged, s.Seq, s.Lineage, s.Cluster)
	}
	return s, nil
}

func (log *Log) readHead(ctx context.Context, key string, length int64) (catalog.Segment, error) {
	r, object, err := log.store.Bucket.Open(ctx, key, storage.OpenOptions{Length: length})
	if err != nil {
		return catalog.Segment{}, records.ReadError(err)
	}
	defer r.Close()
	head := make([]byte, min(length, object.Size))
	if _, err := io.ReadFull(r, head); err != nil {
		return catalog.Segment{}, records.ReadError(err)
	}
	rest := bytes.NewReader(head)
	h, digest, err := log.readHeader(rest)
	if err != nil && length == usualHead && object.Size > length {
		return log.readHead(ctx, key, int64(segment.PrefixSize+document.MaxSize))
	}
	if err != nil {
		return catalog.Segment{}, err
	}
	if want := int64(len(head)-rest.Len()) + h.Stored.Size; object.Size != want {
		return catalog.Segment{}, fmt.Errorf("%w: it has %d bytes, its header says %d", catalog.ErrDamaged, object.Size, want)
	}
	return catalog.Segment{Header: h, Digest: digest, Size: object.Size}, nil
}

// readHeader is segment.ReadHeader for a header that is trusted.
func (log *Log) readHeader(r io.Reader) (h segment.Header, digest string, err error) {
	doc, err := segment.ReadDocument(r)
	if err != nil {
		return segment.Header{}, "", err
	}
	return log.DecodeHeader(doc)
}

func (log *Log) DecodeHeader(doc []byte) (h segment.Header, digest string, err error) {
	if err := document.Check(doc, log.store.Policy.Trust); err != nil {
		return segment.Header{}, "", err
	}
	return segment.DecodeHeader(doc)
}

// Segments reads the headers of some segments of a lineage, in the order of seqs: what an index is made of after a
// restart. One that is missing gives storage.ErrNotExist, one that cannot be used ErrDamaged.
func (log *Log) Segments(ctx context.Context, lineage string, seqs []uint64) ([]catalog.Segment, error) {
	segments := make([]catalog.Segment, len(seqs))
	err := records.Parallel(ctx, headReaders, len(seqs), func(ctx context.Context, i int) (err error) {
		segments[i], err = log.ReadSegment(ctx, lineage, seqs[i])
		return err
	})
	return segments, err
}
