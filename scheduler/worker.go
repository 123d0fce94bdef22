package scheduler

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
)

// order is what a worker is told.
type order struct {
	spec  spec.Spec
	lane  *lane
	slots *semaphore.Weighted // of backups at a time
	lease time.Duration
	fault string // why the cluster's configuration, as it is written now, is not in force; "": it is
}

// worker takes the backups of one cluster, and prunes. All but stop, told and driller is its own goroutine's, and what a
// hand has for others.
type worker struct {
	hand
	driller  *driller
	observer *observer
	stop     context.CancelFunc
	told     spec.Spec // what orders last said; the service's own lock guards it

	deleted   atomic.Bool // last was not in any repository when they were listed
	known     bool        // last is what the repositories hold, but for what others have stored since
	last      Last
	next      slotAfter // the schedule's, after last
	tries     int       // that failed since the last slot
	notBefore time.Time // of the next try
	probe     time.Time // when to look at the triggers again
	catchup   catchup
}

// take goes on with o. What is known of the repositories, and of what has failed, holds only for the old Spec.
func (w *worker) take(o order) {
	if o.spec.Digest != w.spec.Digest {
		w.known, w.next, w.tries, w.notBefore, w.probe, w.catchup = false, slotAfter{}, 0, time.Time{}, time.Time{}, catchup{}
		w.board.set(func(s *Status) {
			s.State, s.Problem, s.Failures, s.Reason, s.Holder, s.Last, s.Next, s.Unpruned = Starting, "", 0, "", "", nil, time.Time{}, ""
		})
	}
	w.order = o
	w.observer.give(o)
}

// turn does what somebody asks for, or else what is due, if anything is, and says when to look again.
func (w *worker) turn(ctx context.Context) time.Time {
	if w.suspended() != "" && !w.resumed(ctx) {
		return w.rest()
	}
	now := time.Now()
	asked, again := w.asks.next(now)
	switch {
	case asked.job != "":
		return w.queue(ctx, w.wanted(asked))
	case now.Before(w.notBefore):
		return spec.Earlier(w.notBefore, again)
	case !w.known || w.last.Started.After(now.Add(condition.ClockAllowance)): // then a clock that was wrong has been set right
		err := w.lookFirst(ctx)
		if ctx.Err() != nil {
			return time.Time{}
		}
		if err != nil {
			return w.failed(err)
		}
	case w.deleted.Swap(false):
		if err := w.lookAgain(ctx); err != nil {
			w.say(storage.Warning, "whether the newest backup is still there: %v", err)
		}
	}
	if w.suspended() != "" {
		return w.rest()
	}
	why, next := w.due(ctx, now)
	if !why.is() {
		w.idle(next)
		return w.catchUp(ctx, spec.Earlier(next, again))
	}
	return w.queue(ctx, task{job: JobBackup, cause: why})
}

// catchUp copies what a repository lacks, if that is due, and else returns the earlier of when it is and next.
func (w *worker) catchUp(ctx context.Context, next time.Time) time.Time {
	now := time.Now()
	at := w.catchup.due(now)
	if !w.copies() {
		return next
	}
	if at.IsZero() || at.After(now) {
		return spec.Earlier(next, at)
	}
	return w.queue(ctx, task{job: JobCopy, cause: cause{text: "a repository lacks backups"}})
}

// rest begins nothing while the cluster is suspended, and looks again after the longest sleep whether it is.
func (w *worker) rest() time.Time {
	why := w.suspended()
	w.tries, w.notBefore = 0, time.Time{}
	w.board.set(func(s *Status) { s.State, s.Next, s.Reason = Suspended, time.Time{}, "" })
	w.refuse(why)
	return time.Time{}
}

// queue starts a run. Afterwards the status of the backup that is due by itself is as before, if the run was another.
func (w *worker) queue(ctx context.Context, t task) time.Time {
	before := w.board.get()
	if !t.asked.IsZero() || t.job == JobCopy {
		defer w.board.set(func(s *Status) { s.State, s.Reason, s.Holder = before.State, before.Reason, before.Holder })
	}
	w.board.set(func(s *Status) { s.State, s.Reason = Queued, t.text })
	r := &run{hand: &w.hand, task: t, claim: JobBackup, require: w.spec.Backup.Require, turns: w.lane.jobs}
	return r.do(ctx, w.steps(r))
}

// steps returns those of r's job.
func (w *worker) steps(r *run) steps {
	job := workerJob{r, w}
	switch r.job {
	case JobPrune:
		return &pruneJob{job}
	case JobCopy:
		return &copyJob{workerJob: job}
	}
	r.slot = w.slots
	return &backupJob{workerJob: job}
}

func (w *worker) idle(next time.Time) {
	w.tries = 0 // what failed before is over: the next failure is a first one
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Failures, s.Reason, s.Holder, s.Next = Idle, "", 0, "", "", next.UTC()
	})
}

// remember says which backup is the newest.
func (w *worker) remember(last Last) {
	w.last = last
	w.board.set(func(s *Status) { s.Last = &last })
}

// cause is why a backup is due: a slot of the schedule, or something else.
type cause struct {
	text  string // for people
	label string // name of the backup's label that says it
	value string
}

func (c cause) is() bool { return c.label != "" }

// due says why a backup is due, if one is, or else when to ask again.
func (w *worker) due(ctx context.Context, now time.Time) (cause, time.Time) {
	at := w.nextSlot(now)
	if !at.IsZero() && !at.After(now) {
		slot := at.UTC().Format(time.RFC3339)
		if w.last.Started.IsZero() {
			return cause{"there is none yet", spec.LabelSlot, slot}, at
		}
		return cause{"the schedule's of " + slot, spec.LabelSlot, slot}, at
	}
	if w.spec.Triggers.None() {
		return cause{}, at
	}
	if !now.Before(w.probe) {
		w.probe = now.Add(w.spec.Triggers.Every)
		text, err := w.triggered(ctx)
		if err != nil {
			w.say(storage.Warning, "the triggers could not be looked at: %v", err)
		}
		if text != "" {
			return cause{text, spec.LabelTrigger, text}, now
		}
	}
	if at.IsZero() || w.probe.Before(at) {
		return cause{}, w.probe
	}
	return cause{}, at
}

// nextSlot returns when the schedule has the next backup due. Every worker asks each minute, so it is computed once for each last.
func (w *worker) nextSlot(now time.Time) time.Time {
	if w.last.Started.IsZero() {
		return w.spec.NextBackup(w.last, now)
	}
	if !w.next.started.Equal(w.last.Started) {
		w.next = slotAfter{w.last.Started, w.spec.NextBackup(w.last, now)}
	}
	return w.next.at
}

// slotAfter is the schedule's first slot after a backup.
type slotAfter struct{ started, at time.Time }

// lookFirst is look before anything is known, in turns with other clusters.
func (w *worker) lookFirst(ctx context.Context) (err error) {
	ended := w.lane.looks.take(ctx, firstLookTime, func(ctx context.Context) { err = w.lookAnew(ctx) })
	return cmp.Or(err, ended)
}

// firstLookTime is for whether the cluster is suspended, and which backup is the newest.
const firstLookTime = 2 * askTime

func (w *worker) lookAnew(ctx context.Context) error {
	stores, err := w.stores()
	if err != nil {
		return err
	}
	if stores, err = w.recall(ctx, stores, w.spec.Backup.Require); err != nil {
		return err
	}
	w.known, w.last = false, Last{}
	if _, err = w.look(ctx, stores); err != nil {
		return err
	}
	if !w.last.Started.IsZero() { // else the first backup comes at once
		w.observer.nudge()
	}
	return nil
}

// lookAgain is look after somebody has deleted the newest backup.
func (w *worker) lookAgain(ctx context.Context) error {
	stores, err := w.stores()
	if err != nil {
		return err
	}
	ended := w.lane.looks.take(ctx, askTime, func(ctx context.Context) { _, err = w.look(ctx, stores) })
	return cmp.Or(err, ended)
}

// gone is called when last, which the worker remembers, was listed nowhere.
func (w *worker) gone() {
	w.deleted.Store(true)
	w.asks.look()
}

// look reads what the repositories hold.
func (w *worker) look(ctx context.Context, stores []backup.Store) (sight, error) {
	seen, err := lookAt(ctx, stores, w.spec.Backup.Require, w.last, time.Now())
	if err != nil {
		return sight{}, err
	}
	w.catchup.note(seen, w.spec.Repositories)
	if w.known = true; seen.last.ID != w.last.ID {
		w.remember(seen.last)
	}
	return seen, nil
}
