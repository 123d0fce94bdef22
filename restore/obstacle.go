package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Obstacle is what a run found in the way of its target: something that the catalog showed and that cannot be used.
type Obstacle struct {
	Base    bool   `json:"base,omitempty"`    // the backup
	Segment uint64 `json:"segment,omitempty"` // seq of a segment of the plan's lineage
	Ended   int64  `json:"ended,omitempty"`   // the plan's segments end at this revision, and what was asked for comes later
	Marked  uint64 `json:"marked,omitempty"`  // the replay is right up to this position, and no further
	Reached int64  `json:"reached,omitempty"` // the revision at Marked, where what follows cannot be applied
}

// ObstacleError is a run that an Obstacle ended. Nothing was put into place.
type ObstacleError struct {
	Obstacle Obstacle
	err      error
}

func (e *ObstacleError) Error() string { return e.err.Error() }
func (e *ObstacleError) Unwrap() error { return e.err }

// asObstacle blames the backup for damage that nothing else is blamed for.
func asObstacle(p Plan, err error) error {
	if _, known := errors.AsType[*ObstacleError](err); known || p.File != "" || !errors.Is(err, catalog.ErrDamaged) {
		return err
	}
	return &ObstacleError{Obstacle{Base: true}, err}
}

// obstacleOf returns the obstacle that ended a run. ok is false if no other way can do better. A backup that no given key
// opens is one: after a change of keys others may be for the new one.
func obstacleOf(err error) (o Obstacle, ok bool) {
	met, ok := errors.AsType[*ObstacleError](err)
	if ok {
		return met.Obstacle, true
	}
	return Obstacle{Base: true}, errors.Is(err, seal.ErrWrongKey)
}

// around is c without what stood in the way of p, and t as it can still be hoped for.
func (o Obstacle) around(c catalog.Catalog, t Target, p Plan, why error) (catalog.Catalog, Target, error) {
	switch {
	case o.Base && p.Backup == nil:
		t.Disks = t.Disks.without(p.Salvage.Database.File, why)
	case o.Ended > 0 && p.Salvage != nil:
		return t.endOfDisks(c, o.Ended)
	case o.Reached > 0 && p.Salvage != nil:
		return t.beforeUnknown(c, o.Reached)
	case o.Base:
		sealed := errors.Is(why, seal.ErrWrongKey) // then all that are for the same keys are
		c.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b catalog.Backup) bool {
			return b.ID == p.Backup.ID || sealed && slices.Equal(b.Seal.Recipients, p.Backup.Seal.Recipients)
		})
		c.Damaged = append(slices.Clone(c.Damaged), catalog.Damage{ID: p.Backup.ID, Err: why})
	case o.Segment > 0:
		c.Lineages = slices.Clone(c.Lineages)
		for i, l := range c.Lineages {
			if l.ID == p.Log.Lineage {
				c.Lineages[i] = l.Without(o.Segment, why)
			}
		}
	case o.Ended > 0:
		c.Lineages = slices.Clone(c.Lineages)
		for i, l := range c.Lineages {
			if l.ID == p.Log.Lineage {
				c.Lineages[i] = endingAt(l, p.Log.Last, o.Ended)
			}
		}
	default:
		return o.aroundMark(c, t, p)
	}
	return c, t, nil
}

// endingAt is l with a mark of what only a replay could tell: the revision at the end of one of its segments.
func endingAt(l catalog.Lineage, seq uint64, revision int64) catalog.Lineage {
	l.Segments = slices.Clone(l.Segments)
	for i, s := range l.Segments {
		if s.Seq != seq {
			continue
		}
		mark := segment.Mark{Position: s.Last, Revision: revision, Interval: segment.Interval{NotBefore: s.Written, NotAfter: s.Written}}
		if n := len(s.Marks); n > 0 {
			mark.Interval = s.Marks[n-1].Interval
		}
		l.Segments[i].Marks = append(slices.Clone(s.Marks), mark)
	}
	return l
}

// aroundMark goes on from a backup behind the last mark that held. If there is none, that mark is the nearest point.
func (o Obstacle) aroundMark(c catalog.Catalog, t Target, p Plan) (catalog.Catalog, Target, error) {
	behind, same := c, t
	behind.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b catalog.Backup) bool {
		begin, _ := b.Span(p.Log.Source)
		return begin <= o.Marked
	})
	same.Lineage, same.Best = p.Log.Lineage, false
	if _, err := findRoute(behind, same); err == nil {
		same.Best = t.Best
		return behind, same, nil
	}
	c.Backups = slices.Clone(c.Backups)
	for i, b := range c.Backups {
		if b.ID == p.Backup.ID { // the run got there from it, so it is not beyond
			c.Backups[i] = notBeyond(b, p.Log.Source, o.Marked)
		}
	}
	held := Target{Lineage: p.Log.Lineage, Position: o.Marked, Best: t.Best, Plain: t.Plain}
	r, err := findRoute(c, held)
	if err == nil && !t.Best {
		why := fmt.Sprintf("the log can be replayed up to position %d and no further", o.Marked)
		err = &UnreachableError{Why: why, Nearest: r.words()}
	}
	return c, held, err
}

// notBeyond is b with its bounds cut off at a position of the log.
func notBeyond(b catalog.Backup, log segment.Source, position uint64) catalog.Backup {
	if log == segment.Watch {
		b.RevisionMax = min(b.RevisionMax, int64(position))
		return b
	}
	b.RaftIndexMax = min(b.RaftIndexMax, position)
	return b
}

// maxDetours bounds how many obstacles a restore goes around: each costs what a restore does.
const maxDetours = 8

// RunTarget plans and runs until a target is reached. An obstacle on the way costs nothing if there is another way: an older
// backup and more of the log. If there is none, the error says what the nearest point is; with t.Best that one is
// restored. run is Spawn, or whatever runs a plan. The plan that was run last is returned in any case.
func RunTarget(
	ctx context.Context, c catalog.Catalog, t Target, l Layout, now time.Time, run func(context.Context, Plan) (Result, error),
) (Plan, Result, error) {
	c, err := Detail(ctx, c, t)
	if err != nil {
		return Plan{}, Result{}, err
	}
	plan, err := NewPlan(c, t, l, now)
	if err != nil {
		return Plan{}, Result{}, err
	}
	l.Known = max(l.Known, newestRevision(c)) // also of what turns out to be unusable
	var notes []string
	for detours := 0; ; detours++ {
		result, err := run(ctx, plan)
		obstacle, ok := obstacleOf(err)
		if !ok || ctx.Err() != nil || detours == maxDetours || t.Backup != "" || t.File != "" {
			return plan, result, err
		}
		asked, next, unreachable := t, Plan{}, error(nil)
		if obstacle.Segment > 0 {
			c, unreachable = c.Unfold(ctx, plan.Log.Lineage, obstacle.Segment)
		}
		if unreachable == nil {
			c, t, unreachable = obstacle.around(c, t, plan, err)
		}
		if unreachable == nil {
			c, unreachable = Detail(ctx, c, t)
		}
		if unreachable == nil {
			next, unreachable = NewPlan(c, t, l, now)
		}
		if unreachable != nil && errors.Is(err, seal.ErrWrongKey) {
			return plan, result, err
		}
		if unreachable != nil {
			return plan, result, fmt.Errorf("%w; %w", err, unreachable)
		}
		if next.sameWay(plan) { // the obstacle is not in the catalog
			return plan, result, err
		}
		how := "another way was taken"
		if t.Position != asked.Position || t.Revision != asked.Revision {
			how = "not what was asked for, and the nearest that there is"
		}
		notes = append(notes, fmt.Sprintf("%s: %v", how, err))
		next.addNotes(notes)
		plan = next
	}
}

// sameWay reports whether p leads through the same backup and log as q.
func (p Plan) sameWay(q Plan) bool {
	return same(p.Log, q.Log) && p.base() == q.base() && same(p.diskLog(), q.diskLog())
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// base names what p begins with.
func (p Plan) base() string {
	if p.Backup != nil {
		return string(p.Backup.ID)
	}
	return p.file()
}

func (p *Plan) addNotes(notes []string) {
	p.Notes = append(p.Notes, notes...)
	p.ID = p.digest()
}
