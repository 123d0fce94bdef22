package azure

import (
	"context"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/etcd-dr/etcd-dr/storage"
)

// List implements storage.Bucket. Blobs whose name is no key of storage's are left out, as no verb could reach them.
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

// Versions implements storage.Versioned. Azure says when a version was written and not when it was deleted, so Until
// is always zero: what was deleted without anything in its place still counts as there.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Kept, error] {
	return func(yield func(storage.Kept, error) bool) {
		for item, err := range b.items(ctx, o, container.ListBlobsInclude{Metadata: true, Versions: true}) {
			if err != nil {
				yield(storage.Kept{}, b.failed("list the versions of", o.Prefix, err))
				return
			}
			if !abandoned(item.Metadata) && !yield(storage.Kept{Object: object(item)}, nil) {
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
