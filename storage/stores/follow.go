package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/credentials"
)

// rereadAfter is how old the credentials may be when a call begins. If they are older, the call first reads the folder again.
var rereadAfter = 2 * time.Second

// followed is a bucket that reads its credentials again when a call begins, and opens another bucket if they have changed. A
// call that runs keeps the credentials with which it began.
type followed struct {
	dir  string
	open func(ctx context.Context, c credentials.Credentials) (storage.Bucket, error)

	mu      sync.Mutex
	current storage.Bucket          // guarded by mu, like the fields below
	used    credentials.Credentials // of current
	read    time.Time               // when dir was read
	broken  error                   // why the current content of dir is not usable; nil if it is in use
}

// follow returns a bucket that calls open with the credentials in dir, now and again when they have changed.
func follow(
	ctx context.Context, dir string, open func(context.Context, credentials.Credentials) (storage.Bucket, error),
) (storage.Bucket, error) {
	f := &followed{dir: dir, open: open}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.reread(ctx)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// renewed returns the bucket for the current content of the folder. If that is not usable, it returns the older bucket and
// the reason.
func (f *followed) renewed(ctx context.Context) (current storage.Bucket, broken error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.read) >= rereadAfter {
		f.broken = f.reread(ctx)
	}
	return f.current, f.broken
}

// reread reads the folder, and opens another bucket if the credentials have changed. The caller holds f.mu.
func (f *followed) reread(ctx context.Context) error {
	f.read = time.Now()
	c, err := credentials.Read(f.dir)
	if err != nil {
		return err
	}
	if f.current != nil && c.Equal(f.used) {
		return nil
	}
	b, err := f.open(ctx, c)
	if err != nil {
		return err
	}
	f.current, f.used = b, c
	return nil
}

// explain adds broken to an error that matches storage.ErrDenied: the store may refuse the older credentials, which are
// still in use.
func explain(err, broken error) error {
	if broken == nil || !errors.Is(err, storage.ErrDenied) {
		return err
	}
	return fmt.Errorf("%w: older credentials are still in use, because the new ones are not usable: %v", err, broken)
}

// Put implements storage.Bucket.
func (f *followed) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	b, broken := f.renewed(ctx)
	obj, err := b.Put(ctx, key, r, o)
	return obj, explain(err, broken)
}

// Open implements storage.Bucket.
func (f *followed) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	b, broken := f.renewed(ctx)
	rc, obj, err := b.Open(ctx, key, o)
	return rc, obj, explain(err, broken)
}

// Stat implements storage.Bucket.
func (f *followed) Stat(ctx context.Context, key string) (storage.Object, error) {
	b, broken := f.renewed(ctx)
	obj, err := b.Stat(ctx, key)
	return obj, explain(err, broken)
}

// List implements storage.Bucket.
func (f *followed) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		b, broken := f.renewed(ctx)
		for obj, err := range b.List(ctx, o) {
			if !yield(obj, explain(err, broken)) {
				return
			}
		}
	}
}

// Delete implements storage.Bucket.
func (f *followed) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	b, broken := f.renewed(ctx)
	return explain(b.Delete(ctx, key, o), broken)
}

// Unwrap returns the bucket for the current credentials.
func (f *followed) Unwrap() storage.Bucket {
	b, _ := f.renewed(context.Background())
	return b
}
