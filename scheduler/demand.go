package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// Errors of what people ask a Service for, to be matched with errors.Is.
var (
	// ErrUnknown: the service does not look after that cluster.
	ErrUnknown = errors.New("not in the configuration")
	// ErrSuspended: nothing is started for the cluster.
	ErrSuspended = errors.New("suspended")
	// ErrNotPossible: the cluster's configuration does not say how.
	ErrNotPossible = errors.New("not possible")
)

// MaxReason is how many bytes a reason has at most: it becomes a label of the backup.
const MaxReason = 1000

// Trigger asks for a job of a cluster now, and does not wait for it: Status.Jobs tells how it goes. It counts on the same
// limits and leases as what is due by itself, and joins the same job if that is queued or running. A backup has the reason
// as its label LabelTrigger. What fails is not tried again. Errors match ErrUnknown, ErrSuspended or ErrNotPossible.
func (s *Service) Trigger(cluster string, job Job, reason string) error {
	w, spec, err := s.find(cluster)
	if err != nil {
		return err
	}
	if spec.Suspend || w.board.get().Suspension != nil {
		return fmt.Errorf("cluster %s is %w: resume it first", cluster, ErrSuspended)
	}
	if err := s.possible(spec, job); err != nil {
		return fmt.Errorf("a %s of cluster %s is %w: %w", job, cluster, ErrNotPossible, err)
	}
	if len(reason) > MaxReason {
		return fmt.Errorf("a reason of %d bytes: say it in %d", len(reason), MaxReason)
	}
	hand := &w.hand
	if job == JobDrill {
		hand = &w.driller.hand
	}
	hand.asks.add(ask{job: job, reason: cmp.Or(reason, "somebody asked for it"), at: time.Now()})
	return nil
}

// find is the worker of a cluster, and what it was last told.
func (s *Service) find(cluster string) (*worker, spec.Spec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[cluster]
	if !ok {
		return nil, spec.Spec{}, unknown(cluster)
	}
	return w, w.told, nil
}

func unknown(cluster string) error {
	return fmt.Errorf("cluster %q is %w of this service", cluster, ErrUnknown)
}

// possible is the cure if the Spec does not say how to do a job.
func (s *Service) possible(spec spec.Spec, job Job) error {
	switch {
	case job == JobBackup:
		return nil
	case job == JobPrune && (s.Prune == nil || !spec.Prunes()):
		return errors.New("everything is kept: say under retention what need not be")
	case job == JobDrill && (s.Drill == nil || spec.Drill.None()):
		return errors.New("no drill is configured: say under drill how")
	case job == JobPrune, job == JobDrill:
		return nil
	}
	return fmt.Errorf("there is no such job: use %s, %s or %s", JobBackup, JobPrune, JobDrill)
}
