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

// heldLeases are the leases on one job, one in each repository: a service that cannot reach one of the repositories sees the
// leases in the others. Leases save double work; two backups at once do no harm.
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

// acquire acquires the lease in one store after the other, in the order that all services share. If another service has one
// of the leases, acquire releases its own, and returns the other as theirs. If require is Any, acquire omits stores that fail or
// do not answer within askTime.
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
// if none could be renewed in time. In the second case it does so a tenth of ttl before the last lease expires: another service
// may start at the moment of expiry, and the work here must have stopped by then.
func (all heldLeases) keep(ctx context.Context, ttl time.Duration, lost context.CancelCauseFunc) *sync.WaitGroup {
	margin := ttl / 10
	expiry := time.AfterFunc(time.Until(all[len(all)-1].Until)-margin, func() {
		lost(fmt.Errorf("%w: it could not be renewed in time", lease.ErrLost))
	})
	// One renewed lease is enough: a service that finds it does not start the job.
	renewed := func(from time.Time) { expiry.Reset(ttl - margin - time.Since(from)) }
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

// release releases all. If a release fails, other services wait until that lease expires.
func (all heldLeases) release(ctx context.Context) {
	for _, l := range all {
		_ = l.Release(ctx)
	}
}
