package controller

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Election holds the Lease object by which operators elect the leader.
type Election struct {
	Namespace, Name string
	Identity        string // of this operator, unique among all
}

// The times of the election, which are those of Kubernetes' own controllers.
const (
	leaseTime  = 15 * time.Second // after which another operator takes over
	renewTime  = 10 * time.Second // after which a leader that cannot renew gives up
	retryEvery = 2 * time.Second
)

// leader records whether this operator is the leader.
type leader struct {
	term atomic.Pointer[context.Context] // ends with the lease; nil: this operator has not been the leader yet
}

func (l *leader) leads() bool {
	term := l.term.Load()
	return term != nil && (*term).Err() == nil
}

// elector returns a candidate, which calls elected when it has become the leader.
func (l *leader) elector(access *rest.Config, e Election, elected func()) (*leaderelection.LeaderElector, error) {
	lock, err := resourcelock.NewFromKubeconfig(
		resourcelock.LeasesResourceLock, e.Namespace, e.Name, resourcelock.ResourceLockConfig{Identity: e.Identity}, access, renewTime,
	)
	if err != nil {
		return nil, err
	}
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseTime, RenewDeadline: renewTime, RetryPeriod: retryEvery, ReleaseOnCancel: true, Name: e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) { // in a goroutine: term may have ended by now
				l.term.Store(&term)
				elected()
			},
			OnStoppedLeading: func() {},
		},
	})
}

// campaign keeps this operator a candidate until ctx ends. A leader that loses its lease becomes a candidate again; its jobs continue.
func campaign(ctx context.Context, e *leaderelection.LeaderElector) {
	for ctx.Err() == nil {
		e.Run(ctx)
	}
}
