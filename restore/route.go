package restore

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log is the part of the log that a plan replays onto its backup.
type Log struct {
	Lineage string `json:"lineage"`
	First   uint64 `json:"first"` // seq of the first segment
	Last    uint64 `json:"last"`  // and of the last one
	// Digest is that of Last's header. It pins all of them: each names the one before.
	Digest   string `json:"digest"`
	Segments int    `json:"segments"`
	Requests int    `json:"requests"` // in these segments, of which the backup may hold some already
	Bytes    int64  `json:"bytes"`    // as stored
	// Where to stop: right after the request that made Revision, or after the last one up to Position. 0: not there.
	Revision int64  `json:"revision,omitempty"`
	Position uint64 `json:"position,omitempty"`
}

// Reach is what a target means: which state of the cluster comes back.
type Reach struct {
	Position uint64 `json:"position,omitempty"` // raft index, 0: only the replay will know
	Revision int64  `json:"revision,omitempty"` // of the key space; 0: only the replay will know
	// NotBefore is a moment up to which everything that a client had been told was written is in the state; what was
	// written after NotAfter is not. Zero where nobody knows.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Newest is the newest point that the repository knows of, to be compared with this one.
	Newest repository.Point `json:"newest"`
}

// UnreachableError says why a target cannot be reached, and what can. It matches repository.ErrNotFound.
type UnreachableError struct {
	Why     string
	Nearest string // in words, "" if there is nothing
}

func (e *UnreachableError) Error() string {
	if e.Nearest == "" {
		return fmt.Sprintf("what was asked for is %v: %s", repository.ErrNotFound, e.Why)
	}
	return fmt.Sprintf("what was asked for is %v: %s; the nearest that can be restored is %s: ask for that, or say --best",
		repository.ErrNotFound, e.Why, e.Nearest)
}

// Is makes it match repository.ErrNotFound.
func (e *UnreachableError) Is(target error) bool { return target == repository.ErrNotFound }

// route is a way to a target: a base, and what is replayed onto it.
type route struct {
	base  repository.Backup
	log   *Log
	reach Reach
	notes []string
}

// stretch is a run of the log with the backups that it goes on from.
type stretch struct {
	repository.Stretch
	bases []repository.Backup // newest first
}

// stretches are those that can be replayed, oldest first.
func stretches(c repository.Catalog, lineage string) (usable []stretch) {
	for _, l := range c.Lineages {
		if lineage != "" && l.ID != lineage {
			continue
		}
		for _, s := range l.Stretches() {
			if bases := c.Bases(s); len(bases) > 0 {
				usable = append(usable, stretch{s, bases})
			}
		}
	}
	return usable
}

// findRoute finds the shortest way to t. Where there is none it is the way to the nearest point with t.Best, else an
// error that names it.
func findRoute(c repository.Catalog, t Target) (route, error) {
	if t.Backup != "" {
		return backupAlone(c, t.Backup)
	}
	r, err := t.way(c)
	if err != nil {
		return route{}, err
	}
	r.reach.Newest = newest(c)
	return r, nil
}

func (t Target) way(c repository.Catalog) (route, error) {
	usable := stretches(c, t.Lineage)
	if t.Lineage != "" && len(usable) == 0 {
		return route{}, &UnreachableError{Why: fmt.Sprintf("lineage %s is not in the log, or has no backup that it goes on from", t.Lineage)}
	}
	switch {
	case t.Revision > 0:
		return toRevision(c, t, usable)
	case !t.Time.IsZero():
		return toTime(c, t, usable)
	case t.Position > 0:
		return toPosition(t, usable)
	case len(usable) > 0:
		return toLatest(c, t, usable)
	}
	return latestBackup(c, t)
}

func backupAlone(c repository.Catalog, id repository.ID) (route, error) {
	b, err := c.Find(id)
	if err != nil {
		return route{}, err
	}
	r := alone(b)
	r.reach.Newest = newest(c)
	return r, nil
}

// alone is the way to a backup, without any log.
func alone(b repository.Backup) route {
	return route{base: b, reach: Reach{NotBefore: b.Started, NotAfter: b.Finished}}
}

// highest is the upper bound of b's position, highestRevision that of its revision.
func highest(b repository.Backup) uint64 { return max(b.RaftIndex, b.RaftIndexMax) }

func highestRevision(b repository.Backup) int64 { return max(b.Revision, b.RevisionMax) }

// newest is the newest point of which the repository knows, whether it can be reached or not.
func newest(c repository.Catalog) repository.Point {
	var p repository.Point
	if len(c.Backups) > 0 {
		b := c.Backups[0]
		p = repository.Point{Position: b.RaftIndex, Revision: b.Revision, Time: b.Started}
	}
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			if end := s.End(); end.Time.After(p.Time) {
				p = end
			}
		}
	}
	return p
}

// onto is the way from the best of the bases that lie at or before the point, through the first upTo segments of s.
func (s stretch) onto(upTo int, allowed func(repository.Backup) bool) (route, bool) {
	var best route
	var bestCost time.Duration
	for _, b := range s.bases {
		if !allowed(b) {
			continue
		}
		r := route{base: b, log: s.log(b, upTo)}
		if cost := r.estimate(); best.log == nil || cost < bestCost {
			best, bestCost = r, cost
		}
	}
	return best, best.log != nil
}

// has reports whether s goes on from b.
func (s stretch) has(b repository.Backup) bool {
	return slices.ContainsFunc(s.bases, func(base repository.Backup) bool { return base.ID == b.ID })
}

// log names the segments behind b. The backup's index is a lower bound, and in servers of 3.4 once one too high.
func (s stretch) log(b repository.Backup, upTo int) *Log {
	from := min(max(s.ForPosition(max(b.RaftIndex, s.First())), 1), upTo) - 1
	last := s.Segments[upTo-1]
	l := &Log{Lineage: s.Lineage, First: s.Segments[from].Seq, Last: last.Seq, Digest: last.Digest, Segments: upTo - from}
	for _, segment := range s.Segments[from:upTo] {
		l.Requests += segment.Requests
		l.Bytes += segment.Size
	}
	return l
}

// What a restore gets through, measured on two cores: see docs/benchmarks.md. An estimate need not be better.
const (
	bytesPerSecond    = 250 << 20
	requestsPerSecond = 120_000
)

// estimate is about how long the route takes.
func (r route) estimate() time.Duration {
	seconds := float64(r.base.Plain.Size) / bytesPerSecond
	if r.log != nil {
		seconds += float64(r.log.Requests) / requestsPerSecond
	}
	return time.Duration(seconds * float64(time.Second))
}

// toRevision ends right after the request that made the revision. After a restore the same revision may be there in two
// histories: the newer one counts, unless a lineage was named.
func toRevision(c repository.Catalog, t Target, usable []stretch) (route, error) {
	var r route
	histories := map[string]bool{}
	for _, s := range usable {
		if found, ok := s.toRevision(t.Revision); ok {
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
	exact := func(b repository.Backup) bool { // one that was taken of a cluster at rest
		return b.Revision == t.Revision && b.RevisionMax == t.Revision && b.Usable() == nil
	}
	if b, ok := loneBackup(c, t, exact); ok {
		r := alone(b)
		r.reach.Revision = t.Revision
		return r, nil
	}
	return nearestRevision(c, t, usable)
}

func (s stretch) toRevision(n int64) (route, bool) {
	upTo, known := s.ForRevision(n)
	if !known && n > s.mostRevision() {
		return route{}, false
	}
	upTo = max(1, upTo) // a mark may stand right before the first segment
	r, ok := s.onto(upTo, func(b repository.Backup) bool { return highestRevision(b) <= n })
	if !ok {
		return route{}, false
	}
	r.log.Revision = n
	r.reach.Revision = n
	r.reach.NotBefore, r.reach.NotAfter = s.around(upTo, func(m segment.Mark) int { return cmp.Compare(m.Revision, n) })
	return r, true
}

// mostRevision is a revision that s cannot be beyond: each request behind a known one makes one at most.
func (s stretch) mostRevision() int64 {
	most, requests := int64(math.MaxInt64), int64(0)
	for _, segment := range slices.Backward(s.Segments) {
		behind := requests // the requests of later segments
		requests += int64(segment.Requests)
		for _, m := range segment.Marks {
			if m.Revision > 0 && m.Position == segment.Last {
				most = min(most, m.Revision+behind)
			} else if m.Revision > 0 {
				most = min(most, m.Revision+requests)
			}
		}
		for _, b := range s.bases {
			if b.RaftIndex+1 >= segment.First {
				most = min(most, highestRevision(b)+requests)
			}
		}
	}
	return most
}

// around are the times between which s, up to a segment, got to a place, as far as its marks tell. compare says where a
// mark is: below zero before the place, above zero behind it.
func (s stretch) around(upTo int, compare func(segment.Mark) int) (notBefore, notAfter time.Time) {
	for _, segment := range s.Segments[:upTo] {
		for _, m := range segment.Marks {
			switch {
			case m.Revision == 0:
			case compare(m) < 0:
				notBefore = m.NotBefore
			default:
				return notBefore, m.NotAfter
			}
		}
	}
	return notBefore, s.written(upTo)
}

// written is a moment by which everything in the first upTo segments had been written.
func (s stretch) written(upTo int) time.Time {
	last := s.Segments[upTo-1]
	if n := len(last.Marks); n > 0 && last.Marks[n-1].NotAfter.After(last.Written) {
		return last.Marks[n-1].NotAfter
	}
	return last.Written
}

// nearestRevision is the last point before a revision that is not there.
func nearestRevision(c repository.Catalog, t Target, usable []stretch) (route, error) {
	known := newest(c).Revision
	why := fmt.Sprintf("revision %d is in no backup and no segment of the log that has a backup before it", t.Revision)
	if t.Revision > known {
		why = fmt.Sprintf("revision %d is in the future: the newest known is %d", t.Revision, known)
	}
	before := func(b repository.Backup) bool { return highestRevision(b) <= t.Revision }
	for _, s := range slices.Backward(usable) {
		if s.mostRevision() > t.Revision || !slices.ContainsFunc(s.bases, before) {
			continue
		}
		return t.nearest(c, s, s.toEnd(), before, why)
	}
	if b, ok := loneBackup(c, t, before); ok {
		return t.settle(alone(b), why)
	}
	return route{}, &UnreachableError{Why: why + oldestWords(usable)}
}

func oldestWords(usable []stretch) string {
	if len(usable) == 0 {
		return ""
	}
	oldest := slices.MinFunc(usable[0].bases, func(a, b repository.Backup) int { return cmp.Compare(a.Revision, b.Revision) })
	return fmt.Sprintf("; the oldest that can be restored is revision %d", highestRevision(oldest))
}

// toTime ends at the last state that was surely not later than the time.
func toTime(c repository.Catalog, t Target, usable []stretch) (route, error) {
	by := func(b repository.Backup) bool { return !b.Finished.After(t.Time) }
	for i, s := range slices.Backward(usable) {
		r, goesOn, ok := s.toTime(t.Time)
		if !ok {
			continue // its bases are younger than that: an older stretch may have the point before
		}
		end := r.reach.NotAfter
		if goesOn || end.Equal(t.Time) {
			return r, nil
		}
		why := fmt.Sprintf("the log's last known moment is %s, before %s", text(end), text(t.Time))
		if i < len(usable)-1 {
			why = fmt.Sprintf("%s lies in a gap of the log, which ends at %s and goes on later", text(t.Time), text(end))
		}
		return t.nearest(c, s, r, by, why)
	}
	why := fmt.Sprintf("no part of the log with a backup before it reaches back to %s", text(t.Time))
	if b, ok := loneBackup(c, t, by); ok {
		return t.settle(alone(b), why)
	}
	return route{}, &UnreachableError{Why: why}
}

// toTime is the last state of s that was surely not later than t: that of a mark or, where no mark is behind it yet, of
// a base. goesOn: s is known to go on behind t.
func (s stretch) toTime(t time.Time) (r route, goesOn, ok bool) {
	mark, next, marked := s.AtTime(t)
	if marked {
		r, ok = s.toMark(mark)
	}
	i := slices.IndexFunc(s.bases, func(b repository.Backup) bool { return !b.Finished.After(t) })
	if i >= 0 && (!ok || s.bases[i].RaftIndex > mark.Position) {
		r, ok = alone(s.bases[i]), true
	}
	return r, next != nil, ok
}

func (s stretch) toMark(m segment.Mark) (route, bool) {
	r, ok := s.onto(max(1, s.ForPosition(m.Position)), func(b repository.Backup) bool { return highest(b) <= m.Position })
	if !ok {
		return route{}, false
	}
	r.log.Position = m.Position
	r.reach = Reach{Position: m.Position, Revision: m.Revision, NotBefore: m.NotBefore, NotAfter: m.NotAfter}
	return r, true
}

// toPosition ends right after a position of a lineage.
func toPosition(t Target, usable []stretch) (route, error) {
	var nearest *stretch
	for _, s := range slices.Backward(usable) {
		if s.Last() < t.Position && nearest == nil {
			nearest = &s
		}
		if t.Position > s.Last() || t.Position+1 < s.First() {
			continue
		}
		if r, ok := s.toPosition(t.Position); ok {
			return r, nil
		}
	}
	why := fmt.Sprintf("position %d is in no part of the log that has a backup before it", t.Position)
	if nearest == nil {
		return route{}, &UnreachableError{Why: why}
	}
	return t.settle(nearest.toEnd(), why)
}

func (s stretch) toPosition(p uint64) (route, bool) {
	upTo := max(1, s.ForPosition(p))
	r, ok := s.onto(upTo, func(b repository.Backup) bool { return highest(b) <= p })
	if !ok {
		return route{}, false
	}
	r.log.Position = p
	r.reach.Position = p
	r.reach.NotBefore, r.reach.NotAfter = s.around(upTo, func(m segment.Mark) int {
		if m.Position == p {
			r.reach.Revision = m.Revision
		}
		return cmp.Compare(m.Position, p)
	})
	return r, true
}

// toLatest is the end of the log or, where that ends before it, the newest backup.
func toLatest(c repository.Catalog, t Target, usable []stretch) (route, error) {
	last := usable[len(usable)-1]
	r := last.toEnd()
	if youngerBackup(c, last) && t.Lineage == "" {
		return latestBackup(c, t, fmt.Sprintf("the log ends at %s, before this backup: what was written since is not archived", text(r.reach.NotAfter)))
	}
	if why := beyond(c, last, t.Lineage); why != "" {
		return t.settle(r, why)
	}
	return r, nil
}

// toEnd replays everything.
func (s stretch) toEnd() route {
	all := len(s.Segments)
	r, _ := s.onto(all, func(repository.Backup) bool { return true }) // a stretch has a base
	r.reach = Reach{Position: s.Last(), NotAfter: s.written(all)}
	if mark, ok := s.LastMark(); ok {
		r.reach.NotBefore = mark.NotBefore
		if mark.Position == s.Last() {
			r.reach.Revision, r.reach.NotAfter = mark.Revision, mark.NotAfter
		}
	}
	return r
}

// latestBackup is the newest one. If a newer one is damaged it is passed over only if the best there is was asked for.
func latestBackup(c repository.Catalog, t Target, notes ...string) (route, error) {
	b, err := c.Latest()
	if err != nil && (!t.Best || len(c.Backups) == 0) {
		return route{}, err
	}
	if err != nil {
		b, notes = c.Backups[0], append(notes, err.Error())
	}
	if len(c.Lineages) > 0 && len(notes) == 0 {
		notes = append(notes, "there is a log, and no backup that it goes on from: this backup stands alone")
	}
	r := alone(b)
	r.notes = notes
	return r, nil
}

// youngerBackup reports whether the newest backup was taken behind the end of s.
func youngerBackup(c repository.Catalog, s stretch) bool {
	return c.Backups[0].Started.After(s.End().Time) && !s.has(c.Backups[0]) // else s goes on behind it, whatever the clocks say
}

// loneBackup is the newest of those that are allowed, without the log. One with something against it is taken only where
// there is no other. What history a backup is of nobody can tell, so there is none in a lineage.
func loneBackup(c repository.Catalog, t Target, allowed func(repository.Backup) bool) (repository.Backup, bool) {
	if t.Lineage != "" {
		return repository.Backup{}, false
	}
	i := slices.IndexFunc(c.Backups, func(b repository.Backup) bool { return allowed(b) && b.Usable() == nil })
	if i < 0 {
		i = slices.IndexFunc(c.Backups, allowed)
	}
	if i < 0 {
		return repository.Backup{}, false
	}
	return c.Backups[i], true
}

// beyond says what is known to have been behind the last usable stretch, and cannot be restored; "" if nothing is.
func beyond(c repository.Catalog, last stretch, lineage string) string {
	end := last.End()
	for _, d := range c.Damaged {
		if d.ID.Started().After(end.Time) && lineage == "" {
			return fmt.Sprintf("a newer backup is damaged: %v", d.Err)
		}
	}
	at := slices.IndexFunc(c.Lineages, func(l repository.Lineage) bool { return l.ID == last.Lineage })
	if lineage == "" && at < len(c.Lineages)-1 {
		return fmt.Sprintf("a newer history, lineage %s, cannot be restored: it has no backup that its log goes on from", c.Lineages[at+1].ID)
	}
	for _, g := range c.Gaps() {
		if g.Lineage == last.Lineage && g.NextLineage != "" && g.NextLineage != last.Lineage {
			continue
		}
		if g.Lineage == last.Lineage && (g.From > last.Last() || g.From == 0 && !g.Since.Before(end.Time)) {
			return fmt.Sprintf("the log does not end at %s, but what follows cannot be restored: %s", text(end.Time), g.Reason)
		}
	}
	return ""
}

// nearest settles for r, which ends in s, or for a backup alone that was taken later.
func (t Target) nearest(c repository.Catalog, s stretch, r route, allowed func(repository.Backup) bool, why string) (route, error) {
	if b, ok := loneBackup(c, t, allowed); ok && !s.has(b) && b.Started.After(r.reach.NotAfter) {
		r = alone(b)
	}
	return t.settle(r, why)
}

// settle takes the nearest way if the best there is was asked for.
func (t Target) settle(r route, why string) (route, error) {
	if !t.Best {
		return route{}, &UnreachableError{Why: why, Nearest: r.words()}
	}
	r.notes = append(r.notes, "not what was asked for, and the nearest that there is: "+why)
	return r, nil
}

// words describe where a route ends.
func (r route) words() string {
	switch {
	case r.log == nil:
		return fmt.Sprintf("backup %s, revision %d at %s", r.base.ID, r.base.Revision, text(r.base.Started))
	case r.reach.Revision > 0:
		return fmt.Sprintf("revision %d at %s", r.reach.Revision, text(r.reach.NotAfter))
	case r.reach.NotAfter.IsZero():
		return fmt.Sprintf("the log's position %d", r.reach.Position)
	}
	return fmt.Sprintf("the log's position %d at %s", r.reach.Position, text(r.reach.NotAfter))
}

func text(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
