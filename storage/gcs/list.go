package gcs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	cloud "cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/etcd-dr/etcd-dr/storage"
)

// shown is the list of fields that a listing requests.
var shown = []string{
	"Name", "Size", "Generation", "Created", "Deleted", "Retention", "RetentionExpirationTime",
}

// List implements storage.Bucket.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for attrs, err := range b.page(ctx, o, false) {
			if err != nil {
				yield(storage.Object{}, fmt.Errorf("list %q in gs://%s: %w", o.Prefix, b.name, err))
				return
			}
			if !yield(object(attrs), nil) {
				return
			}
		}
	}
}

// Versions implements storage.Versioned.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	return func(yield func(storage.ObjectVersion, error) bool) {
		for attrs, err := range b.page(ctx, o, true) {
			if err != nil {
				yield(storage.ObjectVersion{}, fmt.Errorf("list versions of %q in gs://%s: %w", o.Prefix, b.name, err))
				return
			}
			kept := storage.ObjectVersion{Object: object(attrs)}
			if !attrs.Deleted.IsZero() {
				kept.Until = attrs.Deleted.UTC()
			}
			if !yield(kept, nil) {
				return
			}
		}
	}
}

// page yields the objects that o selects. The store's start is inclusive, After is not. page omits names that are not
// valid keys, such as the "dir/" that consoles create for folders, because other methods cannot access them.
func (b *Bucket) page(ctx context.Context, o storage.ListOptions, versions bool) iter.Seq2[*cloud.ObjectAttrs, error] {
	return func(yield func(*cloud.ObjectAttrs, error) bool) {
		q := cloud.Query{Prefix: o.Prefix, StartOffset: o.After, Versions: versions}
		for attrs, err := range b.query(ctx, q, b.config.PageSize) {
			if err == nil && (attrs.Name <= o.After || storage.ValidKey(attrs.Name) != nil) {
				continue
			}
			if !yield(attrs, err) {
				return
			}
		}
	}
}

// query yields the objects of all pages, up to the first error.
func (b *Bucket) query(ctx context.Context, q cloud.Query, pageSize int) iter.Seq2[*cloud.ObjectAttrs, error] {
	return func(yield func(*cloud.ObjectAttrs, error) bool) {
		q.Projection = cloud.ProjectionNoACL
		err := q.SetAttrSelection(shown)
		if err != nil {
			yield(nil, err)
			return
		}
		objects := b.bucket().Objects(ctx, &q)
		objects.PageInfo().MaxSize = pageSize
		for {
			attrs, err := objects.Next()
			if err == iterator.Done {
				return
			}
			if err != nil {
				yield(nil, b.explainList(ctx, err))
				return
			}
			b.found.Store(true)
			if !yield(attrs, nil) {
				return
			}
		}
	}
}

func (b *Bucket) explainList(ctx context.Context, err error) error {
	if status(err) == http.StatusNotFound {
		return fmt.Errorf("%w: gs://%s: correct the name, or create it", storage.ErrNoBucket, b.name)
	}
	return explain(ctx, err, toList)
}

// Delete implements storage.Bucket. In a bucket with versions, it does not even hide a locked object.
func (b *Bucket) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	err := b.delete(ctx, key, o)
	if err != nil {
		return fmt.Errorf("delete %q in gs://%s: %w", key, b.name, err)
	}
	return nil
}

func (b *Bucket) delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	attrs, err := b.attrs(ctx, key, o.Version)
	if errors.Is(err, storage.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = lock(attrs, time.Now())
	if err != nil && !o.SkipLockCheck {
		return err
	}
	// In a bucket with versions, deleting the live object without its generation turns it into an old version; deleting it
	// with its generation removes it for ever. The condition makes the request repeatable: it never deletes an object
	// that was put in the meantime.
	handle := b.object(key, 0).If(cloud.Conditions{GenerationMatch: attrs.Generation})
	if o.Version != "" {
		handle = b.object(key, attrs.Generation)
	}
	err = handle.Delete(ctx)
	switch status(err) {
	case http.StatusNotFound, http.StatusPreconditionFailed:
		return nil
	}
	if err != nil {
		return explain(ctx, err, toDelete)
	}
	return nil
}

// remove deletes one generation, even if ctx has ended.
func (b *Bucket) remove(ctx context.Context, key string, generation int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveTime)
	defer cancel()
	err := b.object(key, generation).Delete(ctx)
	if err != nil && status(err) != http.StatusNotFound {
		return fmt.Errorf("its version %s could not be removed: %w", strconv.FormatInt(generation, 10),
			explain(ctx, err, toDelete))
	}
	return nil
}
