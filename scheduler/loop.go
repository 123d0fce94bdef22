package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/lease"
)

// loop is the common part of a worker and a driller: each has a goroutine of its own, which calls turn repeatedly.
type loop struct {
	assignment
	service     *Service
	holder      string          // of leases
	jobs        context.Context // of running jobs; ends later than the context of work
	assignments chan assignment // holds the newest assignment until the loop reads it
	requests    *requests
	board       *board // of the cluster
}

// assign sends o to the loop, in place of an assignment that the loop has not read yet. Only one goroutine may call it at a time.
func (h *loop) assign(o assignment) {
	select {
	case <-h.assignments:
	default:
	}
	h.assignments <- o
}

// longestSleep bounds how late a loop notices that the clock was set.
const longestSleep = time.Minute

// noDeadline is the result of a turn after which the loop waits only for a request or an assignment.
var noDeadline = time.Unix(1<<40, 0)

// work calls turn until ctx ends, and accept for each new assignment. turn returns when to call it again; the zero Time means at the
// next shared tick.
func (h *loop) work(ctx context.Context, turn func(context.Context) time.Time, accept func(assignment)) {
	for ctx.Err() == nil {
		over := h.wait(turn(ctx))
		select {
		case <-ctx.Done():
		case o := <-h.assignments:
			accept(o)
		case <-h.requests.wakes:
		case <-over:
		}
	}
}

// wait returns a channel that fires at again or at the next one-minute tick, at which loops read the clock again; nil for noDeadline.
// All loops share the tick: waking an idle machine once for each loop would cost more.
func (h *loop) wait(again time.Time) <-chan time.Time {
	wait := longestSleep - time.Since(h.service.began)%longestSleep
	switch {
	case again.Equal(noDeadline):
		return nil
	case !again.IsZero():
		wait = min(wait, time.Until(again))
	}
	return after(wait)
}

// after is time.After, but uses no timer if d is not above 0: expired timers crash the race detector in testing/synctest
// (golang/go issue 78156).
func after(d time.Duration) <-chan time.Time {
	if d > 0 {
		return time.After(d)
	}
	now := make(chan time.Time, 1)
	now <- time.Now()
	return now
}

// task is a job and its cause.
type task struct {
	job        Job
	repository string // the only one that the job uses; "": it uses all
	cause
	requested time.Time // when the job was requested; zero: it is due
	since     time.Time // as in request: a backup with this reason that began then or later is the outcome
	due       time.Time // since when a drill is due; zero for other tasks
}

// outcome returns the outcome of t, which begins now.
func (t task) outcome() Outcome {
	return Outcome{Job: t.job, Repository: t.repository, Reason: t.text, Began: time.Now().UTC()}
}

// requestedTask returns the task of a request.
func (h *loop) requestedTask(one request) task {
	t := task{job: one.job, cause: cause{one.reason, spec.LabelTrigger, one.reason}, requested: one.at, since: one.since}
	if one.job == JobDrill {
		t.repository = h.spec.Drill.Repository
	}
	return t
}

// recordWithoutResult records that a job ended with v and without a result, in each of its repositories. For a prune, these
// are the repositories with a retention.
func (h *loop) recordWithoutResult(t task, v Verdict, message string) {
	places := []string{t.repository}
	if t.job == JobPrune {
		places = nil
		for _, r := range h.spec.Repositories {
			if h.spec.PrunesIn(r.Name) {
				places = append(places, r.Name)
			}
		}
	}
	for _, t.repository = range places {
		o := h.board.running(t.outcome())
		o.Ended, o.Verdict, o.Message = time.Now().UTC(), v, message
		h.board.publish(o)
	}
}

// refuse ends all requests as not run.
func (h *loop) refuse(why string) {
	for _, one := range h.requests.all() {
		h.recordWithoutResult(h.requestedTask(one), NotRun, why)
	}
}

// nextLook returns when to check again whether another service has released its lease, theirs: when theirs ends, but at most a
// third of a lease from now.
func (h *loop) nextLook(theirs lease.Lease) time.Time {
	now := time.Now()
	again := now.Add(h.lease / 3)
	if theirs.Until.After(now) && theirs.Until.Before(again) {
		return now.Add(theirs.Until.Sub(now)) // keeps the monotonic clock of now
	}
	return again
}

func (h *loop) stores() ([]backup.Store, error) { return h.service.open(h.spec) }

func (h *loop) forward(e storage.Event) { h.service.forward(h.spec.Cluster, e) }

func (h *loop) report(level storage.Level, format string, args ...any) {
	h.service.Report.Say(storage.Event{
		Stage: "schedule", Level: level, Cluster: h.spec.Cluster, Message: fmt.Sprintf(format, args...),
	})
}
