package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// etcdIO is the API group of etcd-io/etcd-operator. Its controller takes a StatefulSet with 0 replicas for a new cluster, and starts the first
// member at once. But it does not touch a StatefulSet that its EtcdCluster owns without controlling it
// (internal/controller/etcdcluster_controller.go, fetchAndValidateState). So a restore takes the control from the EtcdCluster together with the
// replicas, and gives it back once members run. The EtcdCluster stays an owner: if it is deleted, Kubernetes deletes the StatefulSet with it, as always.
const etcdIO = "operator.etcd.io"

// yieldingOwner returns the EtcdCluster of etcd-io's operator that owns set; nil: none does.
func yieldingOwner(set *appsv1.StatefulSet) *metav1.OwnerReference {
	i := slices.IndexFunc(set.OwnerReferences, func(r metav1.OwnerReference) bool { return groupOf(&r) == etcdIO })
	if i < 0 {
		return nil
	}
	return &set.OwnerReferences[i]
}

// controllerToSave returns the UID of the EtcdCluster of etcd-io's operator that is to control set after the restore; "": none. It controls
// set now, or an earlier restore has left it without members, and so without control.
func controllerToSave(set *appsv1.StatefulSet) types.UID {
	owner := yieldingOwner(set)
	if owner != nil && (yieldingController(set) != nil || replicasOf(set) == 0) {
		return owner.UID
	}
	return ""
}

// yieldingController returns the EtcdCluster of etcd-io's operator that controls set; nil: none does.
func yieldingController(set *appsv1.StatefulSet) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(set)
	if owner == nil || groupOf(owner) != etcdIO {
		return nil
	}
	return owner
}

// checkYielding returns the fact about an EtcdCluster of etcd-io's operator that controls the StatefulSet; nil: none does.
func (m *Manager) checkYielding(set *appsv1.StatefulSet) *handoff.Finding {
	owner := yieldingController(set)
	if owner == nil {
		return nil
	}
	return note(fmt.Sprintf("%s %s controls %s: its operator may start members while the data is exchanged", owner.Kind, owner.Name, m),
		"the restore takes the control from it until it has ended; change neither its size nor its version meanwhile")
}

// tryControl asks the API server whether it would let the restore take the control of the StatefulSet, without a change. Its admission plugin
// OwnerReferencesPermissionEnforcement demands the right to delete the StatefulSet.
func (m *Manager) tryControl(ctx context.Context, o *objects) error {
	owner := yieldingController(o.set)
	if owner == nil {
		return nil
	}
	after := o.set.DeepCopy()
	setControl(after, owner.UID, false)
	err := m.client.Patch(ctx, after, client.MergeFrom(o.set), client.DryRunAll)
	return apiError(err, "take the control of %s from %s %s", m, owner.Kind, owner.Name)
}

// sizedBy returns the object in which a person sets the number of members.
func (o objects) sizedBy() string {
	owner := yieldingController(o.set)
	if owner != nil {
		return fmt.Sprintf("%s %s/%s", owner.Kind, o.set.Namespace, owner.Name)
	}
	return describe(o.scaled())
}

// setControl sets whether the owner with a UID controls set, unless another owner does.
func setControl(set *appsv1.StatefulSet, owner types.UID, controls bool) {
	if controls && metav1.GetControllerOf(set) != nil {
		return
	}
	for i := range set.OwnerReferences {
		if set.OwnerReferences[i].UID == owner {
			set.OwnerReferences[i].Controller = &controls
		}
	}
}

// readVariables reads the ConfigMaps from which the containers take variables. A container whose ConfigMap is missing does not start, or does
// without.
func (m *Manager) readVariables(ctx context.Context, o *objects) error {
	var names []string
	for _, c := range o.set.Spec.Template.Spec.Containers {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				names = append(names, from.ConfigMapRef.Name)
			}
		}
	}
	o.variables = map[string]*corev1.ConfigMap{}
	return readMissing(ctx, m, names, o.variables, &corev1.ConfigMap{})
}

// etcdContainer returns the container that runs etcd, see etcdContainer. Its variables include those from ConfigMaps.
func (o objects) etcdContainer(name string) (corev1.Container, *handoff.Finding) {
	c, finding := etcdContainer(o.set.Spec.Template.Spec, name)
	var all []corev1.EnvVar
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil || o.variables[from.ConfigMapRef.Name] == nil {
			continue
		}
		data := o.variables[from.ConfigMapRef.Name].Data
		for _, key := range slices.Sorted(maps.Keys(data)) {
			literal := strings.ReplaceAll(data[key], "$", "$$") // Kubernetes expands no references in it
			all = append(all, corev1.EnvVar{Name: from.Prefix + key, Value: literal})
		}
	}
	c.Env = append(all, c.Env...) // those of the container itself prevail
	return c, finding
}
