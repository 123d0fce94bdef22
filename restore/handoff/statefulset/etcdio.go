package statefulset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// etcdIO is the API group of etcd-io/etcd-operator. Its controller takes a StatefulSet with 0 replicas for a new cluster, and starts the first
// member at once. But it does not touch a StatefulSet that its EtcdCluster owns without controlling it
// (internal/controller/etcdcluster_controller.go, fetchAndValidateState). So a restore takes control away from the EtcdCluster together with
// the replicas, and gives it back once members run. The EtcdCluster stays an owner: if it is deleted, Kubernetes deletes the StatefulSet with it, as
// always. Whenever the operator scales the StatefulSet, it removes all annotations.
const etcdIO = "operator.etcd.io"

// yieldingOwner returns the EtcdCluster of etcd-io's operator that owns set, and whether it controls it. It returns nil if there is none, or if
// another owner controls set.
func yieldingOwner(set *appsv1.StatefulSet) (owner *metav1.OwnerReference, controls bool) {
	controller := metav1.GetControllerOf(set)
	if controller != nil && groupOf(controller) != etcdIO {
		return nil, false
	}
	i := slices.IndexFunc(set.OwnerReferences, func(r metav1.OwnerReference) bool {
		return groupOf(&r) == etcdIO && (controller == nil || r.UID == controller.UID)
	})
	if i < 0 {
		return nil, false
	}
	return &set.OwnerReferences[i], controller != nil
}

// yields reports whether an EtcdCluster of etcd-io's operator controls set.
func yields(set *appsv1.StatefulSet) bool {
	_, controls := yieldingOwner(set)
	return controls
}

// checkYielding returns the fact about the EtcdCluster of etcd-io's operator that owns the StatefulSet; nil: none does.
func (m *Manager) checkYielding(set *appsv1.StatefulSet) *handoff.Finding {
	owner, controls := yieldingOwner(set)
	switch {
	case owner == nil:
		return nil
	case controls:
		return note(fmt.Sprintf("%s %s controls %s: its operator may start members while the data is exchanged", owner.Kind, owner.Name, m),
			"the restore takes control away from it until the end; change neither its size nor its version meanwhile")
	}
	return note(fmt.Sprintf("%s %s owns %s, but does not control it: an earlier restore has not given control back, or a person has taken it away",
		owner.Kind, owner.Name, m), "the restore gives it control at the end")
}

// tryControl asks the API server whether the restore may take control of the StatefulSet, without a change. The admission plugin
// OwnerReferencesPermissionEnforcement demands the right to delete the StatefulSet.
func (m *Manager) tryControl(ctx context.Context, set *appsv1.StatefulSet) error {
	owner, controls := yieldingOwner(set)
	if !controls {
		return nil
	}
	after := set.DeepCopy()
	setControl(after, false)
	err := m.client.Patch(ctx, after, client.MergeFrom(set), client.DryRunAll)
	return apiError(err, "take control of %s away from %s %s", m, owner.Kind, owner.Name)
}

// setControl sets whether the EtcdCluster of etcd-io's operator that owns set controls it, if there is one.
func setControl(set *appsv1.StatefulSet, controls bool) {
	owner, _ := yieldingOwner(set)
	if owner != nil {
		owner.Controller = &controls
	}
}

// controlBack returns how to give control of set back by hand, as the end of a remedy; "": it was not taken.
func controlBack(set *appsv1.StatefulSet) string {
	owner, controls := yieldingOwner(set)
	if owner == nil || controls {
		return ""
	}
	i := slices.IndexFunc(set.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner.UID })
	return fmt.Sprintf(`, and kubectl -n %s patch statefulset %s --type=json -p '[{"op":"add","path":"/metadata/ownerReferences/%d/controller","value":true}]'`,
		set.Namespace, set.Name, i)
}

// sizedBy returns the object in which a person sets the number of members.
func (o objects) sizedBy() string {
	owner, controls := yieldingOwner(o.set)
	if controls {
		return fmt.Sprintf("%s %s/%s", owner.Kind, o.set.Namespace, owner.Name)
	}
	return describe(o.scaled())
}

// withSpare returns the remedy for a claim of a pod after the members'.
func (o objects) withSpare() string {
	if yields(o.set) { // a member of the old cluster cannot join with that data
		return "delete the claim"
	}
	return fmt.Sprintf("scale %s up to restore that member too, or delete the claim", describe(o.scaled()))
}

// keepers are the objects that remember the last restores: the StatefulSet, and the Service of one whose annotations its operator removes.
func (o objects) keepers() []client.Object {
	owner, _ := yieldingOwner(o.set)
	if owner == nil || o.service == nil {
		return []client.Object{o.set}
	}
	return []client.Object{o.set, o.service}
}
