package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/etcd-dr/etcd-dr/api/convert"
	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/server"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// fullStatus is a status in which everything is known.
func fullStatus() document.ServeStatus {
	at := time.Unix(1000, 0)
	agent := convert.Agent(agentStatus())
	return document.ServeStatus{
		Config: document.ServeConfig{Since: at, Refused: "no"},
		Clusters: []document.ServedCluster{{
			Cluster: "prod", State: document.StateRunning, Archive: &agent, Suspension: &document.SuspendedBy{},
			Jobs: []document.Outcome{
				{Job: document.JobBackup, Began: at},
				{Job: document.JobPrune, Began: at, Ended: at.Add(3 * time.Second), Repository: "main"},
				{Job: document.JobPrune, Began: at, Ended: at.Add(2 * time.Second), Repository: "offsite"},
			},
			Counts: []document.Count{{Job: document.JobBackup, Verdict: document.Failed, N: 7}},
			Standings: []condition.Standing{{
				Repository: "main", At: at, Backups: 9, Bytes: 9000, Due: at.Add(time.Minute), Verified: at.Add(2 * time.Minute), Drilled: at.Add(3 * time.Minute), Gaps: 2,
				Good:   &condition.Good{Last: condition.Last{Started: at.Add(500 * time.Millisecond)}, Size: 500, Stored: 50},
				Drill:  &catalog.Proof{Time: at.Add(4 * time.Minute), Drill: &catalog.Drill{RTO: 2.5}},
				Window: &catalog.Window{From: catalog.Point{Time: at.Add(5 * time.Minute)}, To: catalog.Point{Time: at.Add(6 * time.Minute)}},
			}},
			Conditions: []condition.Condition{
				{Name: condition.LogGap, Severity: condition.Critical, Repository: "main"},
				{Name: condition.NoQuorum, Severity: condition.Critical}, {Name: condition.NoQuorum, Severity: condition.Critical, Message: "twice"},
			},
		}},
		Restores: []document.ServedRestore{
			{Name: "first", Cluster: "prod", Phase: "Succeeded", Ended: true, Since: at, Downtime: 9},
			{Name: "second", Cluster: "prod", Phase: "Succeeded", Ended: true, Since: at.Add(time.Minute), Downtime: 12.4},
			{Name: "plan", Cluster: "prod", Phase: "Planned", Ended: true, Since: at.Add(2 * time.Minute)},
			{Name: "third", Cluster: "prod", Phase: "Sealing", Since: at.Add(3 * time.Minute)},
			{Name: "waits", Phase: "Pending"},
		},
	}
}

// pruned returns the counts of five backups of a cluster, of which one is locked and one is damaged.
func pruned(cluster string) server.Pruned {
	folder := cluster + "/backups/20261121T092433Z-000000000000000"
	return server.NewPruned("main", document.Prune{
		Cluster: cluster,
		Backups: []document.PrunedBackup{
			{ID: "20261121T092433Z-0000000000000001", Keep: true}, {ID: "20261121T092433Z-0000000000000002", Keep: true},
			{ID: "20261121T092433Z-0000000000000003", Keep: true}, {ID: "20261121T092433Z-0000000000000004"},
		},
		Locked:  []document.LockedObject{{Key: folder + "3/snapshot.db.zst"}, {Key: folder + "3/manifest.json"}, {Key: folder + "4/proof.json"}},
		Damaged: []document.Damage{{ID: "20261121T092433Z-0000000000000005"}},
	})
}

// specOf wants the log of prod archived, and nothing else.
func specOf(cluster string) (spec.Spec, error) {
	if cluster != "prod" {
		return spec.Spec{}, scheduler.ErrUnknown
	}
	return spec.Spec{
		Cluster: cluster, Archive: spec.Archive{Flush: time.Second},
		Repositories: []spec.Repository{{URL: "s3://main/etcd"}, {URL: "s3://offsite"}},
	}, nil
}

// scrape reads /metrics as Prometheus does: each value by its name and labels.
func scrape(t *testing.T, d document.ServeStatus) (values map[string]float64, families map[string]*dto.MetricFamily) {
	t.Helper()
	w := httptest.NewRecorder()
	h := server.Serve(server.Service{
		Version: "v1", Status: func() document.ServeStatus { return d },
		Pruned: func() []server.Pruned { return []server.Pruned{pruned("prod"), pruned("gone")} },
		Spec:   specOf,
	}, server.Access{})
	h.ServeHTTP(w, request(http.MethodGet, "/metrics", ""))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	text := w.Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("Prometheus cannot read it: %v\n%s", err, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	values = map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			values[strings.TrimPrefix(name, "etcd_dr_")+fmt.Sprint(labels)] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values, families
}

func TestServiceMetrics(t *testing.T) {
	values, _ := scrape(t, fullStatus())
	const main = "[cluster=prod repository=main]"
	for name, want := range map[string]float64{
		"backup_last_success_timestamp_seconds" + main: 1000.5, "backup_due_timestamp_seconds" + main: 1060, "backups" + main: 9,
		"backup_last_verified_timestamp_seconds" + main: 1120, "backup_last_size_bytes" + main: 500, "backup_last_stored_bytes" + main: 50,
		"backups_stored_bytes" + main: 9000, "drill_last_success_timestamp_seconds" + main: 1180, "drill_last_run_timestamp_seconds" + main: 1240,
		"drill_rto_seconds" + main: 2.5, "recovery_window_start_timestamp_seconds" + main: 1300, "recovery_window_end_timestamp_seconds" + main: 1360,
		"log_gaps" + main: 2,
		"cluster_info[archived=true cluster=prod drilled=false fleet=f5817b44 scheduled=false]": 1,
		"archive_last_gap_timestamp_seconds[cluster=prod]":                                      900,
		"archive_spool_bytes[cluster=prod]":                                                     4096, "archive_working[cluster=prod]": 1,
		"jobs_total[cluster=prod job=backup verdict=failed]": 7, "jobs_total[cluster=prod job=drill verdict=not run]": 0,
		"job_running[cluster=prod job=backup]": 1, "job_running[cluster=prod job=prune]": 0, "job_last_duration_seconds[cluster=prod job=prune]": 3,
		"condition[cluster=prod condition=LogGap repository=main severity=critical]": 1,
		"condition[cluster=prod condition=NoQuorum repository= severity=critical]":   1,
		"cluster_suspended[cluster=prod]":                                            1, "cluster_state[cluster=prod state=running]": 1,
		"restores[cluster=prod phase=Succeeded]": 2, "restores[cluster=prod phase=Sealing]": 1, "restores[cluster= phase=Pending]": 1,
		"restore_last_end_timestamp_seconds[cluster=prod phase=Succeeded]": 1060, "restore_last_downtime_seconds[cluster=prod]": 12.4,
		"config_refused[]": 1, "config_loaded_timestamp_seconds[]": 1000, "build_info[version=v1]": 1,
	} {
		got, ok := values[name]
		if !ok || got != want {
			t.Errorf("%s is %v, %v, want %v", name, got, ok, want)
		}
	}
	for name := range values {
		if strings.Contains(name, "cluster=gone") {
			t.Errorf("%s is of a cluster that is looked after no more", name)
		}
	}
	got := values["rpo_seconds[cluster=prod]"]
	if got < 3600 || got > 7200 {
		t.Errorf("the agent's RPO is an hour, not %v s", got)
	}
}

// Unknown values are absent: a zero would be a time in 1970, or a database of no size.
func TestMetricsOfUnknownValues(t *testing.T) {
	values, _ := scrape(t, document.ServeStatus{Clusters: []document.ServedCluster{{
		Cluster: "prod", State: document.StateStarting, Standings: []condition.Standing{{Repository: "main", Problem: "away"}},
	}}})
	for name := range values {
		if strings.HasPrefix(name, "retention_decisions[cluster=prod ") {
			continue
		}
		if strings.Contains(name, "repository") || strings.Contains(name, "timestamp") || strings.Contains(name, "rpo") || strings.Contains(name, "duration") {
			t.Errorf("there is %s", name)
		}
	}
}

// Without an agent of its own a service counts from the newest moment that is stored, by whomever.
func TestServiceRPO(t *testing.T) {
	now := time.Now()
	good := func(ago time.Duration) *condition.Good {
		return &condition.Good{Last: condition.Last{Started: now.Add(-ago)}}
	}
	window := func(ago time.Duration) *catalog.Window {
		return &catalog.Window{To: catalog.Point{Time: now.Add(-ago)}}
	}
	working := convert.Agent(agentStatus())
	standby, unknown, ahead := working, working, working
	standby.State, unknown.ConfirmedAt = document.AgentStandby, time.Time{}
	ahead.ConfirmedAt = now.Add(time.Hour)
	for name, test := range map[string]struct {
		status document.ServedCluster
		want   time.Duration // below 0: there is none
	}{
		"a backup":   {document.ServedCluster{Standings: []condition.Standing{{Good: good(2 * time.Hour)}, {Good: good(3 * time.Hour)}}}, 2 * time.Hour},
		"a log":      {document.ServedCluster{Standings: []condition.Standing{{Good: good(4 * time.Hour), Window: window(time.Hour)}}}, time.Hour},
		"an old log": {document.ServedCluster{Standings: []condition.Standing{{Good: good(2 * time.Hour), Window: window(9 * time.Hour)}}}, 2 * time.Hour},
		"standby":    {document.ServedCluster{Archive: &standby, Standings: []condition.Standing{{Good: good(2 * time.Hour)}}}, 2 * time.Hour},
		"archived":   {document.ServedCluster{Archive: &working, Standings: []condition.Standing{{Good: good(2 * time.Hour)}}}, time.Hour},
		"outrun":     {document.ServedCluster{Archive: &working, Standings: []condition.Standing{{Good: good(time.Minute)}}}, time.Minute},
		"unknown":    {document.ServedCluster{Archive: &unknown, Standings: []condition.Standing{{Good: good(2 * time.Hour)}}}, 2 * time.Hour},
		// Times of a clock that is ahead are ignored, and hide no other.
		"a log from the future":       {document.ServedCluster{Standings: []condition.Standing{{Good: good(2 * time.Hour), Window: window(-time.Hour)}}}, 2 * time.Hour},
		"a backup from the future":    {document.ServedCluster{Standings: []condition.Standing{{Good: good(-time.Hour), Window: window(time.Hour)}}}, time.Hour},
		"an agent in the future":      {document.ServedCluster{Archive: &ahead, Standings: []condition.Standing{{Good: good(2 * time.Hour)}}}, 2 * time.Hour},
		"only what is in the future":  {document.ServedCluster{Standings: []condition.Standing{{Good: good(-time.Hour)}}}, -1},
		"a clock that is a bit ahead": {document.ServedCluster{Standings: []condition.Standing{{Good: good(2 * time.Hour), Window: window(-time.Minute)}}}, 0},
		"nothing yet":                 {document.ServedCluster{Archive: &unknown}, -1},
		"nothing":                     {document.ServedCluster{}, -1},
	} {
		test.status.Cluster = "prod"
		values, _ := scrape(t, document.ServeStatus{Clusters: []document.ServedCluster{test.status}})
		got, ok := values["rpo_seconds[cluster=prod]"]
		if ok != (test.want >= 0) || ok && (got < test.want.Seconds() || got > test.want.Seconds()+1800) {
			t.Errorf("%s: %v s, %v, want %s", name, got, ok, test.want)
		}
	}
}

// Each metric is described in docs/metrics.md, and nothing else is.
func TestMetricsAreDescribed(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var described, served []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(etcd_dr_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		described = append(described, m[1])
	}
	_, families := scrape(t, fullStatus())
	for name := range families {
		served = append(served, name)
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("docs/metrics.md describes\n%v\nserved are\n%v", described, served)
	}
}
