package dropin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// restoreReconciler serves their EtcdRestores.
type restoreReconciler struct{ Options }

// Reconcile implements reconcile.Reconciler.
func (r *restoreReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if !r.Leads() {
		return ctrl.Result{RequeueAfter: notLeading}, nil
	}
	var theirs coreos.EtcdRestore
	err := r.Client.Get(ctx, request.NamespacedName, &theirs)
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if theirs.DeletionTimestamp != nil || theirs.Status.Succeeded {
		return ctrl.Result{}, nil
	}
	before := theirs.DeepCopy()
	again, err := r.advance(ctx, &theirs)
	switch {
	case apierrors.IsForbidden(err):
		theirs.Status.Reason = fmt.Sprintf("the API server forbids an act of the restore; if the operator has no right to restore in namespace %s, apply "+
			"etcd-restore-operator/deployment.yaml for it: %s", theirs.Namespace, err)
	case err != nil:
		theirs.Status.Reason = err.Error()
	}
	if err != nil {
		err = fmt.Errorf("EtcdRestore %s of coreos' operator: %w", request.NamespacedName, err)
	}
	if before.Status != theirs.Status {
		err = errors.Join(err, writeStatus(ctx, r.Client, before, &theirs))
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// advance sets theirs.Status in memory, and carries out the next act. It returns when to reconcile again; 0: after a change.
func (r *restoreReconciler) advance(ctx context.Context, theirs *coreos.EtcdRestore) (time.Duration, error) {
	a := adoption{restoreReconciler: r, theirs: theirs}
	err := a.read(ctx)
	if err != nil {
		return 0, err
	}
	if a.unusable != "" {
		theirs.Status.Reason = a.unusable
		return 0, nil // a change of theirs is watched
	}
	if a.fault != "" && (a.facts.ours == nil || a.facts.ours.Spec.Suspend) {
		theirs.Status.Reason = a.fault
		return faultAfter, nil
	}
	todo, why := next(a.name(), a.facts, time.Now())
	theirs.Status = coreos.RestoreStatus{Succeeded: todo == end && why == "", Reason: why}
	return a.carryOut(ctx, todo)
}

// adoption is one reconciliation of an EtcdRestore of theirs.
type adoption struct {
	*restoreReconciler
	theirs  *coreos.EtcdRestore
	spec    v1alpha1.EtcdRestoreSpec // of ours
	old     foreign.Old              // the snapshot of their operator
	cluster coreos.EtcdCluster       // without a name: there is none
	objects []foreign.Object         // that replace the EtcdCluster
	pods    []corev1.Pod             // the old members
	facts   facts

	fault    string // why the EtcdCluster cannot be replaced; "": it can
	unusable string // why the EtcdRestore cannot be carried out; "": it can
}

// name returns the name of the cluster.
func (a *adoption) name() string { return a.theirs.Spec.EtcdCluster.Name }

func (a *adoption) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: a.theirs.Namespace, Name: name}
}

// suffixed returns the name of an object of ours for this restore. The UID makes an EtcdRestore that is created again another restore.
// NAMESPACE.NAME has at most the 100 bytes of a cluster's name.
func (a *adoption) suffixed(suffix string) string {
	name := a.name()
	return name[:min(len(name), 20)] + suffix + "-" + string(a.theirs.UID[:min(8, len(a.theirs.UID))])
}

// carryOut carries out an act. It returns when to look again.
func (a *adoption) carryOut(ctx context.Context, todo act) (time.Duration, error) {
	switch todo {
	case create:
		return soonAfter, a.createObjects(ctx)
	case detach:
		return soonAfter, a.detach(ctx)
	case order:
		return soonAfter, a.order(ctx)
	case save:
		return soonAfter, a.save(ctx)
	case fence:
		return soonAfter, a.fence(ctx)
	case resume:
		before := a.facts.ours.DeepCopy()
		a.facts.ours.Spec.Suspend, a.facts.ours.Spec.Clone = false, false // no old member answers: the backups are suspended, as in any restore
		return soonAfter, a.Client.Patch(ctx, a.facts.ours, client.MergeFrom(before))
	case wait:
		return waitAfter, nil
	}
	return 0, nil
}

// waitAfter is how often the objects are read that no watch covers.
const waitAfter = 2 * time.Second

// order creates our EtcdRestore. Clone lets it build the new data while old members answer; fence stops them before it continues.
func (a *adoption) order(ctx context.Context) error {
	target, err := a.target(ctx)
	if err != nil {
		return err
	}
	ours := &v1alpha1.EtcdRestore{ObjectMeta: ownedBy(a.theirs, "EtcdRestore", a.suffixed("")), Spec: a.spec}
	ours.Spec.Target, ours.Spec.Clone = target, len(a.facts.members) > 0
	return ignoreExists(a.Client.Create(ctx, ours))
}

// save creates our EtcdBackup of the members that run. It has a cluster's name of its own, so that no restore of theirs takes it for the newest
// backup. No object owns it: it is the way back.
func (a *adoption) save(ctx context.Context) error {
	if a.facts.saved != nil { // it is stale: another one takes its name, and what it has stored stays
		return client.IgnoreNotFound(a.Client.Delete(ctx, a.facts.saved, client.Preconditions{UID: &a.facts.saved.UID}))
	}
	spec := v1alpha1.EtcdBackupSpec{
		Source:       &v1alpha1.Source{Endpoints: []string{a.clientURL()}},
		Repositories: []v1alpha1.Repository{*a.spec.From.Repository}, Unencrypted: true,
		Labels: map[string]string{"before": "EtcdRestore." + a.theirs.Name},
	}
	if a.spec.Access != nil {
		spec.Source.TLSSecret = a.spec.Access.TLSSecret
	}
	ours := &v1alpha1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{Name: a.suffixed("-before"), Namespace: a.theirs.Namespace}, Spec: spec}
	return ignoreExists(a.Client.Create(ctx, ours))
}

// clientURL returns the URL of the Service that clients use.
func (a *adoption) clientURL() string {
	scheme := "http"
	if a.servesTLS() {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s-client.%s.svc:2379", scheme, a.name(), a.theirs.Namespace)
}

// servesTLS reports whether the members of the EtcdCluster serve clients with TLS.
func (a *adoption) servesTLS() bool {
	policy := a.cluster.Spec.TLS
	return policy != nil && policy.Static != nil && policy.Static.Member != nil && policy.Static.Member.ServerSecret != ""
}

// createObjects creates the objects that replace the EtcdCluster, and leaves those that exist.
func (a *adoption) createObjects(ctx context.Context) error {
	for _, o := range a.objects {
		err := a.createObject(ctx, o)
		if err != nil {
			return err
		}
	}
	return nil
}

// clientSecret is the annotation of the StatefulSet with the Secret that has a client's certificate: later restores need it.
const clientSecret = "etcd-dr.io/client-secret"

func (a *adoption) createObject(ctx context.Context, o foreign.Object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	err = object.UnmarshalJSON(text)
	if err != nil {
		return err
	}
	if a.spec.Access != nil && o.Kind == "StatefulSet" {
		err = unstructured.SetNestedField(object.Object, a.spec.Access.TLSSecret.Name, "metadata", "annotations", clientSecret)
	}
	if err != nil {
		return err
	}
	err = ignoreExists(a.Client.Create(ctx, object))
	if err != nil {
		return fmt.Errorf("cannot create %s %s: %w", o.Kind, o.Metadata.Name, err)
	}
	return nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// fencedAt is the annotation of their EtcdCluster with the time at which its members were stopped, and the UID of the EtcdRestore that did.
const fencedAt = "etcd-dr.io/fenced"

// fence stops the members of their operator, which lose their data with their pods if they have no volumes.
func (a *adoption) fence(ctx context.Context) error {
	if a.facts.fenced.IsZero() {
		err := a.annotate(ctx, fencedAt, time.Now().UTC().Format(time.RFC3339)+" "+string(a.theirs.UID))
		if err != nil {
			return err
		}
	}
	return a.deleteMembers(ctx)
}

// annotate pauses their EtcdCluster, and gives it an annotation.
func (a *adoption) annotate(ctx context.Context, key, value string) error {
	before := a.cluster.DeepCopy()
	a.cluster.Spec.Paused = true
	metav1.SetMetaDataAnnotation(&a.cluster.ObjectMeta, key, value)
	err := a.Client.Patch(ctx, &a.cluster, client.MergeFrom(before))
	if err != nil {
		return fmt.Errorf("cannot pause EtcdCluster %s: %w", a.cluster.Name, err)
	}
	return nil
}

// detached is the annotation of their EtcdCluster whose Services do not end with it.
const detached = "etcd-dr.io/detached"

// detach pauses the EtcdCluster, and takes over its Services: clients keep the address. It precedes our EtcdRestore, which puts Services back as
// it has found them.
func (a *adoption) detach(ctx context.Context) error {
	for _, o := range a.objects {
		if o.Kind != "Service" {
			continue
		}
		err := a.takeOver(ctx, o)
		if err != nil {
			return err
		}
	}
	return a.annotate(ctx, detached, "true")
}

// takeOver makes a Service independent of the EtcdCluster, or creates it.
func (a *adoption) takeOver(ctx context.Context, o foreign.Object) error {
	var s corev1.Service
	err := a.Client.Get(ctx, a.key(o.Metadata.Name), &s)
	if apierrors.IsNotFound(err) {
		return a.createObject(ctx, o)
	}
	if err != nil {
		return err
	}
	before := s.DeepCopy()
	s.OwnerReferences = nil
	for _, ref := range before.OwnerReferences {
		if ref.UID != a.cluster.UID {
			s.OwnerReferences = append(s.OwnerReferences, ref)
		}
	}
	// Their operator sets only the old annotation, which the DNS of today ignores; members that are not ready would not find each other.
	s.Spec.PublishNotReadyAddresses = s.Spec.PublishNotReadyAddresses || s.Spec.ClusterIP == corev1.ClusterIPNone
	err = a.Client.Patch(ctx, &s, client.MergeFrom(before))
	if err != nil {
		return fmt.Errorf("cannot take over Service %s: %w", s.Name, err)
	}
	return nil
}

// deleteMembers deletes the old members by their UIDs.
func (a *adoption) deleteMembers(ctx context.Context) error {
	for _, p := range a.pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		err := a.Client.Delete(ctx, &p, client.Preconditions{UID: &p.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot delete pod %s: %w", p.Name, err)
		}
	}
	return nil
}
