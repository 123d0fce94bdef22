package controller

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// event is an event on an EtcdBackup.
type event struct{ kind, reason, action, message string }

// The reasons of events.
const (
	eventStored      = "BackupStored"
	eventFailed      = "BackupFailed" // of an EtcdBackup that takes one backup
	eventNotAccepted = "NotAccepted"
	eventAccepted    = "Accepted"
	eventFinding     = "Finding"
	eventCured       = "FindingEnded"
)

// eventsOf returns the events that a change of the status means. They are derived from the status, so that of several operators, and
// after a restart, each is recorded once.
func eventsOf(before, after *v1alpha1.EtcdBackup) (all []event) {
	was, is := before.Status, after.Status
	if is.Last != nil && (was.Last == nil || was.Last.ID < is.Last.ID) {
		all = append(all, event{corev1.EventTypeNormal, eventStored, "Backup", fmt.Sprintf("backup %s is stored, revision %d", is.Last.ID, is.Last.Revision)})
	}
	if is.Phase == v1alpha1.PhaseFailed && was.Phase != is.Phase {
		all = append(all, event{corev1.EventTypeWarning, eventFailed, "Backup", is.Message})
	}
	accepted := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionAccepted)
	wasRefused := meta.IsStatusConditionFalse(was.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case accepted == nil:
	case accepted.Status == "False" && !wasRefused:
		all = append(all, event{corev1.EventTypeWarning, eventNotAccepted, "Accept", accepted.Reason + ": " + accepted.Message})
	case accepted.Status == "True" && wasRefused:
		all = append(all, event{corev1.EventTypeNormal, eventAccepted, "Accept", accepted.Message})
	}
	for _, f := range newFindings(was.Findings, is.Findings) {
		all = append(all, event{corev1.EventTypeWarning, eventFinding, "Survey", fmt.Sprintf("%s (%s): %s; %s", f.Name, f.Severity, f.Message, f.Cure)})
	}
	for _, f := range newFindings(is.Findings, was.Findings) {
		all = append(all, event{corev1.EventTypeNormal, eventCured, "Survey", f.Name + " has ended"})
	}
	return all
}

// newFindings returns those of findings that are not in known: no finding there has the same name, repository and severity.
func newFindings(known, findings []v1alpha1.Finding) (all []v1alpha1.Finding) {
	type key struct{ name, repository, severity string }
	seen := map[key]bool{}
	for _, f := range known {
		seen[key{f.Name, f.Repository, f.Severity}] = true
	}
	for _, f := range findings {
		if !seen[key{f.Name, f.Repository, f.Severity}] {
			all = append(all, f)
		}
	}
	return all
}

// maxNote is the longest text of an event, in bytes, that the API server accepts.
const maxNote = 1024

// shortened returns text with at most maxNote bytes.
func shortened(text string) string {
	const more = "…"
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote-len(more)], "") + more
}
