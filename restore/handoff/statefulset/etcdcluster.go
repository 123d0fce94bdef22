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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// cnych is the API group of cnych/etcd-operator. After every change its controller replaces the spec of the StatefulSet: the replicas and
// the variable INITIAL_CLUSTER_SIZE are spec.size of the EtcdCluster (controllers/resource.go, MutateStatefulSet). So a restore sets that
// size, and waits for the operator. It does not set spec.replicas beside it: a pod whose number is not below INITIAL_CLUSTER_SIZE would add
// itself to the cluster as a new member, and delete its data when it stops.
const cnych = "etcd.ydzs.io"

// etcdCluster is the EtcdCluster of cnych's operator that owns the StatefulSet.
type etcdCluster struct{ *unstructured.Unstructured }

// String returns the kind, the namespace and the name.
func (c etcdCluster) String() string {
	return fmt.Sprintf("EtcdCluster %s/%s", c.GetNamespace(), c.GetName())
}

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
	if apierrors.IsNotFound(err) || err == nil && found.GetUID() != owner.UID {
		return nil
	}
	if err != nil {
		return apiError(err, "read EtcdCluster %s/%s, which owns %s", m.Namespace, owner.Name, m)
	}
	o.cluster = &etcdCluster{found}
	return nil
}

// size returns spec.size, which the definition of EtcdClusters demands.
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

// replicas returns how many members are ordered: from the EtcdCluster, or from the StatefulSet if none owns it.
func (o objects) replicas() int32 {
	if o.cluster != nil {
		return o.cluster.size()
	}
	return replicasOf(o.set)
}

// scale returns the patches that order n members, and replace the StatefulSet by after.
func (o objects) scale(after *appsv1.StatefulSet, n int32) []patch {
	if o.cluster != nil {
		return []patch{{o.set, after}, o.cluster.withSize(n)}
	}
	after.Spec.Replicas = &n
	return []patch{{o.set, after}}
}

// scaled returns the name of the object that orders the members.
func (o objects) scaled() string {
	if o.cluster != nil {
		return o.cluster.String()
	}
	return describe(o.set)
}

// scaler returns the field manager that was the last to order members; "" if none is recorded.
func (o objects) scaler() string {
	if o.cluster != nil {
		return scalerOf(o.cluster, "f:size")
	}
	return scalerOf(o.set, "f:replicas")
}

// hidesAddresses reports whether the headless Service hides pods that are not ready, and the restore can change that. The operator of an
// EtcdCluster would change it back; its pods have no probes, and are ready once they run.
func (o objects) hidesAddresses() bool {
	return o.cluster == nil && o.service != nil && !o.service.Spec.PublishNotReadyAddresses
}

// checkEtcdCluster returns the facts about the EtcdCluster that owns the StatefulSet, and about the programs that may scale it.
func (m *Manager) checkEtcdCluster(o objects) (all findings) {
	c := o.cluster
	if c.size() != replicasOf(o.set) {
		all.add(refuse(fmt.Sprintf("%s has the size %d, and %s has %d replicas: its operator does not run, or has not acted yet",
			c, c.size(), m, replicasOf(o.set)),
			"start the operator; or remove it, and then the owner alone: "+m.orphan(metav1.GetControllerOf(o.set))))
	}
	all.add(note(fmt.Sprintf("%s owns %s: the restore sets its size to 0, and back", c, m), "let its operator run until the restore has ended"))
	return append(all, checkManagers(c, c.String(), "f:size")...)
}

// cnychDataDir is the data dir in the script that starts etcd in the pods of an EtcdCluster (controllers/resource.go, newContainers).
const cnychDataDir = "/var/run/etcd/default.etcd"

// isCnychScript reports whether a container runs that script.
func isCnychScript(c corev1.Container) bool {
	script := strings.Join(c.Command, " ")
	return strings.Contains(script, "${SET_NAME}.${MY_NAMESPACE}.svc.cluster.local:2380") && strings.Contains(script, "--data-dir "+cnychDataDir)
}

// firstSize is the variable with the number of members that do not add themselves to the cluster.
const firstSize = "INITIAL_CLUSTER_SIZE"

// addsMembers reports whether one of n members would add itself: the EtcdCluster was removed while it had a smaller size, such as 0.
func addsMembers(set *appsv1.StatefulSet, n int32) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return isCnychScript(c) && slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			size, err := strconv.Atoi(e.Value)
			return e.Name == firstSize && err == nil && int32(size) < n
		})
	})
}

// setFirstSize sets firstSize in the pod template. While no pod runs, that restarts none.
func setFirstSize(set *appsv1.StatefulSet, n int32) step {
	return step{patches: []patch{withVariable(set, firstSize, strconv.Itoa(int(n)))}, waiting: fmt.Sprintf("%s is set to %d", firstSize, n)}
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
