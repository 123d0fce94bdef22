package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/schedules"
)

// observed returns a cluster that is surveyed every ten minutes, and accepts the conditions that hold in these tests.
func observed(t *testing.T, cluster, cron string, repositories ...string) spec.Spec {
	s := specOf(t, cluster, cron, repositories...)
	s.Observe, s.Backup.MaxStream = 10*time.Minute, 5*time.Minute
	s.Conditions.Accept = []condition.Name{condition.NotEncrypted, condition.NotLocked, condition.NotSigned}
	return s
}

// watch records the changes that a service passes to Tell.
type watch struct {
	mu   sync.Mutex
	told []condition.Change
}

func (w *watch) tell(c condition.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, c)
}

// take returns the changes since the last call, in a form such as "begins NoBackup main".
func (w *watch) take() (told []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.told {
		told = append(told, strings.TrimSpace(fmt.Sprint(c.State, " ", c.Name, " ", c.Repository)))
	}
	w.told = nil
	return told
}

func names(conditions []condition.Condition) (names []condition.Name) {
	for _, c := range conditions {
		names = append(names, c.Name)
	}
	return names
}

func TestServiceObserves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		told := &watch{}
		s := w.start("a", configOf(observed(t, "prod", "0 * * * *", "main", "offsite")), func(s *scheduler.Service) { s.Tell = told.tell })
		w.pass(time.Minute)
		got := s.status(t, "prod")
		if len(got.Standings) != 2 || got.Standings[0].Good == nil || got.Standings[1].Backups != 1 || len(got.Conditions) != 0 {
			t.Fatalf("after the first backup: %+v", got)
		}
		due := got.Standings[0].Due
		if !due.Equal(w.begin.Add(time.Hour)) {
			t.Errorf("the next is due at %s", due)
		}
		w.set(func() { w.broken = func(spec.Spec) error { return errTest } })
		w.pass(at(0, "1h4m"))
		raised := names(s.status(t, "prod").Conditions)
		if !slices.Equal(raised, []condition.Name{condition.BackupFailing}) {
			t.Errorf("soon after it is broken: %v", raised)
		}
		w.pass(20 * time.Minute)
		want := []condition.Name{condition.BackupLate, condition.BackupLate, condition.BackupFailing}
		got = s.status(t, "prod")
		if !slices.Equal(names(got.Conditions), want) || got.Conditions[0].Since.Before(w.begin.Add(at(0, "1h5m"))) {
			t.Errorf("when it is late: %+v", got.Conditions)
		}
		events, wantEvents := told.take(), []string{"begins BackupFailing", "begins BackupLate main", "begins BackupLate offsite"}
		if !slices.Equal(events, wantEvents) {
			t.Errorf("told %q, want %q", events, wantEvents)
		}
		w.set(func() { w.broken = nil })
		w.pass(time.Hour)
		after := s.status(t, "prod").Conditions
		if len(after) != 0 {
			t.Errorf("after it is mended: %+v", after)
		}
		events, wantEvents = told.take(), []string{"ends BackupLate main", "ends BackupLate offsite", "ends BackupFailing"}
		if !slices.Equal(events, wantEvents) {
			t.Errorf("told %q, want %q", events, wantEvents)
		}
		if !s.reported("prod: BackupLate (critical): ") || !s.reported("prod: BackupLate has ended") {
			t.Errorf("said %q", s.said)
		}
	})
}

// A service does not report the end of conditions that ended while none ran. The next service sends all current conditions
// once, so that a receiver can end the others. It waits until all repositories have answered, since before it does not know
// the current conditions.
func TestServiceReportsEachConditionOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		settings := observed(t, "prod", "0 * * * *", "main")
		settings.Conditions.Accept = []condition.Name{condition.NotEncrypted}
		told := &watch{}
		first := w.start("a", configOf(settings), func(s *scheduler.Service) { s.Tell = told.tell })
		w.pass(time.Minute)
		w.set(func() { w.broken = func(spec.Spec) error { return errTest } })
		w.pass(3 * time.Hour)
		first.end()
		got := told.take()
		if !slices.Contains(got, "begins BackupLate main") {
			t.Fatalf("told %q", got)
		}
		w.set(func() { w.broken = nil })
		away := w.stores["main"].On(storagetest.VerbList).Always().Fail(errTest)
		var current []condition.Current
		second := w.start("b", configOf(settings), func(s *scheduler.Service) {
			s.TellCurrent = func(c condition.Current) { current = append(current, c) }
		})
		w.pass(time.Hour)
		if len(current) != 0 {
			t.Errorf("before the repository has answered: %+v", current)
		}
		away.Times(0)
		w.pass(3 * time.Hour)
		if len(current) != 1 || current[0].Cluster != "prod" || current[0].State != condition.Holds ||
			!slices.Equal(names(current[0].Conditions), []condition.Name{condition.NotLocked}) {
			t.Errorf("current: %+v, %+v", current, second.status(t, "prod").Conditions)
		}
	})
}

// A survey follows each backup, also one that another service has taken.
func TestServiceObservesBackupsOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		prod := observed(t, "prod", "0 * * * *", "main")
		prod.Observe = 24 * time.Hour
		a, b := w.start("a", configOf(prod)), w.start("b", configOf(prod))
		w.pass(at(0, "3h5m"))
		for name, s := range map[string]*service{"a": a, "b": b} {
			got := s.status(t, "prod")
			if got.Standings[0].Good.ID != got.Last.ID || got.Last.Started.Before(w.begin.Add(at(0, "3h"))) {
				t.Errorf("%s: the newest backup is %s, the survey's newest is %s", name, got.Last.ID, got.Standings[0].Good.ID)
			}
		}
	})
}

// A survey follows each drill, also one that another service has run: the service that shows the status must not be hours late.
func TestServiceObservesDrillsOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		prod := withDrills(t, observed(t, "prod", "@daily", "main"), "0 * * * *")
		prod.Observe = 24 * time.Hour
		a, b := w.start("a", configOf(prod)), w.start("b", configOf(prod))
		w.pass(at(0, "3h5m"))
		for name, s := range map[string]*service{"a": a, "b": b} {
			good := s.status(t, "prod").Standings[0].Good
			if good.Proven != catalog.Booted || good.ProvenAt.Before(w.begin.Add(at(0, "3h"))) {
				t.Errorf("%s: the newest backup is %s since %s", name, good.Proven, good.ProvenAt)
			}
		}
	})
}

// A store that is unreachable for a moment causes no condition. One that stays unreachable does, and keeps its last standing.
func TestServiceObservesAnUnreachableStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		told := &watch{}
		s := w.start("a", configOf(observed(t, "prod", "@daily", "main")), func(s *scheduler.Service) { s.Tell = told.tell })
		w.pass(time.Minute)
		w.stores["main"].On(storagetest.VerbList).Fail(errTest)
		w.pass(30 * time.Minute)
		events := told.take()
		if len(events) != 0 {
			t.Errorf("after a moment: %q", events)
		}
		w.stores["main"].On(storagetest.VerbList).Times(-1).Fail(errTest)
		w.pass(30 * time.Minute)
		got := s.status(t, "prod")
		if !slices.Equal(names(got.Conditions), []condition.Name{condition.RepositoryAway}) || got.Standings[0].Good == nil ||
			!strings.Contains(got.Standings[0].Problem, errTest.Error()) {
			t.Errorf("while it is away: %+v", got)
		}
		c := told.told
		if len(c) != 1 || c[0].Time.Sub(c[0].Since) > 2*condition.Settle {
			t.Errorf("it is looked at again soon to see whether it stays: %+v", c)
		}
		events, wantEvents := told.take(), []string{"begins RepositoryAway main"}
		if !slices.Equal(events, wantEvents) {
			t.Errorf("told %q, want %q", events, wantEvents)
		}
	})
}

// Clusters are observed independently of each other: one that hangs delays no backup, and no status of the repositories.
func TestServiceObservesAClusterThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(observed(t, "prod", "*/10 * * * *", "main"), observed(t, "test", "@daily", "main")), func(s *scheduler.Service) {
			s.Check = func(ctx context.Context, spec spec.Spec) []check.Line {
				if spec.Cluster == "prod" {
					<-ctx.Done()
				}
				return []check.Line{{Name: "alarms", Verdict: check.Wanting, Seen: "alarms: NOSPACE", Cure: "defragment"}}
			}
		})
		w.pass(30 * time.Second)
		prod, test := s.status(t, "prod"), s.status(t, "test")
		if len(prod.Standings) != 1 || prod.Standings[0].Good == nil || len(prod.Conditions) != 0 {
			t.Errorf("prod, which hangs: %+v", prod)
		}
		got := test.Conditions
		if len(got) != 1 || got[0].Name != condition.AlarmRaised || got[0].Cure != "defragment" {
			t.Errorf("test: %+v", got)
		}
		w.pass(2 * time.Hour)
		raised := names(s.status(t, "prod").Conditions)
		if !slices.Equal(raised, []condition.Name{condition.AlarmRaised}) || len(w.times("prod")) != 13 {
			t.Errorf("later, with %d backups: %v", len(w.times("prod")), raised)
		}
	})
}

// All that is asked of the outside at once is bounded, however many clusters there are.
func TestServiceObservesFewAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var specs []spec.Spec
		for i := range 100 {
			specs = append(specs, observed(t, fmt.Sprint("c", i), "@daily", "main"))
		}
		var mu sync.Mutex
		now, most, all := 0, 0, 0
		count := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			now += by
			most, all = max(most, now), all+max(by, 0)
		}
		s := w.start("a", configOf(specs...), func(s *scheduler.Service) {
			s.Check = func(context.Context, spec.Spec) []check.Line {
				count(1)
				defer count(-1)
				time.Sleep(10 * time.Second)
				return nil
			}
		})
		w.pass(10 * time.Minute)
		if most != 16 || all < len(specs) {
			t.Errorf("%d checks, %d at once", all, most)
		}
		err := s.Healthy(time.Now())
		if err != nil {
			t.Error(err)
		}
	})
}

// A drill that did not come is missed, and its proof ends that.
func TestServiceMissesADrill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		settings := observed(t, "prod", "@daily", "main")
		settings.Timeout = 48 * time.Hour
		settings.Drill = spec.Drill{Schedule: schedules.Parse(t, "0 12 * * *", "UTC"), Repository: "main"}
		s := w.start("a", configOf(settings), func(s *scheduler.Service) {
			s.Drill = func(ctx context.Context, _ scheduler.DrillRequest, _ storage.Report) ([]catalog.Proof, error) {
				<-ctx.Done() // it hangs
				return nil, context.Cause(ctx)
			}
		})
		w.pass(at(0, "17h"))
		got := s.status(t, "prod").Conditions
		if len(got) != 0 {
			t.Errorf("before it is late: %+v", got)
		}
		w.pass(at(0, "2h"))
		raised := names(s.status(t, "prod").Conditions)
		if !slices.Equal(raised, []condition.Name{condition.DrillNotRun}) {
			t.Errorf("when none came: %v", raised)
		}
		c, err := repository.Open(w.stores["main"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		proof := catalog.Proof{
			Backup: s.status(t, "prod").Last.ID, Level: catalog.Booted, Verdict: catalog.Failed, Finding: "a segment is missing",
			Time: time.Now(), Drill: &catalog.Drill{Target: "latest"},
		}
		err = c.Append(t.Context(), proof)
		if err != nil {
			t.Fatal(err)
		}
		w.pass(11 * time.Minute)
		got = s.status(t, "prod").Conditions
		if !slices.Equal(names(got), []condition.Name{condition.DrillFailed}) || !strings.Contains(got[0].Message, "a segment is missing") {
			t.Errorf("after one that failed: %+v", got)
		}
	})
}

// The service is healthy while all clusters are surveyed in time and no condition is critical.
func TestServiceIsHealthy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(observed(t, "prod", "0 * * * *", "main")))
		w.pass(30 * time.Minute)
		err := s.Healthy(time.Now())
		if err != nil {
			t.Error(err)
		}
		w.set(func() { w.broken = func(spec.Spec) error { return errTest } })
		w.pass(time.Hour)
		err = s.Healthy(time.Now())
		if err == nil || !strings.Contains(err.Error(), "BackupLate") {
			t.Errorf("while no backup comes: %v", err)
		}
		s.end()
		err = s.Healthy(time.Now().Add(time.Hour))
		if err == nil || !strings.Contains(err.Error(), "no survey for") {
			t.Errorf("an hour after the last look: %v", err)
		}
	})
}

// The conditions of a removed cluster end, and that is reported. A service that ends reports nothing.
func TestServiceEndsConditionsOfRemovedClusters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		told := &watch{}
		w.broken = func(spec.Spec) error { return errTest }
		c := configOf(observed(t, "prod", "0 * * * *", "main"), observed(t, "test", "0 * * * *", "main"))
		s := w.start("a", c, func(s *scheduler.Service) { s.Tell = told.tell })
		w.pass(time.Hour)
		told.take()
		c.Specs = c.Specs[:1]
		s.changes <- c
		w.pass(time.Minute)
		got, want := told.take(), []string{"ends NoBackup main", "ends BackupFailing"}
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		s.end()
		got = told.take()
		if len(got) != 0 {
			t.Errorf("at the end: %q", got)
		}
	})
}

// The rules of conditions use the names of cluster.Check's lines.
func TestEachLineOfACheckIsJudged(t *testing.T) {
	lines := cluster.Check(t.Context(), cluster.Config{
		Endpoints: []string{"http://127.0.0.1:1"}, DialTimeout: 100 * time.Millisecond, CommandTimeout: 100 * time.Millisecond,
	}, cluster.CheckOptions{Now: time.Now()}, nil)
	var silent []string
	for _, l := range lines {
		l.Verdict = check.Wanting
		if len(condition.Judge(condition.Facts{Checks: []check.Line{l}}, time.Now())) == 0 {
			silent = append(silent, l.Name)
		}
	}
	want := []string{"one version", "users"}
	if !slices.Equal(silent, want) {
		t.Errorf("no condition comes of %q, want that of %q alone", silent, want)
	}
}

// Conditions cover the log that the service archives, from the start on.
func TestServiceObservesItsLog(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := observed(t, "prod", "@hourly", "main")
		spec.Archive.Flush = time.Second
		logs := &fakeArchive{broken: errTest}
		s := w.start("a", configOf(spec), func(s *scheduler.Service) { s.Archive = logs.run })
		w.pass(4 * time.Minute)
		got := s.status(t, "prod").Conditions
		if len(got) != 0 {
			t.Errorf("at the beginning: %+v", got)
		}
		w.pass(20 * time.Minute)
		got = s.status(t, "prod").Conditions
		if !slices.Equal(names(got), []condition.Name{condition.LogLagging}) || !strings.Contains(got[0].Message, errTest.Error()) {
			t.Errorf("while nothing is archived: %+v", got)
		}
	})
}

// A gap that the service's agent has recorded is a condition before the log has it, until there is a backup: while the cluster is
// suspended none is taken, and while nothing is written no segment names the gap.
func TestServiceObservesAGapBeforeTheLogHasIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := observed(t, "prod", "@daily", "main")
		spec.Archive.Flush = time.Second
		logs := &fakeArchive{}
		s := w.start("a", configOf(spec), func(s *scheduler.Service) { s.Archive = logs.run })
		w.pass(time.Minute)
		s.suspend(t, "prod")
		gap := archive.Status{State: archive.Waiting, Cluster: "prod", Gaps: 1, LastGap: time.Now(), GapReason: "the cluster has compacted the revisions 57 to 58"}
		logs.set(func() { logs.observe(gap) })
		w.pass(11 * time.Minute)
		got := s.status(t, "prod").Conditions
		i := slices.IndexFunc(got, func(c condition.Condition) bool { return c.Name == condition.LogGap })
		if i < 0 || got[i].Repository != "main" || !strings.Contains(got[i].Message, gap.GapReason) {
			t.Errorf("after the gap: %+v", got)
		}
		gap.GapReason = ""
		logs.set(func() { logs.observe(gap) })
		w.pass(11 * time.Minute)
		got = s.status(t, "prod").Conditions
		if slices.Contains(names(got), condition.LogGap) {
			t.Errorf("after a backup: %+v", got)
		}
	})
}

// A suspended cluster is observed as well, whatever its name: the heartbeat waits for each cluster.
func TestServiceObservesSuspendedClusters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var specs []spec.Spec
		for i := range 200 {
			spec := observed(t, fmt.Sprintf("c%02d", i), "@daily", "main")
			spec.Suspend = true
			specs = append(specs, spec)
		}
		s := w.start("a", configOf(specs...))
		w.pass(5 * time.Minute)
		for _, one := range s.Status() {
			if len(one.Standings) != 1 {
				t.Errorf("%s was not looked at", one.Cluster)
			}
		}
	})
}

// A store that hangs delays no other: backups that are in time are reported so.
func TestServiceObservesWhileAStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(observed(t, "prod", "@daily", "main", "offsite")))
		w.pass(5 * time.Minute)
		w.stores["main"].On(storagetest.VerbList).Always().Delay(time.Hour).Fail(errTest)
		w.pass(30 * time.Minute)
		got := s.status(t, "prod")
		if !slices.Equal(names(got.Conditions), []condition.Name{condition.RepositoryAway}) || got.Conditions[0].Repository != "main" ||
			got.Conditions[0].Severity != condition.Warning {
			t.Errorf("%+v", got.Conditions)
		}
	})
}

// The conditions of a cluster that is no longer observed end.
func TestServiceObservesNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		told := &watch{}
		w.broken = func(spec.Spec) error { return errTest }
		spec := observed(t, "prod", "@daily", "main")
		s := w.start("a", configOf(spec), func(s *scheduler.Service) { s.Tell = told.tell })
		w.pass(30 * time.Minute)
		spec.Observe, spec.Digest = 0, "another"
		s.changes <- configOf(spec)
		w.pass(time.Minute)
		got := s.status(t, "prod")
		if len(got.Conditions)+len(got.Standings) != 0 {
			t.Errorf("%+v", got)
		}
		events := told.take()
		if !slices.Contains(events, "begins NoBackup main") || !slices.Contains(events, "ends NoBackup main") {
			t.Errorf("told %q", events)
		}
	})
}

// A backup and the pruning after it are two jobs that end, but cause one survey.
func TestServiceLooksOnceAfterABackup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := observed(t, "prod", "0 * * * *", "main")
		spec.Observe, spec.Retention.Last = 100*time.Hour, 3
		w.start("a", configOf(spec))
		w.pass(at(0, "30m"))
		pruned, lists := len(w.pruned), w.stores["main"].Calls(storagetest.VerbList)
		w.pass(at(0, "10h"))
		pruned, lists = len(w.pruned)-pruned, w.stores["main"].Calls(storagetest.VerbList)-lists
		if pruned != 10 || lists != 4*pruned {
			t.Errorf("%d listings for %d backups that were followed by pruning, want four each: whether another has taken it "+
				"and the newest is signed, a free name, the backups and the log", lists, pruned)
		}
	})
}

// A survey does not read documents again that an earlier one has read, except after a few hours and after a change of the Spec.
func TestServiceReadsNothingTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := observed(t, "prod", "@yearly", "main", "offsite")
		s := w.start("a", configOf(spec))
		w.pass(time.Hour)
		offsite := w.stores["offsite"]
		looks := func(d time.Duration) (lists, reads int) {
			lists, reads = -offsite.Calls(storagetest.VerbList), -offsite.Calls(storagetest.VerbOpen)
			w.pass(d)
			return lists + offsite.Calls(storagetest.VerbList), reads + offsite.Calls(storagetest.VerbOpen)
		}
		lists, reads := looks(4 * time.Hour)
		if lists < 2*20 || reads > 0 {
			t.Errorf("%d listings and %d reads in four hours", lists, reads)
		}
		_, reads = looks(12 * time.Hour)
		if reads != 2 {
			t.Errorf("%d reads of the one backup in twelve hours, want one every six", reads)
		}
		spec.Digest = "another"
		s.changes <- configOf(spec)
		_, reads = looks(time.Minute)
		if reads < 1 {
			t.Error("with another configuration nothing is read")
		}
		for o, err := range offsite.List(t.Context(), storage.ListOptions{Prefix: "prod/backups/"}) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(o.Key, "manifest.json") {
				_, err := offsite.Put(t.Context(), o.Key, strings.NewReader("junk"), storage.PutOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		w.pass(15 * time.Minute)
		got := s.status(t, "prod").Standings
		if got[0].Damaged != 0 || got[1].Damaged != 1 {
			t.Errorf("after one was overwritten: %+v", got)
		}
	})
}

// A cluster with an invalid configuration is reported with the others: with its earlier configuration, or without one.
func TestServiceReportsAFaultyConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		told := &watch{}
		c := configOf(observed(t, "prod", "@daily", "main"))
		c.Faulty = map[string]string{"new": "dr.yaml:9: unknown key"}
		s := w.start("a", c, func(s *scheduler.Service) { s.Tell = told.tell })
		w.pass(5 * time.Minute)
		added := s.status(t, "new")
		if added.State != scheduler.Failing || added.Problem != c.Faulty["new"] || len(added.Conditions) != 1 ||
			added.Conditions[0].Name != condition.ConfigRefused || added.Conditions[0].Severity != condition.Critical || added.Standings == nil {
			t.Errorf("the one that was never in effect: %+v", added)
		}
		err := s.Healthy(time.Now())
		if err == nil || !strings.Contains(err.Error(), "ConfigRefused") {
			t.Errorf("healthy: %v", err)
		}
		got, want := told.take(), []string{"begins ConfigRefused"}
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		good := configOf(observed(t, "prod", "@daily", "main"), observed(t, "new", "@daily", "main"))
		s.changes <- good
		w.pass(5 * time.Minute)
		added = s.status(t, "new")
		if added.State != scheduler.Idle || len(added.Conditions) != 0 || len(s.Status()) != 2 {
			t.Errorf("put right: %+v", added)
		}
		got, want = told.take(), []string{"ends ConfigRefused"}
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		good.Faulty = map[string]string{"prod": "dr.yaml:5: unknown key"}
		s.changes <- good
		w.pass(5 * time.Minute)
		prod := s.status(t, "prod")
		if prod.State != scheduler.Idle || len(prod.Conditions) != 1 || prod.Conditions[0].Severity != condition.Warning ||
			!strings.Contains(prod.Conditions[0].Message, "stay in effect: dr.yaml:5: unknown key") {
			t.Errorf("the one that was in effect: %+v", prod)
		}
		got, want = told.take(), []string{"begins ConfigRefused"}
		if !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}
