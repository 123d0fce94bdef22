package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrLost: somebody else has taken a lease that was held.
var ErrLost = fault.New(fault.Busy, "another has taken the lease")

// Hold is a lease that is held for as long as Keep renews it.
type Hold struct {
	Lease
	// Reached returns what the lease reports as LogEnd at each renewal; nil: nothing.
	Reached func() *LogEnd
	in      *Access
	ttl     time.Duration
}

const (
	// longestConfirm bounds how long Hold waits to see who has won.
	longestConfirm = time.Second
	// longestRelease bounds how long giving it back may keep a process that is to end.
	longestRelease = 5 * time.Second
)

// Hold takes the lease on job for holder and, a moment later, looks whether it has it: of two who take it at once the last
// one has. If somebody else does, it is not held, and the Lease is theirs. As for AcquireLease, ttl is at most MaxLease.
func (a *Access) Hold(ctx context.Context, job, holder string, ttl time.Duration) (h Hold, held bool, err error) {
	h = Hold{in: a, ttl: ttl}
	if h.Lease, held, err = a.Acquire(ctx, job, holder, ttl, time.Now()); err != nil || !held {
		return h, false, err
	}
	select {
	case <-ctx.Done():
		return h, false, errors.Join(context.Cause(ctx), h.Release(ctx))
	case <-time.After(min(ttl/10, longestConfirm)):
	}
	stored, err := a.read(ctx, job)
	if held = stored.same(h.Lease); !held {
		h.Lease = stored
	}
	return h, held, err
}

// Keep renews h until ctx ends, and then gives it back; its error is that of giving it back. If somebody else has it, Keep
// ends with an error that matches ErrLost. A store that is away is waited for: renewed, if it is not nil, is told from when
// on the lease lasts anew.
func (h Hold) Keep(ctx context.Context, renewed func(time.Time)) error {
	for {
		select {
		case <-ctx.Done():
			return h.Release(ctx)
		case <-time.After(h.ttl / 3):
		}
		now := time.Now()
		theirs, held, err := h.renew(ctx, now)
		switch {
		case err != nil:
		case !held:
			return fmt.Errorf("%w: %q has it", ErrLost, theirs.Holder)
		case renewed != nil:
			renewed(now)
		}
	}
}

// renew gives up soon enough to try again before the lease has ended.
func (h Hold) renew(ctx context.Context, now time.Time) (Lease, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, h.ttl/2)
	defer cancel()
	return h.in.Renew(ctx, h.reached(), h.ttl, now)
}

// Release gives h back, also when ctx has ended. Where that fails others wait until the lease ends by itself.
func (h Hold) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(h.ttl, longestRelease))
	defer cancel()
	return h.in.Release(ctx, h.reached(), time.Now())
}

// reached returns the lease with the end of the log that it is to report.
func (h Hold) reached() Lease {
	if h.Reached != nil {
		h.Lease.LogEnd = h.Reached()
	}
	return h.Lease
}
