package records

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

// PackWindow is the number of bytes of history that an Unpacker keeps.
const PackWindow = 1 << 20

// Pack returns documents that are stored together in their packed form, with their size.
func Pack(documents []byte) ([]byte, error) {
	enc, err := NewPacker(nil)
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	return enc.EncodeAll(documents, nil), nil
}

// NewPacker returns an encoder of documents that are stored together; a nil w serves only EncodeAll. It starts no goroutine.
func NewPacker(w io.Writer) (*zstd.Encoder, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(PackWindow))
}

// NewUnpacker returns a decoder of what a Packer has written. It needs little more than PackWindow bytes, whatever it reads: a frame with a
// larger window is an error. It starts no goroutine. The caller closes it.
func NewUnpacker(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(PackWindow), zstd.WithDecoderMaxMemory(PackWindow)) // both: the window of a single-segment frame is its content
}
