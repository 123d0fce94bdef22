package statefulset

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

func note(text, remedy string) *handoff.Finding { return &handoff.Finding{Text: text, Remedy: remedy} }

// checkSet returns the facts about the spec and the managers of the StatefulSet, of which c runs etcd.
func (m *Manager) checkSet(o objects, c corev1.Container) (all findings) {
	n := len(m.Backup)
	if n > 0 && n != int(o.count) {
		all.add(note(fmt.Sprintf("the backup has %d members, and %s runs %d: the restored cluster has %d", n, m, o.count, o.count), ""))
	}
	if deletesClaims(o.set) {
		all.add(note(fmt.Sprintf("%s deletes claims by itself (persistentVolumeClaimRetentionPolicy)", m), "the restore suspends that until it has ended"))
	}
	if startsInOrder(o.set) {
		all.add(note(fmt.Sprintf("%s starts its pods one after the other (OrderedReady), and each waits for the one before to be ready", m),
			"the restore creates them all at once"))
	}
	s := o.set.Status
	if s.CurrentRevision != s.UpdateRevision && replicasOf(o.set) > 0 {
		all.add(note(fmt.Sprintf("the last change of %s has not reached all pods: the restored members may start with it", m),
			"complete that change first, or take it back, unless it is meant"))
	}
	all.add(m.checkDisasterRecovery(o.set, c))
	if hasPreStop(o.set) && o.cluster == nil && !isCnychScript(c) { // checkEtcdCluster knows what that script does
		all.add(note("a container runs a command before it stops (preStop), which may remove its member from the old cluster: a rollback would then bring back "+
			"fewer members, and images of bitnami before 2023 would delete the restored data of that member when it starts again",
			"for the chart of bitnami, set removeMemberOnContainerTermination to false first, while the cluster is healthy"))
	}
	all.add(m.checkYielding(o.set))
	return slices.Concat(all, m.checkEtcdCluster(o), o.checkManagers())
}

// hasPreStop reports whether a container runs a command of its own before it stops.
func hasPreStop(set *appsv1.StatefulSet) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Exec != nil
	})
}

// checkInits returns the facts about the init containers that can write to a volume with data of the members.
func checkInits(o objects, members []viewed) (all findings) {
	for _, init := range o.set.Spec.Template.Spec.InitContainers {
		writes := func(p place) bool {
			return slices.ContainsFunc(init.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == p.volume.Name && !m.ReadOnly })
		}
		if slices.ContainsFunc(members, func(v viewed) bool { return slices.ContainsFunc(v.places, writes) }) {
			all.add(note(fmt.Sprintf("init container %s can write to the members' data whenever a pod starts", init.Name),
				"remove it first, if it restores, repairs or deletes data"))
		}
	}
	return all
}

// checkService returns the facts about the headless Service, by which members find one another.
func (m *Manager) checkService(o objects, members []viewed) (all findings) {
	name := o.set.Spec.ServiceName
	switch {
	case o.service == nil && usesService(members, name):
		all.add(refuse(fmt.Sprintf("the Service %s/%s of %s does not exist, and the peer URLs need it", m.Namespace, name, m),
			"create it, with clusterIP None and publishNotReadyAddresses"))
	case o.service == nil && name != "":
		all.add(note(fmt.Sprintf("the Service %s/%s of %s does not exist", m.Namespace, name, m), "create it, if members or clients use its names"))
	case o.service == nil:
	case o.service.Spec.ClusterIP != corev1.ClusterIPNone && usesService(members, name):
		all.add(refuse(fmt.Sprintf("the Service %s/%s has a cluster IP, so the names of the pods in the peer URLs have no addresses", m.Namespace, name),
			"create it again with clusterIP None"))
	case o.hidesAddresses():
		all.add(note(fmt.Sprintf("the Service %s/%s hides pods that are not ready, and members may be ready only after they have found one another", m.Namespace, name),
			"the restore sets publishNotReadyAddresses until all members are ready"))
	}
	return all
}

// usesService reports whether a peer URL has a name below a Service.
func usesService(members []viewed, service string) bool {
	return service != "" && slices.ContainsFunc(members, func(v viewed) bool {
		return slices.ContainsFunc(v.PeerURLs, func(u string) bool {
			return strings.Contains(u, "."+service+".") || strings.Contains(u, "."+service+":")
		})
	})
}

// checkDisks returns the facts about the members' claims and other volumes.
func (m *Manager) checkDisks(o objects, members []viewed) (all findings) {
	for i, v := range members {
		_, runs := o.pods[podName(o.set, int32(i))]
		for _, p := range v.places {
			if p.claim() != "" {
				all.add(m.checkClaim(o.claims[p.claim()], p, runs))
			}
			if p.volume.HostPath != nil {
				all.add(checkHostPath(v, p))
			}
		}
	}
	return all
}

// checkSpares returns the facts about claims of pods after the members'.
func (m *Manager) checkSpares(o objects) (all findings) {
	for _, name := range o.spares {
		all.add(refuse(fmt.Sprintf("claim %s/%s belongs to a pod after the %d members: once that pod starts, it serves its old data", m.Namespace, name, o.count),
			o.withSpare()))
	}
	return all
}

// checkClaim returns the fact about a claim that concerns the restore; nil: none. claim is nil if it is missing. runs means that the pod
// of its member exists.
func (m *Manager) checkClaim(claim *corev1.PersistentVolumeClaim, p place, runs bool) *handoff.Finding {
	name := "claim " + m.Namespace + "/" + p.claim()
	switch {
	case claim == nil && p.template == nil:
		return refuse(name+" does not exist", "create it")
	case claim == nil:
		return note(name+" does not exist", "the restore creates it, empty")
	case claim.DeletionTimestamp != nil:
		return refuse(name+" will be deleted, with its data, once no pod uses it",
			fmt.Sprintf("save the data if it is needed, delete the pod of the member and those of ended Jobs (kubectl -n %s delete jobs -l %s=%s), "+
				"and restore then: the restore creates a new claim", m.Namespace, nameLabel, jobName))
	case isClosed(claim):
		return refuse(name+" is never bound: an earlier restore has found no volume for it, and keeps its member from starting on an empty one",
			fmt.Sprintf("kubectl -n %s delete pvc %s: the restore creates a new one", m.Namespace, claim.Name))
	case claim.Status.Phase == corev1.ClaimLost:
		return refuse("the volume of "+name+" is lost", "delete the claim: the restore creates a new one")
	case claim.Status.Phase != corev1.ClaimBound:
		return note(name+" is not bound", "if its StorageClass binds at once, create a volume for it; else the first Job binds it")
	case isExclusive(claim) && runs:
		return refuse(name+" is ReadWriteOncePod, so no Job can build the new data while the member's pod exists",
			fmt.Sprintf("kubectl -n %s scale statefulset/%s --replicas=0, with --initial-cluster", m.Namespace, m.Name))
	}
	return nil
}

// checkHostPath returns the fact about data in a folder of a node.
func checkHostPath(v viewed, p place) *handoff.Finding {
	if v.Node == "" {
		return refuse(fmt.Sprintf("member %s has its data in a folder of a node (%s), and does not run: the node is unknown", v.Name, p),
			"scale the StatefulSet up first, so that its pods show the nodes")
	}
	return note(fmt.Sprintf("member %s has its data in a folder of node %s (%s): on another node it would start without data", v.Name, v.Node, p),
		"keep each pod on its node, for example with affinity")
}

// checkUser returns a finding if the user of the members' processes is not known.
func checkUser(o objects, c corev1.Container) (all findings) {
	_, err := userOf(o.set, c, savedOf(o, c).User)
	if err != nil {
		all.add(refuse(err.Error(), ""))
	}
	return all
}
