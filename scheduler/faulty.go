package scheduler

import (
	"context"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// faultyEvery is how often a cluster is looked at that cannot be looked after. Nothing is asked then.
const faultyEvery = 10 * time.Minute

// faulty is a cluster that no worker looks after, since its configuration is wrong and none was in force before. It is
// reported with the others: else a typo would take it out of sight.
type faulty struct {
	observer *observer
	stop     context.CancelFunc
}

// applyFaulty observes the clusters of c.Faulty that are not wanted, and no others any more. The caller holds s.mu.
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
		o := order{spec: spec.Spec{Cluster: name, Observe: faultyEvery}, fault: why}
		if f, known := s.faulty[name]; known {
			f.observer.give(o)
			f.observer.board.set(func(s *Status) { s.Problem = why })
			continue
		}
		board := s.newBoard(name)
		board.status.State, board.status.Problem = Failing, why
		own, stop := context.WithCancel(ctx)
		f := &faulty{newObserver(s, board, o), stop}
		s.faulty[name] = f
		s.running.Go(func() { f.observer.run(own, ctx) })
	}
}

// facts returns by what o's cluster is judged now. A cluster without a worker has no Spec to be held to.
func (o *observer) facts(now time.Time) condition.Facts {
	ordered, status := o.ordered(), o.board.get()
	if len(ordered.spec.Repositories) == 0 {
		return condition.Facts{Cluster: ordered.spec.Cluster, Fault: ordered.fault}
	}
	o.service.mu.Lock()
	status.Archive = o.service.archiveOf(ordered.spec.Cluster)
	o.service.mu.Unlock()
	facts := Facts(ordered.spec, o.standings, status, now)
	facts.Since, facts.Checks, facts.Fault = o.since, o.lines, ordered.fault
	return facts
}
