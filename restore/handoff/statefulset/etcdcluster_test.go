package statefulset_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// newOwned returns a world with an EtcdCluster of cnych's operator that owns the StatefulSet.
func newOwned(t *testing.T, edits ...func(set *appsv1.StatefulSet)) *world {
	t.Helper()
	w := newWorld(t, "cnych", edits...)
	w.own(3)
	return w
}

// own creates the EtcdCluster.
func (w *world) own(size int64) {
	w.t.Helper()
	c := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size, "image": "etcd:3.6"}}}
	c.SetAPIVersion("etcd.ydzs.io/v1alpha1")
	c.SetKind("EtcdCluster")
	c.SetNamespace(namespace)
	c.SetName("demo")
	c.SetUID(types.UID("c0de"))
	must(w.t, w.client.Create(w.t.Context(), c, client.FieldOwner("kubectl")))
}

// cluster returns the EtcdCluster.
func (w *world) cluster() *unstructured.Unstructured {
	w.t.Helper()
	c := &unstructured.Unstructured{}
	c.SetAPIVersion("etcd.ydzs.io/v1alpha1")
	c.SetKind("EtcdCluster")
	return get(w, "demo", c)
}

// size returns spec.size of the EtcdCluster.
func (w *world) size() int64 {
	w.t.Helper()
	size, found, err := unstructured.NestedInt64(w.cluster().Object, "spec", "size")
	if err != nil || !found {
		w.t.Fatalf("the EtcdCluster has no size: %v", err)
	}
	return size
}

// resize sets spec.size of the EtcdCluster, as another program.
func (w *world) resize(size int64) {
	w.t.Helper()
	c := w.cluster()
	must(w.t, unstructured.SetNestedField(c.Object, size, "spec", "size"))
	must(w.t, w.client.Update(w.t.Context(), c))
}

// act scales the StatefulSet as its operator would.
func (w *world) act() {
	w.t.Helper()
	size := int32(w.size())
	change(w, "demo", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.Spec.Replicas = &size })
}

// TestOwnedIsScaledByItsOwner stops and starts members of an EtcdCluster: the restore changes its size, and never spec.replicas. It deletes
// pods only once the operator has acted.
func TestOwnedIsScaledByItsOwner(t *testing.T) {
	w := newOwned(t)
	w.plan()
	w.run(map[string]string{"demo-0": "n1", "demo-1": "n2"})
	var deleted []string
	w.intercept(deletions(&deleted, nil))
	for range 2 {
		wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
		if w.size() != 0 || *w.set().Spec.Replicas != 3 || len(deleted) > 0 {
			t.Fatalf("size %d, %d replicas, deleted %q", w.size(), *w.set().Spec.Replicas, deleted)
		}
	}
	w.act()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
	if len(deleted) != 2 {
		t.Errorf("deleted %q", deleted)
	}
	for range 2 {
		wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
		if w.size() != 3 || *w.set().Spec.Replicas != 0 {
			t.Fatalf("size %d, %d replicas", w.size(), *w.set().Spec.Replicas)
		}
	}
	w.act()
	w.run(map[string]string{"demo-0": "n1", "demo-1": "n2", "demo-2": "n3"})
	wantDone(t, true)(w.manager().Release(t.Context(), w.record.Handoff))
}

// TestOwnedComesBack takes a restore back whose record was written before anything else, and one whose EtcdCluster has the size 0 already.
func TestOwnedComesBack(t *testing.T) {
	w := newOwned(t)
	w.plan()
	wantDone(t, true)(w.manager().Return(t.Context(), w.record.Handoff))
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	w.act()
	wantDone(t, false)(w.manager().Return(t.Context(), w.record.Handoff))
	if w.size() != 3 {
		t.Errorf("the size is %d", w.size())
	}
}

// TestOwnedScaledUpAgain lets another program set the size again and again.
func TestOwnedScaledUpAgain(t *testing.T) {
	w := newOwned(t)
	w.plan()
	for range 5 {
		_, err := w.manager().Fence(t.Context(), w.record.Handoff)
		must(t, err)
		w.resize(3)
	}
	_, err := w.manager().Fence(t.Context(), w.record.Handoff)
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "has scaled EtcdCluster payments/demo up 5 times") {
		t.Error(err)
	}
}

// TestOwnerIsRemoved removes the EtcdCluster alone, while it has the size 0: the restore goes on without it. Members that would add themselves
// to the cluster, because the first size is 0, get that of the restore.
func TestOwnerIsRemoved(t *testing.T) {
	w := newOwned(t)
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	must(t, w.client.Delete(t.Context(), w.cluster()))
	variable := func() string { return etcd(w.set()).Env[0].Value }
	change(w, "demo", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.OwnerReferences, etcd(s).Env[0].Value = nil, "0" })
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
	p, err := w.manager().Release(t.Context(), w.record.Handoff)
	if err != nil || p.Waiting != "INITIAL_CLUSTER_SIZE is set to 3" || variable() != "3" {
		t.Errorf("%+v, %v: the first size is %q", p, err, variable())
	}
	wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
	if *w.set().Spec.Replicas != 3 {
		t.Errorf("%d replicas", *w.set().Spec.Replicas)
	}
}

// TestOwnedIsRefused checks the findings about an EtcdCluster.
func TestOwnedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(w *world)
		want string // the beginning of the first finding
	}{
		"the operator does not run": {func(w *world) { w.own(5) }, "EtcdCluster payments/demo has the size 5, and StatefulSet payments/demo has 3 replicas"},
		"no EtcdCluster": {func(*world) {}, "StatefulSet payments/demo belongs to EtcdCluster demo, which would undo the changes of a restore: create it " +
			"again, or remove its operator, and then the owner alone: kubectl -n payments delete etcdcluster.etcd.ydzs.io demo --cascade=orphan"},
		"another one": {func(w *world) {
			w.own(3)
			must(w.t, w.client.Delete(w.t.Context(), w.cluster(), client.GracePeriodSeconds(0)))
			change(w, "demo", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.OwnerReferences[0].UID = "other" })
			w.own(3)
		}, "StatefulSet payments/demo belongs to EtcdCluster demo"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cnych")
			c.edit(w)
			first := w.inspect().Findings[0]
			if !first.Refuses || !strings.HasPrefix(first.String(), c.want) {
				t.Errorf("%s", first)
			}
		})
	}
}
