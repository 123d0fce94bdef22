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
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// IndexFormat is the number of the index's format that this version writes and reads.
const IndexFormat = 1

// Limits of an index. A header has at most 256 marks of about 200 bytes each.
const (
	MaxIndex        = 16 << 20 // bytes, as it is stored
	maxIndexHeaders = 32 << 20 // bytes of all its headers, unpacked
	maxMeanHeader   = 64 << 10 // bytes of one header, as the mean of an index
	indexWindow     = 1 << 20  // bytes that a decoder keeps to refer back to
)

// unpacking bounds the memory of all indexes that the process unpacks at a time, in bytes. It is held while nothing is
// waited for, so a store that hangs keeps no other waiting. Each index takes unpackOverhead for a decoder and one document.
var unpacking = semaphore.NewWeighted(48 << 20)

const unpackOverhead = 4 << 20

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
func EncodeIndex(segments []catalog.Segment) ([]byte, error) {
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
	return document.EncodeUpTo(MaxIndex, index{
		Format: IndexFormat, Cluster: first.Cluster, Lineage: first.Lineage, First: first.Seq, Last: last.Seq, Headers: headers,
	})
}

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
		if _, digest, err := segment.DecodeHeader(doc); err != nil || digest != s.Digest {
			return nil, fmt.Errorf("the header of segment %d does not have the digest %.12s that it was stored with", s.Seq, s.Digest)
		}
		documents.Write(doc)
	}
	if limit := headersLimit(uint64(len(segments))); int64(documents.Len()) > limit {
		return nil, fmt.Errorf("its headers have %d bytes, more than the %d that are read back", documents.Len(), limit)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(indexWindow))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	return enc.EncodeAll(documents.Bytes(), nil), nil
}

// DecodeIndex reads what EncodeIndex wrote. Anything else gives an error that matches ErrDamaged. The Size of each
// segment is what its header says.
func DecodeIndex(data []byte) ([]catalog.Segment, error) {
	x, err := ParseIndex(data)
	if err != nil {
		return nil, err
	}
	return x.Segments(context.Background(), segment.DecodeHeader)
}

// parseIndex reads an index and leaves its headers packed.
func ParseIndex(data []byte) (x index, err error) {
	if err := document.Decode(data, IndexFormat, &x); err != nil {
		return index{}, err
	}
	if x.First == 0 || x.Last < x.First {
		return index{}, fmt.Errorf("%w: it cannot hold the headers of segments %d to %d", catalog.ErrDamaged, x.First, x.Last)
	}
	return x, nil
}

// headerDecoder decodes the document of one header, and returns an error if it is not trusted or not valid.
type headerDecoder func(doc []byte) (h segment.Header, digest string, err error)

// segments unpacks x one header at a time and stops at the first that decode refuses or that is out of order: anyone may
// have written the index, only its headers are signed. Errors match ErrDamaged, or are ctx's.
func (x index) Segments(ctx context.Context, decode headerDecoder) ([]catalog.Segment, error) {
	size, err := x.unpackedSize()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", catalog.ErrDamaged, err)
	}
	err = unpacking.Acquire(ctx, size+unpackOverhead)
	if err != nil {
		return nil, err
	}
	defer unpacking.Release(size + unpackOverhead)
	dec, err := zstd.NewReader(bytes.NewReader(x.Headers), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(indexWindow), zstd.WithDecoderMaxMemory(indexWindow)) // both: a frame of one segment has its size as window
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	segments, err := x.readHeaders(io.LimitReader(dec, size+1), decode) // a byte too many is a header too many
	if err != nil {
		return nil, fmt.Errorf("%w: %w", catalog.ErrDamaged, err)
	}
	return segments, nil
}

// unpackedSize returns how many bytes the headers have by the frame that they are packed in, which must be plausible for as
// many headers as x lists.
func (x index) unpackedSize() (int64, error) {
	var frame zstd.Header
	err := frame.Decode(x.Headers)
	if err != nil {
		return 0, err
	}
	limit := headersLimit(x.Last - x.First + 1)
	if !frame.HasFCS || frame.FrameContentSize > uint64(limit) {
		return 0, fmt.Errorf("its headers %d to %d are packed without their size, or have more than %d bytes", x.First, x.Last, limit)
	}
	return int64(frame.FrameContentSize), nil
}

// headersLimit returns how many bytes n headers may have in an index, unpacked.
func headersLimit(n uint64) int64 {
	return max(document.MaxSize, int64(min(n, maxIndexHeaders/maxMeanHeader))*maxMeanHeader)
}

// readHeaders reads the headers of x from r, which has them unpacked.
func (x index) readHeaders(r io.Reader, decode headerDecoder) (segments []catalog.Segment, err error) {
	documents := bufio.NewScanner(r)
	documents.Buffer(nil, document.MaxSize+1)
	documents.Split(splitDocument)
	for documents.Scan() {
		doc := documents.Bytes()
		h, digest, err := decode(doc)
		if err != nil {
			return nil, err
		}
		s := catalog.Segment{Header: h, Digest: digest, Size: int64(segment.PrefixSize+len(doc)) + h.Stored.Size}
		err = s.CheckPlace(x.Cluster, x.Lineage, x.First+uint64(len(segments)))
		if err != nil {
			return nil, err
		}
		if n := len(segments); n > 0 {
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

// documentEnd is a line that stands at the end of a document and nowhere in it: within, everything is indented.
const documentEnd = "\n}\n"

// splitDocument is a bufio.SplitFunc that returns documents, and what follows the last one.
func splitDocument(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if at := bytes.Index(data, []byte(documentEnd)); at >= 0 {
		end := at + len(documentEnd)
		return end, data[:end], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// shareText keeps what h says as the one before it does but once in memory: that is most of what it says, and a week of a busy
// log has 300,000 headers.
func shareText(h *segment.Header, before catalog.Segment) {
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

// inOrder returns an error unless segments are the consecutive ones of a lineage from first on.
func inOrder(cluster, lineage string, first uint64, segments []catalog.Segment) error {
	for i, s := range segments {
		err := s.CheckPlace(cluster, lineage, first+uint64(i))
		if err != nil {
			return err
		}
	}
	return nil
}

// StoreIndex stores an index of segments of a lineage, whose seqs must be consecutive and which must all be stored. It
// may be repeated. If there is another index from the same first seq it gives storage.ErrExist, and all is well: that
// one serves as far as it reaches.
func (log *Log) StoreIndex(ctx context.Context, lineage string, segments []catalog.Segment) error {
	data, err := EncodeIndex(segments)
	if err == nil {
		err = log.owns(segments[0].Header)
	}
	if err == nil && segments[0].Lineage != lineage {
		err = fmt.Errorf("its segments are of lineage %s", segments[0].Lineage)
	}
	if err != nil {
		return fmt.Errorf("store an index of lineage %s: %w", lineage, err)
	}
	key := catalog.IndexKey(log.store.Cluster, lineage, segments[0].Seq)
	err = log.store.Create(ctx, key, bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, storage.ErrExist) {
		if stored, readErr := log.store.ReadUpTo(ctx, key, MaxIndex); readErr == nil && bytes.Equal(stored, data) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("store index %s: %w", key, err)
	}
	return nil
}

// readIndex reads the index whose first seq is first. One that cannot be used gives ErrDamaged.
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
