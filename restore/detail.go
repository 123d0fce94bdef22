package restore

import (
	"context"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Detail returns c with the segments unfolded in which t lies, and those with which the way to it begins: NewPlan is exact then.
// In the catalog of a long log most segments stand for hundreds.
func Detail(ctx context.Context, c catalog.Catalog, t Target) (catalog.Catalog, error) {
	if t.Backup != "" || t.File != "" {
		return c, nil
	}
	c, err := t.unfold(ctx, c)
	for err == nil {
		r, unreachable := findRoute(c, t)
		if unreachable != nil || r.log == nil || !folded(c, *r.log) {
			return c, nil // why it is unreachable is reported by the plan
		}
		c, err = c.Unfold(ctx, r.log.Lineage, r.log.First)
	}
	return c, fmt.Errorf("read the log around what was asked for: %w", err)
}

// unfold returns c with the segments unfolded in which t may lie.
func (t Target) unfold(ctx context.Context, c catalog.Catalog) (catalog.Catalog, error) {
	for _, l := range slices.Clone(c.Lineages) {
		if t.Lineage != "" && l.ID != t.Lineage {
			continue
		}
		for _, s := range l.Stretches() {
			for i, one := range s.Segments {
				last := t.Revision > 0 && i == len(s.Segments)-1 // by its requests it may reach further than its marks
				if one.Folded == 0 || !last && !t.mayLieIn(one) {
					continue
				}
				var err error
				c, err = c.Unfold(ctx, l.ID, one.Seq)
				if err != nil {
					return c, err
				}
			}
		}
	}
	return c, nil
}

// mayLieIn reports whether t is between the first and the last place that s knows.
func (t Target) mayLieIn(s catalog.Segment) bool {
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

// between reports whether one of marks is before a place and one after it.
func between(marks []segment.Mark, before, after func(segment.Mark) bool) bool {
	return slices.ContainsFunc(marks, before) && slices.ContainsFunc(marks, after)
}

// folded reports whether the first segment of log stands for others in c too.
func folded(c catalog.Catalog, log Log) bool {
	return slices.ContainsFunc(c.Lineages, func(l catalog.Lineage) bool {
		return l.ID == log.Lineage && slices.ContainsFunc(l.Segments, func(s catalog.Segment) bool {
			return s.Folded > 0 && s.FirstSeq() == log.First
		})
	})
}
