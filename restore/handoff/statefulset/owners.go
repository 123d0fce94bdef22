package statefulset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkManagers returns the programs that may scale the StatefulSet up again while it must be down.
func (m *Manager) checkManagers(set *appsv1.StatefulSet) (all findings) {
	const reverts = " may scale " + "it" + " up again while the data is exchanged"
	app, _, _ := strings.Cut(set.Annotations["argocd.argoproj.io/tracking-id"], ":")
	kustomization, release := set.Labels["kustomize.toolkit.fluxcd.io/name"], set.Labels["helm.toolkit.fluxcd.io/name"]
	scaler := scalerOf(set)
	switch {
	case app != "":
		all.add(note(fmt.Sprintf("Argo CD manages %s with the application %s, and%s", m, app, reverts),
			fmt.Sprintf("argocd app set %s --sync-policy none", app)))
	case kustomization != "":
		namespace := set.Labels["kustomize.toolkit.fluxcd.io/namespace"]
		all.add(note(fmt.Sprintf("Flux manages %s with the Kustomization %s/%s, and%s", m, namespace, kustomization, reverts),
			fmt.Sprintf("flux -n %s suspend kustomization %s", namespace, kustomization)))
	case release != "":
		namespace := set.Labels["helm.toolkit.fluxcd.io/namespace"]
		all.add(note(fmt.Sprintf("Flux manages %s with the HelmRelease %s/%s, and%s", m, namespace, release, reverts),
			fmt.Sprintf("flux -n %s suspend helmrelease %s", namespace, release)))
	case scaler != "" && !isByHand(scaler):
		all.add(note(fmt.Sprintf("%s set spec.replicas of %s, and%s", scaler, m, reverts), "suspend it, unless it was a person"))
	}
	return all
}

// isByHand reports whether a field manager is a program that acts only when a person runs it.
func isByHand(manager string) bool {
	return strings.HasPrefix(manager, "kubectl") || slices.Contains([]string{"helm", "Terraform", "HashiCorp", fieldOwner}, manager)
}

// scalerOf returns the field manager that was the last to set spec.replicas; "" if none is recorded.
func scalerOf(set *appsv1.StatefulSet) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range set.ManagedFields {
		if setsReplicas(entry) && (last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	return last.Manager
}

// setsReplicas reports whether an entry contains spec.replicas.
func setsReplicas(entry metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, sets := fields.Spec["f:replicas"]
	return sets
}

// throughOwner returns how to restore a StatefulSet that an operator runs.
func (m *Manager) throughOwner(owner *metav1.OwnerReference) string {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	switch group {
	case "druid.gardener.cloud":
		return "store a snapshot in the bucket of its sidecar, etcd-backup-restore, which restores it"
	case "etcd-operator.cozystack.io":
		return "create the EtcdCluster again with spec.bootstrap.restore, which names a snapshot that dr fetch has downloaded"
	case "kubermatic.k8c.io":
		return "create an EtcdRestore of kubermatic.k8c.io, which names a snapshot that dr fetch has downloaded"
	case "etcd.ydzs.io", "operator.etcd.io", "etcd.aenix.io": // their operators only scale the StatefulSet, and have no restore
		return fmt.Sprintf("remove its operator, and then the owner alone: kubectl -n %s delete %s.%s %s --cascade=orphan", m.Namespace,
			strings.ToLower(owner.Kind), group, owner.Name)
	}
	return "restore through that owner, or set up a StatefulSet without one"
}
