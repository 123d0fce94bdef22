package statefulset_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// TestFenceWaitsForEveryPod checks that Fence is not done while the pod of a member exists, whichever program has created it, and names the cure for
// a pod that does not end.
func TestFenceWaitsForEveryPod(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(time.Now().Add(-d))) }
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod)
		want string
	}{
		"just deleted":     {func(p *corev1.Pod) { p.DeletionTimestamp = ago(-5 * time.Second) }, "waiting for the end of etcd-1"},
		"a little late":    {func(p *corev1.Pod) { p.DeletionTimestamp = ago(20 * time.Second) }, "waiting for the end of etcd-1"},
		"without a label":  {func(p *corev1.Pod) { p.Labels, p.DeletionTimestamp = nil, ago(0) }, "waiting for the end of etcd-1"},
		"of another range": {func(p *corev1.Pod) { p.Name, p.DeletionTimestamp = "etcd-7", ago(0) }, "waiting for the end of etcd-7"},
		"on a dead node": {func(p *corev1.Pod) { p.DeletionTimestamp = ago(time.Minute) }, "node n2 has not confirmed the end of pod etcd-1, which may " +
			"still run: start it, or make sure that it stays off, then kubectl taint nodes n2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"},
		"with a finalizer": {func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Status.Phase = ago(time.Minute), corev1.PodFailed
		}, "pod etcd-1 has ended, and remains for its finalizers example.com/kept: remove them"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etcd-1", UID: "p1", Labels: map[string]string{"app": "etcd"}},
				Spec:       corev1.PodSpec{NodeName: "n2"},
			}
			c.pod(pod)
			w := newWorldWith(t, "parallel", []*corev1.Pod{pod}, func(s *appsv1.StatefulSet) {
				s.Annotations = map[string]string{"etcd-dr.io/restore": restoreID, "etcd-dr.io/saved": `{"replicas":3,"stopped":true}`}
			})
			w.plan()
			change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(0)) })
			p, err := w.manager().Fence(t.Context(), w.record.Handoff)
			if err != nil || p.Done || !strings.HasPrefix(p.Waiting, c.want) {
				t.Errorf("%+v, %v; want %q", p, err, c.want)
			}
		})
	}
}

// TestFenceWaitsForTheController checks that Fence is not done before the controller knows of the replicas: it would start a member.
func TestFenceWaitsForTheController(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Generation = 2 })
	p, err := w.manager().Fence(t.Context(), w.record.Handoff)
	if err != nil || p.Done || p.Waiting != "the StatefulSet controller has not acted on the last change yet" {
		t.Errorf("%+v, %v", p, err)
	}
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Status.ObservedGeneration = 2 })
	wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
}

// TestFenceEndsDisasterRecovery checks that Fence is not done before bitnami's own restore is off, and that no pod is restarted by that.
func TestFenceEndsDisasterRecovery(t *testing.T) {
	for _, on := range []string{"Yes", "1", "true"} {
		w := newWorldWith(t, "parallel", nil, func(s *appsv1.StatefulSet) {
			etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_DISASTER_RECOVERY", Value: on})
		})
		w.plan()
		w.run(map[string]string{"etcd-0": "n1"})
		value := func() string {
			env := etcd(w.set()).Env
			return env[len(env)-1].Value
		}
		wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
		if *w.set().Spec.Replicas != 0 || value() != on {
			t.Errorf("%d replicas, and the variable is %q", *w.set().Spec.Replicas, value())
		}
		p, err := w.manager().Fence(t.Context(), w.record.Handoff)
		if err != nil || p.Done || p.Waiting != "ETCD_DISASTER_RECOVERY is set to no" || value() != "no" {
			t.Errorf("%+v, %v, and the variable is %q", p, err, value())
		}
		wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
	}
}

// TestRollbackOfACopy checks that members are stopped again although the StatefulSet had none when the restore was planned, and that one
// with more members than the plan is not.
func TestRollbackOfACopy(t *testing.T) {
	for replicas, refused := range map[int32]bool{3: false, 5: true} {
		w := newWorld(t, "parallel")
		w.plan()
		w.record.Handoff.Saved = `{"replicas":0}`
		change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(replicas) })
		_, err := w.manager().Fence(t.Context(), w.record.Handoff)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "scale it to 3") {
			t.Errorf("with %d replicas: %v", replicas, err)
		}
		if !refused && *w.set().Spec.Replicas != 0 {
			t.Errorf("there are %d replicas", *w.set().Spec.Replicas)
		}
	}
}

// deletesClaims lets Kubernetes delete the claims of a StatefulSet that is scaled down, which Fence changes first.
func deletesClaims(set *appsv1.StatefulSet) {
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}

// TestReturnKeepsAGrownCluster lets a cluster grow after the plan, so that Fence refuses: Return does not scale it down.
func TestReturnKeepsAGrownCluster(t *testing.T) {
	for name, edit := range map[string]func(*appsv1.StatefulSet){"nothing was changed": func(*appsv1.StatefulSet) {}, "the retention was": deletesClaims} {
		w := newWorld(t, "parallel", edit)
		w.plan()
		w.run(map[string]string{"etcd-0": "n1"})
		change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(5)) })
		_, err := w.manager().Fence(t.Context(), w.record.Handoff)
		if err == nil {
			_, err = w.manager().Fence(t.Context(), w.record.Handoff)
		}
		if fault.KindOf(err) != fault.Refused {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = w.manager().Return(t.Context(), w.record.Handoff)
		if err != nil || *w.set().Spec.Replicas != 5 {
			t.Errorf("%s: %v, replicas %d", name, err, *w.set().Spec.Replicas)
		}
	}
}

// TestReturnUndoesHalfOfFence kills Fence after each of its steps: Return starts the members that it has stopped.
func TestReturnUndoesHalfOfFence(t *testing.T) {
	for steps := range 4 {
		w := newWorld(t, "parallel", deletesClaims)
		w.plan()
		w.run(map[string]string{"etcd-0": "n1", "etcd-1": "n2", "etcd-2": "n3"})
		for range steps {
			_, err := w.manager().Fence(t.Context(), w.record.Handoff)
			must(t, err)
		}
		wantDone(t, steps < 2)(w.manager().Return(t.Context(), w.record.Handoff))
		mark := w.set().Annotations["etcd-dr.io/saved"]
		if *w.set().Spec.Replicas != 3 || strings.Contains(mark, "stopped") {
			t.Errorf("after %d steps: replicas %d, mark %s", steps, *w.set().Spec.Replicas, mark)
		}
	}
}

// TestRollbackWithALostClaim checks that a claim which ends keeps a rollback from nothing: the data on it is lost.
func TestRollbackWithALostClaim(t *testing.T) {
	w := newWorldWith(t, "parallel", nil, func(s *appsv1.StatefulSet) {
		s.Annotations = map[string]string{"etcd-dr.io/restore": restoreID, "etcd-dr.io/saved": `{"replicas":3}`}
	})
	w.plan()
	w.run(map[string]string{"etcd-0": "n1"})
	claim := change(w, "data-etcd-2", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"x/y"} })
	must(t, w.client.Delete(t.Context(), claim))
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	if *w.set().Spec.Replicas != 0 {
		t.Errorf("there are %d replicas", *w.set().Spec.Replicas)
	}
}

// TestReleaseEndsDisasterRecovery checks that no member is started with bitnami's own restore, which another program has put back.
func TestReleaseEndsDisasterRecovery(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) {
		s.Spec.Replicas = new(int32(0))
		etcd(s).Env = append(etcd(s).Env, corev1.EnvVar{Name: "ETCD_DISASTER_RECOVERY", Value: "yes"})
	})
	wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
	env := etcd(w.set()).Env
	if env[len(env)-1].Value != "no" || *w.set().Spec.Replicas != 0 {
		t.Errorf("the variable is %q, and there are %d replicas", env[len(env)-1].Value, *w.set().Spec.Replicas)
	}
}

// TestReturnWithAMemberThatEnds checks that a member on whose disk etcd exits does not keep the pods after it from being created.
func TestReturnWithAMemberThatEnds(t *testing.T) {
	w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) {
		s.Spec.PodManagementPolicy, etcd(s).ReadinessProbe = appsv1.OrderedReadyPodManagement, nil
		s.Status.CurrentRevision, s.Status.UpdateRevision = "etcd-a", "etcd-a"
		s.Annotations = map[string]string{"etcd-dr.io/restore": restoreID, "etcd-dr.io/saved": `{"replicas":3}`}
	})
	w.create(&appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etcd-a"}, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{}}}`)},
	})
	w.plan()
	w.run(map[string]string{"etcd-0": "n1", "etcd-1": "n2"})
	p, err := w.manager().Return(t.Context(), w.record.Handoff)
	if err != nil || p.Waiting != "the StatefulSet controller has not created etcd-2 yet" {
		t.Errorf("%+v, %v", p, err)
	}
	change(w, "etcd-1", &corev1.Pod{}, func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 1}} })
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Generation = 2 })
	p, err = w.manager().Return(t.Context(), w.record.Handoff)
	if err != nil || p.Waiting != "the StatefulSet controller has not acted on spec.replicas yet" {
		t.Errorf("%+v, %v", p, err)
	}
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Status.ObservedGeneration = 2 })
	wantDone(t, false)(w.manager().Return(t.Context(), w.record.Handoff))
	pod := get(w, "etcd-2", &corev1.Pod{})
	claims := slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(v corev1.Volume) bool { return v.PersistentVolumeClaim == nil })
	if !metav1.IsControlledBy(pod, w.set()) || len(claims) != 1 || claims[0].PersistentVolumeClaim.ClaimName != "data-etcd-2" {
		t.Errorf("the pod has the owners %+v and the volumes %+v", pod.OwnerReferences, pod.Spec.Volumes)
	}
	wantDone(t, true)(w.manager().Return(t.Context(), w.record.Handoff))
}

// TestReleaseCreatesPodsInOrder starts members of which the first one is not ready without a quorum: the controller waits for it, so Release creates
// the pods of the others.
func TestReleaseCreatesPodsInOrder(t *testing.T) {
	w := newWorld(t, "parallel", func(s *appsv1.StatefulSet) {
		s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		s.Status.CurrentRevision, s.Status.UpdateRevision = "etcd-a", "etcd-a"
		s.Annotations = map[string]string{"etcd-dr.io/restore": restoreID, "etcd-dr.io/saved": `{"replicas":3}`}
	})
	w.create(&appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etcd-a"}, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"metadata":{"finalizers":["example.com/kept"]}}}}`)},
	})
	w.plan()
	w.run(map[string]string{"etcd-0": "n1"})
	wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
	for _, name := range []string{"etcd-1", "etcd-2"} {
		pod := get(w, name, &corev1.Pod{})
		if !slices.Equal(pod.Finalizers, []string{"example.com/kept"}) || pod.Spec.Hostname != name || pod.Spec.Subdomain != w.set().Spec.ServiceName {
			t.Errorf("%s has the finalizers %q and the name %s.%s", name, pod.Finalizers, pod.Spec.Hostname, pod.Spec.Subdomain)
		}
	}
}

// TestFenceRefusesClaimsThatEnd checks that no pod is deleted while that would delete a member's data.
func TestFenceRefusesClaimsThatEnd(t *testing.T) {
	w := newWorld(t, "parallel")
	w.plan()
	w.run(map[string]string{"etcd-0": "n1"})
	claim := change(w, "data-etcd-2", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"x/y"} })
	must(t, w.client.Delete(t.Context(), claim))
	_, err := w.manager().Fence(t.Context(), w.record.Handoff)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "claim payments/data-etcd-2 will be deleted, with its data") || *w.set().Spec.Replicas != 3 {
		t.Errorf("%v, replicas %d", err, *w.set().Spec.Replicas)
	}
	get(w, "etcd-0", &corev1.Pod{})
}

// TestFenceTakesClaimsFromTheirOwners checks that Fence removes the references of claims to the StatefulSet and its pods, with which Kubernetes would
// delete the claims. Before, the controller must know that it retains them, or it would add the references again. No pod is deleted until then.
func TestFenceTakesClaimsFromTheirOwners(t *testing.T) {
	w := newWorld(t, "parallel", deleting)
	w.plan()
	w.run(map[string]string{"etcd-0": "n1"})
	stranger := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Pod", Name: "etcd-0", UID: "e"}
	owners := map[string]metav1.OwnerReference{
		"data-etcd-0": {APIVersion: "apps/v1", Kind: "StatefulSet", Name: "etcd", UID: "5d1f"},
		"data-etcd-1": {APIVersion: "v1", Kind: "Pod", Name: "etcd-1", UID: "gone"},
	}
	for name, owner := range owners {
		change(w, name, &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = []metav1.OwnerReference{owner, stranger} })
	}
	want := func(waiting string, references int) {
		t.Helper()
		p, err := w.manager().Fence(t.Context(), w.record.Handoff)
		got := 0
		for name := range owners {
			got += len(get(w, name, &corev1.PersistentVolumeClaim{}).OwnerReferences)
		}
		if err != nil || p.Waiting != waiting || got != references || *w.set().Spec.Replicas != 3 {
			t.Fatalf("%+v, %v, %d references, %d replicas; want %q, %d references", p, err, got, *w.set().Spec.Replicas, waiting, references)
		}
		get(w, "etcd-0", &corev1.Pod{})
	}
	want("keeping Kubernetes from deleting the claims", 4)
	annotations := w.set().Annotations // the way back needs them, also if the record is lost
	if annotations["etcd-dr.io/restore"] != restoreID || !strings.Contains(annotations["etcd-dr.io/saved"], `"whenDeleted":"Delete"`) {
		t.Errorf("the annotations are %q", annotations)
	}
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Generation = 2 })
	want("the StatefulSet controller has not acted on the retention of claims yet", 4)
	change(w, "etcd", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Status.ObservedGeneration = 2 })
	want("removing owner references from the claims", 2)
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	retained := *w.set().Spec.PersistentVolumeClaimRetentionPolicy
	wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
	w.lift(handoff.Succeeded)
	after := *w.set().Spec.PersistentVolumeClaimRetentionPolicy
	const deletes, retains = appsv1.DeletePersistentVolumeClaimRetentionPolicyType, appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if retained.WhenScaled != retains || retained.WhenDeleted != retains || after.WhenScaled != deletes || after.WhenDeleted != deletes {
		t.Errorf("the policy is %+v while the members are stopped, and %+v afterwards", retained, after)
	}
}

// TestReleasePublishesAddresses checks that the Service publishes addresses that are not ready before a member starts: the members may be ready only
// after they have found one another. Afterwards it hides them again.
func TestReleasePublishesAddresses(t *testing.T) {
	w := newWorld(t, "parallel")
	change(w, "etcd", &corev1.Service{}, func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false })
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
	for _, replicas := range []int32{0, 3} {
		wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
		if !get(w, "etcd", &corev1.Service{}).Spec.PublishNotReadyAddresses || *w.set().Spec.Replicas != replicas {
			t.Errorf("the Service hides addresses, or there are %d replicas, want %d", *w.set().Spec.Replicas, replicas)
		}
	}
	w.lift(handoff.Succeeded)
	if get(w, "etcd", &corev1.Service{}).Spec.PublishNotReadyAddresses {
		t.Error("the Service publishes addresses that are not ready")
	}
}

// TestSettled checks when the StatefulSet counts as content.
func TestSettled(t *testing.T) {
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }
	ready := func(p *corev1.Pod, since, started time.Duration) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(since)}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(started)}}}}
	}
	for name, c := range map[string]struct {
		last func(*corev1.Pod) // changes etcd-2; nil: it is missing
		want string            // "": done
	}{
		"calm":          {func(p *corev1.Pod) { ready(p, 31*time.Second, time.Minute) }, ""},
		"just ready":    {func(p *corev1.Pod) { ready(p, 10*time.Second, time.Minute) }, "pod etcd-2 has been ready and unchanged for 1"},
		"just started":  {func(p *corev1.Pod) { ready(p, time.Hour, 3*time.Second) }, "pod etcd-2 has been ready and unchanged for "},
		"ending":        {func(p *corev1.Pod) { ready(p, time.Hour, time.Hour); p.DeletionTimestamp = new(ago(0)) }, "pod etcd-2 is ending"},
		"missing":       {nil, "pod etcd-2 does not exist"},
		"not ready":     {func(*corev1.Pod) {}, "pod etcd-2 is not ready: its probe fails"},
		"cannot start":  {func(p *corev1.Pod) { p.Status = waiting("CrashLoopBackOff", "back-off 10s") }, "pod etcd-2 is not ready: CrashLoopBackOff: back-off 10s"},
		"not scheduled": {func(p *corev1.Pod) { p.Status = unschedulable("no node") }, "pod etcd-2 is not ready: Unschedulable: no node"},
	} {
		t.Run(name, func(t *testing.T) {
			var pods []*corev1.Pod
			for _, name := range []string{"etcd-0", "etcd-1", "etcd-2"} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "etcd"}}}
				switch {
				case name != "etcd-2":
					ready(pod, time.Hour, time.Hour)
				case c.last == nil:
					continue
				default:
					c.last(pod)
				}
				pods = append(pods, pod)
			}
			w := newWorldWith(t, "parallel", pods)
			w.plan()
			p, err := w.manager().Settled(t.Context(), w.record.Handoff)
			if err != nil || !strings.HasPrefix(p.Waiting, c.want) || p.Done != (c.want == "") {
				t.Errorf("%+v, %v; want %q", p, err, c.want)
			}
		})
	}
}

// TestFenceWaitsForTheLastPodOfAClaim checks that a claim which ends with a pod on a dead node does not hide that pod.
func TestFenceWaitsForTheLastPodOfAClaim(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "etcd-1", Labels: map[string]string{"app": "etcd"}, DeletionTimestamp: new(metav1.NewTime(time.Now().Add(-time.Minute))),
		},
		Spec: corev1.PodSpec{NodeName: "n2"},
	}
	w := newWorldWith(t, "parallel", []*corev1.Pod{pod})
	w.plan()
	claim := change(w, "data-etcd-1", &corev1.PersistentVolumeClaim{}, func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"x/y"} })
	must(t, w.client.Delete(t.Context(), claim))
	for range 2 {
		p, err := w.manager().Fence(t.Context(), w.record.Handoff)
		must(t, err)
		if *w.set().Spec.Replicas == 0 && strings.Contains(p.Waiting, "node n2 has not confirmed the end of pod etcd-1") {
			return
		}
	}
	t.Error("Fence does not name the node")
}
