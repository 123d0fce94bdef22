package catalog

import (
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Fold returns the segments of an index with all but the first merged into one folded Segment. isStored reports
// whether a segment is stored with its size. Fold returns segments unchanged if there are fewer than three, if one of them is
// not stored, or if they are not one unbroken and uniform run.
//
// Folding bounds memory: a month of a busy log has a million headers of almost 1 KiB each, and a service reads them often. A
// folded Segment has the bounds of the run, both ends of its chain of digests, its sums, and about one mark a minute. These
// suffice to compute windows and gaps. To be read or replayed it must be unfolded, see Catalog.Unfold.
func Fold(segments []Segment, isStored func(Segment) bool) []Segment {
	allStored := !slices.ContainsFunc(segments, func(s Segment) bool { return !isStored(s) })
	if len(segments) < 3 || !allStored || !unbroken(segments) {
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
	run.Marks = thinOut(marks)
	return []Segment{segments[0], run} // a new array, so that the old one can be freed
}

// unbroken reports whether the segments are one chain without a gap, all of them are alike, and none but the first begins a
// lineage or a part after a gap.
func unbroken(segments []Segment) bool {
	var end tip
	for i := range segments {
		s := &segments[i]
		if end.check(s.Lineage, s) != nil || i > 0 && (!joins(end.last, s) || s.Reason != "" || s.After != nil || !alike(end.last, s)) {
			return false
		}
		end.move(s)
	}
	return true
}

// alike reports whether a and b can be folded together: both or neither are encrypted, one member made both, and the members
// differed in the same way.
func alike(a, b *Segment) bool {
	return (a.Seal.Encryption == "") == (b.Seal.Encryption == "") && a.Member == b.Member && a.Diverged == b.Diverged
}

// markSpacing is the time between two marks that a folded segment keeps, and so the largest error that folding adds to a time.
const markSpacing = time.Minute

// thinOut returns the first and the last of marks, the first and the last with a known revision, and each other mark that is
// markSpacing or more after the last one kept.
func thinOut(marks []segment.Mark) (left []segment.Mark) {
	knows := func(m segment.Mark) bool { return m.Revision > 0 }
	first, last := slices.IndexFunc(marks, knows), len(marks)-1
	for last >= 0 && !knows(marks[last]) {
		last--
	}
	for i, m := range marks {
		if i == 0 || i == len(marks)-1 || i == first || i == last || m.NotAfter.Sub(left[len(left)-1].NotAfter) >= markSpacing {
			left = append(left, m)
		}
	}
	return slices.Clip(left)
}
