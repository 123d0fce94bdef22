package find

import (
	"slices"
	"sort"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// clock tells when things of one history happened, as far as marks and backups say.
type clock struct {
	points []point
	marks  []segment.Mark // of the leg that is being read, ascending
	base   time.Time      // the leg's backup was begun: what its log adds came later
	end    time.Time      // all of the leg's log had been written
}

// point is a moment at which the key space was at a revision: it had reached atLeast, and was not beyond atMost.
type point struct {
	atLeast, atMost     int64
	notBefore, notAfter time.Time
}

// enter takes up what a leg knows.
func (c *clock) enter(l leg) {
	c.points = append(c.points, point{l.base.Revision, l.base.HighestRevision(), l.base.Started, l.base.Finished})
	c.marks, c.base, c.end = nil, l.base.Started, time.Time{}
	for m := range l.marks() {
		c.marks = append(c.marks, m)
		if m.Revision > 0 {
			c.points = append(c.points, point{m.Revision, m.Revision, m.NotBefore, m.NotAfter})
		}
	}
	if l.stretch != nil {
		last := l.stretch.Segments[len(l.stretch.Segments)-1]
		c.end = last.Written
	}
	slices.SortStableFunc(c.points, func(a, b point) int { return a.notAfter.Compare(b.notAfter) })
}

// atRevision is when a revision was made. Zero where nothing says so.
func (c *clock) atRevision(revision int64) (notBefore, notAfter time.Time) {
	for _, p := range c.points {
		if p.atMost < revision && p.notBefore.After(notBefore) {
			notBefore = p.notBefore
		}
		if p.atLeast >= revision && notAfter.IsZero() {
			notAfter = p.notAfter
		}
	}
	return notBefore, notAfter
}

// atPosition is when the request at a position of the leg's log was applied.
func (c *clock) atPosition(position uint64) (notBefore, notAfter time.Time) {
	i := sort.Search(len(c.marks), func(i int) bool { return c.marks[i].Position >= position })
	notBefore, notAfter = c.base, c.end
	if i > 0 && c.marks[i-1].NotBefore.After(notBefore) {
		notBefore = c.marks[i-1].NotBefore
	}
	if i < len(c.marks) {
		notAfter = c.marks[i].NotAfter
	}
	return notBefore, notAfter
}
