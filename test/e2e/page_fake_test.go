package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/api/document"
	"github.com/etcd-dr/etcd-dr/api/page"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// fakeService answers like a dr serve with a fleet that has many problems, which take too long to produce for real.
type fakeService struct {
	http.Handler
	now  time.Time
	role string // of every user
	tail string // of some texts

	mu       sync.Mutex
	away     bool
	orders   []string
	refused  string
	restores []document.ServedRestore
}

func newFakeService() *fakeService {
	f := &fakeService{now: time.Now().UTC().Truncate(time.Second), role: "operate"}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page.Handler())
	mux.Handle("GET /assets/", page.Handler())
	get := func(path string, answer func(r *http.Request) any) {
		mux.HandleFunc("GET /api/v1/clusters"+path, func(w http.ResponseWriter, r *http.Request) { f.answer(w, r, answer) })
	}
	get("", func(*http.Request) any {
		return document.ServeStatus{Config: document.ServeConfig{File: "/etc/etcd-dr/dr.yaml", Refused: f.refused}, Clusters: f.clusters(), Restores: f.restores}
	})
	get("/{cluster}", func(r *http.Request) any {
		for _, c := range f.clusters() {
			if c.Cluster == r.PathValue("cluster") {
				return c
			}
		}
		return nil
	})
	get("/{cluster}/backups", func(*http.Request) any { return f.backups() })
	get("/{cluster}/windows", func(*http.Request) any { return f.windows() })
	get("/{cluster}/drills", func(*http.Request) any { return f.drills() })
	get("/{cluster}/retention", func(*http.Request) any { return f.retention() })
	get("/{cluster}/plan", f.plan)
	mux.HandleFunc("POST /api/v1/clusters/{cluster}/{order}", func(w http.ResponseWriter, r *http.Request) {
		f.answer(w, r, f.order)
	})
	f.Handler = mux
	return f
}

func (f *fakeService) answer(w http.ResponseWriter, r *http.Request, answer func(*http.Request) any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Etcd-Dr-Role", f.role)
	status, said := http.StatusOK, answer(r)
	switch {
	case f.away:
		status, said = http.StatusServiceUnavailable, document.Problem{Message: "the service is about to end"}
	case said == nil:
		status, said = http.StatusNotFound, document.Problem{Message: "cluster is unknown to this service"}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said)
}

func (f *fakeService) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeService) ordered() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.orders)
}

func (f *fakeService) ago(d time.Duration) time.Time { return f.now.Add(-d) }

func (f *fakeService) clusters() []document.ServedCluster {
	all := []document.ServedCluster{f.prod()}
	for i, name := range []string{
		"billing", "edge-ams", "edge-fra", "edge-lhr", "edge-par", "edge-sin", "identity", "ledger", "metrics", "registry", "staging",
		"vault-with-a-name-that-is-rather-long-for-a-table", "web",
	} {
		c := f.well(name, time.Duration(i)*7*time.Minute)
		switch name {
		case "edge-sin":
			c.Conditions = append(c.Conditions, condition.Condition{
				Name: condition.CertificateExpires, Severity: condition.Warning, Cluster: name, Since: f.ago(50 * time.Hour),
				Message: "the certificate of https://10.8.0.2:2379 ends in 6 days",
				Cure:    "renew it, and have the member load it",
			})
		case "staging":
			c.State = document.StateSuspended
			c.Suspension = &document.SuspendedBy{Since: f.ago(3 * time.Hour), By: "jo", Reason: "the members move to new hosts"}
		case "web":
			c.State, c.Reason = document.StateRunning, "scheduled for "+f.ago(time.Minute).Format(time.RFC3339)
		}
		all = append(all, c)
	}
	return all
}

func (f *fakeService) well(name string, age time.Duration) document.ServedCluster {
	started := f.ago(age + 5*time.Minute)
	last := condition.Last{ID: catalog.NewID(started, 88123), Started: started, Revision: 88123}
	return document.ServedCluster{
		Cluster: name, State: document.StateIdle, Next: f.now.Add(55*time.Minute - age/2), Last: &last, Conditions: []condition.Condition{},
		Jobs: []document.Outcome{},
		Standings: []condition.Standing{{
			Repository: "main", At: f.ago(time.Minute), Backups: 31, Bytes: 912 << 20,
			Verified: f.ago(9 * time.Hour), Drilled: f.ago(40 * time.Hour),
			Good:  &condition.Good{Last: last, Size: 120 << 20, Stored: 31 << 20, Proven: catalog.Booted, ProvenAt: f.ago(9 * time.Hour)},
			Drill: &catalog.Proof{Verdict: catalog.Passed, Time: f.ago(40 * time.Hour), Drill: &catalog.Drill{RTO: 41}},
		}},
	}
}

func (f *fakeService) prod() document.ServedCluster {
	c := f.well("prod", 3*time.Hour+12*time.Minute)
	c.State, c.Failures, c.Next = document.StateFailing, 4, f.now.Add(8*time.Minute)
	c.Problem = "backup: repository main: put prod/backups: 403 AccessDenied" + f.tail
	at := func(n condition.Name, s condition.Severity, since time.Duration, message, cure string) condition.Condition {
		return condition.Condition{Name: n, Severity: s, Cluster: "prod", Repository: "main", Since: f.ago(since), Message: message, Cure: cure}
	}
	c.Conditions = []condition.Condition{
		at(condition.BackupLate, condition.Critical, 2*time.Hour, "a backup was due 2h12m ago; the last four tries failed: 403 AccessDenied",
			"give the service the right to put objects below prod/ again, then back up now"),
		at(condition.DrillFailed, condition.Critical, 20*time.Hour,
			"the drill of 20 hours ago failed: prefix /registry/pods/ has 99 keys, at least 100 are wanted",
			"look at what the drill blames; if the number is meant to be lower, change the assertion"),
		at(condition.NotLocked, condition.Warning, 300*time.Hour, "no object in main is locked",
			"turn on object lock for the bucket and say lock: {for: 30d} in dr.yaml"),
	}
	c.Standings[0].Drill = &f.proofs()[0]
	c.Standings[0].Gaps = 2
	w := f.windows().Windows[2].Window
	c.Standings[0].Window = &w
	second := c.Standings[0]
	second.Repository, second.Backups, second.Bytes, second.Problem = "offsite", 9, 280<<20, "connection refused"
	second.Drill, second.Window = nil, nil
	c.Standings = append(c.Standings, second)
	c.Jobs = []document.Outcome{
		{Job: document.JobBackup, Reason: "scheduled for " + f.ago(132*time.Minute).Format(time.RFC3339), Began: f.ago(7 * time.Minute),
			Ended: f.ago(7*time.Minute - 3*time.Second), Verdict: document.Failed, Message: "put prod/backups: 403 AccessDenied"},
		{Job: document.JobPrune, Repository: "main", Reason: "after a backup", Began: f.ago(197 * time.Minute), Ended: f.ago(196 * time.Minute),
			Verdict: document.Succeeded},
		{Job: document.JobDrill, Repository: "main", Reason: "the schedule's", Began: f.ago(20 * time.Hour),
			Ended:   f.ago(20*time.Hour - 74*time.Second),
			Verdict: document.Failed, Message: "prefix /registry/pods/ has 99 keys, at least 100 are wanted", RTO: 41},
	}
	return c
}

func (f *fakeService) backups() document.List {
	d := document.List{Damaged: []document.Damage{}, Untrusted: []document.Damage{}, Windows: []document.Window{}, Gaps: []document.Gap{}}
	for i := range 30 {
		started := f.ago(197*time.Minute + time.Duration(i)*time.Hour)
		b := document.Backup{
			Manifest: catalog.Manifest{
				ID: catalog.NewID(started, int64(90000-i*1000)), Cluster: "prod", Started: started, Revision: int64(90000 - i*1000),
				Plain: catalog.Blob{Size: 120 << 20}, Stored: catalog.Blob{Size: 31 << 20},
			},
			Proven: []catalog.Level{catalog.Stored, catalog.Hashed, catalog.Opened}[i%3], ProvenAt: started.Add(time.Minute),
			Proofs: []catalog.Proof{}, Pins: []catalog.Pin{},
		}
		switch {
		case i%9 == 4:
			b.Proven = catalog.Booted
		case i == 7:
			b.Proven = ""
		case i == 12:
			b.Pins = append(b.Pins, catalog.Pin{Reason: "before 1.34" + f.tail})
		}
		d.Backups = append(d.Backups, b)
	}
	cut := catalog.NewID(f.ago(50*time.Hour), 4)
	d.Damaged = append(d.Damaged, document.Damage{Cluster: "prod", ID: cut, Message: "damaged: it is cut off"})
	return d
}

func (f *fakeService) windows() document.Recovery {
	window := func(from, to time.Duration, revision int64) document.Window {
		return document.Window{Cluster: "prod", Window: catalog.Window{
			From: catalog.Point{Time: f.ago(from), Revision: revision}, To: catalog.Point{Time: f.ago(to), Revision: revision + 9000},
		}}
	}
	gap := func(since, until time.Duration, reason string) document.Gap {
		return document.Gap{Cluster: "prod", Since: f.ago(since), Until: f.ago(until), Seconds: (since - until).Seconds(), Reason: reason}
	}
	return document.Recovery{
		Windows: []document.Window{
			window(32*time.Hour, 21*time.Hour, 60000), window(18*time.Hour, 9*time.Hour, 70000),
			window(8*time.Hour+50*time.Minute, 133*time.Minute, 80000),
		},
		Gaps: []document.Gap{gap(21*time.Hour, 18*time.Hour, "the agent was away, and the member's log was purged"),
			gap(9*time.Hour, 8*time.Hour+50*time.Minute, "a member was replaced")},
	}
}

func (f *fakeService) proofs() []catalog.Proof {
	proof := func(ago time.Duration, v catalog.Verdict, finding string) catalog.Proof {
		return catalog.Proof{Level: catalog.Booted, Verdict: v, Finding: finding, Time: f.ago(ago), Drill: &catalog.Drill{RTO: 41}}
	}
	return []catalog.Proof{
		proof(20*time.Hour, catalog.Failed, "prefix /registry/pods/ has 99 keys, at least 100 are wanted"),
		proof(26*time.Hour, catalog.Passed, "no fault found"), proof(30*time.Hour, catalog.NotRun, "no identity"),
	}
}

func (f *fakeService) drills() document.Drills { return document.Drills{Drills: f.proofs()} }

func (f *fakeService) retention() document.Prune {
	d := document.Prune{Cluster: "prod", DryRun: true, Kept: 840 << 20, Removed: 62 << 20, Log: []document.PrunedLog{
		{Segments: 24, Size: 7 << 20, Reason: "it is older than the window of 2d"},
	}}
	for i, b := range f.backups().Backups {
		one := document.PrunedBackup{ID: b.ID, Started: b.Started, Size: b.Stored.Size, Keep: i < 28}
		one.Reasons = []string{fmt.Sprintf("hourly %d", i+1)}
		if !one.Keep {
			one.Reasons = []string{"no rule keeps it"}
		}
		d.Backups = append(d.Backups, one)
	}
	return d
}

// plan echoes its request, so that a test sees the page's query.
func (f *fakeService) plan(r *http.Request) any {
	q := r.URL.Query()
	lost := f.ago(133 * time.Minute)
	at, err := time.Parse(time.RFC3339, q.Get("time"))
	if err == nil {
		lost = at
	}
	all := f.backups().Backups
	b := all[max(0, slices.IndexFunc(all, func(b document.Backup) bool { return !b.Started.After(lost) && b.Proven != "" }))]
	way := document.Way{
		Command:  "dr restore --repo s3://etcd-backups/fra?region=eu-central-1 --cluster " + r.PathValue("cluster") + targetFlag(q.Get) + " --dry-run",
		Lost:     document.Lost{Message: "everything written after then is lost", Since: lost, Seconds: f.now.Sub(lost).Seconds()},
		Estimate: 41,
	}
	way.Plan.Backup = &catalog.Backup{Manifest: b.Manifest}
	way.Plan.Log = &plan.Log{Requests: 81234, Bytes: 9 << 20}
	way.Plan.Reach = &plan.Reach{Revision: b.Revision + 620}
	way.Plan.Notes = []string{"the backup was taken without a quorum" + f.tail}
	return way
}

func targetFlag(get func(string) string) string {
	switch {
	case get("time") != "":
		return " --to " + get("time")
	case get("revision") != "":
		return " --to-revision " + get("revision")
	case get("backup") != "":
		return " " + get("backup")
	}
	return ""
}

func (f *fakeService) order(r *http.Request) any {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.orders = append(f.orders, fmt.Sprint(r.URL.Path, " ", body))
	return document.QueuedJob{Cluster: r.PathValue("cluster")}
}
