package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/disk"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// withoutArchive goes on from a database on a disk; where none can be used, from the newest backup that a disk's log
// continues.
func withoutArchive(c catalog.Catalog, t Target) (route, error) {
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
		r := alone(b)
		r.setDisks(t, nil, &l)
		r.notes = append(r.notes, "no database on the disks leads there: the backup is the base")
		return r, nil
	}
	return route{}, err
}

// fromDisks is the way from the database that is furthest, of those that are not past the target.
func fromDisks(t Target) (route, error) {
	d, tooFar := t.Disks, int64(0)
	var best route
	for _, db := range d.databases() {
		if t.Revision > 0 && db.Revision > t.Revision {
			tooFar = db.Revision
			continue
		}
		r := d.onto(t, db)
		if best.salvage == nil || r.salvage.end() > best.salvage.end() {
			best = r
		}
	}
	if best.salvage == nil {
		if tooFar > 0 {
			return route{}, &UnreachableError{
				Why: fmt.Sprintf("the disks' databases are past it already, at revision %d: only a backup reaches back", tooFar),
			}
		}
		return route{}, fmt.Errorf("what is left is %w: none of the disks has a database that can be used, and a base must come from a backup (--repo): %s",
			catalog.ErrDamaged, d.findings())
	}
	if most := best.salvage.mostRevision(); t.Revision > most {
		why := fmt.Sprintf("revision %d is behind the end of the disks' logs, which reach revision %d at most", t.Revision, most)
		return t.toEndOfDisks(best, why)
	}
	return best, nil
}

// databases are all that can be used, the furthest first.
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
	for _, r := range d.remains() {
		all = append(all, r.Dir+": "+strings.Join(r.Findings, ", "))
	}
	return strings.Join(all, "; ")
}

// onto is a database with the log behind it, as far as one goes on from it.
func (d *Disks) onto(t Target, db disk.Database) route {
	var r route
	var log *DiskLog
	if l, ok := d.log(segment.End{Position: db.Index, Term: db.Term}, t.Revision); ok && l.UpTo > db.Index {
		log = &l
	}
	if t.Revision > 0 && t.Revision == db.Revision {
		log = nil // requests that change nothing of the key space may follow, and need not
	}
	r.setDisks(t, &DiskDatabase{db.File, db.Size, db.Index, db.Term, db.Revision}, log)
	return r
}

// log is what the furthest log has behind a place; ok is false if none goes on from there.
func (d *Disks) log(after segment.End, revision int64) (DiskLog, bool) {
	best, ok := d.furthest(func(l disk.Log) bool {
		term := l.Term(after.Position)
		return l.GoesOnFrom(after.Position) && l.Last.Digest != "" && (term == 0 || after.Term == 0 || term == after.Term)
	})
	if !ok {
		return DiskLog{}, false
	}
	l := best.Log
	members, at := d.members()
	ahead, _ := d.furthest(anyLog)
	upTo := l.Last.Position
	commit := min(max(d.committed(), after.Position), upTo)
	if all := best.Dir == ahead.Dir && d.majority(members, at, l); !all && d.Tail != TailAll {
		upTo = commit
	}
	count := func(from, to uint64) Part { return countPart(l, from, to) }
	return DiskLog{
		Dir: best.Dir, After: after, UpTo: upTo, End: l.Last, Revision: revision, Version: d.version(), Commit: commit,
		Certain: count(after.Position, commit), Probable: count(commit, upTo),
	}, true
}

// countPart counts what l has behind a position, up to and including another.
func countPart(l disk.Log, from, to uint64) Part {
	return Part{max(to, from) - from, l.Count(from, to)}
}

// behindArchive goes on where the archive ends. A target within the archive needs no disk.
func behindArchive(c catalog.Catalog, t Target) (route, error) {
	usable := stretches(c, t.Lineage)
	if !t.Time.IsZero() || t.Position > 0 || t.archived(usable) {
		return t.archiveAlone(c, "this lies within the archive: nothing of the disks is needed")
	}
	if len(usable) == 0 {
		return withoutArchive(c, t)
	}
	last := usable[len(usable)-1]
	end := last.Segments[len(last.Segments)-1].End
	if d, ok := t.Disks.furthest(anyLog); ok && d.Log.Last.Position <= end.Position && !t.Disks.differs(end) {
		return t.archiveAlone(c, fmt.Sprintf("the disks' logs end at position %d, and the archive at %d: nothing of them is needed",
			d.Log.Last.Position, end.Position))
	}
	log, ok := t.Disks.log(end, t.Revision)
	if !ok || !t.Disks.holds(log.Dir, end) {
		return t.apart(last, end)
	}
	log.Version = t.Disks.Version // the archive knows better than the disks
	all := len(last.Segments)
	r, ok := last.onto(all, func(b catalog.Backup) bool { return t.Revision == 0 || b.HighestRevision() <= t.Revision })
	if !ok {
		return t.archiveAlone(c, "")
	}
	r.reach.NotBefore = last.toEnd().reach.NotBefore
	r.setDisks(t, nil, &log)
	return r, nil
}

// archived says that a revision was asked for that the archive is known to reach.
func (t Target) archived(usable []stretch) bool {
	return t.Revision > 0 && slices.ContainsFunc(usable, func(s stretch) bool {
		_, known := s.ForRevision(t.Revision)
		return known
	})
}

func (t Target) archiveAlone(c catalog.Catalog, note string) (route, error) {
	t.Disks = nil
	r, err := t.way(c)
	if err == nil && note != "" {
		r.notes = append(r.notes, note)
	}
	return r, err
}

func anyLog(disk.Log) bool { return true }

// differs says that a log has another entry where the archive ends.
func (d *Disks) differs(end segment.End) bool {
	return slices.ContainsFunc(d.Found, func(disk disk.Disk) bool {
		return slices.ContainsFunc(disk.Log.Ends, func(e segment.End) bool { return e.Position == end.Position && e != end })
	})
}

// holds says that the log in dir has this very entry.
func (d *Disks) holds(dir string, end segment.End) bool {
	return slices.ContainsFunc(d.Found, func(disk disk.Disk) bool {
		return disk.Dir == dir && slices.Contains(disk.Log.Ends, end)
	})
}

// apart is where archive and disks do not meet: the one or the other, and never both.
func (t Target) apart(last stretch, end segment.End) (route, error) {
	why := fmt.Sprintf("the disks' logs do not go on from the archive's end, position %d of term %d (%s)", end.Position, end.Term, t.Disks.spans())
	if ends, ok := t.Disks.furthest(func(l disk.Log) bool { return l.GoesOnFrom(end.Position) }); ok {
		why += fmt.Sprintf(": in %s another entry is there, so they are of another history", ends.Dir)
	}
	disks, err := fromDisks(t)
	if err != nil {
		r := last.toEnd()
		return t.settle(r, why+"; the archive alone, without --from-data-dir, ends there")
	}
	return t.settle(disks, why+"; the archive alone, without --from-data-dir, ends there")
}

func (d *Disks) spans() string {
	var all []string
	for _, disk := range d.Found {
		all = append(all, fmt.Sprintf("%s: %d to %d", disk.Dir, disk.Log.First, disk.Log.Last.Position))
	}
	return strings.Join(all, ", ")
}

// toEndOfDisks settles for everything that the disks have.
func (t Target) toEndOfDisks(r route, why string) (route, error) {
	if r.salvage.Log != nil {
		log := *r.salvage.Log
		log.Revision = 0
		r.salvage.Log = &log
	}
	return t.settle(r, why)
}

// setDisks makes a route one with disks.
func (r *route) setDisks(t Target, db *DiskDatabase, log *DiskLog) {
	d := t.Disks
	members, at := d.members()
	r.salvage = &Salvage{Members: members, Disks: d.remains(), Database: db, Log: log}
	ahead, _ := d.furthest(anyLog)
	end := r.salvage.end()
	r.salvage.Majority = end >= ahead.Log.Last.Position && d.majority(members, at, ahead.Log)
	r.salvage.Left = d.left(r.salvage)
	r.salvage.Disagree = d.disagreement()
	for _, disk := range d.Found {
		r.salvage.ClusterID = cmp.Or(r.salvage.ClusterID, disk.Cluster)
	}
	r.reach.Position = end
	if t.Revision > 0 {
		r.reach.Revision = t.Revision
	}
}

// left counts what the log that s uses, or could use, has behind the end of s.
func (d *Disks) left(s *Salvage) Part {
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

// end is the last position of what is taken.
func (s *Salvage) end() uint64 {
	if s.Log != nil {
		return s.Log.UpTo
	}
	return s.Database.Index
}

// ahead is the disk whose log goes further than what is taken and cannot be used; ok is false if there is none.
func (s *Salvage) ahead() (d Remains, ok bool) {
	from := s.end()
	term := uint64(0) // of the last entry that is taken
	if s.Log != nil {
		from, term = s.Log.End.Position, s.Log.End.Term
	} else if s.Database != nil {
		term = s.Database.Term
	}
	i := slices.IndexFunc(s.Disks, func(d Remains) bool {
		further := d.Term > term || d.Term == term && d.Last > from
		return further && (s.Log != nil || d.First > from+1)
	})
	if i < 0 {
		return d, false
	}
	return s.Disks[i], true
}

// mostRevision is what a database and its log cannot be beyond: a request makes one revision at most.
func (s *Salvage) mostRevision() int64 {
	if s.Log == nil {
		return s.Database.Revision
	}
	return s.Database.Revision + int64(s.Log.Certain.Requests+s.Log.Probable.Requests)
}

// noteSalvage says what a person should know who has nothing but these disks.
func (p *Plan) noteSalvage() {
	for _, d := range p.Salvage.Disks {
		for _, finding := range d.Findings {
			p.note("%s: %s", d.Dir, finding)
		}
	}
	if s := p.Salvage; s.Disagree != "" {
		p.note("%s: the base decides which history comes back; --salvage-base chooses another data dir's", s.Disagree)
	}
	p.noteWorth()
	if d, ok := p.Salvage.ahead(); ok {
		p.note("the log in %s is ahead, and cannot be used: it begins at position %d, and no base here reaches that", d.Dir, d.First)
	} else if left := p.Salvage.Left; left.Positions > 0 && !p.stopsBefore() {
		p.note("%d requests in %d positions at the end of the log are left out, for nothing shows whether they were committed: --salvage-tail all takes them",
			left.Requests, left.Positions)
	}
	l := p.Salvage.Log
	if l == nil {
		return
	}
	if minor, anyOf := strings.CutSuffix(l.Version, "."+anyPatch); anyOf {
		p.note("the log is replayed by the rules of the newest etcd %s: --etcd-version names the very one, which matters if users were enabled", minor)
	}
}

// stopsBefore reports whether a revision was asked for before the end of the disks.
func (p *Plan) stopsBefore() bool {
	s := p.Salvage
	return s.Log != nil && s.Log.Revision > 0 || s.Log == nil && p.Reach.Revision > 0
}

// noteWorth says what may be missing.
func (p *Plan) noteWorth() {
	s := p.Salvage
	var probable Part
	if s.Log != nil {
		probable = s.Log.Probable
	}
	switch {
	case p.stopsBefore():
		p.note("what was written behind revision %d is left out", p.Reach.Revision)
	case s.Majority && probable.Positions > 0:
		p.note("the logs of a majority are here: everything that was acknowledged to a client comes back, and perhaps a few writes that were not, in the last %d positions",
			probable.Positions)
	case s.Majority:
		p.note("the logs of a majority are here: everything that was acknowledged to a client comes back")
	case probable.Positions > 0:
		p.note("less than a majority is here: what the missing members had alone is lost, how much nobody knows; the last %d positions may hold what was never committed",
			probable.Positions)
	case s.noLog():
		p.note("no log is replayed: the state is that of position %d, and what was written behind it is lost", s.end())
	default:
		p.note("less than a majority is here: what the missing members had alone is lost, how much nobody knows; the log is taken as far as it is known to be committed")
	}
}

// noLog reports whether no disk has a log that could be held against the base.
func (s *Salvage) noLog() bool {
	end := s.end()
	return s.Log == nil && !slices.ContainsFunc(s.Disks, func(d Remains) bool { return d.Last >= end && d.First <= end+1 && d.Last > 0 })
}
