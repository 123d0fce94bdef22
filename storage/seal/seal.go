// Package seal compresses and encrypts a stream, and undoes it: zstd, then age for any number of recipients.
//
// What it makes opens with public tools alone: age -d | zstd -d.
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
)

// Errors of this package, to be matched with errors.Is.
var (
	// ErrDamaged: the sealed bytes are not what was sealed. Errors of the source itself never match it.
	ErrDamaged = errors.New("sealed data is damaged")
	// ErrWrongKey: none of the keys at hand opens the data.
	ErrWrongKey = errors.New("none of the given keys opens it")
)

// Seal says how a stream was sealed. It is part of the stored formats and holds nothing secret.
type Seal struct {
	Compression string   `json:"compression"`          // "zstd"
	Encryption  string   `json:"encryption,omitempty"` // "age", or "" for a stream that anybody can read
	Recipients  []string `json:"recipients,omitempty"` // fingerprints, see Fingerprint
}

// Extension is what a sealed file's name ends with: ".zst" or ".zst.age".
func (s Seal) Extension() string {
	if s.Encryption == "" {
		return ".zst"
	}
	return ".zst.age"
}

// Validate refuses a seal that this version cannot open.
func (s Seal) Validate() error {
	if s.Compression != "zstd" {
		return fmt.Errorf("compression %q is unknown to this version of dr", s.Compression)
	}
	if s.Encryption != "" && s.Encryption != "age" {
		return fmt.Errorf("encryption %q is unknown to this version of dr", s.Encryption)
	}
	return nil
}

// windowSize bounds both sides' memory: an encoder holds a few of them, and a reader must hold one. 4 MiB costs a
// database of Kubernetes objects under one per cent of size against the encoder's default of 8 MiB.
const windowSize = 4 << 20

// New seals src for the recipients; without any the stream is only compressed. The returned reader ends with src's own
// error if src fails, so that whoever stores it commits nothing. It must be closed, also after an error: closing it
// ends the compressor, which then reads no more of src.
func New(src io.Reader, to Recipients) (io.ReadCloser, error) {
	pr, pw := io.Pipe()
	enc, err := zstd.NewWriter(pw,
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowSize), zstd.WithEncoderConcurrency(2),
		zstd.WithZeroFrames(true)) // or an empty stream could not be told from one that was cut to nothing
	if err != nil {
		return nil, fmt.Errorf("start compressing: %w", err)
	}
	s := &sealer{pipe: pr, stream: pr, done: make(chan struct{})}
	if len(to.recipients) > 0 {
		if s.stream, err = age.EncryptReader(pr, to.unhidden()...); err != nil {
			return nil, fmt.Errorf("start encrypting: %w", err)
		}
	}
	go s.compress(src, enc, pw)
	return s, nil
}

// whole compresses what is in memory. One is enough: it is costly to make, and keeps its tables.
var whole = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowSize), zstd.WithEncoderConcurrency(1),
		zstd.WithZeroFrames(true))
})

// Bytes seals plain for the recipients, as New does a stream.
func Bytes(plain []byte, to Recipients) ([]byte, error) {
	enc, err := whole()
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
	if _, err = w.Write(compressed); err == nil {
		err = w.Close()
	}
	return sealed.Bytes(), err
}

type sealer struct {
	pipe   *io.PipeReader
	stream io.Reader // pipe, encrypted or not
	done   chan struct{}
}

// compress owns enc and pw. A failed source must never look like a short one, so its error takes the place of the end.
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

// Close waits until nothing reads from the source any more: whoever owns it may close it then.
func (s *sealer) Close() error {
	s.pipe.CloseWithError(errors.New("sealed stream was closed"))
	<-s.done
	return nil
}

// Opened is an unsealed stream.
type Opened struct {
	io.ReadCloser
	// Key is the fingerprint of the key that opened it, "" if it was not encrypted.
	Key string
}

// Open unseals src. Damage gives ErrDamaged, from Open or from any Read; a key that does not fit gives ErrWrongKey and
// names the recipients that would; an error of src is returned as it is. The stream ends with io.EOF only if all of src
// was read and was whole.
func Open(src io.Reader, s Seal, keys Keys) (Opened, error) {
	if err := s.Validate(); err != nil {
		return Opened{}, err
	}
	o := &opener{src: &watched{Reader: src}}
	o.frames = o.src
	var used string
	if s.Encryption == "age" {
		if len(keys.keys) == 0 {
			return Opened{}, fmt.Errorf("%w: it is encrypted for %s, and no key was given: give the file that holds it with --identity (or --passphrase-file)",
				ErrWrongKey, strings.Join(s.Recipients, ", "))
		}
		decrypted, err := age.Decrypt(o.src, keys.identities(&used)...)
		if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
			if fitting, ok := keys.among(s.Recipients); ok {
				return Opened{}, o.explain(fmt.Errorf("its header does not know %s, for which it was encrypted", fitting))
			}
			return Opened{}, fmt.Errorf("%w: it is encrypted for %s", ErrWrongKey, strings.Join(s.Recipients, ", "))
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

type opener struct {
	src    *watched // as it is stored
	frames *watched // decrypted, not yet decompressed; src itself if that is not encrypted
	dec    *zstd.Decoder
}

func (o *opener) Read(p []byte) (int, error) {
	n, err := o.dec.Read(p)
	switch err {
	case nil, zstd.ErrDecoderClosed:
		return n, err
	case io.EOF:
		return n, o.end()
	}
	return n, o.explain(err)
}

// end judges what the decompressor takes for the end: to it, a source that breaks with io.ErrUnexpectedEOF between two
// frames is at its end, and so is one without any frame.
func (o *opener) end() error {
	if o.frames.err != io.EOF {
		return o.explain(o.frames.err)
	}
	if o.frames.size == 0 {
		return o.explain(errors.New("it is empty"))
	}
	return io.EOF
}

// explain tells a source that failed from one that delivered nonsense. It is called when nothing reads from the source
// any more: the decompressor's goroutines have ended before it gives an error.
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

// watched remembers how a stream ended, which decoders wrap, hide or replace, and stays ended.
type watched struct {
	io.Reader
	size int64
	err  error
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
