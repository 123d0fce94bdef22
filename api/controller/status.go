package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// acceptance is whether the settings of an EtcdBackup are in effect. An empty Message means that they are.
type acceptance struct{ Reason, Message string }

// The reasons of the condition Accepted.
const (
	reasonAccepted  = "Accepted"
	reasonInvalid   = "Invalid"
	reasonDuplicate = "DuplicateCluster"
	reasonMissing   = "NotFound" // of the EtcdBackup that spec.like names
)

// reasonRefused is the reason of the condition Protected of an EtcdBackup that is not accepted.
const reasonRefused = "NotAccepted"

// setAccepted records a in the conditions of b's status.
func setAccepted(b *v1alpha1.EtcdBackup, a acceptance) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted, Message: "the settings are in effect",
		ObservedGeneration: b.Generation,
	}
	if a.Message != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, a.Reason, a.Message
	}
	b.Status.ObservedGeneration = b.Generation
	meta.SetStatusCondition(&b.Status.Conditions, c)
}

// describe writes the status of b's cluster at now into b's status; of an EtcdBackup that takes one backup only the name. It is pure.
func describe(b *v1alpha1.EtcdBackup, s scheduler.Status, now time.Time) {
	b.Status.Cluster = s.Cluster
	if isOneTime(b) {
		b.Status.Last, b.Status.Next, b.Status.Repositories, b.Status.Findings = nil, nil, nil, nil
		b.Status.NextDrill, b.Status.RecoveryPoint, b.Status.Window, b.Status.Recent = nil, nil, nil, nil
		meta.RemoveStatusCondition(&b.Status.Conditions, v1alpha1.ConditionProtected)
		meta.RemoveStatusCondition(&b.Status.Conditions, v1alpha1.ConditionProven)
		return
	}
	isSurveyed := len(s.Standings) > 0
	if !isSurveyed && b.Status.Last != nil {
		return // an operator that has just started: the findings of the one before stay until it has surveyed the repositories
	}
	b.Status.Last, b.Status.Next, b.Status.NextDrill = lastOf(s), moment(s.Next), moment(s.NextDrill)
	b.Status.RecoveryPoint, b.Status.Window, b.Status.Recent = recoveryPointOf(s, now), windowOf(s), recentOf(s)
	b.Status.Repositories = nil
	for _, standing := range s.Standings {
		b.Status.Repositories = append(b.Status.Repositories, v1alpha1.RepositoryStatus{
			Name: standing.Repository, Backups: standing.Backups, Bytes: standing.Bytes, Problem: standing.Problem,
		})
	}
	b.Status.Findings = findingsOf(s)
	setProtected(b, s)
	setProven(b, s)
}

// describeRefused writes into the status of b, none of whose settings is in effect, that nothing is backed up. What the store contained
// when it was last read stays.
func describeRefused(b *v1alpha1.EtcdBackup) {
	if isOneTime(b) {
		return
	}
	b.Status.Next, b.Status.NextDrill = nil, nil
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionProtected, Status: metav1.ConditionFalse, Reason: reasonRefused,
		Message: "no backup is taken: the condition Accepted says why", ObservedGeneration: b.Generation,
	})
}

// lastOf returns the newest backup; nil if there is none.
func lastOf(s scheduler.Status) *v1alpha1.BackupStatus {
	if s.Last == nil {
		return nil
	}
	last := &v1alpha1.BackupStatus{ID: string(s.Last.ID), Revision: s.Last.Revision, Time: seconds(s.Last.Started)}
	for _, standing := range s.Standings {
		if standing.Good != nil && standing.Good.ID == s.Last.ID {
			last.Size, last.Proof = standing.Good.Size, string(standing.Good.Proven)
		}
	}
	return last
}

// recoveryPointOf returns the newest moment that a repository contains, cut so that an archived log changes the status once a minute;
// nil if none is known.
func recoveryPointOf(s scheduler.Status, now time.Time) *metav1.Time {
	return moment(convert.Cluster(s).RecoveryPoint(now).Truncate(time.Minute))
}

// windowOf returns the window that ends last; nil if there is none.
func windowOf(s scheduler.Status) *v1alpha1.Window {
	var newest *catalog.Window
	for _, standing := range s.Standings {
		if standing.Window != nil && (newest == nil || standing.Window.To.Time.After(newest.To.Time)) {
			newest = standing.Window
		}
	}
	if newest == nil {
		return nil
	}
	return &v1alpha1.Window{From: pointOf(newest.From), To: pointOf(newest.To)}
}

func pointOf(p catalog.Point) v1alpha1.Point {
	return v1alpha1.Point{Revision: p.Revision, Time: moment(p.Time)}
}

// moment returns at in seconds, nil if at is zero.
func moment(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	return new(seconds(at))
}

// maxRecent bounds the jobs of a status.
const maxRecent = 10

// recentOf returns the newest jobs of s, by their beginnings.
func recentOf(s scheduler.Status) (recent []v1alpha1.JobStatus) {
	jobs := slices.SortedStableFunc(slices.Values(s.Jobs), func(a, b scheduler.Outcome) int { return b.Began.Compare(a.Began) })
	for _, o := range jobs[:min(maxRecent, len(jobs))] {
		recent = append(recent, v1alpha1.JobStatus{
			Job: string(o.Job), Repository: o.Repository, Began: seconds(o.Began), Ended: moment(o.Ended), Verdict: string(o.Verdict),
			Message: shortened(o.Message),
		})
	}
	return recent
}

// maxFindings bounds the findings of a status.
const maxFindings = 20

// findingsOf returns the worst conditions of s.
func findingsOf(s scheduler.Status) (findings []v1alpha1.Finding) {
	for _, c := range s.Conditions[:min(maxFindings, len(s.Conditions))] {
		findings = append(findings, v1alpha1.Finding{
			Name: string(c.Name), Severity: string(c.Severity), Repository: c.Repository, Since: seconds(c.Since), Message: c.Message, Cure: c.Cure,
		})
	}
	return findings
}

// setProtected records whether the newest backup is as new as the schedule promises, and nothing critical stands against it.
func setProtected(b *v1alpha1.EtcdBackup, s scheduler.Status) {
	c := metav1.Condition{Type: v1alpha1.ConditionProtected, Status: metav1.ConditionTrue, Reason: "BackedUp", ObservedGeneration: b.Generation}
	critical := slices.IndexFunc(s.Conditions, func(c condition.Condition) bool { return c.Severity == condition.Critical })
	switch {
	case s.State == scheduler.Starting:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, "Starting", "the repositories have not been read yet"
	case s.Last == nil && s.Failures > 0 && (critical < 0 || s.Conditions[critical].Name == condition.NoBackup): // the failure is the reason
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(condition.BackupFailing), s.Problem
	case critical >= 0:
		contradict(&c, s.Conditions[critical])
	case s.Last == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(condition.NoBackup), "there is no backup yet"
	default:
		c.Message = fmt.Sprintf("backup %s began at %s", s.Last.ID, s.Last.Started.UTC().Format(time.RFC3339))
	}
	meta.SetStatusCondition(&b.Status.Conditions, c)
}

// unproven are the conditions that speak against the backups' proof.
var unproven = []condition.Name{
	condition.DrillFailed, condition.BackupDamaged, condition.DrillNotRun, condition.NeverProven, condition.NeverDecrypted,
}

// setProven records whether a backup was verified or restored lately.
func setProven(b *v1alpha1.EtcdBackup, s scheduler.Status) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionProven, Status: metav1.ConditionUnknown, Reason: "NotVerified", Message: "no backup has been verified yet: set spec.drill, or run dr verify or dr drill",
		ObservedGeneration: b.Generation,
	}
	var verified time.Time
	for _, standing := range s.Standings {
		for _, at := range []time.Time{standing.Verified, standing.Drilled} {
			if at.After(verified) {
				verified = at
			}
		}
	}
	if !verified.IsZero() {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Verified", "a backup was verified at "+verified.UTC().Format(time.RFC3339)
	}
	i := slices.IndexFunc(s.Conditions, func(c condition.Condition) bool { return slices.Contains(unproven, c.Name) })
	if i >= 0 {
		contradict(&c, s.Conditions[i])
	}
	meta.SetStatusCondition(&b.Status.Conditions, c)
}

// contradict makes c False because of a finding.
func contradict(c *metav1.Condition, finding condition.Condition) {
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, string(finding.Name), fmt.Sprintf("%s; %s", finding.Message, finding.Cure)
}

func seconds(at time.Time) metav1.Time { return metav1.Time{Time: at.UTC().Truncate(time.Second)} }

// attempt is the backup of an EtcdBackup that takes one: what the service knows of it.
type attempt int

const (
	unknown attempt = iota // the service has not run it, or no longer knows
	waiting                // another backup runs, or it is queued
	running
	succeeded
	failed
)

// attemptOf returns how the backup stands that was requested for a reason.
func attemptOf(s scheduler.Status, reason string) (attempt, scheduler.Outcome) {
	for _, o := range s.Jobs {
		if o.Job != scheduler.JobBackup {
			continue
		}
		switch {
		case o.Reason != reason && o.Ended.IsZero():
			return waiting, o
		case o.Reason != reason: // it has ended; the one asked for may run
		case o.Ended.IsZero():
			return running, o
		case o.Verdict == scheduler.Succeeded:
			return succeeded, o
		case o.Verdict == scheduler.Failed:
			return failed, o
		}
	}
	if s.State == scheduler.Queued {
		return waiting, scheduler.Outcome{}
	}
	return unknown, scheduler.Outcome{}
}

// end sets the terminal phase of an EtcdBackup that takes one backup.
func end(b *v1alpha1.EtcdBackup, a attempt, o scheduler.Outcome) {
	if a == failed {
		b.Status.Phase, b.Status.Message = v1alpha1.PhaseFailed, cmp.Or(o.Message, "the backup failed")
		return
	}
	b.Status.Phase, b.Status.Message = v1alpha1.PhaseCompleted, ""
	b.Status.Last = &v1alpha1.BackupStatus{ID: string(o.Backup), Revision: o.Backup.Revision(), Time: seconds(o.Backup.Started())}
}
