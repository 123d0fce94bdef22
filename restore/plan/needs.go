package plan

import (
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Needs returns the folded segments of c that must be unfolded before a plan for t around met is exact; none if it is exact. A folded
// segment is a catalog's short form of up to hundreds of stored segments. Unfolding replaces it by these. Needs first returns the
// segments in which t may lie. After they are unfolded, it may return the segment with which the route to t begins.
func Needs(c catalog.Catalog, t Target, met ...Blocked) []catalog.Segment {
	if t.Backup != "" || t.File != "" {
		return nil
	}
	for _, b := range met {
		folded, ok := b.fold(c)
		if ok {
			return []catalog.Segment{folded}
		}
		var err error
		c, t, err = b.without(c, t)
		if err != nil {
			return nil // Around reports it
		}
	}
	folds := t.folds(c)
	if len(folds) > 0 {
		return folds
	}
	r, err := findRoute(c, t)
	if err != nil || r.log == nil {
		return nil // New reports it
	}
	folded, ok := c.FoldOf(r.log.Lineage, r.log.First)
	if ok {
		return []catalog.Segment{folded}
	}
	return nil
}

// folds returns the folded segments in which t may lie.
func (t Target) folds(c catalog.Catalog) (folds []catalog.Segment) {
	for _, l := range c.Lineages {
		if t.Lineage != "" && l.ID != t.Lineage {
			continue
		}
		for _, s := range l.Stretches() {
			for i, one := range s.Segments {
				last := t.Revision > 0 && i == len(s.Segments)-1 // the last segment's requests may reach further than its marks
				if one.Folded > 0 && (last || t.mayContain(one)) {
					folds = append(folds, one)
				}
			}
		}
	}
	return folds
}

// mayContain reports whether t lies within the positions of s or, for a revision or a time, within its marks.
func (t Target) mayContain(s catalog.Segment) bool {
	switch {
	case t.Revision > 0 && s.Source == segment.Watch:
		return s.First <= uint64(t.Revision) && uint64(t.Revision) <= s.Last
	case t.Revision > 0:
		return between(s.Marks, func(m segment.Mark) bool { return m.Revision > 0 && m.Revision <= t.Revision },
			func(m segment.Mark) bool { return m.Revision >= t.Revision })
	case !t.Time.IsZero():
		return between(s.Marks, func(m segment.Mark) bool { return !m.NotAfter.After(t.Time) },
			func(m segment.Mark) bool { return !m.NotAfter.Before(t.Time) })
	}
	return s.First <= t.Position && t.Position <= s.Last
}

// between reports whether one of marks is before a target and one after it.
func between(marks []segment.Mark, before, after func(segment.Mark) bool) bool {
	return slices.ContainsFunc(marks, before) && slices.ContainsFunc(marks, after)
}
