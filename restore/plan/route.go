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
	// Source is how the agent read the log. A log from watch contains neither users nor leases without keys: the restore takes
	// these from the backup.
	Source segment.Source `json:"source"`
	First  uint64         `json:"first"` // number of the first segment
	Last   uint64         `json:"last"`  // number of the last segment
	// Digest is that of the last segment's header. It fixes all segments: each header contains the digest of the one before.
	Digest   string `json:"digest"`
	Segments int    `json:"segments"`        // number of segments
	Requests int    `json:"requests"`        // in these segments; the backup may contain some of them
	Bytes    int64  `json:"bytes"`           // as stored
	Plain    int    `json:"plain,omitempty"` // number of segments that are not encrypted
	// Revision and Position are where the replay stops: right after the request that made Revision, or after the last request up to
	// Position. Both are 0 if it stops at the end.
	Revision int64  `json:"revision,omitempty"`
	Position uint64 `json:"position,omitempty"`
}

// Reach is the point that a plan reaches: the state of the cluster that it restores.
type Reach struct {
	Position uint64 `json:"position,omitempty"` // a raft index, or a revision in a log from watch; 0: not known before the restore
	Revision int64  `json:"revision,omitempty"` // of the key space; 0: not known before the restore
	// NotBefore and NotAfter are the bounds of its time: the state contains every write acknowledged by NotBefore, and no write
	// after NotAfter. Zero if unknown.
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	// Newest is the newest known point of the repository, restorable or not.
	Newest catalog.Point `json:"newest"`
}

// UnreachableError is New's error for a target that no route leads to. It matches catalog.ErrNotFound.
type UnreachableError struct {
	Why     string
	Nearest string // describes the last point before the target; "" if there is none
	Next    string // describes the first point after the target; "" if none is known
}

func (e *UnreachableError) Error() string {
	text := fmt.Sprintf("the target is %v: %s", catalog.ErrNotFound, e.Why)
	if e.Nearest != "" {
		text += fmt.Sprintf("; the nearest restorable point is %s: restore that, or add --best", e.Nearest)
	}
	if e.Next != "" {
		text += "; the first point after it is " + e.Next
	}
	return text
}

// Unwrap makes e match catalog.ErrNotFound.
func (e *UnreachableError) Unwrap() error { return catalog.ErrNotFound }

// route is a way to a target: a base, and the requests that are replayed onto it. It is zero for a plain file.
type route struct {
	base catalog.Backup // its ID is "" if the base is a disk's database
	// members is the newest backup of the same history up to the target. Its manifest names the members. Its ID is "" if there is
	// no such backup.
	members catalog.Backup
	log     *Log
	reach   Reach
	notes   []string

	salvage *Salvage // in place of base, or after log; nil: no disk is used
}

// isNone reports whether r is the zero route.
func (r route) isNone() bool { return r.base.ID == "" && r.salvage == nil }

// stretch is a part of the log without gaps, with the backups from which its log can be replayed.
type stretch struct {
	catalog.Stretch
	bases    []catalog.Backup // newest first
	doubtful []catalog.Backup // newest first; used only for points that no base leads to
}

// stretches returns the parts of the log that have a base, oldest first: those of one lineage, or of all if lineage is "".
func stretches(c catalog.Catalog, lineage string) (usable []stretch) {
	for _, l := range c.Lineages {
		if lineage != "" && l.ID != lineage {
			continue
		}
		for _, s := range l.Stretches() {
			bases := c.Bases(s)
			if len(bases) > 0 {
				usable = append(usable, stretch{s, bases, c.DoubtfulBases(s)})
			}
		}
	}
	return usable
}

// findRoute returns the fastest route to t. If there is none, it returns the route to the nearest point if t.Best is set, else an error
// that names that point. For a plain file it returns the zero route.
func findRoute(c catalog.Catalog, t Target) (route, error) {
	if t.File != "" {
		return route{}, nil
	}
	if t.Plain == PlainSkipped {
		c = Encrypted(c)
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
	find := t.repositoryRoute
	if t.Disks != nil {
		find = func(c catalog.Catalog) (route, error) { return salvaged(c, t) }
	}
	r, err := find(c)
	unreachable, ok := errors.AsType[*UnreachableError](err)
	if ok {
		unreachable.Next = nextPoint(c, t)
	}
	if err != nil {
		return route{}, err
	}
	r.reach.Newest = newest(c)
	return r, nil
}

// repositoryRoute returns the route to t through backups and the archived log.
func (t Target) repositoryRoute(c catalog.Catalog) (route, error) {
	usable := stretches(c, t.Lineage)
	if t.Lineage != "" && len(usable) == 0 {
		return route{}, &UnreachableError{Why: fmt.Sprintf("lineage %s is not in the log, or no backup precedes it", t.Lineage)}
	}
	switch {
	case len(c.Backups) == 0 && len(c.Lineages) == 0:
		return latestBackup(c, t, "") // its error names the reason
	case t.Revision > 0:
		return toRevision(c, t, usable)
	case !t.Time.IsZero():
		return toTime(c, t, usable)
	case t.Position > 0:
		return toPosition(t, usable)
	case len(usable) > 0:
		return toLatest(c, t, usable)
	case len(c.Lineages) > 0:
		return latestBackup(c, t, "no backup precedes the log: this backup is restored without it")
	}
	return latestBackup(c, t, "")
}

func backupAlone(c catalog.Catalog, id catalog.ID) (route, error) {
	b, err := c.Find(id)
	if err != nil {
		return route{}, err
	}
	r := backupRoute(b)
	r.reach.Newest = newest(c)
	return r, nil
}

// backupRoute returns the route to a backup, without the log.
func backupRoute(b catalog.Backup) route {
	reach := Reach{NotBefore: b.Started, NotAfter: b.Finished}
	if b.Origin != nil {
		reach.NotBefore = time.Time{} // nothing shows which acknowledged writes it contains
	}
	return route{base: b, members: b, reach: reach}
}

// newest returns the newest point in c, whether it can be reached or not.
func newest(c catalog.Catalog) catalog.Point {
	var p catalog.Point
	if len(c.Backups) > 0 {
		b := c.Backups[0]
		p = catalog.Point{Position: b.RaftIndex, Revision: b.Revision, Time: b.Started}
	}
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			end := s.End()
			if end.Time.After(p.Time) {
				p = end
			}
		}
	}
	return p
}

// routeFrom returns the fastest route from an allowed base through the first upTo segments of s. It begins with a doubtful backup only
// if no base is allowed. It returns false if there is no such route.
func (s stretch) routeFrom(upTo int, allowed func(catalog.Backup) bool) (route, bool) {
	r, ok := s.fastestRoute(s.bases, upTo, allowed)
	if !ok {
		r, ok = s.fastestRoute(s.doubtful, upTo, allowed)
	}
	return r, ok
}

// fastestRoute returns the fastest route from one of the allowed bases through the first upTo segments of s. bases are newest first; the
// newest allowed one names the members.
func (s stretch) fastestRoute(bases []catalog.Backup, upTo int, allowed func(catalog.Backup) bool) (route, bool) {
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
		cost := r.estimate()
		if best.log == nil || cost < bestCost {
			best, bestCost = r, cost
		}
	}
	best.members = members
	return best, best.log != nil
}

// has reports whether b is a base of s.
func (s stretch) has(b catalog.Backup) bool {
	return s.hasBase(func(base catalog.Backup) bool { return base.ID == b.ID })
}

// hasBase reports whether s has an allowed base, perhaps a doubtful one.
func (s stretch) hasBase(allowed func(catalog.Backup) bool) bool {
	return slices.ContainsFunc(s.bases, allowed) || slices.ContainsFunc(s.doubtful, allowed)
}

// log returns the part of s after b, up to the end of its first upTo segments. It includes the segment that contains b's position, not
// only later ones: etcd 3.4 may write a position that is one too high, and the restore would miss the request there.
func (s stretch) log(b catalog.Backup, upTo int) *Log {
	begin, _ := b.Span(s.Source())
	from := min(max(s.SegmentsUpTo(max(begin, s.First())), 1), upTo) - 1
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

// The throughput of a restore, measured on two cores (docs/benchmarks.md).
const (
	bytesPerSecond    = 250 << 20
	requestsPerSecond = 120_000
)

// estimate returns roughly how long the restore takes.
func (r route) estimate() time.Duration {
	seconds := float64(r.base.Plain.Size) / bytesPerSecond
	if r.log != nil {
		seconds += float64(r.log.Requests) / requestsPerSecond
	}
	if r.salvage != nil && r.salvage.Database != nil {
		seconds += float64(r.salvage.Database.Size) / bytesPerSecond
	}
	if r.salvage != nil && r.salvage.Log != nil {
		seconds += float64(r.salvage.Log.Certain.Requests+r.salvage.Log.Probable.Requests) / requestsPerSecond
	}
	return time.Duration(seconds * float64(time.Second))
}

// nearestNote begins the note on a plan that does not reach its target.
const nearestNote = "not the requested point but the nearest restorable one"

// orNearest returns r, the route to the nearest point, if t.Best is set; else an error that names that point and why.
func (t Target) orNearest(r route, why string) (route, error) {
	if !t.Best {
		return route{}, &UnreachableError{Why: why, Nearest: r.describeEnd()}
	}
	r.notes = append(r.notes, nearestNote+": "+why)
	return r, nil
}

// describeEnd describes the end of r.
func (r route) describeEnd() string {
	switch {
	case r.salvage != nil:
		return fmt.Sprintf("the disks' position %d", r.salvage.end())
	case r.log == nil:
		return fmt.Sprintf("backup %s, revision %d at %s", r.base.ID, r.base.Revision, formatTime(r.base.Started))
	case r.reach.Revision > 0:
		return fmt.Sprintf("revision %d at %s (--to-revision %d)", r.reach.Revision, formatTime(r.reach.NotAfter), r.reach.Revision)
	case r.reach.NotAfter.IsZero():
		return fmt.Sprintf("the log's position %d", r.reach.Position)
	}
	return fmt.Sprintf("the log's position %d at %s (--to %s)", r.reach.Position, formatTime(r.reach.NotAfter), flagTime(r.reach.NotAfter))
}

// flagTime formats t for a flag, with all fractions of a second.
func flagTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// nextPoint describes the first usable backup after an unreachable target; "" if there is none.
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
		after := t.Revision > 0 && b.Revision > t.Revision || !t.Time.IsZero() && b.Started.After(t.Time)
		if after && b.CheckUsable() == nil && (next == nil || b.Started.Before(next.Started)) {
			next = &bases[i]
		}
	}
	if next == nil {
		return ""
	}
	return fmt.Sprintf("backup %s, revision %d at %s (dr restore %s)", next.ID, next.Revision, formatTime(next.Started), next.ID)
}

// formatTime formats t for people.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
