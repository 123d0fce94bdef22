package gcs

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	cloud "cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"

	"github.com/etcd-dr/etcd-dr/storage"
)

const (
	// idField is the metadata key for the random id of the Put that stored an object.
	idField = "dr-put"
	// resolveTime bounds the check whether a failed Put has stored its object.
	resolveTime = 30 * time.Second
	// chunkTime bounds one try to send a chunk.
	chunkTime = 2 * time.Minute
)

// Put implements storage.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := b.put(ctx, key, r, o)
	if err != nil {
		return storage.Object{}, fmt.Errorf("put %q in gs://%s: %w", key, b.name, err)
	}
	return obj, nil
}

func (b *Bucket) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	err := b.checkAbsent(ctx, key, o) // do not read the source in vain
	if err != nil {
		return storage.Object{}, err
	}
	u := &upload{b: b, key: key, o: o, id: rand.Text(), progress: time.Now()}
	u.replaces, err = parseVersion(o.IfVersion)
	if err != nil {
		return storage.Object{}, storage.ErrChanged
	}
	attrs, err := u.send(ctx, r)
	if err == nil {
		return u.checkStored(ctx, attrs)
	}
	if !u.ended { // no request was sent that could create an object
		return storage.Object{}, err
	}
	return u.resolveLostPut(ctx, err)
}

func (b *Bucket) checkAbsent(ctx context.Context, key string, o storage.PutOptions) error {
	err := storage.ValidKey(key)
	if err != nil {
		return err
	}
	if !o.ChecksFirst(b.config.ChunkSize) {
		return ctx.Err()
	}
	_, err = b.attrs(ctx, key, "")
	switch {
	case errors.Is(err, storage.ErrNotExist):
		return nil
	case err == nil:
		return storage.ErrExist
	}
	return err
}

// upload is one Put.
type upload struct {
	b   *Bucket
	key string
	o   storage.PutOptions
	id  string
	// replaces is the generation that the key must have; 0: any.
	replaces int64

	size     int64
	crc      uint32
	ended    bool      // the source has ended with io.EOF, and the client has seen the end
	progress time.Time // when the store last accepted data
}

// send sends the content of r. Content that fits into one chunk is sent in one request, and all other content as a
// stream.
func (u *upload) send(ctx context.Context, r io.Reader) (*cloud.ObjectAttrs, error) {
	first, err := u.readFirstChunk(ctx, r)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err == io.EOF {
		r = bytes.NewReader(nil)
	}
	// After an error, cancel sending before Close: otherwise Close publishes the data sent so far as the whole object.
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	w := u.writer(sending, first, err == io.EOF)
	err = u.copy(ctx, w, io.MultiReader(bytes.NewReader(first), r))
	if err != nil {
		cancel()
		w.Close() // wait for the client; its error is only a consequence
		return nil, err
	}
	u.ended = true
	err = w.Close()
	if err != nil {
		return nil, u.explain(ctx, err)
	}
	return w.Attrs(), nil
}

// readFirstChunk reads up to one chunk, into a buffer that grows, because most objects are far smaller. It returns
// io.EOF if r has ended before a full chunk.
func (u *upload) readFirstChunk(ctx context.Context, r io.Reader) ([]byte, error) {
	size := u.b.config.ChunkSize
	p := make([]byte, 0, min(size, 32<<10))
	for len(p) < size {
		err := ctx.Err()
		if err != nil {
			return nil, err
		}
		if len(p) == cap(p) {
			p = slices.Grow(p, min(3*len(p), size-len(p)))
		}
		n, err := r.Read(p[len(p):min(cap(p), size)])
		p = p[:len(p)+n]
		if err == io.EOF {
			return p, io.EOF
		}
		if err != nil {
			return nil, fmt.Errorf("read the content to store: %w", err)
		}
	}
	return p, nil
}

// writer returns the client's writer. The client allocates one chunk, so a small object gets a small one. A whole
// object is sent with its checksum; the client computes that of a stream and sends it with the last chunk.
func (u *upload) writer(ctx context.Context, first []byte, whole bool) *cloud.Writer {
	// Only requests that take effect once are repeated: those with a condition, and those of an upload session, which
	// can be completed only once.
	policy := cloud.RetryIdempotent
	if !whole {
		policy = cloud.RetryAlways
	}
	handle := u.b.object(u.key, 0).Retryer(
		cloud.WithPolicy(policy), cloud.WithBackoff(pauses), cloud.WithErrorFunc(u.again),
	)
	if u.o.IfAbsent {
		handle = handle.If(cloud.Conditions{DoesNotExist: true})
	}
	if u.replaces != 0 {
		handle = handle.If(cloud.Conditions{GenerationMatch: u.replaces})
	}
	w := handle.NewWriter(ctx)
	w.ContentType = "application/octet-stream"
	w.Metadata = map[string]string{idField: u.id}
	w.ChunkSize = u.b.config.ChunkSize
	w.ChunkRetryDeadline = u.b.config.Patience
	w.ChunkTransferTimeout = min(chunkTime, u.b.config.Patience)
	w.ProgressFunc = func(int64) { u.progress = time.Now() }
	if whole {
		w.ChunkSize = len(first) + 1 // one more byte, so that the client detects the end
		w.CRC32C, w.SendCRC32C = crc32.Checksum(first, castagnoli), true
	}
	if !u.o.RetainUntil.IsZero() {
		w.Retention = &cloud.ObjectRetention{Mode: "Unlocked", RetainUntil: wholeSeconds(u.o.RetainUntil)}
		if u.o.Compliance {
			w.Retention.Mode = "Locked"
		}
	}
	return w
}

// wholeSeconds rounds up: the protocol drops fractions, which would end a lock early.
func wholeSeconds(t time.Time) time.Time {
	whole := t.Truncate(time.Second)
	if whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t
}

// again reports whether the client should repeat a request. Without it the client would do so for ever.
func (u *upload) again(err error) bool {
	return time.Since(u.progress) < u.b.config.Patience && cloud.ShouldRetry(err)
}

// copy copies r to w, and updates the size and the checksum.
func (u *upload) copy(ctx context.Context, w io.Writer, r io.Reader) error {
	p := make([]byte, 64<<10)
	for {
		err := ctx.Err()
		if err != nil {
			return err
		}
		n, err := r.Read(p)
		if n > 0 {
			u.size += int64(n)
			u.crc = crc32.Update(u.crc, castagnoli, p[:n])
			_, werr := w.Write(p[:n])
			if werr != nil {
				return u.explain(ctx, werr)
			}
		}
		if err == io.EOF {
			return ctx.Err() // a cancelled Put must not commit
		}
		if err != nil {
			return fmt.Errorf("read the content to store: %w", err)
		}
	}
}

// explain returns the error for a failed request of the upload.
func (u *upload) explain(ctx context.Context, err error) error {
	var answer *googleapi.Error
	switch {
	case ctx.Err() != nil || !errors.As(err, &answer):
	case answer.Code == http.StatusPreconditionFailed && u.o.IfAbsent:
		return storage.ErrExist
	case answer.Code == http.StatusPreconditionFailed && u.replaces != 0:
		return storage.ErrChanged
	case answer.Code == http.StatusNotFound: // the bucket, or the session of a long upload
		missing := u.b.exists(ctx)
		if missing != nil {
			return missing
		}
	case u.o.RetainUntil.IsZero() || isLock(answer):
	case answer.Code/100 == 4 && strings.Contains(strings.ToLower(answer.Message), "retention"):
		return fmt.Errorf("%w: %s", noRetention(u.b.name), serverMessage(answer))
	}
	return explain(ctx, err, toCreate)
}

func noRetention(bucket string) error {
	return fmt.Errorf("%w: gs://%s cannot lock single objects: enable its object retention (gcloud storage buckets "+
		"update gs://%s --enable-per-object-retention)", storage.ErrUnsupported, bucket, bucket)
}

// checkStored compares the stored object with the upload, and removes it if they differ.
func (u *upload) checkStored(ctx context.Context, attrs *cloud.ObjectAttrs) (storage.Object, error) {
	obj := object(attrs)
	var wrong error
	switch {
	case attrs.Size != u.size || attrs.CRC32C != u.crc:
		wrong = fmt.Errorf("the store has %d bytes with CRC32C %08x instead of %d with %08x",
			attrs.Size, attrs.CRC32C, u.size, u.crc)
	case obj.RetainUntil.Before(u.o.RetainUntil):
		wrong = noRetention(u.b.name)
	default:
		u.b.found.Store(true)
		return obj, nil
	}
	err := u.b.remove(ctx, u.key, attrs.Generation)
	if err != nil {
		wrong = fmt.Errorf("%w (%w)", wrong, err)
	}
	return storage.Object{}, wrong
}

// resolveLostPut finds out whether an upload that failed at its end has stored its object. The error alone does not
// show it: the answer may have been lost after a success, a repetition may have met the first try's object, and a
// refusal of a large request may have been lost with its connection.
//
// Even if ctx has ended, a complete object may exist. Then the Put has succeeded, because its source was read to the
// end.
func (u *upload) resolveLostPut(ctx context.Context, cause error) (storage.Object, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
	defer cancel()
	attrs, err := u.b.attrs(asking, u.key, "")
	switch {
	case errors.Is(err, storage.ErrNotExist), errors.Is(err, storage.ErrDenied), errors.Is(err, storage.ErrNoBucket):
		return storage.Object{}, cause
	case err != nil:
		return storage.Object{}, fmt.Errorf("%w (and it is unknown whether the object was stored: %w)", cause, err)
	case attrs.Metadata[idField] == u.id:
		return u.checkStored(ctx, attrs)
	case u.o.IfAbsent:
		return storage.Object{}, storage.ErrExist
	case u.replaces != 0 && attrs.Generation != u.replaces:
		return storage.Object{}, storage.ErrChanged
	case errors.Is(cause, storage.ErrLocked):
		locked := lock(attrs, time.Now())
		if locked != nil {
			return storage.Object{}, locked
		}
	}
	return storage.Object{}, cause
}
