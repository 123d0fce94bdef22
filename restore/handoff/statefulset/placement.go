package statefulset

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// placeJob lets a Job's pod run where the member's pod runs or could run. node is the only node that will do; "": the volumes decide. fixed
// means that all volumes of the member exist already.
func placeJob(job *corev1.PodSpec, set *appsv1.StatefulSet, node string, fixed bool) {
	member := set.Spec.Template.Spec.DeepCopy()
	job.NodeSelector, job.Tolerations, job.SchedulerName = member.NodeSelector, member.Tolerations, member.SchedulerName
	job.PriorityClassName, job.ImagePullSecrets = member.PriorityClassName, member.ImagePullSecrets
	job.Affinity, job.TopologySpreadConstraints = member.Affinity, member.TopologySpreadConstraints
	s := spread{set: set, fixed: fixed}
	s.apply(job)
	if node != "" {
		require(job, node)
	}
}

// require lets a pod run on one node only. It does not set spec.nodeName: then the scheduler would not bind the pod's volumes. It selects
// the node's name, which the node's label kubernetes.io/hostname may differ from.
func require(pod *corev1.PodSpec, node string) {
	is := corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	if pod.Affinity == nil {
		pod.Affinity = &corev1.Affinity{}
	}
	if pod.Affinity.NodeAffinity == nil {
		pod.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms { // one of them must match
		terms[i].MatchFields = append(terms[i].MatchFields, is)
	}
}

// requiredNode returns the node that require has set; "" if there is none.
func requiredNode(pod corev1.PodSpec) string {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, is := range term.MatchFields {
			if is.Key == metav1.ObjectNameField && len(is.Values) == 1 {
				return is.Values[0]
			}
		}
	}
	return ""
}

// spread adapts the rules by which the pods of a StatefulSet keep away from one another, or keep together. A member with volumes has its
// place, and the Job joins it there. For a member without volumes the Job decides where they will be: it keeps away from the other Jobs as
// its member would from the other members.
type spread struct {
	set   *appsv1.StatefulSet
	fixed bool
}

func (s spread) apply(pod *corev1.PodSpec) {
	selector := func(t *corev1.PodAffinityTerm) **metav1.LabelSelector { return &t.LabelSelector }
	weighted := func(t *corev1.WeightedPodAffinityTerm) **metav1.LabelSelector {
		return &t.PodAffinityTerm.LabelSelector
	}
	if pod.Affinity != nil && pod.Affinity.PodAffinity != nil {
		together := pod.Affinity.PodAffinity
		required, preferred := &together.RequiredDuringSchedulingIgnoredDuringExecution, &together.PreferredDuringSchedulingIgnoredDuringExecution
		*required, _ = divide(s, *required, selector)
		*preferred, _ = divide(s, *preferred, weighted)
	}
	if pod.Affinity != nil && pod.Affinity.PodAntiAffinity != nil {
		apart := pod.Affinity.PodAntiAffinity
		required, preferred := &apart.RequiredDuringSchedulingIgnoredDuringExecution, &apart.PreferredDuringSchedulingIgnoredDuringExecution
		*required = avoid(s, *required, selector)
		*preferred = avoid(s, *preferred, weighted)
	}
	// Two constraints with the same topology are not allowed, so that on the members is replaced.
	others, own := divide(s, pod.TopologySpreadConstraints, func(c *corev1.TopologySpreadConstraint) **metav1.LabelSelector { return &c.LabelSelector })
	pod.TopologySpreadConstraints = others
	if !s.fixed {
		for _, c := range own {
			c.LabelSelector = s.jobs()
			pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, c)
		}
	}
}

// avoid returns rules of which those on the StatefulSet's pods apply to its Jobs too, unless the place is fixed: then they are left out.
func avoid[T any](s spread, rules []T, selector func(*T) **metav1.LabelSelector) []T {
	all, own := divide(s, rules, selector)
	if s.fixed {
		return all
	}
	all = append(all, own...)
	for _, rule := range own {
		*selector(&rule) = s.jobs()
		all = append(all, rule)
	}
	return all
}

// divide returns the rules that do not select the StatefulSet's pods, and those that do.
func divide[T any](s spread, rules []T, selector func(*T) **metav1.LabelSelector) (others, own []T) {
	pod := s.podLabels()
	for _, rule := range rules {
		by, err := metav1.LabelSelectorAsSelector(*selector(&rule))
		if err == nil && by.Matches(pod) {
			own = append(own, rule)
		} else {
			others = append(others, rule)
		}
	}
	return others, own
}

// podLabels returns the labels of the first pod, with those that the controller of StatefulSets adds.
func (s spread) podLabels() labels.Set {
	all := labels.Set{appsv1.StatefulSetPodNameLabel: s.set.Name + "-0", appsv1.PodIndexLabel: "0", appsv1.StatefulSetRevisionLabel: s.set.Status.UpdateRevision}
	maps.Copy(all, s.set.Spec.Template.Labels)
	return all
}

// jobs returns the selector of the pods of all Jobs for the StatefulSet.
func (s spread) jobs() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{setLabel: s.set.Name}}
}
