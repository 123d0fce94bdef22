package controller

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waker makes the reconciler look at EtcdBackups that have not changed themselves.
type waker struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request] // nil before start; guarded by mu
}

// start implements source.Func.
func (w *waker) start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

// wake queues EtcdBackups. It does not block.
func (w *waker) wake(names []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return // every EtcdBackup is queued at the start
	}
	for _, name := range names {
		w.queue.Add(reconcile.Request{NamespacedName: name})
	}
}
