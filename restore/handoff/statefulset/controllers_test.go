package statefulset_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/test/apiserver"
	"github.com/etcd-dr/etcd-dr/test/operators"
	"github.com/etcd-dr/etcd-dr/test/servers"
)

// site is a namespace of a real API server with real controllers. There is no node: the test acts as the kubelet.
type site struct {
	*world
	api *apiserver.APIServer
	// operator acts as the operator that owns the StatefulSet; nil: none does.
	operator func()
	// quorum is how many members must run until one is ready.
	quorum int
	// report is the message that the Jobs of a task leave; "": they are not run.
	report map[handoff.Task]string
}

// TestWithControllers runs the tests that need Kubernetes' own controllers, on one API server.
func TestWithControllers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real servers")
	}
	api := apiserver.Start(t, servers.Start(t, servers.Options{Version: "3.6"}))
	api.StartControllers(t)
	api.Kubectl(t, "", "create", "priorityclass", "high", "--value=1")
	config, err := clientcmd.BuildConfigFromFlags("", api.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(s *site){
		"FenceAfterLostQuorum": testFenceAfterLostQuorum,
		"ScaledUpAgain":        testScaledUpAgain,
		"PodsAreTwins":         testPodsAreTwins,
		"Restore":              testRestore,
		"WayBack":              testWayBack,
		"NothingStarted":       testNothingStarted,
		"OwnedByCnych":         func(s *site) { testOwned(s, operators.Cnych, dynamicClient) },
		"OwnedByEtcdIO":        func(s *site) { testOwned(s, operators.EtcdIO, dynamicClient) },
	} {
		t.Run(name, func(t *testing.T) {
			api.Kubectl(t, "", "create", "namespace", namespace)
			s := &site{world: &world{t: t, client: c}, api: api, quorum: 2, report: map[handoff.Task]string{}}
			s.options = statefulset.Options{Client: c, Namespace: namespace, Name: "etcd", ID: restoreID, Jobs: statefulset.Jobs{Image: "etcd-dr:v1"}}
			s.record = handoff.New(restoreID, handoff.Orders{}, time.Now().UTC())
			test(s)
			s.clear()
		})
	}
}

// clear removes the namespace. The kubelet has to confirm the end of its pods.
func (s *site) clear() {
	s.api.Kubectl(s.t, "", "delete", "namespace", namespace, "--wait=false")
	s.until("the namespace is gone", func() bool {
		return !s.api.Try(s.t, "", "get", "namespace", namespace).OK
	})
}

// until waits until holds returns true, and acts as the kubelet meanwhile.
func (s *site) until(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited for: %s\n%s", what, s.api.Try(s.t, "", "-n", namespace, "get", "sts,pods,jobs,pvc,cm", "-o", "yaml").Stdout)
		}
		s.kubelet()
		if s.operator != nil {
			s.operator()
		}
	}
}

// done calls a step until it is done.
func (s *site) done(name string, step func(context.Context, handoff.Handoff) (handoff.Progress, error)) {
	s.t.Helper()
	s.until(name, func() bool {
		p, err := step(s.t.Context(), s.record.Handoff)
		if err != nil {
			s.t.Fatalf("%s: %v", name, err)
		}
		return p.Done
	})
}

// kubelet ends pods that are deleted, runs the members', and ends those of Jobs with a report.
func (s *site) kubelet() {
	pods := s.pods("")
	running := 0
	for _, pod := range pods {
		if pod.Labels["app"] == "etcd" && pod.DeletionTimestamp == nil {
			running++
		}
	}
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil:
			err := s.client.Delete(s.t.Context(), &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
			s.check(client.IgnoreNotFound(err))
		case pod.Labels["app"] == "etcd":
			s.setStatus(pod, member(running >= s.quorum))
		case pod.Status.Phase == corev1.PodPending:
			task, _, _ := strings.Cut(pod.Labels["etcd-dr.io/turn"], "-")
			report := s.report[handoff.Task(task)]
			if report != "" {
				status := terminated(report)
				status.Phase, status.ContainerStatuses[0].State.Terminated.ExitCode = corev1.PodSucceeded, 0
				s.setStatus(pod, status)
			}
		}
	}
}

// member is the status of a member's pod.
func member(ready bool) corev1.PodStatus {
	began := metav1.NewTime(time.Now().Add(-time.Hour)) // so that no test waits for half a minute
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	return corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: began}}}
}

func (s *site) setStatus(pod corev1.Pod, status corev1.PodStatus) {
	if pod.Status.Phase == status.Phase && len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == status.Conditions[0].Status {
		return
	}
	after := pod.DeepCopy()
	after.Status = status
	err := s.client.Status().Patch(s.t.Context(), after, client.MergeFrom(&pod))
	s.check(client.IgnoreNotFound(err))
}

func (s *site) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// pods returns the pods of the namespace with a label app.
func (s *site) pods(app string) []corev1.Pod {
	s.t.Helper()
	options := []client.ListOption{client.InNamespace(namespace)}
	if app != "" {
		options = append(options, client.MatchingLabels{"app": app})
	}
	var list corev1.PodList
	s.check(s.client.List(s.t.Context(), &list, options...))
	return list.Items
}

// start creates the Service and the StatefulSet of a file, and waits until its pods are ready.
func (s *site) start(file string, edit func(*appsv1.StatefulSet)) {
	s.t.Helper()
	text, err := os.ReadFile("testdata/" + file + ".yaml")
	s.check(err)
	service, set, _ := strings.Cut(string(text), "\n---\n")
	s.api.Kubectl(s.t, service, "create", "-f", "-")
	created := &appsv1.StatefulSet{}
	s.check(yaml.Unmarshal([]byte(set), created))
	created.UID = ""
	edit(created)
	s.create(created)
	s.until("all pods are ready", func() bool { return s.set().Status.ReadyReplicas == *created.Spec.Replicas })
}

// inOrder makes a StatefulSet start its pods one after the other. They are ready at once, unless a test changes the quorum.
func (s *site) inOrder(edits ...func(*appsv1.StatefulSet)) {
	s.t.Helper()
	s.quorum = 1
	s.start("parallel", func(set *appsv1.StatefulSet) {
		set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		for _, edit := range edits {
			edit(set)
		}
	})
}

func deleting(set *appsv1.StatefulSet) {
	const deletes = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: deletes, WhenDeleted: deletes}
}

// testFenceAfterLostQuorum fences members of which none is ready, while Kubernetes would delete their claims and not their pods.
func testFenceAfterLostQuorum(s *site) {
	s.inOrder(deleting)
	s.quorum = 4
	s.until("no pod is ready", func() bool { return s.set().Status.ReadyReplicas == 0 })
	s.record.Handoff = s.inspect()
	s.done("fence", s.manager().Fence)
	set := s.set()
	if *set.Spec.Replicas != 0 || len(s.pods("etcd")) > 0 || set.Annotations["etcd-dr.io/restore"] != restoreID {
		s.t.Errorf("%+v, %d pods", set.ObjectMeta, len(s.pods("etcd")))
	}
	for i := range 3 {
		claim := get(s.world, fmt.Sprint("data-etcd-", i), &corev1.PersistentVolumeClaim{})
		if claim.DeletionTimestamp != nil || len(claim.OwnerReferences) > 0 {
			s.t.Errorf("%+v", claim.ObjectMeta)
		}
	}
	again := s.inspect()
	if again.Saved != s.record.Handoff.Saved || len(again.Members) != 3 {
		s.t.Errorf("it is inspected as %+v, before as %+v", again, s.record.Handoff)
	}
}

// testScaledUpAgain scales the StatefulSet up whenever it was fenced.
func testScaledUpAgain(s *site) {
	s.inOrder()
	s.record.Handoff = s.inspect()
	for n := 1; ; n++ {
		var failure error
		s.until("fence", func() bool {
			p, err := s.manager().Fence(s.t.Context(), s.record.Handoff)
			failure = err
			return p.Done || err != nil
		})
		if n <= 5 && failure == nil {
			s.api.Kubectl(s.t, "", "-n", namespace, "scale", "statefulset/etcd", "--replicas=3")
			continue
		}
		const want = "kubectl has scaled StatefulSet payments/etcd up 5 times"
		if n != 6 || handoff.IsFinal(failure) != true || !strings.Contains(fmt.Sprint(failure), want) || *s.set().Spec.Replicas != 0 {
			s.t.Errorf("after %d times: %v, replicas %d", n-1, failure, *s.set().Spec.Replicas)
		}
		break
	}
	s.done("return", s.manager().Return)
	s.until("fence after the return", func() bool { // which counts from the beginning
		p, err := s.manager().Fence(s.t.Context(), s.record.Handoff)
		s.check(err)
		return p.Done
	})
}

// testPodsAreTwins compares the pods that Release creates with those of the controller. No revision appears, and no pod is replaced.
func testPodsAreTwins(s *site) {
	s.inOrder(func(set *appsv1.StatefulSet) {
		set.Spec.Template.Annotations = map[string]string{"note": "a"}
		set.Spec.Template.Finalizers = []string{"example.com/f"}
		set.Spec.Template.Spec.Containers[0].Name = "first"
	})
	made := s.pods("etcd")
	revisions := s.revisions()
	s.record.Handoff = s.inspect()
	s.quorum = 2
	finalizers := s.dropFinalizers
	s.until("fence", func() bool {
		finalizers()
		p, err := s.manager().Fence(s.t.Context(), s.record.Handoff)
		s.check(err)
		return p.Done
	})
	s.done("release", s.manager().Release)
	s.until("all pods are ready", func() bool { return s.set().Status.ReadyReplicas == 3 })
	twins := s.pods("etcd")
	if len(twins) != 3 || s.revisions() != revisions || s.set().Status.UpdatedReplicas != 3 {
		s.t.Fatalf("%d pods, revisions %s and %s, status %+v", len(twins), revisions, s.revisions(), s.set().Status)
	}
	for i := range twins {
		diff := cmp.Diff(lasting(made[i]), lasting(twins[i]))
		if diff != "" {
			s.t.Errorf("pod %d (-controller +restore):\n%s", i, diff)
		}
	}
	s.dropFinalizersOnDelete()
}

// lasting returns a pod without the fields that differ between any two pods of the same name.
func lasting(pod corev1.Pod) corev1.Pod {
	pod.UID, pod.ResourceVersion, pod.CreationTimestamp, pod.ManagedFields, pod.Status = "", "", metav1.Time{}, nil, corev1.PodStatus{}
	pod.Generation = 0
	pod.OwnerReferences = slices.Clone(pod.OwnerReferences)
	for i := range pod.OwnerReferences {
		pod.OwnerReferences[i].BlockOwnerDeletion = nil // see newPod
	}
	slices.SortFunc(pod.Spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	return pod
}

// revisions returns the names of the ControllerRevisions.
func (s *site) revisions() string {
	s.t.Helper()
	return s.api.Kubectl(s.t, "", "-n", namespace, "get", "controllerrevisions", "-o", "name")
}

func (s *site) dropFinalizers() {
	for _, pod := range s.pods("etcd") {
		if pod.DeletionTimestamp != nil && len(pod.Finalizers) > 0 {
			s.api.Try(s.t, "", "-n", namespace, "patch", "pod", pod.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		}
	}
}

func (s *site) dropFinalizersOnDelete() {
	s.api.Kubectl(s.t, "", "-n", namespace, "delete", "statefulset", "etcd", "--cascade=orphan")
	for _, pod := range s.pods("etcd") {
		s.api.Kubectl(s.t, "", "-n", namespace, "patch", "pod", pod.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	}
}

// restore carries out a restore. Each Job ends with the report in s.report.
func (s *site) restore(orders func(step handoff.Step) handoff.Orders) (path []handoff.Step) {
	s.t.Helper()
	m := s.manager()
	act := handoff.Restore{
		Manager: m, Claim: claim{m},
		Plan: func(context.Context, handoff.Handoff, []handoff.Met) (plan.Plan, error) {
			s.plan()
			return *s.record.Plan, nil
		},
		Verify: func(context.Context, handoff.Handoff, handoff.Built) (handoff.Progress, error) {
			return handoff.Progress{Done: s.set().Status.ReadyReplicas == 3, Waiting: "members are not ready"}, nil
		},
	}
	before, r := handoff.Record{}, handoff.New(restoreID, handoff.Orders{}, time.Now().UTC())
	s.until("the restore ends", func() bool {
		s.check(m.Save(s.t.Context(), before, r))
		if r.Step == handoff.None {
			return true
		}
		stored, err := m.Load(s.t.Context(), restoreID)
		s.check(err)
		before = stored
		r = act.Act(s.t.Context(), stored, orders(stored.Step), func() time.Time { return time.Now().UTC() })
		if len(path) == 0 || path[len(path)-1] != r.Step {
			path = append(path, r.Step)
		}
		return false
	})
	s.record = r
	return path
}

// claim is a handoff.Claim without a repository.
type claim struct{ *statefulset.Manager }

func (claim) Pin(context.Context, handoff.Record) (handoff.Progress, error) {
	return handoff.Progress{Done: true}, nil
}

func (claim) Suspend(context.Context, handoff.Record) (handoff.Progress, error) {
	return handoff.Progress{Done: true}, nil
}

// reportAll makes all Jobs report that they are done.
func (s *site) reportAll() {
	for _, task := range []handoff.Task{
		handoff.DoSeal, handoff.DoPlace, handoff.DoReview, handoff.DoWithdraw, handoff.DoBack, handoff.DoDiscard, handoff.DoClean,
	} {
		s.report[task] = `{"done":true}`
	}
	s.report[handoff.DoStage] = `{"done":true,"built":{"clusterID":"cafe","revision":7,"keys":3,"seconds":1}}`
}

// testNothingStarted orders a restore back whose Jobs have pods that no node has: it ends without another Job, and those are gone.
func testNothingStarted(s *site) {
	s.inOrder()
	waits := 0
	path := s.restore(func(step handoff.Step) handoff.Orders {
		if step == handoff.Stage {
			waits++
		}
		return handoff.Orders{Limit: time.Hour, Back: waits > 20}
	})
	var jobs batchv1.JobList
	s.check(s.client.List(s.t.Context(), &jobs, client.InNamespace(namespace)))
	want := []handoff.Step{handoff.Plan, handoff.Pin, handoff.Stage, handoff.Discard, handoff.Lift, handoff.None}
	if s.record.Phase != handoff.Refused || !slices.Equal(path, want) || len(jobs.Items) > 0 || len(s.pods("")) != 3 {
		s.t.Errorf("%s: %+v, %d Jobs, %d pods", path, s.record, len(jobs.Items), len(s.pods("")))
	}
}

// testRestore restores a StatefulSet that starts in order, needs a quorum, hides members that are not ready and deletes claims. Afterwards
// all of it is as it was, but for the memory of the restore.
func testRestore(s *site) {
	s.inOrder(deleting)
	s.api.Kubectl(s.t, "", "-n", namespace, "patch", "service", "etcd", "--type=merge", "-p", `{"spec":{"publishNotReadyAddresses":false}}`)
	s.quorum = 2
	s.reportAll()
	s.options.Origin = "nightly@1f3a"
	before := s.set()
	path := s.restore(func(handoff.Step) handoff.Orders { return handoff.Orders{Limit: time.Hour} })
	if s.record.Phase != handoff.Succeeded || s.record.Built.Revision != 7 {
		s.t.Fatalf("%s: %+v", path, s.record)
	}
	s.wantAsBefore(before, map[string]string{"etcd-dr.io/restored": "nightly@1f3a"})
	s.until("nothing of the restore is left", func() bool {
		var jobs batchv1.JobList
		var maps corev1.ConfigMapList
		s.check(s.client.List(s.t.Context(), &jobs, client.InNamespace(namespace)))
		s.check(s.client.List(s.t.Context(), &maps, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "etcd-dr-restore"}))
		return len(jobs.Items) == 0 && len(maps.Items) == 0
	})
	s.record = handoff.New(restoreID, handoff.Orders{}, time.Now().UTC())
	_, err := s.manager().Take(s.t.Context(), s.record)
	if !handoff.IsFinal(err) || !strings.Contains(err.Error(), "was restored by nightly@1f3a already") {
		s.t.Errorf("the same order, again: %v", err)
	}
}

// testOwned restores an EtcdCluster while a stand-in for its operator runs. The new members have the settings of the old ones, and the operator
// replaces none. In the end it controls the StatefulSet again.
func testOwned(s *site, operator operators.Operator, c dynamic.Interface) {
	s.api.Kubectl(s.t, operator.Definition(), "create", "-f", "-")
	s.api.Kubectl(s.t, operator.Definition(), "wait", "--for=condition=Established", "-f", "-")
	s.api.Kubectl(s.t, operator.EtcdCluster("etcd", 3), "-n", namespace, "create", "-f", "-")
	s.quorum = 1
	s.operator = func() { s.check(operator.Reconcile(s.t.Context(), c, namespace, "etcd")) }
	defer func() { s.operator = nil }()
	for range 2 {
		s.operator()
	}
	s.until("all pods are ready", func() bool { return s.set().Status.ReadyReplicas == 3 })
	s.reportAll()
	before, started := s.set(), s.pods("etcd")
	path := s.restore(func(handoff.Step) handoff.Orders { return handoff.Orders{Limit: time.Hour} })
	if s.record.Phase != handoff.Succeeded {
		s.t.Fatalf("%s: %+v", path, s.record)
	}
	pods := s.pods("etcd")
	for range 3 {
		s.operator()
		s.kubelet()
	}
	s.until("the StatefulSet controller has acted", func() bool { return s.set().Status.ObservedGeneration == s.set().Generation })
	after := s.set()
	if after.Status.CurrentRevision != after.Status.UpdateRevision || after.Status.UpdateRevision != before.Status.UpdateRevision {
		s.t.Errorf("the revision of the pods was %s, and is %s: %s", before.Status.UpdateRevision, after.Status.CurrentRevision, after.Status.UpdateRevision)
	}
	env := func(pods []corev1.Pod) []corev1.EnvVar { return pods[0].Spec.Containers[0].Env }
	diff := cmp.Diff(before.Annotations, after.Annotations) + cmp.Diff(before.OwnerReferences, after.OwnerReferences) +
		cmp.Diff(env(started), env(pods)) + cmp.Diff(lastingOf(pods), lastingOf(s.pods("etcd")))
	if diff != "" {
		s.t.Errorf("after the restore (-before +after):\n%s", diff)
	}
}

// lastingOf returns pods without the fields that differ between any two pods of the same name, but with their UIDs.
func lastingOf(pods []corev1.Pod) (all []corev1.Pod) {
	for _, pod := range pods {
		one := lasting(pod)
		one.UID = pod.UID
		all = append(all, one)
	}
	return all
}

// testWayBack orders a restore to go back once new data is in place.
func testWayBack(s *site) {
	s.inOrder(deleting)
	s.api.Kubectl(s.t, "", "-n", namespace, "patch", "service", "etcd", "--type=merge", "-p", `{"spec":{"publishNotReadyAddresses":false}}`)
	s.quorum = 2
	s.reportAll()
	s.options.Origin = "nightly@1f3a"
	before := s.set()
	path := s.restore(func(step handoff.Step) handoff.Orders {
		return handoff.Orders{Limit: time.Hour, Back: step == handoff.Release}
	})
	if s.record.Phase != handoff.Failed || !slices.Contains(path, handoff.Back) {
		s.t.Fatalf("%s: %+v", path, s.record)
	}
	s.wantAsBefore(before, nil)
}

// wantAsBefore checks the StatefulSet, the Service and the claims.
func (s *site) wantAsBefore(before *appsv1.StatefulSet, annotations map[string]string) {
	s.t.Helper()
	after := s.set()
	diff := cmp.Diff(before.Spec, after.Spec) + cmp.Diff(annotations, after.Annotations)
	if diff != "" {
		s.t.Errorf("the StatefulSet (-before +after):\n%s", diff)
	}
	if get(s.world, "etcd", &corev1.Service{}).Spec.PublishNotReadyAddresses {
		s.t.Error("the Service publishes addresses that are not ready")
	}
	s.until("the claims belong to the StatefulSet again", func() bool {
		c := get(s.world, "data-etcd-0", &corev1.PersistentVolumeClaim{})
		return c.DeletionTimestamp == nil && len(c.OwnerReferences) == 1 && c.OwnerReferences[0].UID == after.UID
	})
}
