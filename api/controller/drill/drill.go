// Package drill runs the drills of EtcdBackups as Jobs in their namespaces. The operator never holds an identity: the Job mounts it.
//
// The scheduler.Service holds the lease on the drills of a cluster while a Job runs; dr drill in the Job takes none. A Job outlives the
// operator that created it, and the next operator waits for the same Job. The verdict is that of the proofs in the repository.
package drill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff/kubejob"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// Runner runs drills as Jobs.
type Runner struct {
	Client client.Client // of Jobs and pods; must not cache them
	Image  string        // of dr; "": no drill is run
	// EtcdBackup returns the EtcdBackup from which a Spec was built; nil: the Spec is no longer in effect.
	EtcdBackup func(s spec.Spec) *v1alpha1.EtcdBackup
}

const (
	firstPoll   = 2 * time.Second
	longestPoll = 30 * time.Second
	startLimit  = 15 * time.Minute // within which the pod of a new Job must start: pulling its image and adding a node to the cluster take minutes
	turnLimit   = time.Hour        // for which a Job keeps its turn: one that hangs must not keep the others waiting until its time limit
)

var errNoImage = errors.New("the operator does not know the image of the Jobs of drills: start dr operator with --job-image")

// Drill runs the drill d as a Job, and returns its proofs. If a Job of an earlier request for the same EtcdBackup is still running, Drill waits
// for that one, unless the settings have changed since: then it ends that Job. If the Job did not run to its end, Drill returns the reason
// as an error, together with the proofs that were stored. If ctx ends, Drill leaves the Job running. After an hour it calls d.Free, so that
// another drill can start.
func (r *Runner) Drill(ctx context.Context, d scheduler.DrillRequest, report storage.Report) ([]catalog.Proof, error) {
	b := r.EtcdBackup(d.Spec)
	switch {
	case r.Image == "":
		return nil, errNoImage
	case b == nil:
		return nil, fmt.Errorf("the EtcdBackup of cluster %s has just changed, or was deleted", d.Spec.Cluster)
	}
	request, err := newRequest(b, d, r.Image)
	if err != nil {
		return nil, err
	}
	job, err := r.start(ctx, request.job())
	if err != nil {
		return nil, fmt.Errorf("the Job %s/%s cannot be created: %w", b.Namespace, request.name(), r.explain(ctx, err, b.Namespace))
	}
	report.Say(storage.Event{Stage: "drill", Level: storage.Note, Message: fmt.Sprintf("the Job %s/%s runs", job.Namespace, job.Name)})
	failure := r.wait(ctx, job, d.Free)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	proofs, err := proofsOf(ctx, d, job)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the proofs of the Job %s/%s cannot be read: %w", job.Namespace, job.Name, err)
	case slices.ContainsFunc(proofs, func(p catalog.Proof) bool { return p.Verdict != catalog.Passed }):
		return proofs, nil // they show why the Job failed
	case failure == nil && len(proofs) == 0:
		failure = errors.New("it stored no proof")
	case failure == nil:
		return proofs, nil
	}
	return proofs, fmt.Errorf("the Job %s/%s: %w", job.Namespace, job.Name, failure)
}

// start creates the Job, or returns the one of its name that runs with the same settings. It first deletes one
// that has ended or has other settings.
func (r *Runner) start(ctx context.Context, wanted *batchv1.Job) (*batchv1.Job, error) {
	for {
		job := wanted.DeepCopy()
		err := r.Client.Create(ctx, job)
		if !apierrors.IsAlreadyExists(err) {
			return job, err
		}
		err = r.Client.Get(ctx, client.ObjectKeyFromObject(wanted), job)
		switch {
		case apierrors.IsNotFound(err): // just deleted
		case err != nil:
			return nil, err
		case !isOwned(job, wanted):
			return nil, errors.New("a Job of this name belongs to another owner: delete it")
		case job.DeletionTimestamp == nil && !hasEnded(job) && job.Annotations[settingsAnnotation] == wanted.Annotations[settingsAnnotation]:
			return job, nil
		default:
			err = r.remove(ctx, job)
			if err != nil {
				return nil, err
			}
		}
		err = storage.Sleep(ctx, firstPoll)
		if err != nil {
			return nil, err
		}
	}
}

// explain returns err, with the remedy if it is the API server's answer to an operator that has no right to create Jobs in a namespace.
// It asks the API server for that right: a quota or an admission controller can forbid the Job too.
func (r *Runner) explain(ctx context.Context, err error, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Group: batchv1.GroupName, Resource: "jobs"},
	}}
	unanswered := r.Client.Create(ctx, review)
	if unanswered != nil || review.Status.Allowed {
		return err
	}
	return fmt.Errorf("the operator has no right to create Jobs in namespace %s: its administrator can allow drills there, with drills.enabled "+
		"in the chart or with drills.yaml: %w", namespace, err)
}

// isOwned reports whether job has the controller of wanted.
func isOwned(job, wanted *batchv1.Job) bool {
	owner := metav1.GetControllerOf(job)
	return owner != nil && owner.UID == metav1.GetControllerOf(wanted).UID
}

// hasEnded reports whether no pod of job will run any more.
func hasEnded(job *batchv1.Job) bool { return kubejob.Ended(job) != nil }

// remove deletes a Job and its pods, unless another one has its name by now.
func (r *Runner) remove(ctx context.Context, job *batchv1.Job) error {
	err := r.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID})
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// wait waits until a Job has ended, and returns why it did not succeed. It ends a Job whose pod does not start. While the API server does
// not answer, it keeps waiting. It calls free after turnLimit.
func (r *Runner) wait(ctx context.Context, job *batchv1.Job, free func()) error {
	defer time.AfterFunc(turnLimit, free).Stop()
	uid, begin, running := job.UID, time.Now(), false
	for interval := firstPoll; ; interval = min(interval*3/2, longestPoll) {
		err := r.Client.Get(ctx, client.ObjectKeyFromObject(job), job)
		switch {
		case apierrors.IsNotFound(err), err == nil && job.UID != uid:
			return errors.New("it was deleted")
		case err != nil: // the Job keeps running
		case hasEnded(job):
			return r.failureOf(ctx, job)
		case job.Status.Ready != nil && *job.Status.Ready > 0:
			running = true
		case !running && time.Since(begin) > startLimit:
			why := r.describe(ctx, job)
			return errors.Join(fmt.Errorf("its pod did not start within %s%s", startLimit, why), r.remove(ctx, job))
		}
		err = storage.Sleep(ctx, interval)
		if err != nil {
			return err
		}
	}
}

// failureOf returns why an ended Job has not succeeded; nil if it has.
func (r *Runner) failureOf(ctx context.Context, job *batchv1.Job) error {
	c := kubejob.Ended(job)
	if c.Type == batchv1.JobComplete {
		return nil
	}
	return fmt.Errorf("it failed: %s%s", c.Message, r.describe(ctx, job))
}

// describe returns why job's pod does not run, after a colon, as the end of a message; "" if that is unknown, or if the Job got no pod.
func (r *Runner) describe(ctx context.Context, job *batchv1.Job) string {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job.UID)})
	if err != nil || len(pods.Items) == 0 {
		return ""
	}
	why := kubejob.Reason(pods.Items[0])
	if why == "" {
		return ""
	}
	return ": " + why
}

// proofsOf returns the proofs that the pod of job has stored, newest first.
func proofsOf(ctx context.Context, d scheduler.DrillRequest, job *batchv1.Job) ([]catalog.Proof, error) {
	all, err := d.In.Cluster.Drills(ctx, job.CreationTimestamp.Add(-catalog.FutureAllowance))
	by := job.Spec.Template.Spec.Hostname + ", "
	return slices.DeleteFunc(all, func(p catalog.Proof) bool { return !strings.HasPrefix(p.By, by) }), err
}
