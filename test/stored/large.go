package stored

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
)

// Large is a store whose listing of cluster c has as many and as large manifests as one catalog may have in memory. None can be read.
type Large struct{ storage.Bucket }

// List lists the manifests, and below other prefixes the objects of the Bucket.
func (l Large) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	if o.Prefix != catalog.BackupsPrefix("c") {
		return l.Bucket.List(ctx, o)
	}
	return func(yield func(storage.Object, error) bool) {
		for n := range 512 {
			if !yield(storage.Object{Key: Folder("c", IDAt(n)) + catalog.ManifestName, Size: 128 << 10}, nil) {
				return
			}
		}
	}
}

// Hanging is a store whose listings below Prefix hang until the context ends.
type Hanging struct {
	storage.Bucket
	Prefix string
}

// List lists the objects of the Bucket, or hangs.
func (h Hanging) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	if !strings.HasPrefix(o.Prefix, h.Prefix) {
		return h.Bucket.List(ctx, o)
	}
	return func(yield func(storage.Object, error) bool) {
		<-ctx.Done()
		yield(storage.Object{}, context.Cause(ctx))
	}
}

// WantHeld fails the test unless another catalog of a Large store waits while do runs four times at once, each with one of its own. do
// must hang until its context ends.
func WantHeld(t *testing.T, do func(context.Context) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		for range 4 {
			go func() { ended <- do(ctx) }()
		}
		synctest.Wait()
		load := func() error {
			limited, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := OpenCluster(t, Large{mem.New()}, "c").Load(limited, backups.LoadOptions{})
			return err
		}
		err := load()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a fifth catalog is read next to four that are kept: %v", err)
		}
		stop()
		for range 4 {
			WantError(t, "the job", <-ended, context.Canceled)
		}
		err = load()
		if err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
