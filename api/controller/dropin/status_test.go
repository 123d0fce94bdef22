package dropin

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-dr/etcd-dr/api/coreos"
	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// TestStatusOf describes backups that are taken once, and by an interval.
func TestStatusOf(t *testing.T) {
	taken := metav1.Time{Time: time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)}
	last := &v1alpha1.BackupStatus{ID: "20261128T030000Z-0000000000000064", Revision: 100, Time: taken}
	at := coreos.BackupStatus{EtcdRevision: 100, LastSuccessDate: &taken}
	succeeded := at
	succeeded.Succeeded = true
	late := at
	late.Reason = "too old"
	conditions := func(name string, status metav1.ConditionStatus, message string) []metav1.Condition {
		return []metav1.Condition{{Type: name, Status: status, Message: message}}
	}
	scheduled := v1alpha1.EtcdBackupSpec{Schedule: &v1alpha1.Schedule{Cron: "@every 1h"}}
	for name, c := range map[string]struct {
		spec   v1alpha1.EtcdBackupSpec
		status v1alpha1.EtcdBackupStatus
		want   coreos.BackupStatus
	}{
		"nothing is known":  {},
		"it runs":           {status: v1alpha1.EtcdBackupStatus{Phase: v1alpha1.PhaseRunning}},
		"it waits":          {status: v1alpha1.EtcdBackupStatus{Phase: v1alpha1.PhasePending, Message: "a turn"}, want: coreos.BackupStatus{Reason: "a turn"}},
		"it has completed":  {status: v1alpha1.EtcdBackupStatus{Phase: v1alpha1.PhaseCompleted, Last: last}, want: succeeded},
		"it has failed":     {status: v1alpha1.EtcdBackupStatus{Phase: v1alpha1.PhaseFailed, Message: "no member"}, want: coreos.BackupStatus{Reason: "no member"}},
		"it is refused":     {status: v1alpha1.EtcdBackupStatus{Conditions: conditions("Accepted", "False", "no Secret")}, want: coreos.BackupStatus{Reason: "no Secret"}},
		"no backup yet":     {spec: scheduled},
		"the newest is new": {spec: scheduled, status: v1alpha1.EtcdBackupStatus{Last: last, Conditions: conditions("Protected", "True", "")}, want: succeeded},
		"the newest is old": {spec: scheduled, status: v1alpha1.EtcdBackupStatus{Last: last, Conditions: conditions("Protected", "False", "too old")}, want: late},
		"a change is refused": {
			spec: scheduled, status: v1alpha1.EtcdBackupStatus{Last: last, Conditions: conditions("Accepted", "False", "too old")}, want: late,
		},
	} {
		got := statusOf(&v1alpha1.EtcdBackup{Spec: c.spec, Status: c.status})
		if !equality.Semantic.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
