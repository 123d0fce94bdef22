package statefulset

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// user is the user and the group of a process.
type user struct {
	UID int64  `json:"uid"`
	GID *int64 `json:"gid,omitempty"` // nil: that of the image
}

// userOf returns the user of the etcd in container c: that of the pod template, else the given one of a member that ran. If both show
// none, it is root, as in the images of etcd.
func userOf(set *appsv1.StatefulSet, c corev1.Container, ran *user) (user, error) {
	spec, own := contexts(set.Spec.Template.Spec, c)
	uid, gid := first(own.RunAsUser, spec.RunAsUser), first(own.RunAsGroup, spec.RunAsGroup)
	if ran != nil {
		uid, gid = first(uid, &ran.UID), first(gid, ran.GID)
	}
	if uid == nil && *first(own.RunAsNonRoot, spec.RunAsNonRoot, new(false)) {
		return user{}, fmt.Errorf("%w: the user of container %s is not root, and unknown: set its securityContext.runAsUser to the owner of the data",
			fault.Refused, c.Name)
	}
	return user{*first(uid, new(int64(0))), gid}, nil
}

// contexts returns the security contexts of a pod and a container, empty ones in place of nil.
func contexts(pod corev1.PodSpec, c corev1.Container) (corev1.PodSecurityContext, corev1.SecurityContext) {
	return *first(pod.SecurityContext, &corev1.PodSecurityContext{}), *first(c.SecurityContext, &corev1.SecurityContext{})
}

// first returns the first value that is not nil; nil if all are.
func first[T any](values ...*T) *T {
	for _, v := range values {
		if v != nil {
			return v
		}
	}
	return nil
}

// runningUser returns the user of a container that runs; nil if no node reports it.
func runningUser(o objects, container string) *user {
	for _, pod := range o.pods {
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == container && s.User != nil && s.User.Linux != nil {
				return &user{s.User.Linux.UID, &s.User.Linux.GID}
			}
		}
	}
	return nil
}

// rootCapabilities let root use and give away files of other users, as root may by default.
var rootCapabilities = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER"}

// secure gives a Job's pod, with its only container, the member's user, groups and SELinux labels, and the least rights beyond. It
// fulfils the Pod Security standard "restricted" if the member's pod does.
func secure(job *corev1.PodSpec, member corev1.PodSpec, c corev1.Container, u user) {
	spec, own := contexts(member, c)
	nonRoot := first(own.RunAsNonRoot, spec.RunAsNonRoot)
	if u.UID != 0 {
		nonRoot = new(true)
	}
	job.HostUsers = member.HostUsers
	job.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: &u.UID, RunAsGroup: u.GID, RunAsNonRoot: nonRoot, SELinuxOptions: first(own.SELinuxOptions, spec.SELinuxOptions),
		FSGroup: spec.FSGroup, FSGroupChangePolicy: spec.FSGroupChangePolicy, SELinuxChangePolicy: spec.SELinuxChangePolicy,
		SupplementalGroups: slices.Clone(spec.SupplementalGroups), SupplementalGroupsPolicy: spec.SupplementalGroupsPolicy,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	confined := &corev1.SecurityContext{}
	kubejob.Confine(confined)
	if u.UID == 0 { // then the member does not fulfil that standard either
		confined.Capabilities.Add = rootCapabilities
	}
	job.Containers[0].SecurityContext = confined
}
