// Package seal compresses and encrypts a stream with zstd, then age for any number of recipients. New seals a stream,
// and Open reads it.
//
// Public tools open a sealed stream: age -d | zstd -d.
package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrDamaged means that the bytes differ from the sealed ones. Errors of the source never match it.
	ErrDamaged = fault.New(fault.Damaged, "sealed data is damaged")
	// ErrWrongKey means that none of the given keys opens the stream.
	ErrWrongKey = fault.New(fault.NotFound, "none of the given keys opens it")
)

// Seal describes how a stream was sealed. It is part of the stored formats and contains no secret.
type Seal struct {
	Compression string   `json:"compression"`          // "zstd"
	Encryption  string   `json:"encryption,omitempty"` // "age", or "" for no encryption
	Recipients  []string `json:"recipients,omitempty"` // fingerprints: the first 16 characters of each public key
}

// Extension returns the ending of a sealed file's name: ".zst" or ".zst.age".
func (s Seal) Extension() string {
	if s.Encryption == "" {
		return ".zst"
	}
	return ".zst.age"
}

// Validate returns an error if this version cannot open s.
func (s Seal) Validate() error {
	if s.Compression != "zstd" {
		return fmt.Errorf("compression %q is unknown to this version of dr", s.Compression)
	}
	if s.Encryption != "" && s.Encryption != "age" {
		return fmt.Errorf("encryption %q is unknown to this version of dr", s.Encryption)
	}
	return nil
}

// windowSize bounds the memory of both sides: an encoder needs a few windows, and a reader one. Compared with the
// encoder's default of 8 MiB, 4 MiB adds less than one per cent to the size of a database of Kubernetes objects.
const windowSize = 4 << 20

// New returns a reader that seals src for the recipients; without recipients it only compresses. If src fails, the
// reader ends with the same error, so that its consumer commits nothing. The caller must close the reader, even after
// an error: closing it stops the compressor, which then no longer reads src.
func New(src io.Reader, to Recipients) (io.ReadCloser, error) {
	pr, pw := io.Pipe()
	enc, err := zstd.NewWriter(pw,
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowSize), zstd.WithEncoderConcurrency(2),
		zstd.WithZeroFrames(true)) // without a frame, an empty stream would look like one that was cut to nothing
	if err != nil {
		return nil, fmt.Errorf("start compressing: %w", err)
	}
	s := &sealer{pipe: pr, stream: pr, done: make(chan struct{})}
	if len(to.recipients) > 0 {
		s.stream, err = age.EncryptReader(pr, to.unhidden()...)
		if err != nil {
			return nil, fmt.Errorf("start encrypting: %w", err)
		}
	}
	go s.compress(src, enc, pw)
	return s, nil
}

// bytesEncoder is the encoder of Bytes. All calls share it, because it is expensive to create and keeps its tables.
var bytesEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowSize), zstd.WithEncoderConcurrency(1),
		zstd.WithZeroFrames(true))
})

// Bytes seals plain for the recipients, as New seals a stream.
func Bytes(plain []byte, to Recipients) ([]byte, error) {
	enc, err := bytesEncoder()
	if err != nil {
		return nil, fmt.Errorf("start compressing: %w", err)
	}
	compressed := enc.EncodeAll(plain, make([]byte, 0, len(plain)/2))
	if len(to.recipients) == 0 {
		return compressed, nil
	}
	var sealed bytes.Buffer
	sealed.Grow(len(compressed) + len(compressed)/1024 + 4096)
	w, err := age.Encrypt(&sealed, to.unhidden()...)
	if err != nil {
		return nil, fmt.Errorf("start encrypting: %w", err)
	}
	_, err = w.Write(compressed)
	if err == nil {
		err = w.Close()
	}
	return sealed.Bytes(), err
}

// sealer is the reader that New returns.
type sealer struct {
	pipe   *io.PipeReader
	stream io.Reader     // pipe, encrypted or not
	done   chan struct{} // closed when compress has returned
}

// compress owns enc and pw. It ends the pipe with the source's error: a failed source must not look like a short one.
func (s *sealer) compress(src io.Reader, enc *zstd.Encoder, pw *io.PipeWriter) {
	defer close(s.done)
	_, err := enc.ReadFrom(src)
	if err != nil {
		pw.CloseWithError(err)
		enc.Close() // after the pipe is closed, so that it frees its buffers without blocking
		return
	}
	pw.CloseWithError(enc.Close())
}

func (s *sealer) Read(p []byte) (int, error) { return s.stream.Read(p) }

// Close waits until no goroutine reads the source any more, so that the caller may close the source next.
func (s *sealer) Close() error {
	s.pipe.CloseWithError(errors.New("sealed stream was closed"))
	<-s.done
	return nil
}

// Opened is an unsealed stream.
type Opened struct {
	io.ReadCloser
	// Key is the fingerprint of the key that opened it, or "" if it was not encrypted.
	Key string
}

// Open returns the unsealed content of src. Damage causes ErrDamaged, from Open or from any Read. If no key fits, Open
// returns ErrWrongKey with the recipients that would. It returns an error of src unchanged. The stream ends with io.EOF
// only if all of src was read and intact.
func Open(src io.Reader, s Seal, keys Keys) (Opened, error) {
	err := s.Validate()
	if err != nil {
		return Opened{}, err
	}
	o := &opener{src: &watched{Reader: src}}
	o.frames = o.src
	var used string
	if s.Encryption == "age" {
		if len(keys.keys) == 0 {
			return Opened{}, fmt.Errorf("%w: it is encrypted for %s, and no key was given: pass its file with --identity (or --passphrase-file)",
				ErrWrongKey, strings.Join(s.Recipients, ", "))
		}
		decrypted, err := age.Decrypt(o.src, keys.identities(&used)...)
		_, ok := errors.AsType[*age.NoIdentityMatchError](err)
		if ok {
			fitting, ok := keys.keyFor(s.Recipients)
			if ok {
				return Opened{}, o.explain(fmt.Errorf("its header lacks %s, for which it was encrypted", fitting))
			}
			return Opened{}, fmt.Errorf("%w: it is encrypted for %s: add a key of that recipient", ErrWrongKey, strings.Join(s.Recipients, ", "))
		}
		if err != nil {
			return Opened{}, o.explain(err)
		}
		o.frames = &watched{Reader: decrypted}
	}
	dec, err := zstd.NewReader(o.frames,
		zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxWindow(8*windowSize), zstd.WithDecoderLowmem(true))
	if err != nil {
		return Opened{}, o.explain(err)
	}
	o.dec = dec
	return Opened{ReadCloser: o, Key: used}, nil
}

// opener is the reader that Open returns.
type opener struct {
	src    *watched // the stored stream
	frames *watched // after decryption, before decompression; src itself if it is not encrypted
	dec    *zstd.Decoder
}

func (o *opener) Read(p []byte) (int, error) {
	n, err := o.dec.Read(p)
	switch err {
	case nil, zstd.ErrDecoderClosed:
		return n, err
	case io.EOF:
		return n, o.checkEnd()
	}
	return n, o.explain(err)
}

// checkEnd checks the end that the decompressor has reported. The decompressor treats two failures as an end: a source
// that fails with io.ErrUnexpectedEOF between two frames, and a source without any frame.
func (o *opener) checkEnd() error {
	if o.frames.err != io.EOF {
		return o.explain(o.frames.err)
	}
	if o.frames.size == 0 {
		return o.explain(errors.New("it is empty"))
	}
	return io.EOF
}

// explain distinguishes a failed source from damaged data. When it is called, no goroutine reads the source any more:
// the decompressor's goroutines end before it returns an error.
func (o *opener) explain(err error) error {
	if o.src.err != nil && o.src.err != io.EOF {
		return o.src.err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

func (o *opener) Close() error {
	o.dec.Close()
	return nil
}

// watched records the error with which a stream ended, because the decoders that read it wrap, hide or replace the error.
// All later reads return the same error.
type watched struct {
	io.Reader
	size int64 // bytes read so far
	err  error // nil before the end
}

func (w *watched) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.Reader.Read(p)
	w.size += int64(n)
	w.err = err
	return n, err
}
