package plan

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Obstacle is something that the catalog showed and that a run could not use. Fields that do not apply are zero.
type Obstacle struct {
	Base     bool   `json:"base,omitempty"`     // the backup, or the disk's database
	WrongKey bool   `json:"wrongKey,omitempty"` // with Base: it is encrypted, and no given key opens it
	Segment  uint64 `json:"segment,omitempty"`  // seq of a segment of the plan's lineage
	Ended    int64  `json:"ended,omitempty"`    // the plan's segments end at this revision, before the target
	Marked   uint64 `json:"marked,omitempty"`   // the replay is right up to this position, and no further
	Reached  int64  `json:"reached,omitempty"`  // the revision at Marked, if the next request cannot be applied or raises the alarm CORRUPT
}

// Blocked is a plan whose run met an obstacle.
type Blocked struct {
	Plan     Plan
	Obstacle Obstacle
	Err      error // of the run
}

// Request is everything that a plan depends on.
type Request struct {
	Catalog catalog.Catalog
	Target  Target
	Layout  Layout
	Now     time.Time
}

// ErrSameWay is Around's error if the only plan left meets the last obstacle again.
var ErrSameWay = errors.New("the only way left is the one that failed")

// Around returns a plan for r that avoids the obstacles that earlier plans met, in their order. Without obstacles it returns the
// same plan as New. If the target is not reachable, the error names the nearest point.
func Around(r Request, met ...Blocked) (Plan, error) {
	c, t := r.Catalog, r.Target
	r.Layout.Known = max(r.Layout.Known, newestRevision(c)) // also from the parts of c that obstacles remove
	var notes []string
	for _, b := range met {
		asked := t
		var err error
		c, t, err = b.without(c, t)
		if err != nil {
			return Plan{}, err
		}
		notes = append(notes, b.note(asked, t))
	}
	p, err := New(c, t, r.Layout, r.Now)
	if err != nil || len(met) == 0 {
		return p, err
	}
	if p.sameWay(met[len(met)-1].Plan) {
		return Plan{}, ErrSameWay
	}
	p.Notes = append(p.Notes, notes...)
	p.ID = p.digest()
	return p, nil
}

// note explains why another way was taken or, if the target changed from asked to t, why only the nearest point is reached.
func (b Blocked) note(asked, t Target) string {
	how := "another way was taken"
	if t.Position != asked.Position || t.Revision != asked.Revision {
		how = nearestNote
	}
	return fmt.Sprintf("%s: %v", how, b.Err)
}

// fold returns the folded segment that the obstacle is a part of; false if there is none.
func (b Blocked) fold(c catalog.Catalog) (catalog.Segment, bool) {
	if b.Obstacle.Segment == 0 || b.Plan.Log == nil {
		return catalog.Segment{}, false
	}
	return c.FoldOf(b.Plan.Log.Lineage, b.Obstacle.Segment)
}

// without returns c without the obstacle, and t or the nearest target that is still reachable. It returns an error if there is none,
// if t.Best is not set and t is out of reach, or for an obstacle of no known kind.
func (b Blocked) without(c catalog.Catalog, t Target) (catalog.Catalog, Target, error) {
	o, p, why := b.Obstacle, b.Plan, b.Err
	switch {
	case o.Base && p.Backup == nil:
		t.Disks = t.Disks.without(p.Salvage.Database.File, why)
	case o.Ended > 0 && p.Salvage != nil:
		return t.endOfDisks(c, o.Ended)
	case o.Reached > 0 && p.Salvage != nil:
		return t.beforeRequest(c, o.Reached)
	case o.Base:
		c.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b catalog.Backup) bool {
			return b.ID == p.Backup.ID || o.WrongKey && slices.Equal(b.Seal.Recipients, p.Backup.Seal.Recipients)
		})
		c.Imported = slices.DeleteFunc(slices.Clone(c.Imported), func(b catalog.Backup) bool { return b.ID == p.Backup.ID })
		c.Damaged = append(slices.Clone(c.Damaged), catalog.Damage{ID: p.Backup.ID, Err: why})
	case o.Segment > 0 && p.Log != nil:
		c.Lineages = slices.Clone(c.Lineages)
		for i, l := range c.Lineages {
			if l.ID == p.Log.Lineage {
				c.Lineages[i] = l.Without(o.Segment, why)
			}
		}
	case o.Ended > 0 && p.Log != nil:
		c.Lineages = slices.Clone(c.Lineages)
		for i, l := range c.Lineages {
			if l.ID == p.Log.Lineage {
				c.Lineages[i] = withEndRevision(l, p.Log.Last, o.Ended)
			}
		}
	case o.Marked > 0 && p.Log != nil:
		return o.aroundMark(c, t, p)
	default:
		return c, t, fmt.Errorf("obstacle %+v: no plan avoids an obstacle of this kind", o)
	}
	return c, t, nil
}

// withEndRevision returns l with a mark at the end of a segment, whose revision a replay has shown.
func withEndRevision(l catalog.Lineage, seq uint64, revision int64) catalog.Lineage {
	l.Segments = slices.Clone(l.Segments)
	for i, s := range l.Segments {
		if s.Seq != seq {
			continue
		}
		mark := segment.Mark{Position: s.Last, Revision: revision, Interval: segment.Interval{NotBefore: s.Written, NotAfter: s.Written}}
		n := len(s.Marks)
		if n > 0 {
			mark.Interval = s.Marks[n-1].Interval
		}
		l.Segments[i].Marks = append(slices.Clone(s.Marks), mark)
	}
	return l
}

// aroundMark returns c without the backups up to o.Marked, and t in the lineage of p. If none of the other backups leads to t, it returns
// c, and the position o.Marked as the nearest target.
func (o Obstacle) aroundMark(c catalog.Catalog, t Target, p Plan) (catalog.Catalog, Target, error) {
	later, target := c, t
	later.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b catalog.Backup) bool {
		begin, _ := b.Span(p.Log.Source)
		return begin <= o.Marked
	})
	target.Lineage, target.Best = p.Log.Lineage, false
	_, err := findRoute(later, target)
	if err == nil {
		target.Best = t.Best
		return later, target, nil
	}
	c.Backups = slices.Clone(c.Backups)
	for i, b := range c.Backups {
		if b.ID == p.Backup.ID { // the run reached o.Marked from this backup
			c.Backups[i] = clampPosition(b, p.Log.Source, o.Marked)
		}
	}
	atMark := Target{Lineage: p.Log.Lineage, Position: o.Marked, Best: t.Best, Plain: t.Plain}
	r, err := findRoute(c, atMark)
	if err == nil && !t.Best {
		r.reach.Revision = max(r.reach.Revision, o.Reached)
		why := fmt.Sprintf("the log can be used only up to position %d", o.Marked)
		err = &UnreachableError{Why: why, Nearest: r.describeEnd()}
	}
	return c, atMark, err
}

// clampPosition returns b with its bounds limited to a position of the log.
func clampPosition(b catalog.Backup, log segment.Source, position uint64) catalog.Backup {
	if log == segment.Watch {
		b.RevisionMax = min(b.RevisionMax, int64(position))
		return b
	}
	b.RaftIndexMax = min(b.RaftIndexMax, position)
	return b
}

// sameWay reports whether p and q have the same base and logs.
func (p Plan) sameWay(q Plan) bool {
	return same(p.Log, q.Log) && p.base() == q.base() && same(p.DiskLog(), q.DiskLog())
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// base returns the id or the file of the base.
func (p Plan) base() string {
	if p.Backup != nil {
		return string(p.Backup.ID)
	}
	return p.BaseFile()
}

// without returns d with a database marked as damaged.
func (d Disks) without(file string, why error) *Disks {
	d.Found = slices.Clone(d.Found)
	for i, disk := range d.Found {
		databases := slices.Clone(disk.Databases)
		for k := range databases {
			if databases[k].File == file {
				databases[k].Damage = why.Error()
			}
		}
		d.Found[i].Databases = databases
	}
	return &d
}

// endOfDisks returns the target for disks whose logs ended at revision ended, before t. It is their end, or an error without t.Best.
func (t Target) endOfDisks(c catalog.Catalog, ended int64) (catalog.Catalog, Target, error) {
	if !t.Best {
		return c, t, &UnreachableError{
			Why: fmt.Sprintf("the disks' logs end before revision %d", t.Revision), Nearest: fmt.Sprintf("revision %d, their end", ended),
		}
	}
	t.Revision = 0
	return c, t, nil
}

// beforeRequest returns the target right before a request that must not be applied, which is revision reached; or an error without
// t.Best.
func (t Target) beforeRequest(c catalog.Catalog, reached int64) (catalog.Catalog, Target, error) {
	if !t.Best {
		return c, t, &UnreachableError{
			Why:     fmt.Sprintf("the disks' logs can be used only up to revision %d", reached),
			Nearest: fmt.Sprintf("revision %d", reached),
		}
	}
	t.Revision = reached
	return c, t, nil
}
