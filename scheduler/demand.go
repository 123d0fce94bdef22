package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Errors of requests to a Service.
var (
	// ErrUnknown reports a cluster or repository that the configuration does not contain.
	ErrUnknown = fault.New(fault.NotFound, "not in the configuration")
	// ErrSuspended reports that no job is started for the cluster.
	ErrSuspended = fault.New(fault.Busy, "suspended")
	// ErrNotPossible reports a job that the cluster's configuration does not describe.
	ErrNotPossible = fault.New(fault.Busy, "not possible")
)

// MaxReason is the longest reason in bytes: it becomes a label of the backup.
const MaxReason = 1000

// Trigger requests a job and returns at once; Status.Jobs shows its progress. A requested job needs the same slots and leases
// as a due one. If the job is already queued or running, no second one starts. A backup records the reason as its LabelTrigger.
// A request that fails is not retried. Errors match ErrUnknown, ErrSuspended or ErrNotPossible.
func (s *Service) Trigger(cluster string, job Job, reason string) error {
	return s.request(cluster, request{job: job, reason: cmp.Or(reason, "requested without a reason"), at: time.Now()})
}

// TriggerOnce requests a backup as Trigger does, but takes at most one for each reason: if any service has already taken a backup with
// this reason that began at since or later, that backup is the outcome of the request.
func (s *Service) TriggerOnce(cluster, reason string, since time.Time) error {
	return s.request(cluster, request{job: JobBackup, reason: reason, at: time.Now(), since: since})
}

// request checks a request, and hands it to the loop that serves it.
func (s *Service) request(cluster string, asked request) error {
	job := asked.job
	w, spec, err := s.find(cluster)
	if err != nil {
		return err
	}
	if spec.Suspend || w.board.get().Suspension != nil {
		return fmt.Errorf("cluster %s is %w: resume it first", cluster, ErrSuspended)
	}
	err = s.checkJob(spec, job)
	if err != nil {
		return fmt.Errorf("a %s of cluster %s is %w: %w", job, cluster, ErrNotPossible, err)
	}
	if len(asked.reason) > MaxReason {
		return fmt.Errorf("the reason has %d bytes: shorten it to %d", len(asked.reason), MaxReason)
	}
	loop := &w.loop
	if job == JobDrill {
		loop = &w.driller.loop
	}
	loop.requests.add(asked)
	return nil
}

// find returns the worker of a cluster, and the Spec in effect.
func (s *Service) find(cluster string) (*worker, spec.Spec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[cluster]
	if !ok {
		return nil, spec.Spec{}, unknown(cluster)
	}
	return w, w.assigned.spec, nil
}

func unknown(cluster string) error {
	return fmt.Errorf("cluster %q is %w of this service: correct the name, or add the cluster", cluster, ErrUnknown)
}

// checkJob returns an error with the remedy if the Spec does not describe the job.
func (s *Service) checkJob(spec spec.Spec, job Job) error {
	switch {
	case job == JobBackup:
		return nil
	case job == JobPrune && (s.Prune == nil || !spec.Prunes()):
		return errors.New("no retention is configured, everything is kept: set retention")
	case job == JobDrill && (s.Drill == nil || spec.Drill.None()):
		return errors.New("no drill is configured: set drill")
	case job == JobPrune, job == JobDrill:
		return nil
	}
	return fmt.Errorf("unknown job: use %s, %s or %s", JobBackup, JobPrune, JobDrill)
}
