package restore

import (
	"cmp"
	"errors"
	"fmt"
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
func stretches(c repository.Catalog, lineage string) (usable []stretch, all int) {
	for _, l := range c.Lineages {
		if lineage != "" && l.ID != lineage {
			continue
		}
		for _, s := range l.Stretches() {
			all++
			if bases := c.Bases(s); len(bases) > 0 {
				usable = append(usable, stretch{s, bases})
			}
		}
	}
	return usable, all
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
	switch {
	case t.Revision > 0:
		return toRevision(c, t)
	case !t.Time.IsZero():
		return toTime(c, t)
	}
	return toLatest(c, t)
}

func backupAlone(c repository.Catalog, id repository.ID) (route, error) {
	b, err := c.Find(id)
	if err != nil {
		return route{}, err
	}
	return route{base: b, reach: Reach{Newest: newest(c), NotBefore: b.Started, NotAfter: b.Finished}}, nil
}

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
func toRevision(c repository.Catalog, t Target) (route, error) {
	usable, _ := stretches(c, t.Lineage)
	var found []route
	for _, s := range usable {
		if r, ok := s.toRevision(t.Revision); ok {
			found = append(found, r)
		}
	}
	if len(found) > 0 {
		r := found[len(found)-1]
		if len(found) > 1 {
			r.notes = append(r.notes, fmt.Sprintf("revision %d is in %d histories, this is the newest: --lineage chooses another",
				t.Revision, len(found)))
		}
		return r, nil
	}
	for _, b := range c.Backups { // one that was taken of a cluster at rest
		if t.Lineage == "" && b.Revision == t.Revision && b.RevisionMax == t.Revision && b.Usable() == nil {
			return route{base: b, reach: Reach{Revision: t.Revision, NotBefore: b.Started, NotAfter: b.Finished}}, nil
		}
	}
	return nearestRevision(c, t, usable)
}

func (s stretch) toRevision(n int64) (route, bool) {
	upTo, known := s.ForRevision(n)
	if !known && n > s.mostRevision() {
		return route{}, false
	}
	r, ok := s.onto(upTo, func(b repository.Backup) bool { return max(b.Revision, b.RevisionMax) <= n })
	if !ok {
		return route{}, false
	}
	r.log.Revision = n
	r.reach.Revision = n
	r.reach.NotBefore, r.reach.NotAfter = s.around(n)
	return r, true
}

// mostRevision is a revision that s cannot be beyond: each request makes one at most.
func (s stretch) mostRevision() int64 {
	end := s.End()
	most := end.Revision
	for _, segment := range slices.Backward(s.Segments) {
		most += int64(segment.Requests)
		if slices.ContainsFunc(segment.Marks, func(m segmentMark) bool { return m.Revision == end.Revision }) {
			return most
		}
	}
	return most
}

type segmentMark = segment.Mark

// around are the times between which revision n was made, as far as marks tell.
func (s stretch) around(n int64) (notBefore, notAfter time.Time) {
	for _, segment := range s.Segments {
		for _, m := range segment.Marks {
			if m.Revision > 0 && m.Revision < n {
				notBefore = m.NotBefore
			}
			if m.Revision >= n {
				return notBefore, m.NotAfter
			}
		}
	}
	return notBefore, time.Time{}
}

// nearestRevision is the last point before a revision that is not there.
func nearestRevision(c repository.Catalog, t Target, usable []stretch) (route, error) {
	known := newest(c).Revision
	why := fmt.Sprintf("revision %d is in no backup and no segment of the log that has a backup before it", t.Revision)
	if t.Revision > known {
		why = fmt.Sprintf("revision %d is in the future: the newest known is %d", t.Revision, known)
	}
	for _, s := range slices.Backward(usable) {
		before := func(b repository.Backup) bool { return max(b.Revision, b.RevisionMax) <= t.Revision }
		if s.End().Revision > t.Revision || !slices.ContainsFunc(s.bases, before) {
			continue
		}
		if r, err := s.toEnd(); err == nil {
			return t.settle(r, why)
		}
	}
	for _, b := range c.Backups {
		if max(b.Revision, b.RevisionMax) <= t.Revision && t.Lineage == "" {
			return t.settle(route{base: b, reach: Reach{NotBefore: b.Started, NotAfter: b.Finished}}, why)
		}
	}
	return route{}, &UnreachableError{Why: why + oldestWords(usable)}
}

func oldestWords(usable []stretch) string {
	if len(usable) == 0 {
		return ""
	}
	oldest := slices.MinFunc(usable[0].bases, func(a, b repository.Backup) int { return cmp.Compare(a.Revision, b.Revision) })
	return fmt.Sprintf("; the oldest that can be restored is revision %d", max(oldest.Revision, oldest.RevisionMax))
}

// toTime ends at the last mark that is surely not later than the time.
func toTime(c repository.Catalog, t Target) (route, error) {
	usable, _ := stretches(c, t.Lineage)
	for i, s := range slices.Backward(usable) {
		mark, next, ok := s.AtTime(t.Time)
		if !ok {
			continue
		}
		r, err := s.toMark(mark)
		if err != nil {
			continue // its base is younger than that: an older stretch may have the point before
		}
		if next != nil {
			r.reach.NotAfter = next.NotAfter
			return r, nil
		}
		why := fmt.Sprintf("the log's last known moment is %s, before %s", text(mark.NotAfter), text(t.Time))
		if i < len(usable)-1 {
			why = fmt.Sprintf("%s lies in a gap of the log, which ends at %s and goes on later", text(t.Time), text(mark.NotAfter))
		}
		return t.settle(r, why)
	}
	why := fmt.Sprintf("no part of the log with a backup before it reaches back to %s", text(t.Time))
	for _, b := range c.Backups {
		if !b.Finished.After(t.Time) && t.Lineage == "" {
			return t.settle(route{base: b, reach: Reach{NotBefore: b.Started, NotAfter: b.Finished}}, why)
		}
	}
	return route{}, &UnreachableError{Why: why}
}

var errNoBase = errors.New("every backup is younger")

func (s stretch) toMark(m segment.Mark) (route, error) {
	r, ok := s.onto(max(1, s.ForPosition(m.Position)), func(b repository.Backup) bool {
		return max(b.RaftIndex, b.RaftIndexMax) <= m.Position
	})
	if !ok {
		return route{}, errNoBase
	}
	r.log.Position = m.Position
	r.reach = Reach{Position: m.Position, Revision: m.Revision, NotBefore: m.NotBefore, NotAfter: m.NotAfter}
	return r, nil
}

// toLatest is the end of the log or, where that ends before it, the newest backup.
func toLatest(c repository.Catalog, t Target) (route, error) {
	usable, all := stretches(c, t.Lineage)
	if len(usable) == 0 {
		return latestBackup(c, t, all)
	}
	last := usable[len(usable)-1]
	end := last.End()
	if b, ok := youngerBackup(c, end.Time); ok && t.Lineage == "" {
		r := route{base: b, reach: Reach{NotBefore: b.Started, NotAfter: b.Finished}}
		r.notes = []string{fmt.Sprintf("the log ends at %s, before this backup: what was written since is not archived", text(end.Time))}
		return r, nil
	}
	r, err := last.toEnd()
	if err != nil {
		return route{}, err
	}
	if why := beyond(c, last, t.Lineage); why != "" {
		return t.settle(r, why)
	}
	return r, nil
}

// toEnd replays everything.
func (s stretch) toEnd() (route, error) {
	r, ok := s.onto(len(s.Segments), func(repository.Backup) bool { return true })
	if !ok {
		return route{}, errNoBase
	}
	end := s.End()
	r.reach = Reach{Position: end.Position, NotAfter: end.Time}
	if mark, ok := s.LastMark(); ok && mark.Position == end.Position {
		r.reach.Revision = mark.Revision
	}
	if mark, _, ok := s.AtTime(end.Time); ok {
		r.reach.NotBefore = mark.NotBefore
	}
	return r, nil
}

// latestBackup is all there is without a log. One that is damaged is passed over only if the best there is was asked for.
func latestBackup(c repository.Catalog, t Target, all int) (route, error) {
	b, err := c.Latest()
	if err != nil && (!t.Best || len(c.Backups) == 0) {
		return route{}, err
	}
	if err != nil {
		b = c.Backups[0]
	}
	r := route{base: b, reach: Reach{NotBefore: b.Started, NotAfter: b.Finished}}
	switch {
	case err != nil:
		r.notes = []string{err.Error()}
	case all > 0:
		r.notes = []string{"there is a log, and no backup that it goes on from: this backup stands alone"}
	}
	return r, nil
}

// youngerBackup is the newest backup, if it was taken after t. A damaged one counts by its name: what it held is lost.
func youngerBackup(c repository.Catalog, t time.Time) (repository.Backup, bool) {
	if len(c.Backups) == 0 || !c.Backups[0].Started.After(t) {
		return repository.Backup{}, false
	}
	return c.Backups[0], true
}

// beyond says what is known to have been behind the last usable stretch, and cannot be restored; "" if nothing is.
func beyond(c repository.Catalog, last stretch, lineage string) string {
	end := last.End()
	for _, d := range c.Damaged {
		if d.ID.Started().After(end.Time) && lineage == "" {
			return fmt.Sprintf("a newer backup is damaged: %v", d.Err)
		}
	}
	for _, g := range c.Gaps() {
		if g.Lineage == last.Lineage && g.From > last.Last() || g.From == 0 && g.Since.After(end.Time) {
			return fmt.Sprintf("the log does not end at %s, but what follows cannot be restored: %s", text(end.Time), g.Reason)
		}
	}
	return ""
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
