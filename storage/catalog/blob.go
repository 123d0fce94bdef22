package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
)

// BlobReader hashes and counts the bytes that are read through it.
type BlobReader struct {
	from io.Reader
	hash hash.Hash
	size int64
}

// NewBlobReader returns a BlobReader that reads from r.
func NewBlobReader(r io.Reader) *BlobReader { return &BlobReader{from: r, hash: sha256.New()} }

// Read implements io.Reader.
func (b *BlobReader) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	_, _ = b.hash.Write(p[:n]) // never fails
	b.size += int64(n)
	return n, err
}

// Blob describes the bytes that were read so far, as the object called name.
func (b *BlobReader) Blob(name string) Blob {
	return Blob{Name: name, Size: b.size, SHA256: hex.EncodeToString(b.hash.Sum(nil))}
}
