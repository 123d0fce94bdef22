package restores

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/handoff/inplace"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// rebuild makes the record of a restore again, which another program has deleted. What the restore has done is in the status, in the
// annotations of the StatefulSet, and on the disks.
func (r *run) rebuild(ctx context.Context) (time.Duration, error) {
	const lost = "the record of the restore was deleted, and cannot be made again: "
	why, err := r.check(ctx)
	if err != nil {
		return 0, err
	}
	target := r.manage(r.statusMembers())
	exists, err := target.Exists(ctx)
	switch {
	case err != nil:
		return 0, err
	case !exists && why == "":
		return r.orphan(ctx, handoff.Record{}, r.unknown())
	case !exists && r.restore.DeletionTimestamp != nil: // the repository cannot be opened
		r.record(r.restore, event{corev1.EventTypeWarning, eventAbandoned, lost + why})
		return r.abandon(ctx)
	case why != "":
		return r.stop(ctx, lost+why)
	}
	waiting, err := r.holdAgain(ctx)
	if err != nil || waiting != "" {
		return r.stopped(ctx, waiting, err)
	}
	h, err := target.Inspect(ctx)
	if err != nil || len(h.Members) == 0 {
		return r.stopped(ctx, lost+listed(h.Findings), err)
	}
	return r.continueWith(ctx, handoff.Rebuild(r.id, handoff.Phase(r.restore.Status.Phase), h, time.Now().UTC()))
}

// continueWith stores a rebuilt record. If the EtcdRestore was deleted while the restored members were verified, it ends the restore instead.
func (r *run) continueWith(ctx context.Context, record handoff.Record) (time.Duration, error) {
	record.Settings = r.encode()
	if r.restore.DeletionTimestamp != nil && handoff.Phase(r.restore.Status.Phase) == handoff.Verifying {
		return r.leaveRestored(ctx, handoff.Record{}, record)
	}
	return soonAfter, r.manage(nil).Save(ctx, handoff.Record{}, record)
}

// unknown returns the record of a restore of which only the status is known. Its data was replaced with a confirmation, or there was none.
func (r *run) unknown() handoff.Record {
	return handoff.Record{ID: r.id, Rebuilt: true, Step: handoff.Retake, Vacant: true, Sealed: true}
}

// listed returns the texts of findings.
func listed(all []handoff.Finding) string {
	var texts []string
	for _, f := range all {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, "; ")
}

// statusMembers returns the members that the status lists, for a StatefulSet that shows neither their number nor their names.
func (r *run) statusMembers() (all []plan.Member) {
	for _, m := range r.restore.Status.Members {
		all = append(all, plan.Member{Name: m.Name})
	}
	return all
}

// holdAgain takes the claim that went with the record, and suspends the backups if restored members may serve. waiting is why that is not
// done; "": it is.
func (r *run) holdAgain(ctx context.Context) (waiting string, err error) {
	restore, err := r.inPlace()
	if err != nil {
		return "", err
	}
	claim := restore.Steps().Claim
	p, err := claim.Take(ctx, r.unknown())
	if err != nil || !p.Done {
		return p.Waiting, err
	}
	phase := handoff.Phase(r.restore.Status.Phase)
	if phase == handoff.Releasing || phase == handoff.Verifying {
		p, err = claim.Suspend(ctx, r.unknown())
	}
	return p.Waiting, err
}

// stop writes into the status why the restore does not continue. The phase stays.
func (r *run) stop(ctx context.Context, why string) (time.Duration, error) {
	return faultAfter, r.explain(ctx, r.before.DeepCopy(), why)
}

// stopped is stop, unless there is an error, which the caller explains.
func (r *run) stopped(ctx context.Context, why string, err error) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	return r.stop(ctx, why)
}

// orphan deals with a restore whose StatefulSet was deleted. It waits for another StatefulSet of this name, unless the EtcdRestore is
// deleted too: then it ends, and leaves the disks as they are. stored is the record; zero: there is none.
func (r *run) orphan(ctx context.Context, stored, record handoff.Record) (time.Duration, error) {
	e := r.restore
	text := fmt.Sprintf("StatefulSet %s/%s was deleted: %s", e.Namespace, e.Spec.Into.StatefulSet.Name, r.remains(record))
	if e.DeletionTimestamp == nil {
		return r.stop(ctx, text+": create it again, and the restore continues; or delete this EtcdRestore, and the volumes stay as they are")
	}
	record.End = handoff.Failed
	again, err := r.letGo(ctx, stored, record, text)
	if err == nil && again == 0 {
		r.record(e, event{corev1.EventTypeWarning, eventAbandoned, text})
	}
	return again, err
}

// remains returns what a restore that does not end leaves on the disks.
func (r *run) remains(record handoff.Record) string {
	if record.Sealed {
		return "the old data is " + r.folders()
	}
	return "new data that was never in use is " + r.folders()
}

// folders returns where the restore has its folders.
func (r *run) folders() string {
	var disks []string
	for _, m := range r.restore.Status.Members {
		disks = append(disks, m.Disk)
	}
	return fmt.Sprintf("on %s in folders whose names begin with .dr-swap- and end with %s", strings.Join(disks, ", "), r.id)
}

// liftTime bounds tryLift: a store that does not answer must not delay the end of a namespace.
const liftTime = 20 * time.Second

// tryLift tries once to end all that the restore holds. If it cannot, an event names the remedy. If its settings are deleted already, its
// suspension ends with the next restore of the StatefulSet.
func (r *run) tryLift(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, liftTime)
	defer cancel()
	why := ""
	record, err := r.load(ctx)
	if err == nil {
		err = json.Unmarshal([]byte(record.Settings), &r.settings)
	} else {
		record = r.unknown()
		why, err = r.check(ctx)
	}
	if why != "" {
		return
	}
	restore, wrong := r.inPlace()
	if err == nil && wrong == nil {
		_, _ = restore.Steps().Claim.Lift(ctx, record) // it records the event
	}
}

// isOrphan reports whether the StatefulSet of a restore that has not ended was deleted, after new data may have come onto its disks.
func isOrphan(ctx context.Context, target inplace.Target, record handoff.Record) (bool, error) {
	if record.Phase.HasEnded() || !record.Staged {
		return false, nil
	}
	exists, err := target.Exists(ctx)
	return err == nil && !exists, err
}

// forget writes into the status of a restore that has ended that its record is gone, and with it what removes the old data.
func (r *run) forget(ctx context.Context) (time.Duration, error) {
	e := r.restore
	if e.Status.OldData != nil {
		e.Status.OldData = nil
		e.Status.Message = "the record of the restore is gone, so nothing goes back to the old data, or removes it: remove it by hand, " + r.folders()
		setConditions(e)
		err := r.write(ctx, r.before, e)
		if err != nil {
			return 0, err
		}
	}
	return 0, r.hold(ctx, e, false)
}
