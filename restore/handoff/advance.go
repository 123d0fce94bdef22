package handoff

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Restore carries out the steps of one restore. All fields are required.
type Restore struct {
	Manager Manager
	Claim   Claim
	// Plan returns a plan for the members of h that avoids the obstacles of earlier plans.
	Plan func(ctx context.Context, h Handoff, met []Met) (plan.Plan, error)
	// Verify compares the data that the members serve with b, and with each other. If b is zero, any data is expected.
	Verify func(ctx context.Context, h Handoff, b Built) (Progress, error)
}

// Claim holds the target, the pin and the suspension until the restore ends. Like those of Manager, each method takes one step and returns.
type Claim interface {
	// Take claims the target. It is not done while another restore has claimed it.
	Take(ctx context.Context, r Record) (Progress, error)
	// Pin keeps the backup of the plan from being pruned.
	Pin(ctx context.Context, r Record) (Progress, error)
	// Suspend suspends the backups of the cluster.
	Suspend(ctx context.Context, r Record) (Progress, error)
	// Lift ends the claim, the pin and the suspension.
	Lift(ctx context.Context, r Record) (Progress, error)
}

// Act carries out the step that is due, and returns r after it. If nothing is due, it returns r. The caller must store the result before
// it calls Act again, so that each phase is recorded before its first act.
func (a Restore) Act(ctx context.Context, r Record, w Orders, now func() time.Time) Record {
	r.Paused = r.Paused || w.Pause
	obeyed := r.Obey(w, now())
	if obeyed.Step != r.Step {
		return obeyed // to be stored first
	}
	step := r.Due(w, now())
	if step == None {
		return r
	}
	r, o := a.do(ctx, r, step, now)
	return r.After(o, w, now())
}

// do carries out a step. It returns r with the findings of the step.
func (a Restore) do(ctx context.Context, r Record, s Step, now func() time.Time) (Record, Outcome) {
	one := func(p Progress, err error) (Record, Outcome) { return r, outcomeOf(p, err) }
	switch s {
	case Take, Retake:
		return one(a.Claim.Take(ctx, r))
	case Plan:
		return a.plan(ctx, r)
	case Pin:
		return one(a.Claim.Pin(ctx, r))
	case Suspend, Resuspend:
		return one(a.Claim.Suspend(ctx, r))
	case Fence, Refence:
		return one(a.Manager.Fence(ctx, r.Handoff))
	case Release:
		return one(a.Manager.Release(ctx, r.Handoff))
	case Return:
		if r.StaysStopped() {
			return r, Outcome{Verdict: Done}
		}
		return one(a.Manager.Return(ctx, r.Handoff))
	case Verify:
		return a.observe(ctx, r, now)
	case Recheck:
		if !r.mustServe() {
			return r, Outcome{Verdict: Done}
		}
		return a.check(ctx, r, Built{}, now) // not Settled: a member may have been unready before
	case Lift:
		return one(a.Claim.Lift(ctx, r))
	case Keep:
		return r, Outcome{Verdict: Done}
	}
	if s == Block && len(r.Lost) == 0 {
		return r, Outcome{Verdict: Done}
	}
	if s == Seal || s == Place || s == Withdraw || s == Back || s == Block {
		p, err := a.Manager.Fence(ctx, r.Handoff) // again: another program may have started members meanwhile
		if err != nil || !p.Done {
			return one(p, err)
		}
	}
	return a.task(ctx, r, tasks[s])
}

var tasks = map[Step]Task{
	Stage: DoStage, Seal: DoSeal, Place: DoPlace, Review: DoReview, Withdraw: DoWithdraw, Back: DoBack, Block: DoBlock, Discard: DoDiscard, Clean: DoClean,
}

// plan inspects the target, and makes a plan that avoids the obstacles that were met. Once members are down, it does not inspect the
// target again: Fence has changed the values that Inspect saves.
func (a Restore) plan(ctx context.Context, r Record) (Record, Outcome) {
	if !r.isDown() {
		h, err := a.Manager.Inspect(ctx)
		if err != nil {
			return r, outcomeOf(Progress{}, err)
		}
		r.Handoff = h
		i := slices.IndexFunc(h.Findings, func(f Finding) bool { return f.Refuses })
		if i >= 0 {
			return r, Outcome{Verdict: Fails, Text: h.Findings[i].String()}
		}
	}
	p, err := a.Plan(ctx, r.Handoff, r.Met)
	if err != nil {
		return r, outcomeOf(Progress{}, err)
	}
	r.Plan = &p
	return r, Outcome{Verdict: Done}
}

// observe checks the members, and then their manager, which takes longer to settle.
func (a Restore) observe(ctx context.Context, r Record, now func() time.Time) (Record, Outcome) {
	r, o := a.check(ctx, r, r.Built, now)
	if o.Verdict != Done {
		return r, o
	}
	p, err := a.Manager.Settled(ctx, r.Handoff)
	return r, outcomeOf(p, err)
}

// mustServe reports whether the members must have a leader again after a rollback. They must if they had one before, or if old data is lost:
// only a leader then shows that the others are a quorum. They need not if they stay stopped, were stopped before, or had no old data.
func (r Record) mustServe() bool {
	if r.Vacant || r.Handoff.Stopped || r.StaysStopped() {
		return false
	}
	return r.Handoff.Serves || len(r.Lost) > 0
}

// check checks that the members serve b, or any data if b is zero. It records when they first did.
func (a Restore) check(ctx context.Context, r Record, b Built, now func() time.Time) (Record, Outcome) {
	p, err := a.Verify(ctx, r.Handoff, b)
	if err == nil && p.Done {
		r.Agreed = p.Agreed
		if r.Served.IsZero() {
			r.Served = now()
		}
	}
	return r, outcomeOf(p, err)
}

// task carries out a task on all disks.
func (a Restore) task(ctx context.Context, r Record, t Task) (Record, Outcome) {
	all, err := a.Manager.Do(ctx, r, t)
	r.Members = all
	if t == DoStage || t == DoDiscard {
		r = r.touch(all)
	}
	if err != nil {
		return r, outcomeOf(Progress{}, err)
	}
	switch {
	case t == DoBack && !r.Vacant:
		r.Lost = lostOf(r.Handoff.Members, all, nil)
	case t == DoBlock:
		r.Lost = lostOf(r.Handoff.Members, all, r.Lost)
	}
	var waiting []string
	for _, p := range all {
		switch {
		case p.Met != nil && len(r.Met) == maxMet:
			return r, Outcome{Fails, p.Met.Error.Message}
		case p.Met != nil:
			r.Met = append(slices.Clip(r.Met), *p.Met)
			return r, Outcome{Verdict: Blocked}
		case p.Stale:
			return r, Outcome{Verdict: Stale}
		case !p.Done:
			waiting = append(waiting, p.Waiting)
		}
		if p.Built != nil {
			r.Built = *p.Built
		}
	}
	if len(waiting) > 0 {
		return r, Outcome{Waits, strings.Join(waiting, "; ")}
	}
	if t == DoStage && !r.isDown() { // disks that are lost later have had old data
		r.Vacant = !slices.ContainsFunc(all, func(p Progress) bool { return !p.Vacant })
	}
	return r, Outcome{Verdict: Done}
}

// lostOf returns the names of the members whose old data is lost: those that are known, and those whose disks were found without it.
func lostOf(members []Member, all []Progress, known []string) (names []string) {
	for i, p := range all {
		if p.Gone || p.Vacant || slices.Contains(known, members[i].Name) {
			names = append(names, members[i].Name)
		}
	}
	return names
}

// maxMet is the largest number of obstacles that a restore avoids. Each costs about the time of a restore.
const maxMet = 8

// IsFinal reports whether err is permanent: no repetition of the act cures it.
func IsFinal(err error) bool {
	switch fault.KindOf(err) {
	case fault.Refused, fault.Damaged, fault.NotFound, fault.Usage, fault.Denied:
		return true
	}
	return false
}

func outcomeOf(p Progress, err error) Outcome {
	switch {
	case errors.Is(err, ErrForbidden):
		return Outcome{Forbids, err.Error()}
	case IsFinal(err):
		return Outcome{Fails, err.Error()}
	case err != nil:
		return Outcome{Waits, err.Error()}
	case p.Done:
		return Outcome{Verdict: Done}
	}
	return Outcome{Waits, p.Waiting}
}
