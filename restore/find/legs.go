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

// Window bounds what is looked for; a zero field does not.
type Window struct {
	From, To                 time.Time
	FromRevision, ToRevision int64
	Lineage                  string // this history alone
}

// holds reports whether a change may lie within: one whose time is not known exactly may.
func (w Window) holds(c Change) bool {
	return (w.FromRevision == 0 || c.Revision >= w.FromRevision) && (w.ToRevision == 0 || c.Revision <= w.ToRevision) &&
		(w.From.IsZero() || c.NotAfter.IsZero() || !c.NotAfter.Before(w.From)) &&
		(w.To.IsZero() || !c.NotBefore.After(w.To))
}

// beginsBehind reports whether the window begins surely behind what b holds.
func (w Window) beginsBehind(b catalog.Backup) bool {
	return (!w.From.IsZero() || w.FromRevision > 0) &&
		(w.From.IsZero() || !b.Finished.After(w.From)) && (w.FromRevision == 0 || b.HighestRevision() < w.FromRevision)
}

// endsBefore reports whether what comes behind b is surely from after the window.
func (w Window) endsBefore(b catalog.Backup) bool {
	return !w.To.IsZero() && b.Started.After(w.To) || w.ToRevision > 0 && b.Revision > w.ToRevision
}

// leg is a part of the archive that can be read in one go: a backup, and the log that goes on from it.
type leg struct {
	base    catalog.Backup
	lineage string           // of which history it is; "": of a backup without a log nobody can tell
	stretch *catalog.Stretch // nil: the backup alone
}

// legsOf are those that together show all that the archive has of the window, oldest first. Each costs a fetch and a
// replay, so a backup that the log passes by is none.
func legsOf(c catalog.Catalog, w Window) []leg {
	var legs []leg
	passed := map[catalog.ID]bool{}
	for _, l := range basedLegs(c) {
		for _, b := range l.bases {
			passed[b.ID] = true
		}
		if w.Lineage == "" || w.Lineage == l.lineage {
			l.base = w.first(l.bases)
			legs = append(legs, l.leg)
		}
	}
	for _, b := range c.Backups {
		if w.Lineage == "" && !passed[b.ID] && b.Usable() == nil {
			legs = append(legs, leg{base: b})
		}
	}
	slices.SortFunc(legs, func(a, b leg) int {
		return cmp.Or(a.base.Started.Compare(b.base.Started), cmp.Compare(a.base.ID, b.base.ID))
	})
	return w.cut(legs)
}

// basedLeg is a part of the log with the backups that it can go on from, newest first.
type basedLeg struct {
	leg
	bases []catalog.Backup
}

// basedLegs are all parts of the log that go on from some backup, oldest history first. A backup from about the time of a
// restore may fit the histories before and behind it by all its numbers. It is then of the first that had not ended when
// it was begun; only where a part has no other does it get those too, and the replay's marks decide.
func basedLegs(c catalog.Catalog) []basedLeg {
	var legs []basedLeg
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			if bases := c.Bases(s); len(bases) > 0 {
				legs = append(legs, basedLeg{leg{lineage: l.ID, stretch: &s}, bases})
			}
		}
	}
	owner := map[catalog.ID]int{}
	for i, l := range legs {
		for _, b := range l.bases {
			if before, known := owner[b.ID]; !known || b.Started.After(legs[before].ends()) {
				owner[b.ID] = i
			}
		}
	}
	for i, l := range legs {
		own := slices.DeleteFunc(slices.Clone(l.bases), func(b catalog.Backup) bool { return owner[b.ID] != i })
		if len(own) > 0 {
			legs[i].bases = own
		}
	}
	return legs
}

// ends is when the last of the leg's log had been written, as far as anybody knows.
func (l leg) ends() time.Time {
	if m, ok := l.stretch.LastMark(); ok {
		return m.NotAfter
	}
	return l.stretch.Segments[len(l.stretch.Segments)-1].Written
}

// first is the base to begin with: the newest from before the window or, where there is none, the oldest.
func (w Window) first(newestFirst []catalog.Backup) catalog.Backup {
	for _, b := range newestFirst {
		if w.beginsBehind(b) {
			return b
		}
	}
	return newestFirst[len(newestFirst)-1]
}

// cut drops the legs that lie outside of the window. Of those behind it the first stays, without its log: its database
// may have what happened before.
func (w Window) cut(legs []leg) (kept []leg) {
	behind := false
	for i, l := range legs {
		switch {
		case w.skips(l, legs[i+1:]):
		case w.endsBefore(l.base) && behind:
		case w.endsBefore(l.base):
			kept, behind = append(kept, leg{base: l.base, lineage: l.lineage}), true
		default:
			kept, behind = append(kept, l), false
		}
	}
	return kept
}

// skips reports whether the window begins in a later leg. The same revision may be in several histories.
func (w Window) skips(l leg, later []leg) bool {
	return slices.ContainsFunc(later, func(other leg) bool {
		same := w.FromRevision == 0 || l.lineage == "" || other.lineage == "" || l.lineage == other.lineage
		return same && w.beginsBehind(other.base)
	})
}

// scratchMember is the only member in the plans: no data dir is built.
var scratchMember = plan.Member{Name: "scratch", PeerURLs: []string{"http://127.0.0.1:1"}}

// scratchLayout is what a plan needs, and nothing that is found depends on.
func scratchLayout(dir string) plan.Layout {
	return plan.Layout{
		Members: []plan.Member{scratchMember}, Token: "scratch", Bump: "0", AllowCorrupt: true, OldIsDead: true,
		Into: plan.Into{Name: scratchMember.Name, DataDir: dir},
	}
}

// plan is the way through the leg, up to the end of the window.
func (l leg) plan(w Window, dir string, now time.Time) (plan.Plan, error) {
	cat := catalog.Catalog{Cluster: l.base.Cluster, Backups: []catalog.Backup{l.base}}
	target := plan.Target{Backup: l.base.ID}
	if l.stretch != nil {
		cat.Lineages = []catalog.Lineage{{ID: l.stretch.Lineage, Segments: l.stretch.Segments}}
		target = plan.Target{Lineage: l.stretch.Lineage, Best: true}
		if end, ok := l.end(w); ok {
			target.Position = end
		}
	}
	planned, err := plan.New(cat, target, scratchLayout(dir), now)
	if err != nil {
		return plan.Plan{}, fmt.Errorf("read on from backup %s: %w", l.base.ID, err)
	}
	return planned, nil
}

// end is a position behind which nothing of the window lies.
func (l leg) end(w Window) (uint64, bool) {
	for m := range l.marks() {
		behind := !w.To.IsZero() && m.NotBefore.After(w.To) || w.ToRevision > 0 && m.Revision > w.ToRevision
		if _, end := l.base.Span(l.stretch.Source()); behind && m.Position > end {
			return m.Position, true
		}
	}
	return 0, false
}

// marks are those of the leg's log, ascending.
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
