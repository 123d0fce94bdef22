package statefulset

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// gone returns the name of a claim of the member that does not exist, or that ends once no pod uses it; "" if there is none. With it all of
// the member's data is lost: a data dir is of no use without its log.
func (r run) gone(places []place) string {
	for _, p := range places {
		claim := r.claims[p.claim()]
		if p.claim() != "" && (claim == nil || claim.DeletionTimestamp != nil) {
			return p.claim()
		}
	}
	return ""
}

// without returns the progress of the task on a member's disk whose claim is gone.
func (r run) without(claim string) (handoff.Progress, error) {
	if bearsLoss(r.task) {
		return handoff.Progress{Done: true, Gone: true}, nil
	}
	return handoff.Progress{}, fmt.Errorf("%w: claim %s/%s was deleted, with the data of member %s: roll this restore back, and restore again: a new restore creates a new claim",
		fault.Refused, r.Namespace, claim, r.record.Handoff.Members[r.index].Name)
}

// isLost reports whether the old data of the member is lost.
func (r run) isLost() bool {
	return slices.Contains(r.record.Lost, r.record.Handoff.Members[r.index].Name)
}

// beforeBlock returns the progress of DoBlock on a disk that no Job can block, or need not: gone is the name of a claim that is gone, "" if
// there is none. left names the Jobs of the member that have to end first; "": none.
func (r run) beforeBlock(places []place, gone, left string) handoff.Progress {
	if gone == "" {
		return handoff.Progress{Done: true}
	}
	hasTemplate := slices.ContainsFunc(places, func(p place) bool { return p.claim() == gone && p.template != nil })
	why := fmt.Sprintf("claim %s/%s is gone: create it", r.Namespace, gone)
	switch {
	case r.claims[gone] == nil && hasTemplate:
		why = fmt.Sprintf("claim %s/%s is gone: a new one is created", r.Namespace, gone)
	case r.claims[gone] != nil:
		why = fmt.Sprintf("claim %s/%s is being deleted: %s", r.Namespace, gone, cmp.Or(left, "waiting for its end"))
	}
	return handoff.Progress{Waiting: why, Gone: true}
}

// lostVolume is the volume of a claim that must never be bound. None has that name.
const lostVolume = "etcd-dr-lost"

// isClosed reports whether a claim of the member is never bound, so that no pod of it can start.
func (r run) isClosed(places []place) bool {
	return slices.ContainsFunc(places, func(p place) bool { return isClosed(r.claims[p.claim()]) })
}

func isClosed(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Spec.VolumeName == lostVolume && claim.Status.Phase != corev1.ClaimBound
}

// closing returns the patch that keeps an unbound claim of the member from being bound; nil if all are bound. Kubernetes accepts a volume's name
// in a claim that has none.
func (r run) closing() *patch {
	places, err := r.places()
	if err != nil {
		return nil
	}
	for _, p := range places {
		claim := r.claims[p.claim()]
		if claim != nil && claim.Status.Phase != corev1.ClaimBound && claim.Spec.VolumeName == "" {
			closed := claim.DeepCopy()
			closed.Spec.VolumeName = lostVolume
			return &patch{claim, closed}
		}
	}
	return nil
}

// occupied returns why no Job can mount the member's claims now; "" if one can.
func (r run) occupied(places []place) string {
	pod := podName(r.set, r.index)
	if r.pods[pod] == nil {
		return ""
	}
	for _, p := range places {
		claim := r.claims[p.claim()]
		if claim != nil && isExclusive(claim) {
			return fmt.Sprintf("claim %s/%s is ReadWriteOncePod, and pod %s uses it: the restore continues while that pod does not exist: "+
				"kubectl -n %s scale statefulset/%s --replicas=0", r.Namespace, claim.Name, pod, r.Namespace, r.Name)
		}
	}
	return ""
}

// isExclusive reports whether only one pod at a time can use a claim.
func isExclusive(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod)
}

// unreachable returns the remedy for a disk that no Job reaches, as the end of a message; "" if the member's node is not known.
func (r run) unreachable() string {
	member := r.record.Handoff.Members[r.index]
	if member.Node == "" {
		return ""
	}
	text := fmt.Sprintf(": member %s ran on node %s: ", member.Name, member.Node)
	places, err := r.places()
	hasClaim := err == nil && places[0].claim() != ""
	switch {
	case r.task == handoff.DoStage && hasClaim: // the member's pod has the claim until the pod is gone
		return text + fmt.Sprintf("if that node is down, %s; if the disk is lost, kubectl -n %s delete pvc %s --wait=false before that: "+
			"the member is built on a new disk", putOutOfService(member.Node), r.Namespace, places[0].claim())
	case bearsLoss(r.task) && r.task != handoff.DoDiscard && hasClaim: // the data that DoDiscard leaves is in use
		return text + fmt.Sprintf("start that node if it is down; if the disk is lost, kubectl -n %s delete pvc %s: the restore continues without it",
			r.Namespace, places[0].claim())
	}
	return text + "start that node if it is down"
}

// putOutOfService returns what ends the pods of a node that does not report.
func putOutOfService(node string) string {
	return fmt.Sprintf("start it, or make sure that it stays off, then kubectl taint nodes %s node.kubernetes.io/out-of-service=nodeshutdown:NoExecute", node)
}

// bearsLoss reports whether a task is done on a disk that no longer exists: there is nothing to remove or to put back.
func bearsLoss(t handoff.Task) bool {
	return slices.Contains([]handoff.Task{handoff.DoWithdraw, handoff.DoBack, handoff.DoDiscard, handoff.DoClean}, t)
}
