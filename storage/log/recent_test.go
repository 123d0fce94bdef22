package log_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const recentKey = "c/log-recent.json"

// withRecent returns a log of 40 segments of which the recent index contains 35, and the segments.
func withRecent(t *testing.T) (*storagetest.Faults, []segment.Encoded) {
	t.Helper()
	b := storagetest.Faulty(mem.New())
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(40)
	c := stored.OpenCluster(t, b, "c")
	stored.StoreSegments(t, c, all...)
	storeRecent(t, b, all[:35])
	return b, all
}

func storeRecent(t *testing.T, b storage.Bucket, segments []segment.Encoded) {
	t.Helper()
	err := stored.OpenCluster(t, b, "c").Log().StoreRecent(t.Context(), segments[0].Header.Lineage, stored.SegmentsOf(segments))
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecentIndexSavesRequests checks that a load reads the recent index in place of the headers that it contains. With a cache it reads the
// headers themselves, each once.
func TestRecentIndexSavesRequests(t *testing.T) {
	b, all := withRecent(t)
	cached := stored.OpenCluster(t, b, "c").Remembering(&log.Headers{})
	for _, test := range []struct {
		c    *repository.Cluster
		want int
	}{
		{stored.OpenCluster(t, b, "c"), 1 + 5}, // the recent index, and the headers that it lacks
		{cached, 40},
		{cached, 0},
	} {
		before := b.Calls(storagetest.VerbOpen)
		lineages := stored.LoadLog(t, test.c, 1)
		got := b.Calls(storagetest.VerbOpen) - before
		if got != test.want {
			t.Errorf("%d reads, want %d", got, test.want)
		}
		diff := cmp.Diff(stored.SegmentsOf(all), lineages[0].Segments)
		if diff != "" {
			t.Errorf("segments (-stored +loaded):\n%s", diff)
		}
	}
}

// TestBadRecentIndex checks that a recent index which is damaged, old or forged changes nothing but the number of requests.
func TestBadRecentIndex(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, b storage.Bucket, all []segment.Encoded){
		"none":        func(t *testing.T, b storage.Bucket, _ []segment.Encoded) { stored.Remove(t, b, recentKey) },
		"no document": func(t *testing.T, b storage.Bucket, _ []segment.Encoded) { stored.Put(t, b, recentKey, []byte("x")) },
		"cut": func(t *testing.T, b storage.Bucket, _ []segment.Encoded) {
			stored.Change(t, b, recentKey, func(d []byte) []byte { return d[:len(d)/2] })
		},
		"of another lineage": func(t *testing.T, b storage.Bucket, _ []segment.Encoded) {
			storeRecent(t, b, stored.NewWriter(t, "c", stored.LineageID(2)).Some(40))
		},
		"of another cluster": func(t *testing.T, b storage.Bucket, _ []segment.Encoded) {
			data := encodedIndex(t, stored.SegmentsOf(stored.NewWriter(t, "d", stored.LineageID(1)).Some(40)))
			stored.Put(t, b, recentKey, data)
		},
		"of segments of another writer": func(t *testing.T, b storage.Bucket, _ []segment.Encoded) { storeRecent(t, b, forged(t, "x", 35)) },
		"of segments of another writer after an index": func(t *testing.T, b storage.Bucket, all []segment.Encoded) {
			stored.StoreIndex(t, stored.OpenCluster(t, b, "c"), stored.SegmentsOf(all[:5]))
			storeRecent(t, b, forged(t, "x", 38)[5:])
		},
		"of segments with other sizes": func(t *testing.T, b storage.Bucket, _ []segment.Encoded) {
			storeRecent(t, b, forged(t, "another", 40))
		},
		"of more segments than there are": func(t *testing.T, b storage.Bucket, all []segment.Encoded) {
			storeRecent(t, b, all)
			stored.Remove(t, b, stored.SegmentKey("c", stored.LineageID(1), 40))
		},
		"one is missing": func(t *testing.T, b storage.Bucket, all []segment.Encoded) {
			stored.Remove(t, b, stored.SegmentKey("c", stored.LineageID(1), 20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, all := withRecent(t)
			change(t, b, all)
			got := stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{Log: true})
			if name != "none" {
				stored.Remove(t, b, recentKey)
			}
			want := stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{Log: true, Details: true})
			sameSegments(t, stored.OpenCluster(t, b, "c"), want, got)
			diff := cmp.Diff(want.Windows(), got.Windows())
			if diff != "" {
				t.Errorf("windows (-without +with):\n%s", diff)
			}
		})
	}
}

// forged returns segments of another writer with the keys of those of withRecent. If its name has one letter, the sizes are the same too.
func forged(t *testing.T, writer string, n int) []segment.Encoded {
	t.Helper()
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	w.Name = writer
	return w.Some(n)
}

// TestRecentIndexRefused checks that segments that are not consecutive are not stored.
func TestRecentIndexRefused(t *testing.T) {
	all := stored.SegmentsOf(stored.NewWriter(t, "c", stored.LineageID(1)).Some(3))
	for _, segments := range [][]catalog.Segment{nil, slices.Delete(slices.Clone(all), 1, 2)} {
		err := stored.OpenCluster(t, mem.New(), "c").Log().StoreRecent(t.Context(), stored.LineageID(1), segments)
		if err == nil {
			t.Errorf("%d segments were stored", len(segments))
		}
	}
}
