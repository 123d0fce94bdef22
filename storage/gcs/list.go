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

// shown are the fields that a listing asks for.
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
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Kept, error] {
	return func(yield func(storage.Kept, error) bool) {
		for attrs, err := range b.page(ctx, o, true) {
			if err != nil {
				yield(storage.Kept{}, fmt.Errorf("list versions of %q in gs://%s: %w", o.Prefix, b.name, err))
				return
			}
			kept := storage.Kept{Object: object(attrs)}
			if !attrs.Deleted.IsZero() {
				kept.Until = attrs.Deleted.UTC()
			}
			if !yield(kept, nil) {
				return
			}
		}
	}
}

// page yields what o asks for. The store's start is inclusive, After is not. Names that are no keys, such as the "dir/"
// that consoles make for folders, are passed over: no other verb could name them.
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

// query goes through the pages of an answer, to its end or its first error.
func (b *Bucket) query(ctx context.Context, q cloud.Query, pageSize int) iter.Seq2[*cloud.ObjectAttrs, error] {
	return func(yield func(*cloud.ObjectAttrs, error) bool) {
		q.Projection = cloud.ProjectionNoACL
		if err := q.SetAttrSelection(shown); err != nil {
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
		return fmt.Errorf("%w: gs://%s: look twice, or create it", storage.ErrNoBucket, b.name)
	}
	return explain(ctx, err, toList)
}

// Delete implements storage.Bucket. A locked object is not even hidden where versions are kept.
func (b *Bucket) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	if err := b.delete(ctx, key, o); err != nil {
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
	if err := lock(attrs, time.Now()); err != nil && !o.SkipLockCheck {
		return err
	}
	// Without a named version the live one becomes an old one where versions are kept; to name it would remove it for
	// ever. The condition lets a request be repeated: what was put meanwhile is not what was to be deleted.
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

// remove deletes one generation, whatever ctx says of the call that it belongs to.
func (b *Bucket) remove(ctx context.Context, key string, generation int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err := b.object(key, generation).Delete(ctx); err != nil && status(err) != http.StatusNotFound {
		return fmt.Errorf("version %s of it is still there: %w", strconv.FormatInt(generation, 10),
			explain(ctx, err, toDelete))
	}
	return nil
}
