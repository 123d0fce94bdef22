package dropin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// backupReconciler serves their EtcdBackups.
type backupReconciler struct{ Options }

// Reconcile implements reconcile.Reconciler.
func (b *backupReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !b.Leads() {
		return ctrl.Result{RequeueAfter: notLeading}, nil
	}
	var theirs coreos.EtcdBackup
	err := b.Client.Get(ctx, request.NamespacedName, &theirs)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	err = b.release(ctx, &theirs)
	if err != nil || theirs.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	before := theirs.DeepCopy()
	again, err := b.advance(ctx, &theirs)
	if err != nil {
		theirs.Status = keepLast(coreos.BackupStatus{Reason: err.Error()}, before.Status)
		return ctrl.Result{}, errors.Join(fmt.Errorf("EtcdBackup %s of coreos' operator: %w", request.NamespacedName, err), b.write(ctx, before, &theirs))
	}
	return ctrl.Result{RequeueAfter: again}, b.write(ctx, before, &theirs)
}

// theirFinalizer is the finalizer of an EtcdBackup with an interval, which their operator removed (backup_manager.go).
const theirFinalizer = "backup-operator-periodic"

// release removes their finalizer: nothing else would, and the namespace could not be deleted.
func (b *backupReconciler) release(ctx context.Context, theirs *coreos.EtcdBackup) error {
	before := theirs.DeepCopy()
	if !controllerutil.RemoveFinalizer(theirs, theirFinalizer) {
		return nil
	}
	err := b.Client.Patch(ctx, theirs, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("cannot remove the finalizer %s of EtcdBackup %s: %w", theirFinalizer, client.ObjectKeyFromObject(theirs), err))
	}
	return nil
}

// advance applies the spec of theirs to our EtcdBackup, and sets theirs.Status in memory. It returns when to reconcile again; 0: after a change.
func (b *backupReconciler) advance(ctx context.Context, theirs *coreos.EtcdBackup) (time.Duration, error) {
	all, err := b.translate(theirs)
	if err != nil {
		return 0, err
	}
	t := all[0]
	if t.Err != nil {
		theirs.Status = coreos.BackupStatus{Reason: t.Err.Error()}
		return 0, nil // a change of theirs is watched
	}
	spec, ok := t.Objects[0].Spec.(v1alpha1.EtcdBackupSpec)
	if !ok {
		panic("an EtcdBackup becomes another object") // foreign
	}
	ours, err := b.apply(ctx, theirs, spec)
	switch {
	case err != nil:
		return 0, err
	case ours == nil: // theirs was carried out before this operator came, or ours is being replaced, which is watched
		return 0, nil
	case !metav1.IsControlledBy(ours, theirs):
		theirs.Status = coreos.BackupStatus{Reason: fmt.Sprintf("EtcdBackup %s of legacy.etcd-dr.io exists, and this EtcdBackup does not own it: delete one of them", ours.Name)}
		return faultAfter, nil
	}
	status := statusOf(ours)
	if ours.Status.Last == nil || !status.Succeeded {
		theirs.Status = keepLast(status, theirs.Status)
		return 0, nil
	}
	status.EtcdVersion = theirs.Status.EtcdVersion
	if !equality.Semantic.DeepEqual(status, theirs.Status) {
		status.EtcdVersion, err = b.publish(ctx, theirs, plain{spec: spec, id: catalog.ID(ours.Status.Last.ID), key: t.Key})
	}
	if err != nil { // such as an unreachable store
		theirs.Status = keepLast(coreos.BackupStatus{Reason: err.Error()}, theirs.Status)
		return faultAfter, nil
	}
	theirs.Status = status
	return 0, nil
}

// keepLast returns s with the last success of before.
func keepLast(s, before coreos.BackupStatus) coreos.BackupStatus {
	s.EtcdVersion, s.EtcdRevision, s.LastSuccessDate = before.EtcdVersion, before.EtcdRevision, before.LastSuccessDate
	return s
}

// translated is the annotation of our object with a digest of its translated spec. The spec itself has the defaults of the API server.
const translated = "etcd-dr.io/translated"

// digestOf returns a digest of a spec.
func digestOf(spec v1alpha1.EtcdBackupSpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err) // only texts, numbers and quantities
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// apply creates our EtcdBackup, or changes it if theirs has changed, and returns it. A completed single backup stays as it is; for any other change
// that the API server would refuse, ours is deleted. apply returns nil while ours is being deleted, and if there is none of a single backup that has
// succeeded. An EtcdBackup that theirs does not own is returned as it is.
func (b *backupReconciler) apply(ctx context.Context, theirs *coreos.EtcdBackup, spec v1alpha1.EtcdBackupSpec) (*v1alpha1.EtcdBackup, error) {
	ours := &v1alpha1.EtcdBackup{}
	err := b.Client.Get(ctx, client.ObjectKeyFromObject(theirs), ours)
	switch {
	case apierrors.IsNotFound(err) && isOnce(spec) && theirs.Status.Succeeded:
		return nil, nil
	case apierrors.IsNotFound(err):
		return b.create(ctx, theirs, spec)
	case err != nil:
		return nil, err
	case !metav1.IsControlledBy(ours, theirs) || ours.Annotations[translated] == digestOf(spec):
		return ours, nil
	case isOnce(ours.Spec) && ours.Status.Phase == v1alpha1.PhaseCompleted:
		return ours, nil // their operator carried it out once, too
	case isOnce(ours.Spec), isOnce(spec), ours.Spec.Cluster != spec.Cluster: // these cannot be changed
		theirs.Status = coreos.BackupStatus{} // of another spec
		return nil, client.IgnoreNotFound(b.Client.Delete(ctx, ours, client.Preconditions{UID: &ours.UID}))
	}
	before := ours.DeepCopy()
	ours.Spec = spec
	metav1.SetMetaDataAnnotation(&ours.ObjectMeta, translated, digestOf(spec))
	return ours, b.Client.Patch(ctx, ours, client.MergeFrom(before))
}

// create creates our EtcdBackup. It returns nil if there is one by now.
func (b *backupReconciler) create(ctx context.Context, theirs *coreos.EtcdBackup, spec v1alpha1.EtcdBackupSpec) (*v1alpha1.EtcdBackup, error) {
	ours := &v1alpha1.EtcdBackup{ObjectMeta: ownedBy(theirs, "EtcdBackup", theirs.Name), Spec: spec}
	metav1.SetMetaDataAnnotation(&ours.ObjectMeta, translated, digestOf(spec))
	if isOnce(spec) {
		like, err := b.scheduledFor(ctx, theirs.Namespace, spec)
		if err != nil {
			return nil, err
		}
		if like != "" {
			ours.Spec = v1alpha1.EtcdBackupSpec{Like: like}
		}
	}
	err := b.Client.Create(ctx, ours)
	if apierrors.IsAlreadyExists(err) {
		return nil, nil
	}
	return ours, err
}

// scheduledFor returns the name of our EtcdBackup that backs up the same source into the same repository on a schedule; "" if there is none. A
// cluster's name is unique, so single backups of it must use like.
func (b *backupReconciler) scheduledFor(ctx context.Context, namespace string, spec v1alpha1.EtcdBackupSpec) (string, error) {
	var all v1alpha1.EtcdBackupList
	err := b.Client.List(ctx, &all, client.InNamespace(namespace))
	for _, o := range all.Items {
		if o.Spec.Cluster == spec.Cluster && !isOnce(o.Spec) && equality.Semantic.DeepEqual(o.Spec.Source, spec.Source) {
			return o.Name, err
		}
	}
	return "", err
}

// isOnce reports whether spec takes one backup.
func isOnce(spec v1alpha1.EtcdBackupSpec) bool { return spec.Schedule == nil }

// write writes the status of theirs if it has changed.
func (b *backupReconciler) write(ctx context.Context, before, theirs *coreos.EtcdBackup) error {
	if equality.Semantic.DeepEqual(before.Status, theirs.Status) {
		return nil
	}
	before.ObjectMeta = theirs.ObjectMeta // which may have got a record
	return writeStatus(ctx, b.Client, before, theirs)
}

// writeStatus writes the status of an object of theirs. Their own definitions have no subresource for it (crd.go).
func writeStatus(ctx context.Context, c client.Client, before, theirs client.Object) error {
	patch := client.MergeFrom(before)
	err := c.Status().Patch(ctx, theirs, patch)
	if apierrors.IsNotFound(err) {
		err = client.IgnoreNotFound(c.Patch(ctx, theirs, patch))
	}
	if err != nil {
		return fmt.Errorf("cannot write the status of %s: %w", client.ObjectKeyFromObject(theirs), err)
	}
	return nil
}
