package repository_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Segment n of a lineage ends half a second behind second n. The first has lost its sixth, and ended with its eighth; the
// second one, after it, began at second 60 and has lost its third.
func TestCatalogSince(t *testing.T) {
	c := openCluster(t, mem.New(), "c")
	first := newWriter(t, "c", lineageID(1)).some(8)
	storeSegments(t, c, append(first[:5:5], first[6:]...)...)
	w := newWriter(t, "c", lineageID(2))
	for n := range 4 {
		e := w.next(func(h *segment.Header) {
			if n == 0 {
				h.Reason, h.After = "another history", &segment.After{Lineage: lineageID(1), Seq: 8, Position: 80, Time: at(8)}
			}
			h.Written, h.Marks = at(60+n), []segment.Mark{markAt(h.Last, 60+n)}
		})
		if n != 2 {
			storeSegments(t, c, e)
		}
	}
	catalog := load(t, c, repository.LoadOptions{Log: true})
	for second, want := range map[int]string{
		0:  "1-5 7-8 but 6; 1-2 4-4 but 3",
		1:  "1-5 7-8 but 6; 1-2 4-4 but 3",
		3:  "2-5 7-8 but 6; 1-2 4-4 but 3",
		7:  "5-5 7-8 but 6; 1-2 4-4 but 3", // the gap ended then
		8:  "7-8 but ; 1-2 4-4 but 3",
		9:  "8-8 but ; 1-2 4-4 but 3", // nothing had followed it
		61: "1-2 4-4 but 3",
		63: "2-2 4-4 but 3",
		64: "4-4 but ",
	} {
		var got []string
		since := catalog.Since(at(second))
		for _, l := range since.Lineages {
			var faults []string
			for _, f := range l.Faults {
				faults = append(faults, fmt.Sprint(f.Seq))
			}
			got = append(got, spans(l.Stretches())+" but "+strings.Join(faults, " "))
		}
		if got := strings.Join(got, "; "); got != want {
			t.Errorf("since second %d: %q, want %q", second, got, want)
		}
	}
	if after := catalog.Lineages; len(after) != 2 || len(after[0].Segments) != 7 || len(after[0].Faults) != 1 {
		t.Errorf("what was asked has changed: %+v", after)
	}
}

// What was lost from the end of a lineage that nothing follows is never too old: it may be what was just lost.
func TestCatalogSinceKeepsWhatIsLostBehind(t *testing.T) {
	c := openCluster(t, mem.New(), "c")
	all := newWriter(t, "c", lineageID(1)).some(4)
	storeSegments(t, c, all[:3]...)
	storeIndex(t, c, segmentsOf(all))
	since := load(t, c, repository.LoadOptions{Log: true}).Since(at(1000))
	wantLineage(t, "long after", since.Lineages[0], "3-3", "4 missing")
	if gaps := since.Gaps(); len(gaps) != 1 || !gaps[0].Until.IsZero() {
		t.Errorf("gaps: %+v", gaps)
	}
}
