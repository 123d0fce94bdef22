package dropin

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// statusOf derives the status of their EtcdBackup from that of ours, without etcdVersion. Succeeded means that a repository contains the backup
// and, with an interval, that the condition Protected is not False. It is pure.
func statusOf(ours *v1alpha1.EtcdBackup) coreos.BackupStatus {
	var s coreos.BackupStatus
	last := ours.Status.Last
	if last != nil {
		s.EtcdRevision, s.LastSuccessDate = last.Revision, &last.Time
	}
	accepted := meta.FindStatusCondition(ours.Status.Conditions, v1alpha1.ConditionAccepted)
	protected := meta.FindStatusCondition(ours.Status.Conditions, v1alpha1.ConditionProtected)
	switch {
	case isOnce(ours.Spec) && ours.Status.Phase == v1alpha1.PhaseCompleted:
		s.Succeeded = true
	case isOnce(ours.Spec) && ours.Status.Phase == v1alpha1.PhaseFailed:
		s.Reason = ours.Status.Message
	case isFalse(accepted):
		s.Reason = accepted.Message
	case isOnce(ours.Spec):
		s.Reason = ours.Status.Message
	case isFalse(protected):
		s.Reason = cmp.Or(protected.Message, protected.Reason)
	default:
		s.Succeeded = ours.Status.Last != nil
	}
	return s
}

// isFalse reports whether a condition is False; not if it is nil.
func isFalse(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionFalse }
