package restores_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/controller/restores"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const namespace = "payments"

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "nightly"}}

// world has an EtcdRestore with its StatefulSet in a fake API server, and a repository. No controller acts on them.
type world struct {
	*testing.T
	client     client.Client
	bucket     storage.Bucket
	store      *repository.Cluster
	reconciler *restores.Reconciler
	tasks      []handoff.Task // on the disks, each of which is done at once
	events     []string
}

// target is a StatefulSet whose Jobs are done at once.
type target struct {
	*statefulset.Manager
	w *world
}

func (t target) Do(_ context.Context, r handoff.Record, task handoff.Task) ([]handoff.Progress, error) {
	t.w.tasks = append(t.w.tasks, task)
	return slices.Repeat([]handoff.Progress{{Done: true}}, len(r.Handoff.Members)), nil
}

func (w *world) Settings(context.Context, *v1alpha1.EtcdRestore) (restores.Settings, error) {
	return restores.Settings{Cluster: "payments.etcd"}, nil
}

func (w *world) Repository(context.Context, string, restores.Settings) (spec.Repository, error) {
	return spec.Repository{Name: "main"}, nil
}

func (w *world) Access(context.Context, string, v1alpha1.Access) (cluster.Config, error) {
	return cluster.Config{}, nil
}

func (w *world) Eventf(_, _ runtime.Object, _, reason, _, format string, args ...any) {
	w.events = append(w.events, reason+": "+fmt.Sprintf(format, args...))
}

// newWorld returns a world with a restore in a phase, whose members are stopped, and with no record.
func newWorld(t *testing.T, phase handoff.Phase) *world {
	w := &world{T: t, bucket: mem.New()}
	w.store = stored.OpenCluster(t, w.bucket, "payments.etcd")
	scheme := runtime.NewScheme()
	w.must(clientscheme.AddToScheme(scheme))
	w.must(v1alpha1.AddToScheme(scheme))
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.EtcdRestore{}).WithObjects(w.objects(phase)...).Build()
	w.reconciler = &restores.Reconciler{
		Client: w.client, Uncached: w.client, Group: v1alpha1.GroupVersion.Group, Image: "dr:v1", Leads: func() bool { return true }, Events: w, Sources: w,
		Open:   func(context.Context, spec.Repository) (storage.Bucket, error) { return w.bucket, nil },
		Target: func(o statefulset.Options) restores.Target { return target{statefulset.New(o), w} },
	}
	_, err := w.store.Services().Write(t.Context(), suspension.Suspension{Suspended: true, Time: time.Now(), By: author})
	w.must(err)
	return w
}

// author is the author of the restore's suspension.
var author = "EtcdRestore payments/nightly, restore " + id() + " of StatefulSet payments/etcd"

// id returns the id of the restore.
func id() string {
	sum := sha256.Sum256([]byte("the-uid"))
	return hex.EncodeToString(sum[:8])
}

func (w *world) objects(phase handoff.Phase) []client.Object {
	e := &v1alpha1.EtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly", UID: "the-uid", Finalizers: []string{restores.Finalizer}},
		Spec: v1alpha1.EtcdRestoreSpec{
			Confirm: "etcd", Target: v1alpha1.RestoreTarget{Latest: &v1alpha1.Latest{}}, Into: v1alpha1.RestoreInto{StatefulSet: v1alpha1.StatefulSetName{Name: "etcd"}},
		},
		Status: v1alpha1.EtcdRestoreStatus{Phase: v1alpha1.RestorePhase(phase), Plan: &v1alpha1.RestorePlan{ID: "p1"}},
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "etcd",
			Annotations: map[string]string{"etcd-dr.io/restore": id(), "etcd-dr.io/saved": `{"replicas":3,"stopped":true}`},
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(0)), ServiceName: "etcd", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "etcd"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "etcd", Command: []string{"etcd", "--data-dir=/data/etcd", "--initial-advertise-peer-urls=http://$(NAME).etcd:2380"},
					Env:          []corev1.EnvVar{{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
	}
	all := []client.Object{e, set, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	for i := range 3 {
		e.Status.Members = append(e.Status.Members, v1alpha1.RestoreMemberStatus{Name: fmt.Sprint("etcd-", i), Disk: fmt.Sprint("data-etcd-", i)})
		all = append(all, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("data-etcd-", i)},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
		})
	}
	return all
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// reconcile reconciles the EtcdRestore until holds returns true, and creates the pods of a StatefulSet that is scaled up.
func (w *world) reconcile(holds func(v1alpha1.EtcdRestore, *appsv1.StatefulSet) bool) v1alpha1.EtcdRestore {
	w.Helper()
	for range 40 {
		_, err := w.reconciler.Reconcile(w.Context(), request)
		w.must(err)
		var e v1alpha1.EtcdRestore
		err = w.client.Get(w.Context(), request.NamespacedName, &e)
		w.must(client.IgnoreNotFound(err))
		set := w.set()
		if holds(e, set) {
			return e
		}
		w.run(set)
	}
	w.Fatalf("it does not end: tasks %q, events %q", w.tasks, w.events)
	return v1alpha1.EtcdRestore{}
}

func (w *world) set() *appsv1.StatefulSet {
	w.Helper()
	set := &appsv1.StatefulSet{}
	err := w.client.Get(w.Context(), types.NamespacedName{Namespace: namespace, Name: "etcd"}, set)
	w.must(client.IgnoreNotFound(err))
	return set
}

// run creates the pods of a StatefulSet.
func (w *world) run(set *appsv1.StatefulSet) {
	w.Helper()
	for i := range *replicasOf(set) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("etcd-", i), Labels: map[string]string{"app": "etcd"}}}
		err := w.client.Create(w.Context(), pod)
		if !apierrors.IsAlreadyExists(err) {
			w.must(err)
		}
	}
}

// replicasOf returns the replicas of a StatefulSet; 0 of one that does not exist.
func replicasOf(set *appsv1.StatefulSet) *int32 {
	if set.Spec.Replicas == nil {
		return new(int32)
	}
	return set.Spec.Replicas
}

// isSuspended reports whether the backups of the cluster are suspended.
func (w *world) isSuspended() bool {
	w.Helper()
	now, err := w.store.Services().Read(w.Context())
	w.must(err)
	return now.Suspended
}

// TestLostRecordGoesBack continues restores whose record another program has deleted while members were stopped: they put the old data back,
// start the members, and lift all that they held.
func TestLostRecordGoesBack(t *testing.T) {
	for _, phase := range []handoff.Phase{handoff.Staging, handoff.Fencing, handoff.Sealing, handoff.Placing, handoff.RollingBack} {
		w := newWorld(t, phase)
		e := w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool {
			return e.Status.Phase == "Failed" && e.Status.OldData != nil
		})
		set := w.set()
		if *set.Spec.Replicas != 3 || len(set.Annotations) > 0 || w.isSuspended() || !slices.Equal(w.tasks, []handoff.Task{"withdraw", "back", "discard"}) {
			t.Errorf("%s: replicas %d, annotations %v, suspended: %t, tasks %q", phase, *set.Spec.Replicas, set.Annotations, w.isSuspended(), w.tasks)
		}
		if !strings.Contains(e.Status.Message, "the record of the restore was deleted") || e.Status.Plan == nil {
			t.Errorf("%s: %+v", phase, e.Status)
		}
	}
}

// TestLostRecordAfterTheRelease continues restores whose record was deleted once restored members may have served: they start all members,
// and do not go back by themselves.
func TestLostRecordAfterTheRelease(t *testing.T) {
	for _, phase := range []handoff.Phase{handoff.Releasing, handoff.Verifying} {
		w := newWorld(t, phase)
		w.reconcile(func(e v1alpha1.EtcdRestore, set *appsv1.StatefulSet) bool {
			return e.Status.Phase == "Releasing" && *set.Spec.Replicas == 3
		})
		if len(w.tasks) > 0 || !w.isSuspended() {
			t.Errorf("%s: tasks %q, suspended: %t", phase, w.tasks, w.isSuspended())
		}
	}
}

// TestLostRecordOfAnEndedRestore deletes the record of a restore that keeps old data: the status names what a person has to remove.
func TestLostRecordOfAnEndedRestore(t *testing.T) {
	w := newWorld(t, handoff.Succeeded)
	var e v1alpha1.EtcdRestore
	w.must(w.client.Get(t.Context(), request.NamespacedName, &e))
	e.Status.OldData = &v1alpha1.OldData{Until: metav1.Now()}
	w.must(w.client.Status().Update(t.Context(), &e))
	e = w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool { return len(e.Finalizers) == 0 })
	if e.Status.OldData != nil || !strings.Contains(e.Status.Message, "data-etcd-0, data-etcd-1, data-etcd-2 in folders whose names begin with .dr-swap- and end with "+id()) {
		t.Errorf("%+v", e.Status)
	}
}

// TestDeletedStatefulSet deletes the StatefulSet in the middle of a restore. The restore waits for another one, and its status names the
// folders on the disks. Once the EtcdRestore is deleted too, its finalizer is removed, and an event names the folders.
func TestDeletedStatefulSet(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		w := newWorld(t, handoff.Sealing)
		if recorded {
			w.reconcile(func(v1alpha1.EtcdRestore, *appsv1.StatefulSet) bool { return len(w.tasks) > 0 })
		}
		w.must(w.client.Delete(t.Context(), w.set()))
		const remains = "StatefulSet payments/etcd was deleted: the old data is on data-etcd-0, data-etcd-1, data-etcd-2 in folders"
		e := w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool {
			return strings.Contains(e.Status.Message, remains)
		})
		if len(e.Finalizers) == 0 || !strings.Contains(e.Status.Message, "create it again, and the restore continues") {
			t.Errorf("recorded: %t: %+v", recorded, e)
		}
		w.must(w.client.Delete(t.Context(), &e))
		w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool { return e.Name == "" })
		last := w.events[len(w.events)-1]
		if !strings.HasPrefix(last, "RestoreAbandoned: "+remains) || w.isSuspended() {
			t.Errorf("recorded: %t: suspended: %t, events %q", recorded, w.isSuspended(), w.events)
		}
		var maps corev1.ConfigMapList
		w.must(w.client.List(t.Context(), &maps))
		if len(maps.Items) > 0 {
			t.Errorf("recorded: %t: %+v", recorded, maps.Items)
		}
	}
}

// TestDeletedNamespace deletes the namespace in the middle of a restore, with or without its record: the backups are taken again. Without the
// repository, which may have no credentials any more, the EtcdRestore goes all the same.
func TestDeletedNamespace(t *testing.T) {
	for name, test := range map[string]struct{ recorded, reachable bool }{
		"with a record": {true, true}, "without a record": {false, true}, "without the repository": {true, false},
	} {
		w := newWorld(t, handoff.Sealing)
		if test.recorded {
			w.reconcile(func(v1alpha1.EtcdRestore, *appsv1.StatefulSet) bool { return len(w.tasks) > 0 })
		}
		if !test.reachable {
			w.reconciler.Open = func(context.Context, spec.Repository) (storage.Bucket, error) { return nil, fault.Denied }
		}
		var home corev1.Namespace
		w.must(w.client.Get(t.Context(), types.NamespacedName{Name: namespace}, &home))
		home.Finalizers = []string{"example.com/kept"}
		w.must(w.client.Update(t.Context(), &home))
		w.must(w.client.Delete(t.Context(), &home))
		w.must(w.client.Delete(t.Context(), &v1alpha1.EtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}))
		w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool { return e.Name == "" })
		warned := slices.ContainsFunc(w.events, func(e string) bool {
			return strings.HasPrefix(e, "SuspensionNotEnded") && strings.Contains(e, "dr resume")
		})
		if w.isSuspended() == test.reachable || warned == test.reachable {
			t.Errorf("%s: suspended: %t, events %q", name, w.isSuspended(), w.events)
		}
	}
}

// TestClaimWithoutARecord deletes an EtcdRestore that was killed after it had claimed the StatefulSet, and before its record was stored: the
// claim ends too.
func TestClaimWithoutARecord(t *testing.T) {
	w := newWorld(t, handoff.Pending)
	claim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etcd-dr-restore.etcd"}, Data: map[string]string{"holder": id()}}
	w.must(w.client.Create(t.Context(), claim))
	w.must(w.client.Delete(t.Context(), &v1alpha1.EtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}))
	w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool { return e.Name == "" })
	var maps corev1.ConfigMapList
	w.must(w.client.List(t.Context(), &maps))
	for _, m := range maps.Items {
		if m.Data["holder"] != "" {
			t.Errorf("restore %s has still claimed the StatefulSet", m.Data["holder"])
		}
	}
}
