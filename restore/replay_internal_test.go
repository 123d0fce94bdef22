package restore

import (
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/file"
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
