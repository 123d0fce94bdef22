package repository

import (
	"cmp"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// fold makes one Segment of all but the first of an index's, if each goes on where the one before ends and there has the size
// that the index says. Without that a month of a busy log, a million headers of most of a kilobyte, would be in memory at
// each look of a service. A fold has the run's bounds, the ends of its chain, its sums, and of its marks about one a minute:
// what windows and gaps are told by. It can be neither read nor replayed.
func fold(segments []Segment, there []listed) []Segment {
	if len(segments) < 3 || !stored(segments, there) || !unbroken(segments) {
		return segments
	}
	run := segments[len(segments)-1]
	run.First, run.Previous, run.Folded = segments[1].First, segments[1].Previous, uint64(len(segments)-2)
	run.Requests, run.Size, run.Hashes = 0, 0, nil
	var marks []segment.Mark
	for _, s := range segments[1:] {
		run.Requests += s.Requests
		run.Size += s.Size
		marks = append(marks, s.Marks...)
	}
	run.Marks = sparsely(marks)
	return []Segment{segments[0], run} // not of the same array, which is to be forgotten
}

// stored reports whether all of them are listed, one behind the other.
func stored(segments []Segment, there []listed) bool {
	at, found := slices.BinarySearchFunc(there, segments[0].Seq, func(l listed, seq uint64) int { return cmp.Compare(l.seq, seq) })
	return found && len(there)-at >= len(segments) && slices.EqualFunc(segments, there[at:at+len(segments)], func(s Segment, l listed) bool {
		return s.Seq == l.seq && s.Size == l.size
	})
}

// unbroken reports whether nothing ends or begins anew among them.
func unbroken(segments []Segment) bool {
	var end tip
	for i := range segments {
		s := &segments[i]
		if end.refuses(s.Lineage, s) != nil || i > 0 && (!joins(end.last, s) || s.Reason != "" || s.After != nil) {
			return false
		}
		end.move(s)
	}
	return true
}

// sparse is how far marks are apart that fold keeps: by as much what it says of a moment may be less exact.
const sparse = time.Minute

// sparsely are the first and the last of marks, and between them those that are far enough behind the one before.
func sparsely(marks []segment.Mark) (left []segment.Mark) {
	for i, m := range marks {
		if i == 0 || i == len(marks)-1 || m.NotAfter.Sub(left[len(left)-1].NotAfter) >= sparse {
			left = append(left, m)
		}
	}
	return left
}
