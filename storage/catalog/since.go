package catalog

import (
	"slices"
	"time"
)

// Since returns c with only the part of its log that matters from t on: of each lineage the segments that reach t, the
// segment before them, and the faults after that segment. A lineage that ended before t is left out if another one
// followed it before t. The caller must know the earlier gaps already.
func (c Catalog) Since(t time.Time) Catalog {
	var left []Lineage
	for _, l := range c.Lineages {
		i := l.reaching(t)
		if i < len(l.Segments) || !c.followed(l.ID, t) {
			left = append(left, l.from(max(0, i-1)))
		}
	}
	c.Lineages = left
	return c
}

// reaching returns the index of the first segment that ends at t or later; len(l.Segments) if there is none.
func (l Lineage) reaching(t time.Time) int {
	i := slices.IndexFunc(l.Segments, func(s Segment) bool { return !s.ends().Before(t) })
	if i < 0 {
		return len(l.Segments)
	}
	return i
}

// followed reports whether a lineage that follows the one called id began before t. A lineage without a successor is kept,
// since the faults at its end may be new.
func (c Catalog) followed(id string, t time.Time) bool {
	return slices.ContainsFunc(c.Lineages, func(l Lineage) bool {
		after := l.After()
		return after != nil && after.Lineage == id && l.FirstWritten().Before(t)
	})
}

// from returns l without the segments before index i, and without their faults.
func (l Lineage) from(i int) Lineage {
	if i == 0 || i >= len(l.Segments) {
		return l
	}
	first := l.Segments[i].Seq
	l.Segments = l.Segments[i:]
	l.Faults = slices.DeleteFunc(slices.Clone(l.Faults), func(f Fault) bool { return f.Seq < first && f.Seq > 0 })
	return l
}

// ends returns a time at which the member had reached the last mark: the mark's NotAfter. Without marks it returns s.Written.
func (s Segment) ends() time.Time {
	n := len(s.Marks)
	if n > 0 {
		return s.Marks[n-1].NotAfter
	}
	return s.Written
}
