package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Open implements storage.Bucket. It checks a whole object against the checksum that the store keeps, if there is one
// and Config.Checksums asks for it. On a mismatch the stream ends with an error in place of io.EOF.
func (b *Bucket) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, obj, err := b.open(ctx, key, o)
	if err != nil {
		return nil, storage.Object{}, fmt.Errorf("open %q: %w", key, err)
	}
	return r, obj, nil
}

func (b *Bucket) open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	err := storage.ValidKey(key)
	if err != nil {
		return nil, storage.Object{}, err
	}
	if o.Offset < 0 || o.Length < 0 {
		return nil, storage.Object{}, fmt.Errorf("%w: offset %d, length %d", storage.ErrRange, o.Offset, o.Length)
	}
	pin, ok := parseVersion(o.Version)
	if !ok {
		return nil, storage.Object{}, noVersion(o.Version)
	}
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.name, Key: &key, Range: byteRange(o), VersionId: pin.id, IfMatch: pin.etag,
	})
	switch {
	case status(err) == http.StatusRequestedRangeNotSatisfiable:
		return b.openEnd(ctx, key, o)
	case err != nil && o.Version != "" && isGone(err):
		return nil, storage.Object{}, noVersion(o.Version)
	case err != nil:
		return nil, storage.Object{}, b.readFailure(err)
	}
	obj, n, err := opened(key, out, o)
	if err != nil {
		out.Body.Close()
		return nil, storage.Object{}, err
	}
	return &stream{body: out.Body, key: key, left: n}, obj, nil
}

func noVersion(version string) error {
	return fmt.Errorf("%w: version %q", storage.ErrNotExist, version)
}

// isGone reports whether the store answered that the requested version does not exist: its id is unknown, its ETag
// differs, or it is a delete marker.
func isGone(err error) bool {
	s := status(err)
	return s == http.StatusPreconditionFailed || s == http.StatusMethodNotAllowed ||
		s == http.StatusNotFound && !hasCode(err, noSuchBucket) && !hasCode(err, badCredentials...)
}

// byteRange returns the Range header, or nil for the whole object: stores accept no range on an empty object and keep
// no checksum of ranges.
func byteRange(o storage.OpenOptions) *string {
	switch {
	case o.Offset == 0 && o.Length == 0:
		return nil
	case o.Length == 0 || o.Length > math.MaxInt64-o.Offset:
		return aws.String(fmt.Sprintf("bytes=%d-", o.Offset))
	}
	return aws.String(fmt.Sprintf("bytes=%d-%d", o.Offset, o.Offset+o.Length-1))
}

// openEnd opens a range without bytes: it returns an empty stream at the end of the object and ErrRange past it.
func (b *Bucket) openEnd(
	ctx context.Context, key string, o storage.OpenOptions,
) (io.ReadCloser, storage.Object, error) {
	found, err := b.head(ctx, key, o.Version)
	if err != nil {
		return nil, storage.Object{}, err
	}
	if o.Offset != found.Size {
		return nil, storage.Object{}, fmt.Errorf("%w: offset %d of %d bytes", storage.ErrRange, o.Offset, found.Size)
	}
	return http.NoBody, found.Object, nil
}

// opened returns the whole object of which out is a range, and the number of bytes that the body will have.
func opened(key string, out *s3.GetObjectOutput, o storage.OpenOptions) (obj storage.Object, n int64, err error) {
	n = aws.ToInt64(out.ContentLength)
	obj = storage.Object{
		Key:         key,
		Size:        n,
		Version:     versionName(out.VersionId, out.ETag),
		ModTime:     aws.ToTime(out.LastModified),
		RetainUntil: lockedUntil(out.ObjectLockMode, out.ObjectLockRetainUntilDate),
	}
	if out.ContentLength == nil {
		return obj, 0, errors.New("the store's answer has no Content-Length")
	}
	if byteRange(o) == nil {
		return obj, n, nil
	}
	first, size, ok := contentRange(aws.ToString(out.ContentRange))
	if !ok || first != o.Offset {
		return obj, 0, fmt.Errorf("the store has sent the range %q instead of one from byte %d",
			aws.ToString(out.ContentRange), o.Offset)
	}
	obj.Size = size
	want := size - o.Offset
	if o.Length > 0 {
		want = min(want, o.Length)
	}
	if n != want {
		return obj, 0, fmt.Errorf("the store has sent %d bytes of a range of %d", n, want)
	}
	return obj, n, nil
}

// contentRange parses "bytes 10-19/100" (RFC 9110, 14.4).
func contentRange(text string) (first, size int64, ok bool) {
	text, unit := strings.CutPrefix(text, "bytes ")
	from, rest, dash := strings.Cut(text, "-")
	_, total, slash := strings.Cut(rest, "/")
	first, err1 := strconv.ParseInt(from, 10, 64)
	size, err2 := strconv.ParseInt(total, 10, 64)
	return first, size, unit && dash && slash && err1 == nil && err2 == nil && 0 <= first && first < size
}

func lockedUntil(mode types.ObjectLockMode, until *time.Time) time.Time {
	if mode == "" {
		return time.Time{}
	}
	return aws.ToTime(until)
}

// stream is the stream that Open returns. It yields exactly the announced number of bytes, or an error, which every
// later Read returns again.
type stream struct {
	body io.ReadCloser
	key  string
	left int64
	err  error
}

func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.body.Read(p)
	s.left -= int64(n)
	switch {
	case s.left < 0:
		s.err = fmt.Errorf("read %q: the store has sent more than it announced", s.key)
	case err == io.EOF && s.left > 0:
		s.err = fmt.Errorf("read %q: %d bytes are missing: %w", s.key, s.left, io.ErrUnexpectedEOF)
	case err == io.EOF:
		s.err = io.EOF
	case err != nil:
		s.err = fmt.Errorf("read %q: %w", s.key, oneLine(err))
	}
	return n, s.err
}

func (s *stream) Close() error { return s.body.Close() }

// Stat implements storage.Bucket.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	found, err := b.find(ctx, key, "")
	if err != nil {
		return storage.Object{}, fmt.Errorf("stat %q: %w", key, err)
	}
	return found.Object, nil
}

// found describes one version in the store.
type found struct {
	storage.Object
	etag string
	put  string // the id of the Put that stored it
	held bool   // under a legal hold, which has no end
	now  time.Time
}

// find returns the result of head, but distinguishes a missing object from a missing bucket. The answer to a HEAD has
// no body that could distinguish them.
func (b *Bucket) find(ctx context.Context, key, version string) (found, error) {
	err := storage.ValidKey(key)
	if err != nil {
		return found{}, err
	}
	f, err := b.head(ctx, key, version)
	if !errors.Is(err, storage.ErrNotExist) {
		return f, err
	}
	_, berr := b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.name})
	switch {
	case status(berr) == http.StatusNotFound:
		why := b.listOne(ctx)
		if hasCode(why, badCredentials...) {
			return found{}, b.failure(why, rightList)
		}
		return found{}, fmt.Errorf("%w: %q: create it, or correct the name", storage.ErrNoBucket, b.name)
	case berr != nil && status(berr) != http.StatusForbidden: // 403 proves that the bucket exists
		return found{}, b.failure(berr, rightList)
	}
	return found{}, err
}

func (b *Bucket) head(ctx context.Context, key, version string) (found, error) {
	pin, ok := parseVersion(version)
	if !ok {
		return found{}, noVersion(version)
	}
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &b.name, Key: &key, VersionId: pin.id, IfMatch: pin.etag,
	})
	switch {
	case err != nil && version != "" && isGone(err):
		return found{}, noVersion(version)
	case err != nil:
		return found{}, b.headFailure(ctx, err)
	}
	return found{
		Object: storage.Object{
			Key:         key,
			Size:        aws.ToInt64(out.ContentLength),
			Version:     versionName(out.VersionId, out.ETag),
			ModTime:     aws.ToTime(out.LastModified),
			RetainUntil: lockedUntil(out.ObjectLockMode, out.ObjectLockRetainUntilDate),
		},
		etag: aws.ToString(out.ETag),
		put:  out.Metadata[putID],
		held: out.ObjectLockLegalHoldStatus == types.ObjectLockLegalHoldStatusOn,
		now:  serverTime(out.ResultMetadata),
	}, nil
}

// newestETag returns the ETag of key's newest version, or ErrChanged if wanted is another version. If wanted contains the
// ETag itself, newestETag sends no request. It needs no right to read old versions.
func (b *Bucket) newestETag(ctx context.Context, key, wanted string) (string, error) {
	pin, ok := parseVersion(wanted)
	if ok && pin.etag != nil {
		return *pin.etag, nil
	}
	newest, err := b.find(ctx, key, "")
	if errors.Is(err, storage.ErrNotExist) || err == nil && newest.Version != wanted {
		return "", storage.ErrChanged
	}
	return newest.etag, err
}

// serverTime returns the store's time, or the local time if the answer has none.
func serverTime(m middleware.Metadata) time.Time {
	t, ok := awsmiddleware.GetServerTime(m)
	if ok {
		return t.UTC()
	}
	return time.Now().UTC()
}
