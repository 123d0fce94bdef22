package restores_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/controller/restores"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// silent is an API server that does not answer.
type silent struct{ client.Client }

func (silent) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// crowd reconciles restores whose requests are not answered.
type crowd struct {
	*testing.T
	reconciler *restores.Reconciler
	ended      chan time.Duration // after what time each comes back
}

// newCrowd returns a crowd. Each namespace has the restore nightly, whose members serve, and the restore down, whose members are stopped.
func newCrowd(t *testing.T, namespaces ...string) *crowd {
	scheme := runtime.NewScheme()
	err := v1alpha1.AddToScheme(scheme)
	if err != nil {
		t.Fatal(err)
	}
	cached := fake.NewClientBuilder().WithScheme(scheme)
	for _, namespace := range namespaces {
		for name, phase := range map[string]handoff.Phase{"nightly": handoff.Planning, "down": handoff.RollingBack} {
			cached.WithObjects(&v1alpha1.EtcdRestore{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: v1alpha1.EtcdRestoreStatus{Phase: v1alpha1.RestorePhase(phase)},
			})
		}
	}
	c := &crowd{T: t, ended: make(chan time.Duration, 20)}
	c.reconciler = &restores.Reconciler{Client: cached.Build(), Uncached: silent{}, Leads: func() bool { return true }}
	return c
}

// begin begins n reconciliations, and waits until each is at work or has ended.
func (c *crowd) begin(ctx context.Context, namespace, name string, n int) {
	for range n {
		go func() {
			result, _ := c.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
			c.ended <- result.RequeueAfter
		}()
	}
	synctest.Wait()
}

// wantWaiting checks that n have found no turn, and come back soon.
func (c *crowd) wantWaiting(n int) {
	c.Helper()
	if len(c.ended) != n {
		c.Fatalf("%d wait for their turn, want %d", len(c.ended), n)
	}
	for range n {
		after := <-c.ended
		if after <= 0 || after > time.Minute {
			c.Errorf("one comes back after %s", after)
		}
	}
}

// TestOneNamespaceTakesItsShare reconciles many restores of a namespace whose requests are not answered: only two of them are at work, and
// the others come back later. Those of another namespace have their own turns.
func TestOneNamespaceTakesItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, "payments", "orders")
		ctx, cancel := context.WithCancel(t.Context())
		c.begin(ctx, "payments", "nightly", 5)
		c.wantWaiting(3)
		c.begin(ctx, "orders", "nightly", 2)
		c.wantWaiting(0)
		cancel()
		synctest.Wait()
		if len(c.ended) != 4 {
			t.Errorf("%d have ended, want 4", len(c.ended))
		}
	})
}

// TestStoppedMembersHaveTurns reconciles restores of four namespaces whose stores do not answer. They never take all workers: restores
// whose members are stopped continue, also in one of these namespaces.
func TestStoppedMembersHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		namespaces := []string{"a", "b", "c", "d", "victim"}
		c := newCrowd(t, namespaces...)
		ctx, cancel := context.WithCancel(t.Context())
		for _, namespace := range namespaces[:4] {
			c.begin(ctx, namespace, "nightly", 2)
		}
		c.wantWaiting(2)
		c.begin(ctx, "victim", "down", 1)
		c.begin(ctx, "a", "down", 1)
		c.wantWaiting(0)
		cancel()
		synctest.Wait()
		if len(c.ended) != restores.AtOnce {
			t.Errorf("%d have ended, want %d", len(c.ended), restores.AtOnce)
		}
		c.begin(t.Context(), "victim", "nightly", 1)
		if len(c.ended) != restores.AtOnce {
			t.Error("the turns are not given back")
		}
		time.Sleep(10 * time.Minute) // its requests end
	})
}

// TestUnansweredRequestsEnd checks that a request which is not answered gives its turn back.
func TestUnansweredRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, "payments")
		begin := time.Now()
		_, err := c.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "payments", Name: "nightly"}})
		if err == nil || time.Since(begin) > 5*time.Minute {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}
