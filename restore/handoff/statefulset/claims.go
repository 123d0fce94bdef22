package statefulset

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// missingClaims returns the claims of templates that do not exist, as the StatefulSet controller would create them.
func missingClaims(o objects, members []viewed) (missing []*corev1.PersistentVolumeClaim) {
	for _, v := range members {
		for _, p := range v.places {
			isThis := func(c *corev1.PersistentVolumeClaim) bool { return c.Name == p.claim() }
			if p.template != nil && o.claims[p.claim()] == nil && !slices.ContainsFunc(missing, isThis) {
				missing = append(missing, newClaim(o.set, p))
			}
		}
	}
	return missing
}

func newClaim(set *appsv1.StatefulSet, p place) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: p.claim(), Annotations: p.template.Annotations, Labels: map[string]string{},
		},
		Spec: *p.template.Spec.DeepCopy(),
	}
	maps.Copy(claim.Labels, p.template.Labels)
	maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	return claim
}

// ownedClaims returns the claims with a reference to the StatefulSet or one of its pods: Kubernetes deletes a claim with its owners.
func (o objects) ownedClaims() (owned []*corev1.PersistentVolumeClaim) {
	for _, name := range slices.Sorted(maps.Keys(o.claims)) {
		if slices.ContainsFunc(o.claims[name].OwnerReferences, o.isOwn) {
			owned = append(owned, o.claims[name])
		}
	}
	return owned
}

// isOwn reports whether a reference is to the StatefulSet or one of its pods, present or past.
func (o objects) isOwn(r metav1.OwnerReference) bool {
	switch r.Kind {
	case "StatefulSet":
		return r.APIVersion == appsv1.SchemeGroupVersion.String() && r.Name == o.set.Name
	case "Pod":
		return r.APIVersion == corev1.SchemeGroupVersion.String() && isPodOf(o.set, r.Name)
	}
	return false
}
