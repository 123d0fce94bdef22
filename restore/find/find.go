// Package find looks into the archive without restoring a cluster: what touched a key, what values were there at a
// point, and what differs between two points.
//
// Only a replay knows which revision a request made and what a transaction did, so all of it reads databases, in a child
// process: see restore.Prepare. What is found streams out of it as it is found.
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
	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Archive is where to look.
type Archive struct {
	Catalog catalog.Catalog // with the log
	Unfold  restore.Unfold  // reads folded segments of Catalog; nil: there are none
	Source  child.Source    // for the child
	Dir     string          // where the scratch copies go; "": the system's temporary directory
}

// Change is one thing that happened to a key.
type Change struct {
	Key      string
	Deleted  bool  // else it was put
	Revision int64 // that the request made; of what is known only by comparing two states, the last at which it can be
	// After, if it is not 0, says that nobody knows at which revision it happened: behind this one, and not behind Revision.
	After    int64
	Position uint64 // of the request in the log; 0: it was seen in a backup, not in the log
	Lineage  string // the history it is of, "" if that is not known
	// NotBefore and NotAfter are moments between which it happened, zero where nobody knows.
	NotBefore, NotAfter time.Time
	Request             replay.RequestKind // what asked for it, "" where only the log could say it
	Keys                int                // how many keys that request changed, 0 where only the log could say it

	// Of a put:
	Marked         bool  // it is the namespace that was asked for, marked for deletion
	Size           int64 // bytes of the value
	Lease          int64 // 0: none
	Version        int64 // how often it was put since it was created
	CreateRevision int64
}

// Unseen is a part of the history of which the archive does not have everything.
type Unseen struct {
	// After and UpTo are revisions: of what was overwritten or deleted behind After and up to UpTo nothing is known, but
	// for what was there in the end. Both are 0 if another history begins instead.
	After, UpTo  int64
	Lineage      string    // of what comes behind it, "" if that is not known
	Since, Until time.Time // zero where nobody knows
	Why          string
}

// Teller is told what is found, in order of time within one history.
type Teller struct {
	Change func(Change) error
	Unseen func(Unseen) error
}

// Find tells what touched the keys within the window, as it is found, and sums it up. What stands in the way, such as
// damage, costs what cannot be read for it: the rest is told, and what was left out is Unseen. An archive in which there
// is nothing to look into gives repository.ErrNotFound.
func Find(
	ctx context.Context, a Archive, keys Keys, w Window, now time.Time, tell Teller, report storage.Report,
) (Summary, error) {
	scratch, err := child.NewDir(a.Dir, "find")
	if err != nil {
		return Summary{}, err
	}
	defer func() { _ = scratch.Remove() }()
	f := &finder{
		archive: a, keys: keys, window: w, now: now, tell: tell, report: report, dir: scratch.Path,
		read: map[catalog.ID]bool{}, reached: map[string]uint64{}, tracked: newTracked(),
	}
	for {
		legs := slices.DeleteFunc(legsOf(f.archive.Catalog, w), f.done)
		if len(legs) == 0 {
			break
		}
		if err := f.leg(ctx, legs[0], len(legs) > 1); err != nil {
			return Summary{}, err
		}
	}
	if f.legs == 0 {
		return Summary{}, fmt.Errorf("what could be searched is %w: there is no backup that can be read, or none in the window: dr list shows the backups",
			catalog.ErrNotFound)
	}
	if err := f.rest(); err != nil {
		return Summary{}, err
	}
	return f.summary(), nil
}

// finder goes through the legs.
type finder struct {
	archive Archive
	keys    Keys
	window  Window
	now     time.Time
	tell    Teller
	report  storage.Report
	dir     string

	read    map[catalog.ID]bool // backups alone that have been looked into
	reached map[string]uint64   // by lineage: up to this position its log has been
	legs    int                 // that were read, to their ends or not

	at      leg    // that is being read
	history string // lineage that is known of what was read last
	cluster string // its id
	seen    int64  // up to this revision of that history all has been told that can be
	until   time.Time
	before  string // file with what was there then, "" if there is none
	went    went   // how far the leg that is being read has got
	prior   went   // where the history before this one ended
	clock   clock
	tracked *tracked
}

// went is a place in a history.
type went struct {
	lineage  string
	base     int64 // revision of the leg's backup, 0 if it was not reached
	revision int64 // of the last change that was told of
	replayed bool  // the last change came out of the log
}

func (f *finder) done(l leg) bool {
	if l.stretch == nil {
		return f.read[l.base.ID]
	}
	return l.stretch.Last() <= f.reached[l.lineage]
}

// leg reads one part of the archive. It has been dealt with when leg returns nil, or the catalog has less in it. What is
// there at its end is kept if there is more to compare with it.
func (f *finder) leg(ctx context.Context, l leg, more bool) error {
	other := f.legs > 0 && f.isOther(l)
	if err := f.enter(l, other); err != nil {
		return err
	}
	scratch := filepath.Join(f.dir, fmt.Sprintf("leg-%d", f.legs))
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("make a scratch directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	plan, err := l.plan(f.window, filepath.Join(scratch, "member"), f.now)
	if err != nil {
		return err
	}
	keep := ""
	if more {
		keep = keepFile(f.dir, f.legs)
	}
	part := &legJob{Seen: f.seen, Before: f.before, Other: other && f.before != "", Keep: keep}
	j := job{Plan: plan, Source: f.archive.Source, Dir: scratch, Keys: f.keys, Leg: part}
	end, err := spawn(ctx, j, f.report, f.take)
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

// isOther reports whether l is of another history than what was read before: then a revision may be there twice.
func (f *finder) isOther(l leg) bool {
	known := f.history != "" && l.lineage != ""
	return known && f.history != l.lineage || !catalog.SameClusterID(f.cluster, l.base.ClusterID) ||
		!known && l.base.HighestRevision() < f.seen
}

// enter turns to a leg. The revisions of another history begin anew.
func (f *finder) enter(l leg, other bool) error {
	if other {
		why := "another history begins: the cluster was restored, or made anew"
		err := f.unseen(Unseen{Lineage: l.lineage, Since: f.until, Until: l.base.Finished, Why: why})
		if err != nil {
			return err
		}
		f.prior = went{lineage: f.history, revision: f.seen}
		f.clock, f.seen, f.history = clock{}, 0, ""
	}
	f.at, f.went = l, went{}
	if l.lineage != "" {
		f.history = l.lineage
	}
	f.cluster = l.base.ClusterID
	f.clock.enter(l)
	return nil
}

// stop notes how far a leg was read that did not come to its end.
func (f *finder) stop(o *restore.ObstacleError) {
	f.before = ""
	f.seen = max(f.seen, f.went.revision)
	if f.went.replayed || !o.Obstacle.Base { // what the backup had to tell was told
		f.seen = max(f.seen, f.went.base)
		f.until = f.at.base.Started
	}
}

// leave notes that a leg has been read to its end.
func (f *finder) leave(l leg) {
	f.read[l.base.ID] = true
	f.until = l.base.Finished
	if l.stretch == nil {
		return
	}
	f.reached[l.lineage] = l.stretch.Last()
	if m, ok := l.stretch.LastMark(); ok {
		f.until = m.NotBefore
	}
}

// goAround takes what stands in the way out of the catalog, and says what is not seen for it.
func (f *finder) goAround(l leg, o *restore.ObstacleError) {
	c := &f.archive.Catalog
	bad := o.Obstacle.Segment
	if l.stretch != nil && bad == 0 { // the replay is right up to a position, and no further
		bad = l.segmentBehind(o.Obstacle.Marked)
	}
	if o.Obstacle.Base || !l.has(bad) {
		c.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b catalog.Backup) bool { return b.ID == l.base.ID })
		f.report.Say(storage.Event{Stage: "find", Level: storage.Warning, Message: "passed over: " + o.Error()})
		return
	}
	f.reached[l.lineage] = max(f.reached[l.lineage], l.before(bad))
	c.Lineages = slices.Clone(c.Lineages)
	for i, lineage := range c.Lineages {
		if lineage.ID == l.lineage {
			c.Lineages[i] = lineage.Without(bad, o)
		}
	}
	f.report.Say(storage.Event{Stage: "find", Level: storage.Warning, Message: "the log is read no further: " + o.Error()})
}

// has reports whether a segment is one of the leg's.
func (l leg) has(seq uint64) bool {
	return l.stretch != nil && slices.ContainsFunc(l.stretch.Segments, func(s catalog.Segment) bool { return s.Seq == seq })
}

// segmentBehind is the seq of the first segment that reaches behind a position.
func (l leg) segmentBehind(position uint64) uint64 {
	for _, s := range l.stretch.Segments {
		if s.Last > position {
			return s.Seq
		}
	}
	return l.stretch.Segments[len(l.stretch.Segments)-1].Seq
}

// before is the last position in front of a segment.
func (l leg) before(seq uint64) uint64 {
	for _, s := range l.stretch.Segments {
		if s.Seq == seq {
			return s.First - 1
		}
	}
	return 0
}

// take gets what the child has seen.
func (f *finder) take(item json.RawMessage) error {
	var s sighting
	if err := json.Unmarshal(item, &s); err != nil {
		return fmt.Errorf("read the child's result: %w", err)
	}
	if s.Base != nil {
		return f.takeBase(*s.Base)
	}
	return f.takeChange(*s.Put)
}

// takeBase says what the backup cannot tell.
func (f *finder) takeBase(b baseSeen) error {
	f.went.base = b.Revision
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

// why is what the catalog says of the gap before the leg.
func (f *finder) why() string {
	if f.legs == 0 {
		return "it was compacted before the oldest backup that was looked into"
	}
	for _, g := range f.archive.Catalog.Gaps() {
		if f.at.stretch != nil && g.NextLineage == f.at.lineage && g.To+1 == f.at.stretch.First() && g.Reason != "" {
			return "there is a gap in the log: " + g.Reason
		}
	}
	return "no log leads from one backup to the next, and it was compacted in between"
}

func (f *finder) unseen(u Unseen) error {
	f.tracked.unseen++
	return f.tell.Unseen(u)
}

func (f *finder) takeChange(s changeSeen) error {
	c := Change{
		Key: string(s.Key), Deleted: s.Deleted, Revision: s.Revision, Position: s.Position, Lineage: f.at.lineage,
		Request: s.Request, Keys: s.Keys, Size: s.Size, Lease: s.Lease, Version: s.Version, CreateRevision: s.CreateRevision,
		Marked: s.Marked,
	}
	switch {
	case c.Revision == 0 && f.seen == 0: // it was there in the history before
		c.After, c.Revision, c.Lineage = f.prior.revision, f.prior.revision, f.prior.lineage
		c.NotBefore, c.NotAfter = f.until, f.at.base.Finished
	case c.Revision == 0:
		c.After, c.Revision = f.seen, f.went.base
		c.NotBefore, c.NotAfter = f.until, f.at.base.Finished
	case c.Position == 0:
		c.NotBefore, c.NotAfter = f.clock.atRevision(c.Revision)
	default:
		if c.Revision <= f.seen { // it was told by an earlier leg, whose log ended in the same history
			return nil
		}
		c.NotBefore, c.NotAfter = f.clock.atPosition(c.Position)
	}
	f.went.revision, f.went.replayed = max(f.went.revision, s.Revision), c.Position > 0
	inside := f.window.holds(c)
	f.tracked.add(c, inside)
	if !inside {
		return nil
	}
	return f.tell.Change(c)
}

// rest says what of the log was not read because no backup leads into it, or because it has got lost.
func (f *finder) rest() error {
	c := f.archive.Catalog
	var left []Unseen
	for _, l := range c.Lineages {
		for _, s := range l.Stretches() {
			end := s.End()
			read := s.Last() <= f.reached[l.ID] || l.ID == f.history && end.Revision > 0 && end.Revision <= f.seen
			if !read && len(c.Bases(s)) == 0 {
				why := "no backup leads into this part of the log, or none that can be read"
				left = append(left, Unseen{f.seen, end.Revision, l.ID, f.until, end.Time, why})
			}
		}
	}
	for _, g := range c.Gaps() {
		if g.NextLineage == "" && g.Lineage == f.history {
			why := "the end of the log has got lost: " + g.Reason
			left = append(left, Unseen{After: f.seen, Lineage: g.Lineage, Since: g.Since, Why: why})
		}
	}
	for _, u := range left {
		if f.window.Lineage != "" && u.Lineage != f.window.Lineage || !f.window.To.IsZero() && u.Since.After(f.window.To) {
			continue
		}
		if err := f.unseen(u); err != nil {
			return err
		}
	}
	return nil
}
