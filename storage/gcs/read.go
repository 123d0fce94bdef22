package gcs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"time"

	cloud "cloud.google.com/go/storage"

	"github.com/etcd-dr/etcd-dr/storage"
)

// castagnoli is the table for the polynomial of the store's checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Stat implements storage.Bucket.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	attrs, err := b.attrs(ctx, key, "")
	if err != nil {
		return storage.Object{}, fmt.Errorf("stat %q in gs://%s: %w", key, b.name, err)
	}
	return object(attrs), nil
}

// attrs returns the attributes of a version of key; version "" means the live one.
func (b *Bucket) attrs(ctx context.Context, key, version string) (*cloud.ObjectAttrs, error) {
	err := storage.ValidKey(key)
	if err != nil {
		return nil, err
	}
	generation, err := parseVersion(version)
	if err != nil {
		return nil, err
	}
	attrs, err := b.object(key, generation).Attrs(ctx)
	if errors.Is(err, cloud.ErrObjectNotExist) {
		return nil, b.notFound(ctx)
	}
	if err != nil {
		return nil, explain(ctx, err, toRead)
	}
	b.found.Store(true)
	return attrs, nil
}

// parseVersion returns the generation, or 0 for "". It returns ErrNotExist for a text that is not a generation.
func parseVersion(version string) (int64, error) {
	if version == "" {
		return 0, nil
	}
	generation, err := strconv.ParseInt(version, 10, 64)
	if err != nil || generation <= 0 {
		return 0, fmt.Errorf("%w: version %q", storage.ErrNotExist, version)
	}
	return generation, nil
}

// notFound returns ErrNotExist for a missing key, or ErrNoBucket if the bucket is missing. The store's answers differ
// only in their wording, so notFound queries the bucket once.
func (b *Bucket) notFound(ctx context.Context) error {
	if !b.found.Load() {
		err := b.exists(ctx)
		if err != nil {
			return err
		}
	}
	return storage.ErrNotExist
}

// exists checks for the bucket by listing one object: an account with rights to a bucket's objects may lack those to
// the bucket itself.
func (b *Bucket) exists(ctx context.Context) error {
	for _, err := range b.query(ctx, cloud.Query{}, 1) {
		if err != nil {
			return err
		}
		break
	}
	b.found.Store(true)
	return nil
}

// object returns the Object that attrs describes. An object may have a lock of its own and one from the bucket; the one
// that ends later applies.
func object(attrs *cloud.ObjectAttrs) storage.Object {
	obj := storage.Object{
		Key:         attrs.Name,
		Size:        attrs.Size,
		Version:     strconv.FormatInt(attrs.Generation, 10),
		ModTime:     attrs.Created.UTC(),
		RetainUntil: attrs.RetentionExpirationTime.UTC(),
	}
	r := attrs.Retention
	if r != nil && r.RetainUntil.After(obj.RetainUntil) {
		obj.RetainUntil = r.RetainUntil.UTC()
	}
	return obj
}

// Open implements storage.Bucket.
func (b *Bucket) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, obj, err := b.open(ctx, key, o)
	if err != nil {
		return nil, storage.Object{}, fmt.Errorf("open %q in gs://%s: %w", key, b.name, err)
	}
	return r, obj, nil
}

// maxTries bounds the tries to open a live version that is replaced between the request for its attributes and the one
// for its bytes. Only a key that is written without a pause comes near this bound.
const maxTries = 100

func (b *Bucket) open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	for try := 1; ; try++ {
		attrs, err := b.attrs(ctx, key, o.Version)
		if err != nil {
			return nil, storage.Object{}, err
		}
		r, err := b.read(ctx, attrs, o)
		if errors.Is(err, storage.ErrNotExist) && o.Version == "" && try < maxTries {
			continue
		}
		return r, object(attrs), err
	}
}

// read returns a range of exactly the generation of attrs.
func (b *Bucket) read(ctx context.Context, attrs *cloud.ObjectAttrs, o storage.OpenOptions) (io.ReadCloser, error) {
	if o.Offset < 0 || o.Length < 0 || o.Offset > attrs.Size {
		return nil, fmt.Errorf("%w: offset %d, length %d of %d bytes", storage.ErrRange, o.Offset, o.Length, attrs.Size)
	}
	left := attrs.Size - o.Offset
	if o.Length > 0 {
		left = min(left, o.Length)
	}
	if left == 0 { // HTTP cannot express an empty range
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	whole := left == attrs.Size
	call := b.raw.Objects.Get(b.name, attrs.Name).Generation(attrs.Generation).Context(ctx)
	want := http.StatusOK
	if !whole {
		call.Header().Set("Range", fmt.Sprintf("bytes=%d-%d", o.Offset, o.Offset+left-1))
		want = http.StatusPartialContent
	}
	answer, err := call.Download()
	switch {
	case status(err) == http.StatusNotFound:
		return nil, fmt.Errorf("%w: version %d", storage.ErrNotExist, attrs.Generation)
	case status(err) == http.StatusBadRequest: // the request is well-formed, so the object is the cause
		return nil, fmt.Errorf("%w: it may be encrypted with a key that only its writer has, or with one that is disabled: %w",
			storage.ErrUnreadable, explain(ctx, err, toRead))
	case err != nil:
		return nil, explain(ctx, err, toRead)
	case answer.StatusCode != want:
		answer.Body.Close()
		return nil, fmt.Errorf("the store answers a request for bytes %d to %d with status %d",
			o.Offset, o.Offset+left-1, answer.StatusCode)
	}
	return &stream{ctx: ctx, body: answer.Body, left: left, whole: whole, want: attrs.CRC32C}, nil
}

// stream is the body of an answer. It checks the length and, for a whole object, the store's checksum.
type stream struct {
	ctx   context.Context
	body  io.ReadCloser
	left  int64
	whole bool
	want  uint32
	crc   uint32
	err   error // the error that ended it
}

func (s *stream) Read(p []byte) (int, error) {
	if s.err == nil {
		s.err = s.ctx.Err() // the body may still have buffered bytes
	}
	if s.err != nil || len(p) == 0 {
		return 0, s.err
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if s.whole {
		s.crc = crc32.Update(s.crc, castagnoli, p[:n])
	}
	switch {
	case s.left == 0:
		s.err = s.end()
	case err == io.EOF:
		s.err = fmt.Errorf("the store's answer ends %d bytes early: %w", s.left, io.ErrUnexpectedEOF)
	case err != nil:
		s.err = explain(s.ctx, err, toRead)
	}
	if n > 0 { // the next Read returns the end or the error
		return n, nil
	}
	return 0, s.err
}

func (s *stream) end() error {
	if s.whole && s.crc != s.want {
		return fmt.Errorf("the bytes read have the CRC32C %08x, the stored object %08x", s.crc, s.want)
	}
	// A connection is reused only after its answer was read to the end.
	var more [1]byte
	n, _ := s.body.Read(more[:])
	if n > 0 {
		return errors.New("the store's answer is longer than announced")
	}
	return io.EOF
}

func (s *stream) Close() error { return s.body.Close() }

// lock returns ErrLocked if the object is locked at now.
func lock(attrs *cloud.ObjectAttrs, now time.Time) error {
	until := object(attrs).RetainUntil
	switch {
	case now.Before(until):
		return fmt.Errorf("%w until %s", storage.ErrLocked, until.Format(time.RFC3339))
	case attrs.TemporaryHold || attrs.EventBasedHold:
		return fmt.Errorf("%w by a hold, which has no end", storage.ErrLocked)
	}
	return nil
}
