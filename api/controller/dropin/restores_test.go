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
		named := func(name string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.Now()}
		}
		theirs := &coreos.EtcdRestore{ObjectMeta: named("etcd"), Spec: coreos.RestoreSpec{
			BackupStorageType: "S3", EtcdCluster: coreos.ClusterName{Name: "etcd"}, Stores: coreos.Stores{S3: &coreos.S3{Path: "bucket/a", AWSSecret: "aws"}},
		}}
		theirs.UID = "this-one"
		cluster := &coreos.EtcdCluster{ObjectMeta: named("etcd"), Spec: coreos.ClusterSpec{Size: 1, Version: "3.5.0"}}
		cluster.Annotations = map[string]string{detached: "true", fencedAt: time.Now().UTC().Format(time.RFC3339) + " " + by}
		ours := restoring("Staging", true, v1alpha1.ConditionStaged)
		ours.ObjectMeta = named("etcd-this-one")
		pod := &corev1.Pod{ObjectMeta: named("old"), Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		pod.Labels, pod.CreationTimestamp = map[string]string{"app": "etcd", "etcd_cluster": "etcd"}, metav1.NewTime(time.Now().Add(-time.Hour))
		access := newClient(t, theirs, cluster, ours, pod, &appsv1.StatefulSet{ObjectMeta: named("etcd")})
		r := restoreReconciler{Options{Client: access, Leads: func() bool { return true }}}
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)})
		if err != nil {
			t.Fatal(err)
		}
		var left corev1.PodList
		var after coreos.EtcdRestore
		must(t, access.List(t.Context(), &left))
		must(t, access.Get(t.Context(), client.ObjectKeyFromObject(theirs), &after))
		if after.Status.Reason != c.reason || len(left.Items) != c.pods {
			t.Errorf("stopped for %s: %d pods, %q; want %d, %q", by, len(left.Items), after.Status.Reason, c.pods, c.reason)
		}
	}
}

// newClient returns the client of a fake API server with these objects.
func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, coreos.AddToScheme, v1alpha1.AddToScheme} {
		must(t, add(s))
	}
	return fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(&coreos.EtcdRestore{}).WithObjects(objects...).Build()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
