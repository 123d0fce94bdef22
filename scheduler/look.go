package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// deeper is how many backups are read where the newest counts for nothing.
const deeper = 32

// lookAt finds the newest backup that the stores hold: where all of them must take one, the newest that each has. It costs
// one listing and one read a store; a listing of what is new alone, where known is not the zero Last.
func lookAt(
	ctx context.Context, stores []backup.Store, require backup.Require, known Last, now time.Time,
) (last Last, err error) {
	var errs error
	answered := 0
	for _, store := range stores {
		found, err := newest(ctx, store.Cluster, known, now)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("repository %s: %w", store.Repository, err))
			continue
		}
		later := found.Started.After(last.Started)
		if answered == 0 || later == (require == backup.Any) {
			last = found
		}
		answered++
	}
	if answered == 0 || require != backup.Any && errs != nil {
		return Last{}, errs
	}
	return last, nil
}

// newest is the newest backup of c that counts, known if there is none after it.
func newest(ctx context.Context, c *repository.Cluster, known Last, now time.Time) (Last, error) {
	catalog, err := c.Load(ctx, repository.LoadOptions{Newest: 1, After: known.ID})
	if err != nil {
		return Last{}, err
	}
	last, found := newestOf(catalog, now)
	if !found && len(catalog.Backups)+len(catalog.Damaged)+len(catalog.Untrusted) > 0 {
		if catalog, err = c.Load(ctx, repository.LoadOptions{Newest: deeper, After: known.ID}); err != nil {
			return Last{}, err
		}
		last, found = newestOf(catalog, now)
	}
	if !found {
		return known, nil
	}
	return last, nil
}

func newestOf(catalog repository.Catalog, now time.Time) (last Last, found bool) {
	for _, b := range catalog.Backups {
		if !b.Started.After(now.Add(condition.ClockAllowance)) {
			return lastOf(b), true
		}
	}
	return Last{}, false
}

func lastOf(b repository.Backup) Last {
	return Last{ID: b.ID, Started: b.Started, Revision: b.HighestRevision()}
}
