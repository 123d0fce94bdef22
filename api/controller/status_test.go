package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/etcd-dr/etcd-dr/api/v1alpha1"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// taken is a backup in the status of the service.
func taken() *scheduler.Last {
	return &scheduler.Last{ID: stored.IDAt(0), Revision: 1000, Started: stored.Noon}
}

func TestProtected(t *testing.T) {
	late := condition.Condition{Name: condition.BackupLate, Severity: condition.Critical, Message: "the last is a day old", Cure: "look"}
	none := condition.Condition{Name: condition.NoBackup, Severity: condition.Critical, Message: "there is no backup", Cure: "look"}
	away := condition.Condition{Name: condition.RepositoryAway, Severity: condition.Critical, Message: "no route", Cure: "look"}
	expires := condition.Condition{Name: condition.CertificateExpires, Severity: condition.Warning, Message: "soon", Cure: "renew"}
	for name, test := range map[string]struct {
		status scheduler.Status
		want   string
	}{
		"starting":  {scheduler.Status{State: scheduler.Starting}, "Unknown Starting: the repositories have not been read yet"},
		"no backup": {scheduler.Status{State: scheduler.Queued}, "False NoBackup: there is no backup yet"},
		"a backup": {
			scheduler.Status{State: scheduler.Idle, Last: taken(), Conditions: []condition.Condition{expires}},
			"True BackedUp: backup " + string(stored.IDAt(0)) + " began at 2026-11-21T12:00:00Z",
		},
		"a critical condition": {
			scheduler.Status{State: scheduler.Idle, Last: taken(), Conditions: []condition.Condition{expires, late}},
			"False BackupLate: the last is a day old; look",
		},
		"failing without a backup": {
			scheduler.Status{State: scheduler.Failing, Problem: "no route", Failures: 1, Conditions: []condition.Condition{none}},
			"False BackupFailing: no route",
		},
		"another try without a backup": {
			scheduler.Status{State: scheduler.Running, Problem: "no route", Failures: 1, Conditions: []condition.Condition{none}},
			"False BackupFailing: no route",
		},
		"failing without a repository": {
			scheduler.Status{State: scheduler.Failing, Problem: "no route", Failures: 1, Conditions: []condition.Condition{away}},
			"False RepositoryAway: no route; look",
		},
		"failing after a backup": {
			scheduler.Status{State: scheduler.Failing, Problem: "no route", Failures: 1, Last: taken()},
			"True BackedUp: backup " + string(stored.IDAt(0)) + " began at 2026-11-21T12:00:00Z",
		},
	} {
		b := scheduled("payments", "etcd")
		describe(b, test.status, stored.Noon)
		c := b.Status.Conditions[0]
		got := string(c.Status) + " " + c.Reason + ": " + c.Message
		if c.Type != v1alpha1.ConditionProtected || got != test.want {
			t.Errorf("%s: %s %s, want %s", name, c.Type, got, test.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	b := scheduled("payments", "etcd")
	describe(b, scheduler.Status{
		Cluster: "payments.etcd", State: scheduler.Idle, Last: taken(), Next: stored.Noon.Add(time.Hour + time.Millisecond),
		NextDrill: stored.Noon.Add(2 * time.Hour),
		Standings: []scheduler.Standing{
			{Repository: "main", Backups: 2, Bytes: 300, Good: &scheduler.Good{Last: *taken(), Size: 100, Proven: catalog.Stored}},
			{Repository: "away", Problem: "no route"},
		},
	}, stored.Noon)
	got := b.Status
	if got.Cluster != "payments.etcd" || !got.Next.Time.Equal(stored.Noon.Add(time.Hour)) || !got.NextDrill.Time.Equal(stored.Noon.Add(2*time.Hour)) || len(got.Repositories) != 2 ||
		got.Repositories[0] != (v1alpha1.RepositoryStatus{Name: "main", Backups: 2, Bytes: 300}) || got.Repositories[1].Problem != "no route" {
		t.Errorf("%+v", got)
	}
	want := v1alpha1.BackupStatus{ID: string(stored.IDAt(0)), Revision: 1000, Time: seconds(stored.Noon), Size: 100, Proof: "stored"}
	if got.Last == nil || *got.Last != want {
		t.Errorf("%+v, want %+v", got.Last, want)
	}
	describe(b, scheduler.Status{Cluster: "payments.etcd", State: scheduler.Queued, Standings: []scheduler.Standing{{Repository: "main"}}}, stored.Noon)
	if b.Status.Last != nil || b.Status.Next != nil || b.Status.NextDrill != nil || len(b.Status.Repositories) != 1 {
		t.Errorf("the status keeps what is not known any more: %+v", b.Status)
	}
}

// pointAt returns the point at which the cluster was so long after noon.
func pointAt(after time.Duration, revision int64) catalog.Point {
	return catalog.Point{Revision: revision, Time: stored.Noon.Add(after)}
}

func TestWindowAndRecoveryPoint(t *testing.T) {
	good := &scheduler.Good{Last: *taken()}
	window := &catalog.Window{From: pointAt(-time.Hour, 10), To: pointAt(time.Minute, 20)}
	earlier := &catalog.Window{From: pointAt(-time.Hour, 10), To: pointAt(0, 15)}
	for name, test := range map[string]struct {
		status scheduler.Status
		point  time.Duration // after noon
		window string
	}{
		"a backup":               {scheduler.Status{Standings: []scheduler.Standing{{Good: good}}}, 0, "none"},
		"a log":                  {scheduler.Status{Standings: []scheduler.Standing{{Good: good, Window: window}}}, time.Minute, "10 11:00:00 to 20 12:01:00"},
		"two repositories":       {scheduler.Status{Standings: []scheduler.Standing{{Window: earlier}, {Window: window}}}, time.Minute, "10 11:00:00 to 20 12:01:00"},
		"a log that grows":       {scheduler.Status{Archive: &archive.Status{ConfirmedAt: stored.Noon.Add(125 * time.Second)}, Standings: []scheduler.Standing{{Window: window}}}, 2 * time.Minute, "10 11:00:00 to 20 12:01:00"},
		"a clock that goes fast": {scheduler.Status{Standings: []scheduler.Standing{{Good: good, Window: &catalog.Window{From: pointAt(0, 1), To: pointAt(100*time.Hour, 2)}}}}, 0, "1 12:00:00 to 2 16:00:00"},
	} {
		b := scheduled("payments", "etcd")
		describe(b, test.status, stored.Noon.Add(3*time.Minute))
		got, w := b.Status.RecoveryPoint, "none"
		if b.Status.Window != nil {
			from, to := b.Status.Window.From, b.Status.Window.To
			w = fmt.Sprint(from.Revision, from.Time.Format(" 15:04:05 to "), to.Revision, to.Time.Format(" 15:04:05"))
		}
		if got == nil || !got.Time.Equal(stored.Noon.Add(test.point)) || w != test.window {
			t.Errorf("%s: the recovery point is %v, the window %s, want %s after noon and %s", name, got, w, test.point, test.window)
		}
	}
	b := scheduled("payments", "etcd")
	describe(b, scheduler.Status{Standings: []scheduler.Standing{{Window: &catalog.Window{To: pointAt(0, 2)}}}}, stored.Noon)
	text, err := json.Marshal(b.Status.Window.From)
	if err != nil || string(text) != `{"revision":0}` {
		t.Errorf("a point of unknown time is %s, %v", text, err)
	}
}

func TestRecentJobs(t *testing.T) {
	var jobs []scheduler.Outcome
	for i := range 12 {
		began := stored.Noon.Add(time.Duration(i) * time.Minute)
		jobs = append(jobs, scheduler.Outcome{
			Job: scheduler.JobPrune, Repository: fmt.Sprint("r", i), Began: began, Ended: began.Add(time.Second), Verdict: scheduler.Failed,
			Message: strings.Repeat("no route ", 1000),
		})
	}
	jobs[11].Ended, jobs[11].Verdict, jobs[11].Message = time.Time{}, "", ""
	b := scheduled("payments", "etcd")
	describe(b, scheduler.Status{Jobs: jobs}, stored.Noon)
	got := b.Status.Recent
	if len(got) != 10 || got[0].Repository != "r11" || got[0].Ended != nil || got[0].Verdict != "" || got[9].Repository != "r2" {
		t.Fatalf("%+v", got)
	}
	one := got[1]
	if one.Job != "prune" || !one.Ended.Time.Equal(stored.Noon.Add(10*time.Minute+time.Second)) || one.Verdict != "failed" || len(one.Message) > maxNote {
		t.Errorf("%+v", one)
	}
}

// TestAGrowingLogChangesTheStatusOnceAMinute confirms a new moment each second.
func TestAGrowingLogChangesTheStatusOnceAMinute(t *testing.T) {
	b := scheduled("payments", "etcd")
	changes := 0
	for second := range 600 {
		before := b.DeepCopy()
		now := stored.Noon.Add(time.Duration(second) * time.Second)
		describe(b, scheduler.Status{Last: taken(), Archive: &archive.Status{ConfirmedAt: now}, Standings: []scheduler.Standing{{}}}, now)
		if !equality.Semantic.DeepEqual(before.Status, b.Status) {
			changes++
		}
	}
	if changes != 10 {
		t.Errorf("the status changed %d times in 10 minutes, want 10", changes)
	}
}

func TestAccepted(t *testing.T) {
	b := scheduled("payments", "etcd")
	setAccepted(b, acceptance{reasonInvalid, "spec.timeout: bad"})
	c := b.Status.Conditions[0]
	if c.Status != "False" || c.Reason != "Invalid" || c.Message != "spec.timeout: bad" || b.Status.ObservedGeneration != b.Generation {
		t.Errorf("%+v", c)
	}
	setAccepted(b, acceptance{reasonInvalid, ""})
	c = b.Status.Conditions[0]
	if len(b.Status.Conditions) != 1 || c.Status != "True" || c.Reason != "Accepted" {
		t.Errorf("%+v", b.Status.Conditions)
	}
}

func TestAttemptOf(t *testing.T) {
	outcome := func(reason string, v scheduler.Verdict) scheduler.Outcome {
		o := scheduler.Outcome{Job: scheduler.JobBackup, Reason: reason, Verdict: v}
		if v != "" {
			o.Ended = stored.Noon
		}
		return o
	}
	prune := scheduler.Outcome{Job: scheduler.JobPrune, Repository: "main", Reason: "mine"}
	const mine, other = "mine", "scheduled"
	for name, test := range map[string]struct {
		state scheduler.State
		jobs  []scheduler.Outcome
		want  attempt
	}{
		"nothing is known":                     {scheduler.Idle, nil, unknown},
		"it is queued":                         {scheduler.Queued, nil, waiting},
		"another runs":                         {scheduler.Running, []scheduler.Outcome{outcome(other, "")}, waiting},
		"another runs after another":           {scheduler.Running, []scheduler.Outcome{outcome(other, scheduler.Succeeded), outcome(other, "")}, waiting},
		"it runs":                              {scheduler.Running, []scheduler.Outcome{prune, outcome(mine, "")}, running},
		"it runs after another":                {scheduler.Running, []scheduler.Outcome{outcome(other, scheduler.Succeeded), outcome(mine, "")}, running},
		"it is queued after another":           {scheduler.Queued, []scheduler.Outcome{outcome(other, scheduler.Succeeded)}, waiting},
		"another has ended":                    {scheduler.Idle, []scheduler.Outcome{outcome(other, scheduler.Failed)}, unknown},
		"it has succeeded":                     {scheduler.Idle, []scheduler.Outcome{outcome(mine, scheduler.Succeeded)}, succeeded},
		"it has succeeded, and another runs":   {scheduler.Running, []scheduler.Outcome{outcome(mine, scheduler.Succeeded), outcome(other, "")}, succeeded},
		"it has failed":                        {scheduler.Failing, []scheduler.Outcome{outcome(mine, scheduler.Failed)}, failed},
		"it was not run, and may be run again": {scheduler.Idle, []scheduler.Outcome{outcome(mine, scheduler.NotRun)}, unknown},
	} {
		got, _ := attemptOf(scheduler.Status{State: test.state, Jobs: test.jobs}, mine)
		if got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestEnd(t *testing.T) {
	for _, test := range []struct {
		stands       attempt
		message      string
		phase        v1alpha1.Phase
		phaseMessage string
	}{
		{succeeded, "another service took it", v1alpha1.PhaseCompleted, ""},
		{failed, "no route", v1alpha1.PhaseFailed, "no route"},
		{failed, "", v1alpha1.PhaseFailed, "the backup failed"},
	} {
		b := scheduled("payments", "etcd")
		b.Status.Message = "waits for its turn"
		end(b, test.stands, scheduler.Outcome{Message: test.message, Backup: stored.IDAt(3)})
		if b.Status.Phase != test.phase || b.Status.Message != test.phaseMessage {
			t.Errorf("%+v: %s %q", test, b.Status.Phase, b.Status.Message)
		}
		named := b.Status.Last != nil && b.Status.Last.ID == string(stored.IDAt(3)) && b.Status.Last.Revision == 1003
		if named != (test.stands == succeeded) {
			t.Errorf("%+v: the last backup is %+v", test, b.Status.Last)
		}
	}
}

// An operator that has just started knows nothing of the repositories yet: what the one before found stays.
func TestFindingsStayUntilTheRepositoriesAreSurveyed(t *testing.T) {
	late := condition.Condition{Name: condition.BackupLate, Severity: condition.Critical, Message: "a day old", Cure: "look"}
	known := scheduler.Status{State: scheduler.Idle, Last: taken(), Conditions: []condition.Condition{late}, Standings: []scheduler.Standing{{Repository: "main"}}}
	b := scheduled("payments", "etcd")
	describe(b, known, stored.Noon)
	before := b.DeepCopy()
	describe(b, scheduler.Status{State: scheduler.Starting}, stored.Noon)
	if len(b.Status.Findings) != 1 || len(eventsOf(before, b)) != 0 {
		t.Errorf("after a restart the findings are %+v", b.Status.Findings)
	}
	known.Conditions = nil
	describe(b, known, stored.Noon)
	if len(b.Status.Findings) != 0 {
		t.Errorf("after the survey the findings are %+v", b.Status.Findings)
	}
}

func TestProven(t *testing.T) {
	failed := condition.Condition{Name: condition.DrillFailed, Severity: condition.Critical, Message: "the keys are missing", Cure: "look"}
	for name, test := range map[string]struct {
		status scheduler.Status
		want   string
	}{
		"never":  {scheduler.Status{Last: taken()}, "Unknown NotVerified: no backup has been verified yet: set spec.drill, or run dr verify or dr drill"},
		"lately": {scheduler.Status{Last: taken(), Standings: []scheduler.Standing{{}, {Verified: stored.Noon}}}, "True Verified: a backup was verified at 2026-11-21T12:00:00Z"},
		"a failed drill": {
			scheduler.Status{Last: taken(), Standings: []scheduler.Standing{{Drilled: stored.Noon}}, Conditions: []condition.Condition{failed}},
			"False DrillFailed: the keys are missing; look",
		},
	} {
		b := scheduled("payments", "etcd")
		describe(b, test.status, stored.Noon)
		c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionProven)
		got := string(c.Status) + " " + c.Reason + ": " + c.Message
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
