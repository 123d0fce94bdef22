package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/runner"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/copying"
)

// catchup tracks which repositories miss backups that others have. A repository misses backups if its newest is not the
// newest of all, so a new service finds out from the repositories alone. For that, a repository gets its backups in their
// order: it takes part in no new backup until it has the missed ones, unless copies fail for too long. Backups by hand and those
// that a log needs do not wait: compare finds what was missed before them.
type catchup struct {
	since    map[string]time.Time // by repository that misses backups: it may lack those that began then or later; zero: unknown
	waits    map[string]int       // by repository that misses backups: failed copies to it, and backups without it
	tries    int                  // failures in a row
	after    time.Time            // earliest next try
	compared bool                 // all repositories have answered since, and were compared
}

// mostWaits is the number of waits after which a repository takes part in new backups although it misses some. So many copies
// fail in four minutes. A copy after which it still misses the newest backup counts as so many.
const mostWaits = 5

// longestCopyWait bounds the wait after a copy that failed.
const longestCopyWait = 10 * time.Minute

// update records which of all the repositories miss backups. One that did not answer may miss some.
func (c *catchup) update(seen newestBackups, all []spec.Repository) {
	for _, in := range all {
		newest, answered := seen.newest[in.Name]
		since, known := c.since[in.Name]
		switch {
		case !answered:
			c.missed(in.Name, since)
			c.compared = false
		case newest.ID < seen.last.ID && (!known || since.IsZero()):
			c.missed(in.Name, newest.Started)
		}
	}
}

// compare records which repositories miss backups that another one lists, and sets compared. It considers backups that are younger than
// grace: the tombstone of a deleted one stays for so long.
func (c *catchup) compare(all map[string]listed, grace time.Duration, now time.Time) {
	for name, own := range all {
		for _, other := range all {
			since := own.missesSince(other, grace, now)
			if !since.IsZero() {
				c.missed(name, spec.Earlier(c.since[name], since))
			}
		}
	}
	c.compared = true
}

// listed holds the backups in the listing of a repository, oldest first.
type listed struct {
	stored  []catalog.ID
	arrived []catalog.ID // stored ones, and those that were deleted and still have a tombstone
}

// missesSince returns the start of the last backup that arrived before the first one that l misses and other has stored; if none did, the
// start of that one; zero if l misses none.
func (l listed) missesSince(other listed, grace time.Duration, now time.Time) time.Time {
	i := slices.IndexFunc(other.stored, func(id catalog.ID) bool {
		_, arrived := slices.BinarySearch(l.arrived, id)
		return !arrived && now.Sub(id.Started()) < grace && !catalog.IsFuture(id.Started(), now)
	})
	if i < 0 {
		return time.Time{}
	}
	n, _ := slices.BinarySearch(l.arrived, other.stored[i])
	if n == 0 {
		return other.stored[i].Started()
	}
	return l.arrived[n-1].Started()
}

// missed records that a repository misses backups that began at since or later; zero: unknown which.
func (c *catchup) missed(name string, since time.Time) {
	if c.since == nil {
		c.since = map[string]time.Time{}
	}
	c.since[name] = since
}

// wait records n waits of a repository.
func (c *catchup) wait(name string, n int) {
	if c.waits == nil {
		c.waits = map[string]int{}
	}
	c.waits[name] += n
}

// due returns when to copy. The zero Time means never.
func (c *catchup) due(now time.Time) time.Time {
	if len(c.since) == 0 {
		return time.Time{}
	}
	return storage.Later(now, c.after)
}

// compare compares the repositories if all have answered for the first time, or again. An error leaves it to the next call.
func (w *worker) compare(ctx context.Context, seen newestBackups) {
	if w.catchup.compared || !w.copies() || len(seen.stores) < len(w.spec.Repositories) {
		return
	}
	found := make([]listed, len(seen.stores))
	answered, _ := askAll(ctx, seen.stores, func(ctx context.Context, n int, store backup.Store) (err error) {
		found[n], err = list(ctx, store)
		return err
	})
	if len(answered) < len(seen.stores) {
		return
	}
	all := map[string]listed{}
	for n, store := range seen.stores {
		all[store.Repository] = found[n]
	}
	w.catchup.compare(all, w.spec.Backup.Grace, time.Now())
}

// list lists the backups in a store.
func list(ctx context.Context, in backup.Store) (l listed, err error) {
	folders, err := in.Cluster.Backups().Folders(ctx, backups.LoadOptions{})
	for _, f := range folders {
		deleted := len(f.Tombstones()) > 0
		if f.Has(catalog.ManifestName) && !deleted {
			l.stored = append(l.stored, f.ID)
		}
		if f.Has(catalog.ManifestName) || deleted {
			l.arrived = append(l.arrived, f.ID)
		}
	}
	return l, err
}

// noteMissed records which repositories a backup has not reached.
func (w *worker) noteMissed(r backup.Result, stores []backup.Store) {
	reachedStores := reached(stores, r)
	for _, in := range w.spec.Repositories {
		if !slices.ContainsFunc(reachedStores, func(s backup.Store) bool { return s.Repository == in.Name }) {
			since := w.catchup.since[in.Name]
			if since.IsZero() {
				since = r.Started
			}
			w.catchup.missed(in.Name, since)
			w.catchup.after = time.Now().Add(spec.FirstWait)
		}
	}
}

// forBackup returns the stores for the next backup: those that have the newest one, those that have waited mostWaits times
// for a copy of it, and those that would not trust the copy. The others get the next backup by a copy too. If the service copies
// nothing, it returns all.
func (w *worker) forBackup(seen newestBackups) (stores []backup.Store) {
	from := seen.stores[seen.withLast()].Cluster.Policy().Trusted()
	for _, s := range seen.stores {
		behind, trust := seen.newest[s.Repository].ID < seen.last.ID, s.Cluster.Policy().Trusted()
		switch {
		case !behind:
			delete(w.catchup.waits, s.Repository)
			stores = append(stores, s)
		case w.copies() && w.catchup.waits[s.Repository] < mostWaits && (trust.None() || slices.Equal(trust.Keys(), from.Keys())):
			w.catchup.wait(s.Repository, 1)
		default:
			stores = append(stores, s)
		}
	}
	return stores
}

// withLast returns the index of the first of the stores that have the newest backup.
func (s newestBackups) withLast() int {
	return slices.IndexFunc(s.stores, func(b backup.Store) bool { return s.newest[b.Repository].ID == s.last.ID })
}

// copies reports whether the service copies backups between the cluster's repositories.
func (w *worker) copies() bool {
	return w.service.Copy != nil && w.spec.Backup.Require == spec.Any && len(w.spec.Repositories) > 1
}

// copyJob copies missed backups.
type copyJob struct {
	workerJob
	seen newestBackups
}

// stored reads the newest backups. It always reports that the copy is necessary: work finds out which backups are missing.
func (j *copyJob) stored(ctx context.Context) (_ bool, err error) {
	j.seen, err = j.readNewest(ctx)
	return false, err
}

// work copies to each store that misses backups. If stores failed in turns, even one that has the newest backup may lack older ones.
func (j *copyJob) work(ctx context.Context) error {
	seen := j.seen
	var errs error
	for _, to := range seen.stores {
		since, missing := j.catchup.since[to.Repository]
		if !missing {
			continue
		}
		if since.IsZero() { // to is empty, and gets the newest alone; or to has the newest, and only did not answer before
			since = spec.Earlier(seen.newest[to.Repository].Started, seen.last.Started)
		}
		errs = errors.Join(errs, j.copyTo(ctx, to, since))
	}
	return errors.Join(errs, j.stillMissing())
}

func (j *copyJob) record(context.Context) { j.catchup.tries, j.catchup.after = 0, time.Time{} }

func (j *copyJob) finish(a runner.Action) time.Time {
	switch a {
	case runner.StandBy:
		j.catchup.after = j.nextLook(j.r.theirs)
		return j.catchup.after
	case runner.Retry, runner.GiveUp:
		return j.uncopied(j.r.why)
	}
	return j.r.finish(a)
}

// stillMissing returns an error that names the repositories that may still miss backups, since they did not answer or the copy
// failed; nil if there is none.
func (w *worker) stillMissing() error {
	var names []string
	for _, in := range w.spec.Repositories {
		_, missing := w.catchup.since[in.Name]
		if missing {
			names = append(names, in.Name)
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("repository %s may still lack backups", strings.Join(names, ", "))
}

// copyTo copies the backups that began at since or later, and that to lacks, from each other store.
func (j *copyJob) copyTo(ctx context.Context, to backup.Store, since time.Time) error {
	for _, from := range j.seen.stores {
		if from == to {
			continue
		}
		err := j.copyFrom(ctx, from, to, since)
		if err != nil {
			j.catchup.wait(to.Repository, 1)
			return fmt.Errorf("repository %s: %w", to.Repository, err)
		}
	}
	if len(j.seen.stores) == len(j.spec.Repositories) { // otherwise a store that did not answer may have more backups
		delete(j.catchup.since, to.Repository)
	}
	j.catchup.wait(to.Repository, mostWaits)
	return nil
}

// copyFrom copies the backups that began at since or later from one store to another. Objects that cannot be copied fail the job, but are
// no error: another try cannot copy them either.
func (w *worker) copyFrom(ctx context.Context, from, to backup.Store, since time.Time) error {
	o := task{job: JobCopy, repository: to.Repository, cause: cause{text: "it lacks backups that " + from.Repository + " has"}}.outcome()
	w.board.begin(o)
	result, err := w.service.Copy(ctx, CopyRequest{from, to, since}, w.forward)
	o.Ended, o.Verdict = time.Now().UTC(), Succeeded
	switch {
	case err != nil:
		o.Verdict, o.Message = Failed, err.Error()
	case len(result.Faults) > 0:
		o.Verdict, o.Message = Failed, fmt.Sprintf("%d objects were not copied: %v", len(result.Faults), result.Faults[0].Err)
		w.report(storage.Warning, "repository %s: %s", to.Repository, o.Message)
	}
	w.board.publish(o)
	if err == nil {
		w.report(storage.Note, "repository %s: %d backups, %d bytes copied from %s", to.Repository, result.Backups, result.Bytes, from.Repository)
	}
	return err
}

// uncopied reports why a repository still lacks backups, and returns when to try again.
func (w *worker) uncopied(err error) time.Time {
	w.catchup.tries++
	w.catchup.after = time.Now().Add(spec.Backoff(w.catchup.tries, longestCopyWait, w.spec.Cluster))
	w.report(storage.Warning, "a repository lacks backups: %v; the next try is at %s",
		err, w.catchup.after.UTC().Format(time.RFC3339))
	return w.catchup.after
}

// Copy copies the backups of r, with their proofs.
func Copy(ctx context.Context, r CopyRequest, report storage.Report) (copying.Result, error) {
	return copying.Copy(ctx, r.From.Cluster, r.To.Cluster, copying.Options{Since: r.Since, BackupsOnly: true, Report: report})
}
