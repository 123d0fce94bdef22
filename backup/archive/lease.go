package archive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
)

// leaseJob names the lease that the agents of one cluster share. The lease only avoids duplicate work: two agents cannot store
// different segments, because a segment's name can be created only once.
const leaseJob = "archive"

// errBreach means that this source does not continue the repository's log. It ends a turn and not the agent.
var errBreach = errors.New("the log in the repository cannot be continued")

// waitForLease waits until this agent may work: its member has a leader, no other agent holds the lease and, after a breach, the other
// agents have had time to take over. Meanwhile it keeps those files of the member's log open that are not completely stored.
func (a *archiver) waitForLease(ctx context.Context, from source) (lease.Hold, error) {
	a.released = lease.LogEnd{}
	for {
		err := from.server().Confirm(ctx)
		if err != nil {
			return lease.Hold{}, err
		}
		err = from.hold()
		if err != nil {
			return lease.Hold{}, err
		}
		theirs, problem, err := a.yieldReason(ctx)
		if err != nil {
			return lease.Hold{}, err
		}
		if problem == "" {
			lease, held, err := a.to.Leases().Hold(ctx, leaseJob, a.holder(), a.config.Lease)
			if err != nil || held {
				return lease, err
			}
			theirs = lease.Lease
		}
		a.releaseStored(ctx, from, theirs.LogEnd)
		err = a.emptySpool(ctx)
		if err != nil {
			return lease.Hold{}, err
		}
		a.board.set(func(s *Status) { s.standBy(theirs.Holder, problem, from.headroom()) })
		err = sleep(ctx, a.config.Lease/3)
		if err != nil {
			return lease.Hold{}, err
		}
	}
}

// releaseStored closes the files of a member's log that this agent would not read after a takeover: the working agent's last
// stored segment, which the lease names in end, is after them, or of another history. It reads this segment only while more than
// one file is open. If the segment cannot be read, the files stay open, and the status reports their size.
func (a *archiver) releaseStored(ctx context.Context, from source, end *lease.LogEnd) {
	if end == nil || *end == a.released || from.headroom().Files < 2 {
		return
	}
	segments, err := a.to.Log().Segments(ctx, end.Lineage, []uint64{end.Seq})
	if err != nil {
		return
	}
	a.released = *end
	last := segments[0]
	if last.Source == a.config.Source && catalog.SameClusterID(last.ClusterID, from.clusterID()) {
		from.release(last.Last)
	} else {
		from.release(math.MaxUint64) // a takeover starts a new lineage, from the files in the directory at that time
	}
}

// yieldReason returns why this agent must not work yet, "" if it may: after a breach, agents whose members have the missing part get
// time to take over. The time runs only while no other agent holds the lease, because the holder may be stuck. theirs is the lease
// that is held now; zero if none is, or if there was no breach.
func (a *archiver) yieldReason(ctx context.Context) (theirs lease.Lease, problem string, err error) {
	if a.breach == nil {
		return theirs, "", nil
	}
	now := time.Now()
	theirs, err = a.to.Leases().Live(ctx, leaseJob, now)
	if err != nil {
		return theirs, "", err
	}
	if theirs.Holder != "" && theirs.Holder != a.holder() {
		a.breach.since = now
	}
	if now.Sub(a.breach.since) > 2*a.config.Lease {
		return theirs, "", nil
	}
	return theirs, "other agents may try first: " + a.breach.why, nil
}

func (a *archiver) holder() string { return fmt.Sprintf("%s/%s", a.config.Host, a.writer) }

// keep renews the lease until ctx ends, and then releases it. If another agent has taken the lease, keep calls lost, which ends the
// turn. While the store is unreachable it retries: no other agent can take the lease there either.
func (a *archiver) keep(ctx context.Context, held lease.Hold, lost context.CancelCauseFunc) *sync.WaitGroup {
	var keeping sync.WaitGroup
	held.Reached = a.logEnd.Load
	keeping.Go(func() {
		err := held.Keep(ctx, nil)
		if errors.Is(err, lease.ErrLost) {
			lost(err)
		} else if err != nil {
			a.warn("cannot release the lease, other agents wait until it expires: %v", err)
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
