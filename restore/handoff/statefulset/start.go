package statefulset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// start takes the step towards running members that decide returns. No Job of the restore may still be at work on their disks.
func (m *Manager) start(ctx context.Context, h handoff.Handoff, decide func(objects, saved) step) (handoff.Progress, error) {
	p, err := m.endJobs(ctx)
	if err != nil || !p.Done {
		return p, err
	}
	return m.step(ctx, h, decide)
}

// putBack returns the next step towards as many members running as before the restore. A number of replicas that the restore has not changed
// stays: the cluster may have grown since Inspect, and then Fence was refused.
func (m *Manager) putBack(o objects, was saved) step {
	n := o.replicas()
	switch {
	case o.set.Annotations[restoreAnnotation] != m.ID:
		return done()
	case m.markFor(o.set, was).Stopped || n == 0:
		n = was.Replicas
	}
	return m.scaleUp(o, was, n)
}

// scaleUp returns the next step towards n members running.
func (m *Manager) scaleUp(o objects, was saved, n int32) step {
	mark := m.markFor(o.set, was)
	missing := o.missingPods(n)
	switch {
	case n > 0 && len(o.pods) == 0 && hasDisasterRecovery(o.set): // another program has put it back since Fence
		return setVariable(o.set, disasterRecovery, "no")
	case n > 0 && o.cluster == nil && replicasOf(o.set) == 0 && addsMembers(o.set.Spec.Template.Spec, n):
		return setVariable(o.set, firstSize, strconv.Itoa(int(n)))
	case n > 0 && was.Hidden && o.hidesAddresses():
		after := o.service.DeepCopy()
		after.Spec.PublishNotReadyAddresses = true
		return step{patches: []patch{{o.service, after}}, waiting: "the Service publishes addresses that are not ready"}
	case o.replicas() != n || mark.Stopped:
		after := o.set.DeepCopy()
		mark.Stopped, mark.Reverted = false, 0
		mark.annotate(after, m.ID)
		return step{patches: o.scale(after, n), waiting: fmt.Sprintf("%s is scaled to %d", describe(o.scaled()), n)}
	case replicasOf(o.set) != n:
		return m.waitForOperator(o, "up")
	case len(missing) > 0 && o.createsPods():
		return o.createPods(missing)
	case len(missing) > 0:
		return wait("the StatefulSet controller has not created %s yet", podName(o.set, missing[0]))
	}
	return done()
}

// missingPods returns the indices of the first n members that have no pod, or one that is ending.
func (o objects) missingPods(n int32) (indices []int32) {
	for i := range n {
		pod := o.pods[podName(o.set, i)]
		if pod == nil || pod.DeletionTimestamp != nil {
			indices = append(indices, i)
		}
	}
	return indices
}

// startsInOrder reports whether the StatefulSet controller creates a pod only after the one before has become ready, and that takes more
// than the start of its containers.
func startsInOrder(set *appsv1.StatefulSet) bool {
	pod := set.Spec.Template.Spec
	probed := func(c corev1.Container) bool { return c.ReadinessProbe != nil || c.StartupProbe != nil }
	return isOrdered(set) && (slices.ContainsFunc(pod.Containers, probed) || len(pod.ReadinessGates) > 0)
}

func isOrdered(set *appsv1.StatefulSet) bool {
	return set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

// createsPods reports whether the StatefulSet controller would wait with the next pod: for one that becomes ready late, for one whose
// container ends again and again, such as that of a member whose old data is lost, or for one whose claim is never bound.
func (o objects) createsPods() bool {
	for _, claim := range o.claims {
		if isOrdered(o.set) && isClosed(claim) {
			return true
		}
	}
	restarts := func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 }
	for _, pod := range o.pods {
		if isOrdered(o.set) && slices.ContainsFunc(pod.Status.ContainerStatuses, restarts) {
			return true
		}
	}
	return startsInOrder(o.set)
}

// createPods creates the pods of members as the StatefulSet controller would. It takes them for its own: they have its reference.
func (o objects) createPods(indices []int32) step {
	if !hasActed(o.set) {
		return wait("the StatefulSet controller has not acted on spec.replicas yet")
	}
	s := wait("the pods are created")
	for _, i := range indices {
		if i == 0 { // the controller never waits before this one
			continue
		}
		revision := revisionOf(o.set, i)
		template, found := o.templates[revision]
		if !found {
			return wait("the ControllerRevision %s of %s does not exist yet", revision, describe(o.set))
		}
		s.creates = append(s.creates, newPod(o.set, template, revision, i))
	}
	return s
}

// revisionOf returns the name of the revision that the controller gives to a new pod (kubernetes v1.36, newVersionedStatefulSetPod).
func revisionOf(set *appsv1.StatefulSet, index int32) string {
	if index < partitionOf(set) {
		return set.Status.CurrentRevision
	}
	return set.Status.UpdateRevision
}

// partitionOf returns the index of the first pod that a change of the pod template reaches.
func partitionOf(set *appsv1.StatefulSet) int32 {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	if rolling == nil || rolling.Partition == nil {
		return 0
	}
	return *rolling.Partition
}

// newPod returns the pod that the controller would create (kubernetes v1.36, newStatefulSetPod).
func newPod(set *appsv1.StatefulSet, template corev1.PodTemplateSpec, revision string, index int32) *corev1.Pod {
	name := podName(set, index)
	owner := metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	owner.BlockOwnerDeletion = nil // may need the right to update the finalizers of StatefulSets
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, GenerateName: set.Name + "-", Labels: map[string]string{},
			Annotations: maps.Clone(template.Annotations), Finalizers: slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	maps.Copy(pod.Labels, template.Labels)
	pod.Labels[appsv1.StatefulSetPodNameLabel] = name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(int(ordinalOf(set, index)))
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Spec.Hostname, pod.Spec.Subdomain = name, set.Spec.ServiceName
	pod.Spec.Volumes = podVolumes(set, pod.Spec.Volumes, name)
	return pod
}

// podVolumes returns the volumes of a pod: a claim of each template, and those of the pod template that have other names.
func podVolumes(set *appsv1.StatefulSet, others []corev1.Volume, pod string) (all []corev1.Volume) {
	for _, t := range set.Spec.VolumeClaimTemplates {
		claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(t.Name, pod)}
		all = append(all, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}})
	}
	claims := len(all)
	for _, v := range others {
		if !slices.ContainsFunc(all[:claims], func(c corev1.Volume) bool { return c.Name == v.Name }) {
			all = append(all, v)
		}
	}
	return all
}

// readTemplates reads the pod templates of the current revisions, if pods are to be created of them.
func (m *Manager) readTemplates(ctx context.Context, o *objects) error {
	if !o.createsPods() || len(o.missingPods(replicasOf(o.set))) == 0 {
		return nil
	}
	found := map[string]*appsv1.ControllerRevision{}
	err := readMissing(ctx, m, []string{o.set.Status.CurrentRevision, o.set.Status.UpdateRevision}, found, &appsv1.ControllerRevision{})
	if err != nil {
		return err
	}
	o.templates = map[string]corev1.PodTemplateSpec{}
	for name, revision := range found {
		// A patch that replaces the whole template (kubernetes v1.36, getPatch).
		var set appsv1.StatefulSet
		err := json.Unmarshal(revision.Data.Raw, &set)
		if err != nil {
			return fmt.Errorf("%w: the pod template in ControllerRevision %s/%s cannot be read: %w", fault.Damaged, m.Namespace, name, err)
		}
		o.templates[name] = set.Spec.Template
	}
	return nil
}
