package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Open implements storage.Bucket.
func (b *Bucket) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, obj, err := b.open(ctx, key, o)
	if err != nil {
		return nil, storage.Object{}, b.failed("open", key, err)
	}
	return r, obj, nil
}

func (b *Bucket) open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	err := validKey(key)
	if err != nil {
		return nil, storage.Object{}, err
	}
	if o.Offset < 0 || o.Length < 0 {
		return nil, storage.Object{}, fmt.Errorf("%w: offset %d, length %d", storage.ErrRange, o.Offset, o.Length)
	}
	client, conditions, err := b.blobAt(key, o.Version)
	if err != nil {
		return nil, storage.Object{}, err
	}
	resp, err := client.DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: o.Offset, Count: o.Length},
		AccessConditions: conditions,
	})
	if is(err, bloberror.InvalidRange) {
		return b.openEnd(ctx, key, o)
	}
	if err != nil {
		return nil, storage.Object{}, versionGone(err)
	}
	obj := storage.Object{
		Key:         key,
		Version:     version(resp.VersionID, resp.ETag),
		ModTime:     deref(resp.LastModified),
		RetainUntil: deref(resp.ImmutabilityPolicyExpiresOn),
	}
	obj.Size, err = fullSize(resp.ContentLength, resp.ContentRange)
	want := obj.Size - o.Offset
	if o.Length > 0 {
		want = min(want, o.Length)
	}
	if err == nil && deref(resp.ContentLength) != want {
		err = fmt.Errorf("the store sends %d bytes instead of %d", deref(resp.ContentLength), want)
	}
	if err == nil && abandoned(resp.Metadata) {
		err = storage.ErrNotExist
	}
	if err != nil {
		resp.Body.Close()
		return nil, storage.Object{}, err
	}
	return &stream{ctx, resp.Body, want}, obj, nil
}

// openEnd opens a range without bytes, which Azure refuses: it returns an empty stream at the end of the object and
// ErrRange past it.
func (b *Bucket) openEnd(
	ctx context.Context, key string, o storage.OpenOptions,
) (io.ReadCloser, storage.Object, error) {
	obj, err := b.stat(ctx, key, o.Version)
	if err == nil && o.Offset != obj.Size {
		err = fmt.Errorf("%w: offset %d of %d bytes", storage.ErrRange, o.Offset, obj.Size)
	}
	if err != nil {
		return nil, storage.Object{}, err
	}
	return io.NopCloser(strings.NewReader("")), obj, nil
}

// fullSize returns the size of the blob whose range was sent: the number after the slash in "bytes 0-9/100".
func fullSize(length *int64, contentRange *string) (int64, error) {
	if contentRange == nil {
		return deref(length), nil
	}
	_, text, _ := strings.Cut(*contentRange, "/")
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 0 {
		return 0, fmt.Errorf("the store sends the malformed Content-Range %q", *contentRange)
	}
	return size, nil
}

// versionGone converts the error of a request that is pinned to a version: a version that was replaced is missing.
func versionGone(err error) error {
	if is(err, bloberror.ConditionNotMet) {
		return fmt.Errorf("%w: this version has been replaced", storage.ErrNotExist)
	}
	return err
}

// stream returns io.EOF after the last requested byte, and nowhere else.
type stream struct {
	ctx  context.Context
	body io.ReadCloser
	left int64
}

func (s *stream) Read(p []byte) (int, error) {
	err := s.ctx.Err()
	if err != nil { // the body may still have buffered bytes
		return 0, err
	}
	n, err := s.body.Read(p)
	s.left -= int64(n)
	switch {
	case s.left < 0:
		return n, errors.New("the store sends more bytes than it has announced")
	case err == io.EOF && s.left > 0:
		return n, fmt.Errorf("%d bytes are missing: %w", s.left, io.ErrUnexpectedEOF)
	}
	return n, err
}

func (s *stream) Close() error { return s.body.Close() }

// Stat implements storage.Bucket.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	obj, err := b.stat(ctx, key, "")
	if err != nil {
		return storage.Object{}, b.failed("stat", key, err)
	}
	return obj, nil
}

func (b *Bucket) stat(ctx context.Context, key, named string) (storage.Object, error) {
	p, err := b.properties(ctx, key, named)
	if err != nil {
		return storage.Object{}, err
	}
	return storage.Object{
		Key:         key,
		Size:        deref(p.ContentLength),
		Version:     version(p.VersionID, p.ETag),
		ModTime:     deref(p.LastModified),
		RetainUntil: deref(p.ImmutabilityPolicyExpiresOn),
	}, nil
}

// properties returns the properties of a blob. It treats an abandoned blob as missing.
func (b *Bucket) properties(ctx context.Context, key, named string) (blob.GetPropertiesResponse, error) {
	err := validKey(key)
	if err != nil {
		return blob.GetPropertiesResponse{}, err
	}
	client, conditions, err := b.blobAt(key, named)
	if err != nil {
		return blob.GetPropertiesResponse{}, err
	}
	p, err := client.GetProperties(ctx, &blob.GetPropertiesOptions{AccessConditions: conditions})
	if err == nil && abandoned(p.Metadata) {
		err = storage.ErrNotExist
	}
	return p, explain(versionGone(err))
}
