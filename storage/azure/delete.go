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

// Delete implements storage.Bucket. In an account that keeps versions it hides the key, if no version is named.
func (b *Bucket) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	if err := b.delete(ctx, key, o); err != nil {
		return b.failed("delete", key, err)
	}
	return nil
}

// delete looks first: Azure would hide a locked blob where it keeps versions, and elsewhere not say until when.
func (b *Bucket) delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	named := o.Version
	p, err := b.properties(ctx, key, named)
	if errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	if err == nil && !o.Unasked {
		err = locked(p)
	}
	if err != nil {
		return err
	}
	err = b.deleteOnly(ctx, key, named)
	if !is(err, bloberror.OperationNotAllowedOnRootBlob) {
		return err
	}
	// The newest version cannot be deleted by its id: it must become an older one first.
	if err := b.deleteOnly(ctx, key, version(nil, p.ETag)); err != nil {
		return err
	}
	return b.deleteOnly(ctx, key, named)
}

// locked judges by the store's clock.
func locked(p blob.GetPropertiesResponse) error {
	if deref(p.LegalHold) {
		return fmt.Errorf("%w by a legal hold, until somebody lifts it", storage.ErrLocked)
	}
	now := time.Now()
	if p.Date != nil {
		now = *p.Date
	}
	if until := deref(p.ImmutabilityPolicyExpiresOn); now.Before(until) {
		return fmt.Errorf("%w until %s", storage.ErrLocked, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// deleteOnly deletes a version without looking. One that is gone already is no error.
func (b *Bucket) deleteOnly(ctx context.Context, key, named string) error {
	client, conditions, err := b.blobAt(key, named)
	if err == nil {
		_, err = client.Delete(ctx, &blob.DeleteOptions{AccessConditions: conditions})
	}
	if err = explain(gone(err)); errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	return err
}
