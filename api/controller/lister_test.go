package controller

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage"
)

// TestRestoresAreServed checks that each operator serves the EtcdRestores in its cache, and none before that is filled.
func TestRestoresAreServed(t *testing.T) {
	scheme := runtime.NewScheme()
	err := v1alpha1.AddToScheme(scheme)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1000, 0).UTC()
	running, ended, fresh := restoreInto("shop", "running"), restoreInto("payments", "ended"), restoreInto("shop", "fresh")
	running.Status = v1alpha1.EtcdRestoreStatus{
		Cluster: "shop.etcd", Phase: "Staging", Since: &metav1.Time{Time: at}, MembersDone: "2/3", Message: "Job a runs on node n1",
	}
	ended.Status = v1alpha1.EtcdRestoreStatus{
		Cluster: "payments.etcd", Phase: "Succeeded", Since: &metav1.Time{Time: at}, Outcome: &v1alpha1.RestoreOutcome{Downtime: "1m12.4s"},
	}
	op := newOperator(Options{}, func(storage.Event) {})
	op.restores.cache = fake.NewClientBuilder().WithScheme(scheme).WithObjects(running, ended, fresh).Build()
	op.restores.Reconciler = reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	wantServed(t, op, nil)
	_, err = op.restores.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(running)})
	if err != nil {
		t.Fatal(err)
	}
	wantServed(t, op, []document.ServedRestore{
		{Namespace: "payments", Name: "ended", StatefulSet: "etcd", Cluster: "payments.etcd", Phase: "Succeeded", Ended: true, Since: at, Downtime: 72.4},
		{Namespace: "shop", Name: "fresh", StatefulSet: "etcd", Phase: "Pending"},
		{
			Namespace: "shop", Name: "running", StatefulSet: "etcd", Cluster: "shop.etcd", Phase: "Staging", Since: at, MembersDone: "2/3",
			Message: "Job a runs on node n1",
		},
	})
}

func restoreInto(namespace, name string) *v1alpha1.EtcdRestore {
	return &v1alpha1.EtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.EtcdRestoreSpec{Into: v1alpha1.RestoreInto{StatefulSet: v1alpha1.StatefulSetName{Name: "etcd"}}},
	}
}

// wantServed fails the test unless op serves these EtcdRestores.
func wantServed(t *testing.T, op *operator, want []document.ServedRestore) {
	t.Helper()
	w := httptest.NewRecorder()
	server.Serve(op.server(), server.Access{}).ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/api/v1/clusters", nil))
	var got document.ServeStatus
	err := json.Unmarshal(w.Body.Bytes(), &got)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Restores, want) {
		t.Errorf("got %+v, want %+v", got.Restores, want)
	}
}
