package repository

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
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// TakenError says that another archiver has stored a segment under the same name. It matches ErrTaken.
type TakenError struct {
	Segment catalog.Segment // what is stored: the loser goes on from it
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("segment %d of lineage %s: %v: it was stored by %s, go on behind it",
		e.Segment.Seq, e.Segment.Lineage, catalog.ErrTaken, e.Segment.Writer)
}

// Is makes it match ErrTaken.
func (e *TakenError) Is(target error) bool { return target == catalog.ErrTaken }

// StoreSegment stores e under the name that its lineage and seq give it. The name is the fence: of several archivers one
// wins, the others get a *TakenError. It may be repeated: nil says that e is stored, now or by an earlier call whose
// answer was lost. ErrDamaged says that the name is taken by something that nobody can go on from.
func (c *Cluster) StoreSegment(ctx context.Context, e segment.Encoded) error {
	lineage, seq := e.Header.Lineage, e.Header.Seq
	if err := c.owns(e.Header); err != nil {
		return fmt.Errorf("store segment %d of lineage %s: %w", seq, lineage, err)
	}
	key := catalog.SegmentKey(c.name, lineage, seq)
	err := c.refuseUnsigned(ctx)
	if err != nil {
		return fmt.Errorf("store segment %s: %w", key, err)
	}
	err = c.create(ctx, key, bytes.NewReader(e.Bytes), int64(len(e.Bytes)))
	if err == nil {
		c.markStored(ctx)
		return nil
	}
	if !errors.Is(err, storage.ErrExist) {
		return fmt.Errorf("store segment %s: %w", key, err)
	}
	stored, err := c.readSegment(ctx, lineage, seq)
	if err != nil {
		return fmt.Errorf("store a segment: its name is taken, and what is there cannot be read: %w", err)
	}
	if stored.Digest != e.Digest {
		return &TakenError{stored}
	}
	return nil
}

func (c *Cluster) owns(h segment.Header) error {
	if h.Cluster != c.name {
		return fmt.Errorf("it is of cluster %q, not of %q", h.Cluster, c.name)
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
func (c *Cluster) OpenSegment(ctx context.Context, s catalog.Segment, keys seal.Keys) (*SegmentReader, error) {
	key := catalog.SegmentKey(c.name, s.Lineage, s.Seq)
	source, _, err := c.bucket.Open(ctx, key, storage.OpenOptions{})
	if isAbsent(err) {
		return nil, missing(key)
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

func missing(key string) error { return fmt.Errorf("%s: the segment is %w", key, catalog.ErrNotFound) }

// usualHead holds a header and what frames it; a longer one costs a second request.
const usualHead = 16 << 10

// readSegment reads a segment's own header, and holds it against its place and size. What cannot be used gives
// ErrDamaged. Errors name the key.
func (c *Cluster) readSegment(ctx context.Context, lineage string, seq uint64) (catalog.Segment, error) {
	key := catalog.SegmentKey(c.name, lineage, seq)
	s, err := c.readHead(ctx, key, usualHead)
	if err != nil {
		return catalog.Segment{}, fmt.Errorf("%s: %w", key, err)
	}
	if s.Cluster != c.name || s.Lineage != lineage || s.Seq != seq {
		return catalog.Segment{}, fmt.Errorf("%s: %w: it is segment %d of lineage %s of cluster %s and was moved here",
			key, catalog.ErrDamaged, s.Seq, s.Lineage, s.Cluster)
	}
	return s, nil
}

func (c *Cluster) readHead(ctx context.Context, key string, length int64) (catalog.Segment, error) {
	r, object, err := c.bucket.Open(ctx, key, storage.OpenOptions{Length: length})
	if err != nil {
		return catalog.Segment{}, readError(err)
	}
	defer r.Close()
	head := make([]byte, min(length, object.Size))
	if _, err := io.ReadFull(r, head); err != nil {
		return catalog.Segment{}, readError(err)
	}
	rest := bytes.NewReader(head)
	h, digest, err := c.readHeader(rest)
	if err != nil && length == usualHead && object.Size > length {
		return c.readHead(ctx, key, int64(segment.PrefixSize+document.MaxSize))
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
func (c *Cluster) readHeader(r io.Reader) (h segment.Header, digest string, err error) {
	doc, err := segment.ReadDocument(r)
	if err != nil {
		return segment.Header{}, "", err
	}
	return c.decodeHeader(doc)
}

func (c *Cluster) decodeHeader(doc []byte) (h segment.Header, digest string, err error) {
	if err := document.Check(doc, c.policy.Trust); err != nil {
		return segment.Header{}, "", err
	}
	return segment.DecodeHeader(doc)
}

// Segments reads the headers of some segments of a lineage, in the order of seqs: what an index is made of after a
// restart. One that is missing gives storage.ErrNotExist, one that cannot be used ErrDamaged.
func (c *Cluster) Segments(ctx context.Context, lineage string, seqs []uint64) ([]catalog.Segment, error) {
	segments := make([]catalog.Segment, len(seqs))
	err := atOnce(ctx, headReaders, len(seqs), func(ctx context.Context, i int) (err error) {
		segments[i], err = c.readSegment(ctx, lineage, seqs[i])
		return err
	})
	return segments, err
}
