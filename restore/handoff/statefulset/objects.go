package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// maxMembers is the largest number of replicas that is taken for an etcd cluster.
const maxMembers = 32

// objects are live objects, as they were read at about one time.
type objects struct {
	set     *appsv1.StatefulSet
	cluster *etcdCluster                             // that owns set; nil: none of cnych's operator does
	count   int32                                    // of members
	service *corev1.Service                          // headless, of set; nil: missing
	pods    map[string]*corev1.Pod                   // of set and of the members, by name
	claims  map[string]*corev1.PersistentVolumeClaim // of the members, by name
	// variables are the ConfigMaps from which the container of etcd takes variables, by name; nil unless readVariables has read them.
	variables map[string]*corev1.ConfigMap
	// refused is why the API server would not set the size of cluster to 0; "": it would. Read by Inspect alone.
	refused string
	// spares are the names of claims that pods after the members' would use; read by Inspect alone.
	spares []string
	// templates are those of the pods that are to be created, by their revisions.
	templates map[string]corev1.PodTemplateSpec
}

// replicasOf returns spec.replicas.
func replicasOf(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1 // Kubernetes' default
	}
	return *set.Spec.Replicas
}

// ordinalOf returns the ordinal of the member with an index.
func ordinalOf(set *appsv1.StatefulSet, index int32) int32 {
	if set.Spec.Ordinals == nil {
		return index
	}
	return set.Spec.Ordinals.Start + index
}

// podName returns the name of the pod of the member with an index.
func podName(set *appsv1.StatefulSet, index int32) string {
	return fmt.Sprintf("%s-%d", set.Name, ordinalOf(set, index))
}

// podNames returns the names of the members' pods, in their order.
func (o objects) podNames() (names []string) {
	for i := range o.count {
		names = append(names, podName(o.set, i))
	}
	return names
}

// claimName returns the name of the claim that Kubernetes makes of a template for a pod.
func claimName(template, pod string) string { return template + "-" + pod }

// hasEnded reports whether all containers of a pod have ended for good.
func hasEnded(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isPodOf reports whether name is that of a pod of set.
func isPodOf(set *appsv1.StatefulSet, name string) bool {
	ordinal, ours := strings.CutPrefix(name, set.Name+"-")
	_, err := strconv.ParseUint(ordinal, 10, 31)
	return ours && err == nil
}

// hasActed reports whether the StatefulSet controller has acted on the spec of set.
func hasActed(set *appsv1.StatefulSet) bool { return set.Status.ObservedGeneration >= set.Generation }

// readSet reads the StatefulSet. If it does not exist, the error matches fault.NotFound.
func (m *Manager) readSet(ctx context.Context) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{}
	err := m.client.Get(ctx, m.key(), set)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w: %s does not exist: create it first, with spec.replicas 0 if it never ran", fault.NotFound, m)
	}
	return set, apiError(err, "read %s", m)
}

// readObjects reads the objects of the first members of set.
func (m *Manager) readObjects(ctx context.Context, set *appsv1.StatefulSet, count int32) (objects, error) {
	o := objects{set: set, count: min(count, maxMembers)}
	for _, read := range []func(context.Context, *objects) error{m.readEtcdCluster, m.readPods, m.readClaims, m.readService, m.readTemplates} {
		err := read(ctx, &o)
		if err != nil {
			return objects{}, err
		}
	}
	return o, nil
}

// readPods reads all pods that the selector finds, and by their names the members' pods that it does not find: they would use the same
// claims.
func (m *Manager) readPods(ctx context.Context, o *objects) error {
	selector, err := metav1.LabelSelectorAsSelector(o.set.Spec.Selector)
	if err != nil {
		return err
	}
	var list corev1.PodList
	err = m.client.List(ctx, &list, client.InNamespace(m.Namespace), client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return apiError(err, "list the pods of %s", m)
	}
	o.pods = map[string]*corev1.Pod{}
	for i, pod := range list.Items {
		if isPodOf(o.set, pod.Name) {
			o.pods[pod.Name] = &list.Items[i]
		}
	}
	return readMissing(ctx, m, o.podNames(), o.pods, &corev1.Pod{})
}

func (m *Manager) readClaims(ctx context.Context, o *objects) error {
	var names []string
	for _, v := range o.set.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	for _, pod := range o.podNames() {
		for _, template := range o.set.Spec.VolumeClaimTemplates {
			names = append(names, claimName(template.Name, pod))
		}
	}
	o.claims = map[string]*corev1.PersistentVolumeClaim{}
	return readMissing(ctx, m, names, o.claims, &corev1.PersistentVolumeClaim{})
}

// spareOrdinals is how many ordinals after the members' readSpares looks at: etcd clusters have at most about nine members.
const spareOrdinals = 8

// readSpares reads the names of claims that pods after the members' would use.
func (m *Manager) readSpares(ctx context.Context, o *objects) error {
	var names []string
	for i := range int32(spareOrdinals) {
		for _, template := range o.set.Spec.VolumeClaimTemplates {
			names = append(names, claimName(template.Name, podName(o.set, o.count+i)))
		}
	}
	found := map[string]*corev1.PersistentVolumeClaim{}
	err := readMissing(ctx, m, names, found, &corev1.PersistentVolumeClaim{})
	o.spares = slices.Sorted(maps.Keys(found))
	return err
}

// readMissing reads the objects with these names that are not in found yet, and adds those that exist.
func readMissing[T client.Object](ctx context.Context, m *Manager, names []string, found map[string]T, kind T) error {
	for _, name := range names {
		_, known := found[name]
		if known {
			continue
		}
		object := kind.DeepCopyObject().(T)
		err := m.client.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: name}, object)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return apiError(err, "read %s/%s", m.Namespace, name)
		}
		found[name] = object
	}
	return nil
}

func (m *Manager) readService(ctx context.Context, o *objects) error {
	found := map[string]*corev1.Service{}
	name := o.set.Spec.ServiceName
	if name == "" {
		return nil
	}
	err := readMissing(ctx, m, []string{name}, found, &corev1.Service{})
	o.service = found[name]
	return err
}

// apiError returns err with its kind, after the operation that failed; nil if err is nil.
func apiError(err error, operation string, args ...any) error {
	if err == nil {
		return nil
	}
	operation = fmt.Sprintf(operation, args...)
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("cannot %s: %w: %w", operation, handoff.ErrForbidden, err)
	}
	return fmt.Errorf("cannot %s: %w", operation, err)
}
