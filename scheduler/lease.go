package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// heldLeases are the leases on one job, one in each repository: with a lease in one place only, a service that cannot reach that
// place would not see that another works. Leases save double work; two backups at once do no harm.
type heldLeases []heldLease

type heldLease struct {
	lease.Hold
	store backup.Store
}

// stores returns the stores with the leases.
func (all heldLeases) stores() (stores []backup.Store) {
	for _, l := range all {
		stores = append(stores, l.store)
	}
	return stores
}

// acquire acquires the lease in one store after the other, in the order that all services share. If another service has one,
// acquire returns it as theirs, and holds none. If any store is enough, acquire omits those that do not answer within askTime.
func acquire(
	ctx context.Context, stores []backup.Store, require spec.Require, take func(context.Context, *repository.Cluster) (lease.Hold, bool, error),
) (all heldLeases, theirs lease.Lease, err error) {
	var errs error
	for _, store := range stores {
		asking, cancel := context.WithTimeout(ctx, askTime)
		l, held, err := take(asking, store.Cluster)
		cancel()
		switch {
		case err != nil:
			errs = errors.Join(errs, fmt.Errorf("repository %s: %w", store.Repository, err))
		case !held:
			all.release(ctx)
			return nil, l.Lease, nil
		default:
			all = append(all, heldLease{l, store})
		}
	}
	if len(all) == 0 || require != spec.Any && errs != nil {
		all.release(ctx)
		return nil, theirs, errs
	}
	return all, theirs, nil
}

// holding returns a function that acquires the lease on a job for holder.
func holding(job Job, holder string, ttl time.Duration) func(context.Context, *repository.Cluster) (lease.Hold, bool, error) {
	return func(ctx context.Context, c *repository.Cluster) (lease.Hold, bool, error) {
		return c.Leases().Hold(ctx, string(job), holder, ttl)
	}
}

// keep renews all, at least one, until ctx ends, and then releases them. It calls lost if another service has one of them, or
// may soon have all since none could be renewed in time. It does so a tenth of ttl before they expire: a service that waits for
// the end of a lease starts at that very moment, and the work here must have stopped by then.
func (all heldLeases) keep(ctx context.Context, ttl time.Duration, lost context.CancelCauseFunc) *sync.WaitGroup {
	margin := ttl / 10
	expiry := time.AfterFunc(time.Until(all[len(all)-1].Until)-margin, func() {
		lost(fmt.Errorf("%w: it could not be renewed in time", lease.ErrLost))
	})
	renewed := func(from time.Time) { expiry.Reset(ttl - margin - time.Since(from)) } // others see a single lease
	var keeping sync.WaitGroup
	for _, l := range all {
		keeping.Go(func() {
			err := l.Keep(ctx, renewed)
			if errors.Is(err, lease.ErrLost) {
				lost(err)
			}
			expiry.Stop()
		})
	}
	return &keeping
}

// release releases all. Others wait for those that cannot be released until they expire.
func (all heldLeases) release(ctx context.Context) {
	for _, l := range all {
		_ = l.Release(ctx)
	}
}
