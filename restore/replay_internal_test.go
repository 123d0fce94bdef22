package restore

import (
	"context"
	"io"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestForgedNumberOfRequests checks that the number in a header, which nothing has verified yet, does not decide how much memory a
// restore allocates.
func TestForgedNumberOfRequests(t *testing.T) {
	b, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := stored.OpenCluster(t, b, "c")
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(1)
	stored.StoreSegments(t, c, all...)
	s := stored.SegmentsOf(all)[0]
	s.Requests, s.Plain.Size = 1<<50, 1<<60
	r := run{cluster: c}
	records, err := r.fetchSegment(t.Context(), s)
	if err != nil || len(records) == 0 || records[len(records)-1].Kind != segment.Request {
		t.Errorf("records %v, %v", records, err)
	}
}

// far is a store that answers each request to read after a second.
type far struct {
	storage.Bucket
	asked, most atomic.Int64 // requests that wait now, and the most that ever did
}

func (f *far) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	asked := f.asked.Add(1)
	defer f.asked.Add(-1)
	if asked > f.most.Load() {
		f.most.Store(asked)
	}
	time.Sleep(time.Second)
	return f.Bucket.Open(ctx, key, o)
}

// TestSegmentsAreFetchedAhead checks that many small segments are fetched at a time and two large ones, in order, and that a replay
// which ends early waits for them.
func TestSegmentsAreFetchedAhead(t *testing.T) {
	for _, test := range []struct {
		name        string
		size        int64 // bytes of the records, according to the header
		read        int   // segments that are replayed
		least, most int64 // requests at a time
	}{{"small", 100, 100, 10, 16}, {"large", 1 << 40, 20, 1, 2}, {"small, ends early", 100, 5, 10, 16}, {"large, ends early", 1 << 40, 5, 1, 2}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &far{Bucket: mem.New()}
				all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(100)
				stored.StoreSegments(t, stored.OpenCluster(t, store.Bucket, "c"), all...)
				r := run{cluster: stored.OpenCluster(t, store, "c")}
				var positions []uint64
				for record, err := range r.records(t.Context(), withSize(stored.SegmentsOf(all), test.size)) {
					if err != nil {
						t.Fatal(err)
					}
					if record.Kind == segment.Request {
						positions = append(positions, record.Position)
					}
					if len(positions) == test.read {
						break
					}
				}
				if len(positions) != test.read || !slices.IsSorted(positions) || store.most.Load() < test.least || store.most.Load() > test.most {
					t.Errorf("%d segments, at most %d at a time", len(positions), store.most.Load())
				}
			})
		})
	}
}

// withSize yields the segments as if their records had so many bytes.
func withSize(segments []catalog.Segment, size int64) iter.Seq2[catalog.Segment, error] {
	return func(yield func(catalog.Segment, error) bool) {
		for _, s := range segments {
			s.Plain.Size = size
			if !yield(s, nil) {
				return
			}
		}
	}
}
