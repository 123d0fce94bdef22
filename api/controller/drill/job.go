package drill

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/controller/mounted"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// scratchDir is the folder for temporary files in the container.
const scratchDir = "/tmp"

// settingsAnnotation has a digest of everything in a Job but the seed of its drill, which settles what is restored.
const settingsAnnotation = "etcd-dr.io/settings"

// stays is how long an ended Job stays, for its log, in seconds: a day.
const stays = 24 * 60 * 60

// request is one drill of an EtcdBackup.
type request struct {
	backup     *v1alpha1.EtcdBackup
	spec       spec.Spec
	repository spec.Repository     // of the drill, in spec
	declared   v1alpha1.Repository // the same, in backup
	seed       uint64
	image      string
}

// newRequest returns the drill r of b. It fails if the settings of r are no longer those of b.
func newRequest(b *v1alpha1.EtcdBackup, r scheduler.DrillRequest, image string) (request, error) {
	i := slices.IndexFunc(b.Spec.Repositories, func(in v1alpha1.Repository) bool { return in.Name == r.In.Repository })
	j := slices.IndexFunc(r.Spec.Repositories, func(in spec.Repository) bool { return in.Name == r.In.Repository })
	if i < 0 || j < 0 || b.Spec.Drill == nil {
		return request{}, fmt.Errorf("the settings of EtcdBackup %s/%s have just changed", b.Namespace, b.Name)
	}
	if b.Spec.Repositories[i].CredentialsSecret == nil {
		return request{}, fmt.Errorf("the repository %s names no Secret, and a Job has no other identity: set its credentialsSecret", r.In.Repository)
	}
	return request{
		backup: b, spec: r.Spec, repository: r.Spec.Repositories[j], declared: b.Spec.Repositories[i], seed: r.Seed, image: image,
	}, nil
}

// name returns the name of the Job. All drills of an EtcdBackup share it, so that the API server refuses a second one at a time, and an
// operator that has just started finds the one that runs. An EtcdBackup that was created again has another name.
func (r request) name() string {
	sum := sha256.Sum256([]byte(r.backup.UID))
	return r.prefix() + hex.EncodeToString(sum[:4])
}

// host returns the host name of the Job's pod. It is different for each drill, and part of the drill's proofs.
func (r request) host() string { return r.prefix() + fmt.Sprintf("%08x", r.seed) }

// prefix returns the beginning of the name of b's Jobs, of at most 47 characters: with eight more it is a label of DNS.
func (r request) prefix() string {
	name := strings.ReplaceAll(r.backup.Name, ".", "-")
	return strings.TrimRight(name[:min(len(name), 40)], "-") + "-drill-"
}

// job returns the Job of r. It is pure.
func (r request) job() *batchv1.Job {
	job := r.withoutDigest()
	r.seed = 0
	text, err := json.Marshal(r.withoutDigest())
	if err != nil {
		panic(err) // only texts, numbers and quantities
	}
	sum := sha256.Sum256(text)
	job.Annotations = map[string]string{settingsAnnotation: hex.EncodeToString(sum[:8])}
	return job
}

// withoutDigest returns the Job without the annotation of its settings.
func (r request) withoutDigest() *batchv1.Job {
	labels := map[string]string{"app.kubernetes.io/name": "etcd-dr-drill"}
	owner := metav1.NewControllerRef(r.backup, v1alpha1.GroupVersion.WithKind("EtcdBackup"))
	owner.BlockOwnerDeletion = nil // may need the right to update the finalizers of EtcdBackups, and a deleted one waits for nothing
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.backup.Namespace, Name: r.name(), Labels: labels, OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: new(int32(stays)),
			ActiveDeadlineSeconds: new(max(1, int64(r.spec.Timeout.Seconds()))),
			Template:              corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: r.pod()},
		},
	}
}

// pod returns a pod that fulfils the standard "restricted", and cannot use the API server.
func (r request) pod() corev1.PodSpec {
	return corev1.PodSpec{
		Hostname: r.host(), RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "drill", Image: r.image, Args: r.args(),
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			Resources:                kubejob.Resources(Memory(r.backup.Spec.Drill)), SecurityContext: confined(),
			VolumeMounts: append([]corev1.VolumeMount{{Name: "scratch", MountPath: scratchDir}}, r.opens().Mounts()...),
		}},
		Volumes: append([]corev1.Volume{r.scratch()}, r.opens().Volumes()...),
	}
}

// confined returns the context of a container that the standard "restricted" admits.
func confined() *corev1.SecurityContext {
	c := &corev1.SecurityContext{}
	kubejob.Confine(c)
	return c
}

func (r request) args() []string {
	args := []string{"drill", fmt.Sprintf("--seed=%d", r.seed), fmt.Sprintf("--memory-limit=%dB", r.spec.Drill.Memory)}
	args = append(args, r.opens().Args()...)
	for _, text := range r.spec.Drill.Assertions {
		args = append(args, "--assert="+text)
	}
	return kubejob.Literal(args)
}

// opens returns the repository as the Job opens it.
func (r request) opens() kubejob.Repository {
	k := mounted.Repository(r.declared, r.spec.Cluster, r.backup.Spec.Drill.IdentitySecret)
	k.Trust, k.AllowPlain = r.repository.Policy.Trusted().Keys(), r.backup.Spec.Unencrypted
	return k
}

// scratch is the volume for temporary files.
func (r request) scratch() corev1.Volume {
	size := scratchOf(r.backup.Spec.Drill)
	return corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}
}

// Memory returns the memory in bytes that the Jobs of d request and may use.
func Memory(d *v1alpha1.Drill) resource.Quantity {
	if d.Memory == nil {
		return resource.MustParse("1Gi")
	}
	return *d.Memory
}

// scratchOf returns the size in bytes of the scratch volume of d's Jobs.
func scratchOf(d *v1alpha1.Drill) resource.Quantity {
	if d.Scratch == nil {
		return resource.MustParse("8Gi")
	}
	return *d.Scratch
}
