package copying_test

import (
	"context"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// A copy keeps the source's catalog until it ends.
func TestCopyHoldsTheMemoryOfItsCatalog(t *testing.T) {
	stored.WantHeld(t, func(ctx context.Context) error {
		from := stored.OpenCluster(t, stored.Large{Bucket: mem.New()}, "c")
		to := stored.OpenCluster(t, stored.Hanging{Bucket: mem.New(), Prefix: "c/backups/"}, "c")
		_, err := copying.Copy(ctx, from, to, copying.Options{})
		return err
	})
}
