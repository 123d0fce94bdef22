package statefulset

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// cnych is the API group of cnych/etcd-operator. After every change its controller replaces the spec of the StatefulSet: the replicas and
// the variable INITIAL_CLUSTER_SIZE become spec.size of the EtcdCluster (controllers/resource.go, MutateStatefulSet). So a restore sets that
// size, and waits for the operator. It does not also set spec.replicas: a pod whose ordinal is INITIAL_CLUSTER_SIZE or higher would add
// itself to the cluster as a new member, and delete its data when it stops.
const cnych = "etcd.ydzs.io"

// etcdCluster is the EtcdCluster of cnych's operator that owns the StatefulSet.
type etcdCluster struct{ *unstructured.Unstructured }

// String returns the kind, the namespace and the name.
func (c etcdCluster) String() string { return describe(c.Unstructured) }

// readEtcdCluster reads the EtcdCluster of cnych's operator that owns the StatefulSet, if there is one.
func (m *Manager) readEtcdCluster(ctx context.Context, o *objects) error {
	owner := metav1.GetControllerOf(o.set)
	if owner == nil || groupOf(owner) != cnych || owner.Kind != "EtcdCluster" {
		return nil
	}
	found := &unstructured.Unstructured{}
	found.SetAPIVersion(owner.APIVersion)
	found.SetKind(owner.Kind)
	err := m.client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: owner.Name}, found)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err == nil && found.GetUID() != owner.UID {
		return nil
	}
	if err != nil {
		return apiError(err, "read EtcdCluster %s/%s, which owns %s", m.Namespace, owner.Name, m)
	}
	o.cluster = &etcdCluster{found}
	return nil
}

// trySize asks the API server whether it would set the size of the EtcdCluster to 0, without a change.
func (m *Manager) trySize(ctx context.Context, o *objects) error {
	if o.cluster == nil {
		return nil
	}
	p := o.cluster.withSize(0)
	err := m.client.Patch(ctx, p.after, client.MergeFrom(p.before), client.DryRunAll)
	if apierrors.IsInvalid(err) {
		o.refused = err.Error()
		return nil
	}
	return apiError(err, "change the size of %s", o.cluster)
}

// size returns spec.size, which the definition of EtcdClusters requires.
func (c etcdCluster) size() int32 {
	size, _, _ := unstructured.NestedInt64(c.Object, "spec", "size")
	return int32(size)
}

// withSize returns the patch that sets spec.size.
func (c etcdCluster) withSize(n int32) patch {
	after := c.DeepCopy()
	_ = unstructured.SetNestedField(after.Object, int64(n), "spec", "size") // an error would mean that spec is no object
	return patch{c.Unstructured, after}
}

// replicas returns the wanted number of members: that of the EtcdCluster, or of the StatefulSet if none owns it.
func (o objects) replicas() int32 {
	if o.cluster != nil {
		return o.cluster.size()
	}
	return replicasOf(o.set)
}

// scale returns the patches that replace the StatefulSet by after, and set the number of members.
func (o objects) scale(after *appsv1.StatefulSet, n int32) []patch {
	switch {
	case o.cluster == nil:
		after.Spec.Replicas = &n
	case o.cluster.size() != n:
		return []patch{{o.set, after}, o.cluster.withSize(n)}
	}
	return []patch{{o.set, after}}
}

// scaled returns the object that sets the number of members.
func (o objects) scaled() client.Object {
	if o.cluster != nil {
		return o.cluster.Unstructured
	}
	return o.set
}

// scaledBy returns the field of its spec that does.
func (o objects) scaledBy() string {
	if o.cluster != nil {
		return "size"
	}
	return "replicas"
}

// hidesAddresses reports whether the headless Service hides pods that are not ready, and the restore can change that. The operator of an
// EtcdCluster would change it back; its pods have no probes, and are ready once they run.
func (o objects) hidesAddresses() bool {
	return o.cluster == nil && o.service != nil && !o.service.Spec.PublishNotReadyAddresses
}

// waitForOperator waits until the operator of the EtcdCluster has scaled the StatefulSet up or down.
func (m *Manager) waitForOperator(o objects, direction string) step {
	return wait("%s has size %d, and its operator has not scaled %s %s yet: start the operator; or %s",
		o.cluster, o.cluster.size(), m, direction, m.orphan(metav1.GetControllerOf(o.set)))
}

// checkEtcdCluster returns the facts about the EtcdCluster that owns the StatefulSet, if there is one, and about the script of its operator.
func (m *Manager) checkEtcdCluster(o objects) (all findings) {
	all.add(o.checkFirstSize())
	c, owner := o.cluster, metav1.GetControllerOf(o.set)
	switch {
	case c == nil:
		return all
	case c.GetDeletionTimestamp() != nil:
		all.add(refuse(fmt.Sprintf("%s is being deleted, and Kubernetes deletes %s with it", c, m), m.keepSet()))
	case c.size() != replicasOf(o.set):
		all.add(refuse(fmt.Sprintf("%s has size %d, and %s has %d replicas: its operator is not running, or has not acted yet", c, c.size(), m, replicasOf(o.set)),
			"start the operator, or wait until it has acted, and create a new restore; or "+m.orphan(owner)))
	case o.refused != "":
		all.add(refuse(fmt.Sprintf("the size of %s cannot be set to 0: %s", c, o.refused), m.orphan(owner)))
	}
	all.add(note(fmt.Sprintf("%s owns %s: the restore sets its size to 0, and later back to %d; no member starts before the pods of all have addresses", c, m, o.count),
		"keep its operator running until the restore has ended"))
	return all
}

// cnychDataDir is the data dir in the script that starts etcd in the pods of an EtcdCluster (controllers/resource.go, newContainers).
const cnychDataDir = "/var/run/etcd/default.etcd"

// isCnychScript reports whether a container runs that script.
func isCnychScript(c corev1.Container) bool {
	script := strings.Join(c.Command, " ")
	return strings.Contains(script, "--initial-advertise-peer-urls http://${HOSTNAME}.${SET_NAME}.${MY_NAMESPACE}.svc.cluster.local:2380") &&
		strings.Contains(script, "--data-dir "+cnychDataDir)
}

// firstSize is the variable with the number of members that do not add themselves to the cluster.
const firstSize = "INITIAL_CLUSTER_SIZE"

// checkFirstSize returns the fact about pods that have added themselves: their preStop removes the member, and then its data.
func (o objects) checkFirstSize() *handoff.Finding {
	var names []string
	for i, name := range o.podNames() {
		pod := o.pods[name]
		if pod != nil && addsMembers(pod.Spec, ordinalOf(o.set, int32(i))+1) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return note(fmt.Sprintf("pods %s delete their data when they stop, because their ordinals are not below %s: a rollback brings back only the other members",
		strings.Join(names, ", "), firstSize), "take a backup first, if you may want to go back")
}

// addsMembers reports whether one of n members would add itself: the EtcdCluster was removed while it had a smaller size, such as 0, or a
// person has scaled the StatefulSet since.
func addsMembers(pod corev1.PodSpec, n int32) bool {
	return slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
		return isCnychScript(c) && slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			size, err := strconv.Atoi(e.Value)
			return e.Name == firstSize && err == nil && int32(size) < n
		})
	})
}

// cnychFlags returns the flags with which that script starts etcd in a pod.
func cnychFlags(env environment, pod, namespace string) map[string]string {
	service := env["SET_NAME"]
	if service == nil {
		return map[string]string{"data-dir": cnychDataDir}
	}
	host := fmt.Sprintf("http://%s.%s.%s.svc.cluster.local", pod, *service, namespace)
	return map[string]string{
		"name": pod, "data-dir": cnychDataDir,
		"advertise-client-urls": fmt.Sprintf("%s:%d", host, clientPort), "initial-advertise-peer-urls": fmt.Sprintf("%s:%d", host, peerPort),
	}
}
