package catalog

import (
	"iter"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Source returns the kind of log that s was read from.
func (s Stretch) Source() segment.Source { return s.Segments[0].Source }

// First returns the first position of s.
func (s Stretch) First() uint64 { return s.Segments[0].First }

// Last returns the last position of s.
func (s Stretch) Last() uint64 { return s.Segments[len(s.Segments)-1].Last }

// SegmentsUpTo returns the number of segments, counted from the first, that are needed to reach position p: 0 if p is before
// s, all if p is after s.
func (s Stretch) SegmentsUpTo(p uint64) int {
	if p < s.First() {
		return 0
	}
	return min(s.SegmentIndex(p)+1, len(s.Segments))
}

// ForRevision returns the number of segments, counted from the first, that suffice to reach revision n of the key space. If
// no mark is that high, known is false and all segments are needed; n may still be out of reach.
func (s Stretch) ForRevision(n int64) (upTo int, known bool) {
	last := s.revisionOf(s.Last())
	if last > 0 {
		return s.SegmentsUpTo(uint64(max(n, 0))), n <= last
	}
	for m := range s.marks() {
		if m.Revision >= n {
			return s.SegmentsUpTo(m.Position), true
		}
	}
	return len(s.Segments), false
}

// RevisionAt returns the key space's revision directly after position p; 0 if unknown.
func (s Stretch) RevisionAt(p uint64) int64 {
	revision := s.revisionOf(p)
	for m := range s.marks() {
		if m.Position == p {
			revision = max(revision, m.Revision)
		}
	}
	return revision
}

// MostRevision returns an upper bound for the last revision in s, which must continue the bases: each request after a known
// revision adds at most one. It returns math.MaxInt64 if no revision is known.
func (s Stretch) MostRevision(bases []Backup) int64 {
	if s.Source() == segment.Watch {
		return int64(s.Last())
	}
	most, later := int64(math.MaxInt64), int64(0) // later: requests in the segments after this one
	for _, segment := range slices.Backward(s.Segments) {
		rest := later + int64(segment.Requests) // requests from the segment's beginning
		for _, m := range segment.Marks {
			switch {
			case m.Revision > 0 && m.Position == segment.Last:
				most = min(most, m.Revision+later)
			case m.Revision > 0:
				most = min(most, m.Revision+rest)
			}
		}
		for _, b := range bases {
			if b.RevisionMax > 0 && b.RaftIndex+1 >= segment.First {
				most = min(most, b.RevisionMax+rest)
			}
		}
		later = rest
	}
	return most
}

// revisionOf returns p if positions in s are revisions, else 0.
func (s Stretch) revisionOf(p uint64) int64 {
	if s.Source() != segment.Watch {
		return 0
	}
	return int64(p)
}

// AtTime returns the last mark that is certainly not later than t, and the next mark; nil if there is none. At t the state
// was that at the mark's position, or at a later position before next's. It is not ok if every mark may be later
// than t.
func (s Stretch) AtTime(t time.Time) (mark segment.Mark, next *segment.Mark, ok bool) {
	for m := range s.marks() {
		if m.NotAfter.After(t) {
			return mark, &m, ok
		}
		mark, ok = m, true
	}
	return mark, nil, ok
}

// marks returns all marks, ascending by position and time.
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

// SegmentIndex returns the index of the first segment that ends at position p or later; len(s.Segments) if p is after s.
func (s Stretch) SegmentIndex(p uint64) int {
	return sort.Search(len(s.Segments), func(i int) bool { return s.Segments[i].Last >= p })
}

// markBefore returns the last mark before position p.
func (s Stretch) markBefore(p uint64) (segment.Mark, bool) {
	for i := min(s.SegmentIndex(p), len(s.Segments)-1); i >= 0; i-- {
		for _, m := range slices.Backward(s.Segments[i].Marks) {
			if m.Position < p {
				return m, true
			}
		}
	}
	return segment.Mark{}, false
}

// markFrom returns the first mark at position p or later.
func (s Stretch) markFrom(p uint64) (segment.Mark, bool) {
	for i := s.SegmentIndex(p); i < len(s.Segments); i++ {
		for _, m := range s.Segments[i].Marks {
			if m.Position >= p {
				return m, true
			}
		}
	}
	return segment.Mark{}, false
}

// LastMark returns the last mark of s. It is not ok if s has no marks.
func (s Stretch) LastMark() (segment.Mark, bool) {
	for i := len(s.Segments) - 1; i >= 0; i-- {
		n := len(s.Segments[i].Marks)
		if n > 0 {
			return s.Segments[i].Marks[n-1], true
		}
	}
	return segment.Mark{}, false
}
