package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/runner"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/lease"
)

// steps are the parts of a run in which the kinds of jobs differ.
type steps interface {
	// places returns the stores in which the job acquires its lease. all are the cluster's stores, and answered those of them in which
	// the suspension could be read.
	places(all, answered []backup.Store) ([]backup.Store, error)
	// stored reads the repositories again, under the lease, and reports whether the job has become unnecessary.
	stored(ctx context.Context) (bool, error)
	// work does the job.
	work(ctx context.Context) error
	// record records the result of work.
	record(ctx context.Context)
	// finish carries out the action that ended the run, and returns when to look again.
	finish(a runner.Action) time.Time
}

// run carries one job through the states of package runner. It is used once.
type run struct {
	*loop
	task
	leaseOf Job                 // the job whose lease the run takes: for prunings and copies too, that of backups
	require spec.Require        // how many of the repositories must answer and grant the lease
	turn    *semaphore.Weighted // of the group; nil: the job does not wait for a turn
	slots   *slots              // of the service; nil: the job needs none

	stores []backup.Store  // in which the run works
	theirs lease.Lease     // of another service, which acquire found; zero: none
	why    error           // error of the last action
	leased context.Context // ends when the lease is lost or the service stops the job; nil without a lease
	leave  func()          // gives the turn back; the first call counts
	free   func()          // gives the slot back; the first call counts
	yield  func()          // gives the lease back
}

// do takes the job through all states, with s for the steps that depend on its kind, and returns when to look again.
func (r *run) do(ctx context.Context, s steps) time.Time {
	r.leave = func() {}
	defer func() {
		r.requests.remove(r.job)
		r.leave()
	}()
	return s.finish(r.runStates(ctx, s))
}

// runStates returns the action with which the run ends. The lease and the slot are given back by then.
func (r *run) runStates(ctx context.Context, s steps) runner.Action {
	r.yield, r.free = func() {}, func() {}
	defer func() {
		r.free()
		r.yield()
	}()
	state, action := runner.Queued, runner.Queue
	for state != runner.Ended {
		state, action = runner.Next(state, r.carryOut(ctx, action, s))
	}
	if action == runner.GiveUp {
		r.why = fmt.Errorf("%w: %w", errGivenUp, context.Cause(r.leased))
	}
	return action
}

// carryOut carries out one action, and returns the facts that it found.
func (r *run) carryOut(ctx context.Context, a runner.Action, s steps) runner.Facts {
	f := runner.Facts{Requested: !r.requested.IsZero()}
	r.why = nil
	switch a {
	case runner.Queue:
		f.Withdrawn, r.why = r.queue(ctx)
	case runner.ReadSuspension:
		r.why = r.readSuspension(ctx, s)
		f.Suspended = r.suspended() != ""
	case runner.AcquireLease:
		f.Held, r.why = r.acquire(ctx)
		f.Overdue = r.nextLook(r.theirs).Sub(r.requested) > 2*r.lease
	case runner.ReadStored:
		f.Stored, r.why = s.stored(ctx)
	case runner.TakeSlot:
		f.Withdrawn, r.why = r.takeSlot(ctx)
	case runner.Work:
		r.why = r.work(s)
	case runner.Record:
		limited, cancel := r.limited(r.leased)
		s.record(limited)
		cancel()
	}
	f.Failed, f.Lost, f.Stopping = r.why != nil, r.lost(), ctx.Err() != nil
	return f
}

// queue waits for a turn. It reports whether the job is withdrawn.
func (r *run) queue(ctx context.Context) (withdrawn bool, err error) {
	if r.turn != nil {
		err = r.turn.Acquire(ctx, 1)
		if err != nil {
			return false, err
		}
		r.leave = sync.OnceFunc(func() { r.turn.Release(1) })
	}
	if r.isWithdrawn() {
		return true, nil
	}
	r.requests.begin(r.job)
	return false, nil
}

// isWithdrawn reports whether new settings have arrived: the loop accepts them first.
func (r *run) isWithdrawn() bool { return len(r.assignments) > 0 }

func (r *run) readSuspension(ctx context.Context, s steps) error {
	all, err := r.service.open(r.spec)
	if err != nil {
		return err
	}
	answered, err := r.updateSuspension(ctx, all, r.require)
	if err != nil {
		return err
	}
	r.stores, err = s.places(all, answered)
	return err
}

// acquire acquires the lease, and renews it until yield is called. If it is held, the run works only in the stores in which it has the
// lease.
func (r *run) acquire(ctx context.Context) (held bool, err error) {
	all, theirs, err := acquire(ctx, r.stores, r.require, holding(r.leaseOf, r.holder, r.lease))
	r.theirs = theirs
	if err != nil || len(all) == 0 {
		return false, err
	}
	r.stores = all.stores()
	jobs, end := context.WithCancelCause(r.loop.jobs)
	keeping := all.keep(jobs, r.lease, end)
	r.leased, r.yield = jobs, func() { end(nil); keeping.Wait() }
	return true, nil
}

// takeSlot waits for a slot until ctx ends, or the lease is lost. If new settings have arrived meanwhile, it reports that the job is
// withdrawn, and puts its request back.
func (r *run) takeSlot(ctx context.Context) (withdrawn bool, err error) {
	if r.slots == nil {
		return false, nil
	}
	both, end := context.WithCancelCause(r.leased)
	defer end(nil)
	stop := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	defer stop()
	release, err := r.slots.acquire(both, r.spec.Tenant)
	if err != nil {
		return false, err
	}
	r.free = sync.OnceFunc(release)
	if !r.isWithdrawn() {
		return false, nil
	}
	r.putBack(time.Time{})
	return true, nil
}

// work does the work within the cluster's timeout, and gives the slot back.
func (r *run) work(s steps) error {
	defer r.free()
	limited, cancel := r.limited(r.leased)
	defer cancel()
	return s.work(limited)
}

// limited bounds ctx by the cluster's timeout.
func (r *run) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.spec.Timeout)
}

// errGivenUp reports a job that was left to another service, or to the one that starts after this one has stopped.
var errGivenUp = errors.New("it was given up")

// lost reports whether the lease was lost, or the service has stopped the job.
func (r *run) lost() bool {
	if r.leased == nil {
		return false
	}
	cause := context.Cause(r.leased)
	return errors.Is(cause, lease.ErrLost) || errors.Is(cause, errStopped)
}

// finish carries out the actions that are the same for all kinds of jobs.
func (r *run) finish(a runner.Action) time.Time {
	switch a {
	case runner.Skip:
		if !r.requested.IsZero() {
			r.loop.recordWithoutResult(r.task, NotRun, r.suspended())
		}
	case runner.Refuse:
		r.loop.recordWithoutResult(r.task, NotRun, fmt.Sprintf("another service, %s, is at work", r.theirs.Holder))
	case runner.Postpone:
		return r.postpone()
	}
	return time.Now()
}

// postpone puts the request back until the other service's lease may have ended.
func (r *run) postpone() time.Time {
	again := r.nextLook(r.theirs)
	r.putBack(again)
	return again
}

// putBack puts the request of the job, if it has one, back among those that wait: it may be tried at after, the zero time: at once.
func (r *run) putBack(after time.Time) {
	r.requests.remove(r.job)
	if !r.requested.IsZero() {
		r.requests.add(request{job: r.job, reason: r.text, at: r.requested, after: after, since: r.since})
	}
}
