package statefulset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// maxReverts is how often another program may scale the StatefulSet up before Fence reports a refusal.
const maxReverts = 5

// fence returns the next step towards removing all pods of the members.
func (m *Manager) fence(o objects, was saved, now time.Time) step {
	ending := o.endingClaim()
	if ending != "" && o.haveLivePod() && o.set.Annotations[restoreAnnotation] != m.ID { // in a rollback it counts as lost
		return step{err: fmt.Errorf("%w: claim %s/%s will be deleted, with its data, once no pod uses it: save the data if it is needed",
			fault.Refused, m.Namespace, ending)}
	}
	owned := o.ownedClaims()
	switch {
	case deletesClaims(o.set):
		return m.retain(o.set, was)
	case was.Retention != nil && len(owned) > 0 && !hasActed(o.set):
		return wait("the StatefulSet controller has not acted on the retention of claims yet")
	case was.Retention != nil && len(owned) > 0:
		return disown(o, owned)
	case o.replicas() > 0 || !m.markFor(o.set, was).Stopped:
		return m.scaleDown(o, was)
	case replicasOf(o.set) > 0:
		return m.waitForOperator(o, "down")
	case len(o.pods) > 0:
		return stop(o.pods, now)
	case hasDisasterRecovery(o.set):
		return setVariable(o.set, disasterRecovery, "no")
	case !hasActed(o.set):
		return wait("the StatefulSet controller has not acted on the last change yet")
	}
	return done()
}

// endingClaim returns the name of a claim that is being deleted; "": there is none.
func (o objects) endingClaim() string {
	for _, name := range slices.Sorted(maps.Keys(o.claims)) {
		if o.claims[name].DeletionTimestamp != nil {
			return name
		}
	}
	return ""
}

// haveLivePod reports whether a pod is not being deleted.
func (o objects) haveLivePod() bool {
	for _, pod := range o.pods {
		if pod.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// retain returns the step that keeps Kubernetes from deleting claims.
func (m *Manager) retain(set *appsv1.StatefulSet, was saved) step {
	const retains = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	after := set.DeepCopy()
	after.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: retains, WhenDeleted: retains}
	m.markFor(set, was).annotate(after, m.ID)
	return step{patches: []patch{{set, after}}, waiting: "keeping Kubernetes from deleting the claims"}
}

// disown returns the step that removes the references to owners from claims. The controller would do that too, but not while a pod is not ready.
func disown(o objects, owned []*corev1.PersistentVolumeClaim) step {
	s := wait("removing owner references from the claims")
	for _, claim := range owned {
		after := claim.DeepCopy()
		after.OwnerReferences = slices.DeleteFunc(after.OwnerReferences, func(r metav1.OwnerReference) bool { return o.isOwn(r) })
		s.patches = append(s.patches, patch{claim, after})
	}
	return s
}

// scaleDown sets the number of members to 0, and deletes the pods. If an EtcdCluster owns the StatefulSet, the pods are deleted later, once its
// operator has acted; and the mark counts them as stopped only once the size is 0, because the patch of the size may fail after that of the
// mark. If another program has scaled the members up too often, the step returns an error too.
func (m *Manager) scaleDown(o objects, was saved) step {
	mark := m.markFor(o.set, was)
	s := stop(o.pods, time.Time{})
	if o.cluster != nil {
		s = wait("scaling %s to 0", o.cluster)
	}
	if !mark.Stopped && o.replicas() > o.count {
		return step{err: fmt.Errorf("%w: %s has %d replicas, and the restore is planned for %d: scale it to %d, or create a new restore once no member is being added",
			fault.Refused, o.sizedBy(), o.replicas(), o.count, o.count)}
	}
	if mark.Stopped { // another program has scaled it up since
		mark.Reverted++
		by := cmp.Or(o.scaler(), "another program")
		s.waiting = fmt.Sprintf("%s has scaled %s up to %d again: suspend it", by, describe(o.scaled()), o.replicas())
		if mark.Reverted >= maxReverts {
			s.err = fmt.Errorf("%w: %s has scaled %s up %d times: stop that program, and create a new restore", fault.Refused, by, describe(o.scaled()), mark.Reverted)
		}
	}
	mark.Stopped = o.cluster == nil || o.replicas() == 0
	after := o.set.DeepCopy()
	setControl(after, false)
	mark.annotate(after, m.ID)
	s.patches = o.scale(after, 0)
	return s
}

// stop returns the step that deletes all pods at once.
func stop(pods map[string]*corev1.Pod, now time.Time) step {
	var s step
	var ending, late []string
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		pod := pods[name]
		if pod.DeletionTimestamp == nil {
			s.deletes = append(s.deletes, client.Object(pod))
		}
		text := lateness(pod, now)
		if text == "" {
			ending = append(ending, name)
		} else {
			late = append(late, text)
		}
	}
	if len(ending) > 0 {
		late = append(late, "waiting for the end of "+strings.Join(ending, ", "))
	}
	s.waiting = cmp.Or(strings.Join(late, "; "), "deleting the pods")
	return s
}

// lateAfter is how long a pod may exist after its grace period: the kubelet unmounts its volumes, and reports its end.
const lateAfter = 30 * time.Second

// lateness returns why a pod still exists long after its grace period, with the cure; "" if it does not.
func lateness(pod *corev1.Pod, now time.Time) string {
	if pod.DeletionTimestamp == nil || now.Sub(pod.DeletionTimestamp.Time) < lateAfter {
		return ""
	}
	if hasEnded(*pod) && len(pod.Finalizers) > 0 {
		return fmt.Sprintf("pod %s has ended, and remains for its finalizers %s: remove them", pod.Name, strings.Join(pod.Finalizers, ", "))
	}
	return fmt.Sprintf("node %s has not confirmed the end of pod %s, which may still run: %s", pod.Spec.NodeName, pod.Name, putOutOfService(pod.Spec.NodeName))
}
