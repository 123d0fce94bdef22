package statefulset

import (
	"context"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
)

// spares reports whether the task has nothing to do on the disk of the member with a pod: no process of DoStage has worked there.
func (r run) spares(pod string) bool {
	isUntouched := func(name string) bool {
		i := slices.IndexFunc(r.record.Handoff.Members, func(m handoff.Member) bool { return m.Name == name })
		return i >= 0 && podName(r.set, int32(i)) == pod
	}
	return r.task == handoff.DoDiscard && slices.ContainsFunc(r.record.Untouched, isUntouched)
}

// isIdle reports whether no process of DoStage has worked on the disk of a member with these Jobs. It is false if such a process might have
// left no trace: ended Jobs stay for a while, and a Job that is deleted to be replaced by another one may start before its end.
func (r run) isIdle(mine jobs, now time.Time) bool {
	isReplaced := func(job batchv1.Job) bool {
		return attemptOf(job) != 1 || r.task == handoff.DoStage && job.Labels[turnLabel] != turn(r.record, r.task)
	}
	last := r.record.Members
	switch {
	case r.task == handoff.DoDiscard && int(r.index) < len(last) && last[r.index].Done && last[r.index].Idle: // the task was done before
		return true
	case r.task != handoff.DoDiscard && (r.task != handoff.DoStage || !r.record.Leaves()):
		return false
	}
	return now.Sub(r.record.Since) < stays*time.Second && !slices.ContainsFunc(mine.jobs, isReplaced) && mine.areUnstarted()
}

// areUnstarted reports whether no container of the pods can have started: none was assigned to a node. A node that does not report may have
// started one. A pod of a Job is gone only after the Job has counted it.
func (j jobs) areUnstarted() bool {
	hasCounted := func(job batchv1.Job) bool {
		s, u := job.Status, job.Status.UncountedTerminatedPods
		return kubejob.Ended(&job) != nil || s.Failed+s.Succeeded > 0 || u != nil && len(u.Failed)+len(u.Succeeded) > 0
	}
	mayRun := func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" || hasStarted(&pod) }
	return !slices.ContainsFunc(j.jobs, hasCounted) && !slices.ContainsFunc(j.pods, mayRun)
}

// spare takes one step towards no Job of DoStage that could still start on the disk of an untouched member. Jobs are deleted first, without
// their pods, which show whether they have started meanwhile. Each object is deleted only as it was read: a pod without a node. The API
// server assigns none to a pod that is being deleted. If a pod has a node, the progress is not idle, and the next step is that of a member
// that was reached.
func (m *Manager) spare(ctx context.Context, r run, mine jobs) (handoff.Progress, error) {
	if !r.isIdle(mine, time.Now()) {
		return handoff.Progress{Waiting: "a Job may have written new data to the disk, which is removed"}, nil
	}
	var left []client.Object
	for i := range mine.jobs {
		left = append(left, &mine.jobs[i])
	}
	for i := range mine.pods {
		if len(mine.jobs) == 0 {
			left = append(left, &mine.pods[i])
		}
	}
	var names []string
	for _, object := range left {
		names = append(names, describe(object))
		err := m.deleteAsRead(ctx, object)
		if err != nil {
			return handoff.Progress{}, err
		}
	}
	if len(left) > 0 {
		return handoff.Progress{Waiting: "waiting for the end of " + strings.Join(names, ", ")}, nil
	}
	return handoff.Progress{Done: true}, nil
}

// deleteAsRead deletes a Job without its pods, or a pod, unless it has changed since it was read.
func (m *Manager) deleteAsRead(ctx context.Context, object client.Object) error {
	as := client.Preconditions{UID: new(object.GetUID()), ResourceVersion: new(object.GetResourceVersion())}
	_, isJob := object.(*batchv1.Job)
	if isJob {
		return m.delete(ctx, object, as, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	}
	return m.delete(ctx, object, as)
}
