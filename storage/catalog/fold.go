package catalog

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Fold makes one Segment of all but the first of an index's, if each goes on where the one before ends and there has the size
// that the index says. Without that a month of a busy log, a million headers of most of a kilobyte, would be in memory at
// each look of a service. A fold has the run's bounds, the ends of its chain, its sums, and of its marks about one a minute:
// what windows and gaps are known by. To be read or replayed it must be unfolded.
func Fold(segments []Segment, there func(Segment) bool) []Segment {
	stored := !slices.ContainsFunc(segments, func(s Segment) bool { return !there(s) })
	if len(segments) < 3 || !stored || !unbroken(segments) {
		return segments
	}
	run := segments[len(segments)-1]
	run.First, run.Previous, run.Folded = segments[1].First, segments[1].Previous, uint64(len(segments)-2)
	run.Requests, run.Size, run.Hashes, run.GuessedLeases = 0, 0, nil, 0
	var marks []segment.Mark
	for _, s := range segments[1:] {
		run.Requests += s.Requests
		run.Size += s.Size
		run.GuessedLeases += s.GuessedLeases
		run.Hashes = append(run.Hashes, s.Hashes...)
		marks = append(marks, s.Marks...)
	}
	run.Marks = sparsely(marks)
	return []Segment{segments[0], run} // not of the same array, which is to be forgotten
}

// unbroken reports whether nothing ends or begins anew among them, and all are alike.
func unbroken(segments []Segment) bool {
	var end tip
	for i := range segments {
		s := &segments[i]
		if end.refuses(s.Lineage, s) != nil || i > 0 && (!joins(end.last, s) || s.Reason != "" || s.After != nil || !alike(end.last, s)) {
			return false
		}
		end.move(s)
	}
	return true
}

// alike reports whether a fold may stand for both: either both or none are encrypted, they are by one member, and the members differed
// in the same way.
func alike(a, b *Segment) bool {
	return (a.Seal.Encryption == "") == (b.Seal.Encryption == "") && a.Member == b.Member && a.Diverged == b.Diverged
}

// sparse is how far marks are apart that fold keeps: by as much what it says of a moment may be less exact.
const sparse = time.Minute

// sparsely returns the first and the last of marks, the first and the last that know the revision, and between them those that
// are far enough from the one before.
func sparsely(marks []segment.Mark) (left []segment.Mark) {
	knows := func(m segment.Mark) bool { return m.Revision > 0 }
	first, last := slices.IndexFunc(marks, knows), len(marks)-1
	for last >= 0 && !knows(marks[last]) {
		last--
	}
	for i, m := range marks {
		if i == 0 || i == len(marks)-1 || i == first || i == last || m.NotAfter.Sub(left[len(left)-1].NotAfter) >= sparse {
			left = append(left, m)
		}
	}
	return slices.Clip(left)
}
