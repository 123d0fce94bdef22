package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Point is a place in one history.
type Point struct {
	Position uint64    `json:"position"`
	Revision int64     `json:"revision"`      // of the key space there; if unknown, a lower bound
	Time     time.Time `json:"time,omitzero"` // when the cluster was there
}

// Window is a part of the log together with a base: every point from From to To can be restored.
type Window struct {
	Lineage string         `json:"lineage"`
	Source  segment.Source `json:"source"`          // how the log was read
	Base    ID             `json:"base"`            // the oldest backup that the log continues
	Doubt   string         `json:"doubt,omitempty"` // why Base is doubtful; "" unless it is, and no better base exists
	// From and To are the first and the last point that can be restored.
	From Point `json:"from"`
	To   Point `json:"to"`
	// Most is an upper bound for the revision of a restore to To. If no bound is known, it is To.Revision, and is not a bound.
	Most int64 `json:"mostRevision"`
	// Diverged describes how the members' key spaces differed, according to the newest segment of the window that recorded a
	// difference; "" if no difference was known.
	Diverged string `json:"diverged,omitempty"`
	Segments int    `json:"segments"` // the number of segments to replay onto Base
	Bytes    int64  `json:"bytes"`    // the stored size of these segments
}

// GapKind is the cause of a gap in the log.
type GapKind string

// The kinds of gaps.
const (
	GapLost     GapKind = "lost"     // segments are missing or damaged
	GapRecorded GapKind = "recorded" // the agent could not archive it and recorded the reason
	GapRestored GapKind = "restored" // nothing is lost: the cluster was restored or created, and a new history begins
)

// Gap is a part of the log that no segment contains, or the border between two histories.
type Gap struct {
	Kind        GapKind
	Lineage     string    // the lineage before the gap
	NextLineage string    // the lineage after the gap: Lineage itself for a gap within it, "" if nothing follows
	From, To    uint64    // positions, both inclusive; 0 if unknown
	Since       time.Time // of the last mark before the gap
	Until       time.Time // of the first mark after the gap; zero if no segment follows
	Reason      string
}

// CheckUsable returns an error if b should be a base only as a last resort.
func (b Backup) CheckUsable() error {
	err := b.CheckCluster()
	if err != nil {
		return err
	}
	proof, failed := b.Failed()
	if failed {
		return fmt.Errorf("it failed its last check: %s", proof.Finding)
	}
	return nil
}

// CheckCluster returns the problem of the cluster that was known when the backup was taken; nil if there was none. The bytes of
// such a backup can be intact and still wrong.
func (m Manifest) CheckCluster() error {
	if slices.Contains(m.Alarms, "CORRUPT") {
		return errors.New("a member had the alarm CORRUPT when it was taken")
	}
	if m.Diverged != "" {
		return fmt.Errorf("the members had diverged when it was taken: %s", m.Diverged)
	}
	return nil
}

// Bases returns the backups that s continues, newest first: those whose position, by its known bounds, lies in s or directly
// before it. It returns only those that pass CheckUsable, or all if none does. If a backup fits several
// histories by its numbers, its time decides, since histories can share a cluster id.
func (c Catalog) Bases(s Stretch) []Backup {
	usable, doubtful := c.bases(s)
	if len(usable) == 0 {
		return doubtful
	}
	return usable
}

// DoubtfulBases returns the backups, newest first, that s continues and Bases omits because others pass CheckUsable. They are
// the only bases for points of s before the first usable one.
func (c Catalog) DoubtfulBases(s Stretch) []Backup {
	usable, doubtful := c.bases(s)
	if len(usable) == 0 {
		return nil
	}
	return doubtful
}

// bases returns the backups that s continues, newest first, separated by CheckUsable.
func (c Catalog) bases(s Stretch) (usable, doubtful []Backup) {
	for _, b := range c.Backups {
		switch {
		case !b.fits(s) || c.fitsElsewhere(b, s):
		case b.CheckUsable() == nil:
			usable = append(usable, b)
		default:
			doubtful = append(doubtful, b)
		}
	}
	return usable, doubtful
}

// HighestIndex returns the upper bound of the snapshot's consistent index, or the lower bound if that is unknown.
func (b Backup) HighestIndex() uint64 { return max(b.RaftIndex, b.RaftIndexMax) }

// HighestRevision returns the upper bound of the snapshot's revision, or the lower bound if that is unknown.
func (b Backup) HighestRevision() int64 { return max(b.Revision, b.RevisionMax) }

// Span returns the bounds, both inclusive, of the snapshot's position in a log of that source.
func (b Backup) Span(log segment.Source) (from, to uint64) {
	if log == segment.Watch {
		return uint64(b.Revision), uint64(b.HighestRevision())
	}
	return b.RaftIndex, b.HighestIndex()
}

// fits reports whether s may continue b, by name, id, position, term, revision and time.
func (b Backup) fits(s Stretch) bool {
	first := s.Segments[0]
	from, to := b.Span(s.Source())
	return b.Cluster == first.Cluster && SameClusterID(b.ClusterID, first.ClusterID) &&
		from > 0 && from >= first.First-1 && to <= s.Last() && b.fitsTerm(s) && b.fitsRevision(s) && b.fitsTime(s)
}

// fitsTerm reports whether b's term is not below that of the segment before b, and not above that of s's end. Term 0 is
// unknown and fits. A log from Watch has no terms.
func (b Backup) fitsTerm(s Stretch) bool {
	if s.Source() == segment.Watch {
		return true
	}
	at := s.SegmentIndex(b.RaftIndex)
	tooLow := at > 0 && s.Segments[at-1].Last < b.RaftIndex && b.RaftTerm < s.Segments[at-1].End.Term
	tooHigh := b.RaftTerm > s.Segments[len(s.Segments)-1].End.Term
	return b.RaftTerm == 0 || !tooLow && !tooHigh
}

// fitsRevision reports whether the revision of the next mark is reachable from b: not lower, and higher by at most one for each
// request between them, plus one because a manifest's index can be one too high (etcd 3.4). The check is needed only where no
// mark before b bounds its time, at the beginning of a log from WAL or after a recorded gap.
func (b Backup) fitsRevision(s Stretch) bool {
	_, bounded := s.markBefore(b.RaftIndex)
	if bounded || !s.isResumed() || s.Source() == segment.Watch {
		return true
	}
	for m := range s.marks() {
		if m.Revision == 0 || m.Position < b.RaftIndex {
			continue
		}
		made := m.Revision - b.RevisionMax
		return b.Revision <= m.Revision && (b.RevisionMax == 0 || made <= int64(m.Position-b.RaftIndex)+1)
	}
	return true
}

// fitsTime reports whether b was started when the cluster was at b's position, give or take ClockAllowance.
func (b Backup) fitsTime(s Stretch) bool { return b.startedOutside(s) <= ClockAllowance }

// startedOutside returns how far b.Started lies outside the interval that its position in s implies; 0 if it lies inside.
func (b Backup) startedOutside(s Stretch) time.Duration {
	earliest, last := s.after, s.Segments[len(s.Segments)-1]
	position, _ := b.Span(s.Source())
	m, ok := s.markBefore(position)
	if !ok && position >= s.First() && !s.isResumed() {
		m, ok = s.markFrom(0)
	}
	if ok {
		earliest = m.NotBefore
	}
	latest := storage.Later(last.Written, s.until())
	m, ok = s.markFrom(position + 1)
	if ok {
		latest = m.NotAfter
	}
	return max(0, earliest.Sub(b.Started), b.Started.Sub(latest))
}

// isResumed reports whether the agent began or resumed the log with s. Requests before the first mark of s may then be older than
// the agent, so only s.after bounds their time from below. After a recorded gap s.after must be known: without it a backup of an
// earlier history could not be told from one of s.
func (s Stretch) isResumed() bool {
	first := s.Segments[0]
	return first.FirstSeq() == 1 || first.Reason != "" && !s.after.IsZero()
}

// fitsElsewhere reports whether b fits another history better by time. After a restore in place, all numbers of a backup fit
// the history before the restore too, and its time almost does.
func (c Catalog) fitsElsewhere(b Backup, s Stretch) bool {
	outside := b.startedOutside(s)
	if outside == 0 {
		return false
	}
	for _, l := range c.Lineages {
		if l.ID == s.Lineage {
			continue
		}
		for _, other := range l.Stretches() {
			if b.fits(other) && b.startedOutside(other) < outside {
				return true
			}
		}
	}
	return false
}

// SameClusterID reports whether two ids in hex are equal apart from leading zeros.
func SameClusterID(a, b string) bool {
	return strings.TrimLeft(a, "0") == strings.TrimLeft(b, "0")
}

// Windows returns the parts of the log that can be restored, oldest lineage first: one for each stretch that has a base, from
// its oldest base to its end.
func (c Catalog) Windows() []Window {
	var windows []Window
	for _, l := range c.Lineages {
		windows = append(windows, c.windowsOf(l)...)
	}
	return windows
}

// windowsOf returns the windows of l, oldest first. No time of a window is later than the end of a base of a later window,
// though a mark's NotAfter can be.
func (c Catalog) windowsOf(l Lineage) (windows []Window) {
	var limit time.Time // when the first base of the later windows was finished; zero if there is none
	for _, s := range slices.Backward(l.Stretches()) {
		bases := c.Bases(s)
		if len(bases) == 0 {
			continue
		}
		w := window(s, s.oldest(bases))
		w.Most = max(w.To.Revision, s.MostRevision(bases))
		if w.Most == math.MaxInt64 {
			w.Most = w.To.Revision
		}
		w.From.Time, w.To.Time = earliest(w.From.Time, limit), earliest(w.To.Time, limit)
		windows = append(windows, w)
		for _, b := range bases {
			limit = earliest(b.Finished, limit)
		}
	}
	slices.Reverse(windows)
	return windows
}

// earliest returns the earlier of a and b; a if b is zero.
func earliest(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// oldest returns the base with the lowest position, which gives the widest window. There must be at least one base.
func (s Stretch) oldest(bases []Backup) Backup {
	return slices.MinFunc(bases, func(a, b Backup) int {
		_, toA := a.Span(s.Source())
		_, toB := b.Span(s.Source())
		return cmp.Or(cmp.Compare(toA, toB), a.Finished.Compare(b.Finished), cmp.Compare(a.ID, b.ID))
	})
}

// window returns the window of s from base on.
func window(s Stretch, base Backup) Window {
	w := Window{Lineage: s.Lineage, Source: s.Source(), Base: base.ID, From: baseEnd(s, base), To: s.End()}
	w.To.Revision = max(w.To.Revision, w.From.Revision)
	if w.To.Time.Before(w.From.Time) {
		w.To.Time = w.From.Time
	}
	err := base.CheckUsable()
	if err != nil {
		w.Doubt = err.Error()
	}
	begin, _ := base.Span(s.Source())
	for _, segment := range s.Segments[s.SegmentIndex(begin+1):] {
		w.Segments += segment.Count()
		w.Bytes += segment.Size
		w.Diverged = cmp.Or(segment.Diverged, w.Diverged)
	}
	return w
}

// baseEnd returns the first point that is certainly reachable from base: the upper bound of its position.
func baseEnd(s Stretch, base Backup) Point {
	_, end := base.Span(s.Source())
	p := Point{Position: end, Revision: base.HighestRevision(), Time: base.Finished}
	m, ok := s.markFrom(p.Position)
	if ok && m.NotAfter.Before(p.Time) {
		p.Time = m.NotAfter
	}
	return p
}

// End returns the last point of s: its last position, the highest known revision, and the time of the last mark.
func (s Stretch) End() Point {
	p := Point{Position: s.Last()}
	m, ok := s.LastMark()
	if ok {
		p.Time = m.NotAfter
	}
	p.Revision = s.revisionOf(p.Position)
	for m := range s.marks() {
		p.Revision = max(p.Revision, m.Revision)
	}
	return p
}

// Gaps returns the gaps in the log, by lineage, oldest first: before a lineage that follows another, within it, and after its
// last segment if later ones are lost.
func (c Catalog) Gaps() []Gap {
	var gaps []Gap
	for _, l := range c.Lineages {
		g, ok := c.gapBefore(l)
		if ok {
			gaps = append(gaps, g)
		}
		stretches := l.Stretches()
		for i := 1; i < len(stretches); i++ {
			gaps = append(gaps, l.gapBetween(stretches[i-1], stretches[i]))
		}
		g, ok = l.gapAfter(stretches)
		if ok {
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// After returns the end of the lineage that l follows; nil if there is none or it is unknown.
func (l Lineage) After() *segment.After {
	if len(l.Segments) == 0 || l.Segments[0].Lineage != l.ID {
		return nil
	}
	return l.Segments[0].After
}

// gapBefore returns the gap between l and the lineage that it follows. The earlier lineage may extend past the end that l
// names.
func (c Catalog) gapBefore(l Lineage) (Gap, bool) {
	after := l.After()
	if after == nil {
		return Gap{}, false
	}
	first := l.Segments[0]
	g := Gap{
		Kind: GapRecorded, Lineage: after.Lineage, NextLineage: l.ID, Since: after.Time, Until: first.Begins(), Reason: first.Reason,
	}
	end := after.Position
	i := slices.IndexFunc(c.Lineages, func(l Lineage) bool { return l.ID == after.Lineage })
	if i >= 0 {
		older := c.Lineages[i]
		if older.Pruned > 0 && len(older.Segments) == 0 {
			return Gap{}, false // the older lineage was pruned as a whole
		}
		stretches := older.Stretches()
		if len(stretches) > 0 {
			last := stretches[len(stretches)-1]
			if !SameClusterID(last.Segments[0].ClusterID, first.ClusterID) {
				g.Kind = GapRestored
			}
			end = max(end, last.Last())
			g.Since = storage.Later(g.Since, last.until())
		}
	}
	if g.Until.Before(g.Since) {
		g.Until = g.Since
	}
	if first.First > end+1 { // if not, the positions are unrelated, or none is missing
		g.From, g.To = end+1, first.First-1
	}
	return g, true
}

// gapBetween returns the gap between two consecutive stretches of l.
func (l Lineage) gapBetween(a, b Stretch) Gap {
	first := b.Segments[0]
	g := Gap{
		Kind: GapLost, Lineage: l.ID, NextLineage: l.ID, From: a.Last() + 1, To: b.First() - 1,
		Since: a.until(), Until: storage.Later(a.until(), first.Begins()), Reason: l.firstFault(a, first.FirstSeq()),
	}
	if g.Reason == "" {
		g.Kind, g.Reason = GapRecorded, first.Reason
	}
	if g.From > g.To { // the chain of digests breaks, and no position is missing
		g.From, g.To = 0, 0
	}
	return g
}

// gapAfter returns the gap after the last stretch. It is not ok if nothing is lost there, or if l has no stretches.
func (l Lineage) gapAfter(stretches []Stretch) (Gap, bool) {
	if len(stretches) == 0 {
		return Gap{}, false
	}
	last := stretches[len(stretches)-1]
	reason := l.firstFault(last, 0)
	if reason == "" {
		return Gap{}, false
	}
	g := Gap{Kind: GapLost, Lineage: l.ID, From: last.Last() + 1, Since: last.until(), Reason: reason}
	for _, f := range l.Faults {
		if f.Last >= g.From {
			g.To = max(g.To, f.Last)
		}
	}
	return g, true
}

// firstFault returns the error of the first fault after a and before segment seq; "" if there is none. Seq 0 means up to the end.
func (l Lineage) firstFault(a Stretch, seq uint64) string {
	end := a.Segments[len(a.Segments)-1].Seq
	for _, f := range l.Faults {
		if f.Seq > end && (seq == 0 || f.Seq < seq) {
			return f.Err.Error()
		}
	}
	return ""
}

// Begins returns a time at which the member had reached the first mark: the mark's NotAfter. Without marks it returns
// s.Written.
func (s Segment) Begins() time.Time {
	if len(s.Marks) > 0 {
		return s.Marks[0].NotAfter
	}
	return s.Written
}

// until returns a time at which the member had reached the last mark of s: the mark's NotAfter. Without marks it returns the
// time at which the last segment was written.
func (s Stretch) until() time.Time {
	m, ok := s.LastMark()
	if ok {
		return m.NotAfter
	}
	return s.Segments[len(s.Segments)-1].Written
}
