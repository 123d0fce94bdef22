package statefulset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

const (
	startLimit  = 15 * time.Minute // until the pod of a new Job must run: pulling its image and attaching its volumes take minutes
	maxAttempts = 3                // that end without a report, before that is an error
	firstPause  = 10 * time.Second // after the first attempt; the others have longer ones
	maxPause    = 2 * time.Minute
)

// move is the next move in a task on one member's disk.
type move struct {
	handoff.Progress
	err     error         // that no repetition cures
	attempt int           // for which to create a Job; 0: none
	silent  int           // how many attempts before that one have ended without a report, one after the other
	remove  []batchv1.Job // to delete before that
	closes  *patch        // the change of a claim that keeps the member from starting on a new volume; nil: none
}

// next returns the next move for the member of r. It is pure.
func (r run) next(j jobs, now time.Time) move {
	tries := j.tries(turn(r.record, r.task), podName(r.set, r.index))
	if len(tries) == 0 {
		return move{Progress: handoff.Progress{Waiting: "a Job is created"}, attempt: 1}
	}
	job := tries[len(tries)-1]
	pod, end := j.podOf(job), kubejob.Ended(&job)
	report, found := reportOf(pod)
	switch {
	case found:
		p, err := progressOf(report, r.record.Plan)
		if err == nil && (p.Done || p.Stale || p.Met != nil) {
			return move{Progress: p}
		}
		return r.again(p.Waiting, err, tries, now)
	case end == nil && r.isMisplaced(job, pod):
		why := fmt.Sprintf("member %s runs on another node than that for which Job %s/%s was created: the Job is replaced",
			r.record.Handoff.Members[r.index].Name, r.Namespace, job.Name)
		return move{Progress: handoff.Progress{Waiting: why}, attempt: attemptOf(job) + 1, silent: silentOf(job), remove: []batchv1.Job{job}}
	case end == nil:
		return r.unended(job, pod, j.refusals[job.Name], now)
	}
	why := fmt.Sprintf("Job %s/%s ended without a report: %s", r.Namespace, job.Name, failure(*end, pod))
	var err error
	silent := silentOf(job) + 1
	if silent >= maxAttempts || end.Reason == batchv1.JobReasonDeadlineExceeded {
		err = fmt.Errorf("%w: %s: see kubectl -n %s describe job %s", fault.Refused, why, r.Namespace, job.Name)
	}
	m := r.again(why, err, tries, now)
	m.silent = silent
	return m
}

// silentOf returns how many attempts right before a Job have ended without a report.
func silentOf(job batchv1.Job) int {
	n, err := strconv.Atoi(job.Labels[silentLabel])
	if err != nil {
		return 0
	}
	return n
}

// again returns the move after the last of these attempts: to repeat it, after a pause since its end. An error is returned if it ends the
// step; else the attempt is repeated, because a person may have cured the cause. Only the last two Jobs stay.
func (r run) again(why string, err error, tries []batchv1.Job, now time.Time) move {
	if err != nil && r.record.Leaves() {
		return move{err: err}
	}
	if err != nil {
		why = err.Error()
	}
	m := move{Progress: handoff.Progress{Waiting: why}}
	earlier, last := tries[:len(tries)-1], tries[len(tries)-1]
	end, attempt := kubejob.Ended(&last), attemptOf(last)
	pause := min(firstPause*time.Duration(attempt), maxPause)
	if end != nil && now.Sub(end.LastTransitionTime.Time) >= pause {
		m.attempt, m.remove = attempt+1, earlier
	}
	return m
}

// unended returns the move for a Job that has not ended. refusal is why it has no pod, "" if that is unknown.
func (r run) unended(job batchv1.Job, pod *corev1.Pod, refusal string, now time.Time) move {
	name := r.Namespace + "/" + job.Name
	why, late := refusal, ""
	if pod != nil {
		why, late = kubejob.Reason(*pod), lateness(pod, now)
	}
	why = cmp.Or(why, "no reason is known yet")
	wait := func(format string, args ...any) move {
		return move{Progress: handoff.Progress{Waiting: fmt.Sprintf(format, args...)}}
	}
	switch {
	case late != "":
		return wait("%s", late)
	case job.DeletionTimestamp != nil:
		return wait("Job %s is being deleted", name)
	case pod != nil && hasStarted(pod):
		return wait("Job %s runs on node %s", name, pod.Spec.NodeName)
	case now.Sub(job.CreationTimestamp.Time) > startLimit:
		err := fmt.Errorf("%w: the pod of Job %s did not start within %s: %s%s: see kubectl -n %s get events",
			fault.Refused, name, startLimit, why, r.unreachable(), r.Namespace)
		if r.record.Leaves() { // the next task removes the Job
			return move{err: err}
		}
		if r.task == handoff.DoBlock && lacksVolume(pod) {
			return r.closed(job, err)
		}
		return move{err: err, remove: []batchv1.Job{job}}
	}
	if pod != nil && pod.Spec.NodeName == "" && now.Sub(job.CreationTimestamp.Time) > lateAfter {
		why += r.unreachable()
	}
	return wait("the pod of Job %s has not started: %s", name, why)
}

// closed returns the move after which no pod of the member starts on a claim that has no volume. If all claims have one, it returns err.
func (r run) closed(job batchv1.Job, err error) move {
	m := move{err: err, closes: r.closing(), remove: []batchv1.Job{job}}
	if m.closes != nil {
		m.err = nil
		m.Waiting = fmt.Sprintf("the claim of member %s gets no volume: it is kept from getting one later", r.record.Handoff.Members[r.index].Name)
	}
	return m
}

// lacksVolume reports whether the scheduler has found no node for a pod because of its volumes: a quota or a lack of memory may end, and then
// the claim gets its volume.
func lacksVolume(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName == "" && strings.Contains(strings.ToLower(kubejob.Reason(*pod)), "volume")
}

// isMisplaced reports whether a Job, whose pod has not started, waits for a node on which it does not reach the member's disk any more: the
// member's pod runs on another one, or no longer exists.
func (r run) isMisplaced(job batchv1.Job, pod *corev1.Pod) bool {
	places, err := r.places()
	if err != nil || pod != nil && hasStarted(pod) {
		return false
	}
	node, required := r.node(places), requiredNode(job.Spec.Template.Spec)
	if required == "" && pod != nil && node != "" {
		required = pod.Spec.NodeName
	}
	return required != "" && required != node
}

// hasStarted reports whether a container of a pod runs, or has run.
func hasStarted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil || c.State.Terminated != nil })
}

// failure returns why a Job has ended, and how its pod did.
func failure(end batchv1.JobCondition, pod *corev1.Pod) string {
	why := cmp.Or(end.Message, string(end.Type))
	if pod == nil {
		return why + ": its pod is gone"
	}
	return why + ": " + kubejob.Reason(*pod)
}
