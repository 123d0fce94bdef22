package document_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// someLog has segments 1 and 2, a hole where 3 was, a damaged 4, and 5.
func someLog() catalog.Catalog {
	l := catalog.Lineage{ID: lineage}
	for _, seq := range []uint64{1, 2, 5} {
		s := catalog.Segment{Digest: fmt.Sprint(seq), Size: 1000}
		s.Cluster, s.ClusterID, s.Lineage, s.Seq, s.Requests = "prod", "cafe", lineage, seq, 10
		s.First, s.Last, s.Written = seq*10-9, seq*10, at.Add(time.Duration(seq)*time.Second)
		if seq > 1 {
			s.Previous = fmt.Sprint(seq - 1)
		}
		if seq == 2 {
			s.Diverged = "two hashes"
		}
		s.Marks = []segment.Mark{{Position: s.Last, Revision: int64(s.Last) + 45, Interval: segment.Interval{NotBefore: s.Written, NotAfter: s.Written}}}
		l.Segments = append(l.Segments, s)
	}
	l.Faults = []catalog.Fault{
		{Key: "three", Seq: 3, Upto: 3, Err: fmt.Errorf("three: %w", catalog.ErrNotFound)},
		{Key: "four", Seq: 4, Upto: 4, Err: fmt.Errorf("four: %w", catalog.ErrDamaged)},
	}
	b := catalog.Backup{Manifest: manifest()}
	b.ClusterID, b.RaftIndex, b.RaftIndexMax, b.Revision, b.RevisionMax, b.RaftTerm = "cafe", 5, 5, 50, 50, 0
	b.Started, b.Finished, b.Alarms, b.Diverged = at.Add(time.Second), at.Add(time.Second), nil, ""
	return catalog.Catalog{Cluster: "prod", Backups: []catalog.Backup{b}, Lineages: []catalog.Lineage{l}}
}

func TestArchiveVerifyOfALog(t *testing.T) {
	got := document.NewArchiveVerify(someLog(), "stored", time.Time{})
	want := document.ArchiveVerify{
		Cluster: "prod", Verdict: "failed", Depth: "stored", Found: 3, Requests: 30, Bytes: 3000,
		Missing: []document.Fault{{Key: "three", Lineage: lineage, Seq: 3, Upto: 3, Message: "three: " + catalog.ErrNotFound.Error()}},
		Damaged: []document.Fault{{Key: "four", Lineage: lineage, Seq: 4, Upto: 4, Message: "four: " + catalog.ErrDamaged.Error()}},
		Gaps: []document.Gap{{
			Kind: catalog.GapLost, Cluster: "prod", Lineage: lineage, NextLineage: lineage, From: 21, To: 40, Positions: 20,
			Since: at.Add(2 * time.Second), Until: at.Add(5 * time.Second), Seconds: 3, Reason: "three: " + catalog.ErrNotFound.Error(),
		}},
		Windows: []document.Window{{Cluster: "prod", Window: catalog.Window{
			Lineage: lineage, Base: id, Segments: 2, Bytes: 2000, Most: 65, Diverged: "two hashes",
			From: catalog.Point{Position: 5, Revision: 50, Time: at.Add(time.Second)},
			To:   catalog.Point{Position: 20, Revision: 65, Time: at.Add(2 * time.Second)},
		}}},
	}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var list document.List
	list.Add(someLog())
	diff = cmp.Diff(want.Windows, list.Windows) + cmp.Diff(want.Gaps, list.Gaps)
	if diff != "" {
		t.Errorf("in the list (-want +got):\n%s", diff)
	}
}

// Each kind of fault alone, and a gap that an archiver recorded itself, makes the verdict.
func TestArchiveVerifyVerdict(t *testing.T) {
	whole := someLog()
	whole.Lineages[0].Segments = whole.Lineages[0].Segments[:2]
	whole.Lineages[0].Faults = nil
	v := document.NewArchiveVerify(whole, "headers", time.Time{}).Verdict
	if v != "passed" {
		t.Errorf("a whole log: %s", v)
	}
	for name, change := range map[string]func(l *catalog.Lineage){
		"missing": func(l *catalog.Lineage) {
			l.Faults = []catalog.Fault{{Seq: 1, Upto: 1, Err: catalog.ErrNotFound}}
		},
		"damaged": func(l *catalog.Lineage) {
			l.Faults = []catalog.Fault{{Seq: 1, Upto: 1, Err: catalog.ErrDamaged}}
		},
		"gap": func(l *catalog.Lineage) {
			l.Segments[1].First++
			l.Segments[1].Reason = "it was purged"
		},
	} {
		c := someLog()
		c.Lineages[0].Segments, c.Lineages[0].Faults = c.Lineages[0].Segments[:2], nil
		change(&c.Lineages[0])
		v := document.NewArchiveVerify(c, "headers", time.Time{}).Verdict
		if v != "failed" {
			t.Errorf("%s: %s", name, v)
		}
	}
}

// A gap that was recorded is none that was lost, and a log that begins anew behind a restore has none: another cluster's
// history is whole by itself. One that begins anew in the same cluster has lost the requests between them.
func TestArchiveVerifyKindsOfGaps(t *testing.T) {
	recorded := someLog()
	l := &recorded.Lineages[0]
	l.Segments, l.Faults = l.Segments[:2], nil
	l.Segments[1].First++
	l.Segments[1].Reason = "it was purged"
	anew := func(clusterID string) catalog.Catalog {
		c := someLog()
		c.Lineages[0].Segments, c.Lineages[0].Faults = c.Lineages[0].Segments[:2], nil
		s := c.Lineages[0].Segments[1]
		s.Lineage, s.Seq, s.Previous, s.ClusterID, s.First, s.Last = "next", 1, "", clusterID, 1000, 1010
		s.After = &segment.After{Lineage: lineage, Seq: 2, Position: 20, Time: s.Written}
		s.Marks = nil
		c.Lineages = append(c.Lineages, catalog.Lineage{ID: "next", Segments: []catalog.Segment{s}})
		return c
	}
	for name, test := range map[string]struct {
		catalog catalog.Catalog
		kind    catalog.GapKind
		verdict string
	}{
		"lost":                {someLog(), catalog.GapLost, "failed"},
		"recorded":            {recorded, catalog.GapRecorded, "failed"},
		"restored":            {anew("beef"), catalog.GapRestored, "passed"},
		"of the same cluster": {anew("0cafe"), catalog.GapRecorded, "failed"},
	} {
		v := document.NewArchiveVerify(test.catalog, "headers", time.Time{})
		if len(v.Gaps) != 1 || v.Gaps[0].Kind != test.kind || v.Verdict != test.verdict {
			t.Errorf("%s: %s, %+v", name, v.Verdict, v.Gaps)
		}
	}
}
