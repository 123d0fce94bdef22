package statefulset

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
)

// jobs are all Jobs of a restore, with their pods.
type jobs struct {
	jobs []batchv1.Job
	pods []corev1.Pod
	// refusals are the reasons for which Jobs got no pod, by the Jobs' names.
	refusals map[string]string
}

func (m *Manager) readJobs(ctx context.Context) (jobs, error) {
	var found batchv1.JobList
	var pods corev1.PodList
	ours := []client.ListOption{client.InNamespace(m.Namespace), client.MatchingLabels{restoreLabel: m.ID}}
	for _, list := range []client.ObjectList{&found, &pods} {
		err := m.client.List(ctx, list, ours...)
		if err != nil {
			return jobs{}, apiError(err, "list the Jobs and pods of restore %s in %s", m.ID, m.Namespace)
		}
	}
	all := jobs{jobs: found.Items, pods: pods.Items, refusals: map[string]string{}}
	for i, job := range all.jobs {
		if kubejob.Ended(&all.jobs[i]) == nil && all.podOf(job) == nil {
			all.refusals[job.Name] = m.refusal(ctx, job)
		}
	}
	return all, nil
}

// refusal returns why a Job got no pod, such as a quota. Only an event has that; "" if there is none, or it cannot be read.
func (m *Manager) refusal(ctx context.Context, job batchv1.Job) string {
	var events corev1.EventList
	err := m.client.List(ctx, &events, client.InNamespace(m.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID)})
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(events.Items, func(e corev1.Event) bool { return e.Type == corev1.EventTypeWarning })
	if i < 0 {
		return ""
	}
	return events.Items[i].Message
}

// podOf returns the pod of a Job; nil if there is none.
func (j jobs) podOf(job batchv1.Job) *corev1.Pod {
	for i, pod := range j.pods {
		if pod.Labels[batchv1.ControllerUidLabel] == string(job.UID) {
			return &j.pods[i]
		}
	}
	return nil
}

// tries returns the Jobs of a turn for a member's pod, the last attempt at the end.
func (j jobs) tries(turn, pod string) (all []batchv1.Job) {
	for _, job := range j.jobs {
		if attemptOf(job) > 0 && job.Labels[turnLabel] == turn && job.Labels[podLabel] == pod {
			all = append(all, job)
		}
	}
	slices.SortFunc(all, func(a, b batchv1.Job) int { return attemptOf(a) - attemptOf(b) })
	return all
}

// attemptOf returns the attempt of a Job, from 1 on; 0 if it has none.
func attemptOf(job batchv1.Job) int {
	n, err := strconv.Atoi(job.Labels[attemptLabel])
	if err != nil {
		return 0
	}
	return n
}

// of returns those for the pods of members that match.
func (j jobs) of(match func(pod string) bool) jobs {
	isOther := func(o client.Object) bool { return !match(o.GetLabels()[podLabel]) }
	j.jobs = slices.DeleteFunc(slices.Clone(j.jobs), func(job batchv1.Job) bool { return isOther(&job) })
	j.pods = slices.DeleteFunc(slices.Clone(j.pods), func(pod corev1.Pod) bool { return isOther(&pod) })
	return j
}

// ofMember returns those for the member of r.
func (j jobs) ofMember(r run) jobs {
	return j.of(func(pod string) bool { return pod == podName(r.set, r.index) })
}

// end returns the step that ends all Jobs but those of a turn. Their disks must not change any more.
func (j jobs) end(turn string, now time.Time) step {
	var s step
	var waiting []string
	for i, job := range j.jobs {
		if job.Labels[turnLabel] != turn && kubejob.Ended(&j.jobs[i]) == nil {
			waiting = append(waiting, "waiting for the end of Job "+job.Name)
			s.deletes = append(s.deletes, &j.jobs[i])
		}
	}
	for i, pod := range j.pods {
		if pod.Labels[turnLabel] == turn || hasEnded(pod) {
			continue
		}
		late := lateness(&j.pods[i], now)
		if late != "" {
			waiting = append(waiting, late)
		}
		if pod.DeletionTimestamp == nil {
			s.deletes = append(s.deletes, &j.pods[i])
		}
		waiting = append(waiting, "waiting for the end of pod "+pod.Name)
	}
	s.waiting = strings.Join(waiting, "; ")
	return s
}

// endJobs takes one step towards no Job of the restore being at work.
func (m *Manager) endJobs(ctx context.Context) (handoff.Progress, error) {
	all, err := m.readJobs(ctx)
	if err != nil {
		return handoff.Progress{}, err
	}
	return m.carryOut(ctx, all.end("", time.Now()))
}

// remove returns the step that deletes all Jobs. Kubernetes keeps a claim that a person deletes for as long as a pod has it, and the pods of
// ended Jobs count.
func (j jobs) remove() (s step) {
	for i := range j.jobs {
		s.deletes = append(s.deletes, &j.jobs[i])
	}
	return s
}
