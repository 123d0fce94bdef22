package segment

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// ReadHeader reads the header of the segment that begins at r, and no byte after it. It needs no key. digest is the
// SHA-256 of the header's document as stored, in 64 hex digits. If r does not begin with an intact header of a known
// format, the error matches storage.ErrDamaged. An error of r is returned unchanged.
func ReadHeader(r io.Reader) (h Header, digest string, err error) {
	doc, err := ReadDocument(r)
	if err != nil {
		return Header{}, "", err
	}
	return DecodeHeader(doc)
}

// ReadDocument returns the header's document of the segment that begins at r, for DecodeHeader. Errors are those of
// ReadHeader.
func ReadDocument(r io.Reader) ([]byte, error) {
	prefix, err := readFull(r, PrefixSize)
	if err != nil {
		return nil, err
	}
	if string(prefix[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: it does not begin with a segment's header", storage.ErrDamaged)
	}
	format := int(prefix[len(magic)])
	if format != Format {
		return nil, damaged(unknownFormat(format))
	}
	size := binary.BigEndian.Uint32(prefix[len(magic)+1:])
	if size > document.MaxSize {
		return nil, fmt.Errorf("%w: its header has %d bytes; the maximum is %d", storage.ErrDamaged, size, document.MaxSize)
	}
	return readFull(r, int(size))
}

// readFull returns the next size bytes of r. It allocates only as many bytes as arrive, and distinguishes a source that
// ends early from one that fails.
func readFull(r io.Reader, size int) ([]byte, error) {
	p, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && len(p) < size {
		err = fmt.Errorf("%w: it is cut off within its header", storage.ErrDamaged)
	}
	return p, err
}

// DecodeHeader decodes a header's document, from a segment or from an index that repeats it. The digest and the errors
// are those of ReadHeader.
func DecodeHeader(doc []byte) (h Header, digest string, err error) {
	err = document.Decode(doc, Format, &h)
	if err != nil {
		return Header{}, "", err
	}
	err = h.Validate()
	if err != nil {
		return Header{}, "", damaged(err)
	}
	h.Signature = document.Signature(doc)
	return h, digestOf(doc), nil
}

// Reader reads one segment.
type Reader struct {
	Header Header
	Digest string // of the header's document, as returned by ReadHeader
	Key    string // fingerprint of the key that opened the body, "" if it is not encrypted

	opened io.Closer
	plain  *verified
	body   *bufio.Reader // reads plain
	block  []byte        // the unread rest of the last block
	large  bytes.Buffer  // a block that is longer than body's buffer
	begun  bool          // Records has begun, and cannot begin again
}

// readAhead is larger than a usual block, so that most blocks need no copy.
const readAhead = 2 * blockSize

// Open reads the header of the segment that begins at r and returns a Reader of its body. Errors are those of
// ReadHeader, and seal.ErrWrongKey if none of the keys opens the body.
func Open(r io.Reader, keys seal.Keys) (*Reader, error) {
	h, digest, err := ReadHeader(r)
	if err != nil {
		return nil, err
	}
	stored := newVerified(r, "sealed body", h.Stored)
	opened, err := seal.Open(stored, h.Seal, keys)
	if err != nil {
		return nil, sealDamaged(err)
	}
	plain := newVerified(opened, "plain body", h.Plain)
	return &Reader{
		Header: h, Digest: digest, Key: opened.Key,
		opened: opened, plain: plain, body: bufio.NewReaderSize(plain, readAhead),
	}, nil
}

// Records yields the content of the segment: the server's version, all marks by position, and then the requests or
// changes. It can be ranged over once. A request is yielded only after the checksum over it was verified. Only after
// the sequence has ended without an error is it certain that no request is missing or added. Any difference from the
// header ends the sequence with an error that matches storage.ErrDamaged; an error of the source is yielded unchanged.
func (r *Reader) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if r.begun {
			yield(Record{}, fmt.Errorf("segment %d: its records can be read only once: open it again", r.Header.Seq))
			return
		}
		r.begun = true
		for _, mark := range r.Header.marks() {
			if !yield(mark, nil) {
				return
			}
		}
		request := r.Header.beforeFirst()
		for count := 0; ; count++ {
			err := r.next(&request)
			if err == io.EOF {
				err = r.checkEnd(count, request)
				if err == nil {
					return
				}
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !yield(request, nil) {
				return
			}
		}
	}
}

// marks returns the server's version, then the marks by position.
func (h Header) marks() []Record {
	var marks []Record
	for _, m := range h.Marks {
		if m.CompactRevision > 0 {
			marks = append(marks, Record{Kind: CompactionMark, Position: m.Position, CompactRevision: m.CompactRevision})
		}
		if m.Revision > 0 {
			marks = append(marks, Record{Kind: RevisionMark, Position: m.Position, Revision: m.Revision})
		}
		marks = append(marks, Record{Kind: TimeMark, Position: m.Position, Time: m.Interval})
	}
	for _, hash := range h.Hashes {
		marks = append(marks, Record{
			Kind: HashMark, Position: hash.Position,
			Revision: hash.Revision, CompactRevision: hash.CompactRevision, Hash: hash.Hash,
		})
	}
	slices.SortStableFunc(marks, h.markOrder)
	version := Record{Kind: ServerVersion, Position: h.First - 1, Data: []byte(h.ServerVersion)}
	return slices.Insert(marks, 0, version)
}

// markOrder orders marks by position. In a log from Watch, where compactions are marks, it orders those at one position by
// CompactRevision: a hash must come before the mark of a later compaction, after which it can no longer be compared.
func (h Header) markOrder(a, b Record) int {
	order := cmp.Compare(a.Position, b.Position)
	if order != 0 || h.Source == WAL {
		return order
	}
	return cmp.Compare(a.CompactRevision, b.CompactRevision)
}

// next replaces request with the following one. After the last request it returns io.EOF, and the next value in the body is the
// number of requests.
func (r *Reader) next(request *Record) error {
	if len(r.block) == 0 {
		err := r.nextBlock()
		if err != nil {
			return err
		}
	}
	distance, n := binary.Uvarint(r.block)
	rise, m := binary.Uvarint(r.block[max(n, 0):])
	at := max(n, 0) + max(m, 0)
	size, k := binary.Uvarint(r.block[at:])
	at += max(k, 0)
	if n <= 0 || m <= 0 || k <= 0 || size == 0 || size > uint64(len(r.block)-at) {
		return fmt.Errorf("%w: the record after position %d is malformed", storage.ErrDamaged, request.Position)
	}
	position, term := request.Position+distance, request.Term+rise // an overflow makes the position smaller, which is refused
	err := r.Header.validateNext(request, position, term)
	if err != nil {
		return damaged(err)
	}
	end := at + int(size)
	request.Position, request.Term, request.Data = position, term, r.block[at:end:end]
	r.block = r.block[end:]
	return nil
}

// nextBlock reads and verifies a block. After the last block it returns io.EOF, and the next value in the body is the number of
// requests.
func (r *Reader) nextBlock() error {
	size, err := binary.ReadUvarint(r.body)
	if err != nil {
		return r.bodyError(err)
	}
	if size == 0 {
		return io.EOF
	}
	if size > maxBlock {
		return fmt.Errorf("%w: a block of its body has %d bytes", storage.ErrDamaged, size)
	}
	p, err := r.readBytes(int(size) + crc32.Size)
	if err != nil {
		return r.bodyError(err)
	}
	r.block = p[:size]
	if crc32.Checksum(r.block, castagnoli) != binary.BigEndian.Uint32(p[size:]) {
		return fmt.Errorf("%w: a block of its body does not match its checksum", storage.ErrDamaged)
	}
	return nil
}

// readBytes returns the next bytes of the body, valid until the next read. size is not verified yet, so memory grows
// only with the bytes that arrive.
func (r *Reader) readBytes(size int) ([]byte, error) {
	if size <= r.body.Size() {
		p, err := r.body.Peek(size)
		if err != nil {
			return nil, err
		}
		_, err = r.body.Discard(size)
		return p, err
	}
	r.large.Reset()
	_, err := io.CopyN(&r.large, r.body, int64(size))
	return r.large.Bytes(), err
}

// checkEnd compares count and the last request with the body's end and the header, and checks that nothing follows.
func (r *Reader) checkEnd(count int, last Record) error {
	declared, err := binary.ReadUvarint(r.body)
	if err != nil {
		return r.bodyError(err)
	}
	if declared != uint64(count) || count != r.Header.Requests {
		return fmt.Errorf("%w: it has %d requests, but its end declares %d and its header %d",
			storage.ErrDamaged, count, declared, r.Header.Requests)
	}
	err = r.Header.validateLast(last)
	if err != nil {
		return damaged(err)
	}
	_, err = r.body.ReadByte()
	if err == nil {
		return fmt.Errorf("%w: its body continues after its end", storage.ErrDamaged)
	}
	if r.plain.err != io.EOF { // the seal reports io.EOF only if the stored stream has ended too, and so was intact
		return r.plain.err
	}
	return nil
}

// bodyError returns the error for a failed read of the body: that of its stream, if it has one other than io.EOF, otherwise
// damage.
func (r *Reader) bodyError(err error) error {
	if r.plain.err != nil && r.plain.err != io.EOF {
		return r.plain.err
	}
	return fmt.Errorf("%w: its body is cut off or malformed: %v", storage.ErrDamaged, err)
}

// Close frees the resources of the Reader. It does not close the source, which must stay open until then.
func (r *Reader) Close() error { return r.opened.Close() }

func damaged(err error) error { return fmt.Errorf("%w: %w", storage.ErrDamaged, err) }

// Decode decodes the bytes of a segment to the result of Encode. If they are not exactly a header and its sealed body,
// the error matches storage.ErrDamaged.
func Decode(p []byte) (Encoded, error) {
	r := bytes.NewReader(p)
	h, digest, err := ReadHeader(r)
	if err != nil {
		return Encoded{}, err
	}
	body := p[len(p)-r.Len():]
	if blobOf(body) != h.Stored {
		return Encoded{}, fmt.Errorf("%w: its sealed body differs from its header's digest", storage.ErrDamaged)
	}
	return Encoded{Header: h, Digest: digest, Bytes: p}, nil
}
