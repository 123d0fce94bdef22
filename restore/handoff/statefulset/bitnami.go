package statefulset

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// disasterRecovery is the variable with which the script of bitnami's image, when it finds no healthy cluster, removes the data dir and
// restores the newest snapshot of its own (libetcd.sh, etcd_initialize).
const disasterRecovery = "ETCD_DISASTER_RECOVERY"

// recovers reports whether a container has disasterRecovery on (libvalidations.sh, is_boolean_yes).
func recovers(c corev1.Container) bool {
	return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == disasterRecovery && isYes(e.Value) })
}

func isYes(value string) bool {
	return slices.Contains([]string{"1", "yes", "true"}, strings.ToLower(value))
}

// hasDisasterRecovery reports whether the members would restore a snapshot of their own.
func hasDisasterRecovery(set *appsv1.StatefulSet) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Containers, recovers)
}

// checkDisasterRecovery returns the fact about the disaster recovery of set, of which c runs etcd; nil: it is off. A restore cannot change a
// variable that comes from a ConfigMap or a Secret.
func (m *Manager) checkDisasterRecovery(set *appsv1.StatefulSet, c corev1.Container) *handoff.Finding {
	value, named := environmentOf(c, podName(set, 0), m.Namespace)[disasterRecovery]
	on := hasDisasterRecovery(set)
	replaces := fmt.Sprintf("the image of bitnami would restore its own snapshot over the restored data (%s", disasterRecovery)
	switch {
	case named && value == nil:
		return refuse(fmt.Sprintf("the image of bitnami may restore its own snapshot over the restored data: the value of %s in %s is not known", disasterRecovery, m),
			"set it to no in the StatefulSet itself")
	case !on && named && isYes(*value):
		return refuse(fmt.Sprintf("%s, from a ConfigMap of %s)", replaces, m), "set it to no there")
	case !on:
		return nil
	case partitionOf(set) > 0:
		return refuse(fmt.Sprintf("%s), and the partition %d of %s keeps a change of that from its pods", replaces, partitionOf(set), m), "set the partition to 0")
	}
	return note(replaces+")", fmt.Sprintf("the restore sets %s to no. Before you turn it on again in the chart's values, delete .disaster_recovery from the volume "+
		"of the snapshots: while that file exists, each member that starts replaces its data", disasterRecovery))
}

// setVariable sets a variable in the containers of the pod template that have it. While no pod is to run, that restarts none.
func setVariable(set *appsv1.StatefulSet, name, value string) step {
	after := set.DeepCopy()
	for _, c := range after.Spec.Template.Spec.Containers {
		for i := range c.Env {
			if c.Env[i].Name == name {
				c.Env[i].Value = value
			}
		}
	}
	return step{patches: []patch{{set, after}}, waiting: fmt.Sprintf("%s is set to %s", name, value)}
}
