package find

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// Vanished sums up deletions that belong together, such as those of a deleted namespace. An API server deletes the objects of
// a namespace one by one, so right before most of these deletions some objects are already missing.
type Vanished struct {
	Keys     int   // number of deleted keys
	From, To int64 // revisions of the first and the last deletion
	// LastWhole is the last revision at which all keys existed and the namespace was not yet marked for deletion.
	LastWhole           int64
	Lineage             string
	NotBefore, NotAfter time.Time // the deletions lie between them; zero if unknown
	// Mark is the change that marked the namespace, or the first of several, for deletion; nil if there was none or it is unknown.
	Mark    *Change
	Earlier int // number of keys that were deleted before
}

// maxApart is the longest time between two deletions that belong together, if there is no mark.
const maxApart = 5 * time.Minute

// vanished sums up the newest deletions: all since the mark or, without a mark, those that follow each other within minutes.
// It ignores keys that were deleted by the end of a lease, such as Events, and returns nil if there are no others.
func vanished(gone []Gone) *Vanished {
	deletions := slices.DeleteFunc(slices.Clone(gone), func(g Gone) bool {
		return g.Request == replay.ByLease || g.Request == replay.ByDeleteOrLease
	})
	if len(deletions) == 0 {
		return nil
	}
	last := deletions[len(deletions)-1]
	v := &Vanished{To: last.Revision, Lineage: last.Lineage, NotAfter: last.NotAfter}
	first := firstOf(deletions)
	for _, g := range deletions[:first] {
		v.Earlier += g.Vanished
	}
	v.From, v.NotBefore, v.LastWhole = deletions[first].Revision, deletions[first].NotBefore, deletions[first].LastGood()
	for _, g := range deletions[first:] {
		v.Keys += g.Vanished
		v.LastWhole, v.Mark = min(v.LastWhole, g.LastGood()), earlier(v.Mark, g.Mark)
	}
	return v
}

// firstOf returns the index of the first deletion, in order of time, that belongs together with the last.
func firstOf(deletions []Gone) int {
	i := len(deletions) - 1
	mark := deletions[i].Mark
	for i > 0 && deletions[i-1].Lineage == deletions[i].Lineage && belongs(deletions[i-1], deletions[i], mark) {
		i--
		mark = earlier(mark, deletions[i].Mark)
	}
	return i
}

// belongs reports whether two successive deletions belong together. mark is the first mark of after and of the deletions that belong to
// it.
func belongs(before, after Gone, mark *Change) bool {
	if mark != nil {
		return before.Revision > mark.Revision
	}
	return !before.NotAfter.IsZero() && after.NotBefore.Sub(before.NotAfter) <= maxApart
}
