package log

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// IndexFormat is the version of the index format that this package reads and writes.
const IndexFormat = 1

// Limits of an index. A header has at most 256 marks of about 200 bytes each.
const (
	MaxIndex        = 16 << 20 // bytes of the stored document
	maxIndexHeaders = 32 << 20 // bytes of all headers, unpacked
	maxMeanHeader   = 64 << 10 // bytes of a header, on average over an index
)

// unpacking bounds the memory of all indexes that the process unpacks at the same time, in bytes. It is not held during I/O,
// so a store that hangs does not block others. Each index takes unpackOverhead more, for a decoder and one document.
var unpacking = semaphore.NewWeighted(48 << 20)

const unpackOverhead = 4 << 20

// index contains copies of the headers of consecutive segments. It only saves time: a reader checks every header, and reads
// the segments themselves if the index is missing or wrong.
type index struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Lineage string `json:"lineage"`
	First   uint64 `json:"first"` // seq of the first segment
	Last    uint64 `json:"last"`  // seq of the last segment
	// Headers are the headers' documents, byte for byte as in the segments, concatenated and compressed with zstd to about a
	// fifth. To read them: jq -r .headers | base64 -d | zstd -d.
	Headers []byte `json:"headers"`
}

// EncodeIndex returns the stored form of an index of segments. It returns an error unless their seqs are consecutive.
func EncodeIndex(segments []catalog.Segment) ([]byte, error) {
	if len(segments) == 0 {
		return nil, errors.New("an index of no segments")
	}
	first, last := segments[0], segments[len(segments)-1]
	err := inOrder(first.Cluster, first.Lineage, first.Seq, segments)
	if err != nil {
		return nil, err
	}
	headers, err := packHeaders(segments)
	if err != nil {
		return nil, err
	}
	return document.EncodeUpTo(MaxIndex, index{
		Format: IndexFormat, Cluster: first.Cluster, Lineage: first.Lineage, First: first.Seq, Last: last.Seq, Headers: headers,
	})
}

// packHeaders returns the documents of the segments' headers as index.Headers has them.
func packHeaders(segments []catalog.Segment) ([]byte, error) {
	var documents bytes.Buffer
	for _, s := range segments {
		doc, err := document.Encode(s.Header)
		if err == nil {
			doc, err = document.WithSignature(doc, s.Signature)
		}
		if err != nil {
			return nil, err
		}
		_, digest, err := segment.DecodeHeader(doc)
		if err != nil || digest != s.Digest {
			return nil, fmt.Errorf("the header of segment %d does not have the digest %.12s that it was stored with", s.Seq, s.Digest)
		}
		documents.Write(doc)
	}
	limit := headersLimit(uint64(len(segments)))
	if int64(documents.Len()) > limit {
		return nil, fmt.Errorf("its headers have %d bytes, more than the %d that are read back", documents.Len(), limit)
	}
	return records.Pack(documents.Bytes())
}

// DecodeIndex returns the segments of an index that EncodeIndex has encoded, without checking signatures. The Size of each is
// computed from its header. The error matches catalog.ErrDamaged if data is not such an index.
func DecodeIndex(data []byte) ([]catalog.Segment, error) {
	x, err := ParseIndex(data)
	if err != nil {
		return nil, err
	}
	return x.Segments(context.Background(), segment.DecodeHeader)
}

// ParseIndex decodes an index without unpacking its headers. The error matches catalog.ErrDamaged if data is not an index.
func ParseIndex(data []byte) (x index, err error) {
	err = document.Decode(data, IndexFormat, &x)
	if err != nil {
		return index{}, err
	}
	if x.First == 0 || x.Last < x.First {
		return index{}, fmt.Errorf("%w: it cannot hold the headers of segments %d to %d", catalog.ErrDamaged, x.First, x.Last)
	}
	return x, nil
}

// headerDecoder decodes the document of one header. It returns an error if the header is not trusted or not valid.
type headerDecoder func(doc []byte) (h segment.Header, digest string, err error)

// Segments returns the segments of x. It unpacks one header at a time and stops at the first that decode refuses or that is
// out of order: only the headers are signed, so an attacker may have written the index. The error matches catalog.ErrDamaged
// or is ctx's.
func (x index) Segments(ctx context.Context, decode headerDecoder) ([]catalog.Segment, error) {
	var segments []catalog.Segment
	err := unpack(ctx, x.Headers, headersLimit(x.Last-x.First+1), func(r io.Reader) (err error) {
		segments, err = x.readHeaders(r, decode)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("headers %d to %d: %w", x.First, x.Last, err)
	}
	return segments, nil
}

// unpack calls read with the content of packed, and one byte more if it is longer than its frame declares. The error matches
// catalog.ErrDamaged, also that of read, or is ctx's. It is damaged too if the frame declares no size, or more than limit bytes.
func unpack(ctx context.Context, packed []byte, limit int64, read func(io.Reader) error) error {
	var frame zstd.Header
	err := frame.Decode(packed)
	if err != nil {
		return fmt.Errorf("%w: %w", catalog.ErrDamaged, err)
	}
	if !frame.HasFCS || frame.FrameContentSize > uint64(limit) {
		return fmt.Errorf("%w: they are packed without their size, or have more than %d bytes", catalog.ErrDamaged, limit)
	}
	size := int64(frame.FrameContentSize)
	err = unpacking.Acquire(ctx, size+unpackOverhead)
	if err != nil {
		return err
	}
	defer unpacking.Release(size + unpackOverhead)
	dec, err := records.NewUnpacker(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	defer dec.Close()
	err = read(io.LimitReader(dec, size+1))
	if err != nil {
		return fmt.Errorf("%w: %w", catalog.ErrDamaged, err)
	}
	return nil
}

// headersLimit returns the largest total size of n unpacked headers in an index, in bytes.
func headersLimit(n uint64) int64 {
	return max(document.MaxSize, int64(min(n, maxIndexHeaders/maxMeanHeader))*maxMeanHeader)
}

// readHeaders reads the headers of x from r, which yields them unpacked.
func (x index) readHeaders(r io.Reader, decode headerDecoder) (segments []catalog.Segment, err error) {
	documents := bufio.NewScanner(r)
	documents.Buffer(nil, document.MaxSize+1)
	documents.Split(splitDocument)
	for documents.Scan() {
		doc := documents.Bytes()
		s, err := segmentOf(doc, decode)
		if err == nil {
			err = s.CheckPlace(x.Cluster, x.Lineage, x.First+uint64(len(segments)))
		}
		if err != nil {
			return nil, err
		}
		n := len(segments)
		if n > 0 {
			shareText(&s.Header, segments[n-1])
		}
		segments = append(segments, s)
	}
	err = documents.Err()
	if err == nil && uint64(len(segments)) != x.Last-x.First+1 {
		err = fmt.Errorf("it holds %d headers, not those of %d to %d", len(segments), x.First, x.Last)
	}
	return segments, err
}

// segmentOf returns the segment whose header is doc.
func segmentOf(doc []byte, decode headerDecoder) (catalog.Segment, error) {
	h, digest, err := decode(doc)
	if err != nil {
		return catalog.Segment{}, err
	}
	return catalog.Segment{Header: h, Digest: digest, Size: int64(segment.PrefixSize+len(doc)) + h.Stored.Size}, nil
}

// documentEnd ends a document and occurs nowhere else in it: all lines within are indented.
const documentEnd = "\n}\n"

// splitDocument is a bufio.SplitFunc for documents. Bytes after the last document are returned as one more.
func splitDocument(data []byte, atEOF bool) (advance int, token []byte, err error) {
	at := bytes.Index(data, []byte(documentEnd))
	if at >= 0 {
		end := at + len(documentEnd)
		return end, data[:end], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// shareText makes h share the memory of strings that are equal in the header before it. Most are equal, and a week of a busy
// log has 300,000 headers.
func shareText(h *segment.Header, before catalog.Segment) {
	for _, text := range []struct {
		field    *string
		previous string
	}{
		{&h.Previous, before.Digest}, {&h.Cluster, before.Cluster}, {&h.Lineage, before.Lineage}, {(*string)(&h.Source), string(before.Source)},
		{&h.ClusterID, before.ClusterID}, {&h.Member, before.Member}, {&h.ServerVersion, before.ServerVersion},
		{&h.Writer, before.Writer}, {&h.DRVersion, before.DRVersion},
		{&h.Seal.Compression, before.Seal.Compression}, {&h.Seal.Encryption, before.Seal.Encryption},
	} {
		if *text.field == text.previous {
			*text.field = text.previous
		}
	}
	if slices.Equal(h.Seal.Recipients, before.Seal.Recipients) {
		h.Seal.Recipients = before.Seal.Recipients
	}
}

// inOrder returns an error unless segments are consecutive segments of the lineage, beginning with seq first.
func inOrder(cluster, lineage string, first uint64, segments []catalog.Segment) error {
	for i, s := range segments {
		err := s.CheckPlace(cluster, lineage, first+uint64(i))
		if err != nil {
			return err
		}
	}
	return nil
}

// StoreIndex stores an index of segments of a lineage, which must be stored and have consecutive seqs. A call may be
// repeated. The error matches storage.ErrExist if a different index begins with the same seq. The caller can ignore that: the
// other index serves as far as it reaches.
func (log *Log) StoreIndex(ctx context.Context, lineage string, segments []catalog.Segment) error {
	data, err := log.encodeIndex(lineage, segments)
	if err != nil {
		return err
	}
	key := catalog.IndexKey(log.store.Cluster, lineage, segments[0].Seq)
	err = log.store.Create(ctx, key, bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, storage.ErrExist) {
		stored, readErr := log.store.ReadUpTo(ctx, key, MaxIndex)
		if readErr == nil && bytes.Equal(stored, data) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("store index %s: %w", key, err)
	}
	return nil
}

// encodeIndex returns the stored form of an index of segments of a lineage of this cluster.
func (log *Log) encodeIndex(lineage string, segments []catalog.Segment) ([]byte, error) {
	data, err := EncodeIndex(segments)
	if err == nil {
		err = log.checkCluster(segments[0].Header)
	}
	if err == nil && segments[0].Lineage != lineage {
		err = fmt.Errorf("its segments are of lineage %s", segments[0].Lineage)
	}
	if err != nil {
		return nil, fmt.Errorf("store an index of lineage %s: %w", lineage, err)
	}
	return data, nil
}

// readIndex returns the segments of the index that begins with seq first. Errors name the key. They match catalog.ErrDamaged
// if the index cannot be used, and storage.ErrNotExist if it is missing.
func (log *Log) readIndex(ctx context.Context, lineage string, first uint64) ([]catalog.Segment, error) {
	key := catalog.IndexKey(log.store.Cluster, lineage, first)
	data, err := log.store.ReadUpTo(ctx, key, MaxIndex)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	x, err := ParseIndex(data)
	if err == nil && (x.Cluster != log.store.Cluster || x.Lineage != lineage || x.First != first) {
		err = fmt.Errorf("%w: it begins with segment %d of lineage %s of cluster %s and was moved here", catalog.ErrDamaged, x.First, x.Lineage, x.Cluster)
	}
	var segments []catalog.Segment
	if err == nil {
		segments, err = x.Segments(ctx, log.DecodeHeader)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return segments, nil
}
