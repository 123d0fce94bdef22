package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// toRevision returns the route that ends right after the request that created the revision. After a restore two histories may
// contain the same revision. Then toRevision takes the newest one; if t names a lineage, usable contains only that history.
func toRevision(c catalog.Catalog, t Target, usable []stretch) (route, error) {
	var r route
	histories := map[string]bool{}
	for _, s := range usable {
		found, ok := s.toRevision(t.Revision)
		if ok {
			r, histories[s.Lineage] = found, true
		}
	}
	if len(histories) > 1 {
		r.notes = append(r.notes, fmt.Sprintf("revision %d is in %d histories, this is the newest: --lineage chooses another",
			t.Revision, len(histories)))
	}
	if len(histories) > 0 {
		return r, nil
	}
	exact := func(b catalog.Backup) bool { // nothing was written while it was taken
		return b.Revision == t.Revision && b.RevisionMax == t.Revision && b.CheckUsable() == nil
	}
	b, ok := newestAllowed(c, t, exact)
	if ok {
		r := backupRoute(b)
		r.reach.Revision = t.Revision
		return r, nil
	}
	return nearestRevision(c, t, usable)
}

// toRevision returns the route in s that ends right after the request that made revision n. It returns false if s certainly
// ends before n, or has no base at or before n.
func (s stretch) toRevision(n int64) (route, bool) {
	upTo, known := s.ForRevision(n)
	if !known && n > s.MostRevision(s.bases) {
		return route{}, false
	}
	upTo = max(1, upTo) // a mark may be right before the first segment
	r, ok := s.routeFrom(upTo, func(b catalog.Backup) bool { return b.HighestRevision() <= n })
	if !ok {
		return route{}, false
	}
	if r.base.Revision == n && r.base.RevisionMax == n { // the base needs no log
		members := r.members
		r = backupRoute(r.base)
		r.members = members
		r.reach.Revision = n
		return r, true
	}
	r.log.Revision = n
	r.reach.Revision = n
	r.reach.NotBefore, r.reach.NotAfter = s.timeBounds(upTo,
		func(m segment.Mark) bool { return m.Revision > 0 && m.Revision < n },
		func(m segment.Mark) bool { return m.Revision >= n })
	if r.base.HighestRevision() == n && r.base.Finished.After(r.reach.NotAfter) { // the base may already contain the revision
		r.reach.NotAfter = r.base.Finished
	}
	return r, true
}

// timeBounds returns the times between which s reached a target state, according to the marks in its first upTo segments. isBefore
// reports whether a mark is at or before the target state, and isAfter whether it is at or after it.
func (s stretch) timeBounds(upTo int, isBefore, isAfter func(segment.Mark) bool) (notBefore, notAfter time.Time) {
	for _, segment := range s.Segments {
		for _, m := range segment.Marks {
			if isBefore(m) {
				notBefore = m.NotBefore
			}
			if isAfter(m) {
				return notBefore, m.NotAfter
			}
		}
	}
	return notBefore, s.writtenBy(upTo)
}

// writtenBy returns a time by which everything in the first upTo segments had been written.
func (s stretch) writtenBy(upTo int) time.Time {
	last := s.Segments[upTo-1]
	n := len(last.Marks)
	if n > 0 && last.Marks[n-1].NotAfter.After(last.Written) {
		return last.Marks[n-1].NotAfter
	}
	return last.Written
}

// nearestRevision returns the route to the nearest restorable point before a revision that c does not contain.
func nearestRevision(c catalog.Catalog, t Target, usable []stretch) (route, error) {
	known := newest(c).Revision
	why := fmt.Sprintf("no backup is at revision %d, and no part of the log that follows a backup contains it", t.Revision)
	if t.Revision > known {
		why = fmt.Sprintf("revision %d is in the future: the newest known is %d", t.Revision, known)
	}
	before := func(b catalog.Backup) bool { return b.HighestRevision() <= t.Revision }
	for _, s := range slices.Backward(usable) {
		if s.hasBase(before) { // toRevision did not find the revision in s, so s ends before it
			return t.orNearest(t.orLater(c, s, s.toEnd(), before), why)
		}
	}
	b, ok := newestAllowed(c, t, before)
	if ok {
		return t.orNearest(backupRoute(b), why)
	}
	return route{}, &UnreachableError{Why: why + t.oldestHint(c, usable)}
}

// oldestHint returns the end of an error message, which names the oldest restorable point; "" if there is none.
func (t Target) oldestHint(c catalog.Catalog, usable []stretch) string {
	var backups []catalog.Backup
	if t.Lineage == "" {
		backups = slices.Clone(c.Backups)
	}
	for _, s := range usable {
		backups = slices.Concat(backups, s.bases, s.doubtful)
	}
	if len(backups) == 0 {
		return ""
	}
	oldest := slices.MinFunc(backups, func(a, b catalog.Backup) int { return a.Started.Compare(b.Started) })
	return fmt.Sprintf("; the oldest restorable point is revision %d at %s", oldest.HighestRevision(), formatTime(oldest.Finished))
}

// toTime returns the route to the last state that is certainly not later than t.Time.
func toTime(c catalog.Catalog, t Target, usable []stretch) (route, error) {
	inTime := func(b catalog.Backup) bool { return !b.Finished.After(t.Time) }
	for i, s := range slices.Backward(usable) {
		r, reachesTime, ok := s.toTime(t.Time)
		if !ok {
			continue // all bases of s are newer than t: an older stretch may contain the point before t
		}
		end := r.reach.NotAfter
		if reachesTime || end.Equal(t.Time) {
			return r, nil
		}
		why := fmt.Sprintf("the last time recorded in the log is %s, before %s", formatTime(end), formatTime(t.Time))
		if i < len(usable)-1 {
			why = fmt.Sprintf("%s is in a gap: the log stops at %s and continues later", formatTime(t.Time), formatTime(end))
		}
		return t.orNearest(t.orLater(c, s, r, inTime), why)
	}
	why := fmt.Sprintf("no part of the log that follows a backup reaches back to %s", formatTime(t.Time))
	b, ok := newestAllowed(c, t, inTime)
	if ok {
		return t.orNearest(backupRoute(b), why)
	}
	return route{}, &UnreachableError{Why: why + t.oldestHint(c, usable)}
}

// toTime returns the route to the last state of s that is certainly not later than t. It ends at a mark, or at a base after
// the mark. toTime prefers a usable base without log to a route from a doubtful base. reachesTime reports whether s has a mark at t or
// later. ok is false if every state of s may be later than t.
func (s stretch) toTime(t time.Time) (r route, reachesTime, ok bool) {
	mark, next, marked := s.AtTime(t)
	if marked {
		r, ok = s.toMark(mark)
	}
	inTime := func(b catalog.Backup) bool { return !b.Finished.After(t) }
	doubtful := slices.ContainsFunc(s.doubtful, func(b catalog.Backup) bool { return b.ID == r.base.ID })
	i := slices.IndexFunc(s.bases, inTime)
	if i >= 0 && (!ok || doubtful || s.begins(s.bases[i]) > mark.Position) {
		r, ok = backupRoute(s.bases[i]), true
	}
	i = slices.IndexFunc(s.doubtful, inTime)
	if i >= 0 && !ok {
		r, ok = backupRoute(s.doubtful[i]), true
	}
	if ok && next != nil {
		r.noteEarly(t, *next)
	}
	return r, next != nil || marked && mark.NotAfter.Equal(t), ok
}

// earlyAfter is how long before the requested time a route may end without a note. Marks are usually about a second apart.
const earlyAfter = 3 * time.Second

// noteEarly adds a note to r if r ends long before t. The note names next, the first mark after t, which may be nearer.
func (r *route) noteEarly(t time.Time, next segment.Mark) {
	early, late := t.Sub(r.reach.NotAfter), next.NotAfter.Sub(t)
	if early < earlyAfter {
		return
	}
	note := fmt.Sprintf("this is %s before %s: the log records no time between %s and %s, for example because another agent took over or the cluster did not answer",
		early.Round(time.Millisecond), formatTime(t), formatTime(r.reach.NotAfter), formatTime(next.NotAfter))
	if next.Revision > r.reach.Revision {
		note += fmt.Sprintf("; --to-revision %d restores the state of at most %s after the requested time, and any earlier revision can be restored too",
			next.Revision, late.Round(time.Millisecond))
		if late < early {
			note += fmt.Sprintf("; revision %d is nearer", next.Revision)
		}
	}
	r.notes = append(r.notes, note)
}

// toMark returns the route to the state at m. It returns false if s has no base at or before m.
func (s stretch) toMark(m segment.Mark) (route, bool) {
	r, ok := s.routeFrom(max(1, s.SegmentsUpTo(m.Position)), func(b catalog.Backup) bool { return s.ends(b) <= m.Position })
	if !ok {
		return route{}, false
	}
	r.log.Position = m.Position
	r.reach = Reach{Position: m.Position, Revision: m.Revision, NotBefore: m.NotBefore, NotAfter: m.NotAfter}
	return r, true
}

// toPosition returns the route that ends right after position t.Position.
func toPosition(t Target, usable []stretch) (route, error) {
	var nearest *stretch
	for _, s := range slices.Backward(usable) {
		if s.Last() < t.Position && nearest == nil {
			nearest = &s
		}
		if t.Position > s.Last() || t.Position+1 < s.First() {
			continue
		}
		r, ok := s.toPosition(t.Position)
		if ok {
			return r, nil
		}
	}
	why := fmt.Sprintf("no part of the log that follows a backup contains position %d", t.Position)
	if nearest == nil {
		return route{}, &UnreachableError{Why: why}
	}
	return t.orNearest(nearest.toEnd(), why)
}

// toPosition returns the route in s that ends right after position p. It returns false if s has no base at or before p.
func (s stretch) toPosition(p uint64) (route, bool) {
	upTo := max(1, s.SegmentsUpTo(p))
	r, ok := s.routeFrom(upTo, func(b catalog.Backup) bool { return s.ends(b) <= p })
	if !ok {
		return route{}, false
	}
	r.log.Position = p
	r.reach.Position, r.reach.Revision = p, s.RevisionAt(p)
	r.reach.NotBefore, r.reach.NotAfter = s.timeBounds(upTo,
		func(m segment.Mark) bool { return m.Position <= p },
		func(m segment.Mark) bool { return m.Position >= p })
	return r, true
}

// begins returns the lower bound, and ends the upper bound, of the position of b's snapshot in s.
func (s stretch) begins(b catalog.Backup) uint64 {
	position, _ := b.Span(s.Source())
	return position
}

func (s stretch) ends(b catalog.Backup) uint64 {
	_, position := b.Span(s.Source())
	return position
}

// toLatest returns the route to the end of the log, or to the newest backup if the log ends before it.
func toLatest(c catalog.Catalog, t Target, usable []stretch) (route, error) {
	last := usable[len(usable)-1]
	r := last.toEnd()
	if newestBackupIsAfter(c, last) && t.Lineage == "" {
		return latestBackup(c, t, fmt.Sprintf("the log ends at %s, before this backup: later writes are not archived", formatTime(r.reach.NotAfter)))
	}
	why := unrestorableAfter(c, last, t.Lineage)
	if why != "" {
		return t.orNearest(r, why)
	}
	return r, nil
}

// toEnd returns the route to the end of s.
func (s stretch) toEnd() route {
	all := len(s.Segments)
	r, _ := s.routeFrom(all, func(catalog.Backup) bool { return true }) // a stretch has a base
	r.reach = Reach{Position: s.Last(), Revision: s.RevisionAt(s.Last()), NotAfter: s.writtenBy(all)}
	mark, ok := s.LastMark()
	if ok {
		r.reach.NotBefore = mark.NotBefore
		if mark.Position == s.Last() {
			r.reach.NotAfter = mark.NotAfter
		}
	}
	// An idle cluster writes no log. So a later backup that contains no more than s proves that nothing was written from the end
	// of s until that backup started. A backup without a quorum proves nothing.
	for _, b := range s.bases {
		if !b.NoQuorum && s.ends(b) <= s.Last() && b.Started.After(r.reach.NotBefore) {
			r.reach.NotBefore = b.Started
		}
	}
	if r.reach.NotBefore.After(r.reach.NotAfter) {
		r.reach.NotAfter = r.reach.NotBefore
	}
	return r
}

// latestBackup returns the route to the newest backup. note explains why the log is not used; "": no note. If a newer backup is
// damaged, it returns an error, or with t.Best the route to the newest undamaged one.
func latestBackup(c catalog.Catalog, t Target, note string) (route, error) {
	b, err := c.Latest()
	if err != nil && (!t.Best || len(c.Backups) == 0) {
		return route{}, err
	}
	if err != nil {
		b = c.Backups[0]
	}
	r := backupRoute(b)
	if err != nil {
		r.notes = append(r.notes, err.Error())
	}
	if note != "" {
		r.notes = append(r.notes, note)
	}
	return r, nil
}

// newestBackupIsAfter reports whether the newest backup was taken after the end of s.
func newestBackupIsAfter(c catalog.Catalog, s stretch) bool {
	b := c.Backups[0]
	c.Backups = c.Backups[:1]
	if len(c.Bases(s.Stretch)) > 0 {
		return false // s continues this backup, regardless of the clocks
	}
	return b.Started.After(s.End().Time) || b.Started.After(s.coveredUntil()) && s.begins(b) > s.Last()
}

// coveredUntil returns a time up to which every write is in s; zero if s has no marks.
func (s stretch) coveredUntil() time.Time {
	mark, _ := s.LastMark()
	return mark.NotBefore
}

// newestAllowed returns the newest allowed backup. It returns one that fails CheckUsable only if there is no other, and none if t names
// a lineage: the history of a backup without a log is unknown.
func newestAllowed(c catalog.Catalog, t Target, allowed func(catalog.Backup) bool) (catalog.Backup, bool) {
	if t.Lineage != "" {
		return catalog.Backup{}, false
	}
	i := slices.IndexFunc(c.Backups, func(b catalog.Backup) bool { return allowed(b) && b.CheckUsable() == nil })
	if i < 0 {
		i = slices.IndexFunc(c.Backups, allowed)
	}
	if i < 0 {
		return catalog.Backup{}, false
	}
	return c.Backups[i], true
}

// unrestorableAfter describes known data after the last usable stretch that cannot be restored; "" if there is none. It considers one
// lineage, or all if lineage is "".
func unrestorableAfter(c catalog.Catalog, last stretch, lineage string) string {
	end := last.End()
	for _, d := range c.DamagedLive() {
		if d.ID.Started().After(last.coveredUntil()) && lineage == "" {
			return fmt.Sprintf("a newer backup is damaged: %v", d.Err)
		}
	}
	at := slices.IndexFunc(c.Lineages, func(l catalog.Lineage) bool { return l.ID == last.Lineage })
	if lineage == "" && at < len(c.Lineages)-1 {
		return fmt.Sprintf("a newer history, lineage %s, cannot be restored: no backup precedes its log", c.Lineages[at+1].ID)
	}
	for _, g := range c.Gaps() {
		within := g.Lineage == last.Lineage && (g.NextLineage == "" || g.NextLineage == last.Lineage)
		if within && (g.From > last.Last() || g.From == 0 && !g.Since.Before(end.Time)) {
			return fmt.Sprintf("the log continues after %s, but that part cannot be restored: %s", formatTime(end.Time), g.Reason)
		}
	}
	return ""
}

// orLater returns the route to the newest allowed backup, without log, if it is later than the end of r and no base
// of s; else r.
func (t Target) orLater(c catalog.Catalog, s stretch, r route, allowed func(catalog.Backup) bool) route {
	b, ok := newestAllowed(c, t, allowed)
	if ok && !s.has(b) && b.Started.After(r.reach.NotAfter) {
		return backupRoute(b)
	}
	return r
}
