package scheduler

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// assignment is the configuration of one cluster, with the turns and slots that its jobs share with others.
type assignment struct {
	spec  spec.Spec
	group *repositoryGroup
	slots *slots // of backups
	lease time.Duration
	fault string // why the configuration as written is not in effect; "": it is
}

// equals reports whether o and other have the same effect.
func (o assignment) equals(other assignment) bool {
	return o.spec.Digest == other.spec.Digest && o.group == other.group && o.slots == other.slots && o.lease == other.lease && o.fault == other.fault
}

// worker takes the backups of one cluster, prunes, and copies backups that a repository has missed. Only its goroutine uses the
// fields, unless their comments say otherwise.
type worker struct {
	loop
	driller  *driller
	observer *observer
	stop     context.CancelFunc
	assigned assignment // the newest one; guarded by Service.mu

	lastDeleted atomic.Bool // no repository in a survey contained the backup in last; set by any goroutine
	known       bool        // last was read from the repositories
	last        Last
	next        slotAfter // cached by nextSlot
	tries       int       // failures since the last slot
	notBefore   time.Time // earliest next try
	nextProbe   time.Time // when to check the triggers again
	catchup     catchup
}

// reassign sends o to w and its driller, unless it changes nothing: each assignment takes jobs that wait out of their queues. The caller
// holds Service.mu.
func (w *worker) reassign(o assignment) {
	if o.equals(w.assigned) {
		return
	}
	w.assigned = o
	w.assign(o)
	w.driller.assign(o)
}

// accept adopts o. If the Spec has changed, it forgets what the worker knew about repositories and failures.
func (w *worker) accept(o assignment) {
	if o.spec.Digest != w.spec.Digest {
		w.known, w.next, w.tries, w.notBefore, w.nextProbe, w.catchup = false, slotAfter{}, 0, time.Time{}, time.Time{}, catchup{}
		w.board.set(func(s *Status) {
			s.State, s.Problem, s.Failures, s.Reason, s.Holder, s.Last, s.Next, s.Unpruned = Starting, "", 0, "", "", nil, time.Time{}, ""
		})
	}
	w.assignment = o
	w.observer.assign(o)
}

// turn runs the requested job or, without a request, the due one. It returns when to look again.
func (w *worker) turn(ctx context.Context) time.Time {
	if w.suspended() != "" && !w.resumed(ctx) {
		return w.suspend()
	}
	now := time.Now()
	asked, again := w.requests.next(now)
	switch {
	case asked.job != "":
		return w.runJob(ctx, w.requestedTask(asked))
	case now.Before(w.notBefore):
		return spec.Earlier(w.notBefore, again)
	case !w.known || catalog.IsFuture(w.last.Started, now): // or the clock was set back: last is in the future
		err := w.readInTurn(ctx)
		if ctx.Err() != nil {
			return time.Time{}
		}
		if err != nil {
			return w.failed(err)
		}
	case w.lastDeleted.Swap(false):
		err := w.rereadNewest(ctx)
		if err != nil {
			w.report(storage.Warning, "cannot find out whether the newest backup still exists: %v", err)
		}
	}
	if w.suspended() != "" {
		return w.suspend()
	}
	why, next := w.due(ctx, now)
	if why.isNone() {
		w.idle(next)
		return w.catchUp(ctx, spec.Earlier(next, again))
	}
	return w.runJob(ctx, task{job: JobBackup, cause: why})
}

// catchUp starts a copy to the repositories that lack backups if one is due. It returns when to look again: the time after the
// copy or, if none was due, the earlier of next and the time at which a copy is due.
func (w *worker) catchUp(ctx context.Context, next time.Time) time.Time {
	now := time.Now()
	at := w.catchup.due(now)
	if !w.copies() {
		return next
	}
	if at.IsZero() || at.After(now) {
		return spec.Earlier(next, at)
	}
	return w.runJob(ctx, task{job: JobCopy, cause: cause{text: "a repository lacks backups"}})
}

// suspend refuses all requests while the cluster is suspended. It returns the zero time: the worker checks again at the next tick.
func (w *worker) suspend() time.Time {
	why := w.suspended()
	w.tries, w.notBefore = 0, time.Time{}
	w.board.set(func(s *Status) { s.State, s.Next, s.Reason = Suspended, time.Time{}, "" })
	w.refuse(why)
	return time.Time{}
}

// runJob queues and carries out a run, and returns when to look again. It blocks until the run ends. A requested run or a copy leaves
// State, Reason and Holder of the status as they were.
func (w *worker) runJob(ctx context.Context, t task) time.Time {
	before := w.board.get()
	if !t.requested.IsZero() || t.job == JobCopy {
		defer w.board.set(func(s *Status) { s.State, s.Reason, s.Holder = before.State, before.Reason, before.Holder })
	}
	w.board.set(func(s *Status) { s.State, s.Reason = Queued, t.text })
	r := &run{loop: &w.loop, task: t, leaseOf: JobBackup, require: w.spec.Backup.Require, turn: w.group.jobs}
	return r.do(ctx, w.steps(r))
}

// steps returns the steps of r's job.
func (w *worker) steps(r *run) steps {
	job := workerJob{r, w}
	switch r.job {
	case JobPrune:
		return &pruneJob{job}
	case JobCopy:
		return &copyJob{workerJob: job}
	}
	r.slots = w.slots
	return &backupJob{workerJob: job}
}

// idle records that no backup is due until next.
func (w *worker) idle(next time.Time) {
	w.tries = 0 // the next failure counts as the first
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Failures, s.Reason, s.Holder, s.Next = Idle, "", 0, "", "", next.UTC()
	})
}

// remember records the newest backup.
func (w *worker) remember(last Last) {
	w.last = last
	w.board.set(func(s *Status) { s.Last = &last })
}

// cause is why a job is due or requested.
type cause struct {
	text  string // for people
	label string // key of the label with which the backup records it; "" for other jobs
	value string // of the label
}

// isNone reports whether c is no cause for a backup.
func (c cause) isNone() bool { return c.label == "" }

// due returns why a backup is due. If no backup is due, the cause is empty, and due returns when to ask again.
func (w *worker) due(ctx context.Context, now time.Time) (cause, time.Time) {
	at := w.nextSlot(now)
	if !at.IsZero() && !at.After(now) {
		slot := at.UTC().Format(time.RFC3339)
		if w.last.Started.IsZero() {
			return cause{"there is no backup yet", spec.LabelSlot, slot}, at
		}
		return cause{"scheduled for " + slot, spec.LabelSlot, slot}, at
	}
	if w.spec.Triggers.None() {
		return cause{}, at
	}
	if !now.Before(w.nextProbe) {
		w.nextProbe = now.Add(w.spec.Triggers.Every)
		text, err := w.triggered(ctx)
		if err != nil {
			w.report(storage.Warning, "cannot check the triggers: %v", err)
		}
		if text != "" {
			return cause{text, spec.LabelTrigger, text}, now
		}
	}
	if at.IsZero() || w.nextProbe.Before(at) {
		return cause{}, w.nextProbe
	}
	return cause{}, at
}

// nextSlot returns the slot after the last backup. It is cached: every worker asks once a minute.
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

// readInTurn calls readState, taking turns with other clusters.
func (w *worker) readInTurn(ctx context.Context) (err error) {
	ended := w.group.firstReads.do(ctx, firstReadTime, func(ctx context.Context) { err = w.readState(ctx) })
	return cmp.Or(err, ended)
}

// firstReadTime bounds readInTurn, which reads the suspension and the newest backup.
const firstReadTime = 2 * askTime

// readState reads the suspension and the newest backups, and replaces all earlier knowledge.
func (w *worker) readState(ctx context.Context) error {
	stores, err := w.stores()
	if err != nil {
		return err
	}
	stores, err = w.updateSuspension(ctx, stores, w.spec.Backup.Require)
	if err != nil {
		return err
	}
	w.known, w.last = false, Last{}
	_, err = w.readNewest(ctx, stores)
	return err
}

// rereadNewest reads the newest backups again, because last was deleted.
func (w *worker) rereadNewest(ctx context.Context) error {
	stores, err := w.stores()
	if err != nil {
		return err
	}
	ended := w.group.firstReads.do(ctx, askTime, func(ctx context.Context) { _, err = w.readNewest(ctx, stores) })
	return cmp.Or(err, ended)
}

// gone records that a survey has not found the backup in last. Any goroutine may call it.
func (w *worker) gone() {
	w.lastDeleted.Store(true)
	w.requests.wake()
}

// readNewest reads the newest backups in the stores. If another one is the newest, as after a job of another service, a survey follows.
func (w *worker) readNewest(ctx context.Context, stores []backup.Store) (newestBackups, error) {
	seen, err := newestQuery{w.spec.Backup.Require, w.last, time.Now()}.read(ctx, stores)
	if err != nil {
		return newestBackups{}, err
	}
	w.catchup.update(seen, w.spec.Repositories)
	w.compare(ctx, seen)
	w.known = true
	if seen.last.ID != w.last.ID {
		w.remember(seen.last)
		w.observer.nudge()
	}
	return seen, nil
}
