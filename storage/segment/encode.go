package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// A segment begins with the magic, a byte with the format's number, and the length of the header's document.
const (
	magic = "DRSEG\x00\x00"
	// PrefixSize is the number of bytes before the document.
	PrefixSize = len(magic) + 1 + 4
)

// maxData is the largest size of a request in bytes. By default etcd accepts 1.5 MiB.
const maxData = 1 << 30

// blockSize is the size at which a block is closed. A checksum for each record would add a sixth to the size of a
// sealed record, since checksums do not compress and interrupt the compressor's matches.
const blockSize = 32 << 10

// maxOverhead is the largest number of bytes that a record adds to its data: three varints.
const maxOverhead = 3 * binary.MaxVarintLen64

// minRecord is the smallest number of bytes of a record: three varints and one byte of data.
const minRecord = 4

// maxBlock is the largest size of a block, which is closed after the record that makes it long enough.
const maxBlock = blockSize + maxOverhead + maxData

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encoded is a segment that is ready to be stored.
type Encoded struct {
	Header Header // as DecodeHeader returns it
	Digest string // of the header's document as stored, 64 hex digits; the next segment has it as Previous
	Bytes  []byte // the whole segment
}

// Encode returns a segment with the header h and the requests, which must fit h. It sets Format, Requests, Plain,
// Stored and Seal of h. It needs memory for the body twice, plain and sealed.
func Encode(h Header, requests []Record, to seal.Recipients) (Encoded, error) {
	e, err := encode(h, requests, to)
	if err != nil {
		return Encoded{}, fmt.Errorf("encode segment %d of lineage %s: %w", h.Seq, h.Lineage, err)
	}
	return e, nil
}

func encode(h Header, requests []Record, to seal.Recipients) (Encoded, error) {
	err := h.validateRequests(requests)
	if err != nil {
		return Encoded{}, err
	}
	plain := encodeBody(h.beforeFirst(), requests)
	sealed, err := seal.Bytes(plain, to)
	if err != nil {
		return Encoded{}, err
	}
	h.Format, h.Requests, h.Seal = Format, len(requests), to.Seal()
	h.Plain, h.Stored = blobOf(plain), blobOf(sealed)
	if h.Marks == nil {
		h.Marks = []Mark{} // a list, not null
	}
	err = h.Validate()
	if err != nil {
		return Encoded{}, err
	}
	doc, err := document.Encode(h)
	if err != nil {
		return Encoded{}, err
	}
	return assemble(doc, sealed)
}

// assemble joins the parts of a segment.
func assemble(doc, sealed []byte) (e Encoded, err error) {
	e.Header, e.Digest, err = DecodeHeader(doc)
	if err != nil { // every stored segment must be readable
		return Encoded{}, err
	}
	e.Bytes = make([]byte, 0, PrefixSize+len(doc)+len(sealed))
	e.Bytes = append(append(e.Bytes, magic...), Format)
	e.Bytes = binary.BigEndian.AppendUint32(e.Bytes, uint32(len(doc)))
	e.Bytes = append(append(e.Bytes, doc...), sealed...)
	return e, nil
}

// Signed returns e with a signature in its header, which also covers the body through its digest. Without a key it
// returns e.
func (e Encoded) Signed(key sign.Key) (Encoded, error) {
	if key.None() {
		return e, nil
	}
	sealed := e.Bytes[len(e.Bytes)-int(e.Header.Stored.Size):]
	doc, err := document.Sign(e.Bytes[PrefixSize:len(e.Bytes)-len(sealed)], key)
	if err == nil {
		e, err = assemble(doc, sealed)
	}
	if err != nil {
		return Encoded{}, fmt.Errorf("sign segment %d of lineage %s: %w", e.Header.Seq, e.Header.Lineage, err)
	}
	return e, nil
}

// encodeBody encodes each request by its distance from the one before, in blocks.
func encodeBody(before Record, requests []Record) []byte {
	size := blockSize
	for _, r := range requests {
		size += maxOverhead + len(r.Data)
	}
	body, block := make([]byte, 0, size), make([]byte, 0, blockSize)
	for _, r := range requests {
		block = binary.AppendUvarint(block, r.Position-before.Position)
		block = binary.AppendUvarint(block, r.Term-before.Term)
		block = binary.AppendUvarint(block, uint64(len(r.Data)))
		block = append(block, r.Data...)
		if len(block) >= blockSize {
			body, block = appendBlock(body, block), block[:0]
		}
		before = r
	}
	if len(block) > 0 {
		body = appendBlock(body, block)
	}
	body = append(body, 0) // no block is empty, so 0 marks the end
	return binary.AppendUvarint(body, uint64(len(requests)))
}

// appendBlock appends block with its length and its checksum.
func appendBlock(body, block []byte) []byte {
	body = binary.AppendUvarint(body, uint64(len(block)))
	body = append(body, block...)
	return binary.BigEndian.AppendUint32(body, crc32.Checksum(block, castagnoli))
}

func blobOf(p []byte) Blob {
	return Blob{Size: int64(len(p)), SHA256: digestOf(p)}
}

func digestOf(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}
