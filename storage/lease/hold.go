package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrLost means that another process has taken a lease that was held.
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

// Hold takes the lease on job for holder, as Acquire does. If another process has it, held is false and the Lease is
// theirs.
//
// In a store without conditional writes the last of several writers has the lease, so there Hold waits a moment and
// reads it again.
func (a *Access) Hold(ctx context.Context, job, holder string, ttl time.Duration) (h Hold, held bool, err error) {
	h = Hold{in: a, ttl: ttl}
	l, held, err := a.acquire(ctx, Lease{Job: job, Holder: holder}, term{ttl, time.Now()})
	h.Lease = l.Lease
	if err != nil || !held {
		return h, false, err
	}
	if a.decides(ctx, l) {
		return h, true, nil
	}
	select {
	case <-ctx.Done():
		return h, false, errors.Join(context.Cause(ctx), h.Release(ctx))
	case <-time.After(min(ttl/10, longestConfirm)):
	}
	stored, err := a.read(ctx, job)
	held = stored.same(h.Lease)
	if !held {
		h.Lease = stored.Lease
	}
	return h, held, err
}

// decides reports whether the store honours conditions: it must refuse to replace again the version that l has replaced.
// A store that ignores the condition stores l once more, which changes nothing.
func (a *Access) decides(ctx context.Context, l taken) bool {
	data, err := Kind.Encode(l.Lease)
	if err == nil {
		_, err = a.put(ctx, l.Job, data, storage.PutOptions{IfVersion: l.replaced})
	}
	return errors.Is(err, storage.ErrChanged)
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
