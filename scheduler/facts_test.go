package scheduler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/schedules"
)

func TestFacts(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	settings := specOf(t, "prod", "@daily", "main", "offsite")
	settings.Backup.MaxStream, settings.Conditions.Failures = 5*time.Minute, 7
	settings.Repositories[0].URL, settings.Archive.Flush = "s3://bucket/a", time.Second
	settings.Repositories[1].Policy.Lock.For = time.Hour
	settings.Drill = spec.Drill{Schedule: schedules.Parse(t, "0 12 * * *", "UTC"), Repository: "main"}
	standings := []scheduler.Standing{{Repository: "main", Oldest: now.Add(-72 * time.Hour)}, {Repository: "offsite"}, {Repository: "gone"}}
	status := scheduler.Status{
		Failures: 2, Problem: "away", Unpruned: "locked", Suspension: &scheduler.Suspension{},
		Jobs: []scheduler.Outcome{
			{Job: scheduler.JobBackup, Verdict: scheduler.Failed, Ended: now},
			{Job: scheduler.JobDrill, Repository: "main", Began: now},
			{Job: scheduler.JobDrill, Repository: "main", Began: now.Add(time.Hour), Ended: now.Add(time.Hour), Verdict: scheduler.Succeeded},
			{Job: scheduler.JobDrill, Repository: "main", Began: now.Add(-time.Hour), Ended: now, Verdict: scheduler.NotRun, Message: "no room"},
		},
		Archive: &archive.Status{
			Problem: "the store is away", ConfirmedAt: now.Add(-time.Minute),
			Spool: archive.Spool{Bytes: 5, Max: 10}, Diverged: "two hashes", GapReason: "compacted",
		},
	}
	want := condition.Facts{
		Cluster: "prod", Limits: condition.Limits{Failures: 7},
		Agreed: condition.Agreed{Written: true, Suspended: true, Slack: 5 * time.Minute, Proven: true, Drill: now.Add(3 * time.Hour)},
		Repositories: []condition.Repository{
			{Standing: standings[0], URL: "s3://bucket/a", Logged: true},
			{Standing: standings[1], URL: "(an unusable repository URL)", Locked: true},
		},
		Jobs: condition.Jobs{Failures: 2, Problem: "away", Unpruned: "locked", Drills: []condition.Drill{
			{Repository: "main", Time: now.Add(-time.Hour), Verdict: catalog.NotRun, Finding: "no room"},
		}},
		Log: &condition.Log{
			Problem: "the store is away", Known: true, Lag: time.Minute, Spool: 5, SpoolMax: 10,
			Diverged: "two hashes", Gap: "compacted",
		},
	}
	diff := cmp.Diff(want, scheduler.Facts(settings, standings, status, now))
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	status.Archive.State = archive.Standby
	settings.Drill = spec.Drill{}
	got := scheduler.Facts(settings, standings, status, now)
	if got.Log != nil || !got.Agreed.Drill.IsZero() {
		t.Errorf("where another service archives, and nothing is drilled: %+v", got)
	}
}
