package statefulset_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const (
	namespace = "payments"
	restoreID = "0123456789abcdef"
)

// world has the objects of one StatefulSet in a fake API server. No controller acts on them: tests change them as controllers would.
type world struct {
	t       *testing.T
	client  client.WithWatch
	options statefulset.Options
	record  handoff.Record
}

// newWorld returns a world with the objects of a file in testdata, and the claims of the StatefulSet's pods, which are bound.
func newWorld(t *testing.T, file string, edits ...func(set *appsv1.StatefulSet)) *world {
	t.Helper()
	return newWorldWith(t, file, nil, edits...)
}

// newWorldWith is like newWorld, with pods. Those with a deletionTimestamp stay.
func newWorldWith(t *testing.T, file string, pods []*corev1.Pod, edits ...func(set *appsv1.StatefulSet)) *world {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	service, set, variables := &corev1.Service{}, &appsv1.StatefulSet{}, &corev1.ConfigMap{}
	documents := bytes.Split(text, []byte("\n---\n"))
	kinds := []client.Object{service, set, variables}[:len(documents)] // a StatefulSet may need no ConfigMap
	for i, into := range kinds {
		err := yaml.UnmarshalStrict(documents[i], into)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, edit := range edits {
		edit(set)
	}
	set.Status.ObservedGeneration = set.Generation
	objects := kinds
	for _, name := range claimsOf(set) {
		objects = append(objects, newClaim(name))
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			pod.Finalizers = append(pod.Finalizers, "example.com/kept") // the fake API server has no grace period
		}
		objects = append(objects, pod)
	}
	w := &world{t: t, client: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&appsv1.StatefulSet{}).
		WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).
		WithReturnManagedFields().Build()}
	w.options = statefulset.Options{
		Client: w.client, Namespace: namespace, Name: set.Name, ID: restoreID,
		Jobs: statefulset.Jobs{
			Image: "etcd-dr:v1", Owner: &metav1.OwnerReference{APIVersion: "etcd-dr.io/v1alpha1", Kind: "EtcdRestore", Name: "nightly", UID: "77aa"},
			Repository: kubejob.Repository{URL: "s3://backups/etcd", Cluster: "payments.etcd", Credentials: "backups-s3"},
		},
	}
	w.record = handoff.New(restoreID, handoff.Orders{}, time.Unix(1_700_000_000, 0).UTC())
	return w
}

// claimsOf returns the names of the claims of the pods of set.
func claimsOf(set *appsv1.StatefulSet) (names []string) {
	for i := range *set.Spec.Replicas {
		for _, template := range set.Spec.VolumeClaimTemplates {
			names = append(names, fmt.Sprintf("%s-%s-%d", template.Name, set.Name, i))
		}
	}
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")},
		},
	}
}

// manager returns a Manager of the world.
func (w *world) manager() *statefulset.Manager { return statefulset.New(w.options) }

// inspect inspects the StatefulSet.
func (w *world) inspect() handoff.Handoff {
	w.t.Helper()
	h, err := w.manager().Inspect(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// plan inspects the StatefulSet, and puts the result and a plan for its members on the record.
func (w *world) plan() {
	w.t.Helper()
	w.record.Handoff = w.inspect()
	var members []plan.Member
	for _, m := range w.record.Handoff.Members {
		members = append(members, m.Member)
	}
	began := time.Date(2026, time.November, 21, 10, 0, 0, 0, time.UTC)
	m := stored.ManifestOf(stored.Content, began)
	m.ID, m.Cluster, m.Seal = catalog.NewID(began, m.Revision), "payments.etcd", seal.Recipients{}.Seal()
	m.Plain.Size = 1 << 30
	m.Stored = catalog.Blob{Name: "snapshot.db.zst", Size: 1 << 28, SHA256: m.Plain.SHA256}
	c := catalog.Catalog{Cluster: m.Cluster, Backups: []catalog.Backup{{Manifest: m}}}
	p, err := plan.New(c, plan.Target{}, plan.Layout{Members: members}, began.Add(time.Hour))
	if err != nil {
		w.t.Fatal(err)
	}
	w.record.Plan = &p
}

// intercept lets f see the requests before the fake API server does.
func (w *world) intercept(f interceptor.Funcs) { w.options.Client = interceptor.NewClient(w.client, f) }

// change changes an object, and its status, in the fake API server.
func change[T client.Object](w *world, name string, object T, edit func(T)) T {
	w.t.Helper()
	get(w, name, object)
	edit(object)
	status := object.DeepCopyObject().(client.Object)
	err := w.client.Update(context.Background(), object)
	if err != nil {
		w.t.Fatal(err)
	}
	status.SetResourceVersion(object.GetResourceVersion())
	err = w.client.Status().Update(context.Background(), status)
	if err != nil && !strings.Contains(err.Error(), "not found") {
		w.t.Fatal(err)
	}
	return object
}

func get[T client.Object](w *world, name string, object T) T {
	w.t.Helper()
	err := w.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	if err != nil {
		w.t.Fatal(err)
	}
	return object
}

// set returns the StatefulSet.
func (w *world) set() *appsv1.StatefulSet {
	w.t.Helper()
	return get(w, w.options.Name, &appsv1.StatefulSet{})
}

// create creates an object in the fake API server.
func (w *world) create(object client.Object) {
	w.t.Helper()
	err := w.client.Create(context.Background(), object)
	if err != nil {
		w.t.Fatal(err)
	}
}

// run creates pods of the StatefulSet, each on a node.
func (w *world) run(nodes map[string]string) {
	w.t.Helper()
	for name, node := range nodes {
		template := w.set().Spec.Template
		template.Spec.NodeName = node
		w.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), Labels: template.Labels},
			Spec:       template.Spec,
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
}

// jobs returns all Jobs.
func (w *world) jobs() []batchv1.Job {
	w.t.Helper()
	var list batchv1.JobList
	err := w.client.List(context.Background(), &list)
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// do calls Do, and returns the texts of the members' progress, or "done".
func (w *world) do(task handoff.Task) (texts []string, err error) {
	w.t.Helper()
	all, err := w.manager().Do(w.t.Context(), w.record, task)
	for _, p := range all {
		text := p.Waiting
		if p.Done {
			text = "done"
		}
		texts = append(texts, text)
	}
	return texts, err
}

// asYAML returns an object as YAML, without the fields that the fake API server sets.
func asYAML(t *testing.T, object client.Object) []byte {
	t.Helper()
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// asJSON returns a value as indented JSON.
func asJSON(t *testing.T, value any) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	if err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// deletions records the names of objects that are deleted. Those for which really returns false stay, as if a finalizer kept them; nil: none.
func deletions(names *[]string, really func(client.Object) bool) interceptor.Funcs {
	return interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
		*names = append(*names, o.GetName())
		if really != nil && !really(o) {
			return nil
		}
		return c.Delete(ctx, o, options...)
	}}
}
