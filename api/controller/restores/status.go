package restores

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
)

// describe writes the record of the restore that e orders into e's status. It is pure.
func describe(e *v1alpha1.EtcdRestore, r handoff.Record) {
	s := &e.Status
	s.ObservedGeneration, s.Phase, s.Message = e.Generation, v1alpha1.RestorePhase(r.Phase), fields.Replace(messageOf(e, r))
	s.Since = seconds(r.Since)
	s.Obstacles, s.Outcome, s.OldData = obstaclesOf(r), outcomeOf(r), oldDataOf(r)
	if r.Plan != nil || !r.Rebuilt { // a record that was rebuilt has no plan: that of the lost one stays in the status
		s.Plan = planOf(r)
	}
	s.Members, s.MembersDone = membersOf(r)
	setCondition(e, v1alpha1.ConditionStaged, r.IsStaged())
	setConditions(e)
}

// describePending writes into e's status why the restore has not begun.
func describePending(e *v1alpha1.EtcdRestore, why string) {
	e.Status.ObservedGeneration, e.Status.Phase, e.Status.Message = e.Generation, v1alpha1.RestorePending, fields.Replace(why)
	setConditions(e)
}

// messageOf returns the explanation of the phase; "" if there is none.
func messageOf(e *v1alpha1.EtcdRestore, r handoff.Record) string {
	switch {
	case r.IsPaused(handoff.Orders{Pause: e.Spec.Suspend}):
		return "the new data is built, and no member is stopped until spec.suspend is removed"
	case r.Waiting != "" && (r.Phase == handoff.RollingBack || r.Reason != "" && r.End == handoff.Refused):
		return r.Reason + "; " + r.Waiting
	case r.Phase == handoff.Refused, r.Phase == handoff.Failed, r.Phase == handoff.RollingBack, r.Stays:
		return r.Reason
	case r.End == handoff.Refused: // it is not Refused yet: the staged data is still being removed
		return r.Reason
	case r.Phase == handoff.Succeeded && r.Rebuilt && r.Built == (handoff.Built{}):
		return "the record of the restore was deleted meanwhile: the members serve, and were not compared with the plan"
	case r.Phase == handoff.Succeeded && r.Step == handoff.Clean && r.Waiting != "":
		return "the old data cannot be removed: " + r.Waiting
	}
	return r.Waiting
}

func planOf(r handoff.Record) *v1alpha1.RestorePlan {
	if r.Plan == nil {
		return nil
	}
	p := *r.Plan
	s := &v1alpha1.RestorePlan{
		ID: p.ID, Continues: fields.Replace(p.Bump.String()), Token: p.Token, InitialCluster: p.InitialCluster(), Notes: allFields(p.Notes),
	}
	if p.Backup != nil {
		s.Backup, s.Revision = string(p.Backup.ID), p.Backup.Revision
	}
	if p.Log != nil {
		s.Segments, s.Revision = p.Log.Segments, 0
	}
	if p.Estimate > 0 {
		s.Estimate = span(p.Estimate)
	}
	for _, a := range r.Handoff.Acts {
		s.Acts = append(s.Acts, fmt.Sprintf("%s (%s)", a.Text, a.Verb))
	}
	for _, f := range r.Handoff.Findings {
		s.Findings = append(s.Findings, fields.Replace(f.String()))
	}
	describeReach(p, s)
	return s
}

// describeReach writes the revision and the bounds in time of p's reach into s, as far as they are known.
func describeReach(p plan.Plan, s *v1alpha1.RestorePlan) {
	if p.Reach == nil {
		return
	}
	if p.Reach.Revision > 0 {
		s.Revision = p.Reach.Revision
	}
	s.Includes, s.Excludes = micros(p.Reach.NotBefore), micros(p.Reach.NotAfter)
}

// membersOf returns the members with their progress in the phase, and how many of them have completed its step.
func membersOf(r handoff.Record) (all []v1alpha1.RestoreMemberStatus, done string) {
	count := 0
	for i, m := range r.Handoff.Members {
		s := v1alpha1.RestoreMemberStatus{Name: m.Name, Node: m.Node, Disk: m.Disk}
		switch {
		case len(r.Members) == len(r.Handoff.Members):
			s.Done, s.Message = r.Members[i].Done, fields.Replace(r.Members[i].Waiting)
		case r.Phase == handoff.Succeeded:
			s.Done = true
		}
		if s.Done {
			count++
		}
		all = append(all, s)
	}
	if count == 0 && len(r.Members) == 0 {
		return all, ""
	}
	return all, fmt.Sprintf("%d/%d", count, len(all))
}

func obstaclesOf(r handoff.Record) (all []string) {
	for _, m := range r.Met {
		all = append(all, fields.Replace(m.Error.Err().Error()))
	}
	return all
}

// outcomeOf returns the outcome; nil until the members have been found to serve again.
func outcomeOf(r handoff.Record) *v1alpha1.RestoreOutcome {
	if r.Up.IsZero() {
		return nil
	}
	o := &v1alpha1.RestoreOutcome{}
	if !r.Served.IsZero() {
		o.Downtime = span(r.Served.Sub(r.Down).Seconds())
	}
	if r.End != handoff.Succeeded {
		return o
	}
	o.ClusterID, o.Revision, o.Keys = r.Built.ClusterID, r.Built.Revision, r.Built.Keys
	o.Staging, o.Verifying = span(r.Took[handoff.Staging]), span(r.Took[handoff.Verifying])
	if r.Agreed != (handoff.Agreed{}) {
		o.HashKV, o.HashRevision = fmt.Sprintf("%08x", r.Agreed.HashKV), r.Agreed.Revision
	}
	return o
}

// oldDataOf returns the time until which the data that was moved aside is kept; nil if there is none.
func oldDataOf(r handoff.Record) *v1alpha1.OldData {
	if r.Step != handoff.Keep && r.Step != handoff.Clean {
		return nil
	}
	return &v1alpha1.OldData{Until: *seconds(r.KeepUntil)}
}

// The phases in which a restore ends: with success, and without.
var (
	completed = []v1alpha1.RestorePhase{v1alpha1.RestorePhase(handoff.Succeeded), v1alpha1.RestorePhase(handoff.Planned)}
	failed    = []v1alpha1.RestorePhase{v1alpha1.RestorePhase(handoff.Refused), v1alpha1.RestorePhase(handoff.Failed)}
)

// hasEnded reports whether e's restore is in one of the phases in which it ends.
func hasEnded(e *v1alpha1.EtcdRestore) bool {
	return slices.Contains(completed, e.Status.Phase) || slices.Contains(failed, e.Status.Phase)
}

// setConditions sets e's conditions by its phase.
func setConditions(e *v1alpha1.EtcdRestore) {
	setCondition(e, v1alpha1.ConditionComplete, slices.Contains(completed, e.Status.Phase))
	setCondition(e, v1alpha1.ConditionFailed, slices.Contains(failed, e.Status.Phase))
}

func setCondition(e *v1alpha1.EtcdRestore, name string, holds bool) {
	c := metav1.Condition{
		Type: name, Status: metav1.ConditionFalse, Reason: string(e.Status.Phase), Message: e.Status.Message, ObservedGeneration: e.Generation,
	}
	if holds {
		c.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&e.Status.Conditions, c)
}

// span returns a number of seconds as text, to a tenth of a second.
func span(s float64) string {
	return (time.Duration(s * float64(time.Second))).Round(100 * time.Millisecond).String()
}

// seconds returns at in seconds, nil if at is zero.
func seconds(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: at.UTC().Truncate(time.Second)}
}

// micros returns at, nil if at is zero.
func micros(at time.Time) *metav1.MicroTime {
	if at.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: at.UTC().Truncate(time.Microsecond)}
}
