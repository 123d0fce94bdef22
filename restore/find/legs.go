package find

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Window limits a search. A zero field does not limit it.
type Window struct {
	From, To                 time.Time
	FromRevision, ToRevision int64
	Lineage                  string // only this history
}

// holds reports whether c may lie within w. If the revision or the time of c is not known exactly, any overlap with w suffices.
func (w Window) holds(c Change) bool {
	first := c.Revision // the first one possible
	if c.After > 0 {
		first = min(c.After+1, c.Revision)
	}
	return (w.FromRevision == 0 || c.Revision >= w.FromRevision) && (w.ToRevision == 0 || first <= w.ToRevision) &&
		(w.From.IsZero() || c.NotAfter.IsZero() || !c.NotAfter.Before(w.From)) &&
		(w.To.IsZero() || !c.NotBefore.After(w.To))
}

// beginsAfter reports whether w certainly begins after the state in b.
func (w Window) beginsAfter(b catalog.Backup) bool {
	return (!w.From.IsZero() || w.FromRevision > 0) &&
		(w.From.IsZero() || !b.Finished.After(w.From)) && (w.FromRevision == 0 || b.HighestRevision() < w.FromRevision)
}

// endsBefore reports whether all changes after b are certainly after w.
func (w Window) endsBefore(b catalog.Backup) bool {
	return !w.To.IsZero() && b.Started.After(w.To) || w.ToRevision > 0 && b.Revision > w.ToRevision
}

// leg is a part of the archive that one replay reads: a backup, and the log that continues it.
type leg struct {
	base    catalog.Backup
	lineage string           // its history; "": unknown, as for a backup without a log
	stretch *catalog.Stretch // nil: only the backup
}

// legsOf returns the legs that together contain all that the archive has of w, oldest first. Each leg costs a
// fetch and a replay, so a backup that the log covers is not a leg.
func legsOf(c catalog.Catalog, w Window) []leg {
	var legs []leg
	covered := map[catalog.ID]bool{}
	for _, l := range basedLegs(c) {
		for _, b := range l.bases {
			covered[b.ID] = true
		}
		if w.Lineage == "" || w.Lineage == l.lineage {
			l.base = w.first(l.bases)
			legs = append(legs, l.leg)
		}
	}
	for _, b := range c.Backups {
		if w.Lineage == "" && !covered[b.ID] && b.CheckUsable() == nil {
			legs = append(legs, leg{base: b})
		}
	}
	slices.SortFunc(legs, func(a, b leg) int {
		return cmp.Or(a.base.Started.Compare(b.base.Started), cmp.Compare(a.base.ID, b.base.ID))
	})
	return w.cut(legs)
}

// basedLeg is a stretch of the log with the backups that it can continue, newest first.
type basedLeg struct {
	leg
	bases []catalog.Backup
}

// basedLegs returns all stretches of the log that continue some backup, oldest history first. A backup from about the time of
// a restore may fit the histories before and after it by all its numbers. It belongs to the first one that had not ended when
// the backup started. A stretch without a backup of its own keeps all backups that
// fit. A replay from a backup of the other history then fails at the marks.
func basedLegs(c catalog.Catalog) []basedLeg {
	var legs []basedLeg
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			bases := c.Bases(s)
			if len(bases) > 0 {
				legs = append(legs, basedLeg{leg{lineage: l.ID, stretch: &s}, bases})
			}
		}
	}
	owner := map[catalog.ID]int{}
	for i, l := range legs {
		for _, b := range l.bases {
			before, known := owner[b.ID]
			if !known || b.Started.After(legs[before].ends()) {
				owner[b.ID] = i
			}
		}
	}
	for i, l := range legs {
		owned := slices.DeleteFunc(slices.Clone(l.bases), func(b catalog.Backup) bool { return owner[b.ID] != i })
		if len(owned) > 0 {
			legs[i].bases = owned
		}
	}
	return legs
}

// ends returns a time by which the cluster had reached the last mark of the leg's log. Without marks it returns the time at which the
// last segment was written.
func (l leg) ends() time.Time {
	m, ok := l.stretch.LastMark()
	if ok {
		return m.NotAfter
	}
	return l.stretch.Segments[len(l.stretch.Segments)-1].Written
}

// first returns the base to begin with: the newest from before the window, or the oldest if there is none.
func (w Window) first(newestFirst []catalog.Backup) catalog.Backup {
	for _, b := range newestFirst {
		if w.beginsAfter(b) {
			return b
		}
	}
	return newestFirst[len(newestFirst)-1]
}

// cut removes the legs outside the window. It keeps the first leg after the window, without its log, since its database may
// contain earlier changes.
func (w Window) cut(legs []leg) (kept []leg) {
	later := false // the last kept leg is after the window
	for i, l := range legs {
		switch {
		case w.skips(l, legs[i+1:]):
		case w.endsBefore(l.base) && later:
		case w.endsBefore(l.base):
			kept, later = append(kept, leg{base: l.base, lineage: l.lineage}), true
		default:
			kept, later = append(kept, l), false
		}
	}
	return kept
}

// skips reports whether l is certainly before the window, which begins in one of the following legs. A window that begins at a revision
// skips no leg of another history, in which the revision may occur too.
func (w Window) skips(l leg, following []leg) bool {
	return slices.ContainsFunc(following, func(other leg) bool {
		same := w.FromRevision == 0 || l.lineage == "" || other.lineage == "" || l.lineage == other.lineage
		return same && w.beginsAfter(other.base)
	})
}

// scratchMember is the only member in the plans of this package. No data dir is built for it.
var scratchMember = plan.Member{Name: "scratch", PeerURLs: []string{"http://127.0.0.1:1"}}

// scratchLayout returns the layout that a plan needs. The results do not depend on it.
func scratchLayout(dir string) plan.Layout {
	return plan.Layout{
		Members: []plan.Member{scratchMember}, Token: "scratch", Bump: "0", AllowCorrupt: true, OldIsDead: true,
		Into: plan.Into{Name: scratchMember.Name, DataDir: dir},
	}
}

// plan returns the plan that reads l up to the end of w.
func (s Search) plan(l leg, w Window, dir string) (plan.Plan, error) {
	cat := catalog.Catalog{Cluster: l.base.Cluster, Backups: []catalog.Backup{l.base}}
	target := plan.Target{Backup: l.base.ID}
	if l.stretch != nil {
		cat.Lineages = []catalog.Lineage{{ID: l.stretch.Lineage, Segments: l.stretch.Segments}}
		target = plan.Target{Lineage: l.stretch.Lineage, Best: true}
		end, ok := l.end(w)
		if ok {
			target.Position = end
		}
	}
	target.Plain = s.Plain
	planned, err := plan.New(cat, target, scratchLayout(dir), s.Now)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("read on from backup %s: %w", l.base.ID, err)
	}
	return planned, nil
}

// end returns a position in the leg's log after which no change belongs to the window; false if no mark shows one.
func (l leg) end(w Window) (uint64, bool) {
	for m := range l.marks() {
		past := !w.To.IsZero() && m.NotBefore.After(w.To) || w.ToRevision > 0 && m.Revision > w.ToRevision
		_, end := l.base.Span(l.stretch.Source())
		if past && m.Position > end {
			return m.Position, true
		}
	}
	return 0, false
}

// marks yields the marks of the leg's log, ascending.
func (l leg) marks() func(yield func(segment.Mark) bool) {
	return func(yield func(segment.Mark) bool) {
		if l.stretch == nil {
			return
		}
		for _, s := range l.stretch.Segments {
			for _, m := range s.Marks {
				if !yield(m) {
					return
				}
			}
		}
	}
}
