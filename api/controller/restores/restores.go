// Package restores carries out EtcdRestores with package handoff.
//
// The record of a restore is stored next to its StatefulSet after each step. One reconciliation loads it, carries out the due
// step, stores it, and writes it into the status. So after a kill at any moment another operator continues. Only the leader does this.
//
// The operator holds no identity and reads none: Jobs mount it. It reads the catalog of the repository with the credentials of a Secret of
// the namespace, never with its own identity.
package restores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/handoff/statefulset"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/fault"
	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// Finalizer keeps an EtcdRestore while its restore holds anything: new data on the disks, stopped members, suspended backups.
const Finalizer = "etcd-dr.io/restore"

// Reconciler carries out EtcdRestores.
type Reconciler struct {
	Client   client.Client // writes EtcdRestores, and reads their phases, perhaps from a cache
	Uncached client.Client // reads EtcdRestores, reads and changes StatefulSets and their objects; must not cache
	Group    string        // of the EtcdRestores
	Image    string        // of dr, for the Jobs
	Leads    func() bool   // whether this operator carries out restores
	Events   Recorder
	Sources  Sources
	Open     func(ctx context.Context, r spec.Repository) (storage.Bucket, error)
	Reach    reach.Reach                      // the addresses to which client URLs in manifests may lead
	Target   func(statefulset.Options) Target // NewTarget, or another one in tests

	turns turns
}

// Recorder records events; events.EventRecorder is one.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventType, reason, action, format string, args ...any)
}

// Sources reads the objects of a namespace that EtcdRestores name. An error that matches ErrSettings names the field.
type Sources interface {
	// Settings returns the settings of e, with those of the EtcdBackup that it names.
	Settings(ctx context.Context, e *v1alpha1.EtcdRestore) (Settings, error)
	// Repository returns the repository of s, with its credentials.
	Repository(ctx context.Context, namespace string, s Settings) (spec.Repository, error)
	// Access returns the configuration for connections to the members of a cluster, without their endpoints.
	Access(ctx context.Context, namespace string, a v1alpha1.Access) (cluster.Config, error)
}

// ErrSettings means that the settings cannot be used as they are. A change of an object may cure that.
var ErrSettings = fault.New(fault.Busy, "the settings cannot be used")

// The times between two reconciliations of one EtcdRestore, besides those of inplace.Pause.
const (
	soonAfter  = time.Second      // another process has changed an object
	turnAfter  = time.Second      // other restores of the namespace have its turns
	faultAfter = 10 * time.Second // the settings cannot be used, which a changed object may cure
)

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if !r.Leads() {
		return reconcile.Result{}, nil
	}
	var e v1alpha1.EtcdRestore
	err := r.Client.Get(ctx, request.NamespacedName, &e)
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	k := turnOf(request.Namespace, handoff.Phase(e.Status.Phase))
	if !r.turns.take(k) {
		return reconcile.Result{RequeueAfter: turnAfter}, nil
	}
	defer r.turns.give(k)
	ctx, cancel := context.WithTimeout(ctx, inplace.ActTime)
	defer cancel()
	e = v1alpha1.EtcdRestore{}
	err = r.Uncached.Get(ctx, request.NamespacedName, &e) // a cache may lack the last step: its events would be recorded again
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	read := e.DeepCopy()
	again, err := r.advance(ctx, &e)
	if apierrors.IsConflict(err) || errors.Is(err, fault.Busy) { // it was just changed, or another operator has just led
		return reconcile.Result{RequeueAfter: soonAfter}, nil
	}
	if apierrors.IsForbidden(err) && !r.allowed(ctx, e.Namespace) {
		return reconcile.Result{RequeueAfter: faultAfter}, r.explain(ctx, read, fmt.Sprintf(
			"the operator has no right to carry out restores in namespace %s: its administrator can allow that, with restores.enabled in the chart or "+
				"with restores.yaml", e.Namespace))
	}
	if err != nil {
		return reconcile.Result{}, errors.Join(fmt.Errorf("EtcdRestore %s: %w", request.NamespacedName, err), r.explain(ctx, read, err.Error()))
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// allowed reports whether the operator has the right to carry out restores in a namespace; true if the API server does not answer. A
// quota or an admission controller can also be the reason of a refusal, so this asks the API server.
func (r *Reconciler) allowed(ctx context.Context, namespace string) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Group: appsv1.GroupName, Resource: "statefulsets"},
	}}
	err := r.Uncached.Create(ctx, review)
	return err != nil || review.Status.Allowed
}

// explain writes into e's status why its restore does not continue. The phase does not change.
func (r *Reconciler) explain(ctx context.Context, e *v1alpha1.EtcdRestore, why string) error {
	before := e.DeepCopy()
	if e.Status.Phase == "" {
		e.Status.Phase = v1alpha1.RestorePending
	}
	e.Status.Message = fields.Replace(why)
	setConditions(e)
	return r.write(ctx, before, e)
}

// advance carries out one step of e's restore. It returns after what time to reconcile e again; 0: after the next change.
func (r *Reconciler) advance(ctx context.Context, e *v1alpha1.EtcdRestore) (time.Duration, error) {
	dropped, err := r.dropIfTerminating(ctx, e)
	if dropped || err != nil {
		return 0, err
	}
	one := &run{Reconciler: r, before: e.DeepCopy(), restore: e, id: idOf(e)}
	record, err := one.load(ctx)
	switch {
	case errors.Is(err, fault.NotFound):
		return one.begin(ctx)
	case err != nil:
		return 0, err
	}
	return one.resume(ctx, record)
}

// dropIfTerminating removes e's finalizer if its namespace is being deleted: its members and their disks are deleted too. The pin and the
// suspension are not, so it tries once to end them: the Secret with the credentials may be deleted already.
func (r *Reconciler) dropIfTerminating(ctx context.Context, e *v1alpha1.EtcdRestore) (bool, error) {
	if e.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(e, Finalizer) {
		return false, nil
	}
	var namespace corev1.Namespace
	err := r.Uncached.Get(ctx, types.NamespacedName{Name: e.Namespace}, &namespace)
	if err != nil || namespace.DeletionTimestamp == nil {
		return false, err
	}
	gone := &run{Reconciler: r, before: e.DeepCopy(), restore: e.DeepCopy(), id: idOf(e)}
	err = r.hold(ctx, e, false) // first: nothing may keep the namespace
	if err == nil {
		gone.tryLift(ctx)
	}
	return true, err
}

// hold adds the finalizer to e if held is true, else removes it.
func (r *Reconciler) hold(ctx context.Context, e *v1alpha1.EtcdRestore, held bool) error {
	if controllerutil.ContainsFinalizer(e, Finalizer) == held {
		return nil
	}
	changed := e.DeepCopy()
	if held {
		controllerutil.AddFinalizer(changed, Finalizer)
	} else {
		controllerutil.RemoveFinalizer(changed, Finalizer)
	}
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(e, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	e.ObjectMeta = changed.ObjectMeta
	return nil
}

// write writes e's status if it differs from before's, and records the events of the change.
func (r *Reconciler) write(ctx context.Context, before, e *v1alpha1.EtcdRestore) error {
	if equality.Semantic.DeepEqual(before.Status, e.Status) {
		return nil
	}
	status := e.DeepCopy()
	status.ObjectMeta = before.ObjectMeta
	err := r.Client.Status().Patch(ctx, status, client.MergeFrom(before))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot write the status of EtcdRestore %s: %w", client.ObjectKeyFromObject(e), err)
	}
	for _, event := range eventsOf(before.Status, e.Status) {
		r.record(e, event)
	}
	return nil
}

func (r *Reconciler) record(e *v1alpha1.EtcdRestore, what event) {
	text := what.message
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "")
	}
	r.Events.Eventf(e, nil, what.kind, what.reason, "Restore", "%s", text)
}
