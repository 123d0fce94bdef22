package statefulset

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
)

// calm is how long all pods must have been ready and unchanged.
const calm = 30 * time.Second

// settled returns the next step towards pods that are calm, and the values as they were.
func settled(o objects, was saved, now time.Time) step {
	n := replicasOf(o.set)
	if n == 0 {
		return wait("scaling %s to 0", describe(o.set))
	}
	for i := range n {
		name := podName(o.set, i)
		why := unrest(o.pods[name], now)
		if why != "" {
			return wait("pod %s %s", name, why)
		}
	}
	patches := valuesBack(o, was)
	if len(patches) > 0 {
		return step{patches: patches, waiting: "the Service and the StatefulSet are set back"}
	}
	return done()
}

// unrest returns why a pod is not calm; "" if it is. It compares the times of the kubelet with now.
func unrest(pod *corev1.Pod, now time.Time) string {
	switch {
	case pod == nil:
		return "does not exist"
	case pod.DeletionTimestamp != nil:
		return "is ending"
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if i < 0 {
		return "is not ready: " + cmp.Or(kubejob.Reason(*pod), "its probe fails")
	}
	since := pod.Status.Conditions[i].LastTransitionTime.Time
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			since = later(since, c.State.Running.StartedAt.Time)
		}
	}
	if now.Sub(since) < calm {
		return fmt.Sprintf("has been ready and unchanged for %s, of %s", now.Sub(since).Round(time.Second), calm)
	}
	return ""
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// valuesBack returns the changes that put the values back, apart from the number of members and the annotations. The operator of an EtcdCluster
// has its own values.
func valuesBack(o objects, was saved) (patches []patch) {
	if o.cluster != nil {
		return nil
	}
	if was.Hidden && o.service != nil && o.service.Spec.PublishNotReadyAddresses {
		after := o.service.DeepCopy()
		after.Spec.PublishNotReadyAddresses = false
		patches = append(patches, patch{o.service, after})
	}
	after := o.set.DeepCopy()
	if replicasOf(after) > 0 { // else the operator would start a new cluster
		setControl(after, true)
	}
	if was.Retention != nil {
		after.Spec.PersistentVolumeClaimRetentionPolicy = was.Retention
	}
	if !equality.Semantic.DeepEqual(o.set, after) {
		patches = append(patches, patch{o.set, after})
	}
	return patches
}
