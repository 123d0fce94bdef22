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

// putID is the metadata key for the random id of the Put that stored an object.
const putID = "dr-put"

// resolveTime bounds the check whether a Put whose answer was lost has stored its object.
const resolveTime = 30 * time.Second

// Put implements storage.Bucket. It sends an object of more than Config.Parts.Whole bytes in parts, and uses memory for
// Workers + 1 parts. A lock needs a bucket that was created with Object Lock.
//
// A killed Put leaves its parts. A Put that lost the answer to its first request may leave an upload without parts.
// Leftovers yields both.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := b.put(ctx, key, r, o)
	if err != nil {
		return storage.Object{}, fmt.Errorf("put %q: %w", key, err)
	}
	return obj, nil
}

func (b *Bucket) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	err := storage.ValidKey(key)
	if err != nil {
		return storage.Object{}, err
	}
	err = ctx.Err()
	if err != nil {
		return storage.Object{}, err
	}
	if o.ChecksFirst(b.parts.Whole) { // do not read the source in vain
		_, err := b.head(ctx, key, "")
		if err == nil {
			return storage.Object{}, storage.ErrExist
		} else if !errors.Is(err, storage.ErrNotExist) {
			return storage.Object{}, err
		}
	}
	if !o.RetainUntil.IsZero() {
		err := b.canLock(ctx)
		if err != nil {
			return storage.Object{}, err
		}
	}
	p := &putting{b: b, key: key, o: o, id: rand.Text()}
	if o.IfVersion != "" {
		etag, err := b.newestETag(ctx, key, o.IfVersion)
		if err != nil {
			return storage.Object{}, err
		}
		p.replaces = &etag
	}
	return storage.PutParts(ctx, r, p, b.parts.For(o.SizeHint))
}

// putting is the state of one Put.
type putting struct {
	b   *Bucket
	key string
	o   storage.PutOptions
	id  string
	// replaces is the ETag that the key must have; nil: no condition. S3 has no condition on a version's id, and two
	// versions with the same content can have the same ETag.
	replaces *string
}

// Whole implements storage.Uploader.
func (p *putting) Whole(ctx context.Context, content []byte) (storage.Object, error) {
	body := storage.Lend(content)
	defer body.End()
	in := &s3.PutObjectInput{
		Bucket: &p.b.name, Key: &p.key, Body: body, Metadata: p.metadata(), IfNoneMatch: p.condition(), IfMatch: p.replaces,
		ChecksumAlgorithm: p.algorithm(), ChecksumCRC32C: p.checksum(content),
		ServerSideEncryption: p.b.settings.sse, SSEKMSKeyId: p.b.settings.key, StorageClass: p.b.settings.classOf(len(content)),
	}
	in.ObjectLockMode, in.ObjectLockRetainUntilDate = p.lock()
	out, err := p.b.client.PutObject(ctx, in, p.signOptions()...)
	if err != nil && isAmbiguous(err) {
		return p.resolveLostPut(ctx, err, int64(len(content)))
	}
	if err != nil {
		return storage.Object{}, p.failure(err)
	}
	return p.object(int64(len(content)), versionName(out.VersionId, out.ETag), serverTime(out.ResultMetadata)), nil
}

// Begin implements storage.Uploader.
func (p *putting) Begin(ctx context.Context) (storage.Upload, error) {
	if p.replaces != nil {
		return nil, fmt.Errorf("%w: only an object of up to %d bytes can replace one version",
			storage.ErrUnsupported, p.b.parts.Whole)
	}
	in := &s3.CreateMultipartUploadInput{
		Bucket: &p.b.name, Key: &p.key, Metadata: p.metadata(), ChecksumAlgorithm: p.algorithm(),
		ServerSideEncryption: p.b.settings.sse, SSEKMSKeyId: p.b.settings.key, StorageClass: p.b.settings.class,
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

// condition returns the If-None-Match header for the request that makes the object visible.
func (p *putting) condition() *string {
	if p.o.IfAbsent {
		return aws.String("*")
	}
	return nil
}

// algorithm returns the checksum algorithm for every request of this Put. It is the same in all of them: the store
// cannot join parts whose algorithm differs from the upload's. A locked object needs a checksum.
func (p *putting) algorithm() types.ChecksumAlgorithm {
	if p.b.checksums || !p.o.RetainUntil.IsZero() {
		return types.ChecksumAlgorithmCrc32c
	}
	return ""
}

// signOptions makes the signature cover the body if no checksum does. Without either, versitygw accepts a body that was
// cut off by a lost connection as complete.
func (p *putting) signOptions() []func(*s3.Options) {
	if p.algorithm() != "" {
		return nil
	}
	return []func(*s3.Options){s3.WithAPIOptions(signBody)}
}

// signBody adds the body's digest to the signature; over TLS the SDK omits that digest. Every store that speaks S3
// checks the signature.
func signBody(stack *middleware.Stack) error {
	signed := &v4.ComputePayloadSHA256{}
	_, err := stack.Finalize.Swap(signed.ID(), signed)
	return err
}

// checksum returns the checksum for the request's header, or nil if there is none. The SDK would send it after the
// body, where a lost connection drops it.
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

// canLock returns an error unless the bucket has Object Lock: versitygw stores an object first and then refuses to lock
// it. A caller without the right to read the configuration gets no error here; the store itself refuses the lock later.
func (b *Bucket) canLock(ctx context.Context) error {
	if b.hasObjectLock.Load() {
		return nil
	}
	out, err := b.client.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &b.name})
	switch s := status(err); {
	case err == nil && out.ObjectLockConfiguration != nil &&
		out.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled:
		b.hasObjectLock.Store(true)
		return nil
	case s == http.StatusForbidden && !hasCode(err, badCredentials...):
		return nil
	case err == nil, s == http.StatusNotFound && !hasCode(err, noSuchBucket), s == http.StatusNotImplemented:
		return fmt.Errorf("%w: bucket %q has no Object Lock, which most stores enable only when a bucket is created",
			storage.ErrUnsupported, b.name)
	}
	return b.failure(err, rightLock)
}

// resolveLostPut finds out whether a Put whose answer was lost has stored its object. The id in the object's metadata
// also identifies an object that the SDK's first try stored and its second try met. resolveLostPut works even if ctx has
// ended: a cancelled Put must report an object that it has stored.
func (p *putting) resolveLostPut(ctx context.Context, cause error, size int64) (storage.Object, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
	defer cancel()
	stored, err := p.b.head(ctx, p.key, "")
	refused := status(cause) == http.StatusPreconditionFailed
	switch {
	case err == nil && stored.put == p.id && stored.Size == size:
		return stored.Object, nil
	case err == nil && stored.put == p.id:
		return storage.Object{}, fmt.Errorf("%w: the store has stored %d of %d bytes", p.failure(cause), stored.Size, size)
	case err == nil && p.o.IfAbsent:
		return storage.Object{}, storage.ErrExist
	case err == nil && p.replaces != nil && (refused || stored.etag != *p.replaces),
		errors.Is(err, storage.ErrNotExist) && p.replaces != nil && (refused || hasCode(cause, noSuchKey)):
		return storage.Object{}, storage.ErrChanged
	case errors.Is(err, storage.ErrNotExist) && refused:
		return storage.Object{}, fmt.Errorf("%w according to the store, but it is missing: it was deleted just now, "+
			"or this store refuses to create a key that was deleted", storage.ErrExist)
	case err == nil, errors.Is(err, storage.ErrNotExist):
		return storage.Object{}, p.failure(cause)
	}
	return storage.Object{}, fmt.Errorf("%w (and it is unknown whether the object was stored: %w)", p.failure(cause), err)
}
