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

// hand is what all who work for a cluster have: each works in a goroutine of its own, on orders of its own.
type hand struct {
	order
	service *Service
	holder  string          // of leases
	jobs    context.Context // of what has begun: it ends later than the hand's own
	orders  chan order
	asks    *asks
	board   *board // of the cluster
}

// give hands o over, in place of one that was not taken yet. Only one goroutine may call it at a time.
func (h *hand) give(o order) {
	select {
	case <-h.orders:
	default:
	}
	h.orders <- o
}

// longestSleep bounds how long a hand is wrong after the clock was set.
const longestSleep = time.Minute

// onlyAsked is when to look again where neither a clock nor a store can give a hand anything to do.
var onlyAsked = time.Unix(1<<40, 0)

// work does turn after turn until ctx ends. Each says when to look again, the zero Time for when something changes.
func (h *hand) work(ctx context.Context, turn func(context.Context) time.Time, take func(order)) {
	for ctx.Err() == nil {
		over := h.wait(turn(ctx))
		select {
		case <-ctx.Done():
		case o := <-h.orders:
			take(o)
		case <-h.asks.poke:
		case <-over:
		}
	}
}

// wait ends at that time, or when all hands of the service look whether the clock was set. They do so together: each wake of
// an idle machine costs more than what a thousand of them then find out.
func (h *hand) wait(again time.Time) <-chan time.Time {
	wait := longestSleep - time.Since(h.service.began)%longestSleep
	switch {
	case again.Equal(onlyAsked):
		return nil
	case !again.IsZero():
		wait = min(wait, max(0, time.Until(again)))
	}
	return time.After(wait)
}

// task is a job, and why it is done.
type task struct {
	job        Job
	repository string // of a job in one
	cause
	asked time.Time // when somebody asked for it; the zero Time: it is due by itself
	due   time.Time // since when, if it is due by a schedule
}

// outcome is that of t, from now on.
func (t task) outcome() Outcome {
	return Outcome{Job: t.job, Repository: t.repository, Reason: t.text, Began: time.Now().UTC()}
}

// wanted is a job that somebody asked for.
func (h *hand) wanted(one ask) task {
	t := task{job: one.job, cause: cause{one.reason, spec.LabelTrigger, one.reason}, asked: one.at}
	if one.job == JobDrill {
		t.repository = h.spec.Drill.Repository
	}
	return t
}

// end says how a job went that nothing came of, in each repository that it was for.
func (h *hand) end(t task, v Verdict, message string) {
	places := []string{t.repository}
	if t.job == JobPrune {
		places = nil
		for _, r := range h.spec.Repositories {
			places = append(places, r.Name)
		}
	}
	for _, t.repository = range places {
		o := h.board.running(t.outcome())
		o.Ended, o.Verdict, o.Message = time.Now().UTC(), v, message
		h.board.end(o)
	}
}

// refuse begins nothing of what somebody asks for.
func (h *hand) refuse(why string) {
	for _, one := range h.asks.all() {
		h.end(h.wanted(one), NotRun, why)
	}
}

// until is when to look again whether another service, which has a lease, has ended.
func (h *hand) until(theirs lease.Lease) time.Time {
	now := time.Now()
	again := now.Add(h.lease / 3)
	if theirs.Until.After(now) && theirs.Until.Before(again) {
		return now.Add(theirs.Until.Sub(now)) // as in worker.failed
	}
	return again
}

func (h *hand) stores() ([]backup.Store, error) { return h.service.open(h.spec) }

func (h *hand) pass(e storage.Event) { h.service.pass(h.spec.Cluster, e) }

func (h *hand) say(level storage.Level, format string, args ...any) {
	h.service.Report.Say(storage.Event{
		Stage: "schedule", Level: level, Cluster: h.spec.Cluster, Message: fmt.Sprintf(format, args...),
	})
}
