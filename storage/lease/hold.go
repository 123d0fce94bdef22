package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrLost means that another process has taken the lease.
var ErrLost = fault.New(fault.Busy, "another process has taken the lease")

// Hold is a lease that lasts as long as Keep renews it.
type Hold struct {
	Lease
	// Reached returns the LogEnd to store with each renewal. If Reached is nil, LogEnd stays as it is.
	Reached func() *LogEnd
	// Idle reports whether the job has nothing to do at present. The lease then lasts for IdleTTL if that is longer, so that it costs
	// fewer requests. If Idle is nil, the job is never idle.
	Idle func() bool
	in   *Access
	ttl  time.Duration
	id   string // of the stored version, which a renewal replaces without reading it; "": the store may ignore conditions
}

// IdleTTL is the duration of an idle job's lease.
const IdleTTL = 2 * time.Minute

const (
	// longestConfirm limits how long Hold waits before it reads the lease again.
	longestConfirm = time.Second
	// longestRelease limits the time of a Release, as the process is about to end.
	longestRelease = 5 * time.Second
)

// Hold takes the lease on job for holder, as Acquire does. If another process has it, held is false and the Hold contains that
// process's Lease.
//
// In a store without conditional writes the last of several writers gets the lease. There Hold waits for a tenth of ttl, at
// most a second, and reads the lease again.
func (a *Access) Hold(ctx context.Context, job, holder string, ttl time.Duration) (h Hold, held bool, err error) {
	h = Hold{in: a, ttl: ttl}
	l, held, err := a.acquire(ctx, Lease{Job: job, Holder: holder}, Term{ttl, time.Now()})
	h.Lease = l.Lease
	if err != nil || !held {
		return h, false, err
	}
	if a.honorsConditions(ctx, l) {
		h.id = l.id
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

// honorsConditions reports whether the store honors conditions. It asks the store to replace again the version that l replaced. A
// store that honors the condition refuses this. A store that ignores it stores l once more, which changes nothing.
func (a *Access) honorsConditions(ctx context.Context, l taken) bool {
	data, err := Kind.Encode(l.Lease)
	if err == nil {
		_, err = a.put(ctx, l.Job, data, storage.PutOptions{IfVersion: l.replaced})
	}
	return errors.Is(err, storage.ErrChanged)
}

// Keep renews h after half of the time for which it lasts, until ctx ends, and returns the result of Release. The lease of a job that is no
// longer idle is renewed after half of the ttl at the latest. If another process has taken the lease, Keep returns an error that matches
// ErrLost. A renewal that fails for another reason is tried again after a sixteenth of the ttl, so Keep survives an unreachable store. After
// each renewal Keep calls renewed, unless it is nil, with the time at which the ttl began.
func (h Hold) Keep(ctx context.Context, renewed func(time.Time)) error {
	wait, idleUntil := max(0, time.Until(h.Until)-h.ttl/2), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return h.Release(ctx)
		case <-time.After(wait):
		}
		now, idle := time.Now(), h.Idle != nil && h.Idle()
		if idle && now.Before(idleUntil) {
			wait = min(h.ttl/2, idleUntil.Sub(now))
			continue
		}
		ttl := h.ttl
		if idle {
			ttl = max(ttl, IdleTTL)
		}
		stored, held, err := h.renew(ctx, Term{ttl, now})
		switch {
		case err != nil:
			wait, idleUntil = h.ttl/16, time.Time{}
			continue
		case !held:
			return fmt.Errorf("%w: %q has it", ErrLost, stored.Holder)
		case h.id != "":
			h.id = stored.id
		}
		wait, idleUntil = h.ttl/2, now.Add(ttl/2)
		if renewed != nil {
			renewed(now)
		}
	}
}

// shortestRenewal is the minimum timeout of a renewal, enough for a store on a busy host.
const shortestRenewal = time.Second

// renew renews h once. Its timeout is a quarter of the ttl, so that a second try can begin before the lease ends, or half of it if the ttl is
// short.
func (h Hold) renew(ctx context.Context, t Term) (version, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, max(h.ttl/4, min(h.ttl/2, shortestRenewal)))
	defer cancel()
	return h.in.renew(ctx, version{h.withLogEnd(), h.id}, t)
}

// Release ends h, even if ctx is done. It takes at most 5 s. If it fails, other processes wait until the lease ends.
func (h Hold) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(h.ttl, longestRelease))
	defer cancel()
	return h.in.Release(ctx, h.withLogEnd(), time.Now())
}

// withLogEnd returns the lease of h with the current LogEnd.
func (h Hold) withLogEnd() Lease {
	if h.Reached != nil {
		h.Lease.LogEnd = h.Reached()
	}
	return h.Lease
}
