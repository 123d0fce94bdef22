package statefulset

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// reportOf returns the report that dr member has left in a Job's pod; found is false if there is none.
func reportOf(pod *corev1.Pod) (r handoff.Report, found bool) {
	if pod == nil {
		return r, false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated == nil {
			continue
		}
		r, err := handoff.DecodeReport([]byte(c.State.Terminated.Message))
		return r, err == nil
	}
	return r, false
}

// progressOf returns the progress that a report of a task with plan p means. The error is one that no repetition cures.
func progressOf(r handoff.Report, p *plan.Plan) (handoff.Progress, error) {
	var carriedOut plan.Plan
	if p != nil {
		carriedOut = *p
	}
	progress, err := r.Progress(carriedOut)
	if err != nil && !handoff.IsFinal(err) {
		progress.Waiting, err = err.Error(), nil
	}
	return progress, err
}
