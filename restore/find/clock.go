package find

import (
	"slices"
	"sort"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// clock estimates when revisions of one history were made, from marks and backups.
type clock struct {
	points []point
	marks  []segment.Mark // of the current leg, ascending
	base   time.Time      // when the leg's backup started; the changes in the leg's log are later
	end    time.Time      // all of the leg's log was written by then; zero without a log
}

// point is a time interval in which the key space was at a revision from atLeast to atMost.
type point struct {
	atLeast, atMost     int64
	notBefore, notAfter time.Time
}

// enter makes l the current leg, and adds its points.
func (c *clock) enter(l leg) {
	c.points = append(c.points, point{
		atLeast: l.base.Revision, atMost: l.base.HighestRevision(), notBefore: l.base.Started, notAfter: l.base.Finished,
	})
	c.marks, c.base, c.end = nil, l.base.Started, time.Time{}
	for m := range l.marks() {
		c.marks = append(c.marks, m)
		if m.Revision > 0 {
			c.points = append(c.points, point{atLeast: m.Revision, atMost: m.Revision, notBefore: m.NotBefore, notAfter: m.NotAfter})
		}
	}
	if l.stretch != nil {
		last := l.stretch.Segments[len(l.stretch.Segments)-1]
		c.end = last.Written
	}
	slices.SortStableFunc(c.points, func(a, b point) int { return a.notAfter.Compare(b.notAfter) })
}

// atRevision returns the times between which a revision was made; each is zero if unknown.
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

// atPosition returns the times between which the request at a position of the leg's log was applied; each is zero if unknown.
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
