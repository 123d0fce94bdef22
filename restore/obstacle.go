package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Obstacle is what a run found in the way of its target: something that the catalog showed and that cannot be used.
type Obstacle struct {
	Base    bool   `json:"base,omitempty"`    // the backup
	Segment uint64 `json:"segment,omitempty"` // seq of a segment of the plan's lineage
	Marked  uint64 `json:"marked,omitempty"`  // the replay is right up to this position, and no further
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
	if _, known := errors.AsType[*ObstacleError](err); known || p.Backup == nil || !errors.Is(err, repository.ErrDamaged) {
		return err
	}
	return &ObstacleError{Obstacle{Base: true}, err}
}

// without is c as it would be without what stood in the way of p, and t as it can still be hoped for.
func (o Obstacle) without(c repository.Catalog, t Target, p Plan, why error) (repository.Catalog, Target) {
	switch {
	case o.Base:
		c.Backups = slices.DeleteFunc(slices.Clone(c.Backups), func(b repository.Backup) bool { return b.ID == p.Backup.ID })
		c.Damaged = append(slices.Clone(c.Damaged), repository.Damage{ID: p.Backup.ID, Err: why})
	case o.Segment > 0:
		c.Lineages = slices.Clone(c.Lineages)
		for i, l := range c.Lineages {
			if l.ID == p.Log.Lineage {
				c.Lineages[i] = l.Without(o.Segment, why)
			}
		}
	default:
		t = Target{Lineage: p.Log.Lineage, Position: o.Marked, Best: t.Best}
	}
	return c, t
}

// maxDetours bounds how many obstacles a restore goes around: each costs what a restore does.
const maxDetours = 8

// RunTarget plans and runs until a target is reached. An obstacle on the way costs nothing if there is another way: an older
// backup and more of the log. If there is none, the error says what the nearest point is; with t.Best that one is
// restored. run is Spawn, or whatever runs a plan. The plan that was run last is returned in any case.
func RunTarget(
	ctx context.Context, c repository.Catalog, t Target, l Layout, now time.Time, run func(context.Context, Plan) (Result, error),
) (Plan, Result, error) {
	var notes []string
	for detours := 0; ; detours++ {
		plan, err := NewPlan(c, t, l, now)
		if err != nil {
			return Plan{}, Result{}, err
		}
		plan.addNotes(notes)
		result, err := run(ctx, plan)
		obstacle, ok := errors.AsType[*ObstacleError](err)
		if !ok || ctx.Err() != nil || detours == maxDetours || t.Backup != "" {
			return plan, result, err
		}
		c, t = obstacle.Obstacle.without(c, t, plan, err)
		if _, unreachable := NewPlan(c, t, l, now); unreachable != nil {
			return plan, result, fmt.Errorf("%w; %w", err, unreachable)
		}
		notes = append(notes, fmt.Sprintf("another way was taken: %v", err))
	}
}

func (p *Plan) addNotes(notes []string) {
	if len(notes) == 0 {
		return
	}
	p.Notes = append(p.Notes, notes...)
	p.ID = p.digest()
}
