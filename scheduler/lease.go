package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// leaseJob is the lease that services with the same cluster share. It only saves double work: two backups do no harm.
const leaseJob = "backup"

var errLost = errors.New("another service has taken the lease")

// lease is one that is held, and where.
type lease struct {
	repository.Lease
	in  *repository.Cluster
	ttl time.Duration
}

// leases are those of one job, one a repository: with one in a single place, a service for which just that place is away
// would not see that another works.
type leases []lease

// longestConfirm bounds how long acquire waits to see who has won.
const longestConfirm = time.Second

// acquire takes the lease in one store after the other, in the same order as all other services. theirs is another's that
// was found: then none is held. Where any store will do, those that do not answer are left out.
func acquire(
	ctx context.Context, stores []backup.Store, require backup.Require, holder string, ttl time.Duration,
) (all leases, theirs repository.Lease, err error) {
	var errs error
	for _, store := range stores {
		l, held, err := acquireIn(ctx, store.Cluster, holder, ttl)
		switch {
		case err != nil:
			errs = errors.Join(errs, fmt.Errorf("repository %s: %w", store.Repository, err))
		case !held:
			all.release(ctx)
			return nil, l.Lease, nil
		default:
			all = append(all, l)
		}
	}
	if len(all) == 0 || require != backup.Any && errs != nil {
		all.release(ctx)
		return nil, theirs, errs
	}
	return all, theirs, nil
}

// acquireIn takes one and, a moment later, looks whether it has it: of two who take it at once the last one has.
func acquireIn(ctx context.Context, c *repository.Cluster, holder string, ttl time.Duration) (l lease, held bool, err error) {
	l = lease{in: c, ttl: ttl}
	if l.Lease, held, err = c.AcquireLease(ctx, leaseJob, holder, ttl, time.Now()); err != nil || !held {
		return l, held, err
	}
	if err := sleep(ctx, min(ttl/10, longestConfirm)); err != nil {
		l.release(ctx)
		return l, false, err
	}
	l.Lease, held, err = c.RenewLease(ctx, l.Lease, ttl, time.Now())
	return l, held, err
}

// keep renews all until ctx ends, and then gives them back. If another service has one of them, or may have them all since
// none could be renewed in time, lost ends the job.
func (all leases) keep(ctx context.Context, lost context.CancelCauseFunc) *sync.WaitGroup {
	expiry := time.AfterFunc(all[0].ttl, func() { lost(fmt.Errorf("%w: it could not be renewed in time", errLost)) })
	var keeping sync.WaitGroup
	for _, l := range all {
		keeping.Go(func() {
			for sleep(ctx, l.ttl/3) == nil {
				began := time.Now()
				now, held, err := l.renew(ctx)
				if err == nil && !held {
					lost(fmt.Errorf("%w: %q has it", errLost, now.Holder))
					return
				}
				if err == nil {
					expiry.Reset(l.ttl - time.Since(began)) // one that others see is enough
				}
			}
			expiry.Stop()
			l.release(ctx)
		})
	}
	return &keeping
}

func (l lease) renew(ctx context.Context) (repository.Lease, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/2)
	defer cancel()
	return l.in.RenewLease(ctx, l.Lease, l.ttl, time.Now())
}

func (all leases) release(ctx context.Context) {
	for _, l := range all {
		l.release(ctx)
	}
}

// release gives l back. Where that fails others wait until it ends by itself.
func (l lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ttl)
	defer cancel()
	_ = l.in.ReleaseLease(ctx, l.Lease, time.Now())
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
