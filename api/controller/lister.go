package controller

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// restoreLister lists the EtcdRestores in the cache of their Reconciler, also on operators that carry out none. It never contacts the API
// server: a probe must not wait for that.
type restoreLister struct {
	reconcile.Reconciler
	cache  client.Reader
	filled atomic.Bool // a cache that is not filled makes its readers wait
}

// Reconcile implements reconcile.Reconciler. A Reconciler is called only after its cache is filled.
func (l *restoreLister) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	l.filled.Store(true)
	return l.Reconciler.Reconcile(ctx, request)
}

// list returns all EtcdRestores, by namespace and name; none until the cache is filled.
func (l *restoreLister) list() (all []document.ServedRestore) {
	if !l.filled.Load() {
		return nil
	}
	var read v1alpha1.EtcdRestoreList
	err := l.cache.List(context.Background(), &read, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the operator is about to end
	}
	for i := range read.Items {
		all = append(all, served(&read.Items[i]))
	}
	slices.SortFunc(all, func(a, b document.ServedRestore) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// served returns the document of e.
func served(e *v1alpha1.EtcdRestore) document.ServedRestore {
	s := e.Status
	r := document.ServedRestore{
		Namespace: e.Namespace, Name: e.Name, StatefulSet: e.Spec.Into.StatefulSet.Name, Cluster: s.Cluster,
		Phase: string(cmp.Or(s.Phase, v1alpha1.RestorePending)), Ended: handoff.Phase(s.Phase).HasEnded(), MembersDone: s.MembersDone, Message: s.Message,
	}
	if s.Since != nil {
		r.Since = s.Since.UTC()
	}
	if s.Outcome != nil {
		down, _ := time.ParseDuration(s.Outcome.Downtime) // "": no member was stopped
		r.Downtime = down.Seconds()
	}
	return r
}
