package restores_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/etcd-dr/etcd-dr/api/controller/restores"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// manager returns the manager of the StatefulSet, as the restore's process has it.
func (w *world) manager() *statefulset.Manager {
	return statefulset.New(statefulset.Options{Client: w.client, Namespace: namespace, Name: "etcd", ID: id()})
}

// record returns the stored record of the restore; zero: there is none.
func (w *world) record() handoff.Record {
	w.Helper()
	r, err := w.manager().Load(w.Context(), id())
	if !errors.Is(err, fault.NotFound) {
		w.must(err)
	}
	return r
}

// verify stores the record of a restore whose restored members are being verified.
func (w *world) verify() {
	w.Helper()
	m := w.manager()
	h, err := m.Inspect(w.Context())
	w.must(err)
	r := handoff.Rebuild(id(), handoff.Verifying, h, time.Now().UTC())
	r.Step, r.Phase, r.Settings = handoff.Verify, handoff.Verifying, `{"cluster":"payments.etcd"}`
	_, err = m.Take(w.Context(), r)
	w.must(err)
	w.must(m.Save(w.Context(), handoff.Record{}, r))
}

// TestDeletedWhileVerifying deletes the EtcdRestore while the restored members, which may have acknowledged writes, are being verified. The
// members stay as they are, with or without the record of the restore, and all that the restore held ends.
func TestDeletedWhileVerifying(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		w := newWorld(t, handoff.Verifying)
		set := w.set()
		set.Spec.Replicas = new(int32(3))
		w.must(w.client.Update(t.Context(), set))
		if recorded {
			w.verify()
		}
		e := w.restore()
		w.must(w.client.Delete(t.Context(), &e))
		w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool { return e.Name == "" })
		set = w.set()
		_, held := set.Annotations["etcd-dr.io/restore"]
		if len(w.tasks) > 0 || *set.Spec.Replicas != 3 || held || w.isSuspended() {
			t.Errorf("recorded: %t: tasks %q, replicas %d, annotations %v, suspended: %t", recorded, w.tasks, *set.Spec.Replicas, set.Annotations, w.isSuspended())
		}
		var maps corev1.ConfigMapList
		w.must(w.client.List(t.Context(), &maps))
		if len(maps.Items) > 0 {
			t.Errorf("recorded: %t: %+v", recorded, maps.Items)
		}
	}
}

// TestDeletedWhileReleasing deletes the EtcdRestore before the restored members were found to run: the restore goes back.
func TestDeletedWhileReleasing(t *testing.T) {
	w := newWorld(t, handoff.Releasing)
	e := w.restore()
	w.must(w.client.Delete(t.Context(), &e))
	w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool { return e.Name == "" })
	if !slices.Contains(w.tasks, handoff.DoWithdraw) || !slices.Contains(w.tasks, handoff.DoBack) || *w.set().Spec.Replicas != 3 || w.isSuspended() {
		t.Errorf("tasks %q, replicas %d, suspended: %t", w.tasks, *w.set().Spec.Replicas, w.isSuspended())
	}
}

// restore returns the EtcdRestore.
func (w *world) restore() (e v1alpha1.EtcdRestore) {
	w.Helper()
	w.must(w.client.Get(w.Context(), request.NamespacedName, &e))
	return e
}

// TestLeadershipIsLostWithinAStep takes the leadership away while a task is carried out. The operator stores nothing of the step and does not
// continue; the next leader repeats the step.
func TestLeadershipIsLostWithinAStep(t *testing.T) {
	w := newWorld(t, handoff.Sealing)
	w.reconciler.Leads = func() bool { return len(w.tasks) == 0 }
	var before handoff.Record
	var status v1alpha1.EtcdRestoreStatus
	for range 40 {
		if len(w.tasks) > 0 {
			break
		}
		before, status = w.record(), w.restore().Status
		_, err := w.reconciler.Reconcile(t.Context(), request)
		w.must(err)
	}
	for range 3 {
		_, err := w.reconciler.Reconcile(t.Context(), request)
		w.must(err)
	}
	after := w.record()
	if before.Step != handoff.Withdraw || !reflect.DeepEqual(after, before) || !equality.Semantic.DeepEqual(w.restore().Status, status) || len(w.tasks) != 1 {
		t.Errorf("without the leadership it went from %s to %s, with the tasks %q and the status %+v", before.Step, after.Step, w.tasks, w.restore().Status)
	}
	w.reconciler.Leads = func() bool { return true }
	w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool {
		return e.Status.Phase == "Failed" && e.Status.OldData != nil
	})
	if !slices.Equal(w.tasks, []handoff.Task{"withdraw", "withdraw", "back", "discard"}) {
		t.Errorf("the next leader has done %q", w.tasks)
	}
}

// taker notes whether the EtcdRestore has its finalizer whenever the StatefulSet is claimed.
type taker struct {
	target
	held *[]bool
}

func (t taker) Take(ctx context.Context, r handoff.Record) (handoff.Progress, error) {
	*t.held = append(*t.held, slices.Contains(t.w.restore().Finalizers, restores.Finalizer))
	return t.target.Take(ctx, r)
}

// TestFinalizerBeforeTheClaim checks that an EtcdRestore has its finalizer before anything is claimed for it: deleted after a kill, it would leave
// the claim behind.
func TestFinalizerBeforeTheClaim(t *testing.T) {
	w := newWorld(t, handoff.Pending)
	e := w.restore()
	e.Finalizers = nil
	w.must(w.client.Update(t.Context(), &e))
	var held []bool
	w.reconciler.Target = func(o statefulset.Options) restores.Target { return taker{target{statefulset.New(o), w}, &held} }
	_, err := w.reconciler.Reconcile(t.Context(), request)
	w.must(err)
	if !slices.Equal(held, []bool{true}) {
		t.Errorf("the finalizer was set when the StatefulSet was claimed: %t", held)
	}
}
