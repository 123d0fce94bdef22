package restores_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/controller/restores"
)

// silent is an API server that does not answer.
type silent struct{ client.Client }

func (silent) Get(ctx context.Context, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestOneNamespaceTakesItsShare reconciles many restores of a namespace whose requests are not answered: only two of them are at work, and
// the others come back later. Those of another namespace have their own turns.
func TestOneNamespaceTakesItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &restores.Reconciler{Uncached: silent{}, Leads: func() bool { return true }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan time.Duration, 20)
		begin := func(namespace string, n int) {
			for range n {
				go func() {
					result, _ := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "nightly"}})
					ended <- result.RequeueAfter
				}()
			}
			synctest.Wait()
		}
		begin("payments", 5)
		if len(ended) != 3 {
			t.Fatalf("%d wait for their turn, want 3", len(ended))
		}
		for range 3 {
			after := <-ended
			if after <= 0 || after > time.Minute {
				t.Errorf("one comes back after %s", after)
			}
		}
		begin("orders", 2)
		if len(ended) != 0 {
			t.Errorf("%d of another namespace wait", len(ended))
		}
		cancel()
		synctest.Wait()
		if len(ended) != 4 {
			t.Errorf("%d have ended, want 4", len(ended))
		}
	})
}

// TestUnansweredRequestsEnd checks that a request which is not answered gives its turn back.
func TestUnansweredRequestsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &restores.Reconciler{Uncached: silent{}, Leads: func() bool { return true }}
		begin := time.Now()
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "payments", Name: "nightly"}})
		if err == nil || time.Since(begin) > 5*time.Minute {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}
