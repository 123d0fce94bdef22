package kubeadm

import (
	"cmp"
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

	"github.com/etcd-dr/etcd-dr/restore/handoff/flags"
	"github.com/etcd-dr/etcd-dr/restore/handoff/node"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Member implements node.Service. It reads etcd's manifest. Its --initial-cluster is not used: it differs from host to host.
func (p *Pods) Member(context.Context) (node.Member, error) {
	pod, err := p.read(etcd)
	if errors.Is(err, fs.ErrNotExist) {
		return node.Member{}, p.missing()
	}
	if err == nil {
		err = checkEtcd(pod)
	}
	if err != nil {
		return node.Member{}, err
	}
	m, err := processOf(pod).Member()
	if err != nil {
		return m, err
	}
	m.Owner = ownerOf(pod)
	return m, nil
}

// ofRKE2 is the annotation of etcd's static pod in which RKE2 stores the first members (rke2: pkg/executor/staticpod).
const ofRKE2 = "etcd.k3s.io/initial"

// checkEtcd refuses etcd's pod if RKE2 manages it, or if its manifest does not show where etcd's data is.
func checkEtcd(pod corev1.Pod) error {
	_, found := pod.Annotations[ofRKE2]
	if found {
		return node.RKE2.Refuse()
	}
	p := processOf(pod)
	for _, setting := range []string{"config-file", "data-dir", "wal-dir"} {
		isUnknown := func(v corev1.EnvVar) bool { return v.ValueFrom != nil && v.Name == flags.Variable(setting) }
		if p.Flag(setting) == "" && slices.ContainsFunc(pod.Spec.Containers[0].Env, isUnknown) {
			return fmt.Errorf("%w: the manifest %s sets %s with valueFrom, so etcd's data is not known: write the value into the manifest",
				fault.Refused, etcd, flags.Variable(setting))
		}
	}
	return nil
}

// processOf returns the process of a pod's first container.
func processOf(pod corev1.Pod) node.Process {
	c := pod.Spec.Containers[0]
	p := node.Process{
		Args: slices.Concat(c.Command, c.Args), Env: map[string]string{}, Dir: cmp.Or(c.WorkingDir, "/"),
		OnHost: func(inside string) string { return onHost(pod, inside) },
	}
	for _, v := range c.Env {
		p.Env[v.Name] = v.Value
	}
	return p
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

// missing returns why there is no manifest of etcd.
func (p *Pods) missing() error {
	err := node.RefuseOthers("/")
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: there is no %s in %s: run the command on a host of the control plane, or name the kubelet's staticPodPath with --into kubeadm/DIRECTORY",
		fault.NotFound, etcd, p.Manifests)
}
