package catalog

import (
	"iter"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Source is where s was read.
func (s Stretch) Source() segment.Source { return s.Segments[0].Source }

// First is the position with which s begins.
func (s Stretch) First() uint64 { return s.Segments[0].First }

// Last is the position with which s ends.
func (s Stretch) Last() uint64 { return s.Segments[len(s.Segments)-1].Last }

// ForPosition is how many of its segments, from the first, are needed to reach position p: 0 if p is before them, all
// if it is behind them.
func (s Stretch) ForPosition(p uint64) int {
	if p < s.First() {
		return 0
	}
	return min(s.Holding(p)+1, len(s.Segments))
}

// ForRevision is how many of its segments, from the first, are enough to reach revision n of the key space. It is not
// known if no mark is that high: then all are needed, and n may still not be reached.
func (s Stretch) ForRevision(n int64) (upTo int, known bool) {
	if last := s.revisionOf(s.Last()); last > 0 {
		return s.ForPosition(uint64(max(n, 0))), n <= last
	}
	for m := range s.marks() {
		if m.Revision >= n {
			return s.ForPosition(m.Position), true
		}
	}
	return len(s.Segments), false
}

// RevisionAt is the key space's revision right after position p, as far as that is known; 0 if it is not.
func (s Stretch) RevisionAt(p uint64) int64 {
	revision := s.revisionOf(p)
	for m := range s.marks() {
		if m.Position == p {
			revision = max(revision, m.Revision)
		}
	}
	return revision
}

// MostRevision is a revision that s, which goes on from the bases, cannot be beyond: each request behind a known one makes one at
// most. It is math.MaxInt64 if nothing bounds it.
func (s Stretch) MostRevision(bases []Backup) int64 {
	if s.Source() == segment.Watch {
		return int64(s.Last())
	}
	most, behind := int64(math.MaxInt64), int64(0)
	for _, segment := range slices.Backward(s.Segments) {
		from := behind + int64(segment.Requests) // from the segment's beginning on
		for _, m := range segment.Marks {
			switch {
			case m.Revision > 0 && m.Position == segment.Last:
				most = min(most, m.Revision+behind)
			case m.Revision > 0:
				most = min(most, m.Revision+from)
			}
		}
		for _, b := range bases {
			if b.RevisionMax > 0 && b.RaftIndex+1 >= segment.First {
				most = min(most, b.RevisionMax+from)
			}
		}
		behind = from
	}
	return most
}

// revisionOf is p itself where positions are revisions, else 0.
func (s Stretch) revisionOf(p uint64) int64 {
	if s.Source() != segment.Watch {
		return 0
	}
	return int64(p)
}

// AtTime is the last mark that is surely not later than t, and the first one behind it, nil if there is none yet: the
// state at t was that at the mark's position, or at one before next's. It is not ok if every mark may be later.
func (s Stretch) AtTime(t time.Time) (mark segment.Mark, next *segment.Mark, ok bool) {
	for m := range s.marks() {
		if m.NotAfter.After(t) {
			return mark, &m, ok
		}
		mark, ok = m, true
	}
	return mark, nil, ok
}

// marks are all marks, ascending by position and time.
func (s Stretch) marks() iter.Seq[segment.Mark] {
	return func(yield func(segment.Mark) bool) {
		for i := range s.Segments {
			for _, m := range s.Segments[i].Marks {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// holding is the index of the segment that has position p, or of the first one behind p.
func (s Stretch) Holding(p uint64) int {
	return sort.Search(len(s.Segments), func(i int) bool { return s.Segments[i].Last >= p })
}

// markBefore is the last mark at a position before p.
func (s Stretch) markBefore(p uint64) (segment.Mark, bool) {
	for i := min(s.Holding(p), len(s.Segments)-1); i >= 0; i-- {
		for _, m := range slices.Backward(s.Segments[i].Marks) {
			if m.Position < p {
				return m, true
			}
		}
	}
	return segment.Mark{}, false
}

// markFrom is the first mark at position p or behind it.
func (s Stretch) markFrom(p uint64) (segment.Mark, bool) {
	for i := s.Holding(p); i < len(s.Segments); i++ {
		for _, m := range s.Segments[i].Marks {
			if m.Position >= p {
				return m, true
			}
		}
	}
	return segment.Mark{}, false
}

// LastMark is the last mark of s; not ok if it has none.
func (s Stretch) LastMark() (segment.Mark, bool) {
	for i := len(s.Segments) - 1; i >= 0; i-- {
		if n := len(s.Segments[i].Marks); n > 0 {
			return s.Segments[i].Marks[n-1], true
		}
	}
	return segment.Mark{}, false
}
