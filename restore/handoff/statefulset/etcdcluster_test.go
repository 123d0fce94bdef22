package statefulset_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/test/operators"
)

// newOwned returns a world with an EtcdCluster of cnych's operator that owns the StatefulSet.
func newOwned(t *testing.T, edits ...func(set *appsv1.StatefulSet)) *world {
	t.Helper()
	w := newWorld(t, "cnych", edits...)
	w.own(3)
	return w
}

// own creates the EtcdCluster.
func (w *world) own(size int) {
	w.t.Helper()
	c := &unstructured.Unstructured{}
	must(w.t, yaml.Unmarshal([]byte(operators.Cnych.EtcdCluster("demo", size)), &c.Object))
	c.SetNamespace(namespace)
	c.SetUID("c0de")
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
	for range 3 { // the size, the mark, and the wait for the operator
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
	for _, want := range []string{"EtcdCluster payments/demo is scaled to 3", "EtcdCluster payments/demo has size 3, and its operator has not scaled"} {
		p, err := w.manager().Release(t.Context(), w.record.Handoff)
		if err != nil || !strings.HasPrefix(p.Waiting, want) || w.size() != 3 || *w.set().Spec.Replicas != 0 {
			t.Fatalf("%+v, %v, size %d, %d replicas; want %q", p, err, w.size(), *w.set().Spec.Replicas, want)
		}
	}
	w.act()
	w.run(map[string]string{"demo-0": "n1", "demo-1": "n2", "demo-2": "n3"})
	wantDone(t, true)(w.manager().Release(t.Context(), w.record.Handoff))
}

// TestOwnedComesBack undoes a restore that has stored its record but changed nothing, and one whose operator has not scaled the members down.
func TestOwnedComesBack(t *testing.T) {
	w := newOwned(t)
	w.plan()
	wantDone(t, true)(w.manager().Return(t.Context(), w.record.Handoff))
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	w.run(map[string]string{"demo-0": "n1", "demo-1": "n2", "demo-2": "n3"})
	wantDone(t, false)(w.manager().Return(t.Context(), w.record.Handoff))
	if w.size() != 3 {
		t.Errorf("the size is %d", w.size())
	}
	wantDone(t, true)(w.manager().Return(t.Context(), w.record.Handoff))
}

// TestOwnedScaledUpAgain lets another program set the size again and again. That the API server refuses the first changes does not count.
func TestOwnedScaledUpAgain(t *testing.T) {
	w := newOwned(t)
	w.plan()
	failing := true
	w.intercept(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		if failing && o.GetObjectKind().GroupVersionKind().Kind == "EtcdCluster" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "etcdclusters"}, o.GetName(), errors.New("a webhook"))
		}
		return c.Patch(ctx, o, p, options...)
	}})
	for range 6 {
		_, err := w.manager().Fence(t.Context(), w.record.Handoff)
		if !errors.Is(err, handoff.ErrForbidden) || !strings.Contains(err.Error(), "cannot change EtcdCluster payments/demo") {
			t.Fatal(err)
		}
	}
	failing = false
	fence := func() error {
		for range 2 { // the size, and the mark
			_, err := w.manager().Fence(t.Context(), w.record.Handoff)
			if err != nil {
				return err
			}
		}
		return nil
	}
	for range 5 {
		must(t, fence())
		w.resize(3)
	}
	err := fence()
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "has scaled EtcdCluster payments/demo up 5 times") {
		t.Error(err)
	}
}

// TestOwnerIsRemoved deletes the EtcdCluster, but not its StatefulSet, while the size is 0 and one pod is still ending. INITIAL_CLUSTER_SIZE is 0
// too, so the members would add themselves to the cluster: the way back sets it before it starts them.
func TestOwnerIsRemoved(t *testing.T) {
	w := newOwned(t)
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	must(t, w.client.Delete(t.Context(), w.cluster()))
	change(w, "demo", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) {
		s.OwnerReferences, s.Spec.Replicas, etcd(s).Env[0].Value = nil, new(int32(0)), "0"
	})
	w.run(map[string]string{"demo-1": "n2"})
	for _, want := range []string{"INITIAL_CLUSTER_SIZE is set to 3", "StatefulSet payments/demo is scaled to 3"} {
		p, err := w.manager().Return(t.Context(), w.record.Handoff)
		if err != nil || p.Waiting != want || etcd(w.set()).Env[0].Value != "3" {
			t.Errorf("%+v, %v: the first size is %q; want %s", p, err, etcd(w.set()).Env[0].Value, want)
		}
	}
	if *w.set().Spec.Replicas != 3 {
		t.Errorf("%d replicas", *w.set().Spec.Replicas)
	}
}

// TestOwnerAppears lets an operator take a StatefulSet whose Service the restore was to change: the operator would change that back, so the restore
// leaves it.
func TestOwnerAppears(t *testing.T) {
	w := newWorld(t, "cnych", func(s *appsv1.StatefulSet) { s.OwnerReferences = nil })
	w.plan()
	wantDone(t, false)(w.manager().Fence(t.Context(), w.record.Handoff))
	wantDone(t, true)(w.manager().Fence(t.Context(), w.record.Handoff))
	w.own(0)
	owner := metav1.OwnerReference{APIVersion: "etcd.ydzs.io/v1alpha1", Kind: "EtcdCluster", Name: "demo", UID: "c0de", Controller: new(true)}
	change(w, "demo", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.OwnerReferences = []metav1.OwnerReference{owner} })
	wantDone(t, false)(w.manager().Release(t.Context(), w.record.Handoff))
	w.act()
	w.run(map[string]string{"demo-0": "n1", "demo-1": "n2", "demo-2": "n3"})
	wantDone(t, true)(w.manager().Release(t.Context(), w.record.Handoff))
	if w.size() != 3 || get(w, "demo", &corev1.Service{}).Spec.PublishNotReadyAddresses {
		t.Errorf("the size is %d; the Service was changed, or the size is wrong", w.size())
	}
}

// TestOwnedIsRefused checks the findings about an EtcdCluster.
func TestOwnedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(w *world)
		want string // the beginning of the first finding
	}{
		"the operator is not running": {func(w *world) { w.own(5) }, "EtcdCluster payments/demo has size 5, and StatefulSet payments/demo has 3 replicas"},
		"no EtcdCluster": {func(*world) {}, "StatefulSet payments/demo belongs to EtcdCluster demo, which would undo the changes of a restore: that EtcdCluster " +
			"does not exist, and Kubernetes may delete what belongs to it: keep the StatefulSet: kubectl -n payments patch statefulset demo --type=merge " +
			`-p '{"metadata":{"ownerReferences":null}}'`},
		"another one": {func(w *world) {
			w.own(3)
			change(w, "demo", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.OwnerReferences[0].UID = "other" })
		}, "StatefulSet payments/demo belongs to EtcdCluster demo"},
		"no definition": {func(w *world) {
			w.intercept(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				if o.GetObjectKind().GroupVersionKind().Kind == "EtcdCluster" {
					return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "etcd.ydzs.io", Kind: "EtcdCluster"}}
				}
				return c.Get(ctx, key, o, options...)
			}})
		}, "StatefulSet payments/demo belongs to EtcdCluster demo"},
		"it ends": {func(w *world) {
			w.own(3)
			c := w.cluster()
			c.SetFinalizers([]string{"example.com/kept"})
			must(w.t, w.client.Update(w.t.Context(), c))
			must(w.t, w.client.Delete(w.t.Context(), c))
		}, "EtcdCluster payments/demo is being deleted, and Kubernetes deletes StatefulSet payments/demo with it: keep the StatefulSet"},
		"a size that is refused": {func(w *world) {
			w.own(3)
			w.intercept(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "EtcdCluster"}, "demo", nil)
			}})
		}, "the size of EtcdCluster payments/demo cannot be set to 0: "},
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

// TestNotesOnOwned checks the findings about an EtcdCluster, and about the script of its operator, that do not refuse the restore.
func TestNotesOnOwned(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(w *world)
		want string
	}{
		"Argo CD": {func(w *world) {
			w.own(3)
			c := w.cluster()
			c.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "db:etcd.ydzs.io/EtcdCluster:payments/demo"})
			must(w.t, w.client.Update(w.t.Context(), c))
		}, "Argo CD manages EtcdCluster payments/demo with the application db, and may scale it up again while the data is exchanged: argocd app set db --sync-policy none"},
		"scaled by hand": {func(w *world) {
			change(w, "demo", &appsv1.StatefulSet{}, func(s *appsv1.StatefulSet) { s.OwnerReferences, s.Spec.Replicas = nil, new(int32(5)) })
			w.run(map[string]string{"demo-0": "n1", "demo-1": "n2", "demo-2": "n3", "demo-3": "n4", "demo-4": "n5"})
		}, "pods demo-3, demo-4 delete their data when they stop, because their ordinals are not below INITIAL_CLUSTER_SIZE: a rollback brings back only " +
			"the other members: take a backup first, if you may want to go back"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "cnych")
			c.edit(w)
			found := w.inspect().Findings
			if !slices.ContainsFunc(found, func(f handoff.Finding) bool { return f.String() == c.want && !f.Refuses }) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// TestInspectChangesNoSize checks that Inspect only asks whether the size may be changed.
func TestInspectChangesNoSize(t *testing.T) {
	w := newOwned(t)
	w.inspect()
	if w.size() != 3 {
		t.Errorf("the size is %d", w.size())
	}
}

// TestOtherScriptsAreNotParsed changes the script of cnych's operator: its URLs are no longer known.
func TestOtherScriptsAreNotParsed(t *testing.T) {
	w := newOwned(t, func(s *appsv1.StatefulSet) {
		etcd(s).Command[2] = strings.ReplaceAll(etcd(s).Command[2], "http://", "https://")
	})
	first := w.inspect().Findings[0]
	if !first.Refuses || !strings.HasPrefix(first.String(), "the peer URLs of demo-0 are unknown: container etcd runs /bin/sh, which is not parsed") {
		t.Errorf("%s", first)
	}
}
