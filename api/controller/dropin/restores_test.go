package dropin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestFencedBy continues a restore whose new data is complete. If another restore has stopped old members, those that run now are newer than
// its backup: they are backed up first.
func TestFencedBy(t *testing.T) {
	for by, c := range map[string]struct {
		reason string
		pods   int
	}{
		"this-one": {"stopping the old members", 0},
		"another":  {"backing up the old members", 1},
	} {
		theirs, cluster := ordered()
		cluster.Spec.Paused, cluster.Annotations = true, map[string]string{detached: "true", fencedAt: time.Now().UTC().Format(time.RFC3339) + " " + by}
		access := newClient(t, theirs, cluster, staged(), oldMember(), &appsv1.StatefulSet{ObjectMeta: named("etcd")})
		reason := reconciled(t, access, theirs)
		var left corev1.PodList
		must(t, access.List(t.Context(), &left))
		if reason != c.reason || len(left.Items) != c.pods {
			t.Errorf("stopped for %s: %d pods, %q; want %d, %q", by, len(left.Items), reason, c.pods, c.reason)
		}
	}
}

// TestTLSIsTakenOver moves a cluster with TLS. Its backup and the restores into it need the certificate of a client, also after the EtcdCluster is
// gone.
func TestTLSIsTakenOver(t *testing.T) {
	theirs, cluster := ordered()
	cluster.Spec.TLS = &coreos.TLSPolicy{Static: &coreos.StaticTLS{OperatorSecret: "client", Member: &coreos.MemberSecrets{PeerSecret: "peer", ServerSecret: "server"}}}
	cluster.Spec.Paused, cluster.Annotations = true, map[string]string{detached: "true"}
	access := newClient(t, theirs, cluster, oldMember())
	reconciled(t, access, theirs)
	var set appsv1.StatefulSet
	must(t, access.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "etcd"}, &set))
	must(t, access.Create(t.Context(), staged()))
	reconciled(t, access, theirs)
	var saved v1alpha1.EtcdBackup
	must(t, access.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "etcd-before-this-one"}, &saved))
	source := saved.Spec.Source
	if len(source.Endpoints) != 1 || source.Endpoints[0] != "https://etcd-client.default.svc:2379" || source.TLSSecret == nil || source.TLSSecret.Name != "client" {
		t.Errorf("the old members are backed up by %+v", source)
	}

	set.ResourceVersion = ""
	access = newClient(t, theirs, &set)
	reconciled(t, access, theirs)
	var ours v1alpha1.EtcdRestore
	must(t, access.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "etcd-this-one"}, &ours))
	if ours.Spec.Access == nil || ours.Spec.Access.TLSSecret.Name != "client" {
		t.Errorf("the restore checks the members by %+v", ours.Spec.Access)
	}
}

// TestOldMembers counts the pods that stand in the way of a restore whose new data is complete. Those of the StatefulSet have the same labels.
func TestOldMembers(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*corev1.Pod)
		reason string
	}{
		"it runs": {func(*corev1.Pod) {}, "pod old of a deleted EtcdCluster is left: delete it if its data is not needed"},
		"of a StatefulSet": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "etcd", UID: "s", Controller: new(true)}}
		}, "starting the members"},
		"of another cluster": {func(p *corev1.Pod) { p.Labels["etcd_cluster"] = "other" }, "starting the members"},
		"it has ended":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "starting the members"},
	} {
		theirs, _ := ordered()
		pod := oldMember()
		c.edit(pod)
		access := newClient(t, theirs, staged(), pod, &appsv1.StatefulSet{ObjectMeta: named("etcd")})
		reason := reconciled(t, access, theirs)
		if reason != c.reason {
			t.Errorf("%s: %q, want %q", name, reason, c.reason)
		}
		must(t, access.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	}
}

// TestPausedAgain orders a restore after an earlier one has been undone: the way back ends the pause, and may leave the mark of the Services.
func TestPausedAgain(t *testing.T) {
	theirs, cluster := ordered()
	cluster.Annotations = map[string]string{detached: "true"}
	access := newClient(t, theirs, cluster, oldMember(), &appsv1.StatefulSet{ObjectMeta: named("etcd")})
	reason := reconciled(t, access, theirs)
	must(t, access.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	if reason != "detaching the Services from the EtcdCluster" || !cluster.Spec.Paused {
		t.Errorf("%q, paused: %v", reason, cluster.Spec.Paused)
	}
}

// TestBackupsAreSuspended ends the mark of a copy with the last old member: a copy does not suspend the backups of its original.
func TestBackupsAreSuspended(t *testing.T) {
	theirs, _ := ordered()
	ours := staged()
	ours.Spec.Clone = true
	access := newClient(t, theirs, ours, &appsv1.StatefulSet{ObjectMeta: named("etcd")})
	reason := reconciled(t, access, theirs)
	must(t, access.Get(t.Context(), client.ObjectKeyFromObject(ours), ours))
	if reason != "starting the members" || ours.Spec.Suspend || ours.Spec.Clone {
		t.Errorf("%q, %+v", reason, ours.Spec)
	}
}

// TestTheirOperatorIsFound keeps a restore waiting while a pod of coreos' operator runs, which would start old members again.
func TestTheirOperatorIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*corev1.Pod)
		waits bool
	}{
		"its label":       {func(p *corev1.Pod) { p.Labels = map[string]string{"name": "etcd-operator"} }, true},
		"its command":     {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"/usr/local/bin/etcd-operator", "-v"} }, true},
		"its argument":    {func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"etcd-operator"} }, true},
		"another program": {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"etcd-backup-operator"} }, false},
		"it has ended": {func(p *corev1.Pod) {
			p.Labels, p.Status.Phase = map[string]string{"name": "etcd-operator"}, corev1.PodSucceeded
		}, false},
	} {
		theirs, cluster := ordered()
		pod := &corev1.Pod{ObjectMeta: named("x"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		c.edit(pod)
		reason := reconciled(t, newClient(t, theirs, cluster, pod), theirs)
		if strings.HasPrefix(reason, "pod x of coreos' operator runs, and would start the old members again") != c.waits {
			t.Errorf("%s: %q", name, reason)
		}
	}
}

// TestServicesAreDetached checks that the Services do not end with the EtcdCluster, and that the headless one publishes members that are not ready.
func TestServicesAreDetached(t *testing.T) {
	theirs, cluster := ordered()
	cluster.UID = "c"
	owners := []metav1.OwnerReference{{APIVersion: "etcd.database.coreos.com/v1beta2", Kind: "EtcdCluster", Name: "etcd", UID: "c"}, {APIVersion: "v1", Kind: "Other", Name: "o", UID: "o"}}
	headless := &corev1.Service{ObjectMeta: named("etcd"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	forClients := &corev1.Service{ObjectMeta: named("etcd-client"), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
	headless.OwnerReferences, forClients.OwnerReferences = owners, owners
	access := newClient(t, theirs, cluster, headless, forClients, oldMember(), &appsv1.StatefulSet{ObjectMeta: named("etcd")})
	reason := reconciled(t, access, theirs)
	for _, s := range []*corev1.Service{headless, forClients} {
		must(t, access.Get(t.Context(), client.ObjectKeyFromObject(s), s))
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != "o" || s.Spec.PublishNotReadyAddresses != (s == headless) {
			t.Errorf("Service %s: owners %+v, publishes: %t", s.Name, s.OwnerReferences, s.Spec.PublishNotReadyAddresses)
		}
	}
	must(t, access.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	if reason != "detaching the Services from the EtcdCluster" || !cluster.Spec.Paused || cluster.Annotations[detached] == "" {
		t.Errorf("%q, paused: %t, annotations %v", reason, cluster.Spec.Paused, cluster.Annotations)
	}
}

// TestOrderStopsNoMember checks that our EtcdRestore is suspended, and builds its data while old members answer, if there are any.
func TestOrderStopsNoMember(t *testing.T) {
	for _, runs := range []bool{false, true} {
		theirs, cluster := ordered()
		cluster.Spec.Paused, cluster.Annotations = true, map[string]string{detached: "true"}
		objects := []client.Object{theirs, cluster, &appsv1.StatefulSet{ObjectMeta: named("etcd")}}
		if runs {
			objects = append(objects, oldMember())
		}
		access := newClient(t, objects...)
		reconciled(t, access, theirs)
		var ours v1alpha1.EtcdRestore
		must(t, access.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "etcd-this-one"}, &ours))
		if !ours.Spec.Suspend || ours.Spec.Clone != runs {
			t.Errorf("old members run: %t: suspended: %t, a clone: %t", runs, ours.Spec.Suspend, ours.Spec.Clone)
		}
	}
}

// TestOldSnapshots orders restores of paths under which coreos' operator has stored a snapshot, dr a backup, or both.
func TestOldSnapshots(t *testing.T) {
	const interval = "_v102_2026-11-28-03:00:00"
	taken := catalog.NewID(time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC), 102)
	imported := func(c *repository.Cluster, file string, hour int) {
		at := stored.Noon.Add(time.Duration(hour) * time.Hour)
		m := stored.ManifestOf(stored.Content, at)
		m.Origin = &catalog.Origin{Kind: catalog.OriginFile, Imported: at, Written: stored.Noon, File: file}
		_, err := stored.TryCreate(t, c, catalog.NewImportID(at, m.Revision), m)
		must(t, err)
	}
	const none = ""
	newest := string(catalog.NewImportID(stored.Noon.Add(2*time.Hour), 1000))
	for name, c := range map[string]struct {
		suffix string // of the path
		store  func(*repository.Cluster, storage.Bucket)
		want   string // target.backup, "latest", or none
	}{
		"a backup": {"", func(c *repository.Cluster, _ storage.Bucket) {
			stored.Create(t, c, stored.IDAt(1))
			imported(c, "s3://bucket/a", 1)
		}, "latest"},
		"imports": {"", func(c *repository.Cluster, _ storage.Bucket) {
			imported(c, "s3://bucket/a", 1)
			imported(c, "s3://bucket/a", 2)
			imported(c, "s3://bucket/a"+interval, 3)
		}, newest},
		"an import of another path": {"", func(c *repository.Cluster, _ storage.Bucket) { imported(c, "s3://bucket/a2", 1) }, none},
		"nothing":                   {"", func(*repository.Cluster, storage.Bucket) {}, none},
		"a damaged backup": {"", func(c *repository.Cluster, b storage.Bucket) {
			imported(c, "s3://bucket/a", 1)
			_, err := b.Put(t.Context(), catalog.ManifestKey(c.Name(), stored.IDAt(1)), strings.NewReader("?"), storage.PutOptions{})
			must(t, err)
		}, "latest"},
		"an interval's backup":      {interval, func(c *repository.Cluster, _ storage.Bucket) { stored.Create(t, c, taken) }, string(taken)},
		"an interval's import":      {interval, func(c *repository.Cluster, _ storage.Bucket) { imported(c, "s3://bucket/a"+interval, 2) }, newest},
		"another backup of the key": {interval, func(c *repository.Cluster, _ storage.Bucket) { stored.Create(t, c, stored.IDAt(1)) }, none},
	} {
		theirs, cluster := ordered()
		theirs.Spec.S3.Path += c.suffix
		cluster.Spec.Paused, cluster.Annotations = true, map[string]string{detached: "true"}
		access := newClient(t, theirs, cluster, &appsv1.StatefulSet{ObjectMeta: named("etcd")})
		reason, err := reconciledFrom(t, access, theirs, c.store)
		var all v1alpha1.EtcdRestoreList
		must(t, access.List(t.Context(), &all))
		if c.want == none {
			if !errors.Is(err, catalog.ErrNotFound) || len(all.Items) != 0 || !strings.Contains(reason, "run dr import 's3://bucket/a"+c.suffix+"' --repo 's3://bucket/etcd-dr/a' --cluster default.bucket.a-") {
				t.Errorf("%s: %d EtcdRestores, %v, %q", name, len(all.Items), err, reason)
			}
			continue
		}
		if err != nil || len(all.Items) != 1 {
			t.Errorf("%s: %d EtcdRestores, %v", name, len(all.Items), err)
			continue
		}
		target := all.Items[0].Spec.Target
		got := cmp.Or(target.Backup, "latest")
		if got != c.want || (target.Latest != nil) != (c.want == "latest") {
			t.Errorf("%s: the target is %s, want %s", name, got, c.want)
		}
	}
}

// TestStopIsRecordedFirst stops the old members once they are backed up: pods that are newer than the annotation with the time show that their
// operator still runs. A pod is deleted by its UID, so that a new one of its name stays.
func TestStopIsRecordedFirst(t *testing.T) {
	theirs, cluster := ordered()
	cluster.Spec.Paused, cluster.Annotations = true, map[string]string{detached: "true"}
	saved := saving(v1alpha1.PhaseCompleted)
	saved.ObjectMeta = named("etcd-before-this-one")
	pod := oldMember()
	pod.UID = "uid-of-old"
	var asked []string
	access := newBuilder(t, theirs, cluster, staged(), saved, pod, &appsv1.StatefulSet{ObjectMeta: named("etcd")}).WithStatusSubresource(&coreos.EtcdRestore{}).
		WithInterceptorFuncs(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			var live coreos.EtcdCluster
			must(t, c.Get(ctx, client.ObjectKeyFromObject(cluster), &live))
			precondition := (&client.DeleteOptions{}).ApplyOptions(options).Preconditions
			if precondition != nil && live.Spec.Paused && strings.HasSuffix(live.Annotations[fencedAt], " this-one") {
				asked = append(asked, string(*precondition.UID))
			}
			return c.Delete(ctx, o, options...)
		}}).Build()
	reason := reconciled(t, access, theirs)
	if reason != "stopping the old members" || !slices.Equal(asked, []string{"uid-of-old"}) {
		t.Errorf("%q, deleted after the record, by UID: %q", reason, asked)
	}
}

// TestOldVersionsAreNotMoved refuses an EtcdCluster whose etcd dr cannot restore, before it creates anything.
func TestOldVersionsAreNotMoved(t *testing.T) {
	theirs, cluster := ordered()
	cluster.Spec.Version = "3.3.27"
	access := newClient(t, theirs, cluster, oldMember())
	reason := reconciled(t, access, theirs)
	var sets appsv1.StatefulSetList
	must(t, access.List(t.Context(), &sets))
	if !strings.HasPrefix(reason, "EtcdCluster etcd has etcd 3.3.27, and dr needs 3.4 or later") || len(sets.Items) != 0 {
		t.Errorf("%q, %d StatefulSets", reason, len(sets.Items))
	}
}

// TestOnlyTheLeaderActs checks that an operator that does not lead changes nothing: another one may carry out the same restore.
func TestOnlyTheLeaderActs(t *testing.T) {
	theirs, cluster := ordered()
	access := newClient(t, theirs, cluster, staged(), oldMember(), &appsv1.StatefulSet{ObjectMeta: named("etcd")})
	r := restoreReconciler{Options{Client: access, Leads: func() bool { return false }}}
	again, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)})
	must(t, err)
	must(t, access.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	must(t, access.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
	if again.RequeueAfter == 0 || theirs.Status.Reason != "" || cluster.Spec.Paused {
		t.Errorf("it looks again after %s, with the reason %q; the EtcdCluster is paused: %t", again.RequeueAfter, theirs.Status.Reason, cluster.Spec.Paused)
	}
}

// TestSucceededIsNotRepeated reconciles an EtcdRestore again that has succeeded: the cluster may have grown since, and is left alone.
func TestSucceededIsNotRepeated(t *testing.T) {
	theirs, cluster := ordered()
	theirs.Status.Succeeded = true
	access := newClient(t, theirs, cluster, oldMember())
	reason := reconciled(t, access, theirs)
	var sets appsv1.StatefulSetList
	must(t, access.List(t.Context(), &sets))
	if reason != "" || len(sets.Items) != 0 {
		t.Errorf("%q, %d StatefulSets", reason, len(sets.Items))
	}
}

// TestStatusWithoutSubresource writes the status of an EtcdRestore whose definition has no subresource for it, as those of coreos' operator.
func TestStatusWithoutSubresource(t *testing.T) {
	theirs, _ := ordered()
	access := newBuilder(t, theirs).Build()
	reason := reconciled(t, access, theirs)
	if reason != "this namespace has neither an EtcdCluster nor a StatefulSet etcd: create one of them" {
		t.Errorf("the reason is %q", reason)
	}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Now()}
}

// ordered returns an EtcdRestore of coreos' operator, and the EtcdCluster that it names.
func ordered() (*coreos.EtcdRestore, *coreos.EtcdCluster) {
	theirs := &coreos.EtcdRestore{ObjectMeta: named("etcd"), Spec: coreos.RestoreSpec{
		BackupStorageType: "S3", EtcdCluster: coreos.ClusterName{Name: "etcd"}, Stores: coreos.Stores{S3: &coreos.S3{Path: "bucket/a", AWSSecret: "aws"}},
	}}
	theirs.UID = "this-one"
	return theirs, &coreos.EtcdCluster{ObjectMeta: named("etcd"), Spec: coreos.ClusterSpec{Size: 1, Version: "3.5.0"}}
}

// staged returns the EtcdRestore of ours for the one of ordered, whose new data is complete.
func staged() *v1alpha1.EtcdRestore {
	ours := restoring("Staging", true, v1alpha1.ConditionStaged)
	ours.ObjectMeta = named("etcd-this-one")
	return ours
}

// oldMember returns a pod of the EtcdCluster.
func oldMember() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: named("old"), Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.Labels, pod.CreationTimestamp = map[string]string{"app": "etcd", "etcd_cluster": "etcd"}, metav1.NewTime(time.Now().Add(-time.Hour))
	return pod
}

// reconciled reconciles an EtcdRestore, and returns the reason in its status.
func reconciled(t *testing.T, access client.Client, theirs *coreos.EtcdRestore) string {
	t.Helper()
	reason, err := reconciledFrom(t, access, theirs, func(c *repository.Cluster, _ storage.Bucket) { stored.Create(t, c, stored.IDAt(1)) })
	must(t, err)
	return reason
}

// reconciledFrom is reconciled for a cluster in whose repository store stores backups.
func reconciledFrom(t *testing.T, access client.Client, theirs *coreos.EtcdRestore, store func(*repository.Cluster, storage.Bucket)) (string, error) {
	t.Helper()
	open := func(_ context.Context, _ string, _ v1alpha1.Repository, cluster string) (storage.Bucket, error) {
		b := mem.New()
		store(stored.OpenCluster(t, b, cluster), b)
		return b, nil
	}
	r := restoreReconciler{Options{Client: access, Leads: func() bool { return true }, Open: open}}
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)})
	var after coreos.EtcdRestore
	must(t, access.Get(t.Context(), client.ObjectKeyFromObject(theirs), &after))
	return after.Status.Reason, err
}

// newClient returns the client of a fake API server with these objects.
func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	return newBuilder(t, objects...).WithStatusSubresource(&coreos.EtcdRestore{}).Build()
}

// newBuilder returns the builder of a fake API server with these objects.
func newBuilder(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, coreos.AddToScheme, v1alpha1.AddToScheme} {
		must(t, add(s))
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
