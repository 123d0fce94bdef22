package document_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/api/document"
	dr "github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

func scheduleDocuments() map[string]any {
	w := window()
	return map[string]any{
		"config-check": document.ConfigCheck{
			Concurrency: 4, LeaseSeconds: 30, Clusters: []document.ConfigCluster{{
				Cluster: "prod", Suspended: true, Schedule: "30 2 * * *", Zone: "Europe/Berlin", LateSeconds: 173, Next: []time.Time{at},
				Triggers: []string{"100000 revisions"}, Keeps: []string{"7 daily"},
				Repositories: []document.ConfigRepository{{Name: "main", URL: "s3://backups/etcd"}}, Require: "all",
				Recipients: []string{"age1qqqqqqqqqqqq"}, Endpoints: []string{"https://10.0.0.1:2379"}, From: "leader",
				Archive: &document.ConfigArchive{FlushSeconds: 0.5, Spool: "/var/spool/etcd-dr", SpoolMax: 2 << 30},
				Drill: &document.ConfigDrill{
					Schedule: "0 4 * * 0", Zone: "UTC", LateSeconds: 7, Next: []time.Time{at}, Repository: "main", Assertions: []string{"key=/a"},
					Keys: true, ScratchDir: "/scratch", MemoryLimit: 2 << 30, Nice: 19,
				},
			}},
		},
		"config-check-empty": document.NewConfigCheck(scheduler.Config{Specs: []scheduler.Spec{{Cluster: "prod"}}}, at),
		"serve-status": document.ServeStatus{
			Config: document.ServeConfig{File: "/etc/etcd-dr/dr.yaml", Since: at, Refused: `bad configuration: dr.yaml:2: unknown key "leese"`},
			Clusters: []scheduler.Status{{
				Cluster: "prod", State: scheduler.Failing, Problem: "connection refused", Failures: 3, Reason: "the schedule's of 2026-11-21T09:00:00Z",
				Holder: "host/abc", Last: &scheduler.Last{ID: id, Started: at, Revision: 4711}, Next: at.Add(time.Hour), NextDrill: at.Add(2 * time.Hour),
				Unpruned: "repository main: access denied", Suspension: &scheduler.Suspension{Since: at, By: "ops", Reason: "maintenance"},
				Jobs: []scheduler.Outcome{
					{Job: scheduler.JobBackup, Reason: "the schedule's of 2026-11-21T09:00:00Z", Began: at},
					{Job: scheduler.JobBackup, Reason: "before the upgrade", Began: at, Ended: at.Add(time.Minute), Verdict: scheduler.Succeeded, Backup: id},
					{Job: scheduler.JobDrill, Repository: "main", Reason: "the schedule's of 2026-11-21T09:00:00Z", Began: at, Ended: at.Add(time.Minute),
						Verdict: scheduler.Failed, Backup: id, Message: "an assertion does not hold: key=a, found 0", RTO: 1.5},
				},
				Counts: []scheduler.Count{{Job: scheduler.JobBackup, Verdict: scheduler.Succeeded, N: 7}}, Standings: []scheduler.Standing{},
				Conditions: []condition.Condition{},
				Archive: &archive.Status{
					State: archive.Standby, Cluster: "prod", Source: segment.Watch, Holder: "host/def", Spool: archive.Spool{Max: 2 << 30},
				},
			}},
		},
		"suspension": document.Suspension{Format: 1, Cluster: "prod", Suspended: true, Time: at, By: "host-1, dr v0.1.0", Reason: "maintenance"},
		"status": document.Status{Wanting: 1, Clusters: []document.ClusterStatus{{
			Cluster: "prod", Repository: "main", Verdict: document.Late, Message: "a backup was due 2h0m0s ago", Due: at.Add(time.Hour),
			Last: &document.LastBackup{
				ID: id, Started: at, AgeSeconds: 7200, Revision: 4711, Proven: repository.Hashed, ProvenAt: at.Add(time.Minute),
			},
			Backups: 9, Damaged: 1, Bytes: 9000, Window: &w, Gaps: []document.Gap{gap()},
		}}},
		"status-unreadable": document.NewStatus([]document.ClusterStatus{document.NewUnreadable("prod", "main", errors.New("access denied"))}),
	}
}

func TestConfigCheckExplains(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := scheduler.ParseSchedule("30 2 * * *", berlin, 0, "prod")
	if err != nil {
		t.Fatal(err)
	}
	got := document.NewConfigCheck(scheduler.Config{Specs: []scheduler.Spec{{
		Cluster: "prod", Schedule: schedule, Triggers: scheduler.Triggers{Revisions: 5, Bytes: 1 << 30, Gap: true},
		Etcd: cluster.Config{Endpoints: []string{"https://10.0.0.1:2379"}}, Backup: dr.Request{From: "leader", Require: dr.Any},
		Repositories: []scheduler.Repository{{Name: "main", URL: "s3://backups/etcd?region=eu-central-1"}},
		Retention: retention.Policy{
			Last: 1, Hourly: 2, Daily: 3, Weekly: 4, Monthly: 5, Yearly: 6, Within: 36 * time.Hour, Window: 48 * time.Hour, MaxSize: 1 << 30,
			MinCopies: 2,
		},
		Archive: scheduler.Archive{Flush: 1500 * time.Millisecond, Spool: "/spool", SpoolMax: 1 << 30},
		Drill:   scheduler.Drill{Schedule: schedule, Repository: "main", Assertions: []verify.Assertion{{Text: "key=/a", Key: "/a", Least: 1}}},
	}}}, time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)).Clusters[0]
	want := document.ConfigCluster{
		Cluster: "prod", Schedule: "30 2 * * *", Zone: "Europe/Berlin",
		Next: []time.Time{
			time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 3, 30, 0, 30, 0, 0, time.UTC), time.Date(2026, 3, 31, 0, 30, 0, 0, time.UTC),
		},
		Triggers: []string{"5 revisions", "1.0 GiB of log", "a gap in the log"},
		Keeps: []string{
			"1 last", "2 hourly", "3 daily", "4 weekly", "5 monthly", "6 yearly", "all within 36h0m0s", "a window of 2d", "at most 1.0 GiB", "at least 2",
		},
		Repositories: []document.ConfigRepository{{Name: "main", URL: "s3://backups/etcd?region=eu-central-1"}},
		Require:      "any", Recipients: []string{}, Endpoints: []string{"https://10.0.0.1:2379"}, From: "leader",
		Archive: &document.ConfigArchive{FlushSeconds: 1.5, Spool: "/spool", SpoolMax: 1 << 30},
	}
	want.Drill = &document.ConfigDrill{Schedule: want.Schedule, Zone: want.Zone, Next: want.Next, Repository: "main", Assertions: []string{"key=/a"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// taken hours ago, nothing is known against it.
func takenBefore(hours int) repository.Backup {
	b := repository.Backup{Manifest: manifest()}
	b.Started, b.Finished, b.Alarms, b.Diverged = at.Add(-time.Duration(hours)*time.Hour), at.Add(-time.Duration(hours)*time.Hour), nil, ""
	b.ID = repository.NewID(b.Started, b.Revision)
	return b
}

func TestVerdicts(t *testing.T) {
	hourly, err := scheduler.ParseSchedule("@every 1h", time.UTC, 0, "prod")
	if err != nil {
		t.Fatal(err)
	}
	spec := scheduler.Spec{Cluster: "prod", Schedule: hourly, Backup: dr.Request{MaxStream: 5 * time.Minute}}
	suspended := spec
	suspended.Suspend = true
	corrupt := takenBefore(0)
	corrupt.Alarms = []string{"CORRUPT"}
	damaged := repository.Damage{ID: "20200101T000000Z-0000000000000001", Err: errors.New("it is cut off")}
	gapped := someLog()
	gapped.Backups = []repository.Backup{takenBefore(0)}
	stale := gapped
	stale.Backups = []repository.Backup{takenBefore(3)}
	for name, test := range map[string]struct {
		catalog repository.Catalog
		spec    scheduler.Spec
		want    document.Verdict
		says    string
	}{
		"nothing":           {repository.Catalog{}, spec, document.NoBackup, "there is no backup"},
		"only damage":       {repository.Catalog{Damaged: []repository.Damage{damaged}}, spec, document.NoBackup, "it is cut off"},
		"only a doubtful":   {repository.Catalog{Backups: []repository.Backup{corrupt}}, spec, document.NoBackup, "CORRUPT"},
		"in time":           {repository.Catalog{Backups: []repository.Backup{takenBefore(0)}}, spec, document.OK, ""},
		"late":              {repository.Catalog{Backups: []repository.Backup{takenBefore(3)}}, spec, document.Late, "due 2h"},
		"doubtful, late":    {repository.Catalog{Backups: []repository.Backup{corrupt, takenBefore(3)}}, spec, document.Late, "CORRUPT"},
		"no schedule":       {repository.Catalog{Backups: []repository.Backup{takenBefore(3)}}, scheduler.Spec{}, document.OK, ""},
		"suspended":         {repository.Catalog{Backups: []repository.Backup{takenBefore(3)}}, suspended, document.Suspended, ""},
		"damaged":           {repository.Catalog{Backups: []repository.Backup{takenBefore(0)}, Damaged: []repository.Damage{damaged}}, spec, document.Damaged, "it is cut off"},
		"untrusted":         {repository.Catalog{Backups: []repository.Backup{takenBefore(0)}, Untrusted: []repository.Damage{damaged}}, spec, document.Damaged, "it is cut off"},
		"a gap since":       {gapped, spec, document.OpenGap, "three"},
		"late, with a gap":  {stale, spec, document.Late, "due 2h"},
		"a gap, and before": {func() repository.Catalog { c := someLog(); c.Backups = []repository.Backup{after(10)}; return c }(), spec, document.OK, ""},
	} {
		got := document.NewClusterStatus("main", test.catalog, test.spec, at.Add(20*time.Second))
		if got.Verdict != test.want || !strings.Contains(got.Message, test.says) || got.Verdict == document.OK && got.Message != "" {
			t.Errorf("%s: %+v, want %s with %q", name, got, test.want, test.says)
		}
	}
}

// after is a backup taken some seconds after the log of someLog began.
func after(seconds int) repository.Backup {
	b := takenBefore(0)
	b.Started, b.Finished = at.Add(time.Duration(seconds)*time.Second), at.Add(time.Duration(seconds)*time.Second)
	return b
}

func TestStatusPutsTheWorstFirst(t *testing.T) {
	var all []document.ClusterStatus
	verdicts := []document.Verdict{
		document.OK, document.Suspended, document.OpenGap, document.Damaged, document.Late, document.Unreadable, document.NoBackup,
	}
	for i, v := range verdicts {
		all = append(all, document.ClusterStatus{Cluster: fmt.Sprint("c", i), Verdict: v})
	}
	all = append(all, document.ClusterStatus{Cluster: "a", Verdict: document.OK})
	got := document.NewStatus(all)
	var order []string
	for _, c := range got.Clusters {
		order = append(order, c.Cluster)
	}
	if want := []string{"c6", "c5", "c4", "c3", "c2", "c1", "a", "c0"}; !slices.Equal(order, want) || got.Wanting != 5 {
		t.Errorf("%q, %d wanting, want %q and 5", order, got.Wanting, want)
	}
}
