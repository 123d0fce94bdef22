package statefulset

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// readVariables reads the ConfigMaps from which the container that runs etcd takes variables. If one is missing, the container does not start, or
// does without.
func (m *Manager) readVariables(ctx context.Context, o *objects) error {
	c, _ := etcdContainer(o.set.Spec.Template.Spec, m.Into.Container)
	var names []string
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			names = append(names, from.ConfigMapRef.Name)
		}
	}
	o.variables = map[string]*corev1.ConfigMap{}
	return readMissing(ctx, m, names, o.variables, &corev1.ConfigMap{})
}

// etcdContainer returns the container that runs etcd, see etcdContainer. Its variables include those from ConfigMaps, unless a Secret after
// them may have others.
func (o objects) etcdContainer(name string) (corev1.Container, *handoff.Finding) {
	c, finding := etcdContainer(o.set.Spec.Template.Spec, name)
	var all []corev1.EnvVar
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil {
			all = nil
			continue
		}
		found := o.variables[from.ConfigMapRef.Name]
		if found == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(found.Data)) {
			literal := strings.ReplaceAll(found.Data[key], "$", "$$") // Kubernetes expands no references in it
			all = append(all, corev1.EnvVar{Name: from.Prefix + key, Value: literal})
		}
	}
	c.Env = append(all, c.Env...) // those of the container itself prevail
	return c, finding
}
