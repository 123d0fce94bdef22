// Package find searches the archive without restoring a cluster: it returns the changes of a key, its values at a point, and
// the differences between two points.
//
// Only a replay shows which revision a request made and which changes a transaction made. So a child process rebuilds a database (see
// restore.Preparation), and streams the changes or the values that it contains.
package find

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Search describes a search in the backups and the log of a cluster.
type Search struct {
	Keys    Keys // selected keys
	Now     time.Time
	Catalog catalog.Catalog // including its log
	Unfold  restore.Unfold  // reads the segments that one folded entry of Catalog stands for; nil if there are none
	Source  child.Source    // opened by the child
	Plain   plan.Plain      // how Find treats backups and segments that are not encrypted; for Extract and Diff the target says it
	Dir     string          // parent of the scratch directory; "": the system's temporary directory
	Report  storage.Report
}

// Change is one change of a key.
type Change struct {
	Key      string
	Deleted  bool  // false: the key was put
	Revision int64 // made by the request; for a change found by comparing two states: the last one possible
	// After is not 0 if the revision is not known exactly: the change came after After and at or before Revision. If the
	// change first shows in the first backup of the next history, both are the last known revision of Lineage, the history before.
	After    int64
	Position uint64 // of the request in the log; 0: found in a backup, not in the log
	Lineage  string // the history it belongs to; "": unknown
	// The change was made between NotBefore and NotAfter; each is zero if unknown.
	NotBefore, NotAfter time.Time
	Request             replay.RequestKind // the kind of request; "": the log, which alone records it, is missing
	Keys                int                // number of keys that the request changed; 0: unknown

	// Of a put:
	Deleting       bool  // the object is marked for deletion; set only for a namespace, or if a single key is searched
	Size           int64 // bytes of the value
	Lease          int64 // 0: none
	Version        int64 // number of puts since the key was created
	CreateRevision int64
}

// Unseen is a part of the history that the archive does not contain completely.
type Unseen struct {
	// After and UpTo are revisions. Changes after After and at or before UpTo may be missing; a later backup, if there is one,
	// still shows the last value of the keys that existed at UpTo. UpTo is 0 if the end is unknown, and both are 0 if a different
	// history begins here.
	After, UpTo  int64
	Lineage      string    // of the part that follows; "": unknown
	Since, Until time.Time // zero if unknown
	Why          string
}

// Teller receives the results, ordered by time within each history.
type Teller struct {
	Change func(Change) error
	Unseen func(Unseen) error
}

// Find calls tell for each change of the keys within the window as soon as it finds it, and returns a summary. An obstacle,
// such as a damaged segment, costs only the part that cannot be read because of it: Find reports that part as Unseen and continues. The
// error matches catalog.ErrNotFound if the archive has no readable backup for the window, and fault.Refused if s.Plain refuses one.
func (s Search) Find(ctx context.Context, w Window, tell Teller) (Summary, error) {
	if s.Plain == plan.PlainSkipped {
		s.Catalog = plan.Encrypted(s.Catalog)
	}
	err := s.checkPlain(w)
	if err != nil {
		return Summary{}, err
	}
	scratch, err := child.NewDir(s.Dir, "find")
	if err != nil {
		return Summary{}, err
	}
	defer func() { _ = scratch.Remove() }()
	f := &finder{
		Search: s, window: w, tell: tell, dir: scratch.Path,
		read: map[catalog.ID]bool{}, reached: map[string]uint64{}, tracked: newTracked(),
	}
	for {
		legs := slices.DeleteFunc(legsOf(f.Catalog, w), f.done)
		if len(legs) == 0 {
			break
		}
		err := f.leg(ctx, legs[0], len(legs) > 1)
		if err != nil {
			return Summary{}, err
		}
	}
	if f.legs == 0 {
		return Summary{}, fmt.Errorf("a backup to search is %w: none in the window can be read: dr list shows the backups",
			catalog.ErrNotFound)
	}
	err = f.rest()
	if err != nil {
		return Summary{}, err
	}
	return f.summary(), nil
}

// checkPlain returns an error if s.Plain refuses a backup or a segment that a search of w reads.
func (s Search) checkPlain(w Window) error {
	if s.Plain != plan.PlainRefused {
		return nil
	}
	for _, l := range legsOf(s.Catalog, w) {
		_, err := s.plan(l, w, "/")
		if err != nil {
			return err
		}
	}
	return nil
}

// finder reads one leg after the other: a backup, and the log that continues it.
type finder struct {
	Search
	window Window
	tell   Teller
	dir    string

	read    map[catalog.ID]bool // backups that were read, with or without a log
	reached map[string]uint64   // by lineage: its log was read up to this position
	legs    int                 // number of legs that were read, at least in part

	at       leg       // the current leg
	history  string    // lineage of the last leg, if known
	cluster  string    // cluster id of the last leg
	seen     int64     // all known changes of the last leg's history up to this revision have been reported
	until    time.Time // changes that are not known yet came after this time, which is that of the last backup or mark
	before   string    // file with the keys at revision seen; "": none
	progress progress  // progress in the current leg
	prior    progress  // end of the previous history
	clock    clock
	tracked  *tracked
}

// progress is how far a leg, or a previous history, was read.
type progress struct {
	lineage   string
	base      int64 // revision of the leg's backup; 0: not reached
	compacted int64 // revision up to which that backup was compacted
	revision  int64 // of the last reported change; for a previous history, its last known revision
	replayed  bool  // the last reported change came from the log
}

// done reports whether l was read.
func (f *finder) done(l leg) bool {
	if l.stretch == nil {
		return f.read[l.base.ID]
	}
	return l.stretch.Last() <= f.reached[l.lineage]
}

// leg reads one leg. It returns nil if the leg is done, or if it removed an obstacle from the catalog. If more is true, it writes the keys
// at the leg's end to a file, for comparison with the next leg.
func (f *finder) leg(ctx context.Context, l leg, more bool) error {
	other := f.legs > 0 && f.isOther(l)
	err := f.enter(l, other)
	if err != nil {
		return err
	}
	scratch := filepath.Join(f.dir, fmt.Sprintf("leg-%d", f.legs))
	err = os.Mkdir(scratch, 0o700)
	if err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	planned, err := f.plan(l, f.window, filepath.Join(scratch, "member"))
	if err != nil {
		return err
	}
	keep := ""
	if more {
		keep = keepFile(f.dir, f.legs)
	}
	part := &legJob{Seen: f.seen, Before: f.before, Other: other && f.before != "", Keep: keep}
	j := job{Plan: planned, Source: f.Source, Dir: scratch, Keys: f.Keys, Leg: part}
	end, err := spawn(ctx, j, f.Report, f.take)
	obstacle, stopped := errors.AsType[*restore.ObstacleError](err)
	if err != nil && (!stopped || ctx.Err() != nil) {
		return err
	}
	f.legs++
	if stopped {
		f.stop(obstacle)
		f.goAround(l, obstacle)
		return nil
	}
	f.seen, f.before = max(f.seen, end.Revision), keep
	f.leave(l)
	return nil
}

// isOther reports whether l belongs to a different history than the legs before it, in which a revision may occur again.
func (f *finder) isOther(l leg) bool {
	known := f.history != "" && l.lineage != ""
	return known && f.history != l.lineage || !catalog.SameClusterID(f.cluster, l.base.ClusterID) ||
		!known && l.base.HighestRevision() < f.seen
}

// enter begins a leg. In a different history, revisions start again.
func (f *finder) enter(l leg, other bool) error {
	if other {
		why := "another history begins: the cluster was restored or recreated"
		err := f.unseen(Unseen{Lineage: l.lineage, Since: f.until, Until: l.base.Finished, Why: why})
		if err != nil {
			return err
		}
		f.prior = progress{lineage: f.history, revision: f.seen}
		f.clock, f.seen, f.history = clock{}, 0, ""
	}
	f.at, f.progress = l, progress{}
	if l.lineage != "" {
		f.history = l.lineage
	}
	f.cluster = l.base.ClusterID
	f.clock.enter(l)
	return nil
}

// stop records the progress in a leg that ended at an obstacle.
func (f *finder) stop(o *restore.ObstacleError) {
	f.before = ""
	f.seen = max(f.seen, f.progress.revision)
	if f.progress.replayed || !o.Obstacle.Base { // the backup was read to its end
		f.seen = max(f.seen, f.progress.base)
		f.until = f.at.base.Started
	}
}

// leave records that a leg was read to its end.
func (f *finder) leave(l leg) {
	f.read[l.base.ID] = true
	f.until = l.base.Started // a change made while the snapshot was streamed is not in it
	if l.stretch == nil {
		return
	}
	f.reached[l.lineage] = l.stretch.Last()
	m, ok := l.stretch.LastMark()
	if ok {
		f.until = m.NotBefore
	}
}

// goAround removes the obstacle from the catalog and reports a warning.
func (f *finder) goAround(l leg, o *restore.ObstacleError) {
	c := &f.Catalog
	bad := o.Obstacle.Segment
	if l.stretch != nil && bad == 0 { // the replay is verified up to position o.Obstacle.Marked only
		bad = l.segmentAfter(o.Obstacle.Marked)
	}
	if o.Obstacle.Base || !l.has(bad) {
		c.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b catalog.Backup) bool { return b.ID == l.base.ID })
		f.Report.Say(storage.Event{Stage: "find", Level: storage.Warning, Message: "passed over: " + o.Error()})
		return
	}
	f.reached[l.lineage] = max(f.reached[l.lineage], l.lastBefore(bad))
	c.Lineages = slices.Clone(c.Lineages)
	for i, lineage := range c.Lineages {
		if lineage.ID == l.lineage {
			c.Lineages[i] = lineage.Without(bad, o)
		}
	}
	f.Report.Say(storage.Event{Stage: "find", Level: storage.Warning, Message: "the log is not read past this point, unless a later backup leads into it: " + o.Error()})
}

// has reports whether the leg contains the segment seq.
func (l leg) has(seq uint64) bool {
	return l.stretch != nil && slices.ContainsFunc(l.stretch.Segments, func(s catalog.Segment) bool { return s.Seq == seq })
}

// segmentAfter returns the seq of the first segment that ends after position, or the last segment's.
func (l leg) segmentAfter(position uint64) uint64 {
	for _, s := range l.stretch.Segments {
		if s.Last > position {
			return s.Seq
		}
	}
	return l.stretch.Segments[len(l.stretch.Segments)-1].Seq
}

// lastBefore returns the last position before the segment seq; 0 if the leg does not contain it.
func (l leg) lastBefore(seq uint64) uint64 {
	for _, s := range l.stretch.Segments {
		if s.Seq == seq {
			return s.First - 1
		}
	}
	return 0
}

// take reads one item of the child's output.
func (f *finder) take(item json.RawMessage) error {
	var s sighting
	err := json.Unmarshal(item, &s)
	if err != nil {
		return fmt.Errorf("read the child's result: %w", err)
	}
	if s.Base != nil {
		return f.takeBase(*s.Base)
	}
	return f.takeChange(*s.Change)
}

// takeBase reports, as Unseen, the changes that a compaction had removed before the backup.
func (f *finder) takeBase(b baseSeen) error {
	f.progress.base, f.progress.compacted = b.Revision, b.Compacted
	outside := f.window.FromRevision > b.Compacted || f.window.ToRevision > 0 && f.seen >= f.window.ToRevision
	if outside || b.Compacted <= f.seen {
		return nil
	}
	u := Unseen{After: f.seen, UpTo: b.Compacted, Lineage: f.at.lineage, Since: f.until, Why: f.why()}
	_, u.Until = f.clock.atRevision(b.Compacted)
	if !f.window.From.IsZero() && u.Until.Before(f.window.From) {
		return nil
	}
	return f.unseen(u)
}

// why returns the reason for the gap before the leg.
func (f *finder) why() string {
	if f.legs == 0 {
		return "this part was compacted before the oldest backup that was searched"
	}
	for _, g := range f.Catalog.Gaps() {
		if f.at.stretch != nil && g.NextLineage == f.at.lineage && g.To+1 == f.at.stretch.First() && g.Reason != "" {
			return "there is a gap in the log: " + g.Reason
		}
	}
	return "no log leads from one backup to the next, and this part was compacted in between"
}

func (f *finder) unseen(u Unseen) error {
	f.tracked.unseen++
	return f.tell.Unseen(u)
}

func (f *finder) takeChange(s changeSeen) error {
	c := Change{
		Key: string(s.Key), Deleted: s.Deleted, Revision: s.Revision, Position: s.Position, Lineage: f.at.lineage,
		Request: s.Request, Keys: s.Keys, Size: s.Size, Lease: s.Lease, Version: s.Version, CreateRevision: s.CreateRevision,
		Deleting: s.Deleting,
	}
	switch {
	case c.Revision == 0 && f.seen == 0: // two states were compared, and the earlier one is the end of the previous history
		c.After, c.Revision, c.Lineage = f.prior.revision, f.prior.revision, f.prior.lineage
		c.NotBefore, c.NotAfter = f.until, f.at.base.Finished
	case c.Revision == 0:
		c.After, c.Revision = f.seen, f.progress.base
		c.NotBefore, c.NotAfter = f.until, f.at.base.Finished
	case c.Position == 0:
		c.NotBefore, c.NotAfter = f.clock.atRevision(c.Revision)
	default:
		if c.Revision <= f.seen { // already reported by an earlier leg of the same history
			return nil
		}
		c.NotBefore, c.NotAfter = f.clock.atPosition(c.Position)
	}
	f.progress.revision, f.progress.replayed = max(f.progress.revision, s.Revision), c.Position > 0
	inside := f.window.holds(c)
	f.tracked.note(c, f.deletionMark(c))
	if !f.Keys.Has(s.Key) { // it may be a namespace whose deletion mark counts
		return nil
	}
	f.tracked.add(c, inside)
	if !inside {
		return nil
	}
	return f.tell.Change(c)
}

// deletionMark returns the change that marked the object for deletion; c is the first known change that shows the deletion mark. If
// compaction may have removed earlier ones from the backup, the change is only known to be newer than f.seen.
func (f *finder) deletionMark(c Change) Change {
	if c.Position == 0 && f.seen > 0 && c.Revision <= f.progress.compacted {
		c.After, c.NotBefore = max(f.seen, c.CreateRevision), f.until
	}
	return c
}

// rest reports, as Unseen, the parts of the log that were not read, because no backup leads into them, or because they are lost.
func (f *finder) rest() error {
	c := f.Catalog
	var left []Unseen
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			end := s.End()
			read := s.Last() <= f.reached[l.ID] || l.ID == f.history && end.Revision > 0 && end.Revision <= f.seen
			if !read && len(c.Bases(s)) == 0 {
				why := "no backup leads into this part of the log, or none that can be read"
				left = append(left, Unseen{
					After: f.seen, UpTo: end.Revision, Lineage: l.ID, Since: f.until, Until: end.Time, Why: why,
				})
			}
		}
	}
	for _, g := range c.Gaps() {
		if g.NextLineage == "" && g.Lineage == f.history {
			why := "the end of the log is lost: " + g.Reason
			left = append(left, Unseen{After: f.seen, Lineage: g.Lineage, Since: g.Since, Why: why})
		}
	}
	for _, u := range left {
		if f.window.Lineage != "" && u.Lineage != f.window.Lineage || !f.window.To.IsZero() && u.Since.After(f.window.To) {
			continue
		}
		err := f.unseen(u)
		if err != nil {
			return err
		}
	}
	return nil
}
