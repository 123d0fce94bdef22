package copying_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/assets"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func storeAssets(t *testing.T, c *repository.Cluster, node string) assets.Manifest {
	t.Helper()
	_, to := stored.Pair(t)
	file := assets.File{Entry: assets.Entry{Path: "/ca.key", Kind: assets.Regular, Size: 3}, Content: []byte("key")}
	m, err := c.Assets().Store(t.Context(), assets.Manifest{Node: node, Time: stored.Noon, Paths: []string{"/ca.key"}}, []assets.File{file}, to)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCopyAssets checks that versions are copied byte for byte, once, whatever their age, and that a damaged one is a fault.
func TestCopyAssets(t *testing.T) {
	b, target := mem.New(), mem.New()
	from, to := stored.OpenCluster(t, b, "c"), stored.OpenCluster(t, target, "c")
	good, bad := storeAssets(t, from, "a"), storeAssets(t, from, "b")
	stored.Change(t, b, from.Assets().ArchiveKey(bad), stored.Flip(10, 1))
	o := copying.Options{Since: time.Now()}
	result := stored.MustCopy(t, from, to, o)
	if result.Assets != 1 || result.Objects != 2 || len(result.Faults) != 1 || result.Faults[0].Key != from.Assets().ManifestKey(bad) {
		t.Errorf("%+v", result)
	}
	stored.WantError(t, "damaged", result.Faults[0].Err, catalog.ErrDamaged)
	size := int64(0)
	for _, key := range []string{from.Assets().ArchiveKey(good), from.Assets().ManifestKey(good)} {
		if !bytes.Equal(stored.Get(t, b, key), stored.Get(t, target, key)) {
			t.Errorf("%s differs", key)
		}
		size += int64(len(stored.Get(t, b, key)))
	}
	again := stored.MustCopy(t, from, to, o)
	if result.Bytes != size || again.Objects != 0 || again.Present != 2 || again.Assets != 0 {
		t.Errorf("%d bytes, want %d; again %+v", result.Bytes, size, again)
	}
	before := stored.Contents(t, target)
	other := stored.MustCopy(t, from, to, copying.Options{BackupsOnly: true})
	if cmp.Diff(before, stored.Contents(t, target)) != "" || other.Objects != 0 {
		t.Errorf("backups only: %+v", other)
	}
}

// TestCopyAssetsDiffer checks that another version of the same name at the target is not overwritten.
func TestCopyAssetsDiffer(t *testing.T) {
	b, target := mem.New(), mem.New()
	from, to := stored.OpenCluster(t, b, "c"), stored.OpenCluster(t, target, "c")
	m := storeAssets(t, from, "a")
	for _, name := range []string{from.Assets().ArchiveKey(m), from.Assets().ManifestKey(m)} {
		stored.Put(t, target, name, stored.Noise(50))
		result := stored.MustCopy(t, from, to, copying.Options{})
		if len(result.Faults) != 1 || !bytes.Equal(stored.Get(t, target, name), stored.Noise(50)) {
			t.Errorf("%s: %+v", name, result)
		}
		stored.WantError(t, name, result.Faults[0].Err, copying.ErrDiffers)
		stored.Remove(t, target, name)
	}
}
