package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// order is what a worker is told.
type order struct {
	spec  Spec
	limit *semaphore.Weighted // of backups at a time
	lease time.Duration
}

// worker looks after one cluster. All but stop, orders and board is its own goroutine's.
type worker struct {
	order
	service *Service
	holder  string          // of leases
	jobs    context.Context // of what has begun: it ends later than the worker's own
	stop    context.CancelFunc
	orders  chan order
	board   board

	known     bool // last is what the repositories hold, but for what others have stored since
	last      Last
	tries     int       // that failed since the last slot
	notBefore time.Time // of the next try
	probe     time.Time // when to look at the triggers again
}

// board is the status, which others read.
type board struct {
	mu     sync.Mutex
	status Status
}

func (b *board) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

func (b *board) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// give hands o over, in place of one that was not taken yet. Only one goroutine may call it at a time.
func (w *worker) give(o order) {
	select {
	case <-w.orders:
	default:
	}
	w.orders <- o
}

// longestSleep bounds how long the worker is wrong after the clock was set.
const longestSleep = time.Minute

// run does what is due until ctx ends.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := longestSleep
		if again := w.turn(ctx); !again.IsZero() {
			wait = min(wait, max(0, time.Until(again)))
		}
		select {
		case <-ctx.Done():
		case o := <-w.orders:
			w.take(o)
		case <-time.After(wait):
		}
	}
}

// take goes on with o. What is known of the repositories, and of what has failed, holds only for the old Spec.
func (w *worker) take(o order) {
	if o.spec.Digest != w.spec.Digest {
		w.known, w.tries, w.notBefore, w.probe = false, 0, time.Time{}, time.Time{}
		w.board.set(func(s *Status) {
			taken := s.Taken
			*s = starting(s.Cluster)
			s.Taken = taken
		})
	}
	w.order = o
}

// turn does what is due, if anything is, and says when to look again.
func (w *worker) turn(ctx context.Context) time.Time {
	now := time.Now()
	switch {
	case w.spec.Suspend:
		w.board.set(func(s *Status) { s.State, s.Next, s.Reason = Suspended, time.Time{}, "" })
		return time.Time{}
	case now.Before(w.notBefore):
		return w.notBefore
	case !w.known:
		if err := w.lookFirst(ctx); err != nil {
			return w.failed(ctx, err)
		}
	}
	why, next := w.due(ctx, now)
	if !why.is() {
		w.idle(next)
		return next
	}
	w.board.set(func(s *Status) { s.State, s.Reason = Queued, why.text })
	if w.limit.Acquire(ctx, 1) != nil {
		return time.Time{}
	}
	defer w.limit.Release(1)
	return w.attempt(ctx, why)
}

func (w *worker) idle(next time.Time) {
	last := w.last
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Failures, s.Reason, s.Holder, s.Next = Idle, "", 0, "", "", next.UTC()
		if !last.Started.IsZero() {
			s.Last = &last
		}
	})
}

// cause is why a backup is due: a slot of the schedule, or something else.
type cause struct {
	text  string // for people
	label string // name of the backup's label that says it
	value string
}

func (c cause) is() bool { return c.label != "" }

// The labels of backups that say why they were taken.
const (
	LabelSlot    = "schedule" // when it was due
	LabelTrigger = "trigger"  // what made it due
)

// due says why a backup is due, if one is, or else when to ask again.
func (w *worker) due(ctx context.Context, now time.Time) (cause, time.Time) {
	at := w.spec.Due(w.last, now)
	if !at.IsZero() && !at.After(now) {
		slot := at.UTC().Format(time.RFC3339)
		if w.last.Started.IsZero() {
			return cause{"there is none yet", LabelSlot, slot}, at
		}
		return cause{"the schedule's of " + slot, LabelSlot, slot}, at
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
			return cause{text, LabelTrigger, text}, now
		}
	}
	if at.IsZero() || w.probe.Before(at) {
		return cause{}, w.probe
	}
	return cause{}, at
}

// attempt takes the backup, if this service is the one that does and it is still due then. It says when to look again.
func (w *worker) attempt(ctx context.Context, why cause) time.Time {
	stores, err := w.stores(ctx)
	if err != nil {
		return w.failed(ctx, err)
	}
	held, theirs, err := acquire(ctx, stores, w.spec.Backup.Require, w.holder, w.lease)
	if err != nil {
		return w.failed(ctx, err)
	}
	if len(held) == 0 {
		return w.standby(theirs)
	}
	jobs, end := context.WithCancelCause(w.jobs)
	keeping := held.keep(jobs, w.lease, end)
	defer keeping.Wait()
	defer end(nil)
	jobs, timedOut := context.WithTimeout(jobs, w.spec.Timeout)
	defer timedOut()
	before := w.last
	if err := w.look(ctx, stores); err != nil {
		return w.failed(ctx, err)
	}
	if w.last.Started.After(before.Started) { // another service was here: ask again what is due
		return time.Now()
	}
	if err = w.backup(jobs, stores, why); err == nil {
		return time.Now()
	}
	if cause := context.Cause(jobs); errors.Is(cause, repository.ErrLost) || errors.Is(cause, errStopped) {
		w.say(storage.Warning, "the backup was given up: %v", cause)
		return w.standby(repository.Lease{})
	}
	return w.failed(ctx, err)
}

// standby lets another service work, and comes back when that may have ended.
func (w *worker) standby(theirs repository.Lease) time.Time {
	now := time.Now()
	w.notBefore = now.Add(w.lease / 3)
	if theirs.Until.After(now) && theirs.Until.Before(w.notBefore) {
		w.notBefore = theirs.Until
	}
	w.board.set(func(s *Status) { s.State, s.Holder, s.Next = Standby, theirs.Holder, time.Time{} })
	return w.notBefore
}

// backup takes one, and prunes where it is.
func (w *worker) backup(ctx context.Context, stores []backup.Store, why cause) error {
	w.board.set(func(s *Status) { s.State, s.Holder = Running, "" })
	w.say(storage.Note, "taking a backup: %s", why.text)
	spec := w.spec
	labels := maps.Clone(spec.Backup.Labels)
	if labels == nil {
		labels = repository.Labels{}
	}
	labels[why.label] = why.value
	spec.Backup.Labels = labels
	result, err := w.service.Backup(ctx, spec, stores, w.pass)
	if result.ID == "" || errors.Is(err, backup.ErrPartial) {
		return err
	}
	if err != nil {
		w.say(storage.Warning, "%v", err)
	}
	w.stored(result, why)
	w.prune(ctx, stores, result)
	return nil
}

// stored remembers what the repositories now hold.
func (w *worker) stored(r backup.Result, why cause) {
	w.last = lastOf(r.Backup)
	if slot, err := time.Parse(time.RFC3339, why.value); err == nil {
		w.last.Started = later(w.last.Started, slot) // the clock may have been set back: a slot is done once all the same
	}
	w.tries = 0
	w.board.set(func(s *Status) { s.Taken++ })
	w.say(storage.Note, "backup %s is stored: revision %d, %d bytes, in %.1f s",
		r.ID, r.Revision, r.Stored.Size, r.Finished.Sub(r.Started).Seconds())
}

// prune applies the retention wherever the backup is. A backup that is stored stays a success whatever comes of that.
func (w *worker) prune(ctx context.Context, stores []backup.Store, r backup.Result) {
	if w.service.Prune == nil || w.spec.Retention == (retention.Policy{}) {
		return
	}
	var errs error
	for i, store := range stores {
		if i < len(r.Stores) && r.Stores[i].Err != nil {
			continue // nothing goes where nothing has come
		}
		if err := w.service.Prune(ctx, w.spec, store, w.pass); err != nil {
			errs = errors.Join(errs, fmt.Errorf("repository %s: %w", store.Repository, err))
		}
	}
	unpruned := ""
	if errs != nil {
		unpruned = errs.Error()
		w.say(storage.Warning, "old backups stay: %v", errs)
	}
	w.board.set(func(s *Status) { s.Unpruned = unpruned })
}

// failed says so, and when to try again: after a while, but at the next slot at the latest.
func (w *worker) failed(ctx context.Context, err error) time.Time {
	if ctx.Err() != nil {
		return time.Time{}
	}
	now := time.Now()
	w.tries++
	again := now.Add(backoff(w.tries, w.spec.Cluster))
	if slot := w.spec.Schedule.Next(now); !slot.IsZero() && !slot.After(again) {
		again, w.tries = slot, 0
	}
	w.notBefore = again
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Next, s.Holder, s.Failures = Failing, err.Error(), again.UTC(), "", s.Failures+1
	})
	w.say(storage.Warning, "no backup: %v; the next try is at %s", err, again.UTC().Format(time.RFC3339))
	return again
}

// lookFirst is look before anything is known, in turns with other clusters.
func (w *worker) lookFirst(ctx context.Context) error {
	if err := w.service.looks.Acquire(ctx, 1); err != nil {
		return err
	}
	defer w.service.looks.Release(1)
	stores, err := w.stores(ctx)
	if err != nil {
		return err
	}
	w.last = Last{}
	return w.look(ctx, stores)
}

// look reads what the repositories hold. What this worker has stored there itself stands, whatever hides it.
func (w *worker) look(ctx context.Context, stores []backup.Store) error {
	found, err := lookAt(ctx, stores, w.spec.Backup.Require, time.Now())
	if err != nil {
		return err
	}
	if w.known = true; found.Started.After(w.last.Started) {
		w.last = found
	}
	return nil
}

func (w *worker) stores(ctx context.Context) ([]backup.Store, error) {
	return w.service.open(ctx, w.spec)
}

func (w *worker) pass(e storage.Event) { w.service.pass(w.spec.Cluster, e) }

func (w *worker) say(level storage.Level, format string, args ...any) {
	w.service.Report.Say(storage.Event{
		Stage: "schedule", Level: level, Cluster: w.spec.Cluster, Message: fmt.Sprintf(format, args...),
	})
}
