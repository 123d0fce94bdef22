package log_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestEachHeaderIsReadOnce checks that Clusters with a common Headers read each header once. A service has one Cluster each
// for its conditions, triggers and pruning. A segment that is gone or has another size is never taken from the cache.
func TestEachHeaderIsReadOnce(t *testing.T) {
	w := stored.NewWriter(t, "c", strings.Repeat("a", 32))
	segments := w.Some(23)
	synctest.Test(t, func(t *testing.T) {
		b := storagetest.Faulty(mem.New())
		c := stored.OpenCluster(t, b, "c")
		stored.StoreSegments(t, c, segments[:20]...)
		var headers log.Headers
		reads := func(what string, want int) catalog.Lineage {
			t.Helper()
			before := b.Calls(storagetest.VerbOpen)
			l := stored.LoadLog(t, stored.OpenCluster(t, b, "c").Remembering(&headers), 1)[0]
			got := b.Calls(storagetest.VerbOpen) - before
			if got != want {
				t.Errorf("%s: %d headers are read, want %d", what, got, want)
			}
			return l
		}
		reads("at first", 20)
		reads("again", 0)
		stored.StoreSegments(t, c, segments[20:]...)
		reads("with what is new", 3)
		err := b.Delete(t.Context(), stored.SegmentKey("c", w.Header.Lineage, 7), storage.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		stored.WantLineage(t, "one is lost", reads("the lost one is asked for", 1), "1-6 8-23", "7 missing")
		stored.ChangeSegment(t, b, w.Header.Lineage, 9, func(p []byte) []byte { return p[:len(p)-1] })
		stored.WantLineage(t, "one is cut", reads("what was changed", 2), "1-6 8-8 10-23", "7 missing 9 damaged")
		time.Sleep(7 * time.Hour)
		reads("much later", 23)
	})
}

// TestEachIndexIsReadOnce checks that a folded index is cached as long as its segments are listed with the same sizes.
func TestEachIndexIsReadOnce(t *testing.T) {
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	all := w.Some(45)
	synctest.Test(t, func(t *testing.T) {
		b := storagetest.Faulty(mem.New())
		c := stored.OpenCluster(t, b, "c")
		stored.StoreSegments(t, c, all...)
		stored.StoreIndex(t, c, stored.SegmentsOf(all[:20]))
		stored.StoreIndex(t, c, stored.SegmentsOf(all[20:40]))
		var headers log.Headers
		reads := func(what string, want int) catalog.Lineage {
			t.Helper()
			before := b.Calls(storagetest.VerbOpen)
			l := stored.Load(t, stored.OpenCluster(t, b, "c").Remembering(&headers), backups.LoadOptions{Log: true}).Lineages[0]
			got := b.Calls(storagetest.VerbOpen) - before
			if got != want {
				t.Errorf("%s: %d reads, want %d", what, got, want)
			}
			return l
		}
		reads("at first", 2+5)
		l := reads("again", 0)
		if stored.Count(l) != 45 || len(l.Segments) != 2+2+5 {
			t.Errorf("%d segments that stand for %d", len(l.Segments), stored.Count(l))
		}
		details := stored.LoadLog(t, stored.OpenCluster(t, b, "c").Remembering(&headers), 1)[0]
		if len(details.Segments) != 45 {
			t.Errorf("%d details, want 45", len(details.Segments))
		}
		stored.StoreIndex(t, c, stored.SegmentsOf(all[35:45])) // by an agent that took over
		reads("the index before one that begins earlier", 2)
		stored.Remove(t, b, stored.SegmentKey("c", stored.LineageID(1), 7))
		stored.WantLineage(t, "one is lost", reads("its index, and the lost one", 2), "1-6 8-45", "7 missing")
		stored.ChangeSegment(t, b, stored.LineageID(1), 27, func(p []byte) []byte { return p[:len(p)-1] })
		reads("the indexes of what is lost and of what was cut, and these", 4)
		time.Sleep(7 * time.Hour)
		reads("much later", 3+1+1)
	})
}

// TestBoundedIndexesAreRemembered checks that the number of folded indexes that a process caches is bounded over all
// clusters.
func TestBoundedIndexesAreRemembered(t *testing.T) {
	log.FillFolds(t)
	b := storagetest.Faulty(mem.New())
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(40)
	c := stored.OpenCluster(t, b, "c")
	stored.StoreSegments(t, c, all...)
	stored.StoreIndex(t, c, stored.SegmentsOf(all[:20]))
	stored.StoreIndex(t, c, stored.SegmentsOf(all[20:]))
	var headers log.Headers
	for range 3 {
		before := b.Calls(storagetest.VerbOpen)
		stored.Load(t, stored.OpenCluster(t, b, "c").Remembering(&headers), backups.LoadOptions{Log: true})
		reads := b.Calls(storagetest.VerbOpen) - before
		if reads != 2 {
			t.Errorf("%d reads, want those of both indexes", reads)
		}
	}
}
