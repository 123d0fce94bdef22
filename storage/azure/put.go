package azure

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Put implements storage.Bucket. Of two concurrent Puts of one key without IfAbsent that send blocks, the second one to
// commit fails, because the first commit discards its blocks.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := b.put(ctx, key, r, o)
	if err != nil {
		return storage.Object{}, b.failed("put", key, err)
	}
	return obj, nil
}

func (b *Bucket) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	err := validKey(key)
	if err != nil {
		return storage.Object{}, err
	}
	err = b.canLock(ctx, o)
	if err != nil {
		return storage.Object{}, err
	}
	u := &upload{b: b, key: key, o: o, blob: b.container.NewBlockBlobClient(key)}
	rand.Read(u.id[:]) // never fails
	if o.ChecksFirst(b.parts.Whole) {
		err := u.checkAbsent(ctx)
		if err != nil {
			return storage.Object{}, err
		}
	}
	if o.IfVersion != "" {
		err := u.checkVersion(ctx)
		if err != nil {
			return storage.Object{}, err
		}
	}
	return storage.PutParts(ctx, r, u, b.parts.For(o.SizeHint))
}

// canLock returns an error if the container has no locks. It runs before anything is sent, because a store that does
// not know the headers of a lock ignores them.
func (b *Bucket) canLock(ctx context.Context, o storage.PutOptions) error {
	if o.RetainUntil.IsZero() {
		return nil
	}
	t, err := b.loadTraits(ctx)
	if err == nil && !t.locks {
		err = fmt.Errorf("%w: a lock needs a container with version-level immutability, which is enabled when it is created "+
			"or by migrating it, and credentials that may read the container's properties", storage.ErrUnsupported)
	}
	return err
}

// upload is one Put. It implements storage.Uploader and storage.Upload: an upload in blocks needs no request to begin
// it.
type upload struct {
	b    *Bucket
	key  string
	o    storage.PutOptions
	blob *blockblob.Client
	id   putID
	size atomic.Int64
	sent blocks
	cut  atomic.Bool // a block was in flight when ctx ended
	// over is the ETag of the blob that the Put must replace: the one of IfVersion or, with IfAbsent, of an abandoned blob
	// under the key; "" if there is none.
	over string
}

// idKey is the metadata key for the id of the Put that created a blob. Azure requires names that are valid C#
// identifiers.
const idKey = "drput"

func (u *upload) metadata() map[string]*string {
	id := hex.EncodeToString(u.id[:])
	return map[string]*string{idKey: &id}
}

// checkAbsent returns ErrExist if the key has an object. It sets u.over if the key has an abandoned blob.
func (u *upload) checkAbsent(ctx context.Context) error {
	u.over = ""
	p, err := u.blob.GetProperties(ctx, nil)
	switch err = explain(err); {
	case errors.Is(err, storage.ErrNotExist):
		return nil
	case err != nil:
		return err
	case abandoned(p.Metadata):
		u.over = strings.Trim(string(deref(p.ETag)), `"`)
		return nil
	}
	return storage.ErrExist
}

// checkVersion sets u.over to the ETag of the version to replace, or returns ErrChanged if that is not the newest one:
// Azure has no condition on a version's id.
func (u *upload) checkVersion(ctx context.Context) error {
	kind, id, _ := strings.Cut(u.o.IfVersion, ":")
	if kind == byETag {
		u.over = id
		return nil
	}
	p, err := u.b.properties(ctx, u.key, "")
	if errors.Is(err, storage.ErrNotExist) || err == nil && version(p.VersionID, p.ETag) != u.o.IfVersion {
		return storage.ErrChanged
	}
	u.over = strings.Trim(string(deref(p.ETag)), `"`)
	return err
}

func (u *upload) conditions() *blob.AccessConditions {
	if u.over != "" {
		return ifMatch(u.over)
	}
	if !u.o.IfAbsent {
		return nil
	}
	any := azcore.ETagAny
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &any}}
}

// Whole implements storage.Uploader.
func (u *upload) Whole(ctx context.Context, p []byte) (storage.Object, error) {
	u.size.Store(int64(len(p)))
	return u.create(ctx, func(ctx context.Context) (created, error) {
		body := storage.Lend(p)
		defer body.End()
		mode, until := u.lock()
		resp, err := u.blob.Upload(ctx, body, &blockblob.UploadOptions{
			Metadata:                     u.metadata(),
			AccessConditions:             u.conditions(),
			TransactionalValidation:      checksum(p),
			ImmutabilityPolicyMode:       mode,
			ImmutabilityPolicyExpiryTime: until,
		})
		return created{resp.VersionID, resp.ETag, resp.LastModified}, err
	})
}

// Begin implements storage.Uploader.
func (u *upload) Begin(context.Context) (storage.Upload, error) {
	if u.o.IfVersion != "" {
		return nil, fmt.Errorf("%w: only an object of up to %d bytes can replace one version",
			storage.ErrUnsupported, u.b.parts.Whole)
	}
	return u, nil
}

// Part implements storage.Upload.
func (u *upload) Part(ctx context.Context, n int, p []byte) error {
	body := storage.Lend(p)
	defer body.End()
	o := &blockblob.StageBlockOptions{TransactionalValidation: checksum(p)}
	_, err := u.blob.StageBlock(ctx, u.sent.add(u.id, n), body, o)
	if err != nil {
		u.cut.Store(u.cut.Load() || ctx.Err() != nil)
		return fmt.Errorf("block %d: %w", n, explain(err))
	}
	u.size.Add(int64(len(p)))
	return nil
}

// Commit implements storage.Upload.
func (u *upload) Commit(ctx context.Context, n int) (storage.Object, error) {
	return u.create(ctx, func(ctx context.Context) (created, error) {
		mode, until := u.lock()
		resp, err := u.blob.CommitBlockList(ctx, u.sent.list(n), &blockblob.CommitBlockListOptions{
			Metadata:                     u.metadata(),
			AccessConditions:             u.conditions(),
			ImmutabilityPolicyMode:       mode,
			ImmutabilityPolicyExpiryTime: until,
		})
		return created{resp.VersionID, resp.ETag, resp.LastModified}, err
	})
}

// lock returns the lock's headers. Their times are in whole seconds, so lock rounds up: a lock must not end early.
func (u *upload) lock() (*blob.ImmutabilityPolicySetting, *time.Time) {
	if u.o.RetainUntil.IsZero() {
		return nil, nil
	}
	until := u.o.RetainUntil.UTC().Add(time.Second - 1).Truncate(time.Second)
	mode := blob.ImmutabilityPolicySettingUnlocked
	if u.o.Compliance {
		mode = blob.ImmutabilityPolicySettingLocked
	}
	return &mode, &until
}

// created is the store's answer to a request that creates a blob.
type created struct {
	version  *string
	etag     *azcore.ETag
	modified *time.Time
}

// resolveTime bounds the check whether a Put whose answer was lost has created its blob.
const resolveTime = 15 * time.Second

// create sends the request that creates the blob. It retries with another condition if an abandoned blob has appeared
// or disappeared.
func (u *upload) create(ctx context.Context, send func(context.Context) (created, error)) (storage.Object, error) {
	var err error
	for range 3 {
		var c created
		c, err = send(ctx)
		if err == nil {
			return u.object(c), nil
		}
		obj, again, serr := u.resolveLostPut(ctx, err)
		if serr == nil || !again {
			return obj, explain(serr)
		}
	}
	return storage.Object{}, explain(err)
}

// resolveLostPut finds out whether a failed request has created the blob. The answer may have been lost, or the SDK's
// second try may have met the first one's result. It works even if ctx has ended.
func (u *upload) resolveLostPut(ctx context.Context, err error) (_ storage.Object, again bool, _ error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
	defer cancel()
	p, serr := u.blob.GetProperties(asking, nil)
	if serr == nil && valueOf(p.Metadata, idKey) == *u.metadata()[idKey] {
		return u.object(created{p.VersionID, p.ETag, p.LastModified}), false, nil
	}
	if u.o.IfVersion != "" && is(err, bloberror.ConditionNotMet, bloberror.BlobNotFound) {
		return storage.Object{}, false, storage.ErrChanged
	}
	if !u.o.IfAbsent {
		return storage.Object{}, false, err
	}
	taken := serr == nil && !abandoned(p.Metadata)
	if taken {
		return storage.Object{}, false, storage.ErrExist
	}
	if !is(err, bloberror.BlobAlreadyExists, bloberror.ConditionNotMet, bloberror.UnauthorizedBlobOverwrite) {
		return storage.Object{}, false, err
	}
	serr = u.checkAbsent(asking)
	if serr != nil {
		return storage.Object{}, false, serr
	}
	return storage.Object{}, true, err
}

func (u *upload) object(c created) storage.Object {
	_, until := u.lock()
	return storage.Object{
		Key:         u.key,
		Size:        u.size.Load(),
		Version:     version(c.version, c.etag),
		ModTime:     deref(c.modified),
		RetainUntil: deref(until),
	}
}

// valueOf returns the value of name. It ignores upper and lower case, because HTTP headers change it.
func valueOf(metadata map[string]*string, name string) string {
	for k, v := range metadata {
		if strings.EqualFold(k, name) {
			return deref(v)
		}
	}
	return ""
}
