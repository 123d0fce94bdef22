package dropin

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/api/foreign"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// read reads the live objects.
func (a *adoption) read(ctx context.Context) error {
	a.facts.created = a.theirs.CreationTimestamp.Time
	for _, read := range []func(context.Context) error{a.readCluster, a.translate, a.readStatefulSet, a.readMembers, a.readOurs, a.readOperator} {
		err := read(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

// readMembers reads the old members: the pods with the labels of the EtcdCluster that may run, without those of a StatefulSet. The EtcdCluster may
// be gone.
func (a *adoption) readMembers(ctx context.Context) error {
	var all corev1.PodList
	err := a.Client.List(ctx, &all, client.InNamespace(a.theirs.Namespace), client.MatchingLabels{"app": "etcd", "etcd_cluster": a.name()})
	for _, p := range all.Items {
		if isOfStatefulSet(p) || !mayRun(p) {
			continue
		}
		a.pods = append(a.pods, p)
		a.facts.members = append(a.facts.members, member{
			name: p.Name, node: p.Spec.NodeName, created: p.CreationTimestamp.Time, running: p.Status.Phase == corev1.PodRunning, ending: p.DeletionTimestamp != nil,
		})
	}
	return err
}

// mayRun reports whether a pod has not ended for good.
func mayRun(p corev1.Pod) bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// readCluster reads their EtcdCluster.
func (a *adoption) readCluster(ctx context.Context) (err error) {
	a.facts.cluster, err = a.exists(ctx, a.name(), &a.cluster)
	a.facts.detached = a.cluster.Annotations[detached] != "" && a.cluster.Spec.Paused
	at, by, _ := strings.Cut(a.cluster.Annotations[fencedAt], " ")
	if by == string(a.theirs.UID) { // else another restore has stopped members, and these run since
		a.facts.fenced, _ = time.Parse(time.RFC3339, at)
	}
	return err
}

// translate translates their EtcdRestore and their EtcdCluster.
func (a *adoption) translate(context.Context) error {
	objects := []client.Object{a.theirs}
	if a.facts.cluster {
		objects = append(objects, &a.cluster)
	}
	all, err := a.Options.translate(objects...)
	if err != nil {
		return err
	}
	if a.facts.cluster {
		a.objects = all[1].Objects
		if all[1].Err != nil {
			a.fault = all[1].Err.Error()
		}
	}
	if all[0].Err != nil {
		a.unusable = all[0].Err.Error()
		return nil
	}
	spec, ok := all[0].Objects[0].Spec.(v1alpha1.EtcdRestoreSpec)
	if !ok {
		panic("an EtcdRestore becomes another object") // foreign
	}
	a.spec, a.old = spec, all[0].Old
	return nil
}

func isOfStatefulSet(p corev1.Pod) bool {
	owner := metav1.GetControllerOf(&p)
	return owner != nil && owner.Kind == "StatefulSet"
}

// readStatefulSet reads whether the StatefulSet exists. If their EtcdCluster is gone, it names the Secret with a client's certificate.
func (a *adoption) readStatefulSet(ctx context.Context) (err error) {
	var set appsv1.StatefulSet
	a.facts.statefulSet, err = a.exists(ctx, a.name(), &set)
	if a.facts.cluster && !a.facts.statefulSet && a.fault == "" && !foreign.IsRecent(a.cluster.Spec.Version) {
		a.fault = fmt.Sprintf("EtcdCluster %s has etcd %s, and dr needs 3.4 or later: set spec.version to a version whose image exists, or create StatefulSet %s",
			a.name(), cmp.Or(a.cluster.Spec.Version, "3.2.13"), a.name())
	}
	secret := set.Annotations[clientSecret]
	if secret != "" && a.spec.Access == nil {
		a.spec.Access = &v1alpha1.Access{TLSSecret: &v1alpha1.SecretName{Name: secret}}
	}
	return err
}

// readOurs reads our EtcdRestore, and our EtcdBackup of the members that ran.
func (a *adoption) readOurs(ctx context.Context) error {
	var restore v1alpha1.EtcdRestore
	found, err := a.exists(ctx, a.suffixed(""), &restore)
	if err != nil {
		return err
	}
	if found {
		a.facts.ours = &restore
	}
	var saved v1alpha1.EtcdBackup
	found, err = a.exists(ctx, a.suffixed("-before"), &saved)
	if found {
		a.facts.saved = &saved
	}
	return err
}

// theirOperator is the name of their operator: of its program, and in the label of its Deployment (example/deployment.yaml).
const theirOperator = "etcd-operator"

// readOperator looks for a pod of their operator in this namespace. Other manifests, such as those of its chart, have another label.
func (a *adoption) readOperator(ctx context.Context) error {
	var all corev1.PodList
	err := a.Client.List(ctx, &all, client.InNamespace(a.theirs.Namespace))
	for _, p := range all.Items {
		if mayRun(p) && (p.Labels["name"] == theirOperator || slices.ContainsFunc(p.Spec.Containers, runsTheirOperator)) {
			a.facts.operator = p.Name
		}
	}
	return err
}

// runsTheirOperator reports whether a container names the program of their operator. Their image has no entry point (hack/build/Dockerfile).
func runsTheirOperator(c corev1.Container) bool {
	command := slices.Concat(c.Command, c.Args)
	return len(command) > 0 && path.Base(command[0]) == theirOperator
}

// exists reads an object of the namespace, and reports whether it exists. One whose kind is not defined does not.
func (a *adoption) exists(ctx context.Context, name string, to client.Object) (bool, error) {
	err := a.Client.Get(ctx, a.key(name), to)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read %T %s: %w", to, name, err)
	}
	return true, nil
}
