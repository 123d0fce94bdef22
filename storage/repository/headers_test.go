package repository_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
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
		reads := func(what string, want int) repository.Lineage {
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
