package statefulset

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
)

// The places in the container of a Job. The member's volumes are where its etcd has them.
const (
	scratchDir = kubejob.Dir + "/scratch"
	planDir    = kubejob.Dir + "/plan"
	planFile   = "plan.json"
)

// reads reports whether the task needs the plan and the repository.
func (r run) reads() bool { return r.task == handoff.DoStage }

// args returns the arguments of dr. They contain no secret.
func (r run) args() []string {
	member := r.record.Handoff.Members[r.index]
	args := []string{
		"member", string(r.task), "--restore=" + r.ID, "--name=" + member.Name, "--data-dir=" + member.DataDir,
		"--report=" + corev1.TerminationMessagePathDefault,
	}
	if member.WALDir != "" {
		args = append(args, "--wal-dir="+member.WALDir)
	}
	if r.reads() {
		args = append(append(args, "--plan="+path.Join(planDir, planFile)), r.repository().Args()...)
	}
	return args
}

// repository returns the repository, from which a Job only reads.
func (r run) repository() kubejob.Repository {
	reads := r.Jobs.Repository
	reads.SignKey = kubejob.Key{}
	return reads
}

// mount adds the volumes and their mounts to a Job's pod.
func (r run) mount(pod *corev1.PodSpec, places []place) {
	c := &pod.Containers[0]
	size := resource.NewQuantity(cmp.Or(r.Jobs.Scratch, 8<<30), resource.BinarySI)
	pod.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: size}}}}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: scratchDir}}
	mountMember(pod, places)
	if !r.reads() {
		return
	}
	name := corev1.LocalObjectReference{Name: r.planName()}
	plan := corev1.Volume{Name: "plan", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: name}}}
	pod.Volumes = append(append(pod.Volumes, plan), r.repository().Volumes()...)
	c.VolumeMounts = append(append(c.VolumeMounts, corev1.VolumeMount{Name: "plan", MountPath: planDir, ReadOnly: true}), r.repository().Mounts()...)
}

// mountMember adds the member's volumes. They get new names, because those of the template may be those of other volumes here.
func mountMember(pod *corev1.PodSpec, places []place) {
	c := &pod.Containers[0]
	names := map[string]string{}
	for _, p := range places {
		name, known := names[p.volume.Name]
		if !known {
			name = fmt.Sprintf("member-%d", len(names))
			names[p.volume.Name] = name
			p.volume.Name = name
			pod.Volumes = append(pod.Volumes, p.volume)
		}
		p.mount.Name = name
		if !slices.Contains(c.VolumeMounts, p.mount) { // the data dir and the WAL dir may have one mount
			c.VolumeMounts = append(c.VolumeMounts, p.mount)
		}
	}
}
