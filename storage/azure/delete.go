package azure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Delete implements storage.Bucket. In an account that keeps versions it hides the key unless o names a version.
func (b *Bucket) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	err := b.delete(ctx, key, o)
	if err != nil {
		return b.failed("delete", key, err)
	}
	return nil
}

// delete checks for a lock first: in an account with versions Azure would hide a locked blob, and in others its refusal
// has no date.
func (b *Bucket) delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	named := o.Version
	p, err := b.properties(ctx, key, named)
	if errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	if err == nil && !o.SkipLockCheck {
		err = locked(p)
	}
	if err != nil {
		return err
	}
	err = b.deleteOnly(ctx, key, named)
	if !is(err, bloberror.OperationNotAllowedOnRootBlob) {
		return err
	}
	// The newest version cannot be deleted by its id. Deleting the key itself, if it still has this ETag, first turns that version
	// into an older one.
	err = b.deleteOnly(ctx, key, version(nil, p.ETag))
	if err != nil {
		return err
	}
	return b.deleteOnly(ctx, key, named)
}

// locked returns ErrLocked if the blob is locked now, by the store's clock.
func locked(p blob.GetPropertiesResponse) error {
	if deref(p.LegalHold) {
		return fmt.Errorf("%w by a legal hold, which has no end", storage.ErrLocked)
	}
	now := time.Now()
	if p.Date != nil {
		now = *p.Date
	}
	until := deref(p.ImmutabilityPolicyExpiresOn)
	if now.Before(until) {
		return fmt.Errorf("%w until %s", storage.ErrLocked, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// deleteOnly deletes a version without checking for a lock. A missing version causes no error.
func (b *Bucket) deleteOnly(ctx context.Context, key, named string) error {
	client, conditions, err := b.blobAt(key, named)
	if err == nil {
		_, err = client.Delete(ctx, &blob.DeleteOptions{AccessConditions: conditions})
	}
	err = explain(versionGone(err))
	if errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	return err
}
