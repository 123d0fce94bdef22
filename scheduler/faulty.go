package scheduler

import (
	"context"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// faultyEvery is the interval at which conditions of a faulty cluster are computed. The computation reads no repository.
const faultyEvery = 10 * time.Minute

// faulty is a cluster without a worker: its configuration is invalid, and none was in effect before. Status and conditions
// include it, so that a typo does not make a cluster disappear.
type faulty struct {
	observer *observer
	stop     context.CancelFunc
}

// applyFaulty starts and stops observers to match the clusters of c.Faulty that have no worker. The caller holds s.mu.
func (s *Service) applyFaulty(ctx context.Context, c spec.Config, wanted map[string]bool) {
	for name, f := range s.faulty {
		if c.Faulty[name] == "" || wanted[name] {
			f.stop()
			delete(s.faulty, name)
		}
	}
	for name, why := range c.Faulty {
		if wanted[name] {
			continue
		}
		o := assignment{spec: spec.Spec{Cluster: name, Observe: faultyEvery}, fault: why}
		f, ok := s.faulty[name]
		if ok {
			f.observer.assign(o)
			f.observer.board.set(func(s *Status) { s.Problem = why })
			continue
		}
		board := s.newBoard(name)
		board.status.State, board.status.Problem = Failing, why
		observerCtx, stop := context.WithCancel(ctx)
		f = &faulty{newObserver(s, board, o), stop}
		s.faulty[name] = f
		s.running.Go(func() { f.observer.run(observerCtx, ctx) })
	}
}

// facts returns the facts about o's cluster. The only fact about a cluster without a worker is its fault.
func (o *observer) facts(now time.Time) condition.Facts {
	assigned, status := o.assigned(), o.board.get()
	if len(assigned.spec.Repositories) == 0 {
		return condition.Facts{Cluster: assigned.spec.Cluster, Fault: assigned.fault}
	}
	o.service.mu.Lock()
	status.Archive = o.service.archiveOf(assigned.spec.Cluster)
	o.service.mu.Unlock()
	facts := Facts(assigned.spec, o.standings, status, now)
	facts.Since, facts.Checks, facts.Fault = o.since, o.lines, assigned.fault
	return facts
}
