package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Point is a place in one history.
type Point struct {
	Position uint64    `json:"position"`
	Revision int64     `json:"revision"` // of the key space there or, where no mark says it, at a place before
	Time     time.Time `json:"time,omitzero"`
}

// Window is a run of the log with a base for it: any point from From to To can be restored.
type Window struct {
	Lineage string         `json:"lineage"`
	Source  segment.Source `json:"source"`          // where the log was read
	Base    ID             `json:"base"`            // the oldest backup that the log goes on from
	Doubt   string         `json:"doubt,omitempty"` // why Base is to be used only where there is no other; "" for a good one
	From    Point          `json:"from"`
	To      Point          `json:"to"`
	// Most is a revision that a restore to the end cannot be beyond: To's, or more where no mark says what the last requests made.
	Most int64 `json:"mostRevision"`
	// Diverged is how the members' key spaces differed when a segment of it was cut, the newest; "" if no difference was known.
	Diverged string `json:"diverged,omitempty"`
	Segments int    `json:"segments"` // that are needed behind Base
	Bytes    int64  `json:"bytes"`    // of these segments, as stored
}

// GapKind is why the log has a gap.
type GapKind string

// The kinds of gaps.
const (
	GapLost     GapKind = "lost"     // segments are missing or damaged
	GapRecorded GapKind = "recorded" // the agent could not archive it, and recorded that
	GapRestored GapKind = "restored" // none: the cluster was restored or made anew, and its history begins there
)

// Gap is a part of the log that is in no segment, or where one history ends and another begins.
type Gap struct {
	Kind        GapKind
	Lineage     string
	NextLineage string // that follows it; Lineage itself for a gap within, "" if nothing follows
	From, To    uint64 // positions, both inclusive; 0 where they are not known
	Since       time.Time
	Until       time.Time // zero if nothing follows
	Reason      string
}

// clockAllowance is by how much the clocks of those who take backups and of those who archive may differ.
const ClockAllowance = 5 * time.Minute

// Usable says why b should be a base only where there is no other; nil if nothing is known against it.
func (b Backup) Usable() error {
	if err := b.Marked(); err != nil {
		return err
	}
	if proof, failed := b.Failed(); failed {
		return fmt.Errorf("it failed its last check: %s", proof.Finding)
	}
	return nil
}

// Marked is what was known against the cluster when m was taken, nil if nothing was: its bytes may be whole, and wrong.
func (m Manifest) Marked() error {
	if slices.Contains(m.Alarms, "CORRUPT") {
		return errors.New("a member had the alarm CORRUPT when it was taken")
	}
	if m.Diverged != "" {
		return fmt.Errorf("the members had diverged when it was taken: %s", m.Diverged)
	}
	return nil
}

// Bases are the backups that s goes on from, newest first: the snapshot's own index lies in s or right before it, as far
// as its bounds tell. If none of them is Usable they are all there, else only those that are. A cluster's id is not a
// history: where a backup fits into several by its numbers, its time decides.
func (c Catalog) Bases(s Stretch) []Backup {
	usable, doubtful := c.bases(s)
	if len(usable) == 0 {
		return doubtful
	}
	return usable
}

// DoubtfulBases returns the backups, newest first, that Bases leaves out because s has better ones. Points of s before those
// have no other base.
func (c Catalog) DoubtfulBases(s Stretch) []Backup {
	usable, doubtful := c.bases(s)
	if len(usable) == 0 {
		return nil
	}
	return doubtful
}

// bases returns the backups that s continues, newest first, by whether they are Usable.
func (c Catalog) bases(s Stretch) (usable, doubtful []Backup) {
	for _, b := range c.Backups {
		switch {
		case !b.fits(s) || c.fitsElsewhere(b, s):
		case b.Usable() == nil:
			usable = append(usable, b)
		default:
			doubtful = append(doubtful, b)
		}
	}
	return usable, doubtful
}

// HighestIndex is the upper bound of the snapshot's consistent index, or the lower one if nothing else is known.
func (b Backup) HighestIndex() uint64 { return max(b.RaftIndex, b.RaftIndexMax) }

// HighestRevision is the same of the key space's revision.
func (b Backup) HighestRevision() int64 { return max(b.Revision, b.RevisionMax) }

// Span is between which positions of a log from that source the snapshot's own lies, both inclusive.
func (b Backup) Span(log segment.Source) (from, to uint64) {
	if log == segment.Watch {
		return uint64(b.Revision), uint64(b.HighestRevision())
	}
	return b.RaftIndex, b.HighestIndex()
}

func (b Backup) fits(s Stretch) bool {
	first := s.Segments[0]
	from, to := b.Span(s.Source())
	return b.Cluster == first.Cluster && SameClusterID(b.ClusterID, first.ClusterID) &&
		from > 0 && from >= first.First-1 && to <= s.Last() && b.fitsTerm(s) && b.fitsRevision(s) && b.fitsTime(s)
}

// fitsTerm: the member's term was not below that of an entry which it had applied, nor above any that came later. A
// term of 0 is not known. Revisions have none.
func (b Backup) fitsTerm(s Stretch) bool {
	if s.Source() == segment.Watch {
		return true
	}
	at := s.Holding(b.RaftIndex)
	tooLow := at > 0 && s.Segments[at-1].Last < b.RaftIndex && b.RaftTerm < s.Segments[at-1].End.Term
	tooHigh := b.RaftTerm > s.Segments[len(s.Segments)-1].End.Term
	return b.RaftTerm == 0 || !tooLow && !tooHigh
}

// fitsRevision: where no mark before it bounds its time, the next one's revision is not below the backup's, and not above it by
// more than the requests between, which make one each at most. A manifest's index may be one too high (etcd 3.4), so one more
// is allowed.
func (b Backup) fitsRevision(s Stretch) bool {
	_, bounded := s.markBefore(b.RaftIndex)
	if bounded || !s.begins() || s.Source() == segment.Watch {
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

// fitsTime: its index was asked for after the position before it was there, and before the one behind it was.
func (b Backup) fitsTime(s Stretch) bool { return b.outside(s) <= ClockAllowance }

// outside returns how far b.Started lies outside of the interval that its place in s implies; 0 if it lies inside.
func (b Backup) outside(s Stretch) time.Duration {
	earliest, last := s.after, s.Segments[len(s.Segments)-1]
	position, _ := b.Span(s.Source())
	if m, ok := s.markBefore(position); ok {
		earliest = m.NotBefore
	} else if m, ok := s.markFrom(0); ok && position >= s.First() && !s.begins() {
		earliest = m.NotBefore
	}
	latest := latest(last.Written, s.until())
	if m, ok := s.markFrom(position + 1); ok {
		latest = m.NotAfter
	}
	return max(0, earliest.Sub(b.Started), b.Started.Sub(latest))
}

// begins reports whether s is the beginning of its lineage. Its first segment holds what the member had written before the
// agent began and marked anything: up to its first mark only an upper bound is known, unless it names a history before it.
func (s Stretch) begins() bool {
	return s.Segments[0].FirstSeq() == 1
}

// fitsElsewhere reports whether b fits better into another history. After a restore in place a backup fits into the one
// before, too, by all its numbers and nearly by its time.
func (c Catalog) fitsElsewhere(b Backup, s Stretch) bool {
	outside := b.outside(s)
	if outside == 0 {
		return false
	}
	for _, l := range c.Lineages {
		if l.ID == s.Lineage {
			continue
		}
		for _, other := range l.Stretches() {
			if b.fits(other) && b.outside(other) < outside {
				return true
			}
		}
	}
	return false
}

// SameClusterID compares ids in hex, of which some are written with leading zeros.
func SameClusterID(a, b string) bool {
	return strings.TrimLeft(a, "0") == strings.TrimLeft(b, "0")
}

// Windows are what can be restored with the log, oldest lineage first: one for each stretch that has a base among the
// backups in the catalog, from its oldest one on.
func (c Catalog) Windows() []Window {
	var windows []Window
	for _, l := range c.Lineages {
		windows = append(windows, c.windowsOf(l)...)
	}
	return windows
}

// windowsOf are those of l. A mark may say late what the state was: a window is over when a base of a later one is there.
func (c Catalog) windowsOf(l Lineage) (windows []Window) {
	var over time.Time
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
		w.From.Time, w.To.Time = earliest(w.From.Time, over), earliest(w.To.Time, over)
		windows = append(windows, w)
		for _, b := range bases {
			over = earliest(b.Finished, over)
		}
	}
	slices.Reverse(windows)
	return windows
}

// earliest is a, or b if that comes before it and is known.
func earliest(a, b time.Time) time.Time {
	if !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// oldest is the base with which the window is the widest.
func (s Stretch) oldest(bases []Backup) Backup {
	return slices.MinFunc(bases, func(a, b Backup) int {
		_, toA := a.Span(s.Source())
		_, toB := b.Span(s.Source())
		return cmp.Or(cmp.Compare(toA, toB), a.Finished.Compare(b.Finished), cmp.Compare(a.ID, b.ID))
	})
}

func window(s Stretch, base Backup) Window {
	w := Window{Lineage: s.Lineage, Source: s.Source(), Base: base.ID, From: from(s, base), To: s.End()}
	w.To.Revision = max(w.To.Revision, w.From.Revision)
	if w.To.Time.Before(w.From.Time) {
		w.To.Time = w.From.Time
	}
	if err := base.Usable(); err != nil {
		w.Doubt = err.Error()
	}
	begin, _ := base.Span(s.Source())
	for _, segment := range s.Segments[s.Holding(begin+1):] {
		w.Segments += segment.Count()
		w.Bytes += segment.Size
		w.Diverged = cmp.Or(segment.Diverged, w.Diverged)
	}
	return w
}

// from is the first point that base surely reaches: the end of its bounds.
func from(s Stretch, base Backup) Point {
	_, end := base.Span(s.Source())
	p := Point{Position: end, Revision: base.HighestRevision(), Time: base.Finished}
	if m, ok := s.markFrom(p.Position); ok && m.NotAfter.Before(p.Time) {
		p.Time = m.NotAfter
	}
	return p
}

// End is the last point of s: its last position, the highest revision that is known, and the last mark's time.
func (s Stretch) End() Point {
	p := Point{Position: s.Last()}
	if m, ok := s.LastMark(); ok {
		p.Time = m.NotAfter
	}
	p.Revision = s.revisionOf(p.Position)
	for m := range s.marks() {
		p.Revision = max(p.Revision, m.Revision)
	}
	return p
}

// Gaps are the holes in the log, oldest first: within lineages, at the end of one that has lost its last segments, and
// between a lineage and the one that comes after it.
func (c Catalog) Gaps() []Gap {
	var gaps []Gap
	for _, l := range c.Lineages {
		if g, ok := c.gapBefore(l); ok {
			gaps = append(gaps, g)
		}
		stretches := l.Stretches()
		for i := 1; i < len(stretches); i++ {
			gaps = append(gaps, l.gapBetween(stretches[i-1], stretches[i]))
		}
		if g, ok := l.gapBehind(stretches); ok {
			gaps = append(gaps, g)
		}
	}
	return gaps
}

// after is where the lineage before l ended, nil if there was none or nothing tells.
func (l Lineage) After() *segment.After {
	if len(l.Segments) == 0 || l.Segments[0].Lineage != l.ID {
		return nil
	}
	return l.Segments[0].After
}

// gapBefore is the gap between l and the lineage that it comes after. The older one may have gone on for a while.
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
	if i := slices.IndexFunc(c.Lineages, func(l Lineage) bool { return l.ID == after.Lineage }); i >= 0 {
		older := c.Lineages[i]
		if older.Pruned > 0 && len(older.Segments) == 0 {
			return Gap{}, false // nobody is to go back there
		}
		if stretches := older.Stretches(); len(stretches) > 0 {
			last := stretches[len(stretches)-1]
			if !SameClusterID(last.Segments[0].ClusterID, first.ClusterID) {
				g.Kind = GapRestored
			}
			end = max(end, last.Last())
			g.Since = latest(g.Since, last.until())
		}
	}
	if g.Until.Before(g.Since) {
		g.Until = g.Since
	}
	if first.First > end+1 { // else their positions are not of one history, or there are none between
		g.From, g.To = end+1, first.First-1
	}
	return g, true
}

func (l Lineage) gapBetween(a, b Stretch) Gap {
	first := b.Segments[0]
	g := Gap{
		Kind: GapLost, Lineage: l.ID, NextLineage: l.ID, From: a.Last() + 1, To: b.First() - 1,
		Since: a.until(), Until: latest(a.until(), first.Begins()), Reason: l.why(a, first.FirstSeq()),
	}
	if g.Reason == "" {
		g.Kind, g.Reason = GapRecorded, first.Reason
	}
	if g.From > g.To { // the chain breaks between two that are side by side
		g.From, g.To = 0, 0
	}
	return g
}

// gapBehind is what has been lost from the end.
func (l Lineage) gapBehind(stretches []Stretch) (Gap, bool) {
	if len(stretches) == 0 {
		return Gap{}, false
	}
	last := stretches[len(stretches)-1]
	reason := l.why(last, 0)
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

// why is the first fault behind a and before seq, "" if there is none. With seq 0 it looks to the end.
func (l Lineage) why(a Stretch, seq uint64) string {
	end := a.Segments[len(a.Segments)-1].Seq
	for _, f := range l.Faults {
		if f.Seq > end && (seq == 0 || f.Seq < seq) {
			return f.Err.Error()
		}
	}
	return ""
}

// begins is when the state was surely in s: its first mark, or when it was written if it has none.
func (s Segment) Begins() time.Time {
	if len(s.Marks) > 0 {
		return s.Marks[0].NotAfter
	}
	return s.Written
}

// until is up to when s says what the state was.
func (s Stretch) until() time.Time {
	if m, ok := s.LastMark(); ok {
		return m.NotAfter
	}
	return s.Segments[len(s.Segments)-1].Written
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
