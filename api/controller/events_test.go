package controller

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
)

// statusWith returns an EtcdBackup with that status.
func statusWith(s v1alpha1.EtcdBackupStatus) *v1alpha1.EtcdBackup {
	b := scheduled("payments", "etcd")
	b.Status = s
	return b
}

func TestEventsTellWhatHasChanged(t *testing.T) {
	late := v1alpha1.Finding{Name: "BackupLate", Severity: "critical", Message: "a day old", Cure: "look"}
	for name, test := range map[string]struct {
		before, after v1alpha1.EtcdBackupStatus
		want          []string
	}{
		"nothing": {
			v1alpha1.EtcdBackupStatus{Last: &v1alpha1.BackupStatus{ID: "1"}, Findings: []v1alpha1.Finding{late}},
			v1alpha1.EtcdBackupStatus{Last: &v1alpha1.BackupStatus{ID: "1"}, Findings: []v1alpha1.Finding{late}}, nil,
		},
		"a backup": {
			v1alpha1.EtcdBackupStatus{Last: &v1alpha1.BackupStatus{ID: "1"}},
			v1alpha1.EtcdBackupStatus{Last: &v1alpha1.BackupStatus{ID: "2", Revision: 7}},
			[]string{"Normal BackupStored: backup 2 is stored, revision 7"},
		},
		"the newest backup was deleted": {
			v1alpha1.EtcdBackupStatus{Last: &v1alpha1.BackupStatus{ID: "2"}}, v1alpha1.EtcdBackupStatus{Last: &v1alpha1.BackupStatus{ID: "1"}}, nil,
		},
		"a backup that is taken once fails": {
			v1alpha1.EtcdBackupStatus{Phase: v1alpha1.PhaseRunning}, v1alpha1.EtcdBackupStatus{Phase: v1alpha1.PhaseFailed, Message: "no route"},
			[]string{"Warning BackupFailed: no route"},
		},
		"a finding": {
			v1alpha1.EtcdBackupStatus{}, v1alpha1.EtcdBackupStatus{Findings: []v1alpha1.Finding{late}},
			[]string{"Warning Finding: BackupLate (critical): a day old; look"},
		},
		"a finding ends": {
			v1alpha1.EtcdBackupStatus{Findings: []v1alpha1.Finding{late}}, v1alpha1.EtcdBackupStatus{},
			[]string{"Normal FindingEnded: BackupLate has ended"},
		},
	} {
		var got []string
		for _, e := range eventsOf(statusWith(test.before), statusWith(test.after)) {
			got = append(got, e.kind+" "+e.reason+": "+e.message)
		}
		diff := cmp.Diff(test.want, got)
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestEventsTellWhetherTheSettingsAreInEffect(t *testing.T) {
	good, bad := statusWith(v1alpha1.EtcdBackupStatus{}), statusWith(v1alpha1.EtcdBackupStatus{})
	setAccepted(good, acceptance{})
	setAccepted(bad, acceptance{reasonInvalid, "spec.schedule.cron: bad schedule"})
	refused, cured := eventsOf(good, bad), eventsOf(bad, good)
	if len(refused) != 1 || refused[0].reason != eventNotAccepted || !strings.Contains(refused[0].message, "spec.schedule.cron") {
		t.Errorf("refused: %+v", refused)
	}
	if len(cured) != 1 || cured[0].reason != eventAccepted {
		t.Errorf("cured: %+v", cured)
	}
	if len(eventsOf(bad, bad)) != 0 || len(eventsOf(good, good)) != 0 {
		t.Error("without a change there is an event")
	}
}

func TestLongEventsAreShortened(t *testing.T) {
	text := shortened(strings.Repeat("ä", maxNote))
	if len(text) > maxNote || !strings.HasSuffix(text, "ä…") {
		t.Errorf("%d bytes, ending in %q", len(text), text[len(text)-8:])
	}
	if shortened("short") != "short" {
		t.Error("a short text was changed")
	}
}
