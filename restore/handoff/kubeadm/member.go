package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Member implements node.Service. It reads etcd's manifest. Its --initial-cluster is not used: it differs from host to host.
func (p *Pods) Member(context.Context) (node.Member, error) {
	pod, err := p.read(etcd)
	if errors.Is(err, fs.ErrNotExist) {
		return node.Member{}, p.refuseOthers()
	}
	if err != nil {
		return node.Member{}, err
	}
	m, err := processOf(pod).Member()
	if err != nil {
		return m, err
	}
	for _, file := range []*string{&m.DataDir, &m.WALDir, &m.CA, &m.Cert, &m.Key} {
		*file = onHost(pod, *file)
	}
	m.Owner = ownerOf(pod)
	return m, nil
}

// processOf returns the process of a pod's first container.
func processOf(pod corev1.Pod) node.Process {
	c := pod.Spec.Containers[0]
	return node.Process{Args: slices.Concat(c.Command, c.Args), Dir: "/"}
}

// read reads a manifest, wherever it is.
func (p *Pods) read(name string) (pod corev1.Pod, err error) {
	text, err := os.ReadFile(filepath.Join(p.Manifests, name))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = os.ReadFile(filepath.Join(p.aside(), name))
	}
	if err != nil {
		return pod, err
	}
	return parse(name, text)
}

// parse decodes a manifest.
func parse(name string, text []byte) (pod corev1.Pod, err error) {
	err = yaml.Unmarshal(text, &pod)
	if err == nil && len(pod.Spec.Containers) == 0 {
		err = errors.New("it has no container")
	}
	if err != nil {
		return pod, fmt.Errorf("%w: the manifest %s: %w: correct it", fault.Refused, name, err)
	}
	return pod, nil
}

// onHost returns the path on the host of a path in the first container of a pod.
func onHost(pod corev1.Pod, inside string) string {
	mounted, host := "", ""
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		isBelow := inside == mount.MountPath || strings.HasPrefix(inside, strings.TrimSuffix(mount.MountPath, "/")+"/")
		if !isBelow || len(mount.MountPath) < len(mounted) {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.Name == mount.Name && v.HostPath != nil {
				mounted, host = mount.MountPath, path.Join(v.HostPath.Path, mount.SubPath)
			}
		}
	}
	if host == "" {
		return inside
	}
	return path.Join(host, strings.TrimPrefix(inside, mounted))
}

// ownerOf returns the user of the pod's first container; nil: root.
func ownerOf(pod corev1.Pod) *node.Owner {
	user, group := int64(0), int64(0)
	ofPod, ofContainer := pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext
	if ofPod != nil {
		user, group = value(ofPod.RunAsUser, user), value(ofPod.RunAsGroup, group)
	}
	if ofContainer != nil {
		user, group = value(ofContainer.RunAsUser, user), value(ofContainer.RunAsGroup, group)
	}
	if user == 0 && group == 0 {
		return nil
	}
	return &node.Owner{UID: int(user), GID: int(group)}
}

func value(p *int64, otherwise int64) int64 {
	if p == nil {
		return otherwise
	}
	return *p
}

// others are the folders of distributions that manage etcd themselves, with their own commands.
var others = []struct{ folder, name, command string }{
	{"/var/lib/rancher/k3s/server", "k3s", "k3s server --cluster-reset --cluster-reset-restore-path=SNAPSHOT"},
	{"/var/lib/rancher/rke2/server", "RKE2", "rke2 server --cluster-reset --cluster-reset-restore-path=SNAPSHOT"},
	{"/system/state", "Talos", "talosctl bootstrap --recover-from=SNAPSHOT"},
}

// refuseOthers returns why there is no manifest of etcd.
func (p *Pods) refuseOthers() error {
	for _, o := range others {
		_, err := os.Stat(o.folder)
		if err == nil {
			return fmt.Errorf("%w: this host runs %s, which manages etcd itself: download a snapshot with dr fetch, and run %s", fault.Refused, o.name, o.command)
		}
	}
	return fmt.Errorf("%w: there is no %s in %s: run the command on a host of the control plane, or name the kubelet's staticPodPath with --into kubeadm/DIRECTORY",
		fault.NotFound, etcd, p.Manifests)
}
