package dropin

import (
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

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
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
		cluster.Annotations = map[string]string{detached: "true", fencedAt: time.Now().UTC().Format(time.RFC3339) + " " + by}
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
	cluster.Annotations = map[string]string{detached: "true"}
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
	r := restoreReconciler{Options{Client: access, Leads: func() bool { return true }}}
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)})
	must(t, err)
	var after coreos.EtcdRestore
	must(t, access.Get(t.Context(), client.ObjectKeyFromObject(theirs), &after))
	return after.Status.Reason
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
