package restores

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// event is an event on an EtcdRestore.
type event struct{ kind, reason, message string }

// The reasons of events, besides those of an inplace.Warning.
const (
	eventPlanned   = "Planned" // the plan of a dry run, or of a restore that begins
	eventStopping  = "MembersStopping"
	eventRestored  = "Restored"
	eventRefused   = "RestoreRefused"
	eventGoingBack = "GoingBack"
	eventWentBack  = "WentBack"
	eventObstacle  = "ObstacleMet"
	eventAbandoned = "RestoreAbandoned" // its StatefulSet was deleted, and then the EtcdRestore
)

// phaseEvents are the events of the phases that a restore enters once.
var phaseEvents = map[handoff.Phase]event{
	handoff.Fencing:     {corev1.EventTypeNormal, eventStopping, "the new data is built on all disks: the members are stopped"},
	handoff.RollingBack: {corev1.EventTypeWarning, eventGoingBack, "the old data is put back"},
	handoff.Succeeded:   {corev1.EventTypeNormal, eventRestored, "all members serve the restored data"},
	handoff.Refused:     {corev1.EventTypeWarning, eventRefused, "no member was touched"},
	handoff.Failed:      {corev1.EventTypeWarning, eventWentBack, "the restore has gone back"}, // the message says if old data is lost
}

// eventsOf returns the events that a change of the status means. They are derived from the status, so that after a restart of the operator
// each is recorded once.
func eventsOf(before, after v1alpha1.EtcdRestoreStatus) (all []event) {
	if after.Plan != nil && (before.Plan == nil || before.Plan.ID != after.Plan.ID) {
		all = append(all, event{corev1.EventTypeNormal, eventPlanned, fmt.Sprintf("plan %s begins with backup %s", after.Plan.ID, after.Plan.Backup)})
	}
	for _, text := range after.Obstacles[min(len(before.Obstacles), len(after.Obstacles)):] {
		all = append(all, event{corev1.EventTypeWarning, eventObstacle, text})
	}
	e, found := phaseEvents[handoff.Phase(after.Phase)]
	if found && before.Phase != after.Phase {
		if after.Message != "" {
			e.message += ": " + after.Message
		}
		all = append(all, e)
	}
	return all
}

// maxNote is the longest text of an event, in bytes, that the API server accepts.
const maxNote = 1024
