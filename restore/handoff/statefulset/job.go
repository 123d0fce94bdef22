package statefulset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Jobs describe the Jobs that carry out the tasks.
type Jobs struct {
	Image       string // of dr
	Repository  kubejob.Repository
	Owner       *metav1.OwnerReference // of the Jobs and of the plan; nil: the ConfigMap of Take
	Labels      map[string]string      // in addition
	Tolerations []corev1.Toleration    // in addition to those of the members
	Memory      int64                  // request and limit, in bytes; 0: 1 GiB
	Scratch     int64                  // limit of temporary files, in bytes; 0: 8 GiB
	Timeout     time.Duration          // of each Job; 0: a day
}

// The labels of Jobs and their pods. They never match the selector of the StatefulSet.
const (
	nameLabel    = "app.kubernetes.io/name"
	setLabel     = "etcd-dr.io/statefulset"
	restoreLabel = "etcd-dr.io/restore"
	turnLabel    = "etcd-dr.io/turn" // the task, and when its phase began: a phase that is repeated has Jobs of its own
	podLabel     = "etcd-dr.io/pod"  // of the member
	attemptLabel = "etcd-dr.io/attempt"
	silentLabel  = "etcd-dr.io/silent" // how many attempts right before it have ended without a report
)

const jobName = "etcd-dr-restore"

// stays is how long an ended Job stays, for its log, in seconds: a day.
const stays = 24 * 60 * 60

// run is one attempt at a task on one member's disk.
type run struct {
	*Manager
	objects
	container corev1.Container
	user      user
	record    handoff.Record
	task      handoff.Task
	index     int32
	attempt   int // from 1 on
	silent    int // how many attempts right before it have ended without a report
}

// turn returns the value of turnLabel.
func turn(r handoff.Record, t handoff.Task) string { return fmt.Sprintf("%s-%x", t, r.Since.Unix()) }

// name returns the name of the Job, of at most 63 characters: it is a label of the pods too.
func (r run) name() string {
	end := fmt.Sprintf("-%s-%s-%d-%d", r.ID, turn(r.record, r.task), ordinalOf(r.set, r.index), r.attempt)
	return r.Name[:min(len(r.Name), 63-len(end))] + end
}

func (r run) labels() map[string]string {
	all := maps.Clone(r.Jobs.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		nameLabel: jobName, setLabel: r.Name, restoreLabel: r.ID, turnLabel: turn(r.record, r.task),
		podLabel: podName(r.set, r.index), attemptLabel: strconv.Itoa(r.attempt),
	})
	if r.silent > 0 {
		all[silentLabel] = strconv.Itoa(r.silent)
	}
	return all
}

// job returns the Job. It is pure.
func (r run) job(owner metav1.OwnerReference) (*batchv1.Job, error) {
	pod, err := r.pod()
	if err != nil {
		return nil, err
	}
	all := r.labels()
	selector, err := metav1.LabelSelectorAsSelector(r.set.Spec.Selector)
	if err != nil || selector.Matches(labels.Set(all)) {
		return nil, fmt.Errorf("%w: the labels of the Jobs match the selector of %s: use other labels", fault.Usage, r.Manager)
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.name(), Labels: all, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(0)), TTLSecondsAfterFinished: new(int32(stays)),
			ActiveDeadlineSeconds: new(int64(cmp.Or(r.Jobs.Timeout, 24*time.Hour).Seconds())),
			Template:              corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: all}, Spec: pod},
		},
	}, nil
}

func (r run) pod() (corev1.PodSpec, error) {
	places, err := r.places()
	if err != nil {
		return corev1.PodSpec{}, err
	}
	memory := resource.NewQuantity(cmp.Or(r.Jobs.Memory, 1<<30), resource.BinarySI)
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		Containers: []corev1.Container{{
			Name: "member", Image: r.Jobs.Image, Args: kubejob.Literal(r.args()), Resources: kubejob.Resources(*memory),
			Env:                      []corev1.EnvVar{{Name: "TMPDIR", Value: scratchDir}}, // a member's volume may be at /tmp
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	}
	secure(&pod, r.set.Spec.Template.Spec, r.container, r.user)
	placeJob(&pod, r.set, r.node(places), r.fixed(places))
	pod.Tolerations = append(pod.Tolerations, r.Jobs.Tolerations...)
	r.mount(&pod, places)
	return pod, nil
}

// places returns the places of the member's directories, and those inside its data dir.
func (r run) places() (all []place, err error) {
	member, pod := r.record.Handoff.Members[r.index], podName(r.set, r.index)
	for _, dir := range []string{member.DataDir, member.WALDir} {
		if dir == "" {
			continue
		}
		p, err := placeOf(r.set, r.container, pod, dir)
		if err != nil {
			return nil, fmt.Errorf("%w: %w: restore with the pod template that was inspected", fault.Refused, err)
		}
		all = append(all, p)
	}
	below, err := placesBelow(r.set, r.container, pod, member.DataDir)
	return append(all, below...), err
}

// node returns the only node on which the Job can reach the volumes; "": the volumes decide.
func (r run) node(places []place) string {
	pod := r.pods[podName(r.set, r.index)]
	if pod != nil && !hasEnded(*pod) {
		return pod.Spec.NodeName
	}
	if slices.ContainsFunc(places, func(p place) bool { return p.volume.HostPath != nil }) {
		return r.record.Handoff.Members[r.index].Node
	}
	return ""
}

// fixed reports whether all volumes of the member exist.
func (r run) fixed(places []place) bool {
	return !slices.ContainsFunc(places, func(p place) bool {
		claim := r.claims[p.claim()]
		return p.claim() != "" && (claim == nil || claim.Status.Phase != corev1.ClaimBound)
	})
}
