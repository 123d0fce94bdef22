package statefulset_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// staging returns a world whose three Jobs have been created, a minute ago.
func staging(t *testing.T) *world {
	w := newWorld(t, "parallel")
	w.plan()
	_, err := w.do(handoff.DoStage)
	if err != nil {
		t.Fatal(err)
	}
	w.age(time.Minute)
	return w
}

// age makes all Jobs that have no UID yet as old as d, and gives them one.
func (w *world) age(d time.Duration) {
	for _, job := range w.jobs() {
		if job.UID == "" {
			w.edit(&job, func() {
				job.UID, job.CreationTimestamp = types.UID("uid-of-"+job.Name), metav1.NewTime(time.Now().Add(-d))
			})
		}
	}
}

// edit changes a Job, which the fake API server replaces: a UID cannot be changed.
func (w *world) edit(job *batchv1.Job, change func()) {
	w.t.Helper()
	err := w.client.Delete(context.Background(), job)
	if err != nil {
		w.t.Fatal(err)
	}
	job.ResourceVersion = ""
	change()
	w.create(job)
}

// pod creates a pod of a Job, with a status.
func (w *world) pod(job batchv1.Job, s corev1.PodStatus) {
	w.t.Helper()
	labels := map[string]string{batchv1.ControllerUidLabel: string(job.UID)}
	for key, value := range job.Labels {
		labels[key] = value
	}
	w.create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: job.Name + "-x", Labels: labels}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: s,
	})
}

func ended(with batchv1.JobConditionType, reason string, ago time.Duration) batchv1.JobStatus {
	return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{
		Type: with, Status: corev1.ConditionTrue, Reason: reason, Message: "it ended", LastTransitionTime: metav1.NewTime(time.Now().Add(-ago)),
	}}}
}

// terminated is the status of a pod that has left a message.
func terminated(message string) corev1.PodStatus {
	state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: message}}
	return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "member", State: state}}}
}

func waiting(reason, message string) corev1.PodStatus {
	state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "member", State: state}}}
}

func unschedulable(message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message,
	}}}
}

// TestJobsBecomeProgress checks how a Job's state becomes a member's progress, and when a Job is created again.
func TestJobsBecomeProgress(t *testing.T) {
	const again, once = 4, 3 // Jobs afterwards
	const now = -time.Minute // the test may take longer than the pause
	running := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
	for name, c := range map[string]struct {
		age    time.Duration
		status batchv1.JobStatus
		pod    *corev1.PodStatus
		want   string     // in the progress, or in the error
		kind   fault.Kind // of the error; "": none
		jobs   int
	}{
		"no pod":        {want: "has not started: no reason is known yet", jobs: once},
		"image":         {pod: new(waiting("ImagePullBackOff", "no such image")), want: "has not started: ImagePullBackOff: no such image", jobs: once},
		"unschedulable": {pod: new(unschedulable("0/3 nodes are available")), want: "has not started: Unschedulable: 0/3 nodes", jobs: once},
		"never starts": {
			age: 16 * time.Minute, pod: new(unschedulable("0/3 nodes are available")), want: "did not start within 15m0s: Unschedulable", kind: fault.Refused, jobs: once,
		},
		"no pod for long": {age: 16 * time.Minute, want: "did not start within 15m0s: no reason", kind: fault.Refused, jobs: once},
		"runs for long":   {age: 16 * time.Hour, pod: &running, want: "runs on node n1", jobs: once},
		"done":            {status: ended(batchv1.JobComplete, "", 0), pod: new(terminated(`{"done":true,"vacant":true}`)), want: "done", jobs: once},
		"done, the Job not yet": {
			pod: new(terminated(`{"done":true}`)), want: "done", jobs: once,
		},
		"refused": {
			status: ended(batchv1.JobFailed, "", time.Hour), pod: new(terminated(`{"error":{"message":"the disk is full","kinds":["refused"]}}`)),
			want: "the disk is full", kind: fault.Refused, jobs: once,
		},
		"the store is down": {
			status: ended(batchv1.JobFailed, "", now), pod: new(terminated(`{"error":{"message":"no route","kinds":["unreachable"]}}`)), want: "no route", jobs: once,
		},
		"the store was down": {
			status: ended(batchv1.JobFailed, "", time.Minute), pod: new(terminated(`{"error":{"message":"no route","kinds":["unreachable"]}}`)), want: "no route", jobs: again,
		},
		"etcd runs":  {status: ended(batchv1.JobComplete, "", now), pod: new(terminated(`{"waiting":"etcd runs"}`)), want: "etcd runs", jobs: once},
		"etcd ended": {status: ended(batchv1.JobComplete, "", time.Minute), pod: new(terminated(`{"waiting":"etcd runs"}`)), want: "etcd runs", jobs: again},
		"killed": {
			status: ended(batchv1.JobFailed, "", time.Minute), pod: new(terminated("")), want: "ended without a report: it ended: exit code 1, Error", jobs: again,
		},
		"evicted": {
			status: ended(batchv1.JobFailed, "", time.Minute), pod: &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "the node was low on memory"},
			want: "Evicted: the node was low on memory", jobs: again,
		},
		"the pod is gone": {status: ended(batchv1.JobFailed, "", time.Minute), want: "it ended: its pod is gone", jobs: again},
		"half a report": {
			status: ended(batchv1.JobFailed, "", time.Minute), pod: new(terminated(`{"done":tr`)), want: `Error: {"done":tr`, jobs: again,
		},
		"too late": {
			status: ended(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded, time.Minute), want: "it ended: its pod is gone", kind: fault.Refused, jobs: once,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := staging(t)
			job := w.jobs()[1]
			w.edit(&job, func() {
				job.Status = c.status
				if c.age > 0 {
					job.CreationTimestamp = metav1.NewTime(time.Now().Add(-c.age))
				}
			})
			if c.pod != nil {
				w.pod(job, *c.pod)
			}
			texts, err := w.do(handoff.DoStage)
			if fault.KindOf(err) != c.kind || !strings.Contains(texts[1]+fmt.Sprint(err), c.want) {
				t.Errorf("got %q, %v; want %q, %q", texts[1], err, c.want, c.kind)
			}
			if len(w.jobs()) != c.jobs {
				t.Errorf("%d Jobs, want %d", len(w.jobs()), c.jobs)
			}
		})
	}
}

// TestLostReportsAreAnError ends Jobs without a report again and again: after the third one that is an error.
func TestLostReportsAreAnError(t *testing.T) {
	w := staging(t)
	for attempt := 1; ; attempt++ {
		w.end(fmt.Sprint("-0-", attempt), time.Hour, nil)
		_, err := w.do(handoff.DoStage)
		w.age(time.Minute)
		if err == nil && attempt < 3 {
			continue
		}
		if fault.KindOf(err) != fault.Refused || attempt != 3 {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		break
	}
}

// TestRepeatedTasksHaveFurtherAttempts ends Jobs with an error for good, or without a report, in steps that are only repeated: the error is
// what the restore waits for, and another Job follows after a pause. Those of long before are removed.
func TestRepeatedTasksHaveFurtherAttempts(t *testing.T) {
	refused := terminated(`{"error":{"message":"/data is not empty: move it aside","kinds":["refused"]}}`)
	for step, task := range map[handoff.Step]handoff.Task{
		handoff.Withdraw: handoff.DoWithdraw, handoff.Back: handoff.DoBack, handoff.Discard: handoff.DoDiscard, handoff.Clean: handoff.DoClean,
		handoff.Place: handoff.DoPlace, // of members without old data, which are down
	} {
		for want, pod := range map[string]*corev1.PodStatus{"/data is not empty: move it aside": &refused, "it ended: its pod is gone": nil} {
			w := newWorld(t, "parallel")
			w.plan()
			w.record.Step, w.record.Vacant, w.record.Down = step, step == handoff.Place, w.record.Since
			_, err := w.do(task)
			must(t, err)
			for attempt := 1; attempt <= 5; attempt++ {
				w.age(time.Minute)
				w.end(fmt.Sprint("-0-", attempt), 0, pod)
				texts, err := w.do(task)
				if err != nil || !strings.Contains(texts[0], want) || w.has(fmt.Sprint("-0-", attempt+1)) {
					t.Fatalf("%s, at the end of attempt %d: %q, %v", task, attempt, texts, err)
				}
				w.end(fmt.Sprint("-0-", attempt), time.Hour, nil)
				texts, err = w.do(task)
				if err != nil || !strings.Contains(texts[0], want) || !w.has(fmt.Sprint("-0-", attempt+1)) || len(w.jobs()) != 4 {
					t.Fatalf("%s, after attempt %d: %q, %v, %d Jobs", task, attempt, texts, err, len(w.jobs()))
				}
			}
		}
	}
}

// end ends the Job whose name has a suffix, some time ago, with a pod if that is not nil.
func (w *world) end(suffix string, ago time.Duration, pod *corev1.PodStatus) {
	w.t.Helper()
	i := slices.IndexFunc(w.jobs(), func(j batchv1.Job) bool { return strings.HasSuffix(j.Name, suffix) })
	job := w.jobs()[i]
	w.edit(&job, func() { job.Status = ended(batchv1.JobFailed, "", ago) })
	if pod != nil {
		w.pod(job, *pod)
	}
}

// has reports whether there is a Job whose name has a suffix.
func (w *world) has(suffix string) bool {
	return slices.ContainsFunc(w.jobs(), func(j batchv1.Job) bool { return strings.HasSuffix(j.Name, suffix) })
}

// TestObstacleBecomesMet checks that an obstacle is reported with the plan that has met it.
func TestObstacleBecomesMet(t *testing.T) {
	w := staging(t)
	w.pod(w.jobs()[0], terminated(`{"obstacle":{"segment":7},"error":{"message":"segment 7 is damaged","kinds":["damaged"]}}`))
	all, err := w.manager().Do(t.Context(), w.record, handoff.DoStage)
	if err != nil || all[0].Met == nil || all[0].Met.Obstacle.Segment != 7 || all[0].Met.Plan.ID != w.record.Plan.ID {
		t.Errorf("%+v, %v", all[0], err)
	}
}

// TestOnlyOneTurnIsAtWork begins the next phase while Jobs of the last one have not ended: they are deleted, and the next Jobs are created
// only after their pods are gone. The same task in a later phase has new Jobs.
func TestOnlyOneTurnIsAtWork(t *testing.T) {
	w := staging(t)
	before := w.jobs()
	w.pod(before[0], corev1.PodStatus{Phase: corev1.PodRunning})
	ends := before[1]
	w.edit(&ends, func() { ends.Status = ended(batchv1.JobComplete, "", time.Second) })
	var deleted []string
	w.intercept(deletions(&deleted, func(o client.Object) bool { return o.GetName() != before[0].Name }))
	w.record.Since = w.record.Since.Add(time.Hour)
	texts, err := w.do(handoff.DoDiscard)
	if err != nil || !strings.Contains(texts[0], "waiting for the end of Job "+before[0].Name) || len(deleted) != 3 {
		t.Fatalf("%q, %v, deleted %q", texts, err, deleted)
	}
	w.intercept(deletions(&deleted, nil))
	w.age(time.Minute)
	texts, err = w.do(handoff.DoDiscard)
	if err != nil || strings.Contains(texts[0], "a Job is created") {
		t.Fatalf("%q, %v", texts, err)
	}
	w.age(time.Minute)
	texts, err = w.do(handoff.DoDiscard)
	if err != nil || texts[0] != "a Job is created" {
		t.Fatalf("%q, %v", texts, err)
	}
	for _, job := range w.jobs() {
		if strings.Contains(job.Name, "discard") && slices.ContainsFunc(job.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil || v.ConfigMap != nil }) {
			t.Errorf("Job %s has a Secret or the plan", job.Name)
		}
	}
	w.record.Since = w.record.Since.Add(time.Hour)
	for range 3 {
		texts, err = w.do(handoff.DoStage)
		w.age(time.Minute)
	}
	if err != nil || !strings.Contains(texts[0], "has not started") {
		t.Fatalf("%q, %v", texts, err)
	}
}

// TestReleaseWaitsForJobs checks that members are not started while a Job may still change their disks.
func TestReleaseWaitsForJobs(t *testing.T) {
	w := staging(t)
	var deleted []string
	w.intercept(deletions(&deleted, func(client.Object) bool { return false }))
	for _, start := range []func(context.Context, handoff.Handoff) (handoff.Progress, error){w.manager().Release, w.manager().Return} {
		p, err := start(t.Context(), w.record.Handoff)
		if err != nil || !strings.Contains(p.Waiting, "waiting for the end of Job") || len(deleted) != 3 {
			t.Errorf("%+v, %v, deleted %q", p, err, deleted)
		}
		deleted = nil
	}
}

// TestReleaseWaitsForPodsOfJobs checks that members are not started while the pod of a Job may still change their disks, although the Job has ended or
// is gone.
func TestReleaseWaitsForPodsOfJobs(t *testing.T) {
	w := staging(t)
	for _, job := range w.jobs() {
		w.pod(job, corev1.PodStatus{Phase: corev1.PodRunning})
		must(t, w.client.Delete(t.Context(), &job))
	}
	var deleted []string
	w.intercept(deletions(&deleted, func(client.Object) bool { return false }))
	for _, start := range []func(context.Context, handoff.Handoff) (handoff.Progress, error){w.manager().Release, w.manager().Return} {
		deleted = nil
		p, err := start(t.Context(), w.record.Handoff)
		if err != nil || p.Done || strings.Count(p.Waiting, "waiting for the end of pod etcd-") != 3 || len(deleted) != 3 {
			t.Errorf("%+v, %v, deleted %q", p, err, deleted)
		}
	}
}

// TestReportsOfOtherJobsDoNotCount checks that the report of a pod counts only for the Job that has created it, not for a later one of the same
// name.
func TestReportsOfOtherJobsDoNotCount(t *testing.T) {
	w := staging(t)
	for _, job := range w.jobs() {
		earlier := job
		earlier.UID = "uid-of-an-earlier-one"
		w.pod(earlier, terminated(`{"done":true}`))
	}
	all, err := w.manager().Do(t.Context(), w.record, handoff.DoStage)
	must(t, err)
	for i, p := range all {
		if p.Done {
			t.Errorf("member %d: %+v", i, p)
		}
	}
}

// TestMissingClaimsAreCreated checks that a member without a disk gets a claim as the StatefulSet would create it.
func TestMissingClaimsAreCreated(t *testing.T) {
	w := newWorld(t, "parallel")
	claim := get(w, "data-etcd-1", &corev1.PersistentVolumeClaim{})
	err := w.client.Delete(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	w.plan()
	_, err = w.do(handoff.DoStage)
	if err != nil {
		t.Fatal(err)
	}
	created := get(w, "data-etcd-1", &corev1.PersistentVolumeClaim{})
	if created.Labels["app"] != "etcd" || created.Labels["tier"] != "data" || *created.Spec.StorageClassName != "fast" || len(created.OwnerReferences) > 0 {
		t.Errorf("%+v", created)
	}
}

// TestSmallClaimsAreRefused checks that no Job is created for a disk on which the new data does not fit.
func TestSmallClaimsAreRefused(t *testing.T) {
	w := newWorld(t, "wal")
	change(w, "plan-etcd-2", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) {
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: quantity("100Mi")}
	})
	w.plan()
	_, err := w.do(handoff.DoStage)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "claim payments/plan-etcd-2 has 100 MiB, and the restore needs 129 MiB") || len(w.jobs()) > 0 {
		t.Errorf("%v, %d Jobs", err, len(w.jobs()))
	}
}

// TestJobsAreNoMembers refuses labels with which the StatefulSet would select the Jobs' pods.
func TestJobsAreNoMembers(t *testing.T) {
	w := newWorld(t, "parallel")
	w.options.Jobs.Labels = map[string]string{"app": "etcd"}
	w.plan()
	_, err := w.do(handoff.DoStage)
	if fault.KindOf(err) != fault.Usage || len(w.jobs()) > 0 {
		t.Errorf("%v", err)
	}
}

// TestLongNames checks that the name of a Job stays a label.
func TestLongNames(t *testing.T) {
	w := newWorld(t, "parallel", func(set *appsv1.StatefulSet) { set.Name = strings.Repeat("long-", 10) + "name" })
	w.plan()
	_, err := w.do(handoff.DoWithdraw)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, job := range w.jobs() {
		names[job.Name] = len(job.Name) <= 63
	}
	if len(names) != 3 || slices.Contains([]bool{names[w.jobs()[0].Name], names[w.jobs()[1].Name]}, false) {
		t.Errorf("%v", names)
	}
}

// unscheduled gives the Job of a member a pod that no node has.
func (w *world) unscheduled(job batchv1.Job) {
	w.t.Helper()
	w.pod(job, unschedulable("0/3 nodes are available"))
	change(w, job.Name+"-x", &corev1.Pod{}, func(p *corev1.Pod) { p.Spec.NodeName = "" })
}

// TestUnstartedJobsLeaveTheDiskIdle checks for which Jobs it is proven that no process has worked on a member's disk.
func TestUnstartedJobsLeaveTheDiskIdle(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(w *world, job batchv1.Job)
		idle    bool
	}{
		"the API server refuses the pod": {func(w *world, job batchv1.Job) {
			w.create(&corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: job.Name}, InvolvedObject: corev1.ObjectReference{UID: job.UID},
				Type: corev1.EventTypeWarning, Message: "exceeded quota",
			})
		}, true},
		"no node has the pod":       {(*world).unscheduled, true},
		"a node has it":             {func(w *world, job batchv1.Job) { w.pod(job, waiting("ContainerCreating", "")) }, false},
		"the Job has counted it":    {func(w *world, job batchv1.Job) { w.edit(&job, func() { job.Status.Failed = 1 }) }, false},
		"the Job has ended":         {func(w *world, job batchv1.Job) { w.end("-1-1", time.Second, nil) }, false},
		"the Job has replaced one":  {func(w *world, job batchv1.Job) { w.edit(&job, func() { job.Labels["etcd-dr.io/attempt"] = "2" }) }, false},
		"there was an earlier turn": {func(w *world, job batchv1.Job) { w.edit(&job, func() { job.Labels["etcd-dr.io/turn"] = "stage-0" }) }, false},
		"it is long ago":            {func(w *world, _ batchv1.Job) { w.record.Since = w.record.Since.Add(-25 * time.Hour) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := stagingNow(t, time.Minute)
			c.happens(w, w.jobs()[1])
			all, err := w.manager().Do(t.Context(), w.record, handoff.DoStage)
			if err != nil || all[1].Idle != c.idle {
				t.Errorf("%+v, %v", all[1], err)
			}
		})
	}
}

// stagingNow is staging, with a phase that has just begun and Jobs of this age.
func stagingNow(t *testing.T, age time.Duration) *world {
	w := newWorld(t, "parallel")
	w.record.Since = time.Now()
	w.plan()
	all, err := w.manager().Do(t.Context(), w.record, handoff.DoStage)
	if err != nil || !all[1].Idle {
		t.Fatalf("%+v, %v", all, err)
	}
	w.age(age)
	return w
}

// TestUntouchedDisksNeedNoDiscard removes staged data while the node of a member is down, on which no Job has started: that member is done
// once its Job and its pod are gone, and has no other Job.
func TestUntouchedDisksNeedNoDiscard(t *testing.T) {
	w := stagingNow(t, time.Hour)
	w.unscheduled(w.jobs()[1])
	for _, i := range []int{0, 2} {
		w.pod(w.jobs()[i], terminated(`{"done":true}`))
	}
	_, err := w.do(handoff.DoStage)
	if fault.KindOf(err) != fault.Refused || !w.has("-1-1") {
		t.Fatal("the Job that does not start is no error, or is removed without a proof: ", err)
	}
	w.record.Untouched = []string{"etcd-1"}
	var all []handoff.Progress
	for _, want := range []string{"waiting for the end of Job payments/etcd-0123456789abcdef-stage-", "waiting for the end of Pod payments/etcd-0123456789abcdef-stage-", ""} {
		all, err = w.manager().Do(t.Context(), w.record, handoff.DoDiscard)
		w.age(time.Minute)
		if err != nil || !all[1].Idle || !strings.HasPrefix(all[1].Waiting, want) || all[1].Done != (want == "") {
			t.Fatalf("%+v, %v; want %q", all[1], err, want)
		}
	}
	w.record.Members, w.record.Since = all, w.record.Since.Add(-25*time.Hour) // the others take long
	all, err = w.manager().Do(t.Context(), w.record, handoff.DoDiscard)
	if err != nil || !all[1].Done || !all[1].Idle || w.has("-1-1") {
		t.Errorf("%+v, %v", all[1], err)
	}
}

// TestLateStartsAreDiscarded lets the Job of an untouched member start when the staged data is to be removed already: its pod and its Job stay
// until that is on record, and the member has a Job then.
func TestLateStartsAreDiscarded(t *testing.T) {
	for _, late := range []bool{false, true} { // the Job is gone
		w := stagingNow(t, time.Minute)
		w.unscheduled(w.jobs()[1])
		pod := w.jobs()[1].Name + "-x"
		w.record.Untouched = []string{"etcd-1"}
		if late {
			_, err := w.do(handoff.DoDiscard)
			must(t, err)
			w.age(time.Minute)
		}
		w.intercept(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if o.GetName() == pod || !late && strings.Contains(o.GetName(), "-1-1") {
				change(w, pod, &corev1.Pod{}, func(p *corev1.Pod) { p.Spec.NodeName = "n2" })
			}
			return c.Delete(ctx, o, options...)
		}})
		_, err := w.do(handoff.DoDiscard)
		must(t, err)
		w.age(time.Minute)
		get(w, pod, &corev1.Pod{})
		w.intercept(interceptor.Funcs{})
		all, err := w.manager().Do(t.Context(), w.record, handoff.DoDiscard)
		if err != nil || all[1].Done || all[1].Idle {
			t.Errorf("%+v, %v", all[1], err)
		}
		w.age(time.Minute)
		get(w, pod, &corev1.Pod{})
		w.record.Untouched = nil
		for range 3 {
			_, err = w.do(handoff.DoDiscard)
			must(t, err)
			w.age(time.Minute)
		}
		texts, err := w.do(handoff.DoDiscard)
		if err != nil || !strings.Contains(texts[1], "-discard-") || !w.has("-1-1") {
			t.Errorf("the disk of etcd-1 has no Job: %q, %v", texts, err)
		}
	}
}

// remove deletes the claim of a member.
func (w *world) remove(claim string) {
	w.t.Helper()
	must(w.t, w.client.Delete(context.Background(), get(w, claim, &corev1.PersistentVolumeClaim{})))
}

// TestJobsRunAsTheMember gives the Jobs the user of a member that runs, if only its container shows that.
func TestJobsRunAsTheMember(t *testing.T) {
	w := newWorld(t, "parallel")
	w.run(map[string]string{"etcd-0": "n1"})
	change(w, "etcd-0", &corev1.Pod{}, func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "etcd", User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 1001, GID: 1002}}}}
	})
	w.plan()
	_, err := w.do(handoff.DoStage)
	must(t, err)
	for _, job := range w.jobs() {
		c := job.Spec.Template.Spec.SecurityContext
		if *c.RunAsUser != 1001 || *c.RunAsGroup != 1002 || !*c.RunAsNonRoot {
			t.Errorf("%s runs as %d:%d", job.Name, *c.RunAsUser, *c.RunAsGroup)
		}
	}
}

// TestPodsAreDeletedByUID names the pod that was read in its deletion, so that a new one of its name stays.
func TestPodsAreDeletedByUID(t *testing.T) {
	w := newWorld(t, "parallel")
	w.run(map[string]string{"etcd-0": "n1"})
	w.plan()
	var asked []types.UID
	w.intercept(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
		asked = append(asked, *(&client.DeleteOptions{}).ApplyOptions(options).Preconditions.UID)
		return c.Delete(ctx, o, options...)
	}})
	_, err := w.manager().Fence(t.Context(), w.record.Handoff)
	if err != nil || !slices.Equal(asked, []types.UID{"uid-of-etcd-0"}) {
		t.Errorf("deleted %q, %v", asked, err)
	}
}

// TestLostDisksAreDone deletes the claim of a member: where data is only to be removed or put back, nothing is left to do there, and the
// other members have their Jobs. Where new data is to be placed, that ends the way there.
func TestLostDisksAreDone(t *testing.T) {
	for task, done := range map[handoff.Task]bool{
		handoff.DoWithdraw: true, handoff.DoBack: true, handoff.DoDiscard: true, handoff.DoClean: true,
		handoff.DoSeal: false, handoff.DoPlace: false, handoff.DoReview: false,
	} {
		w := newWorld(t, "parallel")
		w.plan()
		w.remove("data-etcd-1")
		all, err := w.manager().Do(t.Context(), w.record, task)
		if all[1].Done != done || all[1].Gone != done || all[0].Waiting != "a Job is created" || all[2].Waiting != "a Job is created" || len(w.jobs()) != 2 {
			t.Errorf("%s: %+v, %d Jobs", task, all, len(w.jobs()))
		}
		if handoff.IsFinal(err) == done || !done && !strings.Contains(err.Error(), "claim payments/data-etcd-1 was deleted, with the data of member etcd-1") {
			t.Errorf("%s: %v", task, err)
		}
	}
}

// TestBlockOfLostDisks checks that only disks whose old data is lost have Jobs that block them, on a new claim if the old one is gone. A
// claim that a person deletes meanwhile is lost too.
func TestBlockOfLostDisks(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	w.record.Lost, w.record.Plan = []string{"etcd-1"}, nil // the plan may be lost with an earlier record
	w.remove("data-etcd-1")
	texts, err := w.do(handoff.DoBlock)
	want := []string{"done", "claim payments/data-etcd-1 is gone: a new one is created", "done"}
	if err != nil || !slices.Equal(texts, want) || len(w.jobs()) != 0 {
		t.Fatalf("%q, %v, %d Jobs", texts, err, len(w.jobs()))
	}
	get(w, "data-etcd-1", &corev1.PersistentVolumeClaim{})
	w.remove("data-etcd-2")
	all, err := w.manager().Do(t.Context(), w.record, handoff.DoBlock)
	if err != nil || all[1].Waiting != "a Job is created" || all[2].Done || !all[2].Gone {
		t.Fatalf("%+v, %v", all, err)
	}
	args := strings.Join(w.jobs()[0].Spec.Template.Spec.Containers[0].Args, " ")
	if len(w.jobs()) != 1 || !strings.HasPrefix(args, "member block --restore="+restoreID+" --name=etcd-1 ") {
		t.Errorf("%d Jobs, the first with %s", len(w.jobs()), args)
	}
	w.pod(w.jobs()[0], terminated(`{"done":true}`))
	w.record.Lost = []string{"etcd-1", "etcd-2"}
	texts, err = w.do(handoff.DoBlock)
	if err != nil || texts[1] != "done" || !strings.HasPrefix(texts[2], "claim payments/data-etcd-2 is gone") {
		t.Errorf("%q, %v", texts, err)
	}
	get(w, "data-etcd-2", &corev1.PersistentVolumeClaim{})
}

// TestEndedJobsFreeTheClaim deletes the claim of a member while an ended Job has it: the API server would keep the claim until the Job is
// removed, and the restore would wait for ever.
func TestEndedJobsFreeTheClaim(t *testing.T) {
	w := staging(t)
	for i, job := range w.jobs() {
		w.edit(&job, func() { job.Status = ended(batchv1.JobComplete, "", time.Duration(i)*time.Second) })
		w.pod(job, terminated(`{"done":true}`))
	}
	change(w, "data-etcd-1", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })
	w.remove("data-etcd-1")
	w.record.Lost = []string{"etcd-1"}
	texts, err := w.do(handoff.DoBlock)
	if err != nil || !strings.HasPrefix(texts[1], "claim payments/data-etcd-1 is being deleted: Job etcd-") || len(w.jobs()) != 2 {
		t.Fatalf("%q, %v, %d Jobs", texts, err, len(w.jobs()))
	}
	texts, err = w.do(handoff.DoBlock)
	if err != nil || texts[1] != "claim payments/data-etcd-1 is being deleted: waiting for its end" {
		t.Errorf("%q, %v", texts, err)
	}
}

// TestJobsOfEarlierRestoresFreeTheClaim is TestEndedJobsFreeTheClaim for a Job that an earlier restore has left.
func TestJobsOfEarlierRestoresFreeTheClaim(t *testing.T) {
	w := staging(t)
	for _, job := range w.jobs() {
		w.edit(&job, func() {
			job.Status = ended(batchv1.JobFailed, "", time.Hour)
			job.Labels["etcd-dr.io/restore"] = "fedcba9876543210"
		})
	}
	change(w, "data-etcd-1", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"kubernetes.io/pvc-protection"} })
	w.remove("data-etcd-1")
	texts, err := w.do(handoff.DoStage)
	if err != nil || !strings.HasPrefix(texts[1], "claim payments/data-etcd-1 is being deleted: Job etcd-") || w.has("-1-1") || !w.has("-0-1") {
		t.Errorf("%q, %v", texts, err)
	}
}

// TestBlockWithoutAVolume blocks a lost disk whose new claim gets no volume: the claim can get none later either, so that the member cannot start,
// and the restore continues. The next one refuses, until that claim is deleted.
func TestBlockWithoutAVolume(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	w.record.Lost, w.record.Step = []string{"etcd-1"}, handoff.Block
	change(w, "data-etcd-1", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) {
		c.Status.Phase, c.Spec.VolumeName = corev1.ClaimPending, ""
	})
	_, err := w.do(handoff.DoBlock)
	must(t, err)
	w.age(10 * time.Minute)
	w.unscheduled(w.jobs()[0])
	change(w, w.jobs()[0].Name+"-x", &corev1.Pod{}, func(p *corev1.Pod) {
		p.Status = unschedulable("0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind")
	})
	texts, err := w.do(handoff.DoBlock)
	if err != nil || !strings.Contains(texts[1], "0/3 nodes are available") {
		t.Fatalf("%q, %v", texts, err)
	}
	job := w.jobs()[0]
	w.edit(&job, func() { job.CreationTimestamp = metav1.NewTime(time.Now().Add(-16 * time.Minute)) })
	texts, err = w.do(handoff.DoBlock)
	if err != nil || !strings.Contains(texts[1], "gets no volume") || len(w.jobs()) != 0 {
		t.Fatalf("%q, %v, %d Jobs", texts, err, len(w.jobs()))
	}
	texts, err = w.do(handoff.DoBlock)
	claim := get(w, "data-etcd-1", &corev1.PersistentVolumeClaim{})
	if err != nil || texts[1] != "done" || claim.Spec.VolumeName != "etcd-dr-lost" {
		t.Errorf("%q, %v, the claim is for %q", texts, err, claim.Spec.VolumeName)
	}
	for _, task := range []handoff.Task{handoff.DoDiscard, handoff.DoClean} {
		all, err := w.manager().Do(t.Context(), w.record, task)
		if err != nil || !all[1].Done {
			t.Errorf("%s: %+v, %v", task, all[1], err)
		}
	}
	if !slices.ContainsFunc(w.inspect().Findings, func(f handoff.Finding) bool { return f.Refuses && strings.Contains(f.Text, "is never bound") }) {
		t.Errorf("the findings are %+v", w.inspect().Findings)
	}
}

// TestReportsResetSilence ends Jobs in Stage: some with a report of an error that passes, then one without. Only several without a report, one
// after the other, refuse the restore.
func TestReportsResetSilence(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	w.record.Step = handoff.Stage
	busy := terminated(`{"waiting":"the store is away"}`)
	_, err := w.do(handoff.DoStage)
	must(t, err)
	pods := []*corev1.PodStatus{nil, nil, &busy, &busy, nil, nil, nil}
	for i, pod := range pods {
		w.age(time.Minute)
		w.end(fmt.Sprint("-0-", i+1), time.Hour, pod)
		_, err = w.do(handoff.DoStage)
		refused := fault.KindOf(err) == fault.Refused
		if refused != (i == len(pods)-1) {
			t.Fatalf("after attempt %d: %v", i+1, err)
		}
	}
}

// TestGrownClustersAreNotRolledBack orders the old data back after the StatefulSet was scaled up: there is none for the new members. The
// rollback waits until it is scaled down.
func TestGrownClustersAreNotRolledBack(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) })
	texts, err := w.do(handoff.DoReview)
	if err != nil || !strings.Contains(texts[0], "has 5 replicas") || len(w.jobs()) != 0 {
		t.Errorf("%q, %v, %d Jobs", texts, err, len(w.jobs()))
	}
}

// TestOnlySuccessRemovesJobs ends restores whose Jobs have ended. After a success nothing has a member's claim but its pod.
func TestOnlySuccessRemovesJobs(t *testing.T) {
	for end, want := range map[handoff.Phase]int{handoff.Succeeded: 0, handoff.Failed: 3, handoff.Refused: 3} {
		w := staging(t)
		for _, job := range w.jobs() {
			w.edit(&job, func() { job.Status = ended(batchv1.JobComplete, "", time.Second) })
		}
		w.record.End = end
		wantDone(t, true)(w.manager().Lift(t.Context(), w.record))
		if len(w.jobs()) != want {
			t.Errorf("%s: %d Jobs are left, want %d", end, len(w.jobs()), want)
		}
	}
}

// TestDeadNodesHoldNoOtherMember begins the way back while a Job of before cannot end on its node: the other members have their Jobs.
func TestDeadNodesHoldNoOtherMember(t *testing.T) {
	w := staging(t)
	before := w.jobs()
	w.pod(before[1], corev1.PodStatus{Phase: corev1.PodRunning})
	change(w, before[1].Name+"-x", &corev1.Pod{}, func(p *corev1.Pod) { p.Finalizers = []string{"x/y"} })
	must(t, w.client.Delete(t.Context(), get(w, before[1].Name+"-x", &corev1.Pod{})))
	for range 2 {
		w.record.Since = time.Unix(1_800_000_000, 0)
		texts, err := w.do(handoff.DoWithdraw)
		must(t, err)
		if !strings.Contains(texts[1], "waiting for the end of pod "+before[1].Name) {
			t.Errorf("%q", texts)
		}
	}
	var names []string
	for _, job := range w.jobs() {
		if strings.Contains(job.Name, "withdraw") {
			names = append(names, job.Labels["etcd-dr.io/pod"])
		}
	}
	if !slices.Equal(names, []string{"etcd-0", "etcd-2"}) {
		t.Errorf("Jobs of %q", names)
	}
}

// TestUnreachableDisksNameTheNode lets a Job find no node on the way back: the message names the node of the member, and the way on.
func TestUnreachableDisksNameTheNode(t *testing.T) {
	for age, prefix := range map[time.Duration]string{time.Minute: "has not started: Unschedulable", time.Hour: "did not start within 15m0s: Unschedulable"} {
		w := newWorld(t, "parallel")
		w.run(map[string]string{"etcd-1": "n2"})
		w.plan()
		must(t, w.client.Delete(t.Context(), get(w, "etcd-1", &corev1.Pod{})))
		_, err := w.do(handoff.DoBack)
		must(t, err)
		w.age(age)
		for _, i := range []int{0, 2} {
			w.pod(w.jobs()[i], terminated(`{"done":true}`))
		}
		w.pod(w.jobs()[1], unschedulable("0/3 nodes are available"))
		change(w, w.jobs()[1].Name+"-x", &corev1.Pod{}, func(p *corev1.Pod) { p.Spec.NodeName = "" })
		texts, err := w.do(handoff.DoBack)
		text := texts[1] + fmt.Sprint(err)
		const want = "member etcd-1 ran on node n2: start that node if it is down; if the disk is lost, kubectl -n payments delete pvc data-etcd-1: " +
			"the restore continues without it"
		if !strings.Contains(text, prefix) || !strings.Contains(text, want) {
			t.Errorf("%s", text)
		}
	}
}

// TestDiscardKeepsTheClaim lets the removal of staged data wait for a node: the old data on the claim is in use, so no message ends it.
func TestDiscardKeepsTheClaim(t *testing.T) {
	w := newWorld(t, "parallel")
	w.run(map[string]string{"etcd-1": "n2"})
	w.plan()
	_, err := w.do(handoff.DoDiscard)
	must(t, err)
	w.age(2 * time.Minute)
	w.unscheduled(w.jobs()[1])
	texts, err := w.do(handoff.DoDiscard)
	if err != nil || !strings.HasSuffix(texts[1], "member etcd-1 ran on node n2: start that node if it is down") {
		t.Errorf("%q, %v", texts, err)
	}
}

// TestExclusiveClaimsOfRunningMembers checks that a restore of members with ReadWriteOncePod claims waits for the end of their pods, with the
// reason, and creates no Job that could not run.
func TestExclusiveClaimsOfRunningMembers(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	change(w, "data-etcd-1", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	w.run(map[string]string{"etcd-1": "n2"})
	for _, task := range []handoff.Task{handoff.DoReview, handoff.DoClean} {
		texts, err := w.do(task)
		if err != nil || !strings.HasPrefix(texts[1], "claim payments/data-etcd-1 is ReadWriteOncePod, and pod etcd-1 uses it: ") || texts[0] == texts[1] {
			t.Errorf("%s: %q, %v", task, texts, err)
		}
	}
	for _, job := range w.jobs() {
		if job.Labels["etcd-dr.io/pod"] == "etcd-1" {
			t.Errorf("Job %s could not run", job.Name)
		}
	}
}

// TestJobsFollowTheirMember takes a member from a node that is away: its Job, which waits for that node, is replaced by one for the node on
// which the member runs now. A Job on the member's own node stays, even if it does not start.
func TestJobsFollowTheirMember(t *testing.T) {
	for moved, want := range map[string]int{"": 1, "n3": 1, "n2": 0} {
		w := newWorld(t, "parallel")
		w.run(map[string]string{"etcd-1": "n2"})
		w.plan()
		_, err := w.do(handoff.DoStage)
		must(t, err)
		w.age(time.Minute)
		w.pod(w.jobs()[1], unschedulable("0/3 nodes are available"))
		change(w, w.jobs()[1].Name+"-x", &corev1.Pod{}, func(p *corev1.Pod) { p.Spec.NodeName = "" })
		texts, err := w.do(handoff.DoStage)
		must(t, err)
		const away = "member etcd-1 ran on node n2: if that node is down, start it, or make sure that it stays off, then kubectl taint nodes n2 " +
			"node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; if the disk is lost, kubectl -n payments delete pvc data-etcd-1 --wait=false before that: "
		if !strings.Contains(texts[1], away) {
			t.Errorf("%q", texts[1])
		}

		must(t, w.client.Delete(t.Context(), get(w, "etcd-1", &corev1.Pod{})))
		if moved != "" {
			w.run(map[string]string{"etcd-1": moved})
		}
		_, err = w.do(handoff.DoStage)
		must(t, err)
		w.age(time.Minute)
		_, err = w.do(handoff.DoStage) // the new Job is for the right place
		must(t, err)
		replaced := 0
		for _, job := range w.jobs() {
			if job.Labels["etcd-dr.io/attempt"] == "2" {
				replaced++
			}
		}
		if replaced != want || len(w.jobs()) != 3 {
			t.Errorf("member on %q: %d of %d Jobs were replaced, want %d of 3", moved, replaced, len(w.jobs()), want)
		}
	}
}
