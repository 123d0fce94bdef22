package copying_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// pack packs the log of c and removes the segments' own objects.
func pack(t *testing.T, c *repository.Cluster) {
	t.Helper()
	later := time.Now().Add(2 * time.Hour)
	packed, err := c.Log().Pack(t.Context(), log.PackOptions{Now: later})
	if err == nil {
		_, err = c.Log().Pack(t.Context(), log.PackOptions{Now: later, Grace: time.Hour})
	}
	if err != nil || packed.Segments != 12 {
		t.Fatal(packed, err)
	}
}

// TestCopyOfAPackedLog checks that each segment is copied once, whether it is packed at one of the repositories or at both.
func TestCopyOfAPackedLog(t *testing.T) {
	from, to := stored.OpenCluster(t, mem.New(), "c"), stored.OpenCluster(t, mem.New(), "c")
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	segments := w.Some(20)
	stored.StoreSegments(t, from, segments...)
	stored.StoreIndex(t, from, stored.SegmentsOf(segments[:12]))
	again := func(what string, want int) {
		t.Helper()
		result, err := copying.Copy(t.Context(), from, to, copying.Options{})
		if err != nil || result.Segments != want || len(result.Faults) > 0 || result.LeftOut > 0 {
			t.Errorf("%s: %v %+v", what, err, result)
		}
		diff := cmp.Diff(stored.LoadLog(t, from, 1), stored.LoadLog(t, to, 1))
		if diff != "" {
			t.Errorf("%s: the logs differ: %s", what, diff)
		}
	}
	pack(t, from)
	again("packed at the source", 20)
	again("packed at the source, again", 0)
	pack(t, to)
	again("packed at both", 0)
	more := w.Some(2)
	stored.StoreSegments(t, from, more...)
	again("packed at both, with two segments more", 2)
	from, to = to, from
	again("back", 0)
}
