package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/seal"
)

// ObstacleError is the error of a run that an obstacle ended. The run has published nothing.
type ObstacleError struct {
	Obstacle plan.Obstacle
	err      error
}

func (e *ObstacleError) Error() string { return e.err.Error() }
func (e *ObstacleError) Unwrap() error { return e.err }

// EncodedObstacle is an ObstacleError as JSON, for a child's answer.
type EncodedObstacle struct {
	Obstacle plan.Obstacle `json:"obstacle"`
	Error    fault.Packed  `json:"error"`
}

// EncodeObstacle returns the ObstacleError in err as an EncodedObstacle, and nil if there is none.
func EncodeObstacle(err error) *EncodedObstacle {
	o, ok := errors.AsType[*ObstacleError](err)
	if !ok {
		return nil
	}
	return &EncodedObstacle{o.Obstacle, fault.Pack(err)}
}

// Err returns the ObstacleError that m was made from, and nil for nil.
func (m *EncodedObstacle) Err() error {
	if m == nil {
		return nil
	}
	return &ObstacleError{m.Obstacle, m.Error.Err()}
}

// asObstacle turns an error that reports damage into an obstacle of the base. It leaves an error alone that is an ObstacleError already,
// and every error of a plan that restores a file.
func asObstacle(p plan.Plan, err error) error {
	_, known := errors.AsType[*ObstacleError](err)
	if known || p.File != "" || !errors.Is(err, catalog.ErrDamaged) {
		return err
	}
	return &ObstacleError{plan.Obstacle{Base: true}, err}
}

// obstacleOf returns the obstacle that ended a run; ok is false if no other way can avoid the error. A backup that none of the given keys
// opens is an obstacle too: after a change of keys another backup may open.
func obstacleOf(err error) (o plan.Obstacle, ok bool) {
	wrongKey := errors.Is(err, seal.ErrWrongKey)
	met, ok := errors.AsType[*ObstacleError](err)
	if !ok {
		return plan.Obstacle{Base: true, WrongKey: true}, wrongKey
	}
	o = met.Obstacle
	o.WrongKey = wrongKey
	return o, true
}

// Met returns the obstacle that ended a run with err; nil if no other way can avoid err.
func Met(err error) *EncodedObstacle {
	o, ok := obstacleOf(err)
	if !ok {
		return nil
	}
	return &EncodedObstacle{o, fault.Pack(err)}
}

// maxDetours is the largest number of obstacles that a restore avoids: each costs as much as a restore.
const maxDetours = 8

// Attempt is the input of RunTarget.
type Attempt struct {
	plan.Request
	Unfold Unfold                                           // nil: nothing in the catalog is folded
	Run    func(context.Context, plan.Plan) (Result, error) // Spawn, or another way to run a plan
}

// RunTarget plans and runs until the target is reached. It avoids obstacles, such as by an older backup and more of the log. If no way
// is left, the error names the nearest point that can be restored; with Target.Best RunTarget restores that point. It also returns the
// plan that was run last, even with an error.
func RunTarget(ctx context.Context, a Attempt) (plan.Plan, Result, error) {
	planned, err := a.plan(ctx)
	if err != nil {
		return plan.Plan{}, Result{}, err
	}
	var met []plan.Blocked
	for {
		result, err := a.Run(ctx, planned)
		obstacle, ok := obstacleOf(err)
		if !ok || ctx.Err() != nil || len(met) == maxDetours || a.Target.Backup != "" || a.Target.File != "" {
			return planned, result, err
		}
		met = append(met, plan.Blocked{Plan: planned, Obstacle: obstacle, Err: err})
		next, noWay := a.plan(ctx, met...)
		switch {
		case errors.Is(noWay, plan.ErrSameWay), noWay != nil && obstacle.WrongKey:
			return planned, result, err
		case noWay != nil:
			return planned, result, fmt.Errorf("%w; %w", err, noWay)
		}
		planned = next
	}
}

// plan returns a plan that avoids the obstacles met, after unfolding the segments that it needs.
func (a *Attempt) plan(ctx context.Context, met ...plan.Blocked) (plan.Plan, error) {
	detailed, err := Detail(ctx, a.Request, a.Unfold, met...)
	if err != nil {
		return plan.Plan{}, err
	}
	a.Catalog = detailed
	return plan.Around(a.Request, met...)
}
