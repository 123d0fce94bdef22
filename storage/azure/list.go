package azure

import (
	"context"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
)

// List implements storage.Bucket. It omits blobs whose name is not a valid key, since no other method could access
// them.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for item, err := range b.items(ctx, o, container.ListBlobsInclude{Metadata: true}) {
			if err != nil {
				yield(storage.Object{}, b.failed("list", o.Prefix, err))
				return
			}
			if !abandoned(item.Metadata) && !yield(object(item), nil) {
				return
			}
		}
	}
}

// Versions implements storage.Versioned. Azure reports when a version was written and not when it was deleted, so Until
// is always zero: a blob that was deleted without a successor still counts as existing.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	return func(yield func(storage.ObjectVersion, error) bool) {
		for item, err := range b.items(ctx, o, container.ListBlobsInclude{Metadata: true, Versions: true}) {
			if err != nil {
				yield(storage.ObjectVersion{}, b.failed("list the versions of", o.Prefix, err))
				return
			}
			if !abandoned(item.Metadata) && !yield(storage.ObjectVersion{Object: object(item)}, nil) {
				return
			}
		}
	}
}

func object(item *container.BlobItem) storage.Object {
	p := deref(item.Properties)
	return storage.Object{
		Key:         deref(item.Name),
		Size:        deref(p.ContentLength),
		Version:     version(item.VersionID, p.ETag),
		ModTime:     deref(p.LastModified),
		RetainUntil: deref(p.ImmutabilityPolicyExpiresOn),
	}
}
