package statefulset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// etcdContainer returns the container that runs etcd: the one with this name; without a name the one that runs etcd by its command, that
// has the ports of etcd, or the only one.
func etcdContainer(pod corev1.PodSpec, name string) (corev1.Container, *handoff.Finding) {
	if name != "" {
		return only(pod, fmt.Sprintf("no container is called %s", name), func(c corev1.Container) bool { return c.Name == name })
	}
	for _, looks := range []func(corev1.Container) bool{runsEtcd, hasPorts} {
		c, finding := only(pod, "", looks)
		if finding == nil {
			return c, nil
		}
	}
	return only(pod, "several containers may run etcd", func(corev1.Container) bool { return true })
}

// runsEtcd reports whether the command of a container is etcd.
func runsEtcd(c corev1.Container) bool {
	args, ok := etcdArgs(c)
	return ok && (len(c.Command)+len(c.Args) > len(args) || hasPorts(c))
}

// only returns the only container that matches; else a finding.
func only(pod corev1.PodSpec, problem string, matches func(corev1.Container) bool) (corev1.Container, *handoff.Finding) {
	var names []string
	var found []corev1.Container
	for _, c := range pod.Containers {
		names = append(names, c.Name)
		if matches(c) {
			found = append(found, c)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return corev1.Container{}, refuse(problem, "pass --container with one of "+strings.Join(names, ", "))
}

// hasPorts reports whether a container has a client port and a peer port.
func hasPorts(c corev1.Container) bool {
	has := func(name string, number int32) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name || p.ContainerPort == number })
	}
	return has("client", clientPort) && has("peer", peerPort)
}

// The ports of etcd, by default.
const (
	clientPort = 2379
	peerPort   = 2380
)

func refuse(text, remedy string) *handoff.Finding {
	return &handoff.Finding{Text: text, Remedy: remedy, Refuses: true}
}
