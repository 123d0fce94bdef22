package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
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
		if err := w.lookFirst(ctx); err != nil {
			return w.failed(ctx, task{}, err)
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

// queue waits for its turn in the lane. What it is told meanwhile goes first. After what somebody asked for, what is due by
// itself stands as before.
func (w *worker) queue(ctx context.Context, t task) time.Time {
	before := w.board.get()
	if !t.asked.IsZero() || t.job == JobCopy {
		defer w.board.set(func(s *Status) { s.State, s.Reason, s.Holder = before.State, before.Reason, before.Holder })
	}
	w.board.set(func(s *Status) { s.State, s.Reason = Queued, t.text })
	if w.lane.jobs.Acquire(ctx, 1) != nil {
		return time.Time{}
	}
	defer w.lane.jobs.Release(1)
	if len(w.orders) > 0 {
		return time.Now()
	}
	w.asks.begin(t.job)
	defer w.asks.end(t.job)
	return w.attempt(ctx, t)
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

// attempt does the job, if this service is the one that does and it is still wanted then. It says when to look again.
func (w *worker) attempt(ctx context.Context, t task) time.Time {
	stores, err := w.stores()
	if err == nil {
		stores, err = w.recall(ctx, stores, w.spec.Backup.Require)
	}
	if err != nil {
		return w.failed(ctx, t, err)
	}
	if why := w.suspended(); why != "" {
		return w.skip(t, why)
	}
	held, theirs, err := acquire(ctx, stores, w.spec.Backup.Require, holding(JobBackup, w.holder, w.lease))
	if err != nil {
		return w.failed(ctx, t, err)
	}
	if len(held) == 0 {
		return w.standby(t, theirs)
	}
	err = w.hold(held, func(jobs context.Context) error { return w.do(ctx, jobs, held.stores(), t) })
	if errors.Is(err, errGivenUp) {
		w.say(storage.Warning, "the backup: %v", err)
		if t.job == JobCopy {
			return w.uncopied(ctx, err)
		}
		w.end(t, NotRun, err.Error())
		return w.standby(task{}, repository.Lease{})
	}
	if err != nil {
		return w.failed(ctx, t, err)
	}
	return time.Now()
}

// do prunes, or takes a backup unless another service was here meanwhile: then it is asked again what is due.
func (w *worker) do(ctx, jobs context.Context, stores []backup.Store, t task) error {
	if t.job == JobPrune {
		limited, timedOut := w.limited(jobs)
		defer timedOut()
		w.prune(limited, stores, t.text)
		return nil
	}
	since := w.last.Started
	seen, err := w.look(ctx, stores)
	if err != nil {
		return err
	}
	if t.job == JobCopy {
		if err := w.copyMissed(jobs, seen); err != nil {
			return err
		}
		w.catchup.tries, w.catchup.after = 0, time.Time{}
		return nil
	}
	stores = seen.stores
	if t.asked.IsZero() && w.last.Started.After(since) {
		return nil
	}
	if !t.asked.IsZero() && w.last.Started.After(spec.Later(since, t.asked)) { // one that was known before may be by a clock that is ahead
		o := t.outcome()
		o.Ended, o.Verdict, o.Backup, o.Message = o.Began, Succeeded, w.last.ID, "another service took it"
		w.board.end(o)
		return nil
	}
	if err := queued(ctx, jobs, w.slots); err != nil {
		return err
	}
	result, o, err := w.backup(jobs, stores, t)
	w.slots.Release(1)
	if err != nil {
		return err
	}
	w.stored(result, t, o)
	w.left(result, stores)
	if w.service.possible(w.spec, JobPrune) == nil {
		limited, timedOut := w.limited(jobs)
		defer timedOut()
		w.prune(limited, reached(stores, result), "after a backup")
	}
	return nil
}

// standby lets another service work, and comes back when that may have ended.
func (w *worker) standby(t task, theirs repository.Lease) time.Time {
	if !t.asked.IsZero() {
		return w.postpone(t, theirs)
	}
	if t.job == JobCopy {
		w.catchup.after = w.until(theirs)
		return w.catchup.after
	}
	w.notBefore = w.until(theirs)
	w.board.set(func(s *Status) { s.State, s.Holder, s.Next = Standby, theirs.Holder, time.Time{} })
	return w.notBefore
}

// backup takes one. The caller holds a slot.
func (w *worker) backup(jobs context.Context, stores []backup.Store, t task) (backup.Result, Outcome, error) {
	ctx, timedOut := w.limited(jobs)
	defer timedOut()
	o := t.outcome()
	w.board.set(func(s *Status) { s.State, s.Holder = Running, "" })
	w.board.begin(o)
	w.say(storage.Note, "taking a backup: %s", t.text)
	spec := w.spec
	labels := maps.Clone(spec.Backup.Labels)
	if labels == nil {
		labels = catalog.Labels{}
	}
	labels[t.label] = t.value
	spec.Backup.Labels = labels
	result, err := w.service.Backup(ctx, spec, stores, w.pass)
	if result.ID == "" || errors.Is(err, backup.ErrPartial) {
		return result, o, err
	}
	if err != nil {
		w.say(storage.Warning, "%v", err)
	}
	return result, o, nil
}

// stored remembers what the repositories now hold.
func (w *worker) stored(r backup.Result, t task, o Outcome) {
	last := lastOf(r.Backup)
	if slot, err := time.Parse(time.RFC3339, t.value); err == nil && t.label == spec.LabelSlot {
		last.Started = spec.Later(last.Started, slot) // the clock may have been set back: a slot is done once all the same
	}
	w.remember(last)
	w.tries, w.notBefore = 0, time.Time{}
	o.Ended, o.Verdict, o.Backup = time.Now().UTC(), Succeeded, r.ID
	w.board.end(o)
	w.driller.asks.look() // there may have been nothing to drill
	w.say(storage.Note, "backup %s is stored: revision %d, %d bytes, in %.1f s",
		r.ID, r.Revision, r.Stored.Size, r.Finished.Sub(r.Started).Seconds())
}

// reached are the stores that the backup has come to: nothing goes where nothing has come.
func reached(stores []backup.Store, r backup.Result) (all []backup.Store) {
	for i, store := range stores {
		if i >= len(r.Stores) || r.Stores[i].Err == nil {
			all = append(all, store)
		}
	}
	return all
}

// prune applies the retention in each store. A backup that is stored stays a success whatever comes of that.
func (w *worker) prune(ctx context.Context, stores []backup.Store, why string) {
	var errs error
	for _, store := range stores {
		if w.spec.RetentionIn(store.Repository) == (retention.Policy{}) {
			continue
		}
		o := task{job: JobPrune, repository: store.Repository, cause: cause{text: why}}.outcome()
		w.board.begin(o)
		err := w.service.Prune(ctx, w.spec, store, w.pass)
		if o.Ended, o.Verdict = time.Now().UTC(), Succeeded; err != nil {
			o.Verdict, o.Message = Failed, err.Error()
			errs = errors.Join(errs, fmt.Errorf("repository %s: %w", store.Repository, err))
		}
		w.board.end(o)
	}
	unpruned := ""
	if errs != nil {
		unpruned = errs.Error()
		w.say(storage.Warning, "old backups stay: %v", errs)
	}
	w.board.set(func(s *Status) { s.Unpruned = unpruned })
}

// longestBackupWait bounds the wait after a backup that failed.
const longestBackupWait = 30 * time.Minute

// failed says so, and when to try again: after a while, but at the next slot at the latest. What somebody asked for is not
// tried again: whoever did looks how it went.
func (w *worker) failed(ctx context.Context, t task, err error) time.Time {
	if ctx.Err() != nil {
		return time.Time{}
	}
	if t.job == JobCopy {
		return w.uncopied(ctx, err)
	}
	now := time.Now()
	if !t.asked.IsZero() {
		w.say(storage.Warning, "no %s: %v; it was asked for, and is not tried again", t.job, err)
		w.end(t, Failed, fmt.Sprintf("%v; it was asked for, and is not tried again", err))
		return now
	}
	if t.job != "" {
		w.end(t, Failed, err.Error())
	}
	w.tries++
	again, tries := w.spec.Schedule.Retry(w.tries, longestBackupWait, w.spec.Cluster, now)
	w.notBefore, w.tries = again, tries
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Next, s.Holder, s.Failures = Failing, err.Error(), again.UTC(), "", s.Failures+1
	})
	w.observer.nudge()
	w.say(storage.Warning, "no backup: %v; the next try is at %s", err, again.UTC().Format(time.RFC3339))
	return again
}

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
