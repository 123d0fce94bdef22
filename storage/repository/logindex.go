package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// IndexFormat is the number of the index's format that this version writes and reads.
const IndexFormat = 1

// An index has 16 MiB at most, for some ten thousands of headers, which have 128 MiB at most when they are unpacked.
const (
	maxIndex        = 16 << 20
	maxIndexHeaders = 128 << 20
)

// index repeats the headers of consecutive segments. It only saves time: whoever reads it checks every header, and
// reads the segments' own where it is absent or wrong.
type index struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Lineage string `json:"lineage"`
	First   uint64 `json:"first"` // seq
	Last    uint64 `json:"last"`  // seq
	// Headers are the documents of the headers as the segments have them, one behind the other, zstd. They are alike,
	// so packed they have a fifth of their size. To read them: jq -r .headers | base64 -d | zstd -d.
	Headers []byte `json:"headers"`
}

// EncodeIndex is the stored form of an index of segments, whose seqs must be consecutive.
func EncodeIndex(segments []Segment) ([]byte, error) {
	if len(segments) == 0 {
		return nil, errors.New("an index of no segments")
	}
	first, last := segments[0], segments[len(segments)-1]
	if err := inOrder(first.Cluster, first.Lineage, first.Seq, segments); err != nil {
		return nil, err
	}
	headers, err := packHeaders(segments)
	if err != nil {
		return nil, err
	}
	return document.EncodeUpTo(maxIndex, index{
		Format: IndexFormat, Cluster: first.Cluster, Lineage: first.Lineage, First: first.Seq, Last: last.Seq, Headers: headers,
	})
}

func packHeaders(segments []Segment) ([]byte, error) {
	var documents bytes.Buffer
	for _, s := range segments {
		doc, err := document.Encode(s.Header)
		if err == nil {
			doc, err = document.WithSignature(doc, s.Signature)
		}
		if err != nil {
			return nil, err
		}
		if _, digest, err := segment.DecodeHeader(doc); err != nil || digest != s.Digest {
			return nil, fmt.Errorf("the header of segment %d does not have the digest %.12s that it was stored with", s.Seq, s.Digest)
		}
		documents.Write(doc)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	return enc.EncodeAll(documents.Bytes(), nil), nil
}

// DecodeIndex reads what EncodeIndex wrote. Anything else gives an error that matches ErrDamaged. The Size of each
// segment is what its header says.
func DecodeIndex(data []byte) ([]Segment, error) { return decodeIndex(data, segment.DecodeHeader) }

// decodeIndex lets decode judge each header. The index itself may be anybody's: that its headers are whole, chained and
// signed is what counts.
func decodeIndex(data []byte, decode func(doc []byte) (segment.Header, string, error)) ([]Segment, error) {
	var x index
	if err := document.Decode(data, IndexFormat, &x); err != nil {
		return nil, err
	}
	segments, err := unpackHeaders(x.Headers, decode)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := inOrder(x.Cluster, x.Lineage, x.First, segments); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if len(segments) == 0 || segments[len(segments)-1].Seq != x.Last {
		return nil, fmt.Errorf("%w: it holds %d headers, not those of %d to %d", ErrDamaged, len(segments), x.First, x.Last)
	}
	return segments, nil
}

// documentEnd is a line that stands at the end of a document and nowhere in it: within, everything is indented.
const documentEnd = "\n}\n"

func unpackHeaders(packed []byte, decode func(doc []byte) (segment.Header, string, error)) ([]Segment, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxIndexHeaders))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	documents, err := dec.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	segments := make([]Segment, 0, bytes.Count(documents, []byte(documentEnd)))
	for doc := range bytes.SplitAfterSeq(documents, []byte(documentEnd)) {
		if len(doc) == 0 {
			break // behind the last one
		}
		h, digest, err := decode(doc)
		if err != nil {
			return nil, err
		}
		if n := len(segments); n > 0 {
			shareText(&h, segments[n-1])
		}
		segments = append(segments, Segment{Header: h, Digest: digest, Size: int64(segment.PrefixSize+len(doc)) + h.Stored.Size})
	}
	return segments, nil
}

// shareText keeps what h says as the one before it does but once in memory: that is most of what it says, and a week of a busy
// log has 300,000 headers.
func shareText(h *segment.Header, before Segment) {
	for _, text := range []struct {
		here  *string
		there string
	}{
		{&h.Previous, before.Digest}, {&h.Cluster, before.Cluster}, {&h.Lineage, before.Lineage}, {(*string)(&h.Source), string(before.Source)},
		{&h.ClusterID, before.ClusterID}, {&h.Member, before.Member}, {&h.ServerVersion, before.ServerVersion},
		{&h.Writer, before.Writer}, {&h.DRVersion, before.DRVersion},
		{&h.Seal.Compression, before.Seal.Compression}, {&h.Seal.Encryption, before.Seal.Encryption},
	} {
		if *text.here == text.there {
			*text.here = text.there
		}
	}
	if slices.Equal(h.Seal.Recipients, before.Seal.Recipients) {
		h.Seal.Recipients = before.Seal.Recipients
	}
}

// inOrder says why segments are not the consecutive ones of a lineage from first on.
func inOrder(cluster, lineage string, first uint64, segments []Segment) error {
	for i, s := range segments {
		if s.Cluster != cluster || s.Lineage != lineage || s.Seq != first+uint64(i) {
			return fmt.Errorf("header %d is that of segment %d of lineage %s of cluster %s, not of %d of %s of %s",
				i, s.Seq, s.Lineage, s.Cluster, first+uint64(i), lineage, cluster)
		}
	}
	return nil
}

// StoreIndex stores an index of segments of a lineage, whose seqs must be consecutive and which must all be stored. It
// may be repeated. If there is another index from the same first seq it gives storage.ErrExist, and all is well: that
// one serves as far as it reaches.
func (c *Cluster) StoreIndex(ctx context.Context, lineage string, segments []Segment) error {
	data, err := EncodeIndex(segments)
	if err == nil {
		err = c.owns(segments[0].Header)
	}
	if err == nil && segments[0].Lineage != lineage {
		err = fmt.Errorf("its segments are of lineage %s", segments[0].Lineage)
	}
	if err != nil {
		return fmt.Errorf("store an index of lineage %s: %w", lineage, err)
	}
	key := c.indexKey(lineage, segments[0].Seq)
	err = c.create(ctx, key, bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, storage.ErrExist) {
		if stored, readErr := c.readUpTo(ctx, key, maxIndex); readErr == nil && bytes.Equal(stored, data) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("store index %s: %w", key, err)
	}
	return nil
}

// readIndex reads the index whose first seq is first. One that cannot be used gives ErrDamaged.
func (c *Cluster) readIndex(ctx context.Context, lineage string, first uint64) ([]Segment, error) {
	key := c.indexKey(lineage, first)
	data, err := c.readUpTo(ctx, key, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	segments, err := decodeIndex(data, c.decodeHeader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if s := segments[0]; s.Cluster != c.name || s.Lineage != lineage || s.Seq != first {
		return nil, fmt.Errorf("%s: %w: it begins with segment %d of lineage %s of cluster %s and was moved here",
			key, ErrDamaged, s.Seq, s.Lineage, s.Cluster)
	}
	return segments, nil
}
