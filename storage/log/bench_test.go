package log_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// longLog stores a log of n segments in dir, an index for each 1,800 of them, and a backup from its beginning. It writes most
// files itself: each Put would wait for the disk.
func longLog(tb testing.TB, dir string, n int) {
	tb.Helper()
	const hour = 1800
	w := stored.NewWriter(tb, "c", stored.LineageID(1))
	first := w.Next()
	body := first.Bytes[len(first.Bytes)-int(first.Header.Stored.Size):]
	c := stored.OpenCluster(tb, stored.OpenFile(tb, dir), "c")
	stored.StoreSegments(tb, c, first)
	all := []catalog.Segment{catalog.SegmentOf(first)}
	for len(all) < n {
		s := follower(tb, all[len(all)-1], first.Bytes[:12], body, dir)
		all = append(all, s)
	}
	for part := range slices.Chunk(all, hour) {
		if len(part) == hour {
			stored.StoreIndex(tb, c, part)
		}
	}
	m := stored.ManifestOf(stored.Content, stored.Noon)
	m.RaftIndex, m.RaftTerm = 5, 2
	_, err := stored.TryCreate(tb, c, stored.IDAt(0), m)
	if err != nil {
		tb.Fatal(err)
	}
}

// follower writes the segment after s, with the same body.
func follower(tb testing.TB, s catalog.Segment, prefix, body []byte, dir string) catalog.Segment {
	tb.Helper()
	h := s.Header
	h.Seq, h.Previous, h.First, h.Last = h.Seq+1, s.Digest, h.Last+1, h.Last+1000
	h.End.Position, h.End.Digest = h.Last, s.Digest
	h.Written = h.Written.Add(2*time.Second + 141592*time.Nanosecond)
	h.Marks = nil
	for i := range uint64(2) {
		h.Marks = append(h.Marks, segment.Mark{
			Position: h.First + 400 + i*500, Revision: int64(h.Last),
			Interval: segment.Interval{NotBefore: h.Written, NotAfter: h.Written.Add(1234567)},
		})
	}
	h.Plain.SHA256, h.Stored.SHA256 = s.Digest, s.Digest // not those of the body, which no test reads
	doc, err := document.Encode(h)
	if err != nil {
		tb.Fatal(err)
	}
	_, digest, err := segment.DecodeHeader(doc)
	if err != nil {
		tb.Fatal(err)
	}
	bytes := slices.Concat(prefix[:8], []byte{0, 0, byte(len(doc) >> 8), byte(len(doc))}, doc, body)
	path := filepath.Join(dir, stored.SegmentKey("c", h.Lineage, h.Seq))
	err = os.WriteFile(path, bytes, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = hex.DecodeString(digest)
	if err != nil {
		tb.Fatal(err)
	}
	return catalog.Segment{Header: h, Digest: digest, Size: int64(len(bytes))}
}

// BenchmarkLoadLog loads a log of 20,000 segments, with its windows and gaps.
func BenchmarkLoadLog(b *testing.B) {
	dir := b.TempDir()
	longLog(b, dir, 20_000)
	c := stored.OpenCluster(b, stored.OpenFile(b, dir), "c")
	for b.Loop() {
		wantLongLog(b, stored.Load(b, c, backups.LoadOptions{Log: true}), 20_000)
	}
}

func wantLongLog(tb testing.TB, catalog catalog.Catalog, n int) {
	tb.Helper()
	windows := catalog.Windows()
	if len(windows) != 1 || windows[0].Segments != n || len(catalog.Gaps()) != 0 {
		tb.Fatalf("windows %+v, gaps %+v", windows, catalog.Gaps())
	}
}
