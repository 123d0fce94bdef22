package statefulset

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// findings are facts that a person should know, each once.
type findings []handoff.Finding

// add appends f, unless it is nil or known.
func (all *findings) add(f *handoff.Finding) {
	if f != nil && !slices.Contains(*all, *f) {
		*all = append(*all, *f)
	}
}

// refuse reports whether one of all refuses the restore.
func (all findings) refuse() bool {
	return slices.ContainsFunc(all, func(f handoff.Finding) bool { return f.Refuses })
}

// inspect describes the StatefulSet of o. If a finding refuses the restore, the description may be incomplete.
func (m *Manager) inspect(o objects) handoff.Handoff {
	h := handoff.Handoff{Manager: m.String(), Held: o.set.Annotations[restoreAnnotation] == m.ID}
	all := m.checkTarget(o)
	c, finding := o.etcdContainer(m.Into.Container)
	all.add(finding)
	was := savedOf(o, c)
	h.Saved, h.Stopped = encode(was), was.Replicas == 0
	h.Version, h.Quota = versionOf(c.Image), quotaOf(c, settingsOf(c, podName(o.set, 0), m.Namespace))
	if all.refuse() {
		h.Findings = all
		return h
	}
	members, unknown := m.view(o, c)
	for _, v := range members {
		h.Members = append(h.Members, v.Member)
		h.Endpoints = append(h.Endpoints, v.endpoint)
	}
	all = slices.Concat(all, unknown, m.checkSet(o, c), m.checkService(o, members), m.checkDisks(o, members), m.checkSpares(o), checkInits(o, members), checkUser(o, c))
	slices.SortStableFunc(all, func(a, b handoff.Finding) int { return rank(a) - rank(b) })
	h.Findings, h.Acts = all, m.acts(o, was, members)
	return h
}

// rank puts findings that refuse the restore before others.
func rank(f handoff.Finding) int {
	if f.Refuses {
		return 0
	}
	return 1
}

// checkTarget returns the reasons for which the StatefulSet is not one to restore into.
func (m *Manager) checkTarget(o objects) (all findings) {
	owner := metav1.GetControllerOf(o.set)
	if owner != nil && o.cluster == nil && !yields(o.set) {
		all.add(refuse(fmt.Sprintf("%s belongs to %s %s, which would undo the changes of a restore", m, owner.Kind, owner.Name), m.throughOwner(owner)))
	}
	if o.set.DeletionTimestamp != nil {
		all.add(refuse(fmt.Sprintf("%s is being deleted", m), "create it again, and wait until the old one is gone"))
	}
	given := int32(len(m.Into.Members))
	switch {
	case o.count == 0:
		all.add(refuse(fmt.Sprintf("%s has 0 replicas", m), "pass --initial-cluster, or scale it to the number of members"))
	case o.count > maxMembers || replicasOf(o.set) > maxMembers:
		all.add(refuse(fmt.Sprintf("%s has more than %d replicas", m, maxMembers), "name the StatefulSet of an etcd cluster"))
	case given > 0 && given != o.count:
		all.add(refuse(fmt.Sprintf("--initial-cluster has %d members, and %s runs %d", given, o.sizedBy(), o.count),
			fmt.Sprintf("name %d members, or scale it to %d", o.count, given)))
	}
	return all
}

// acts returns the changes that the restore makes, in their order.
func (m *Manager) acts(o objects, was saved, members []viewed) (all []handoff.Act) {
	add := func(verb, text string, args ...any) {
		all = append(all, handoff.Act{Text: fmt.Sprintf(text, args...), Verb: verb})
	}
	set := "patch statefulsets " + m.key().String()
	scale, scaled := set, ""
	if o.cluster != nil {
		scale, scaled = fmt.Sprintf("patch etcdclusters.%s %s/%s", cnych, m.Namespace, o.cluster.GetName()), o.cluster.String()+" "
	}
	for _, claim := range missingClaims(o, members) {
		add("create persistentvolumeclaims "+claim.Namespace+"/"+claim.Name, "create the missing claim")
	}
	add(fmt.Sprintf("create jobs %s/", m.Namespace), "build the new data on each disk, next to the old data, with a Job for each member")
	if was.Retention != nil {
		add(set, "keep Kubernetes from deleting the claims, until the restore has ended")
	}
	owner, _ := yieldingOwner(o.set)
	if owner != nil {
		add(set, "take control of the StatefulSet away from its EtcdCluster, until the restore has ended")
	}
	if o.cluster != nil {
		add(set, "mark the StatefulSet with annotations, until the restore has ended")
	}
	add(scale, "scale %sto 0", scaled)
	add(fmt.Sprintf("delete pods %s/%s", m.Namespace, strings.Join(o.podNames(), ",")), "delete the pods, all at once")
	if hasDisasterRecovery(o.set) {
		add(set, "set %s to no, so that the image's script does not replace the restored data", disasterRecovery)
	}
	add(fmt.Sprintf("create jobs %s/", m.Namespace), "exchange the old data for the new on each disk, with two Jobs for each member")
	if was.Hidden {
		add("patch services "+m.Namespace+"/"+o.set.Spec.ServiceName, "publish addresses that are not ready, until all members are ready")
	}
	add(scale, "scale %sto %d", scaled, o.count)
	if startsInOrder(o.set) {
		add(fmt.Sprintf("create pods %s/%s", m.Namespace, strings.Join(o.podNames(), ",")),
			"create the pods all at once: the StatefulSet would wait for the first one to be ready, which needs a quorum")
	}
	return all
}
