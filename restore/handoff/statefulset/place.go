package statefulset

import (
	"fmt"
	"path"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// place is a mount of a member's container, and the volume behind it.
type place struct {
	mount  corev1.VolumeMount // with the subPath of the member
	volume corev1.Volume      // with the claim of the member
	// template is that of the claim; nil: the claim is not made of one.
	template *corev1.PersistentVolumeClaim
}

// claim returns the name of the claim behind p; "" if there is none.
func (p place) claim() string {
	if p.volume.PersistentVolumeClaim == nil {
		return ""
	}
	return p.volume.PersistentVolumeClaim.ClaimName
}

// String returns the claim, or the kind of the volume, with the subPath.
func (p place) String() string {
	name := p.claim()
	switch {
	case p.volume.HostPath != nil:
		name = "hostPath " + p.volume.HostPath.Path
	case name == "":
		name = "volume " + p.volume.Name
	}
	return path.Join(name, p.mount.SubPath)
}

// lasts reports whether the content of p outlives the pod.
func (p place) lasts() bool {
	v := p.volume
	return v.EmptyDir == nil && v.Ephemeral == nil && v.ConfigMap == nil && v.Secret == nil && v.Projected == nil &&
		v.DownwardAPI == nil && v.GitRepo == nil && v.CSI == nil && v.Image == nil
}

// placeOf returns the place that contains dir, as a container of a pod sees it. The error is why there is none.
func placeOf(set *appsv1.StatefulSet, c corev1.Container, pod, dir string) (place, error) {
	i := -1
	for j, mount := range c.VolumeMounts {
		if isInside(dir, mount.MountPath) && (i < 0 || len(mount.MountPath) > len(c.VolumeMounts[i].MountPath)) {
			i = j
		}
	}
	if i < 0 {
		return place{}, fmt.Errorf("no volume contains %s of container %s, so it is lost with each pod", dir, c.Name)
	}
	p, err := resolved(set, c, pod, c.VolumeMounts[i])
	if err == nil && !p.lasts() {
		return place{}, fmt.Errorf("%s of container %s is in the volume %s, which is lost with each pod", dir, c.Name, p.volume.Name)
	}
	return p, err
}

// placesBelow returns the places inside dir: a data dir with such a place cannot be exchanged, which the task on the disk finds out.
func placesBelow(set *appsv1.StatefulSet, c corev1.Container, pod, dir string) (all []place, err error) {
	for _, mount := range c.VolumeMounts {
		if mount.MountPath == dir || !isInside(mount.MountPath, dir) {
			continue
		}
		p, err := resolved(set, c, pod, mount)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// isInside reports whether dir is parent or below it.
func isInside(dir, parent string) bool {
	return strings.HasPrefix(path.Clean(dir)+"/", strings.TrimSuffix(path.Clean(parent), "/")+"/")
}

// resolved returns the place of a mount of a container in a pod.
func resolved(set *appsv1.StatefulSet, c corev1.Container, pod string, mount corev1.VolumeMount) (place, error) {
	p := place{mount: corev1.VolumeMount{MountPath: path.Clean(mount.MountPath), SubPath: mount.SubPath}}
	if mount.SubPathExpr != "" {
		var err error
		p.mount.SubPath, err = environmentOf(c, pod, set.Namespace).expand(mount.SubPathExpr)
		if err != nil {
			return place{}, fmt.Errorf("the subPathExpr of %s cannot be resolved: %w", mount.MountPath, err)
		}
	}
	for i, template := range set.Spec.VolumeClaimTemplates {
		if template.Name == mount.Name {
			claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(mount.Name, pod)}
			p.volume = corev1.Volume{Name: mount.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}}
			p.template = &set.Spec.VolumeClaimTemplates[i]
			return p, nil
		}
	}
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.Name == mount.Name {
			p.volume = v
		}
	}
	return p, nil
}
