package member

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// stage builds the new data, unless it is already built.
func (w Work) stage(ctx context.Context, s *swap.Swap) (handoff.Report, error) {
	if w.Plan == nil {
		return handoff.Report{}, fmt.Errorf("%w: %s needs a plan: name its file", fault.Usage, w.Task)
	}
	p, err := w.Plan.Place(plan.Into{Name: w.Place.Name, DataDir: s.DataDir, WALDir: s.WALDir})
	if err != nil {
		return handoff.Report{}, err
	}
	result, err := w.build(ctx, s, p)
	met := restore.Met(err)
	if err != nil && (met == nil || ctx.Err() != nil) {
		return handoff.Report{}, err
	}
	v, err := s.Look()
	if err != nil {
		return handoff.Report{}, err
	}
	if met != nil {
		return handoff.Report{Error: &met.Error, Obstacle: &met.Obstacle, Vacant: v.Vacant}, nil
	}
	return handoff.Report{Done: true, Built: builtOf(*result), Vacant: v.Vacant}, nil
}

// build carries out p, unless its new data is already built, and returns the result.
func (w Work) build(ctx context.Context, s *swap.Swap, p plan.Plan) (*restore.Result, error) {
	built, err := s.Built(p)
	if err != nil || built != nil {
		return built, err
	}
	err = reopen(s)
	if err != nil {
		return nil, err
	}
	err = check(ctx, s, p)
	if err != nil {
		return nil, err
	}
	result, err := s.Stage(p, func(staged plan.Plan) (restore.Result, error) { return w.Run(ctx, staged) })
	return &result, err
}

// reopen puts the old data back if a restore with another plan has begun to exchange it.
func reopen(s *swap.Swap) error {
	v, err := s.Look()
	if err != nil || !slices.Contains([]swap.State{swap.Closing, swap.Closed, swap.Placing}, v.State) {
		return err
	}
	return s.Undo()
}

// check returns an error if the disk does not suit p.
func check(ctx context.Context, s *swap.Swap, p plan.Plan) error {
	vacant, err := s.IsVacant()
	switch {
	case err != nil:
		return err
	case vacant:
		return s.CheckVacant(p)
	}
	return s.Check(ctx, p)
}

// builtOf returns the summary of r for the report.
func builtOf(r restore.Result) *handoff.Built {
	b := &handoff.Built{ClusterID: r.ClusterID, Revision: cmp.Or(r.BumpedTo, r.Revision), Keys: r.Keys}
	for _, phase := range r.Phases {
		b.Seconds += phase.Seconds
	}
	return b
}
