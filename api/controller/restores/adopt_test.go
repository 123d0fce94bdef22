package restores_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// vanish removes the EtcdRestore in the middle of its restore, without its finalizer, and returns it.
func (w *world) vanish() v1alpha1.EtcdRestore {
	w.Helper()
	w.reconcile(func(v1alpha1.EtcdRestore, *appsv1.StatefulSet) bool { return len(w.tasks) > 0 })
	e := w.restore()
	e.Finalizers = nil
	w.must(w.client.Update(w.Context(), &e))
	w.must(w.client.Delete(w.Context(), &e))
	return e
}

// create creates an EtcdRestore with another UID.
func (w *world) create(name string, spec v1alpha1.EtcdRestoreSpec) {
	w.Helper()
	w.must(w.client.Create(w.Context(), &v1alpha1.EtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "another-uid"}, Spec: spec}))
}

// orderToEnd returns the order with which the command line ends the restore.
func (w *world) orderToEnd() (statefulset.Order, error) {
	w.Helper()
	m := w.manager()
	record, err := m.Load(w.Context(), id())
	w.must(err)
	return m.OrderToEnd(w.Context(), record)
}

// TestEtcdRestoreComesBack creates an EtcdRestore again in the middle of its restore: the one with another UID continues it, and keeps its
// record after its end.
func TestEtcdRestoreComesBack(t *testing.T) {
	w := newWorld(t, handoff.Sealing)
	e := w.vanish()
	w.create("nightly", e.Spec)
	e = w.reconcile(func(e v1alpha1.EtcdRestore, _ *appsv1.StatefulSet) bool {
		return e.Status.Phase == "Failed" && e.Status.OldData != nil
	})
	if *w.set().Spec.Replicas != 3 || w.isSuspended() || !slices.Equal(w.tasks, []handoff.Task{"withdraw", "back", "discard"}) {
		t.Errorf("replicas %d, suspended: %t, tasks %q", *w.set().Spec.Replicas, w.isSuspended(), w.tasks)
	}
	_, err := w.reconciler.Reconcile(t.Context(), request)
	w.must(err)
	w.must(w.client.Get(t.Context(), request.NamespacedName, &e))
	if e.Status.OldData == nil {
		t.Errorf("it has lost its record: %+v", e.Status)
	}
}

// TestCommandEndsTheRestoreOfALostEtcdRestore checks that an EtcdRestore of another name, or for other data, waits, and names the command that
// ends the restore whose EtcdRestore is gone. The command has all that it needs.
func TestCommandEndsTheRestoreOfALostEtcdRestore(t *testing.T) {
	for name, data := range map[string]string{"weekly": "", "nightly": "20261121T092433Z-0000000000001267"} {
		w := newWorld(t, handoff.Sealing)
		e := w.vanish()
		if data != "" {
			e.Spec.Target = v1alpha1.RestoreTarget{Backup: data}
		}
		w.create(name, e.Spec)
		waiting := request
		waiting.Name = name
		for range 3 {
			_, err := w.reconciler.Reconcile(t.Context(), waiting)
			w.must(err)
		}
		w.must(w.client.Get(t.Context(), waiting.NamespacedName, &e))
		want := "if that no longer exists: dr restore --into statefulset/etcd --namespace payments --undo " + id()
		if e.Status.Phase != "Pending" || !strings.Contains(e.Status.Message, want) {
			t.Errorf("%s: %s: %s", name, e.Status.Phase, e.Status.Message)
		}
		o, err := w.orderToEnd()
		if err != nil || o.By != author || o.Repository.Cluster != "payments.etcd" || o.Image != "dr:v1" {
			t.Errorf("%s: %+v, %v", name, o, err)
		}
	}
}

// forbidding is an API server that forbids every request to read EtcdRestores.
type forbidding struct{ client.Client }

func (f forbidding) Get(ctx context.Context, key client.ObjectKey, object client.Object, o ...client.GetOption) error {
	if object.GetObjectKind().GroupVersionKind().Kind == "EtcdRestore" {
		return apierrors.NewForbidden(schema.GroupResource{Group: "etcd-dr.io", Resource: "etcdrestores"}, key.Name, nil)
	}
	return f.Client.Get(ctx, key, object, o...)
}

// TestCommandLeavesEtcdRestores checks that the command line does not end a restore whose EtcdRestore exists, or cannot be read.
func TestCommandLeavesEtcdRestores(t *testing.T) {
	w := newWorld(t, handoff.Sealing)
	w.reconcile(func(v1alpha1.EtcdRestore, *appsv1.StatefulSet) bool { return len(w.tasks) > 0 })
	_, err := w.orderToEnd()
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "was begun by EtcdRestore payments/nightly: use that") {
		t.Errorf("%v", err)
	}
	w.client = forbidding{w.client}
	_, err = w.orderToEnd()
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "an account that may read EtcdRestores") {
		t.Errorf("%v", err)
	}
}
