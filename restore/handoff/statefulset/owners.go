package statefulset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// checkManagers returns the programs that may scale the members up again while they must be down.
func (o objects) checkManagers() (all findings) {
	const reverts = " may scale it up again while the data is exchanged"
	object, scaler := o.scaled(), o.scaler()
	name, labels := describe(object), object.GetLabels()
	app, _, _ := strings.Cut(object.GetAnnotations()["argocd.argoproj.io/tracking-id"], ":")
	kustomization, release := labels["kustomize.toolkit.fluxcd.io/name"], labels["helm.toolkit.fluxcd.io/name"]
	switch {
	case app != "":
		all.add(note(fmt.Sprintf("Argo CD manages %s with the application %s, and%s", name, app, reverts),
			fmt.Sprintf("argocd app set %s --sync-policy none", app)))
	case kustomization != "":
		namespace := labels["kustomize.toolkit.fluxcd.io/namespace"]
		all.add(note(fmt.Sprintf("Flux manages %s with the Kustomization %s/%s, and%s", name, namespace, kustomization, reverts),
			fmt.Sprintf("flux -n %s suspend kustomization %s", namespace, kustomization)))
	case release != "":
		namespace := labels["helm.toolkit.fluxcd.io/namespace"]
		all.add(note(fmt.Sprintf("Flux manages %s with the HelmRelease %s/%s, and%s", name, namespace, release, reverts),
			fmt.Sprintf("flux -n %s suspend helmrelease %s", namespace, release)))
	case scaler != "" && !isByHand(scaler) && !yields(o.set):
		all.add(note(fmt.Sprintf("%s set spec.%s of %s, and%s", scaler, o.scaledBy(), name, reverts), "suspend it, unless it was a person"))
	}
	return all
}

// isByHand reports whether a field manager is a program that acts only when a person runs it.
func isByHand(manager string) bool {
	return strings.HasPrefix(manager, "kubectl") || slices.Contains([]string{"helm", "Terraform", "HashiCorp", fieldOwner}, manager)
}

// scaler returns the field manager that was the last to set the number of members; "" if none is recorded.
func (o objects) scaler() string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range o.scaled().GetManagedFields() {
		if sets(entry, o.scaledBy()) && (last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	return last.Manager
}

// sets reports whether an entry contains a field of the spec.
func sets(entry metav1.ManagedFieldsEntry, field string) bool {
	var fields struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, contained := fields.Spec["f:"+field]
	return contained
}

// findSet is readSet for a restore that begins. If there is no StatefulSet, and another operator runs the members as pods of its own, the error
// names the owner of such a pod: members in a StatefulSet would be a second cluster.
func (m *Manager) findSet(ctx context.Context) (*appsv1.StatefulSet, error) {
	set, err := m.readSet(ctx)
	if fault.KindOf(err) != fault.NotFound {
		return set, err
	}
	var list corev1.PodList
	unlisted := m.client.List(ctx, &list, client.InNamespace(m.Namespace))
	i := slices.IndexFunc(list.Items, m.isForeign)
	if unlisted != nil || i < 0 {
		return nil, err
	}
	pod := list.Items[i]
	owner := ownerOf(pod)
	return nil, fmt.Errorf("%w: %s does not exist, but %s %s of %s runs etcd in pod %s: %s; create %s only for another cluster",
		fault.NotFound, m, owner.Kind, owner.Name, groupOf(owner), pod.Name, m.throughOwner(owner), m)
}

// The API groups of operators that restore their clusters themselves.
const (
	druid      = "druid.gardener.cloud"
	cozystack  = "etcd-operator.cozystack.io"
	kubermatic = "kubermatic.k8c.io"
	improbable = "etcd.improbable.io"
)

// ofCluster are the labels of members' pods that contain the name of their EtcdCluster. The controllers of these pods are other objects: EtcdMembers
// of cozystack's operator (controllers/helpers.go), and ReplicaSets of improbable's (controllers/etcdpeer_controller.go).
var ofCluster = []struct{ label, apiVersion string }{{cozystack + "/cluster", cozystack + "/v1alpha2"}, {improbable + "/cluster-name", improbable + "/v1alpha1"}}

// ownerOf returns the EtcdCluster of a pod or, if no label names it, the controller; nil if it has neither. It knows no controller of a ReplicaSet:
// restores have no right to read ReplicaSets.
func ownerOf(pod corev1.Pod) *metav1.OwnerReference {
	for _, of := range ofCluster {
		cluster, found := pod.Labels[of.label]
		if found {
			return &metav1.OwnerReference{APIVersion: of.apiVersion, Kind: "EtcdCluster", Name: cluster}
		}
	}
	return metav1.GetControllerOf(&pod)
}

// isForeign reports whether a pod is a member of a cluster with the name of the StatefulSet, and belongs to another operator.
func (m *Manager) isForeign(pod corev1.Pod) bool {
	owner := ownerOf(pod)
	if owner == nil || hasEnded(pod) || slices.Contains([]string{"v1", "apps", "batch"}, groupOf(owner)) && owner.Kind != "ReplicaSet" {
		return false
	}
	named := strings.HasPrefix(pod.Name, m.Name+"-") || slices.Contains(slices.Collect(maps.Values(pod.Labels)), m.Name)
	return named && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return runsEtcd(c) || hasPorts(c) })
}

// throughOwner returns how to restore a cluster that an operator runs. What does not fit into a line is in docs/managers.md.
func (m *Manager) throughOwner(owner *metav1.OwnerReference) string {
	switch groupOf(owner) {
	case druid:
		return m.throughBucket(owner)
	case cozystack:
		return fmt.Sprintf("store a snapshot from dr fetch in S3 or on a claim, save the EtcdCluster, delete it (kubectl -n %s delete etcdcluster.%s %s), and create "+
			"it again with spec.bootstrap.restore.source, which names the snapshot: docs/managers.md has the commands", m.Namespace, cozystack, owner.Name)
	case kubermatic:
		return m.throughSeed(owner)
	case improbable:
		return m.throughTemplate(owner)
	case etcdIO: // those of its members that are pods without a StatefulSet
		return "that operator cannot restore a snapshot yet: create a StatefulSet with another name and 0 replicas, restore into that one, and let the clients " +
			"use it: docs/managers.md has the steps"
	case "etcd.database.coreos.com": // its members have no StatefulSet
		return "create an EtcdRestore of etcd.database.coreos.com, which dr operator --coreos carries out"
	case cnych: // readEtcdCluster has not found it
		return "that EtcdCluster does not exist, and Kubernetes may delete what belongs to it: " + m.keepSet()
	case "etcd.aenix.io": // its operator only scales the StatefulSet, and had no restore before version 0.4.3
		return m.orphan(owner)
	}
	return "restore through that owner, or set up a StatefulSet without one"
}

// throughBucket returns how to restore an Etcd of Gardener. Its sidecar restores a member without data to the full snapshot with the highest
// revision in its part of the bucket, and the deltas after it (etcd-backup-restore: pkg/miscellaneous, GetLatestFullSnapshotAndDeltaSnapList). The
// annotations keep etcd-druid from its objects, and let a person change them (docs/usage/recovering-etcd-clusters.md).
func (m *Manager) throughBucket(owner *metav1.OwnerReference) string {
	return fmt.Sprintf("etcd-druid restores by itself, only members without data, and only the snapshot with the highest revision in its spec.backup.store: begin "+
		"with kubectl -n %s annotate etcd.%s %s %s/suspend-etcd-spec-reconcile= %s/disable-etcd-component-protection= and store a snapshot there whose revisions "+
		"are above all others: docs/managers.md has the steps", m.Namespace, druid, owner.Name, druid, druid)
}

// throughSeed returns how to restore a Cluster of Kubermatic. The object of a backup in the bucket is called CLUSTER-BACKUP, and ends in .db or .db.gz
// (cmd/etcd-launcher/pkg/etcd: restoreDatadirFromBackupIfNeeded, DecompressSnapshot).
func (m *Manager) throughSeed(owner *metav1.OwnerReference) string {
	return fmt.Sprintf("store a snapshot from dr fetch as %s-dr.db in the bucket of a DESTINATION that its Seed names in spec.etcdBackupRestore, and create an "+
		`EtcdRestore: echo '{"apiVersion":"%s/v1","kind":"EtcdRestore","metadata":{"name":"dr"},"spec":{"name":"dr","backupName":"dr.db",`+
		`"destination":"DESTINATION","cluster":{"apiVersion":"%s/v1","kind":"Cluster","name":"%s"}}}' | kubectl -n %s create -f -`,
		owner.Name, kubermatic, kubermatic, owner.Name, m.Namespace)
}

// throughTemplate returns how to restore an EtcdCluster of improbable's operator: into another one. Its controller crashes if the template has no
// resources (controllers/etcdrestore_controller.go, podForRestore). Its agent receives the snapshot in one message of gRPC, for which 4 MiB is the
// limit (cmd/restore-agent).
func (m *Manager) throughTemplate(owner *metav1.OwnerReference) string {
	return fmt.Sprintf("store a snapshot from dr fetch in S3 or GCS, and create an EtcdRestore with its URL and a cluster with another name: "+
		`kubectl -n %s get etcdcluster.%s %s -o json | jq '{apiVersion,kind:"EtcdRestore",metadata:{name:"%s-dr"},spec:{source:{objectURL:"URL"},`+
		`clusterTemplate:{clusterName:"%s-dr",spec:(.spec|.podTemplate.resources//={})}}}' | kubectl -n %s create -f -`+
		"; its agent takes at most 4 MiB: restore more than that into a StatefulSet with another name",
		m.Namespace, improbable, owner.Name, owner.Name, owner.Name, m.Namespace)
}

// groupOf returns the API group of an owner.
func groupOf(owner *metav1.OwnerReference) string {
	group, _, _ := strings.Cut(owner.APIVersion, "/")
	return group
}

// orphan returns how to remove the owner of the StatefulSet, and keep the StatefulSet. An operator that still runs might take it back, and then
// Kubernetes would delete it with its owner.
func (m *Manager) orphan(owner *metav1.OwnerReference) string {
	return fmt.Sprintf("remove its operator, wait until the operator's pod is gone, and then delete only the owner: kubectl -n %s delete %s.%s %s "+
		"--cascade=orphan", m.Namespace, strings.ToLower(owner.Kind), groupOf(owner), owner.Name)
}

// keepSet returns how to keep the StatefulSet when its owner is gone.
func (m *Manager) keepSet() string {
	return fmt.Sprintf(`keep the StatefulSet: kubectl -n %s patch statefulset %s --type=merge -p '{"metadata":{"ownerReferences":null}}'`, m.Namespace, m.Name)
}
