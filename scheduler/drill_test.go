package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/schedules"
)

// drills configures the drills of a world, and records them.
type drills struct {
	took    time.Duration
	hang    map[string]bool                 // by cluster: they take until their time limit
	frees   time.Duration                   // after which a drill gives its turn back; 0: at its end
	most    int                             // that may have a turn at once; 0: one
	verdict func(by string) catalog.Verdict // nil: they pass
	err     error                           // returned with the proofs
	silent  bool                            // they leave no proof
	ahead   time.Duration                   // of the clock that the next one is run by
	running int                             // with a turn
	ran     []drilled
}

// drilled is a drill that has ended.
type drilled struct {
	at      time.Duration // since the world began
	by      string        // service
	cluster string
	in      string
	seed    uint64
	err     error
}

// drill appends a proof to the newest backup when its time has passed, as verify.Drill would.
func (w *world) drill(ctx context.Context, by string, r scheduler.DrillRequest) (proofs []catalog.Proof, err error) {
	began := time.Now()
	took, frees := w.beginDrill(r.Spec)
	gone := sync.OnceFunc(func() { w.set(func() { w.drills.running-- }) })
	defer func() {
		gone()
		w.set(func() {
			w.drills.ran = append(w.drills.ran, drilled{began.Sub(w.begin), by, r.Spec.Cluster, r.In.Repository, r.Seed, err})
		})
	}()
	if frees > 0 && frees < took {
		defer time.AfterFunc(frees, func() { gone(); r.Free() }).Stop()
	}
	err = pause(ctx, took)
	if err != nil {
		return nil, err
	}
	catalog, err := r.In.Cluster.Load(ctx, backups.LoadOptions{Newest: 1})
	if err != nil {
		return nil, err
	}
	newest, err := catalog.Latest()
	if err != nil {
		return nil, err
	}
	return w.proven(ctx, by, r.In, newest.ID, began)
}

// beginDrill counts a drill that begins. It returns how long the drill takes, and after which time it gives its turn back.
func (w *world) beginDrill(s spec.Spec) (took, frees time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drills.running++
	if w.drills.running > max(1, w.drills.most) {
		w.t.Errorf("%d drills at once", w.drills.running)
	}
	if w.drills.hang[s.Cluster] {
		return 2 * s.Timeout, w.drills.frees
	}
	return w.drills.took, w.drills.frees
}

func (w *world) proven(ctx context.Context, by string, in backup.Store, id catalog.ID, began time.Time) ([]catalog.Proof, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.drills.silent {
		return nil, w.drills.err
	}
	p := catalog.Proof{
		Format: catalog.Proofs.Format, Backup: id, Level: catalog.Booted, Verdict: catalog.Passed, Time: began.Add(w.drills.ahead).UTC(), By: by,
		Drill: &catalog.Drill{Target: "the newest backup", RTO: 2},
	}
	w.drills.ahead = 0
	if w.drills.verdict != nil {
		p.Verdict = w.drills.verdict(by)
	}
	if p.Verdict != catalog.Passed {
		p.Finding = "as the test wants it"
	}
	return []catalog.Proof{p}, errors.Join(w.drills.err, in.Cluster.Append(ctx, p))
}

// drilledAt returns the start times of the drills of cluster.
func (w *world) drilledAt(cluster string) (times []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.drills.ran {
		if d.cluster == cluster {
			times = append(times, d.at)
		}
	}
	return times
}

func (w *world) wantDrills(cluster string, want ...time.Duration) {
	w.t.Helper()
	got := w.drilledAt(cluster)
	if !slices.EqualFunc(got, want, func(a, b time.Duration) bool { return a >= b && a < b+2*time.Minute }) {
		w.t.Errorf("%s was drilled at %v, want %v", cluster, got, want)
	}
}

func withDrills(t *testing.T, s spec.Spec, cron string) spec.Spec {
	t.Helper()
	s.Drill.Repository = s.Repositories[0].Name
	if cron != "" {
		s.Drill.Schedule = schedules.Parse(t, cron, "UTC")
	}
	s.Digest += cron
	return s
}

func TestDrills(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.took = time.Minute
		s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "0 * * * *", "main", "offsite"), "30 4 * * *"), specOf(t, "test", "@daily", "main")))
		w.pass(at(2, "5h"))
		w.wantDrills("prod", 0, at(0, "4h30m"), at(1, "4h30m"), at(2, "4h30m"))
		w.wantDrills("test")
		s.wantOutcome(t, "prod", scheduler.JobDrill, scheduler.Succeeded, "scheduled for 2000-01-03T04:30:00Z", "")
		got := s.status(t, "prod")
		o := s.outcome(t, "prod", scheduler.JobDrill)
		if !got.NextDrill.Equal(w.begin.Add(at(3, "4h30m"))) || o.RTO != 2 || o.Repository != "main" ||
			o.Backup == "" || counted(got, scheduler.JobDrill, scheduler.Succeeded) != 4 {
			t.Errorf("status %+v", got)
		}
		a, b := w.drills.ran[0], w.drills.ran[1]
		if a.in != "main" || a.seed == b.seed || a.seed > 1<<32 {
			t.Errorf("drilled %+v", w.drills.ran)
		}
		if len(w.times("prod")) != 53 {
			t.Errorf("%d backups in 53 hours", len(w.times("prod")))
		}
	})
}

// A service that starts removes the scratch directories of drills that crashed with their host, long before the next drill. It
// keeps those of running processes, and directories that are not dr's.
func TestDrillsThatWentDownWithTheirHost(t *testing.T) {
	dir := t.TempDir()
	live, err := child.NewDir(dir, "verify")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Remove()
	abandoned := filepath.Join(dir, "dr-scratch-verify-77")
	for _, file := range []string{"dr-scratch-verify-77/lock", "dr-scratch-verify-77/m1/member/snap/db", "dr-scratch-verify-78/db", "etcd/lock"} {
		path := filepath.Join(dir, file)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err != nil {
			t.Fatal(err)
		}
		err = os.WriteFile(path, []byte("secret"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	bubble(t, func(t *testing.T, w *world) {
		spec := withDrills(t, specOf(t, "prod", "@daily", "main"), "@monthly")
		spec.Drill.Dir = dir
		w.start("a", configOf(spec))
		w.pass(0)
		_, err := os.Stat(abandoned)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what a drill left is there: %v", err)
		}
		for _, path := range []string{live.Path, filepath.Join(dir, "dr-scratch-verify-78/db"), filepath.Join(dir, "etcd/lock")} {
			_, err := os.Stat(path)
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// One drill catches up on all missed slots, and a service without state knows when the last one was.
// A service without a Drill function leaves drills to others.
func TestDrillsWithoutAnyWay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := configOf(withDrills(t, specOf(t, "prod", "0 * * * *", "main"), "30 4 * * *"))
		s := w.start("a", c, func(s *scheduler.Service) { s.Drill = nil })
		w.pass(at(1, "5h"))
		err := s.Trigger("prod", scheduler.JobDrill, "now")
		if !errors.Is(err, scheduler.ErrNotPossible) {
			t.Errorf("a drill on demand: %v", err)
		}
		w.wantDrills("prod")
	})
}

func TestDrillsCatchUpOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "30 4 * * *"))
		first := w.start("a", c)
		w.pass(at(0, "5h"))
		first.end()
		second := w.start("b", c)
		w.pass(at(0, "1h"))
		second.end()
		w.wantDrills("prod", 0, at(0, "4h30m"))
		w.pass(at(5, "0h"))
		w.start("c", c)
		w.pass(at(1, "0h"))
		w.wantDrills("prod", 0, at(0, "4h30m"), at(5, "6h"), at(6, "4h30m"))
	})
}

// Two services drill each slot once, while either or both run, and each drills one cluster at a time.
func TestDrillsOfTwoServices(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.took = 10 * time.Minute
		c := configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "0 * * * *"))
		a, b := w.start("a", c), w.start("b", c)
		w.pass(at(0, "3h30m"))
		a.end()
		w.pass(at(0, "2h"))
		w.start("a", c)
		w.pass(at(0, "1h"))
		b.end()
		w.pass(at(0, "2h"))
		w.wantDrills("prod", 0, at(0, "1h"), at(0, "2h"), at(0, "3h"), at(0, "4h"), at(0, "5h"), at(0, "6h"), at(0, "7h"), at(0, "8h"))
	})
}

// One drill at a time, and no backup waits for any.
func TestDrillsKeepNothingWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.took = 50 * time.Minute
		c := configOf()
		for _, cluster := range []string{"c1", "c2", "c3"} {
			c.Specs = append(c.Specs, withDrills(t, specOf(t, cluster, "*/10 * * * *", "main"), "@daily"))
		}
		c.Concurrency = 1
		s := w.start("a", c)
		w.pass(30 * time.Minute)
		running := 0
		for _, status := range s.Status() {
			for _, o := range status.Jobs {
				if o.Job == scheduler.JobDrill && o.Ended.IsZero() {
					running++
				}
			}
		}
		if running != 1 {
			t.Errorf("%d drills run: %+v", running, s.Status())
		}
		w.pass(at(0, "4h25m"))
		for _, spec := range c.Specs {
			n, m := len(w.times(spec.Cluster)), len(w.drilledAt(spec.Cluster))
			if n != 30 || m != 1 {
				t.Errorf("%s: %d backups, %d drills", spec.Cluster, n, m)
			}
		}
	})
}

// A failed drill is not retried before the next slot, even after a restart: it would only fail again.
func TestDrillsThatFail(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.verdict, w.drills.err = func(string) catalog.Verdict { return catalog.Failed }, catalog.ErrDamaged
		c := configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "@daily"))
		s := w.start("a", c)
		w.pass(at(0, "12h"))
		s.wantOutcome(t, "prod", scheduler.JobDrill, scheduler.Failed, "no drill has run yet", "as the test wants it")
		s.end()
		w.start("b", c)
		w.pass(at(0, "18h"))
		w.wantDrills("prod", 0, at(1, "0h"))
	})
}

// A drill that could not run is retried after growing waits, at the next slot at the latest, and never counts as passed.
func TestDrillsThatAreNotRun(t *testing.T) {
	for name, breaks := range map[string]func(*drills){
		"with a proof":      func(d *drills) { d.verdict = func(string) catalog.Verdict { return catalog.NotRun } },
		"without any":       func(d *drills) { d.silent = true },
		"with an error":     func(d *drills) { d.silent, d.err = true, errTest },
		"passed, unkept":    func(d *drills) { d.err = errTest },
		"the store is away": nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "@every 12h")))
				w.pass(at(0, "11h"))
				away := w.stores["main"].On(storagetest.VerbOpen)
				if breaks == nil {
					away.Always().Fail(errTest)
				} else {
					w.set(func() { breaks(&w.drills) })
				}
				w.pass(at(0, "11h"))
				got := s.outcome(t, "prod", scheduler.JobDrill)
				if got.Verdict != scheduler.NotRun || got.Message == "" {
					t.Errorf("%+v", got)
				}
				n := counted(s.status(t, "prod"), scheduler.JobDrill, scheduler.NotRun)
				if n < 5 || n > 12 {
					t.Errorf("%d tries in ten hours", n)
				}
				away.Times(0)
				w.set(func() { w.drills.silent, w.drills.err, w.drills.verdict = false, nil, nil })
				w.pass(at(0, "3h"))
				got = s.outcome(t, "prod", scheduler.JobDrill)
				if got.Verdict != scheduler.Succeeded || got.Began.After(w.begin.Add(at(1, "1m"))) {
					t.Errorf("the next slot's is %+v", got)
				}
			})
		})
	}
}

// A service whose host cannot run a drill leaves it to another.
func TestDrillsThatOnlyAnotherCanRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.verdict = func(by string) catalog.Verdict {
			if by == "a" {
				return catalog.NotRun
			}
			return catalog.Passed
		}
		c := configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "@daily"))
		w.start("a", c)
		w.pass(10 * time.Minute)
		tries := len(w.drills.ran)
		b := w.start("b", c)
		w.pass(time.Hour)
		b.wantOutcome(t, "prod", scheduler.JobDrill, scheduler.Succeeded, "the last one was not run", "")
		w.pass(at(0, "20h"))
		n := len(w.drills.ran)
		if tries < 2 || n > tries+2 {
			t.Errorf("%d tries, %d when another had run it", tries, n)
		}
	})
}

// part stores the proof of one of two restores of a drill by another host, which began ago.
func (w *world) part(t *testing.T, n int, v catalog.Verdict, ago time.Duration) {
	t.Helper()
	c, err := repository.Open(w.stores["main"], "prod")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := c.Load(t.Context(), backups.LoadOptions{Newest: 1})
	if err != nil || len(loaded.Backups) == 0 {
		t.Fatalf("no backup: %v", err)
	}
	err = c.Append(t.Context(), catalog.Proof{
		Format: catalog.Proofs.Format, Backup: loaded.Backups[0].ID, Level: catalog.Booted, Verdict: v, Finding: fmt.Sprint("part ", n, " ", v),
		Time: time.Now().Add(-ago).UTC(), By: "away, dr v1", Drill: &catalog.Drill{Target: "a point", Part: n, Parts: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A drill that has ended after the first of its two restores is run again, whether it was due or requested: its first proof proves half.
func TestDrillsThatWereInterrupted(t *testing.T) {
	c := func(t *testing.T, cron string) spec.Config {
		return configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), cron))
	}
	bubble(t, func(t *testing.T, w *world) {
		first := w.start("a", c(t, "@daily"))
		w.pass(time.Hour)
		first.end()
		w.pass(at(0, "23h30m"))
		w.part(t, 1, catalog.Passed, 10*time.Minute)
		b := w.start("b", c(t, "@daily"))
		w.pass(time.Hour)
		w.wantDrills("prod", 0, at(1, "30m"))
		b.wantOutcome(t, "prod", scheduler.JobDrill, scheduler.Succeeded, "the last one was not run", "")
	})
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", c(t, ""))
		w.pass(time.Hour)
		s.holdLease(t, w, time.Minute)
		s.trigger(t, "prod", scheduler.JobDrill, "now")
		w.pass(10 * time.Second)
		w.part(t, 1, catalog.Passed, 0)
		w.pass(time.Hour)
		w.wantDrills("prod", time.Hour)
	})
}

// holdLease holds the lease on drills of prod for a while, as another service that then dies.
func (s *service) holdLease(t *testing.T, w *world, ttl time.Duration) {
	t.Helper()
	c, err := repository.Open(w.stores["main"], "prod")
	if err != nil {
		t.Fatal(err)
	}
	_, held, err := c.Leases().Hold(t.Context(), "drill", "away", ttl)
	if err != nil || !held {
		t.Fatalf("held: %t, %v", held, err)
	}
}

// The verdict of another service's drill is that of all its restores.
func TestDrillsOfAnotherService(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "")))
		w.pass(time.Hour)
		s.holdLease(t, w, time.Minute)
		s.trigger(t, "prod", scheduler.JobDrill, "now")
		w.pass(10 * time.Second)
		w.part(t, 1, catalog.Failed, 0)
		w.pass(time.Second)
		w.part(t, 2, catalog.Passed, 0)
		w.pass(time.Hour)
		s.wantOutcome(t, "prod", scheduler.JobDrill, scheduler.Failed, "now", "part 1 failed")
		w.wantDrills("prod")
	})
}

// If no service can run a drill, the attempts of one do not make the others try more often.
func TestDrillsThatCannotRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.verdict = func(string) catalog.Verdict { return catalog.NotRun }
		c := configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "@weekly"))
		w.start("a", c)
		w.start("b", c)
		w.start("c", c)
		w.pass(at(2, "0h"))
		n := len(w.drills.ran)
		if n < 10 || n > 50 {
			t.Errorf("%d tries in two days", n)
		}
	})
}

// Without a backup there is nothing to drill; with the first one there is.
func TestDrillsWaitForABackup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.broken = func(spec.Spec) error { return errTest }
		s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "0 * * * *", "main"), "@weekly")))
		w.pass(time.Hour)
		got := s.status(t, "prod")
		if len(w.drills.ran) > 0 || counted(got, scheduler.JobDrill, scheduler.NotRun) > 0 || !got.NextDrill.IsZero() {
			t.Errorf("drilled %v, status %+v", w.drills.ran, got)
		}
		w.set(func() { w.broken = nil })
		w.pass(time.Hour)
		if len(w.drills.ran) != 1 || w.drills.ran[0].at > w.times("prod")[0]+10*time.Second {
			t.Errorf("drilled %+v, the first backup was taken at %v", w.drills.ran, w.times("prod")[0])
		}
	})
}

// A service on another host, which has the keys, can run only drills.
func TestDrillsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("vault", configOf(withDrills(t, specOf(t, "prod", "", "main"), "0 * * * *")))
		w.pass(time.Hour)
		got := s.status(t, "prod")
		if got.State != scheduler.Idle || len(w.taken) > 0 || len(w.drills.ran) > 0 {
			t.Errorf("status %+v, taken %v, drilled %v", got, w.taken, w.drills.ran)
		}
		w.start("a", configOf(specOf(t, "prod", "@weekly", "main")))
		w.pass(at(0, "2h30m"))
		if len(w.taken) != 1 || len(w.drills.ran) != 3 || w.drills.ran[2].by != "vault" {
			t.Errorf("taken %v, drilled %+v", w.taken, w.drills.ran)
		}
	})
}

func TestTriggerDrill(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.took = 10 * time.Minute
		s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "")))
		w.pass(time.Hour)
		w.wantDrills("prod")
		s.trigger(t, "prod", scheduler.JobDrill, "show me")
		w.pass(time.Minute)
		s.trigger(t, "prod", scheduler.JobDrill, "joins")
		w.pass(time.Hour)
		w.wantDrills("prod", time.Hour)
		s.wantOutcome(t, "prod", scheduler.JobDrill, scheduler.Succeeded, "show me", "")
		w.set(func() { w.drills.verdict = func(string) catalog.Verdict { return catalog.NotRun } })
		s.trigger(t, "prod", scheduler.JobDrill, "again")
		w.pass(at(1, "0h"))
		s.wantOutcome(t, "prod", scheduler.JobDrill, scheduler.NotRun, "again", "as the test wants it")
		n := len(w.drills.ran)
		if n != 2 {
			t.Errorf("%d drills", n)
		}
	})
}

// After a clock that was ahead during a drill is corrected, the next drill does not wait for the wrong time to come.
func TestDrillsAfterAWrongClock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.ahead = 365 * 24 * time.Hour
		w.start("a", configOf(withDrills(t, specOf(t, "prod", "@hourly", "main"), "0 12 * * *")))
		w.pass(at(1, "13h"))
		w.wantDrills("prod", 0, 0, at(0, "12h"), at(1, "12h"))
	})
}

func TestSuspendedDrills(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "0 * * * *")))
		w.pass(at(0, "30m"))
		s.suspend(t, "prod")
		w.pass(at(0, "5h"))
		w.wantDrills("prod", 0)
		err := s.Resume(t.Context(), "prod", "ops")
		if err != nil {
			t.Fatal(err)
		}
		w.pass(at(0, "45m"))
		w.wantDrills("prod", 0, at(0, "5h30m"), at(0, "6h"))
	})
}

// A drill that runs when the service must end is given up after the service's patience, and releases its lease.
func TestDrillEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.took = 10 * time.Hour
		s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "@daily")))
		w.pass(2 * time.Minute)
		stopped := time.Now()
		s.end()
		waited := time.Since(stopped)
		if waited > s.Patience+time.Second || len(w.drills.ran) != 1 || w.drills.ran[0].err == nil {
			t.Errorf("it ended after %v, drilled %+v", waited, w.drills.ran)
		}
		c, err := repository.Open(w.stores["main"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Leases().Live(t.Context(), "drill", time.Now())
		if l.Holder != "" || err != nil {
			t.Errorf("%q still has the lease: %v", l.Holder, err)
		}
	})
}

// A change of the configuration holds for a drill that waits for its turn.
func TestDrillsChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.drills.took = time.Hour
		one, two := withDrills(t, specOf(t, "c1", "@daily", "main"), "@weekly"), withDrills(t, specOf(t, "c2", "@daily", "main"), "@weekly")
		s := w.start("a", configOf(one, two))
		w.pass(10 * time.Minute)
		first := "c1"
		if strings.Contains(running(s), "c2") {
			first = "c2"
		}
		s.changes <- configOf(specOf(t, "c1", "@daily", "main"), specOf(t, "c2", "@daily", "main"))
		w.pass(5 * time.Hour)
		n := len(w.drills.ran)
		if n != 1 || w.drills.ran[0].cluster != first {
			t.Errorf("drilled %+v", w.drills.ran)
		}
	})
}

// running returns the clusters with a running job.
func running(s *service) (clusters string) {
	for _, status := range s.Status() {
		for _, o := range status.Jobs {
			if o.Ended.IsZero() {
				clusters += status.Cluster + " "
			}
		}
	}
	return clusters
}
