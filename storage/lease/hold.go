package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrLost means that the lease is lost: another process has taken it, the stored lease is missing or damaged, or it was not
// renewed in time.
var ErrLost = fault.New(fault.Busy, "the lease is lost")

// Hold is a lease that lasts as long as Keep renews it.
type Hold struct {
	Lease
	// CurrentLogEnd returns the LogEnd to store with each renewal. If it is nil, LogEnd stays as it is.
	CurrentLogEnd func() *LogEnd
	// Idle reports whether the job has nothing to do at present. The lease then lasts for IdleTTL if that is longer, so that it costs
	// fewer requests. If Idle is nil, the job is never idle.
	Idle   func() bool
	access *Access
	ttl    time.Duration
	id     string // of the stored version, which a renewal replaces without reading it; "": the store may ignore conditions
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
	h = Hold{access: a, ttl: ttl}
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

// honorsConditions reports whether the store honors conditions. It repeats the write of l on the condition that the version that
// l replaced is still stored. A store that honors the condition returns ErrChanged. A store that ignores it stores l again,
// possibly over the lease of another process, for which Hold waits. After any other error honorsConditions returns false.
func (a *Access) honorsConditions(ctx context.Context, l taken) bool {
	data, err := Kind.Encode(l.Lease)
	if err == nil {
		_, err = a.put(ctx, l.Job, data, storage.PutOptions{IfVersion: l.replaced})
	}
	return errors.Is(err, storage.ErrChanged)
}

// Keep renews h whenever half of its time has passed. When ctx ends, Keep releases h and returns the result of Release. The lease
// of a job that is no longer idle is renewed after half of the ttl at the latest. If the lease is lost, Keep returns an error that
// matches ErrLost. A renewal that fails for another reason is tried again after a sixteenth of the ttl, so Keep survives an unreachable store. After
// each renewal Keep calls renewed, unless it is nil, with the time from which the new ttl counts.
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
			return lost(stored.Lease)
		case h.id != "":
			h.id = stored.id
		}
		wait, idleUntil = h.ttl/2, now.Add(ttl/2)
		if renewed != nil {
			renewed(now)
		}
	}
}

// lost returns the error for a lease in place of which another one is stored, or none.
func lost(stored Lease) error {
	if stored.Holder == "" {
		return fmt.Errorf("%w: the stored lease is missing or damaged: run dr check", ErrLost)
	}
	return fmt.Errorf("%w: %q has taken it", ErrLost, stored.Holder)
}

// minRenewTimeout is the minimum timeout of a renewal, unless half of the ttl is shorter. It is enough for a store on a busy host.
const minRenewTimeout = time.Second

// renew renews h once. Its timeout is a quarter of the ttl, so that a second try can begin before the lease ends, but at least
// minRenewTimeout or half of the ttl, whichever is less.
func (h Hold) renew(ctx context.Context, t Term) (version, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, max(h.ttl/4, min(h.ttl/2, minRenewTimeout)))
	defer cancel()
	return h.access.renew(ctx, version{h.withLogEnd(), h.id}, t)
}

// Release ends h, even if ctx is done. It takes at most 5 s. If it fails, other processes wait until the lease ends.
func (h Hold) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(h.ttl, longestRelease))
	defer cancel()
	return h.access.Release(ctx, h.withLogEnd(), time.Now())
}

// withLogEnd returns the lease of h with the current LogEnd.
func (h Hold) withLogEnd() Lease {
	if h.CurrentLogEnd != nil {
		h.Lease.LogEnd = h.CurrentLogEnd()
	}
	return h.Lease
}
