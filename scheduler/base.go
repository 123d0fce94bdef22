package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/runner"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// baseJob takes the backup that a log continues from.
type baseJob struct {
	r *run
	*archiving
	why    string     // why the log needs the backup
	before catalog.ID // the newest backup when the log began to need one; "": there was none
	need   int64      // the revision that the backup must contain
	often  time.Time  // until then, another job's lease is looked at often
	done   bool
	err    error // why the job failed
}

// snapshot takes the backup that the log needs, for the reason why. Another backup that is taken from now on will do if it
// contains the present revision: when a service starts, its schedule often wants a backup too.
func (a *archiving) snapshot(ctx context.Context, why string) error {
	stores, err := a.service.open(a.spec)
	if err != nil {
		return err
	}
	need, err := a.service.Revision(ctx, a.spec)
	if err != nil {
		return err
	}
	before, err := newestIn(ctx, stores[0].Cluster)
	if err != nil {
		return err
	}
	j := &baseJob{archiving: a, why: why, before: before.ID, need: need, often: time.Now().Add(time.Minute)}
	for {
		again := j.try(ctx)
		if j.done || j.err != nil {
			return j.err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-after(time.Until(again)):
		}
	}
}

// try makes one run, and returns when to make the next one unless the job is done or has failed.
func (j *baseJob) try(ctx context.Context) time.Time {
	a := j.archiving
	h := &loop{
		assignment: assignment{spec: a.spec, lease: a.lease}, service: a.service, holder: a.holder, jobs: ctx,
		requests: newRequests(), board: a.service.boardOf(a.spec.Cluster),
	}
	j.r = &run{
		loop: h, task: task{job: JobBackup, cause: cause{text: "the log needs it: " + j.why}},
		leaseOf: JobBackup, require: a.spec.Backup.Require, slots: a.currentSlots(),
	}
	return j.r.do(ctx, j)
}

func (j *baseJob) places(_, answered []backup.Store) ([]backup.Store, error) { return answered, nil }

// stored reports whether the first repository holds a backup that will do.
func (j *baseJob) stored(ctx context.Context) (bool, error) {
	stores, err := j.service.open(j.spec)
	if err != nil {
		return false, err
	}
	last, err := newestIn(ctx, stores[0].Cluster)
	return err == nil && last.ID != j.before && last.Revision >= j.need, err
}

// newestIn returns the newest backup of c, the zero Backup if there is none.
func newestIn(ctx context.Context, c *repository.Cluster) (catalog.Backup, error) {
	loaded, err := c.Load(ctx, backups.LoadOptions{Newest: 1})
	if err != nil || len(loaded.Backups) == 0 {
		return catalog.Backup{}, err
	}
	return loaded.Backups[0], nil
}

// work takes the backup, and records it as a job of the cluster.
func (j *baseJob) work(ctx context.Context) error {
	o := j.r.outcome()
	j.r.board.begin(o)
	id, err := j.takeBackup(ctx)
	o.Ended, o.Verdict, o.Backup = time.Now().UTC(), Succeeded, id
	if err != nil {
		o.Verdict, o.Message = Failed, err.Error()
	}
	j.r.board.publish(o)
	return err
}

// takeBackup takes the backup. It must arrive in the first repository, where the log is. Errors of
// other repositories are only reported.
func (j *baseJob) takeBackup(ctx context.Context) (catalog.ID, error) {
	r, err := j.service.Backup(ctx, BackupRequest{labelled(j.spec, spec.LabelArchive, j.why), j.r.stores, j.r.free}, j.forward)
	reachedStores := reached(j.r.stores, r)
	first := j.spec.Repositories[0].Name
	if r.ID == "" || len(reachedStores) == 0 || reachedStores[0].Repository != first {
		return r.ID, cmp.Or(err, fmt.Errorf("repository %s was left out: the log needs the backup there", first))
	}
	if err != nil {
		j.warn("%v", err)
	}
	return r.ID, nil
}

func (j *baseJob) record(context.Context) {}

// baseLook is the time until the next try while another job backs the cluster up. Its backup will often do, and until then the log restores
// nothing.
const baseLook = 2 * time.Second

// finish notes whether the job is done. While the cluster is suspended, or another service has the lease, the
// job is tried again.
func (j *baseJob) finish(a runner.Action) time.Time {
	switch a {
	case runner.Done:
		j.done = true
	case runner.Retry, runner.GiveUp, runner.Drop:
		j.err = j.r.why
	}
	next := j.r.nextLook(j.r.theirs)
	if a == runner.StandBy && time.Now().Before(j.often) {
		next = spec.Earlier(next, time.Now().Add(baseLook))
	}
	return next
}
