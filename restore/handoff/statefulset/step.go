package statefulset

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// step is the next thing to do: requests, in their order, and how far the act is after them.
type step struct {
	patches []patch
	deletes []client.Object // by UID
	creates []client.Object // unless they exist
	waiting string          // "": done
	err     error           // to return after the requests
}

// patch changes an object, unless another program has changed it since it was read.
type patch struct{ before, after client.Object }

func done() step { return step{} }

func wait(format string, args ...any) step { return step{waiting: fmt.Sprintf(format, args...)} }

// carryOut sends the requests of s.
func (m *Manager) carryOut(ctx context.Context, s step) (handoff.Progress, error) {
	for _, p := range s.patches {
		err := m.client.Patch(ctx, p.after, client.MergeFromWithOptions(p.before, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			return handoff.Progress{Waiting: fmt.Sprintf("%s was changed at the same time: it is read again", describe(p.before))}, nil
		}
		if err != nil {
			return handoff.Progress{}, apiError(err, "change %s", describe(p.before))
		}
	}
	for _, object := range s.deletes {
		err := m.delete(ctx, object)
		if err != nil {
			return handoff.Progress{}, err
		}
	}
	for _, object := range s.creates {
		err := m.client.Create(ctx, object)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return handoff.Progress{}, apiError(err, "create %s", describe(object))
		}
	}
	return handoff.Progress{Done: s.waiting == "" && s.err == nil, Waiting: s.waiting}, s.err
}

// delete deletes an object, unless another one has its name by now. A Job stays until its pods have ended. The last options prevail.
func (m *Manager) delete(ctx context.Context, object client.Object, more ...client.DeleteOption) error {
	options := []client.DeleteOption{client.Preconditions{UID: new(object.GetUID())}}
	_, isJob := object.(*batchv1.Job)
	if isJob {
		options = append(options, client.PropagationPolicy(metav1.DeletePropagationForeground))
	}
	err := m.client.Delete(ctx, object, append(options, more...)...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return apiError(err, "delete %s", describe(object))
}

// describe returns the kind, the namespace and the name of an object.
func describe(object client.Object) string {
	kind := cmp.Or(object.GetObjectKind().GroupVersionKind().Kind, fmt.Sprintf("%T", object)) // typed objects are read without their kind
	kind = kind[strings.LastIndex(kind, ".")+1:]
	return fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
}
