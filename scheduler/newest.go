package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// deeper is the number of newest backups that are read if the newest one does not count.
const deeper = 32

// newestQuery asks for the newest backups.
type newestQuery struct {
	require spec.Require
	known   Last // unless it is zero, only this backup and newer ones are listed
	now     time.Time
}

// read returns the newest backups in the stores that answer. With spec.Any, last is the latest of them. With spec.All it is the
// earliest: a store without a recent backup makes one due. read costs one listing and one read a store.
func (q newestQuery) read(ctx context.Context, stores []backup.Store) (seen newestBackups, err error) {
	found := make([]Last, len(stores))
	answered, failed := askAll(ctx, stores, func(ctx context.Context, n int, store backup.Store) (err error) {
		found[n], err = q.newest(ctx, store.Cluster)
		return err
	})
	err = enough(answered, failed, q.require)
	if err != nil {
		return newestBackups{}, err
	}
	seen = newestBackups{stores: answered, newest: map[string]Last{}}
	first := true
	for n, store := range stores {
		if !slices.Contains(answered, store) {
			continue
		}
		seen.newest[store.Repository] = found[n]
		later := found[n].Started.After(seen.last.Started)
		if first || later == (q.require == spec.Any) { // with Any a later one replaces last, with All one that is not later
			seen.last = found[n]
		}
		first = false
	}
	return seen, nil
}

// newestBackups holds the newest backups in some stores.
type newestBackups struct {
	last   Last            // of all stores, as newestQuery.read chooses it; zero: there is no backup
	stores []backup.Store  // that answered
	newest map[string]Last // by repository, of those that answered
}

// newest returns the newest backup of c that counts: q.known if it is still listed, damaged or not, and none is newer.
func (q newestQuery) newest(ctx context.Context, c *repository.Cluster) (Last, error) {
	last, found, err := q.newestAfter(ctx, c)
	if err == nil && !found && q.known.ID != "" { // it was deleted, or was never in this store
		q.known = Last{}
		last, _, err = q.newestAfter(ctx, c)
	}
	return last, err
}

// newestAfter returns the newest backup that counts among q.known and newer ones, and reports whether there is one.
func (q newestQuery) newestAfter(ctx context.Context, c *repository.Cluster) (last Last, found bool, err error) {
	for _, n := range []int{1, deeper} {
		catalog, err := c.Load(ctx, backups.LoadOptions{Newest: n, After: before(q.known.ID)})
		if err != nil {
			return Last{}, false, err
		}
		last, found = newestOf(catalog, q.known, q.now)
		if found || len(catalog.Backups)+len(catalog.Damaged)+len(catalog.Untrusted) == 0 {
			break
		}
	}
	return last, found, nil
}

// before returns a name that sorts before id and after all earlier IDs.
func before(id catalog.ID) catalog.ID {
	if id == "" {
		return ""
	}
	return id[:len(id)-1]
}

// newestOf returns the newest backup of c that counts. Backups from the future do not count: a wrong clock or a forgery
// must not stop the schedule. known always counts if it is listed.
func newestOf(c catalog.Catalog, known Last, now time.Time) (last Last, found bool) {
	for _, b := range c.Backups {
		if b.ID == known.ID {
			return known, true
		}
		if !catalog.IsFuture(b.Started, now) {
			return lastOf(b), true
		}
	}
	for _, d := range slices.Concat(c.Damaged, c.Untrusted) {
		if d.ID == known.ID {
			return known, true
		}
	}
	return Last{}, false
}

func lastOf(b catalog.Backup) Last {
	return Last{ID: b.ID, Started: b.Started, Revision: b.HighestRevision()}
}
