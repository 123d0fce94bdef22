package find

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// Vanished sums up ends of keys that belong together, such as those of a namespace that was deleted: an API server deletes its objects
// one by one, so each end alone has a state before it in which most of the others are gone already.
type Vanished struct {
	Keys     int   // how many are gone
	From, To int64 // the revisions of the first and the last end
	// LastWhole is the last revision at which all of them were there, and nothing was marked for deletion.
	LastWhole           int64
	Lineage             string
	NotBefore, NotAfter time.Time // moments between which they went; zero where it is not known
	// Mark is the change that marked the namespace for deletion; nil if there was none or it is not known.
	Mark    *Change
	Earlier int // keys that were gone before
}

// together is the longest time between two ends that belong together, where there is no mark.
const together = 5 * time.Minute

// vanished sums up the newest ends: all since the mark or, without one, those that follow each other within minutes. What the end of a
// lease took, as it takes Events, belongs to none. It returns nil if there are no others.
func vanished(gone []Gone, mark *Change) *Vanished {
	ends := slices.DeleteFunc(slices.Clone(gone), func(g Gone) bool {
		return g.Request == replay.ByLease || g.Request == replay.ByDeleteOrLease
	})
	if len(ends) == 0 {
		return nil
	}
	last := ends[len(ends)-1]
	if mark != nil && (mark.Lineage != last.Lineage || mark.Revision > last.Revision) {
		mark = nil
	}
	v := &Vanished{To: last.Revision, Lineage: last.Lineage, NotAfter: last.NotAfter, Mark: mark}
	first := firstOf(ends, mark)
	for _, g := range ends[:first] {
		v.Earlier += g.Vanished
	}
	for _, g := range ends[first:] {
		v.Keys += g.Vanished
	}
	v.From, v.NotBefore, v.LastWhole = ends[first].Revision, ends[first].NotBefore, ends[first].LastGood()
	if mark != nil {
		v.LastWhole = min(v.LastWhole, mark.LastGood())
	}
	return v
}

// firstOf returns the index of the first of the ends, which are ordered by time, that belongs with the last.
func firstOf(ends []Gone, mark *Change) int {
	i := len(ends) - 1
	for i > 0 && ends[i-1].Lineage == ends[i].Lineage && belongs(ends[i-1], ends[i], mark) {
		i--
	}
	return i
}

func belongs(before, after Gone, mark *Change) bool {
	if mark != nil {
		return before.Revision > mark.Revision
	}
	return !before.NotAfter.IsZero() && after.NotBefore.Sub(before.NotAfter) <= together
}
