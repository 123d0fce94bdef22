package repository_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// A service reads the log for its conditions, its triggers and its pruning, each with a Cluster of its own. Each header is
// read once; one that is gone, or has another size, is never believed to be as it was.
func TestEachHeaderIsReadOnce(t *testing.T) {
	w := newWriter(t, "c", strings.Repeat("a", 32))
	segments := w.some(23)
	synctest.Test(t, func(t *testing.T) {
		b := storagetest.Faulty(mem.New())
		c := openCluster(t, b, "c")
		storeSegments(t, c, segments[:20]...)
		var headers repository.Headers
		reads := func(what string, want int) catalog.Lineage {
			t.Helper()
			before := b.Calls(storage.VerbOpen)
			l := loadLog(t, openCluster(t, b, "c").Remembering(&headers), 1)[0]
			if got := b.Calls(storage.VerbOpen) - before; got != want {
				t.Errorf("%s: %d headers are read, want %d", what, got, want)
			}
			return l
		}
		reads("at first", 20)
		reads("again", 0)
		storeSegments(t, c, segments[20:]...)
		reads("with what is new", 3)
		if err := b.Delete(t.Context(), segmentKey("c", w.header.Lineage, 7), storage.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantLineage(t, "one is lost", reads("the lost one is asked for", 1), "1-6 8-23", "7 missing")
		changeSegment(t, b, w.header.Lineage, 9, func(p []byte) []byte { return p[:len(p)-1] })
		wantLineage(t, "one is cut", reads("what was changed", 2), "1-6 8-8 10-23", "7 missing 9 damaged")
		time.Sleep(7 * time.Hour)
		reads("much later", 23)
	})
}

// What an index was folded into is remembered too, as long as its segments are listed as they were.
func TestEachIndexIsReadOnce(t *testing.T) {
	w := newWriter(t, "c", lineageID(1))
	all := w.some(45)
	synctest.Test(t, func(t *testing.T) {
		b := storagetest.Faulty(mem.New())
		c := openCluster(t, b, "c")
		storeSegments(t, c, all...)
		storeIndex(t, c, segmentsOf(all[:20]))
		storeIndex(t, c, segmentsOf(all[20:40]))
		var headers repository.Headers
		reads := func(what string, want int) catalog.Lineage {
			t.Helper()
			before := b.Calls(storage.VerbOpen)
			l := load(t, openCluster(t, b, "c").Remembering(&headers), repository.LoadOptions{Log: true}).Lineages[0]
			if got := b.Calls(storage.VerbOpen) - before; got != want {
				t.Errorf("%s: %d reads, want %d", what, got, want)
			}
			return l
		}
		reads("at first", 2+5)
		if l := reads("again", 0); count(l) != 45 || len(l.Segments) != 2+2+5 {
			t.Errorf("%d segments that stand for %d", len(l.Segments), count(l))
		}
		details := loadLog(t, openCluster(t, b, "c").Remembering(&headers), 1)[0]
		if len(details.Segments) != 45 {
			t.Errorf("%d details, want 45", len(details.Segments))
		}
		storeIndex(t, c, segmentsOf(all[35:45])) // of an agent that took over
		reads("the index before one that begins earlier", 2)
		remove(t, b, segmentKey("c", lineageID(1), 7))
		wantLineage(t, "one is lost", reads("its index, and the lost one", 2), "1-6 8-45", "7 missing")
		changeSegment(t, b, lineageID(1), 27, func(p []byte) []byte { return p[:len(p)-1] })
		reads("the indexes of what is lost and of what was cut, and these", 4)
		time.Sleep(7 * time.Hour)
		reads("much later", 3+1+1)
	})
}

// A process remembers no more than a bounded number of indexes, of all its clusters.
func TestBoundedIndexesAreRemembered(t *testing.T) {
	repository.FillFolds(t)
	b := storagetest.Faulty(mem.New())
	all := newWriter(t, "c", lineageID(1)).some(40)
	c := openCluster(t, b, "c")
	storeSegments(t, c, all...)
	storeIndex(t, c, segmentsOf(all[:20]))
	storeIndex(t, c, segmentsOf(all[20:]))
	var headers repository.Headers
	for range 3 {
		before := b.Calls(storage.VerbOpen)
		load(t, openCluster(t, b, "c").Remembering(&headers), repository.LoadOptions{Log: true})
		if reads := b.Calls(storage.VerbOpen) - before; reads != 2 {
			t.Errorf("%d reads, want those of both indexes", reads)
		}
	}
}
