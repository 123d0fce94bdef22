// Package log reads and writes the archived log of one cluster. Each lineage has a folder:
//
//	<cluster>/log/<lineage>/<seq, 16 hex>.seg               a segment; never replaced, so that one of several archivers wins
//	<cluster>/log/<lineage>/index-<first seq, 16 hex>.json  an index: copies of many segments' headers, so that a year loads fast
//	<cluster>/log/<lineage>/pack-<first>-<last>.segs        a pack: the segments of an index in one object, which replaces their own
//	<cluster>/log/<lineage>/tombstone-<seq, 16 hex>.json    a tombstone: the segments up to this seq are pruned
//
// Load returns the lineages as package catalog describes them. It lists the log once, reads the indexes, and folds them:
// one catalog.Segment describes hundreds of stored ones until Unfold reads their headers.
package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log reads and writes the log of one cluster.
type Log struct {
	store *records.Store
	packs packs
	// Headers caches headers of segments and folded indexes; nil: nothing is cached.
	Headers *Headers
}

// New returns the log of the store's cluster, without a cache.
func New(store *records.Store) *Log { return &Log{store: store} }

// TakenError means that another archiver has stored a segment under the same name. It matches catalog.ErrTaken.
type TakenError struct {
	Segment catalog.Segment // the stored segment, from which the caller can continue
}

// Error names the segment and the archiver that stored it.
func (e *TakenError) Error() string {
	return fmt.Sprintf("segment %d of lineage %s: %v: it was stored by %s: continue after it",
		e.Segment.Seq, e.Segment.Lineage, catalog.ErrTaken, e.Segment.Writer)
}

// Unwrap makes e match catalog.ErrTaken.
func (e *TakenError) Unwrap() error { return catalog.ErrTaken }

// StoreSegment stores e under the name of its lineage and seq. If several archivers store a segment under one name, one
// succeeds and the others get a *TakenError. A call may be repeated: StoreSegment returns nil if e is already stored, since
// the store's response can be lost. The error matches catalog.ErrDamaged if the name belongs to an object that cannot be
// continued, and records.ErrUnsigned if the policy has no key and the newest backup is signed.
func (log *Log) StoreSegment(ctx context.Context, e segment.Encoded) error {
	lineage, seq := e.Header.Lineage, e.Header.Seq
	err := log.checkCluster(e.Header)
	if err != nil {
		return fmt.Errorf("store segment %d of lineage %s: %w", seq, lineage, err)
	}
	key := catalog.SegmentKey(log.store.Cluster, lineage, seq)
	err = log.store.RefuseUnsigned(ctx)
	var packed *catalog.Segment
	now := time.Now().Round(0) // the wall clock, which goes on while the host sleeps
	if err == nil {
		packed, err = log.packedAs(ctx, e.Header, now)
	}
	if err == nil && packed == nil {
		err = log.store.Create(ctx, key, bytes.NewReader(e.Bytes), int64(len(e.Bytes)))
	}
	switch {
	case err == nil && packed == nil:
		log.packs.setLastStoreTime(now)
		log.store.EnsureMarker(ctx)
		return nil
	case err == nil:
		return sameSegment(e, *packed)
	case !errors.Is(err, storage.ErrExist):
		return fmt.Errorf("store segment %s: %w", key, err)
	}
	stored, err := log.ReadSegment(ctx, lineage, seq)
	if err != nil {
		return fmt.Errorf("store a segment: its name is taken, and the existing object cannot be read: %w", err)
	}
	return sameSegment(e, stored)
}

// sameSegment returns a *TakenError unless stored is e.
func sameSegment(e segment.Encoded, stored catalog.Segment) error {
	if stored.Digest != e.Digest {
		return &TakenError{stored}
	}
	return nil
}

// packedAs returns the segment that a pack contains under the name of h; nil if there is none. A segment is packed one hour after it was
// stored, at the earliest. So packedAs asks the store only if h was written more than 30 minutes before now, or if this Log stored no
// segment in these 30 minutes: the host may have slept.
func (log *Log) packedAs(ctx context.Context, h segment.Header, now time.Time) (*catalog.Segment, error) {
	recent := now.Add(-minSegmentAge / 2)
	if log.packs.lastStoreTime().After(recent) && h.Written.After(recent) {
		return nil, nil
	}
	all, err := log.listPacks(ctx, h.Lineage)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(p *pack) bool { return p.first <= h.Seq && h.Seq <= p.last }) {
		return nil, nil
	}
	stored, err := log.ReadSegment(ctx, h.Lineage, h.Seq)
	if isUnusable(err) {
		return nil, nil // a pack that hides no segment
	}
	return &stored, err
}

// checkCluster returns an error unless h belongs to the log's cluster and has a valid lineage.
func (log *Log) checkCluster(h segment.Header) error {
	if h.Cluster != log.store.Cluster {
		return fmt.Errorf("it is of cluster %q, not of %q", h.Cluster, log.store.Cluster)
	}
	return catalog.ValidLineage(h.Lineage)
}

// SegmentReader reads one stored segment. Its errors name the object.
type SegmentReader struct {
	*segment.Reader
	name   string
	source io.Closer
}

// OpenSegment opens a segment of the catalog; the caller must close it. The error is that of OpenStored, or matches
// seal.ErrWrongKey if the keys do not open the segment.
func (log *Log) OpenSegment(ctx context.Context, s catalog.Segment, keys seal.Keys) (*SegmentReader, error) {
	source, err := log.OpenStored(ctx, s)
	if err != nil {
		return nil, err
	}
	r, err := segment.Open(source, keys)
	if err != nil {
		source.Close()
		return nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	return &SegmentReader{r, source.Name, source}, nil
}

// Stored reads a segment as it is stored.
type Stored struct {
	io.ReadCloser
	Name string // of the object, for errors; of a packed segment, its own key and the name of the pack
}

// OpenStored opens a segment of the catalog as it is stored; the caller must close it. Only the header is checked. The error
// matches catalog.ErrNotFound if the segment is missing, and catalog.ErrDamaged if its header differs from that in the catalog.
func (log *Log) OpenStored(ctx context.Context, s catalog.Segment) (r Stored, err error) {
	err = log.tryPlaces(ctx, s.Lineage, s.Seq, func(at place) (err error) {
		r, err = log.openHeader(ctx, at, s.Digest)
		return err
	})
	if records.IsAbsent(err) {
		err = Missing(catalog.SegmentKey(log.store.Cluster, s.Lineage, s.Seq))
	}
	return r, err
}

// openHeader opens the segment at a place if its header has the digest.
func (log *Log) openHeader(ctx context.Context, at place, digest string) (Stored, error) {
	source, _, err := log.openPlace(ctx, at, 0)
	if err != nil {
		return Stored{}, fmt.Errorf("open segment %s: %w", at.name, err)
	}
	var header bytes.Buffer
	_, read, err := segment.ReadHeader(io.TeeReader(source, &header))
	if err == nil && read != digest {
		err = fmt.Errorf("%w: its header differs from the one in the catalog", catalog.ErrDamaged)
	}
	if err != nil {
		source.Close()
		return Stored{}, fmt.Errorf("%s: %w", at.name, err)
	}
	whole := struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&header, source), source}
	return Stored{whole, at.name}, nil
}

// Records yields the records of the segment as segment.Reader does.
func (r *SegmentReader) Records() iter.Seq2[segment.Record, error] {
	return func(yield func(segment.Record, error) bool) {
		for record, err := range r.Reader.Records() {
			if err != nil {
				err = fmt.Errorf("%s: %w", r.name, err)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// Close releases the reader and closes the object.
func (r *SegmentReader) Close() error {
	r.Reader.Close() // before its source
	return r.source.Close()
}

// Missing returns the error for a missing segment. It names key and matches catalog.ErrNotFound.
func Missing(key string) error { return fmt.Errorf("%s: the segment is %w", key, catalog.ErrNotFound) }

// usualHead is the number of bytes that are read to get a header. A longer header costs a second request.
const usualHead = 16 << 10

// ReadSegment reads a segment's header and checks it against its name and the segment's size. Errors name the key. They match
// catalog.ErrDamaged if the segment cannot be used, and storage.ErrNotExist if it is missing.
func (log *Log) ReadSegment(ctx context.Context, lineage string, seq uint64) (s catalog.Segment, err error) {
	err = log.tryPlaces(ctx, lineage, seq, func(at place) (err error) {
		s, err = log.readHead(ctx, at, usualHead)
		if err == nil && (s.Cluster != log.store.Cluster || s.Lineage != lineage || s.Seq != seq) {
			err = fmt.Errorf("%w: it is segment %d of lineage %s of cluster %s and was moved here",
				catalog.ErrDamaged, s.Seq, s.Lineage, s.Cluster)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at.name, err)
		}
		return nil
	})
	if err != nil {
		return catalog.Segment{}, err
	}
	return s, nil
}

// readHead reads a header from the first length bytes of a segment.
func (log *Log) readHead(ctx context.Context, at place, length int64) (catalog.Segment, error) {
	r, size, err := log.openPlace(ctx, at, length)
	if err != nil {
		return catalog.Segment{}, records.ReadError(err)
	}
	defer r.Close()
	head := make([]byte, min(length, size))
	_, err = io.ReadFull(r, head)
	if err != nil {
		return catalog.Segment{}, records.ReadError(err)
	}
	rest := bytes.NewReader(head)
	h, digest, err := log.readHeader(rest)
	if err != nil && length == usualHead && size > length {
		return log.readHead(ctx, at, int64(segment.PrefixSize+document.MaxSize))
	}
	if err != nil {
		return catalog.Segment{}, err
	}
	want := int64(len(head)-rest.Len()) + h.Stored.Size
	if size != want {
		return catalog.Segment{}, fmt.Errorf("%w: it has %d bytes, its header says %d", catalog.ErrDamaged, size, want)
	}
	return catalog.Segment{Header: h, Digest: digest, Size: size}, nil
}

// readHeader reads a header from r, see DecodeHeader.
func (log *Log) readHeader(r io.Reader) (h segment.Header, digest string, err error) {
	doc, err := segment.ReadDocument(r)
	if err != nil {
		return segment.Header{}, "", err
	}
	return log.DecodeHeader(doc)
}

// DecodeHeader decodes the document of a header and returns the digest of the document. The error matches catalog.ErrDamaged,
// and sign.ErrUntrusted if no trusted key has signed the document.
func (log *Log) DecodeHeader(doc []byte) (h segment.Header, digest string, err error) {
	err = document.Check(doc, log.store.Policy.Trust)
	if err != nil {
		return segment.Header{}, "", err
	}
	return segment.DecodeHeader(doc)
}

// Segments reads the headers of segments of a lineage, in the order of seqs. An archiver makes an index from them after a
// restart. The error matches storage.ErrNotExist if a segment is missing, and catalog.ErrDamaged if one cannot be used.
func (log *Log) Segments(ctx context.Context, lineage string, seqs []uint64) ([]catalog.Segment, error) {
	segments := make([]catalog.Segment, len(seqs))
	err := records.Parallel(ctx, headReaders, len(seqs), func(ctx context.Context, i int) (err error) {
		segments[i], err = log.ReadSegment(ctx, lineage, seqs[i])
		return err
	})
	return segments, err
}
