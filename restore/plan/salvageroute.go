package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// withoutLog returns the route to t without an archived log. It begins with a database on a disk or, if none leads to t, with the newest
// backup that a disk's log continues.
func withoutLog(c catalog.Catalog, t Target) (route, error) {
	r, err := fromDisks(t)
	if err == nil {
		return r, nil
	}
	for _, b := range c.Backups {
		from := segment.End{Position: b.RaftIndex}
		l, ok := t.Disks.log(from, t.Revision)
		most := b.HighestRevision() + int64(l.Certain.Requests+l.Probable.Requests)
		if !ok || t.Revision > 0 && (t.Revision < b.HighestRevision() || t.Revision > most) {
			continue
		}
		r := backupRoute(b)
		r.reach.NotAfter = time.Time{} // the disk's log contains later writes, and no times
		r.setDisks(t, nil, &l)
		r.notes = append(r.notes, "no database on the disks leads there: the backup is the base")
		return r, nil
	}
	return route{}, err
}

// fromDisks returns the route that reaches furthest of those that begin with a disk's database at or before the target.
func fromDisks(t Target) (route, error) {
	d, tooFar := t.Disks, int64(0)
	var best route
	for _, db := range d.databases() {
		if t.Revision > 0 && db.Revision > t.Revision {
			tooFar = db.Revision
			continue
		}
		r := d.routeOver(t, db)
		if best.salvage == nil || r.salvage.end() > best.salvage.end() {
			best = r
		}
	}
	if best.salvage == nil {
		if tooFar > 0 {
			return route{}, &UnreachableError{
				Why: fmt.Sprintf("every database on the disks is past it, at revision %d: only an older backup can lead there", tooFar),
			}
		}
		return route{}, fmt.Errorf("every database on the disks is %w: use a backup as the base (--repo): %s",
			catalog.ErrDamaged, d.findings())
	}
	most := best.salvage.mostRevision()
	if t.Revision > most {
		why := fmt.Sprintf("revision %d is after the end of the disks' logs, which reach revision %d at most", t.Revision, most)
		return t.toEndOfDisks(best, why)
	}
	return best, nil
}

// databases returns the usable databases, the furthest first.
func (d *Disks) databases() (all []disk.Database) {
	for _, disk := range d.Found {
		for _, db := range disk.Databases {
			if db.Damage == "" && (d.Base == "" || d.Base == disk.Dir) {
				all = append(all, db)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b disk.Database) int { return cmp.Compare(b.Index, a.Index) })
	return all
}

func (d *Disks) findings() string {
	var all []string
	for _, r := range d.summaries() {
		all = append(all, r.Dir+": "+strings.Join(r.Findings, ", "))
	}
	return strings.Join(all, "; ")
}

// routeOver returns the route from a database through the log that continues it, if there is one.
func (d *Disks) routeOver(t Target, db disk.Database) route {
	var r route
	var log *DiskLog
	l, ok := d.log(segment.End{Position: db.Index, Term: db.Term}, t.Revision)
	if ok && l.UpTo > db.Index {
		log = &l
	}
	if t.Revision > 0 && t.Revision == db.Revision {
		log = nil // the database is at the target; the log after it may begin with requests that make no revision
	}
	r.setDisks(t, &DiskDatabase{File: db.File, Size: db.Size, Index: db.Index, Term: db.Term, Revision: db.Revision}, log)
	return r
}

// log returns the part of the furthest log after an entry; ok is false if no log continues that entry.
func (d *Disks) log(after segment.End, revision int64) (DiskLog, bool) {
	best, ok := d.furthest(func(l disk.Log) bool {
		term := l.Term(after.Position)
		return l.ContinuesFrom(after.Position) && l.Last.Digest != "" && (term == 0 || after.Term == 0 || term == after.Term)
	})
	if !ok {
		return DiskLog{}, false
	}
	l := best.Log
	members, at := d.members()
	ahead, _ := d.furthest(anyLog)
	upTo := l.Last.Position
	commit := min(max(d.committed(), after.Position), upTo)
	all := d.Tail == TailAll || best.Dir == ahead.Dir && d.majority(members, at, l)
	if !all {
		upTo = commit
	}
	count := func(from, to uint64) Part { return countPart(l, from, to) }
	return DiskLog{
		Dir: best.Dir, After: after, UpTo: upTo, End: l.Last, Revision: revision, Version: d.version(), Commit: commit,
		Certain: count(after.Position, commit), Probable: count(commit, upTo), Unusable: unusable(l, after.Position, upTo),
	}, true
}

// unusable returns DiskLog.Unusable for the part of l after one position, up to and including another.
func unusable(l disk.Log, from, to uint64) string {
	i := slices.IndexFunc(l.Unusable, func(u disk.Unusable) bool { return u.Position > from && u.Position <= to })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("the request at position %d cannot be replayed (%s)", l.Unusable[i].Position, l.Unusable[i].Reason)
}

// countPart counts the part of l after one position, up to and including another.
func countPart(l disk.Log, from, to uint64) Part {
	return Part{Positions: max(to, from) - from, Requests: l.Count(from, to)}
}

// continuedByDisks returns the route through the repository's log, and then through a disk's. A target within the repository's log
// needs no disk.
func continuedByDisks(c catalog.Catalog, t Target) (route, error) {
	usable := stretches(c, t.Lineage)
	if !t.Time.IsZero() || t.Position > 0 || t.archived(usable) {
		return t.withoutDisks(c, "the repository reaches the target: the disks are not needed")
	}
	if len(usable) == 0 {
		return withoutLog(c, t)
	}
	last := usable[len(usable)-1]
	end := last.Segments[len(last.Segments)-1].End
	d, ok := t.Disks.furthest(anyLog)
	if ok && d.Log.Last.Position <= end.Position && !t.Disks.differs(end) {
		return t.withoutDisks(c, fmt.Sprintf("the disks' logs end at position %d, and the repository's at %d: the disks are not needed",
			d.Log.Last.Position, end.Position))
	}
	log, ok := t.Disks.log(end, t.Revision)
	if !ok || !t.Disks.holds(log.Dir, end) {
		return t.routeIfDisjoint(last, end)
	}
	log.Version = t.Disks.Version // the repository's log contains the exact version, a disk only the minor one
	all := len(last.Segments)
	r, ok := last.routeFrom(all, func(b catalog.Backup) bool { return t.Revision == 0 || b.HighestRevision() <= t.Revision })
	if !ok {
		return t.withoutDisks(c, "")
	}
	r.reach.NotBefore = last.toEnd().reach.NotBefore
	r.setDisks(t, nil, &log)
	return r, nil
}

// archived reports whether t is a revision that the repository's log is known to reach.
func (t Target) archived(usable []stretch) bool {
	return t.Revision > 0 && slices.ContainsFunc(usable, func(s stretch) bool {
		_, known := s.ForRevision(t.Revision)
		return known
	})
}

// withoutDisks returns the route to t through the repository alone.
func (t Target) withoutDisks(c catalog.Catalog, note string) (route, error) {
	t.Disks = nil
	r, err := t.repositoryRoute(c)
	if err == nil && note != "" {
		r.notes = append(r.notes, note)
	}
	return r, err
}

func anyLog(disk.Log) bool { return true }

// differs reports whether a disk's log has another entry at the end of the repository's log.
func (d *Disks) differs(end segment.End) bool {
	return slices.ContainsFunc(d.Found, func(disk disk.Disk) bool {
		return slices.ContainsFunc(disk.Log.Ends, func(e segment.End) bool { return e.Position == end.Position && e != end })
	})
}

// holds reports whether the log in dir has this entry.
func (d *Disks) holds(dir string, end segment.End) bool {
	return slices.ContainsFunc(d.Found, func(disk disk.Disk) bool {
		return disk.Dir == dir && slices.Contains(disk.Log.Ends, end)
	})
}

// aloneNote ends the explanation of routeIfDisjoint.
const aloneNote = "; without --from-data-dir, a restore from the repository alone reaches that position"

// routeIfDisjoint returns the route to the nearest point if the disks' logs do not continue the repository's. It uses the disks alone, or
// the repository alone if no database on the disks leads to t.
func (t Target) routeIfDisjoint(last stretch, end segment.End) (route, error) {
	why := fmt.Sprintf("the disks' logs do not continue the repository's log, which ends at position %d of term %d (%s)", end.Position, end.Term, t.Disks.spans())
	ends, ok := t.Disks.furthest(func(l disk.Log) bool { return l.ContinuesFrom(end.Position) })
	if ok {
		why += fmt.Sprintf(": %s has another entry there, so they are of another history", ends.Dir)
	}
	disks, err := fromDisks(t)
	if err != nil {
		return t.orNearest(last.toEnd(), why+aloneNote)
	}
	return t.orNearest(disks, why+aloneNote)
}

func (d *Disks) spans() string {
	var all []string
	for _, disk := range d.Found {
		all = append(all, fmt.Sprintf("%s: %d to %d", disk.Dir, disk.Log.First, disk.Log.Last.Position))
	}
	return strings.Join(all, ", ")
}

// toEndOfDisks makes r lead to the end of the disks in place of its target revision. It returns r if t.Best is set, else an error with why.
func (t Target) toEndOfDisks(r route, why string) (route, error) {
	if r.salvage.Log != nil {
		log := *r.salvage.Log
		log.Revision = 0
		r.salvage.Log = &log
	}
	r.reach.Revision = 0
	return t.orNearest(r, why)
}

// setDisks adds a database and a log of the disks to r.
func (r *route) setDisks(t Target, db *DiskDatabase, log *DiskLog) {
	d := t.Disks
	members, at := d.members()
	r.salvage = &Salvage{Members: members, Disks: d.summaries(), Database: db, Log: log}
	ahead, _ := d.furthest(anyLog)
	end := r.salvage.end()
	r.salvage.Majority = end >= ahead.Log.Last.Position && d.majority(members, at, ahead.Log)
	r.salvage.LeftOut = d.leftOut(r.salvage)
	r.salvage.Disagreement = d.disagreement()
	r.salvage.ClusterID = d.clusterID()
	r.reach.Position = end
	if t.Revision > 0 {
		r.reach.Revision = t.Revision
	}
}

// leftOut counts the positions after the end of s in the log that s uses or, if it uses none, in the one that continues its database.
func (d *Disks) leftOut(s *Salvage) Part {
	log := s.Log
	if log == nil {
		l, ok := d.log(segment.End{Position: s.Database.Index, Term: s.Database.Term}, 0)
		if !ok {
			return Part{}
		}
		log = &l
	}
	i := slices.IndexFunc(d.Found, func(disk disk.Disk) bool { return disk.Dir == log.Dir })
	return countPart(d.Found[i].Log, s.end(), log.End.Position)
}

// end returns the last restored position.
func (s *Salvage) end() uint64 {
	if s.Log != nil {
		return s.Log.UpTo
	}
	return s.Database.Index
}

// unusableAhead returns a disk whose log reaches further than s but cannot be used; ok is false if there is none.
func (s *Salvage) unusableAhead() (d DiskSummary, ok bool) {
	from := s.end()
	term := uint64(0) // of the last restored entry
	if s.Log != nil {
		from, term = s.Log.End.Position, s.Log.End.Term
	} else if s.Database != nil {
		term = s.Database.Term
	}
	i := slices.IndexFunc(s.Disks, func(d DiskSummary) bool {
		further := d.Term > term || d.Term == term && d.Last > from
		return further && (s.Log != nil || d.First > from+1)
	})
	if i < 0 {
		return d, false
	}
	return s.Disks[i], true
}

// mostRevision returns an upper bound for the last revision of s: a request adds one revision at most.
func (s *Salvage) mostRevision() int64 {
	if s.Log == nil {
		return s.Database.Revision
	}
	return s.Database.Revision + int64(s.Log.Certain.Requests+s.Log.Probable.Requests)
}

// salvageNotes returns notes on the disks of p, and on data that may be missing.
func salvageNotes(p Plan) (notes []string) {
	s := p.Salvage
	if s == nil {
		return nil
	}
	for _, d := range s.Disks {
		for _, finding := range d.Findings {
			notes = append(notes, d.Dir+": "+finding)
		}
	}
	if s.Disagreement != "" {
		notes = append(notes, s.Disagreement+": the base decides which history is restored; --salvage-base chooses another data dir as the base")
	}
	notes = append(notes, p.lossNote())
	d, ok := s.unusableAhead()
	switch {
	case ok:
		notes = append(notes, fmt.Sprintf("the log in %s reaches further, but cannot be used: it begins at position %d, and no base reaches that position", d.Dir, d.First))
	case s.LeftOut.Positions > 0 && !p.stopsBefore():
		notes = append(notes, fmt.Sprintf("%d requests in %d positions at the end of the log are left out because nothing shows whether they were committed: --salvage-tail all includes them",
			s.LeftOut.Requests, s.LeftOut.Positions))
	}
	if s.Log == nil {
		return notes
	}
	if s.Log.Unusable != "" {
		notes = append(notes, s.Log.Unusable+": a restore that gets there needs --best, and ends right before it")
	}
	minor, anyOf := strings.CutSuffix(s.Log.Version, "."+newestPatch)
	if anyOf {
		notes = append(notes, fmt.Sprintf("the log is replayed by the rules of the newest etcd %s: --etcd-version names the exact version, which matters if authentication was enabled", minor))
	}
	return notes
}

// stopsBefore reports whether the target is a revision before the end of the disks.
func (p Plan) stopsBefore() bool {
	s := p.Salvage
	return s.Log != nil && s.Log.Revision > 0 || s.Log == nil && p.Reach.Revision > 0
}

// lossNote describes the data that may be missing after a restore from the disks.
func (p Plan) lossNote() string {
	s := p.Salvage
	var probable Part
	if s.Log != nil {
		probable = s.Log.Probable
	}
	switch {
	case p.stopsBefore():
		return fmt.Sprintf("everything written after revision %d is left out", p.Reach.Revision)
	case s.Majority && probable.Positions > 0:
		return fmt.Sprintf("the logs of a majority are here: every acknowledged write is restored, and perhaps a few unacknowledged ones in the last %d positions",
			probable.Positions)
	case s.Majority:
		return "the logs of a majority are here: every acknowledged write is restored"
	case probable.Positions > 0:
		return fmt.Sprintf("the logs of a majority are not here: an unknown number of writes, which only the missing members had, is lost; the last %d positions may contain writes that were never committed",
			probable.Positions)
	case s.noLog():
		return fmt.Sprintf("no log is replayed: the state is that of position %d, and everything written after it is lost", s.end())
	}
	return "the logs of a majority are not here: an unknown number of writes, which only the missing members had, is lost; the log is restored as far as it is known to be committed"
}

// noLog reports whether no disk has a log that reaches the base.
func (s *Salvage) noLog() bool {
	end := s.end()
	return s.Log == nil && !slices.ContainsFunc(s.Disks, func(d DiskSummary) bool { return d.Last >= end && d.First <= end+1 && d.Last > 0 })
}
