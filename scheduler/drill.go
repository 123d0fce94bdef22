package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/runner"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// driller practices the restore of one cluster, in a goroutine of its own: drills take long, and a backup must not wait for one.
type driller struct {
	loop

	known     bool      // last was read from the repository; false also while there is no backup to drill
	last      time.Time // start of the newest drill, with any verdict
	again     bool      // the newest drill was not run, and is tried again before the next slot
	tries     int       // drills in a row that were not run
	notBefore time.Time // earliest next try
}

// accept adopts o. If the Spec has changed, it forgets what the driller knew about the repository.
func (d *driller) accept(o assignment) {
	if o.spec.Digest != d.spec.Digest {
		d.known, d.last, d.again, d.tries, d.notBefore = false, time.Time{}, false, 0, time.Time{}
	}
	d.assignment = o
}

// turn runs a drill if one is requested or due, and returns when to look again; the zero Time: at the next shared tick.
func (d *driller) turn(ctx context.Context) time.Time {
	why := cmp.Or(d.unconfigured(), d.suspended())
	if why != "" {
		d.refuse(why)
		d.showNext(time.Time{})
		return d.idle(time.Time{})
	}
	now := time.Now()
	asked, again := d.requests.next(now)
	switch {
	case asked.job != "":
		return d.runJob(ctx, d.requestedTask(asked))
	case d.spec.Drill.Schedule.None():
		return d.idle(again)
	case now.Before(d.notBefore):
		return spec.Earlier(d.notBefore, again)
	case !d.known || catalog.IsFuture(d.last, now): // or the clock was set back: last is in the future
		d.known, d.last = false, time.Time{}
		err := d.readInTurn(ctx)
		if err != nil {
			d.report(storage.Warning, "cannot find out whether a drill is due: %v", err)
			return d.retry()
		}
	}
	return spec.Earlier(d.begin(ctx, now), again)
}

// idle returns when to look again while no drill is due. A driller without a schedule waits for requests alone, which saves a
// wake-up a minute for each cluster.
func (d *driller) idle(again time.Time) time.Time {
	if again.IsZero() && d.spec.Drill.Schedule.None() {
		return noDeadline
	}
	return again
}

// unconfigured returns why the cluster has no drills, or "".
func (d *driller) unconfigured() string {
	err := d.service.checkJob(d.spec, JobDrill)
	if err != nil {
		return err.Error()
	}
	return ""
}

// begin runs a drill if one is due. It returns when to look again; the zero Time: at the next shared tick.
func (d *driller) begin(ctx context.Context, now time.Time) time.Time {
	if !d.known { // there is nothing to drill yet
		return time.Time{}
	}
	at := d.spec.Drill.NextDrill(d.last, now)
	why := cause{text: "scheduled for " + at.UTC().Format(time.RFC3339)}
	switch {
	case d.last.IsZero():
		why.text = "no drill has run yet"
	case d.again && d.notBefore.Before(at):
		at, why.text = d.notBefore, "the last one was not run"
	}
	d.showNext(at)
	if at.IsZero() || at.After(now) {
		return at
	}
	return d.runJob(ctx, task{job: JobDrill, repository: d.spec.Drill.Repository, cause: why, due: at})
}

func (d *driller) showNext(at time.Time) {
	d.board.set(func(s *Status) { s.NextDrill = at.UTC() })
}

// runJob carries out a run, and returns when to look again.
func (d *driller) runJob(ctx context.Context, t task) time.Time {
	r := &run{loop: &d.loop, task: t, leaseOf: JobDrill, require: spec.Any, turn: d.group.drills, slots: d.service.drills}
	return r.do(ctx, &drillJob{r: r, driller: d})
}

// drillJob restores from one repository.
type drillJob struct {
	r *run
	*driller
	newest  []catalog.Proof // of the newest stored drill, newest first
	outcome Outcome
	proofs  []catalog.Proof // results of the drill
	err     error           // of the drill
}

// places returns the store that the drill restores from.
func (j *drillJob) places(all, _ []backup.Store) ([]backup.Store, error) {
	in, err := j.in(all)
	return []backup.Store{in}, err
}

// stored reports whether another service has drilled since the newest drill known here and, if this one was requested, since the request. A
// drill without the proof of its last restore does not count: no service works on it any more, as the lease shows.
func (j *drillJob) stored(ctx context.Context) (_ bool, err error) {
	since := j.last
	if !j.r.requested.IsZero() {
		since = storage.Later(since, j.r.requested) // j.last may be the later one, written by a clock that is ahead
	}
	j.newest, err = j.readLast(ctx, j.r.stores[0])
	return err == nil && len(j.newest) > 0 && j.newest[0].Time.After(since) && catalog.DrillEnded(j.newest), err
}

// work runs the drill. An error of the drill itself is part of its result.
func (j *drillJob) work(ctx context.Context) error {
	j.outcome = j.r.outcome()
	j.board.begin(j.outcome)
	j.report(storage.Note, "starting a drill: %s", j.r.text)
	seed := spec.Hash(fmt.Sprint(j.spec.Cluster, j.outcome.Began.UnixNano())) & math.MaxUint32 // short enough to type
	j.proofs, j.err = j.service.Drill(ctx, DrillRequest{j.spec, j.r.stores[0], seed, j.free}, j.forward)
	return nil
}

// free gives back the slot, and the turn among the clusters with the same repositories.
func (j *drillJob) free() {
	j.r.free()
	j.r.leave()
}

// record records the result. After a drill that was run, last is not before the time at which it became due: a clock that was
// set back must not make it due again.
func (j *drillJob) record(context.Context) {
	j.recordResult(j.outcome, j.proofs, j.err)
	if !j.again {
		j.last = storage.Later(j.last, j.r.due)
	}
}

func (j *drillJob) finish(a runner.Action) time.Time {
	switch a {
	case runner.StandBy:
		j.notBefore = j.nextLook(j.r.theirs)
		return j.notBefore
	case runner.Adopt:
		j.recordResult(j.r.outcome(), j.newest, nil)
	case runner.Retry, runner.Report, runner.GiveUp:
		return j.notRun(j.r.task, j.r.why)
	}
	return j.r.finish(a)
}

// store reads in all stores whether the cluster is suspended, and returns the store that drills restore from.
func (d *driller) store(ctx context.Context) (backup.Store, error) {
	stores, err := d.stores()
	if err == nil {
		_, err = d.updateSuspension(ctx, stores, spec.Any)
	}
	if err != nil {
		return backup.Store{}, err
	}
	return d.in(stores)
}

// in returns the store of the drill's repository.
func (d *driller) in(stores []backup.Store) (backup.Store, error) {
	for _, store := range stores {
		if store.Repository == d.spec.Drill.Repository {
			return store, nil
		}
	}
	return backup.Store{}, fmt.Errorf("repository %s of the drill is not one of the cluster's", d.spec.Drill.Repository)
}

// recordResult records the result of a drill.
func (d *driller) recordResult(o Outcome, proofs []catalog.Proof, err error) {
	o.Ended = time.Now().UTC()
	o.Verdict, o.Message = verdictOf(proofs, err)
	for _, p := range proofs {
		d.last, o.RTO, o.Backup = storage.Later(d.last, p.Time), max(o.RTO, p.Drill.RTO), cmp.Or(o.Backup, p.Backup)
	}
	d.board.publish(o)
	d.report(storage.Note, "the drill has ended: %s", strings.TrimSpace(fmt.Sprint(o.Verdict, " ", o.Message)))
	if o.Verdict != NotRun {
		d.last = storage.Later(d.last, o.Began)
	}
	d.retryLater(o.Verdict == NotRun)
}

// retryLater records whether the last drill, of any service, is tried again before the next slot.
func (d *driller) retryLater(again bool) {
	d.again = again
	if again {
		d.retry()
		return
	}
	d.tries, d.notBefore = 0, time.Time{}
}

// verdictOf returns Succeeded only if all proofs passed without an error. A failure takes precedence over a drill that could not run.
func verdictOf(proofs []catalog.Proof, err error) (Verdict, string) {
	verdict, message := Succeeded, ""
	for _, p := range proofs {
		switch {
		case p.Verdict == catalog.Failed && verdict != Failed:
			verdict, message = Failed, p.Finding
		case p.Verdict != catalog.Passed && verdict == Succeeded:
			verdict, message = NotRun, p.Finding
		}
	}
	switch {
	case verdict != Failed && errors.Is(err, catalog.ErrDamaged):
		return Failed, err.Error()
	case verdict == Succeeded && err != nil:
		return NotRun, err.Error()
	case verdict == Succeeded && len(proofs) == 0:
		return NotRun, "the drill returned no proof"
	}
	return verdict, message
}

// notRun records why a drill was not run, and returns when to try again.
func (d *driller) notRun(t task, err error) time.Time {
	d.report(storage.Warning, "no drill: %v", err)
	d.recordWithoutResult(t, NotRun, err.Error())
	d.again = true
	return d.retry()
}

// longestDrillWait bounds the wait after a drill that was not run. It is long because each try may store a proof.
const longestDrillWait = 12 * time.Hour

// retry returns when to try again: after a wait that grows with each try, or at the next slot if that comes first. Without a
// schedule it returns the zero Time: only a request starts the next drill.
func (d *driller) retry() time.Time {
	if d.spec.Drill.Schedule.None() {
		return time.Time{}
	}
	now := time.Now()
	d.tries++
	d.notBefore, d.tries = d.spec.Drill.Schedule.Retry(d.tries, longestDrillWait, d.spec.Cluster, now)
	d.showNext(d.notBefore)
	return d.notBefore
}

// readInTurn calls readState, taking turns with other clusters.
func (d *driller) readInTurn(ctx context.Context) (err error) {
	ended := d.group.firstReads.do(ctx, firstReadTime, func(ctx context.Context) { err = d.readState(ctx) })
	return cmp.Or(err, ended)
}

// readState reads when the last drill was and, if there was none, whether there is a backup to drill. Without a backup it sets
// d.known to false.
func (d *driller) readState(ctx context.Context) error {
	in, err := d.store(ctx)
	if err != nil {
		return err
	}
	newest, err := d.readLast(ctx, in)
	if err != nil || len(newest) > 0 {
		return err
	}
	catalog, err := in.Cluster.Load(ctx, backups.LoadOptions{Newest: 1})
	d.known = len(catalog.Backups)+len(catalog.Damaged)+len(catalog.Untrusted) > 0
	return err
}

// readLast reads the proofs of the newest stored drill, newest first, and updates d by them. If they are new, as after a drill of another
// service, a survey follows. If that service could not run the drill to its end, this one retries it.
func (d *driller) readLast(ctx context.Context, in backup.Store) ([]catalog.Proof, error) {
	newest, err := in.Cluster.LastDrill(ctx, time.Now().Add(catalog.FutureAllowance))
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", in.Repository, err)
	}
	d.known = true
	if len(newest) == 0 || !newest[0].Time.After(d.last) {
		return newest, nil
	}
	d.last = newest[0].Time
	d.board.ended()
	verdict, _ := verdictOf(newest, nil)
	d.retryLater(verdict == NotRun || !catalog.DrillEnded(newest))
	return newest, nil
}
