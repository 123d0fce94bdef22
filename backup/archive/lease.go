package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// leaseJob is the lease that agents of one cluster share. It only avoids double work: segments' names are the fence.
const leaseJob = "archive"

// errBreach ends a turn and not the agent.
var errBreach = errors.New("the log in the repository cannot be continued")

// stand waits until this agent is the one that works: its member has a leader, nobody else holds the lease, and, if its
// source lacks something, the other agents have had their chance. Meanwhile the files of a member's log are kept open.
func (a *archiver) stand(ctx context.Context, from source) (repository.Hold, error) {
	for {
		if err := from.server().Confirm(ctx); err != nil {
			return repository.Hold{}, err
		}
		if err := from.hold(); err != nil {
			return repository.Hold{}, err
		}
		holder, problem, err := a.yields(ctx)
		if err != nil {
			return repository.Hold{}, err
		}
		if problem == "" {
			lease, held, err := a.to.Hold(ctx, leaseJob, a.holder(), a.config.Lease)
			if err != nil || held {
				return lease, err
			}
			holder = lease.Holder
		}
		a.board.set(func(s *Status) { s.State, s.Problem, s.Holder = Standby, problem, holder })
		if err := sleep(ctx, a.config.Lease/3); err != nil {
			return repository.Hold{}, err
		}
	}
}

// yields says why this agent must not work yet, "" if it may: after a breach, agents whose members have what is missing
// get the time to take over. It counts only while nobody holds the lease, for one who does may be stuck.
func (a *archiver) yields(ctx context.Context) (holder, problem string, err error) {
	if a.breach == nil {
		return "", "", nil
	}
	now := time.Now()
	if holder, err = a.to.LeaseHolder(ctx, leaseJob, now); err != nil {
		return "", "", err
	}
	if holder != "" && holder != a.holder() {
		a.breach.since = now
	}
	if now.Sub(a.breach.since) > 2*a.config.Lease {
		return "", "", nil
	}
	return holder, "other agents are let try first: " + a.breach.why, nil
}

func (a *archiver) holder() string { return fmt.Sprintf("%s/%s", a.config.Host, a.writer) }

// keep renews the lease until ctx ends, and then gives it back. If another agent has it, lost ends the turn. A store that
// is away is waited for: nobody else can take it over there either.
func (a *archiver) keep(ctx context.Context, lease repository.Hold, lost context.CancelCauseFunc) *sync.WaitGroup {
	var keeping sync.WaitGroup
	keeping.Go(func() {
		err := lease.Keep(ctx, nil)
		if errors.Is(err, repository.ErrLost) {
			lost(err)
		} else if err != nil {
			a.warn("the lease could not be given back, others wait until it ends: %v", err)
		}
	})
	return &keeping
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
