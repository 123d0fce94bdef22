package document_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

func configDocuments() map[string]any {
	return map[string]any{
		"config-check": document.ConfigCheck{
			Concurrency: 4, LeaseSeconds: 30, Clusters: []document.ConfigCluster{{
				Cluster: "prod", Suspended: true, Schedule: "30 2 * * *", Zone: "Europe/Berlin", DelaySeconds: 173, Next: []time.Time{at},
				Triggers: []string{"100000 revisions"}, Keeps: []string{"7 daily"},
				Repositories: []document.ConfigRepository{{Name: "main", URL: "s3://backups/etcd"}}, Require: "all",
				Recipients: []string{"age1qqqqqqqqqqqq"}, Endpoints: []string{"https://10.0.0.1:2379"}, From: "leader",
				Archive: &document.ConfigArchive{FlushSeconds: 0.5, Spool: "/var/spool/etcd-dr", SpoolMax: 2 << 30},
				Drill: &document.ConfigDrill{
					Schedule: "0 4 * * 0", Zone: "UTC", DelaySeconds: 7, Next: []time.Time{at}, Repository: "main", Assertions: []string{"key=/a"},
					Keys: true, ScratchDir: "/scratch", MemoryLimit: 2 << 30, Nice: 19,
				},
			}},
		},
		"config-check-empty": document.NewConfigCheck(spec.Config{Specs: []spec.Spec{{Cluster: "prod"}}}, at),
		"serve-status": document.ServeStatus{
			Config: document.ServeConfig{File: "/etc/etcd-dr/dr.yaml", Since: at, Refused: `bad configuration: dr.yaml:2: unknown key "leese"`},
			Clusters: []document.ServedCluster{{
				Cluster: "prod", State: document.StateFailing, Problem: "connection refused", Failures: 3, Reason: "scheduled for 2026-11-21T09:00:00Z",
				Holder: "host/abc", Last: &condition.Last{ID: id, Started: at, Revision: 4711}, Next: at.Add(time.Hour), NextDrill: at.Add(2 * time.Hour),
				Unpruned: "repository main: access denied", Suspension: &document.SuspendedBy{Since: at, By: "ops", Reason: "maintenance"},
				Jobs: []document.Outcome{
					{Job: document.JobBackup, Reason: "scheduled for 2026-11-21T09:00:00Z", Began: at},
					{Job: document.JobBackup, Reason: "before the upgrade", Began: at, Ended: at.Add(time.Minute), Verdict: document.Succeeded, Backup: id},
					{Job: document.JobDrill, Repository: "main", Reason: "scheduled for 2026-11-21T09:00:00Z", Began: at, Ended: at.Add(time.Minute),
						Verdict: document.Failed, Backup: id, Message: "an assertion does not hold: key=a, found 0", RTO: 1.5},
				},
				Counts: []document.Count{{Job: document.JobBackup, Verdict: document.Succeeded, N: 7}}, Standings: []condition.Standing{standing()},
				Conditions: conditions(),
				Archive: &document.Agent{
					State: document.AgentStandby, Cluster: "prod", Source: segment.Watch, Holder: "host/def", Spool: document.Spool{Max: 2 << 30},
				},
			}},
			Restores: []document.ServedRestore{{
				Namespace: "payments", Name: "all-lost", StatefulSet: "etcd", Cluster: "payments.etcd", Phase: "Succeeded", Ended: true, Since: at,
				MembersDone: "3/3", Message: "the old data cannot be removed: …", Downtime: 12.4,
			}},
		},
		"suspension": document.Suspension{Format: 1, Repository: "4f1a9c0de7b25386", ID: "0123456789abcdef", Cluster: "prod", Suspended: true, Time: at, By: "host-1, dr v0.1.0", Reason: "maintenance"},
	}
}

func TestConfigCheckExplains(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := spec.ParseSchedule("30 2 * * *", berlin, 0, "prod")
	if err != nil {
		t.Fatal(err)
	}
	got := document.NewConfigCheck(spec.Config{Specs: []spec.Spec{{
		Cluster: "prod", Schedule: schedule, Triggers: spec.Triggers{Revisions: 5, Bytes: 1 << 30, Gap: true},
		Etcd: spec.Etcd{Endpoints: []string{"https://10.0.0.1:2379"}}, Backup: spec.Backup{From: "leader", Require: spec.Any},
		Repositories: []spec.Repository{{Name: "main", URL: "s3://backups/etcd?region=eu-central-1"}},
		Retention: retention.Policy{
			Last: 1, Hourly: 2, Daily: 3, Weekly: 4, Monthly: 5, Yearly: 6, Within: 36 * time.Hour, Window: 48 * time.Hour, MaxSize: 1 << 30,
			MinCopies: 2,
		},
		Archive: spec.Archive{Flush: 1500 * time.Millisecond, Spool: "/spool", SpoolMax: 1 << 30},
		Drill:   spec.Drill{Schedule: schedule, Repository: "main", Assertions: []string{"key=/a"}},
	}}}, time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)).Clusters[0]
	want := document.ConfigCluster{
		Cluster: "prod", Schedule: "30 2 * * *", Zone: "Europe/Berlin",
		Next: []time.Time{
			time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 3, 30, 0, 30, 0, 0, time.UTC), time.Date(2026, 3, 31, 0, 30, 0, 0, time.UTC),
		},
		Triggers: []string{"5 revisions", "1.0 GiB of log", "a gap in the log"},
		Keeps: []string{
			"1 last", "2 hourly", "3 daily", "4 weekly", "5 monthly", "6 yearly", "all within 1d12h", "a window of 2d", "at most 1.0 GiB", "at least 2 good backups",
		},
		Repositories: []document.ConfigRepository{{Name: "main", URL: "s3://backups/etcd?region=eu-central-1"}},
		Require:      "any", Recipients: []string{}, Endpoints: []string{"https://10.0.0.1:2379"}, From: "leader",
		Archive: &document.ConfigArchive{FlushSeconds: 1.5, Spool: "/spool", SpoolMax: 1 << 30},
	}
	want.Drill = &document.ConfigDrill{Schedule: want.Schedule, Zone: want.Zone, Next: want.Next, Repository: "main", Assertions: []string{"key=/a"}}
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
