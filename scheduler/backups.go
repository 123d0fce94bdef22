package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/runner"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// workerJob has the steps that the jobs of a worker share.
type workerJob struct {
	r *run
	*worker
}

// places returns the stores that answered.
func (j *workerJob) places(_, answered []backup.Store) ([]backup.Store, error) { return answered, nil }

// readNewest reads the newest backups of each repository. The job continues with the repositories that answered.
func (j *workerJob) readNewest(ctx context.Context) (newestBackups, error) {
	seen, err := j.worker.readNewest(ctx, j.r.stores)
	if err == nil {
		j.r.stores = seen.stores
	}
	return seen, err
}

// finish carries out the action that ended a backup or a pruning.
func (j *workerJob) finish(a runner.Action) time.Time {
	r := j.r
	switch a {
	case runner.StandBy:
		return j.standBy(r.theirs)
	case runner.Retry:
		j.worker.recordWithoutResult(r.task, Failed, r.why.Error())
		return j.failed(r.why)
	case runner.Report:
		j.report(storage.Warning, "no %s: %v; it was asked for, and is not tried again", r.job, r.why)
		j.worker.recordWithoutResult(r.task, Failed, fmt.Sprintf("%v; it was asked for, and is not tried again", r.why))
		return time.Now()
	case runner.GiveUp:
		j.report(storage.Warning, "the %s: %v", r.job, r.why)
		j.worker.recordWithoutResult(r.task, NotRun, r.why.Error())
		if !r.requested.IsZero() { // the request has ended: nothing waits for the other service
			return time.Now()
		}
		return j.standBy(lease.Lease{})
	}
	return r.finish(a)
}

// standBy lets another service work, and returns when its lease may have ended.
func (w *worker) standBy(theirs lease.Lease) time.Time {
	w.notBefore = w.nextLook(theirs)
	w.board.set(func(s *Status) { s.State, s.Holder, s.Next = Standby, theirs.Holder, time.Time{} })
	return w.notBefore
}

// longestBackupWait bounds the wait after a backup that failed.
const longestBackupWait = 30 * time.Minute

// failed records why there is no backup, and returns when to try again: after a wait, or at the next slot if that comes first.
func (w *worker) failed(err error) time.Time {
	w.notBefore, w.tries = w.spec.Schedule.Retry(w.tries+1, longestBackupWait, w.spec.Cluster, time.Now())
	again := w.notBefore.UTC()
	w.board.set(func(s *Status) {
		s.State, s.Problem, s.Next, s.Holder, s.Failures = Failing, err.Error(), again, "", s.Failures+1
	})
	w.observer.nudge()
	w.report(storage.Warning, "no backup: %v; the next try is at %s", err, again.Format(time.RFC3339))
	return w.notBefore
}

// backupJob takes a backup, and prunes after it.
type backupJob struct {
	workerJob
	result  backup.Result
	outcome Outcome
	taken   catalog.ID // the backup of another service that stored has found
}

// stored reports whether another service has taken a backup that makes this one unnecessary: a newer one than when this one became due
// or was requested, or, after TriggerOnce, the requested one at any time since r.since. It sets j.taken to that backup.
func (j *backupJob) stored(ctx context.Context) (bool, error) {
	since := j.last.Started
	seen, err := j.readNewest(ctx)
	if err == nil {
		j.r.stores = j.forBackup(seen)
	}
	if !j.r.requested.IsZero() {
		since = storage.Later(since, j.r.requested) // since may be later than the request: another host's clock may be ahead
	}
	j.taken = j.last.ID
	newer := err == nil && j.last.Started.After(since)
	if err != nil || newer || j.r.since.IsZero() {
		return newer, err
	}
	return j.storedBefore(ctx, seen.stores)
}

// storedBefore reports whether one of the stores contains the requested backup, and sets j.taken to it.
func (j *backupJob) storedBefore(ctx context.Context, stores []backup.Store) (bool, error) {
	for _, store := range stores {
		b, found, err := Requested(ctx, store.Cluster, j.r.text, j.r.since)
		if err != nil {
			return false, fmt.Errorf("repository %s: %w", store.Repository, err)
		}
		if found {
			j.taken = b.ID
			return true, nil
		}
	}
	return false, nil
}

// Requested returns the backup in a repository that was requested with a reason and began at since or later. Clocks may differ by
// catalog.FutureAllowance. found is false if there is none.
func Requested(ctx context.Context, c *repository.Cluster, reason string, since time.Time) (b catalog.Backup, found bool, err error) {
	all, err := c.Load(ctx, backups.LoadOptions{After: catalog.NewID(since.Add(-catalog.FutureAllowance), 0)})
	if err != nil {
		return catalog.Backup{}, false, err
	}
	i := slices.IndexFunc(all.Backups, func(b catalog.Backup) bool { return b.Labels[spec.LabelTrigger] == reason })
	if i < 0 {
		return catalog.Backup{}, false, nil
	}
	return all.Backups[i], true, nil
}

func (j *backupJob) work(ctx context.Context) (err error) {
	j.outcome = j.r.outcome()
	j.board.set(func(s *Status) { s.State, s.Holder = Running, "" })
	j.board.begin(j.outcome)
	j.report(storage.Note, "taking a backup: %s", j.r.text)
	j.result, err = j.service.Backup(ctx, BackupRequest{labelled(j.spec, j.r.label, j.r.value), j.r.stores, j.r.free}, j.forward)
	if j.result.ID == "" || errors.Is(err, backup.ErrPartial) {
		return err
	}
	if err != nil {
		j.report(storage.Warning, "%v", err)
	}
	return nil
}

// labelled returns s with one more label for its backups.
func labelled(s spec.Spec, label, value string) spec.Spec {
	labels := maps.Clone(s.Backup.Labels)
	if labels == nil {
		labels = catalog.Labels{}
	}
	labels[label] = value
	s.Backup.Labels = labels
	return s
}

// record records the backup that work has stored and the job's outcome, and prunes the repositories that contain the backup.
func (j *backupJob) record(ctx context.Context) {
	j.remember(j.lastStored())
	j.tries, j.notBefore = 0, time.Time{}
	o := j.outcome
	o.Ended, o.Verdict, o.Backup = time.Now().UTC(), Succeeded, j.result.ID
	j.board.publish(o)
	j.driller.requests.wake() // without a backup there was nothing to drill
	j.report(storage.Note, "backup %s is stored: revision %d, %d bytes, in %.1f s",
		j.result.ID, j.result.Revision, j.result.Stored.Size, j.result.Finished.Sub(j.result.Started).Seconds())
	j.noteMissed(j.result, j.r.stores)
	if j.service.checkJob(j.spec, JobPrune) == nil {
		j.prune(ctx, reached(j.r.stores, j.result), "after a backup")
	}
}

// lastStored returns the backup that work has stored. Its Started is not before the slot for which it was taken: a clock that
// was set back must not make the slot due again.
func (j *backupJob) lastStored() Last {
	last := lastOf(j.result.Backup)
	slot, err := time.Parse(time.RFC3339, j.r.value)
	if err == nil && j.r.label == spec.LabelSlot {
		last.Started = storage.Later(last.Started, slot)
	}
	return last
}

func (j *backupJob) finish(a runner.Action) time.Time {
	if a == runner.Adopt {
		o := j.r.outcome()
		o.Ended, o.Verdict, o.Backup, o.Message = o.Began, Succeeded, j.taken, "another service took it"
		j.board.publish(o)
	}
	return j.workerJob.finish(a)
}

// reached returns the stores that r has reached. A store without an outcome in r.Stores counts as reached.
func reached(stores []backup.Store, r backup.Result) (all []backup.Store) {
	for i, store := range stores {
		if i >= len(r.Stores) || r.Stores[i].Err == nil {
			all = append(all, store)
		}
	}
	return all
}

// pruneJob prunes on request.
type pruneJob struct{ workerJob }

func (j *pruneJob) stored(context.Context) (bool, error) { return false, nil }

func (j *pruneJob) work(ctx context.Context) error {
	j.prune(ctx, j.r.stores, j.r.text)
	return nil
}

func (j *pruneJob) record(context.Context) {}

// prune applies the retention in each store. If it fails, a backup that was just taken has still succeeded.
func (w *worker) prune(ctx context.Context, stores []backup.Store, why string) {
	var errs error
	for _, store := range stores {
		if !w.spec.PrunesIn(store.Repository) {
			continue
		}
		o := task{job: JobPrune, repository: store.Repository, cause: cause{text: why}}.outcome()
		w.board.begin(o)
		err := w.service.Prune(ctx, w.spec, store, w.forward)
		o.Ended, o.Verdict = time.Now().UTC(), Succeeded
		if err != nil {
			o.Verdict, o.Message = Failed, err.Error()
			errs = errors.Join(errs, fmt.Errorf("repository %s: %w", store.Repository, err))
		}
		w.board.publish(o)
	}
	unpruned := ""
	if errs != nil {
		unpruned = errs.Error()
		w.report(storage.Warning, "old backups stay: %v", errs)
	}
	w.board.set(func(s *Status) { s.Unpruned = unpruned })
}
