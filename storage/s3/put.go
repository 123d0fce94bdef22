package s3

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/etcd-dr/etcd-dr/storage"
)

// putID is the metadata that holds the random id of the Put by which an object was stored.
const putID = "dr-put"

// settleTime is how long a Put whose answer was lost may take to find out what became of it.
const settleTime = 30 * time.Second

// Put implements storage.Bucket. An object of more than Config.Parts.Whole bytes is sent in parts, in memory of
// (Workers + 1) parts. A lock needs a bucket that was created with Object Lock.
//
// A Put that is killed leaves its parts, and one whose request to begin was lost an upload without any: Leftovers shows
// both.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := b.put(ctx, key, r, o)
	if err != nil {
		return storage.Object{}, fmt.Errorf("put %q: %w", key, err)
	}
	return obj, nil
}

func (b *Bucket) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if err := storage.ValidKey(key); err != nil {
		return storage.Object{}, err
	}
	if err := ctx.Err(); err != nil {
		return storage.Object{}, err
	}
	if o.AsksFirst(b.parts.Whole) { // so as not to read in vain
		if _, err := b.head(ctx, key, ""); err == nil {
			return storage.Object{}, storage.ErrExist
		} else if !errors.Is(err, storage.ErrNotExist) {
			return storage.Object{}, err
		}
	}
	if !o.RetainUntil.IsZero() {
		if err := b.canLock(ctx); err != nil {
			return storage.Object{}, err
		}
	}
	p := &putting{b: b, key: key, o: o, id: rand.Text()}
	return storage.PutParts(ctx, r, p, b.parts.For(o.SizeHint))
}

// putting is one Put.
type putting struct {
	b   *Bucket
	key string
	o   storage.PutOptions
	id  string
}

// Whole implements storage.Uploader.
func (p *putting) Whole(ctx context.Context, content []byte) (storage.Object, error) {
	body := storage.Lend(content)
	defer body.End()
	in := &s3.PutObjectInput{
		Bucket: &p.b.name, Key: &p.key, Body: body, Metadata: p.metadata(), IfNoneMatch: p.condition(),
		ChecksumAlgorithm: p.algorithm(), ChecksumCRC32C: p.checksum(content),
		ServerSideEncryption: p.b.stored.sse, SSEKMSKeyId: p.b.stored.key, StorageClass: p.b.stored.classOf(len(content)),
	}
	in.ObjectLockMode, in.ObjectLockRetainUntilDate = p.lock()
	out, err := p.b.client.PutObject(ctx, in, p.whole()...)
	if err != nil && isAmbiguous(err) {
		return p.settle(ctx, err, int64(len(content)))
	}
	if err != nil {
		return storage.Object{}, p.failure(err)
	}
	return p.object(int64(len(content)), versionName(out.VersionId, out.ETag), serverTime(out.ResultMetadata)), nil
}

// Begin implements storage.Uploader.
func (p *putting) Begin(ctx context.Context) (storage.Upload, error) {
	in := &s3.CreateMultipartUploadInput{
		Bucket: &p.b.name, Key: &p.key, Metadata: p.metadata(), ChecksumAlgorithm: p.algorithm(),
		ServerSideEncryption: p.b.stored.sse, SSEKMSKeyId: p.b.stored.key, StorageClass: p.b.stored.class,
	}
	if in.ChecksumAlgorithm != "" {
		in.ChecksumType = types.ChecksumTypeFullObject
	}
	in.ObjectLockMode, in.ObjectLockRetainUntilDate = p.lock()
	out, err := p.b.client.CreateMultipartUpload(ctx, in)
	if err != nil {
		return nil, p.failure(err)
	}
	return &upload{putting: p, uploadID: out.UploadId, sent: map[int]types.CompletedPart{}}, nil
}

func (p *putting) metadata() map[string]string { return map[string]string{putID: p.id} }

// condition stands on the request that makes the object visible.
func (p *putting) condition() *string {
	if p.o.IfAbsent {
		return aws.String("*")
	}
	return nil
}

// algorithm is the checksum of every request of this Put. It must be the same in all of them: parts with another than the
// upload was begun with cannot be put together. A locked object must have one.
func (p *putting) algorithm() types.ChecksumAlgorithm {
	if p.b.checksums || !p.o.RetainUntil.IsZero() {
		return types.ChecksumAlgorithmCrc32c
	}
	return ""
}

// whole has the request's head say what the body is, where no checksum does: where a connection ends within a body,
// versitygw takes what has come for all of it.
func (p *putting) whole() []func(*s3.Options) {
	if p.algorithm() != "" {
		return nil
	}
	return []func(*s3.Options){s3.WithAPIOptions(signBody)}
}

// signBody has the signature cover the body, which the SDK leaves to TLS. Every store that speaks S3 checks that.
func signBody(stack *middleware.Stack) error {
	signed := &v4.ComputePayloadSHA256{}
	_, err := stack.Finalize.Swap(signed.ID(), signed)
	return err
}

// checksum stands in the request's head, for the same reason: the SDK would put it behind the body.
func (p *putting) checksum(content []byte) *string {
	if p.algorithm() == "" {
		return nil
	}
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(content, castagnoli))
	return aws.String(base64.StdEncoding.EncodeToString(sum))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *putting) lock() (types.ObjectLockMode, *time.Time) {
	switch {
	case p.o.RetainUntil.IsZero():
		return "", nil
	case p.o.Compliance:
		return types.ObjectLockModeCompliance, &p.o.RetainUntil
	}
	return types.ObjectLockModeGovernance, &p.o.RetainUntil
}

func (p *putting) object(size int64, version string, now time.Time) storage.Object {
	return storage.Object{Key: p.key, Size: size, Version: version, ModTime: now, RetainUntil: p.o.RetainUntil}
}

func (p *putting) failure(err error) error { return p.b.failure(err, rightPut) }

// canLock asks for the bucket's Object Lock: versitygw stores an object that it cannot lock, and only then says so. Who may
// not ask is told by the store in the end.
func (b *Bucket) canLock(ctx context.Context) error {
	if b.locks.Load() {
		return nil
	}
	out, err := b.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &b.name})
	switch s := status(err); {
	case err == nil && out.ObjectLockConfiguration != nil &&
		out.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled:
		b.locks.Store(true)
		return nil
	case s == http.StatusForbidden && !hasCode(err, badCredentials...):
		return nil
	case err == nil, s == http.StatusNotFound && !hasCode(err, noSuchBucket), s == http.StatusNotImplemented:
		return fmt.Errorf("%w: bucket %q has no Object Lock, which most stores give only to a new bucket",
			storage.ErrUnsupported, b.name)
	}
	return b.failure(err, rightLock)
}

// settle finds out what became of a Put whose answer was lost, or that met its own first try, by the id that it has left.
// It has a ctx of its own: what a cancelled Put has stored must be told too.
func (p *putting) settle(ctx context.Context, cause error, size int64) (storage.Object, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	there, err := p.b.head(ctx, p.key, "")
	exists := status(cause) == http.StatusPreconditionFailed
	switch {
	case err == nil && there.put == p.id && there.Size == size:
		return there.Object, nil
	case err == nil && there.put == p.id:
		return storage.Object{}, fmt.Errorf("%w: the store has kept %d of %d bytes", p.failure(cause), there.Size, size)
	case err == nil && p.o.IfAbsent:
		return storage.Object{}, storage.ErrExist
	case errors.Is(err, storage.ErrNotExist) && exists:
		return storage.Object{}, fmt.Errorf("%w, so the store says, but shows none: it was deleted just now, "+
			"or this store holds a deleted key for a taken one", storage.ErrExist)
	case err == nil, errors.Is(err, storage.ErrNotExist):
		return storage.Object{}, p.failure(cause)
	}
	return storage.Object{}, fmt.Errorf("%w (and whether it is stored is unknown: %w)", p.failure(cause), err)
}
