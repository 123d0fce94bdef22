package catalog

import (
	"slices"
	"time"
)

// Since is c with no more of its log than what tells of the time from t on: of each lineage the segments that reach t, the
// one before them, which they go on from, and what is wrong behind that one. It is for whoever knows what was lost before.
func (c Catalog) Since(t time.Time) Catalog {
	var left []Lineage
	for _, l := range c.Lineages {
		if i := l.reaching(t); i < len(l.Segments) || !c.followed(l.ID, t) {
			left = append(left, l.from(max(0, i-1)))
		}
	}
	c.Lineages = left
	return c
}

// reaching is the index of the first segment that says what the state was at t or later.
func (l Lineage) reaching(t time.Time) int {
	i := slices.IndexFunc(l.Segments, func(s Segment) bool { return !s.ends().Before(t) })
	if i < 0 {
		return len(l.Segments)
	}
	return i
}

// followed reports whether another lineage has come after the one called id by t. Without that, what is wrong at its end may
// be what has just been lost.
func (c Catalog) followed(id string, t time.Time) bool {
	return slices.ContainsFunc(c.Lineages, func(l Lineage) bool {
		after := l.After()
		return after != nil && after.Lineage == id && l.Begun().Before(t)
	})
}

// from is l without the segments before the i-th, and what is wrong before that.
func (l Lineage) from(i int) Lineage {
	if i == 0 || i >= len(l.Segments) {
		return l
	}
	first := l.Segments[i].Seq
	l.Segments = l.Segments[i:]
	l.Faults = slices.DeleteFunc(slices.Clone(l.Faults), func(f Fault) bool { return f.Seq < first && f.Seq > 0 })
	return l
}

// ends is when the state was surely still in s: its last mark, or when it was written if it has none.
func (s Segment) ends() time.Time {
	if n := len(s.Marks); n > 0 {
		return s.Marks[n-1].NotAfter
	}
	return s.Written
}
