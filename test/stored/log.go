package stored

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

// LineageID returns the id of the nth lineage.
func LineageID(n int) string { return fmt.Sprintf("%032x", 0xa0+n) }

// SegmentKey returns the documented key of a segment.
func SegmentKey(cluster, lineage string, seq uint64) string {
	return fmt.Sprintf("%s/log/%s/%016x.seg", cluster, lineage, seq)
}

// IndexKey returns the documented key of the index whose first segment is first.
func IndexKey(cluster, lineage string, first uint64) string {
	return fmt.Sprintf("%s/log/%s/index-%016x.json", cluster, lineage, first)
}

// At returns the time that many seconds after Noon.
func At(second int) time.Time { return Noon.Add(time.Duration(second) * time.Second) }

// MarkAt returns a mark at position, between second and half a second later. Its revision is 1000 higher than position.
func MarkAt(position uint64, second int) segment.Mark {
	return segment.Mark{
		Position: position, Revision: 1000 + int64(position),
		Interval: segment.Interval{NotBefore: At(second), NotAfter: At(second).Add(time.Second / 2)},
	}
}

// Writer makes consecutive segments of one lineage. Segment n has ten positions, and one mark at its end, at second n.
type Writer struct {
	tb      testing.TB
	cluster string
	Name    string
	Header  segment.Header // of the last segment
	Digest  string
	Key     sign.Key
}

// NewWriter returns a Writer without a signing key. Its first segment begins at position 1.
func NewWriter(tb testing.TB, cluster, lineage string) *Writer {
	return &Writer{tb: tb, cluster: cluster, Name: "w", Header: segment.Header{Lineage: lineage}}
}

// Next returns the next segment. The edit functions may change its header before it is encoded.
func (w *Writer) Next(edit ...func(h *segment.Header)) segment.Encoded {
	w.tb.Helper()
	h := segment.Header{
		Cluster: w.cluster, Lineage: w.Header.Lineage, Seq: w.Header.Seq + 1, Previous: w.Digest,
		First: w.Header.Last + 1, Last: w.Header.Last + 10,
		Source: segment.WAL, ClusterID: "cdf818194e3a8c32", Member: "8e9e05c52164694d", ServerVersion: "3.7.3",
		Writer: w.Name, Written: At(int(w.Header.Seq) + 1), DRVersion: "v0.2.0",
	}
	h.Marks = []segment.Mark{MarkAt(h.Last, int(h.Seq))}
	h.End = segment.End{Term: 2 + h.Seq/5}
	for _, e := range edit {
		e(&h)
	}
	h.End.Position, h.End.Digest = h.Last, strings.Repeat("e", 64)
	request := segment.Record{Kind: segment.Request, Position: h.Last, Term: h.End.Term, Data: []byte(w.Name)}
	encoded, err := segment.Encode(h, []segment.Record{request}, seal.Recipients{})
	if err == nil {
		encoded, err = encoded.Signed(w.Key)
	}
	if err != nil {
		w.tb.Fatal(err)
	}
	w.Header, w.Digest = encoded.Header, encoded.Digest
	return encoded
}

// Some returns the next n segments.
func (w *Writer) Some(n int) []segment.Encoded {
	w.tb.Helper()
	var all []segment.Encoded
	for range n {
		all = append(all, w.Next())
	}
	return all
}

// StoreSegments stores the segments in their lineages.
func StoreSegments(tb testing.TB, c *repository.Cluster, segments ...segment.Encoded) {
	tb.Helper()
	for _, e := range segments {
		err := c.Log().StoreSegment(tb.Context(), e)
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// SegmentsOf returns the catalog's description of each segment.
func SegmentsOf(all []segment.Encoded) []catalog.Segment {
	var segments []catalog.Segment
	for _, e := range all {
		segments = append(segments, catalog.SegmentOf(e))
	}
	return segments
}

// StoreIndex stores an index of segments, of which there must be at least one.
func StoreIndex(tb testing.TB, c *repository.Cluster, segments []catalog.Segment) {
	tb.Helper()
	err := c.Log().StoreIndex(tb.Context(), segments[0].Lineage, segments)
	if err != nil {
		tb.Fatal(err)
	}
}

// LoadLog loads the log without folding it. It fails the test unless the log has that many lineages.
func LoadLog(tb testing.TB, c *repository.Cluster, want int) []catalog.Lineage {
	tb.Helper()
	catalog := Load(tb, c, backups.LoadOptions{Log: true, Details: true})
	if len(catalog.Lineages) != want {
		tb.Fatalf("%d lineages, want %d", len(catalog.Lineages), want)
	}
	return catalog.Lineages
}

// Count returns the number of segments in l, with those that are folded.
func Count(l catalog.Lineage) (n int) {
	for _, s := range l.Segments {
		n += s.Count()
	}
	return n
}

// SeqsOf returns the seq of each segment.
func SeqsOf(segments []catalog.Segment) []uint64 {
	var seqs []uint64
	for _, s := range segments {
		seqs = append(seqs, s.Seq)
	}
	return seqs
}

// Spans returns the first and last seq of each stretch, as "1-4 6-9".
func Spans(stretches []catalog.Stretch) string {
	var all []string
	for _, s := range stretches {
		all = append(all, fmt.Sprintf("%d-%d", s.Segments[0].Seq, s.Segments[len(s.Segments)-1].Seq))
	}
	return strings.Join(all, " ")
}

// FaultsOf returns the seqs and the kind of each fault, as "5 missing 7-9 damaged". It fails the test if an error does not
// name the key.
func FaultsOf(tb testing.TB, l catalog.Lineage) string {
	tb.Helper()
	var all []string
	for _, f := range l.Faults {
		what := "damaged"
		if isMissing(f) {
			what = "missing"
		} else {
			WantError(tb, "fault", f.Err, catalog.ErrDamaged)
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

// WantLineage fails the test unless l has these Spans and FaultsOf.
func WantLineage(tb testing.TB, what string, l catalog.Lineage, stretches, faults string) {
	tb.Helper()
	got := Spans(l.Stretches())
	if got != stretches {
		tb.Errorf("%s: stretches %q, want %q", what, got, stretches)
	}
	got = FaultsOf(tb, l)
	if got != faults {
		tb.Errorf("%s: faults %q, want %q", what, got, faults)
	}
}

// ChangeSegment replaces the content of a segment of cluster c with the result of how.
func ChangeSegment(tb testing.TB, b storage.Bucket, lineage string, seq uint64, how func([]byte) []byte) {
	tb.Helper()
	Change(tb, b, SegmentKey("c", lineage, seq), how)
}

func isMissing(f catalog.Fault) bool { return errors.Is(f.Err, catalog.ErrNotFound) }
