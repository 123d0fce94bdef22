package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestCatalogSince checks which segments and faults Since keeps. Segment n of a lineage ends half a second after second n.
// The first lineage has lost segment 6 and ends with segment 8. The second one follows it, begins at second 60 and has lost
// segment 3.
func TestCatalogSince(t *testing.T) {
	c := stored.OpenCluster(t, mem.New(), "c")
	first := stored.NewWriter(t, "c", stored.LineageID(1)).Some(8)
	stored.StoreSegments(t, c, append(first[:5:5], first[6:]...)...)
	w := stored.NewWriter(t, "c", stored.LineageID(2))
	for n := range 4 {
		e := w.Next(func(h *segment.Header) {
			if n == 0 {
				h.Reason, h.After = "another history", &segment.After{Lineage: stored.LineageID(1), Seq: 8, Position: 80, Time: stored.At(8)}
			}
			h.Written, h.Marks = stored.At(60+n), []segment.Mark{stored.MarkAt(h.Last, 60+n)}
		})
		if n != 2 {
			stored.StoreSegments(t, c, e)
		}
	}
	catalog := stored.Load(t, c, backups.LoadOptions{Log: true})
	for second, want := range map[int]string{
		0:  "1-5 7-8 but 6; 1-2 4-4 but 3",
		1:  "1-5 7-8 but 6; 1-2 4-4 but 3",
		3:  "2-5 7-8 but 6; 1-2 4-4 but 3",
		7:  "5-5 7-8 but 6; 1-2 4-4 but 3", // the gap ends at 7.5
		8:  "7-8 but ; 1-2 4-4 but 3",
		9:  "8-8 but ; 1-2 4-4 but 3", // the second lineage began later
		61: "1-2 4-4 but 3",
		63: "2-2 4-4 but 3",
		64: "4-4 but ",
	} {
		var got []string
		since := catalog.Since(stored.At(second))
		for _, l := range since.Lineages {
			var faults []string
			for _, f := range l.Faults {
				faults = append(faults, fmt.Sprint(f.Seq))
			}
			got = append(got, stored.Spans(l.Stretches())+" but "+strings.Join(faults, " "))
		}
		all := strings.Join(got, "; ")
		if all != want {
			t.Errorf("since second %d: %q, want %q", second, all, want)
		}
	}
	after := catalog.Lineages
	if len(after) != 2 || len(after[0].Segments) != 7 || len(after[0].Faults) != 1 {
		t.Errorf("what was asked has changed: %+v", after)
	}
}

// TestCatalogSinceKeepsALostEnd checks that Since never omits lost segments at the end of a lineage without a
// successor: the loss may be new.
func TestCatalogSinceKeepsALostEnd(t *testing.T) {
	c := stored.OpenCluster(t, mem.New(), "c")
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(4)
	stored.StoreSegments(t, c, all[:3]...)
	stored.StoreIndex(t, c, stored.SegmentsOf(all))
	since := stored.Load(t, c, backups.LoadOptions{Log: true}).Since(stored.At(1000))
	stored.WantLineage(t, "long after", since.Lineages[0], "3-3", "4 missing")
	gaps := since.Gaps()
	if len(gaps) != 1 || !gaps[0].Until.IsZero() {
		t.Errorf("gaps: %+v", gaps)
	}
}
