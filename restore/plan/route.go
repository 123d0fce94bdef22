package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Log is the part of the log that a plan replays onto its backup.
type Log struct {
	Lineage string `json:"lineage"`
	// Source is where it was read. A log from watch has neither users nor leases without keys: they are as in the backup.
	Source segment.Source `json:"source"`
	First  uint64         `json:"first"` // seq of the first segment
	Last   uint64         `json:"last"`  // and of the last one
	// Digest is that of Last's header. It pins all of them: each names the one before.
	Digest   string `json:"digest"`
	Segments int    `json:"segments"`
	Requests int    `json:"requests"`        // in these segments, of which the backup may hold some already
	Bytes    int64  `json:"bytes"`           // as stored
	Plain    int    `json:"plain,omitempty"` // segments that are not encrypted
	// Where to stop: right after the request that made Revision, or after the last one up to Position. 0: not there.
	Revision int64  `json:"revision,omitempty"`
	Position uint64 `json:"position,omitempty"`
}

// Reach is what a target means: which state of the cluster comes back.
type Reach struct {
	Position uint64 `json:"position,omitempty"` // of the log, or the raft index; 0: only the replay will know
	Revision int64  `json:"revision,omitempty"` // of the key space; 0: only the replay will know
	// NotBefore is a moment up to which everything that a client had been told was written is in the state; what was
	// written after NotAfter is not. Zero where nobody knows.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Newest is the newest point that the repository knows of, to be compared with this one.
	Newest catalog.Point `json:"newest"`
}

// UnreachableError says why a target cannot be reached, and what can. It matches repository.ErrNotFound.
type UnreachableError struct {
	Why     string
	Nearest string // the last point before it, in words; "" if there is none
	Next    string // the first point after it, in words; "" if there is none or it is not known
}

func (e *UnreachableError) Error() string {
	text := fmt.Sprintf("what was asked for is %v: %s", catalog.ErrNotFound, e.Why)
	if e.Nearest != "" {
		text += fmt.Sprintf("; the nearest that can be restored is %s: ask for that, or say --best", e.Nearest)
	}
	if e.Next != "" {
		text += "; the first point after it is " + e.Next
	}
	return text
}

// Is makes it match repository.ErrNotFound.
func (e *UnreachableError) Is(target error) bool { return target == catalog.ErrNotFound }

// route is a way to a target: a base, and what is replayed onto it. Without a base's ID a disk's database is the base.
type route struct {
	base catalog.Backup
	// members is the newest backup of the same history up to the target: who the members were. Without an ID no backup is.
	members catalog.Backup
	log     *Log
	reach   Reach
	notes   []string

	salvage *Salvage // instead of base, or behind log
}

// stretch is a run of the log with the backups that it goes on from.
type stretch struct {
	catalog.Stretch
	bases    []catalog.Backup // newest first
	doubtful []catalog.Backup // newest first; for points that no base leads to
}

// stretches are those that can be replayed, oldest first.
func stretches(c catalog.Catalog, lineage string) (usable []stretch) {
	for _, l := range c.Lineages {
		if lineage != "" && l.ID != lineage {
			continue
		}
		for _, s := range l.Stretches() {
			if bases := c.Bases(s); len(bases) > 0 {
				usable = append(usable, stretch{s, bases, c.DoubtfulBases(s)})
			}
		}
	}
	return usable
}

// findRoute finds the shortest way to t. Where there is none it is the way to the nearest point with t.Best, else an
// error that names it.
func findRoute(c catalog.Catalog, t Target) (route, error) {
	if t.Plain == PlainSkipped {
		c = encrypted(c)
	}
	r, err := t.routeIn(c)
	if err == nil && t.Plain == PlainRefused {
		err = r.refusePlain()
	}
	return r, err
}

func (t Target) routeIn(c catalog.Catalog) (route, error) {
	if t.Backup != "" {
		return backupAlone(c, t.Backup)
	}
	way := t.way
	if t.Disks != nil {
		way = func(c catalog.Catalog) (route, error) { return salvaged(c, t) }
	}
	r, err := way(c)
	if unreachable, ok := errors.AsType[*UnreachableError](err); ok {
		unreachable.Next = nextPoint(c, t)
	}
	if err != nil {
		return route{}, err
	}
	r.reach.Newest = newest(c)
	return r, nil
}

func (t Target) way(c catalog.Catalog) (route, error) {
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
	case len(c.Lineages) > 0:
		return latestBackup(c, t, "there is a log, and no backup that it goes on from: this backup stands alone")
	}
	return latestBackup(c, t, "")
}

func backupAlone(c catalog.Catalog, id catalog.ID) (route, error) {
	b, err := c.Find(id)
	if err != nil {
		return route{}, err
	}
	r := alone(b)
	r.reach.Newest = newest(c)
	return r, nil
}

// alone is the way to a backup, without any log.
func alone(b catalog.Backup) route {
	return route{base: b, members: b, reach: Reach{NotBefore: b.Started, NotAfter: b.Finished}}
}

// newest is the newest point of which the repository knows, whether it can be reached or not.
func newest(c catalog.Catalog) catalog.Point {
	var p catalog.Point
	if len(c.Backups) > 0 {
		b := c.Backups[0]
		p = catalog.Point{Position: b.RaftIndex, Revision: b.Revision, Time: b.Started}
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

// onto returns the way from the best of the bases that lie at or before the point, through the first upTo segments of s. Only where
// there is none it begins with a doubtful backup.
func (s stretch) onto(upTo int, allowed func(catalog.Backup) bool) (route, bool) {
	r, ok := s.from(s.bases, upTo, allowed)
	if !ok {
		r, ok = s.from(s.doubtful, upTo, allowed)
	}
	return r, ok
}

// from returns the cheapest way from one of the bases, newest first, that are allowed.
func (s stretch) from(bases []catalog.Backup, upTo int, allowed func(catalog.Backup) bool) (route, bool) {
	var best route
	var bestCost time.Duration
	var members catalog.Backup
	for _, b := range bases {
		if !allowed(b) {
			continue
		}
		if members.ID == "" {
			members = b
		}
		r := route{base: b, log: s.log(b, upTo)}
		if cost := r.estimate(); best.log == nil || cost < bestCost {
			best, bestCost = r, cost
		}
	}
	best.members = members
	return best, best.log != nil
}

// has reports whether s goes on from b.
func (s stretch) has(b catalog.Backup) bool {
	return s.hasBase(func(base catalog.Backup) bool { return base.ID == b.ID })
}

// hasBase reports whether s goes on from a backup, maybe a doubtful one, that is allowed.
func (s stretch) hasBase(allowed func(catalog.Backup) bool) bool {
	return slices.ContainsFunc(s.bases, allowed) || slices.ContainsFunc(s.doubtful, allowed)
}

// log names the segments behind b. The backup's index is a lower bound, and in servers of 3.4 once one too high.
func (s stretch) log(b catalog.Backup, upTo int) *Log {
	begin, _ := b.Span(s.Source())
	from := min(max(s.ForPosition(max(begin, s.First())), 1), upTo) - 1
	last := s.Segments[upTo-1]
	l := &Log{Lineage: s.Lineage, Source: s.Source(), First: s.Segments[from].FirstSeq(), Last: last.Seq, Digest: last.Digest}
	for _, segment := range s.Segments[from:upTo] {
		l.Segments += segment.Count()
		l.Requests += segment.Requests
		l.Bytes += segment.Size
		if segment.Seal.Encryption == "" {
			l.Plain += segment.Count()
		}
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
	if s := r.salvage; s != nil && s.Database != nil {
		seconds += float64(s.Database.Size) / bytesPerSecond
	}
	if s := r.salvage; s != nil && s.Log != nil {
		seconds += float64(s.Log.Certain.Requests+s.Log.Probable.Requests) / requestsPerSecond
	}
	return time.Duration(seconds * float64(time.Second))
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
	case r.salvage != nil:
		return fmt.Sprintf("the disks' position %d", r.salvage.end())
	case r.log == nil:
		return fmt.Sprintf("backup %s, revision %d at %s", r.base.ID, r.base.Revision, text(r.base.Started))
	case r.reach.Revision > 0:
		return fmt.Sprintf("revision %d at %s (--to-revision %d)", r.reach.Revision, text(r.reach.NotAfter), r.reach.Revision)
	case r.reach.NotAfter.IsZero():
		return fmt.Sprintf("the log's position %d", r.reach.Position)
	}
	return fmt.Sprintf("the log's position %d at %s (--to %s)", r.reach.Position, text(r.reach.NotAfter), exact(r.reach.NotAfter))
}

// exact is t as a flag takes it, without a fraction of a second lost.
func exact(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// nextPoint is the first point behind a target that is out of reach, in words: a backup, for whatever can be restored begins with
// one. "" if there is none.
func nextPoint(c catalog.Catalog, t Target) string {
	bases := c.Backups
	if t.Lineage != "" {
		bases = nil
		for _, s := range stretches(c, t.Lineage) {
			bases = append(bases, s.bases...)
		}
	}
	var next *catalog.Backup
	for i, b := range bases {
		behind := t.Revision > 0 && b.Revision > t.Revision || !t.Time.IsZero() && b.Started.After(t.Time)
		if behind && b.Usable() == nil && (next == nil || b.Started.Before(next.Started)) {
			next = &bases[i]
		}
	}
	if next == nil {
		return ""
	}
	return fmt.Sprintf("backup %s, revision %d at %s (dr restore %s)", next.ID, next.Revision, text(next.Started), next.ID)
}

func text(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
