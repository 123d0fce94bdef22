package condition_test

import (
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
)

func standsAt(name string, good, due time.Time) condition.Repository {
	return condition.Repository{
		Standing: condition.Standing{Repository: name, At: now, Backups: 3, Good: &condition.Good{Last: condition.Last{Started: good}}, Due: due},
		Signed:   true, Locked: true,
	}
}

func lateness(t *testing.T, f condition.Facts) (found []condition.Condition) {
	t.Helper()
	for _, c := range condition.Judge(f, now) {
		if c.Name == condition.BackupLate {
			found = append(found, c)
		}
	}
	return found
}

// A backup that waits for its turn is only a warning, until its next slot has passed.
func TestQueuedBackupIsWarning(t *testing.T) {
	queued := func(age time.Duration) condition.Facts {
		return condition.Facts{
			Cluster: "prod", Agreed: condition.Agreed{Slack: time.Minute}, Jobs: condition.Jobs{Queued: true},
			Repositories: []condition.Repository{standsAt("main", now.Add(-age), now.Add(-age+time.Hour))},
		}
	}
	got := lateness(t, queued(90*time.Minute))
	if len(got) != 1 || got[0].Severity != condition.Warning || !strings.Contains(got[0].Cure, "concurrency") {
		t.Errorf("half an hour late: %+v", got)
	}
	got = lateness(t, queued(3*time.Hour))
	if len(got) != 1 || got[0].Severity != condition.Critical {
		t.Errorf("two hours late: %+v", got)
	}
}

// A repository that lacks the newest backup is reported before its own next one is due.
func TestLackingIsReported(t *testing.T) {
	f := condition.Facts{Cluster: "prod", Agreed: condition.Agreed{Slack: time.Minute}, Repositories: []condition.Repository{
		standsAt("main", now.Add(-10*time.Minute), now.Add(time.Hour)), standsAt("offsite", now.Add(-time.Hour), now.Add(time.Hour)),
	}}
	got := lateness(t, f)
	if len(got) != 1 || got[0].Repository != "offsite" || got[0].Severity != condition.Warning {
		t.Errorf("%+v", got)
	}
}
