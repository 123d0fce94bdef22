// Package member carries out the tasks of a handoff on the disk of one member. Its process runs where that disk is mounted, as the
// member's user. Package swap does the work. Each task can be repeated, also after a kill at any moment.
package member

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/swap"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Work is one task on a member's disk.
type Work struct {
	Task    handoff.Task
	Restore string    // the id of the restore, handoff.Record.ID
	Place   plan.Into // the member's name, its data dir, and its log if that has a directory of its own

	// Of DoStage.
	Plan *plan.Plan                                               // its own place is not used
	Run  func(context.Context, plan.Plan) (restore.Result, error) // restore.Spawn, or another way to carry out a plan
}

// acts holds the functions of the tasks.
var acts = map[handoff.Task]func(Work, context.Context, *swap.Swap) (handoff.Report, error){
	handoff.DoLook:     Work.look,
	handoff.DoStage:    Work.stage,
	handoff.DoSeal:     Work.seal,
	handoff.DoPlace:    Work.place,
	handoff.DoReview:   Work.review,
	handoff.DoWithdraw: Work.withdraw,
	handoff.DoBack:     Work.back,
	handoff.DoBlock:    Work.block,
	handoff.DoDiscard:  Work.discard,
	handoff.DoClean:    Work.clean,
}

// Do carries out w, and returns its outcome.
func Do(ctx context.Context, w Work) handoff.Report {
	report, err := w.do(ctx)
	switch {
	case err == nil:
		return report
	case errors.Is(err, swap.ErrInUse):
		return translated(handoff.Report{Waiting: err.Error()})
	}
	return translated(handoff.ReportOf(err))
}

var validID = regexp.MustCompile(`^[0-9a-f]{16}$`)

func (w Work) do(ctx context.Context) (handoff.Report, error) {
	act, known := acts[w.Task]
	switch {
	case !known:
		return handoff.Report{}, fmt.Errorf("%w: %q is no task: use one of %v", fault.Usage, w.Task, slices.Sorted(maps.Keys(acts)))
	case !validID.MatchString(w.Restore):
		return handoff.Report{}, fmt.Errorf("%w: %q is no id of a restore: use 16 hex digits", fault.Usage, w.Restore)
	case w.Place.DataDir == "":
		return handoff.Report{}, fmt.Errorf("%w: no data dir: name the member's", fault.Usage)
	}
	s, err := swap.New(w.Restore, w.Place.DataDir, w.Place.WALDir)
	if err != nil {
		return handoff.Report{}, err
	}
	return act(w, ctx, s)
}

// done returns the Report of a task that has ended with err.
func done(err error) (handoff.Report, error) {
	return handoff.Report{Done: err == nil}, err
}

func (w Work) look(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	v, err := s.Look()
	if err != nil {
		return handoff.Report{}, err
	}
	view := &handoff.View{State: string(v.State), Running: v.Running, Data: handoff.Space(v.Data)}
	if v.Log != nil {
		log := handoff.Space(*v.Log)
		view.Log = &log
	}
	if v.Owner != nil {
		view.Owner = &handoff.Owner{UID: v.Owner.UID, GID: v.Owner.GID, Mode: fmt.Sprintf("%04o", v.Owner.Mode)}
	}
	return handoff.Report{Done: true, Vacant: v.Vacant, View: view}, nil
}

// seal closes the live path. It checks the live data again, because hours may have passed since the new data was built.
func (w Work) seal(ctx context.Context, s *swap.Swap) (handoff.Report, error) {
	v, err := s.Look()
	switch {
	case err != nil:
		return handoff.Report{}, err
	case slices.Contains([]swap.State{swap.Unstaged, swap.Stale, swap.Vacated, swap.Vacant, swap.Guarded}, v.State), isNew(v):
		return handoff.Report{Stale: true}, nil
	case v.State == swap.Staged && !v.Running:
		err := s.CheckLive(ctx)
		if err != nil {
			return handoff.Report{}, err
		}
	}
	return done(s.CloseLive())
}

// isNew reports whether v shows a disk on which nothing was staged.
func isNew(v swap.View) bool { return v.State == swap.Bare && v.Facts.Data.New == swap.Missing }

func (w Work) place(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	_, err := s.Record()
	if err != nil {
		return handoff.Report{}, err
	}
	return done(s.Place())
}

func (w Work) review(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	_, err := s.Record()
	if err != nil {
		return handoff.Report{}, err
	}
	return done(s.Review())
}

func (w Work) withdraw(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	begun, err := s.HasBegun()
	if err != nil || !begun {
		return done(err)
	}
	return done(s.Withdraw())
}

// back puts the old data back. It does nothing if the restore has not moved it, even if it has gone since, or other data is there.
func (w Work) back(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	v, err := s.Look()
	if err != nil {
		return handoff.Report{}, err
	}
	report := handoff.Report{Done: true, Vacant: v.Vacant}
	begun, err := s.HasBegun()
	if err != nil || !begun || v.State.IsUntouched() {
		return report, err
	}
	return report, s.Undo()
}

// block keeps etcd from starting where the old data is lost. If it finds other data, it waits for a person.
func (w Work) block(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	err := s.Block()
	if errors.Is(err, fault.Refused) {
		return handoff.Report{Waiting: err.Error()}, nil
	}
	return done(err)
}

func (w Work) discard(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	return done(s.Discard())
}

func (w Work) clean(_ context.Context, s *swap.Swap) (handoff.Report, error) {
	err := swap.Clean(s.ID, s.DataDir, s.WALDir)
	if errors.Is(err, fault.NotFound) {
		return done(nil)
	}
	return done(err)
}
