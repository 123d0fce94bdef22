package dropin

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// act is the next act of a restore that their EtcdRestore orders.
type act string

// The acts, in their order. Before fence, no act touches a running member.
const (
	create act = "create" // the StatefulSet, without replicas, and the Services that are missing
	detach act = "detach" // the Services from the EtcdCluster, which is paused: they stay, and their members find each other
	order  act = "order"  // our EtcdRestore, which is suspended: it builds the new data, and stops no member
	save   act = "save"   // a backup of the members that run, the way back from this restore
	fence  act = "fence"  // stops the members of their operator
	resume act = "resume" // ends the suspension: our EtcdRestore starts the members of the StatefulSet
	wait   act = "wait"
	end    act = "end"
)

// facts are the live objects of a restore.
type facts struct {
	created     time.Time             // of their EtcdRestore
	cluster     bool                  // their EtcdCluster exists
	detached    bool                  // it is paused, and its Services do not end with it
	members     []member              // pods with its labels that no StatefulSet controls
	operator    string                // a pod of their operator in this namespace; "": none runs
	fenced      time.Time             // when this restore began to stop the members; zero: it has not
	statefulSet bool                  // of the cluster's name exists
	ours        *v1alpha1.EtcdRestore // nil: not ordered yet
	saved       *v1alpha1.EtcdBackup  // of the members that ran; nil: none
}

// member is an old member: a pod that their operator has made.
type member struct {
	name, node string
	created    time.Time
	running    bool
	ending     bool // it is being deleted
}

// expires is the age at which an EtcdRestore that still waits to stop old members ends: its author may not expect that any more.
const expires = 6 * time.Hour

// maxAge is the age at which an EtcdRestore that has not begun is refused: the archived operator may never have carried it out, and the cluster
// may have been in use since.
const maxAge = time.Hour

// next returns the next act of a restore into the cluster called name, and the reason for people. end without a reason means success. It is pure.
func next(name string, f facts, now time.Time) (act, string) {
	switch {
	case f.ours != nil && meta.IsStatusConditionTrue(f.ours.Status.Conditions, v1alpha1.ConditionComplete):
		return end, ""
	case f.ours != nil && meta.IsStatusConditionTrue(f.ours.Status.Conditions, v1alpha1.ConditionFailed):
		return end, cmp.Or(f.ours.Status.Message, "EtcdRestore "+f.ours.Name+" of legacy.etcd-dr.io has failed")
	case f.ours != nil && !f.ours.Spec.Suspend:
		return wait, waitsFor(f.ours)
	case f.ours != nil && (f.ours.DeletionTimestamp != nil || f.ours.Spec.Rollback):
		return wait, waitsFor(f.ours)
	case f.ours != nil && f.fenced.IsZero() && now.Sub(f.created) > expires:
		return end, fmt.Sprintf("this EtcdRestore was created at %s, and has waited for more than six hours: create it again", f.created.UTC().Format(time.RFC3339))
	case f.ours == nil && now.Sub(f.created) > maxAge:
		return end, fmt.Sprintf("this EtcdRestore was created at %s, and has not begun within an hour: create it again", f.created.UTC().Format(time.RFC3339))
	case f.operator != "":
		return wait, fmt.Sprintf("pod %s of coreos' operator runs, and would start the old members again: delete its Deployment", f.operator)
	case !f.statefulSet && !f.cluster:
		return wait, fmt.Sprintf("this namespace has neither an EtcdCluster nor a StatefulSet %s: create one of them", name)
	case !f.statefulSet:
		return create, "creating the StatefulSet"
	case f.cluster && !f.detached:
		return detach, "detaching the Services from the EtcdCluster"
	case f.ours == nil:
		return order, "creating the EtcdRestore that builds the new data"
	case !meta.IsStatusConditionTrue(f.ours.Status.Conditions, v1alpha1.ConditionStaged):
		return wait, waitsFor(f.ours)
	}
	return stop(f, now)
}

// stop returns the next act of a restore whose new data is complete.
func stop(f facts, now time.Time) (act, string) {
	switch {
	case len(f.members) == 0:
		return resume, "starting the members"
	case !f.cluster:
		return wait, fmt.Sprintf("pod %s of a deleted EtcdCluster is left: delete it if its data is not needed", f.members[0].name)
	case !f.fenced.IsZero():
		return await(f)
	case f.running() == 0:
		return fence, "removing the old members, none of which runs"
	case f.saved == nil, isStale(f.saved, now):
		return save, "backing up the old members"
	case f.saved.Status.Phase == v1alpha1.PhaseFailed:
		return wait, fmt.Sprintf("the backup of the old members failed: delete EtcdBackup %s of legacy.etcd-dr.io to retry, or the old pods, with --force on a lost "+
			"node, to discard their data: %s", f.saved.Name, f.saved.Status.Message)
	case f.saved.Status.Phase != v1alpha1.PhaseCompleted:
		return wait, "backing up the old members"
	}
	return fence, "stopping the old members"
}

// savedFor is the age up to which a backup of the old members counts as the way back: they still serve, so an older one lacks newer writes.
const savedFor = 10 * time.Minute

// isStale reports whether a backup of the old members is complete, and too old.
func isStale(saved *v1alpha1.EtcdBackup, now time.Time) bool {
	last := saved.Status.Last
	return saved.Status.Phase == v1alpha1.PhaseCompleted && last != nil && now.Sub(last.Time.Time) > savedFor
}

// await returns the next act while the old members end.
func await(f facts) (act, string) {
	text := "stopping the old members"
	for _, m := range f.members {
		switch {
		case m.created.After(f.fenced):
			return wait, fmt.Sprintf("pod %s is newer than the stop of the old members, so coreos' operator still runs: delete its Deployment and this pod", m.name)
		case !m.ending:
			return fence, text
		}
		text = fmt.Sprintf("pod %s is terminating; only if its node %s is lost, run kubectl delete pod %s --force", m.name, m.node, m.name)
	}
	return wait, text
}

// running returns the number of old members that run.
func (f facts) running() (n int) {
	for _, m := range f.members {
		if m.running {
			n++
		}
	}
	return n
}

// waitsFor returns the phase and the message of our EtcdRestore.
func waitsFor(ours *v1alpha1.EtcdRestore) string {
	text := fmt.Sprintf("EtcdRestore %s of legacy.etcd-dr.io is in the phase %s", ours.Name, ours.Status.Phase)
	if ours.Status.Phase == "" {
		text = fmt.Sprintf("EtcdRestore %s of legacy.etcd-dr.io has not begun", ours.Name)
	}
	if ours.Status.MembersDone != "" {
		text += ", " + ours.Status.MembersDone + " members"
	}
	if ours.Status.Message != "" {
		text += ": " + ours.Status.Message
	}
	return text
}
