package document_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/sign"
)

func outcome() document.Outcome {
	return document.Outcome{
		Job: document.JobDrill, Repository: "main", Reason: "ordered: before the upgrade", Began: at, Ended: at.Add(time.Minute), Verdict: document.Failed,
		Backup: id, Message: "a key is missing", RTO: 2.5,
	}
}

func serviceDocuments() map[string]any {
	drill, w := proof(), window()
	drill.Drill = &catalog.Drill{Target: "backup " + string(id), RTO: 2.5}
	running := outcome()
	running.Ended, running.Verdict, running.Backup, running.Message, running.RTO = time.Time{}, "", "", "", 0
	return map[string]any{
		"problem":  document.Problem{Message: "a login is required", Cure: "send a token"},
		"recovery": document.Recovery{Windows: []document.Window{w}, Gaps: []document.Gap{gap()}},
		"drills":   document.Drills{Drills: []catalog.Proof{drill}},
		"jobs": document.Jobs{
			Running: []document.ClusterJob{{Cluster: "prod", Outcome: running}},
			Queued:  []document.ClusterJob{{Cluster: "test", Outcome: document.Outcome{Job: document.JobBackup, Reason: "there is no backup yet"}}},
			Ended:   []document.ClusterJob{{Cluster: "prod", Outcome: outcome()}},
		},
		"way": document.Way{
			Command:  "dr restore --repo s3://backups/etcd --cluster prod --dry-run",
			Lost:     document.Lost{Message: "what was written after …", Since: at, MaybeSince: at.Add(-time.Second), Seconds: 60, Known: 30, Revisions: 7, Newest: at.Add(30 * time.Second)},
			Estimate: 12.5, Plan: document.Plan{Format: 1, ID: "0123456789abcdef", Cluster: "prod"},
		},
		"ordered": document.QueuedJob{Cluster: "prod", Job: document.JobBackup, Reason: "before the upgrade"},
	}
}

func TestWorstFirst(t *testing.T) {
	sick := func(cluster string, state document.State, severities ...condition.Severity) document.ServedCluster {
		s := document.ServedCluster{Cluster: cluster, State: state}
		for _, one := range severities {
			s.Conditions = append(s.Conditions, condition.Condition{Severity: one})
		}
		return s
	}
	given := []document.ServedCluster{
		sick("b", document.StateIdle), sick("a", document.StateSuspended), sick("c", document.StateIdle, condition.Warning, condition.Warning),
		sick("d", document.StateFailing, condition.Warning), sick("e", document.StateIdle, condition.Critical, condition.Critical), sick("f", document.StateIdle, condition.Critical),
	}
	var names []string
	for _, s := range document.WorstFirst(given) {
		names = append(names, s.Cluster)
	}
	got := strings.Join(names, "")
	if got != "edfcab" || given[0].Cluster != "b" {
		t.Errorf("%s, and what was given begins with %s", got, given[0].Cluster)
	}
	if document.WorstFirst(nil) == nil {
		t.Error("no clusters are null")
	}
}

func TestJobsAreSorted(t *testing.T) {
	older, newer, runs := outcome(), outcome(), outcome()
	older.Ended, runs.Ended = at, time.Time{}
	d := document.NewJobs([]document.ServedCluster{
		{Cluster: "a", State: document.StateRunning, Jobs: []document.Outcome{older, runs}},
		{Cluster: "b", State: document.StateQueued, Reason: "it is time", Jobs: []document.Outcome{newer}},
	})
	if len(d.Running) != 1 || d.Running[0].Cluster != "a" || len(d.Ended) != 2 || d.Ended[0].Cluster != "b" ||
		!slices.Equal(d.Queued, []document.ClusterJob{{Cluster: "b", Outcome: document.Outcome{Job: document.JobBackup, Reason: "it is time"}}}) {
		t.Errorf("%+v", d)
	}
}

// A person pastes the command into a shell: nothing in it may be taken for anything else.
func TestWayIsACommand(t *testing.T) {
	_, public, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.ParseTrust(public)
	if err != nil {
		t.Fatal(err)
	}
	r := spec.Repository{URL: "s3://backups/it's?region=eu", CredentialsDir: "/etc/dr/the vault", Policy: records.Policy{Trust: trust}}
	way := document.NewWay(plan.Plan{Cluster: "prod"}, plan.Target{Time: at, Best: true}, r, at)
	want := `dr restore --repo 's3://backups/it'"'"'s?region=eu' --cluster prod --credentials '/etc/dr/the vault' --trust ` + trust.Keys()[0] + ` --to 2026-11-21T09:24:33Z --best --dry-run`
	if way.Command != want || way.Lost.Message == "" {
		t.Errorf("%s\nwant %s; %+v", way.Command, want, way.Lost)
	}
}
