package find

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// Vanished sums up deletions that belong together, such as those of a deleted namespace: an API server deletes its objects one
// by one, so before most of these deletions the other objects are already missing.
type Vanished struct {
	Keys     int   // number of deleted keys
	From, To int64 // revisions of the first and the last deletion
	// LastWhole is the last revision at which all keys existed and the namespace was not yet marked for deletion.
	LastWhole           int64
	Lineage             string
	NotBefore, NotAfter time.Time // the deletions lie between them; zero if unknown
	// Mark is the change that marked the namespace for deletion; nil if there was none or it is unknown.
	Mark    *Change
	Earlier int // number of keys that were deleted before
}

// together is the longest time between two deletions that belong together, if there is no mark.
const together = 5 * time.Minute

// vanished sums up the newest deletions: all since the mark or, without a mark, those that follow each other within minutes.
// It ignores keys that were deleted by the end of a lease, such as Events, and returns nil if there are no others.
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
	v.From, v.NotBefore, v.LastWhole = ends[first].Revision, ends[first].NotBefore, ends[first].Change.LastGood()
	if mark != nil {
		v.LastWhole = min(v.LastWhole, mark.LastGood())
	}
	return v
}

// firstOf returns the index of the first deletion, in order of time, that belongs together with the last.
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
