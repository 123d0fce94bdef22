package statefulset

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// The annotations of a StatefulSet.
const (
	restoreAnnotation  = "etcd-dr.io/restore"  // id of the restore that is at work on it
	markAnnotation     = "etcd-dr.io/saved"    // a mark, next to restoreAnnotation
	restoredAnnotation = "etcd-dr.io/restored" // Options.Origin of the last restores that have succeeded, with spaces between them
)

// saved are the values that a restore changes, as they were before, and facts that end with the pods. Values that it does not change are
// zero.
type saved struct {
	Replicas int32 `json:"replicas"`
	// Retention is a policy under which Kubernetes deletes claims; nil: it retains them.
	Retention *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy `json:"persistentVolumeClaimRetentionPolicy,omitempty"`
	// Hidden means that publishNotReadyAddresses of the headless Service is false.
	Hidden bool  `json:"hidesNotReadyAddresses,omitempty"`
	User   *user `json:"user,omitempty"` // of the members' processes; nil: no node reported it
}

// mark is the content of markAnnotation.
type mark struct {
	saved
	Stopped  bool `json:"stopped,omitempty"`  // the restore has set the number of members to 0, and not back
	Reverted int  `json:"reverted,omitempty"` // how often another program has scaled it up since
}

// markOf returns the mark of a restore that has not ended; found is false if there is none.
func markOf(set *appsv1.StatefulSet) (m mark, found bool) {
	err := json.Unmarshal([]byte(set.Annotations[markAnnotation]), &m)
	return m, err == nil
}

// annotate writes m and the restore's id to set.
func (m mark) annotate(set *appsv1.StatefulSet, id string) {
	annotate(set, restoreAnnotation, id)
	annotate(set, markAnnotation, encode(m))
}

func annotate(object client.Object, key, value string) {
	all := object.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	object.SetAnnotations(all)
}

// markFor returns the mark of this restore: that on the set, or a new one with the saved values.
func (m *Manager) markFor(set *appsv1.StatefulSet, was saved) mark {
	found, ok := markOf(set)
	if ok && set.Annotations[restoreAnnotation] == m.ID {
		return found
	}
	return mark{saved: was}
}

// savedOf returns the values to save. Those that an earlier restore has changed and not put back are as they were before that one.
func savedOf(o objects, c corev1.Container) saved {
	now := saved{
		Replicas: o.replicas(), Hidden: o.hidesAddresses(), User: runningUser(o, c.Name),
	}
	if deletesClaims(o.set) {
		now.Retention = o.set.Spec.PersistentVolumeClaimRetentionPolicy
	}
	earlier, found := markOf(o.set)
	if !found {
		return now
	}
	if now.Replicas > 0 {
		earlier.Replicas = now.Replicas
	}
	return earlier.saved
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // only texts and numbers
	}
	return string(text)
}

func decodeSaved(text string) (s saved, err error) {
	err = json.Unmarshal([]byte(text), &s)
	if err != nil {
		return s, fmt.Errorf("%w: the record of the restore has no saved values of a StatefulSet: %w", fault.Usage, err)
	}
	return s, nil
}

// deletesClaims reports whether Kubernetes deletes claims of set by itself.
func deletesClaims(set *appsv1.StatefulSet) bool {
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	const deletes = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	return p != nil && (p.WhenScaled == deletes || p.WhenDeleted == deletes)
}
