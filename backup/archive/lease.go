package archive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
)

// leaseJob names the lease that the agents of one cluster share. The lease only avoids duplicate work: two agents cannot store
// different segments, because a segment's name can be created only once.
const leaseJob = "archive"

// errBreach means that this source does not continue the repository's log. It ends the agent's turn, not the agent.
var errBreach = errors.New("the log in the repository cannot be continued")

// waitForLease acquires the lease once no other agent holds it and, after a breach, the other agents have had time to take over.
// Meanwhile it keeps open the files of the member's log that are not completely stored. It returns an error if no leader confirms a read
// of the member.
func (a *archiver) waitForLease(ctx context.Context, from source) (lease.Hold, error) {
	a.released = lease.LogEnd{}
	var found lease.Hold
	var problem string
	var look time.Time // when to look at the lease again
	for {
		err := from.server().Confirm(ctx)
		if err != nil {
			return lease.Hold{}, err
		}
		err = from.hold()
		if err != nil {
			return lease.Hold{}, err
		}
		now := time.Now()
		if !now.Before(look) {
			var held bool
			found, held, problem, err = a.tryLease(ctx)
			if err != nil || held {
				return found, err
			}
			look = a.nextLook(found.Until, now)
			if problem != "" { // the lease is free, or may be soon
				look = now
			}
		}
		a.releaseStored(ctx, from, found.LogEnd)
		err = a.emptySpool(ctx)
		if err != nil {
			return lease.Hold{}, err
		}
		a.board.set(func(s *Status) { s.standBy(found.Holder, problem, from.headroom()) })
		err = storage.Sleep(ctx, a.config.Lease/3)
		if err != nil {
			return lease.Hold{}, err
		}
	}
}

// tryLease tries to acquire the lease. If another agent holds it, found is that lease; if this agent must not work yet, problem is the reason.
func (a *archiver) tryLease(ctx context.Context) (found lease.Hold, held bool, problem string, err error) {
	theirs, problem, err := a.yieldReason(ctx)
	if err != nil || problem != "" {
		return lease.Hold{Lease: theirs}, false, problem, err
	}
	found, held, err = a.to.Leases().Hold(ctx, leaseJob, a.holder(), a.config.Lease)
	return found, held, "", err
}

// nextLook returns when an agent on standby looks again at a lease that ends at until. A lease that lasts much longer than a working
// agent's is that of an idle one, which is looked at less often.
func (a *archiver) nextLook(until, now time.Time) time.Time {
	spare := until.Sub(now) - a.config.Lease
	return now.Add(max(a.config.Lease/3, min(spare, a.config.Lease)))
}

// releaseStored closes the files of a member's log that this agent would not read after a takeover: those before the last segment that
// the working agent has stored, which the lease names in end, or all but the newest if that segment is of another history. It reads the
// segment only while more than one file is open. If the segment cannot be read, the files stay open, and the status reports their size.
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

// yieldReason returns why this agent must not work yet; "" if it may. After a breach, agents whose members have the missing part get
// two lease times to take over. Time while another agent holds the lease does not count, because that agent may be stuck. theirs is the
// lease that is held now; zero if none is, or if there was no breach.
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

// keep renews the lease in the background until ctx ends, and then releases it; the caller waits for that with the WaitGroup. If another
// agent has taken the lease, keep calls lost, which ends the turn. While the store is unreachable it retries: no other agent can take
// the lease there either.
func (a *archiver) keep(ctx context.Context, held lease.Hold, lost context.CancelCauseFunc) *sync.WaitGroup {
	var keeping sync.WaitGroup
	a.busyAt.Store(time.Now().UnixNano())
	held.CurrentLogEnd, held.Idle = a.logEnd.Load, a.idle
	keeping.Go(func() {
		err := held.Keep(ctx, nil)
		if errors.Is(err, lease.ErrLost) {
			lost(err)
		} else if err != nil {
			a.warn("cannot release the lease: other agents take over only when it expires: %v", err)
		}
	})
	return &keeping
}

// idle reports whether there was nothing to archive for as long as the lease of an idle agent lasts.
func (a *archiver) idle() bool {
	return time.Since(time.Unix(0, a.busyAt.Load())) > lease.IdleTTL
}
