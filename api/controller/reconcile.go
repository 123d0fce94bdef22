package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler"
)

// The times between two reconciliations of one EtcdBackup.
const (
	settingsAfter = time.Minute      // Secrets and StatefulSets are not watched: they are read again
	faultAfter    = 10 * time.Second // the same, while the settings are invalid, which a changed object may fix
	soonAfter     = time.Second      // the service does not know the cluster yet
)

// reconciler applies the settings of EtcdBackups, and writes their status.
type reconciler struct {
	client   client.Client // reads EtcdBackups from a cache
	uncached client.Reader // reads Secrets and StatefulSets
	service  *scheduler.Service
	table    *table
	leads    func() bool // whether this operator writes status and requests backups
	events   recorder
	loopback bool
	spools   spools
	ambient  []string

	mu      sync.Mutex
	written map[types.NamespacedName]pace                // writes of the status; guarded by mu
	waiting map[string]map[types.NamespacedName]struct{} // by cluster: one-time EtcdBackups; guarded by mu

	listing sync.Mutex
	listed  bool // table contains all EtcdBackups that existed at the start; guarded by listing
}

// recorder records events; events.EventRecorder is one.
type recorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, format string, args ...any)
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	err := r.list(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var b v1alpha1.EtcdBackup
	err = r.client.Get(ctx, request.NamespacedName, &b)
	if apierrors.IsNotFound(err) {
		r.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot read EtcdBackup %s: %w", request.NamespacedName, err)
	}
	before := b.DeepCopy()
	again, err := r.advance(ctx, &b)
	if err != nil {
		return reconcile.Result{}, err
	}
	wait, err := r.write(ctx, before, &b)
	if wait > 0 && (again == 0 || wait < again) {
		again = wait
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// list claims the clusters of all EtcdBackups once, before the first one is built: they are reconciled in any order, and no younger
// duplicate may be in effect before the older one is read. It also closes the spools that none of them uses.
func (r *reconciler) list(ctx context.Context) error {
	r.listing.Lock()
	defer r.listing.Unlock()
	if r.listed {
		return nil
	}
	var all v1alpha1.EtcdBackupList
	err := r.client.List(ctx, &all)
	if err != nil {
		return fmt.Errorf("cannot list EtcdBackups: %w", err)
	}
	for _, b := range all.Items {
		if b.Spec.Like == "" && !hasEnded(&b) && checkName(&b) == nil {
			r.table.claim(client.ObjectKeyFromObject(&b), entry{uid: b.UID, created: b.CreationTimestamp.Time, claimedCluster: clusterOf(&b)})
		}
	}
	r.listed = true
	r.spools.closeUnused(all.Items)
	return nil
}

// isListed reports whether list has succeeded: the operator is ready then.
func (r *reconciler) isListed() bool {
	r.listing.Lock()
	defer r.listing.Unlock()
	return r.listed
}

// hasEnded reports whether b has taken its one backup, or has failed to.
func hasEnded(b *v1alpha1.EtcdBackup) bool {
	return b.Status.Phase == v1alpha1.PhaseCompleted || b.Status.Phase == v1alpha1.PhaseFailed
}

// forget drops everything kept for an EtcdBackup.
func (r *reconciler) forget(name types.NamespacedName) {
	r.table.remove(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.written, name)
	for cluster, names := range r.waiting {
		delete(names, name)
		if len(names) == 0 {
			delete(r.waiting, cluster)
		}
	}
}

// advance applies b's settings, and updates its status in memory. It returns when to look again; 0: after the next change.
func (r *reconciler) advance(ctx context.Context, b *v1alpha1.EtcdBackup) (time.Duration, error) {
	name := client.ObjectKeyFromObject(b)
	if hasEnded(b) {
		r.forget(name)
		return 0, nil
	}
	cluster, accepted, err := r.accept(ctx, b)
	if err != nil {
		return 0, err
	}
	setAccepted(b, accepted)
	if cluster == "" {
		describeRefused(b)
		return faultAfter, nil
	}
	status, err := r.service.StatusOf(cluster)
	if err != nil { // the service has not picked up the settings yet
		return soonAfter, nil
	}
	describe(b, status, time.Now())
	if isOneTime(b) && accepted.Message == "" {
		r.await(cluster, name)
		return r.takeOnce(ctx, b, status)
	}
	return settingsAfter, nil
}

// accept applies b's settings. It returns the cluster that b backs up; "" if none of its settings is in effect.
func (r *reconciler) accept(ctx context.Context, b *v1alpha1.EtcdBackup) (string, acceptance, error) {
	name := client.ObjectKeyFromObject(b)
	if b.Spec.Like != "" {
		r.table.remove(name) // it may have had settings of its own before
		return r.like(ctx, b)
	}
	now := time.Now()
	e := r.table.get(name)
	if !e.isCurrent(b.UID, b.Generation, now) {
		built, err := r.build(ctx, b, now)
		if err != nil {
			return "", acceptance{}, err
		}
		e = built
		r.table.put(name, e)
	}
	cluster, duplicate := r.table.inEffect(name)
	if duplicate != "" {
		return "", acceptance{reasonDuplicate, duplicate}, nil
	}
	return cluster, acceptance{reasonInvalid, e.fault}, nil
}

// build reads the Secrets and the StatefulSet of b, and returns its entry. An error means that the API server did not answer.
func (r *reconciler) build(ctx context.Context, b *v1alpha1.EtcdBackup, now time.Time) (entry, error) {
	read, err := readSecrets(ctx, r.uncached, b.Namespace, secretNames(b.Spec))
	if err != nil {
		return entry{}, err
	}
	set, err := readStatefulSet(ctx, r.uncached, b)
	if err != nil {
		return entry{}, err
	}
	d := declaration{secrets: read, statefulSet: set, loopback: r.loopback, spool: r.spools.dir, ambient: r.ambient}
	built, err := d.buildSpec(b)
	e := entry{uid: b.UID, created: b.CreationTimestamp.Time, spec: built, backup: b.DeepCopy(), generation: b.Generation, read: now}
	if err != nil {
		e.fault, e.unservedCluster = err.Error(), refusedAs(b)
	}
	return e, nil
}

// like returns the cluster of the EtcdBackup that b names.
func (r *reconciler) like(ctx context.Context, b *v1alpha1.EtcdBackup) (string, acceptance, error) {
	other := types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.Like}
	var named v1alpha1.EtcdBackup
	err := r.client.Get(ctx, other, &named)
	if client.IgnoreNotFound(err) != nil {
		return "", acceptance{}, fmt.Errorf("cannot read EtcdBackup %s: %w", other, err)
	}
	cluster, _ := r.table.inEffect(other) // not from the object just read, which may not be accepted yet
	switch {
	case err != nil:
		return "", acceptance{reasonMissing, fmt.Sprintf("spec.like: there is no EtcdBackup %s in this namespace: correct the name", other.Name)}, nil
	case cluster == "":
		return "", acceptance{reasonInvalid, fmt.Sprintf("spec.like: the settings of EtcdBackup %s are not in effect: see its condition Accepted; or its one-time backup has completed", other.Name)}, nil
	}
	return cluster, acceptance{}, nil
}

// await makes each change of the cluster's status requeue the one-time EtcdBackup.
func (r *reconciler) await(cluster string, name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[cluster] == nil {
		r.waiting[cluster] = map[types.NamespacedName]struct{}{}
	}
	r.waiting[cluster][name] = struct{}{}
}

// names returns all EtcdBackups whose status may change, in no particular order.
func (r *reconciler) names() []types.NamespacedName {
	all := r.table.names()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, waiting := range r.waiting {
		all = slices.AppendSeq(all, maps.Keys(waiting))
	}
	return all
}

// concerned returns the EtcdBackups whose status follows that of the cluster.
func (r *reconciler) concerned(cluster string) (names []types.NamespacedName) {
	name, ok := r.table.nameOf(cluster)
	if ok {
		names = append(names, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.waiting[cluster] {
		if other != name {
			names = append(names, other)
		}
	}
	return names
}

// write writes b's status if it differs from before's. If that is too early, it returns how long to wait.
func (r *reconciler) write(ctx context.Context, before, b *v1alpha1.EtcdBackup) (time.Duration, error) {
	if !r.leads() || equality.Semantic.DeepEqual(before.Status, b.Status) {
		return 0, nil
	}
	name := client.ObjectKeyFromObject(b)
	urgent := before.Status.Phase != b.Status.Phase || before.Status.ObservedGeneration != b.Status.ObservedGeneration
	r.mu.Lock()
	wait := r.written[name].wait(time.Now(), urgent)
	r.mu.Unlock()
	if wait > 0 {
		return wait, nil
	}
	err := r.client.Status().Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown { // the API server has answered
		r.mu.Lock()
		r.written[name] = r.written[name].after(time.Now())
		r.mu.Unlock()
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return soonAfter, nil // the cache is behind
	}
	if err != nil {
		return 0, fmt.Errorf("cannot write the status of EtcdBackup %s: %w", name, err)
	}
	for _, e := range eventsOf(before, b) {
		r.events.Eventf(b, nil, e.kind, e.reason, e.action, "%s", shortened(e.message))
	}
	return 0, nil
}
