package repository_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// lineageID is the nth lineage.
func lineageID(n int) string { return fmt.Sprintf("%032x", 0xa0+n) }

// segmentKey is where a segment is kept, as it is documented, and indexKey an index.
func segmentKey(cluster, lineage string, seq uint64) string {
	return fmt.Sprintf("%s/log/%s/%016x.seg", cluster, lineage, seq)
}

func indexKey(cluster, lineage string, first uint64) string {
	return fmt.Sprintf("%s/log/%s/index-%016x.json", cluster, lineage, first)
}

// at is a second past noon.
func at(second int) time.Time { return noon.Add(time.Duration(second) * time.Second) }

func markAt(position uint64, second int) segment.Mark {
	return segment.Mark{
		Position: position, Revision: 1000 + int64(position),
		Interval: segment.Interval{NotBefore: at(second), NotAfter: at(second).Add(time.Second / 2)},
	}
}

// writer makes the segments of one lineage, one behind the other, each with ten positions and one mark at its end. The
// nth is of second n.
type writer struct {
	tb      testing.TB
	cluster string
	name    string
	header  segment.Header // of the last one
	digest  string
	key     sign.Key
}

func newWriter(tb testing.TB, cluster, lineage string) *writer {
	return &writer{tb: tb, cluster: cluster, name: "w", header: segment.Header{Lineage: lineage}}
}

// next makes the one behind the last one. edit may change it before it is encoded.
func (w *writer) next(edit ...func(h *segment.Header)) segment.Encoded {
	w.tb.Helper()
	h := segment.Header{
		Cluster: w.cluster, Lineage: w.header.Lineage, Seq: w.header.Seq + 1, Previous: w.digest,
		First: w.header.Last + 1, Last: w.header.Last + 10,
		Source: segment.WAL, ClusterID: "cdf818194e3a8c32", Member: "8e9e05c52164694d", ServerVersion: "3.7.3",
		Writer: w.name, Written: at(int(w.header.Seq) + 1), DRVersion: "v0.2.0",
	}
	h.Marks = []segment.Mark{markAt(h.Last, int(h.Seq))}
	h.End = segment.End{Term: 2 + h.Seq/5}
	for _, e := range edit {
		e(&h)
	}
	h.End.Position, h.End.Digest = h.Last, strings.Repeat("e", 64)
	request := segment.Record{Kind: segment.Request, Position: h.Last, Term: h.End.Term, Data: []byte(w.name)}
	encoded, err := segment.Encode(h, []segment.Record{request}, seal.Recipients{})
	if err == nil {
		encoded, err = encoded.Signed(w.key)
	}
	if err != nil {
		w.tb.Fatal(err)
	}
	w.header, w.digest = encoded.Header, encoded.Digest
	return encoded
}

// some makes the next n.
func (w *writer) some(n int) []segment.Encoded {
	w.tb.Helper()
	var all []segment.Encoded
	for range n {
		all = append(all, w.next())
	}
	return all
}

func storeSegments(tb testing.TB, c *repository.Cluster, segments ...segment.Encoded) {
	tb.Helper()
	for _, e := range segments {
		if err := c.StoreSegment(tb.Context(), e); err != nil {
			tb.Fatal(err)
		}
	}
}

func segmentsOf(all []segment.Encoded) []catalog.Segment {
	var segments []catalog.Segment
	for _, e := range all {
		segments = append(segments, catalog.SegmentOf(e))
	}
	return segments
}

func storeIndex(tb testing.TB, c *repository.Cluster, segments []catalog.Segment) {
	tb.Helper()
	if err := c.StoreIndex(tb.Context(), segments[0].Lineage, segments); err != nil {
		tb.Fatal(err)
	}
}

// loadLog loads all details of the log, which must have as many lineages as are wanted.
func loadLog(tb testing.TB, c *repository.Cluster, want int) []catalog.Lineage {
	tb.Helper()
	catalog := load(tb, c, repository.LoadOptions{Log: true, Details: true})
	if len(catalog.Lineages) != want {
		tb.Fatalf("%d lineages, want %d", len(catalog.Lineages), want)
	}
	return catalog.Lineages
}

// count returns how many segments those of l stand for.
func count(l catalog.Lineage) (n int) {
	for _, s := range l.Segments {
		n += s.Count()
	}
	return n
}

func seqsOf(segments []catalog.Segment) []uint64 {
	var seqs []uint64
	for _, s := range segments {
		seqs = append(seqs, s.Seq)
	}
	return seqs
}

// spans are the seqs of stretches, as "1-4 6-9".
func spans(stretches []catalog.Stretch) string {
	var all []string
	for _, s := range stretches {
		all = append(all, fmt.Sprintf("%d-%d", s.Segments[0].Seq, s.Segments[len(s.Segments)-1].Seq))
	}
	return strings.Join(all, " ")
}

// faultsOf are the seqs of faults and what they are, as "5 missing 7-9 damaged".
func faultsOf(tb testing.TB, l catalog.Lineage) string {
	tb.Helper()
	var all []string
	for _, f := range l.Faults {
		what := "damaged"
		if isMissing(f) {
			what = "missing"
		} else {
			wantError(tb, "fault", f.Err, catalog.ErrDamaged)
		}
		if !strings.Contains(f.Err.Error(), f.Key) {
			tb.Errorf("%v does not name %s", f.Err, f.Key)
		}
		seqs := fmt.Sprint(f.Seq)
		if f.Upto > f.Seq {
			seqs = fmt.Sprintf("%d-%d", f.Seq, f.Upto)
		}
		all = append(all, seqs+" "+what)
	}
	return strings.Join(all, " ")
}

// wantLineage fails unless l has these stretches and faults.
func wantLineage(tb testing.TB, what string, l catalog.Lineage, stretches, faults string) {
	tb.Helper()
	if got := spans(l.Stretches()); got != stretches {
		tb.Errorf("%s: stretches %q, want %q", what, got, stretches)
	}
	if got := faultsOf(tb, l); got != faults {
		tb.Errorf("%s: faults %q, want %q", what, got, faults)
	}
}

func changeSegment(tb testing.TB, b storage.Bucket, lineage string, seq uint64, how func([]byte) []byte) {
	tb.Helper()
	change(tb, b, segmentKey("c", lineage, seq), how)
}

func isMissing(f catalog.Fault) bool { return errors.Is(f.Err, catalog.ErrNotFound) }
