package scheduler_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// trigger asks for a job, which must be taken.
func (s *service) trigger(t *testing.T, cluster string, job scheduler.Job, reason string) {
	t.Helper()
	err := s.Trigger(cluster, job, reason)
	if err != nil {
		t.Errorf("%s of %s: %v", job, cluster, err)
	}
}

// outcome returns the outcome of the last ended job of a kind.
func (s *service) outcome(t *testing.T, cluster string, job scheduler.Job) scheduler.Outcome {
	t.Helper()
	for _, o := range s.status(t, cluster).Jobs {
		if o.Job == job && !o.Ended.IsZero() {
			return o
		}
	}
	t.Fatalf("no %s of %s has ended: %+v", job, cluster, s.status(t, cluster).Jobs)
	return scheduler.Outcome{}
}

func (s *service) wantOutcome(t *testing.T, cluster string, job scheduler.Job, v scheduler.Verdict, reason, says string) {
	t.Helper()
	got := s.outcome(t, cluster, job)
	if got.Verdict != v || got.Reason != reason || !strings.Contains(got.Message, says) {
		t.Errorf("%+v; want it %s, for %q, with %q", got, v, reason, says)
	}
}

func TestTriggerBackup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = time.Minute
		s := w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(time.Hour)
		s.trigger(t, "prod", scheduler.JobBackup, "before the upgrade")
		w.pass(10 * time.Second)
		for range 3 { // while it runs they join
			s.trigger(t, "prod", scheduler.JobBackup, "again")
		}
		got := s.status(t, "prod")
		if got.State != scheduler.Running || len(got.Jobs) != 2 || !got.Jobs[1].Ended.IsZero() ||
			got.Jobs[1].Reason != "before the upgrade" {
			t.Errorf("status %+v", got)
		}
		w.pass(time.Hour)
		reasons := w.triggered()
		if !slices.Equal(reasons, []string{"1h0m0s before the upgrade"}) {
			t.Errorf("triggered %q", reasons)
		}
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Succeeded, "before the upgrade", "")
		got = s.status(t, "prod")
		if got.State != scheduler.Idle || !got.Next.Equal(w.begin.Add(at(1, "0h"))) || len(got.Jobs) != 1 || got.Jobs[0].Backup != got.Last.ID ||
			counted(got, scheduler.JobBackup, scheduler.Succeeded) != 2 {
			t.Errorf("status %+v", got)
		}
	})
}

// Another service's clock may be ahead: a backup from before the request does not fulfil the request.
func TestTriggerWithAClockAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ahead, w.drills.ahead = 9*time.Minute, 9*time.Minute
		s := w.start("a", configOf(withDrills(t, specOf(t, "prod", "@daily", "main"), "@daily")))
		w.pass(time.Minute)
		s.trigger(t, "prod", scheduler.JobBackup, "before the upgrade")
		s.trigger(t, "prod", scheduler.JobDrill, "before the upgrade")
		w.pass(time.Minute)
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Succeeded, "before the upgrade", "")
		if len(w.taken) != 2 || len(w.drills.ran) != 2 {
			t.Errorf("taken %v, drilled %v", w.taken, w.drills.ran)
		}
	})
}

// A request for a job that already waits for its turn joins it, and so does a job that becomes due.
func TestTriggerJoins(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 10 * time.Minute
		c := configOf(specOf(t, "prod", "@daily", "main"), specOf(t, "test", "@daily", "main"))
		c.Concurrency = 1
		s := w.start("a", c)
		w.pass(time.Minute)
		s.trigger(t, "prod", scheduler.JobBackup, "now")
		s.trigger(t, "test", scheduler.JobBackup, "now")
		w.pass(time.Hour)
		if len(w.taken) != 2 || len(w.triggered()) != 0 {
			t.Errorf("taken %v", w.taken)
		}
	})
}

func TestTriggerRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		resting := specOf(t, "resting", "@daily", "main")
		resting.Suspend = true
		s := w.start("a", configOf(specOf(t, "prod", "@daily", "main"), resting))
		w.pass(time.Minute)
		for _, one := range []struct {
			cluster string
			job     scheduler.Job
			want    error
		}{
			{"other", scheduler.JobBackup, scheduler.ErrUnknown}, {"resting", scheduler.JobBackup, scheduler.ErrSuspended},
			{"prod", scheduler.JobPrune, scheduler.ErrNotPossible}, {"prod", scheduler.JobDrill, scheduler.ErrNotPossible},
			{"prod", "dance", scheduler.ErrNotPossible},
		} {
			err := s.Trigger(one.cluster, one.job, "now")
			if !errors.Is(err, one.want) {
				t.Errorf("%s of %s: %v, want %v", one.job, one.cluster, err, one.want)
			}
		}
		err := s.Trigger("prod", scheduler.JobBackup, strings.Repeat("x", scheduler.MaxReason+1))
		if err == nil {
			t.Error("a reason that no manifest could hold")
		}
		w.pass(time.Hour)
		if len(w.taken) != 1 {
			t.Errorf("taken %v", w.taken)
		}
	})
}

// A request that fails is not retried, and jobs that are due continue as without the request.
func TestTriggerFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(time.Hour)
		tries := 0
		w.set(func() {
			w.broken = func(spec.Spec) error {
				tries++
				return errTest
			}
		})
		s.trigger(t, "prod", scheduler.JobBackup, "now")
		w.pass(10 * time.Hour)
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Failed, "now", "is not tried again")
		if tries != 1 {
			t.Errorf("%d tries", tries)
		}
		got := s.status(t, "prod")
		if got.State != scheduler.Idle || got.Failures != 0 || !got.Next.Equal(w.begin.Add(at(1, "0h"))) {
			t.Errorf("status %+v", got)
		}
		w.stores["main"].On(storagetest.VerbOpen).Fail(errTest)
		s.trigger(t, "prod", scheduler.JobBackup, "with a store that is away")
		w.pass(time.Hour)
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Failed, "with a store that is away", errTest.Error())
		failed := counted(s.status(t, "prod"), scheduler.JobBackup, scheduler.Failed)
		if failed != 2 || tries != 1 {
			t.Errorf("%d failed, %d tries", failed, tries)
		}
	})
}

// A backup that fails by itself waits longer and longer, one that is asked for does not; when it succeeds all is well.
func TestTriggerWhileFailing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.broken = func(spec.Spec) error { return errTest }
		s := w.start("a", configOf(specOf(t, "prod", "@weekly", "main")))
		w.pass(3 * time.Hour)
		s.trigger(t, "prod", scheduler.JobBackup, "now")
		w.pass(time.Minute)
		got := s.status(t, "prod")
		if got.State != scheduler.Failing || !got.Next.After(time.Now()) {
			t.Errorf("status %+v", got)
		}
		w.set(func() { w.broken = nil })
		s.trigger(t, "prod", scheduler.JobBackup, "once more")
		w.pass(time.Minute)
		got = s.status(t, "prod")
		if got.State != scheduler.Idle || got.Failures != 0 || len(w.taken) != 1 {
			t.Errorf("status %+v", got)
		}
	})
}

func TestTriggerPrune(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := specOf(t, "prod", "@daily", "main", "offsite")
		spec.Retention.Last = 1
		s := w.start("a", configOf(spec))
		w.pass(time.Hour)
		w.set(func() { w.pruned, w.unpruned = nil, errTest })
		s.trigger(t, "prod", scheduler.JobPrune, "it is full")
		w.pass(time.Minute)
		s.wantOutcome(t, "prod", scheduler.JobPrune, scheduler.Failed, "it is full", errTest.Error())
		want := []string{"prod in main", "prod in offsite"}
		if !slices.Equal(w.pruned, want) || len(w.taken) != 1 {
			t.Errorf("pruned %q, want %q; taken %v", w.pruned, want, w.taken)
		}
		w.stores["offsite"].On(storagetest.VerbOpen).Fail(errTest)
		s.trigger(t, "prod", scheduler.JobPrune, "again")
		w.pass(time.Minute)
		got := s.status(t, "prod")
		if len(w.pruned) != 2 || counted(got, scheduler.JobPrune, scheduler.Failed) != 4 || got.State != scheduler.Idle {
			t.Errorf("pruned %q while a store is away; status %+v", w.pruned, got)
		}
	})
}

// A requested pruning that ends without a result has outcomes only in the repositories that it would prune: nothing would replace
// another one's.
func TestTriggerPruneWithoutResult(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := specOf(t, "prod", "@daily", "main", "offsite")
		spec.Repositories[1].Retention.Last = 1
		s := w.start("a", configOf(spec))
		w.pass(time.Hour)
		w.stores["main"].On(storagetest.VerbOpen).Fail(errTest)
		w.stores["offsite"].On(storagetest.VerbOpen).Fail(errTest)
		s.trigger(t, "prod", scheduler.JobPrune, "it is full")
		w.pass(time.Minute)
		var places []string
		for _, o := range s.status(t, "prod").Jobs {
			if o.Job == scheduler.JobPrune && o.Verdict == scheduler.Failed {
				places = append(places, o.Repository)
			}
		}
		if !slices.Equal(places, []string{"offsite"}) {
			t.Errorf("failed in %q, only offsite has a retention", places)
		}
	})
}

// A request waits for another service that has the lease, but not without limit.
func TestTriggerDuringAnotherJob(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(time.Hour)
		c, err := repository.Open(w.stores["main"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		take := func(ttl time.Duration) {
			t.Helper()
			_, held, err := c.Leases().Acquire(t.Context(), "backup", "killed", lease.Term{TTL: ttl, Now: time.Now()})
			if err != nil || !held {
				t.Fatal(held, err)
			}
		}
		take(20 * time.Second)
		s.trigger(t, "prod", scheduler.JobBackup, "now")
		w.pass(time.Minute)
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Succeeded, "now", "")
		if len(w.taken) != 2 {
			t.Errorf("taken %v", w.taken)
		}
		take(9 * time.Minute)
		s.trigger(t, "prod", scheduler.JobBackup, "again")
		w.pass(20 * time.Minute)
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.NotRun, "again", "killed")
		if len(w.taken) != 2 {
			t.Errorf("taken %v", w.taken)
		}
	})
}

// A requested backup that is given up is reported, and the status says as before when the next backup is due.
func TestTriggerGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(time.Hour)
		before := s.status(t, "prod")
		w.set(func() { w.took = 5 * time.Minute })
		s.trigger(t, "prod", scheduler.JobBackup, "now")
		w.pass(10 * time.Second)
		w.stealLease(t, "prod")
		for counted(s.status(t, "prod"), scheduler.JobBackup, scheduler.NotRun) == 0 {
			w.pass(time.Second)
		}
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.NotRun, "now", "it was given up")
		got := s.status(t, "prod")
		if before.State != scheduler.Idle || got.State != before.State || !got.Next.Equal(before.Next) {
			t.Errorf("%s, the next at %v; before the request %s and %v", got.State, got.Next, before.State, before.Next)
		}
	})
}

// startTwo starts two services of the cluster prod, and returns them an hour later, when the first daily backup is taken.
func (w *world) startTwo(t *testing.T) (a, b *service) {
	t.Helper()
	c := configOf(specOf(t, "prod", "@daily", "main"))
	a, b = w.start("a", c), w.start("b", c)
	w.pass(time.Hour)
	return a, b
}

// A requested backup that another service has taken since the request is as good.
func TestTriggerTakenElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 20 * time.Second
		a, b := w.startTwo(t)
		w.stores["main"].On(storagetest.VerbPut).Always().Delay(time.Millisecond) // so that the backup begins after both requests
		a.trigger(t, "prod", scheduler.JobBackup, "now")
		b.trigger(t, "prod", scheduler.JobBackup, "now")
		w.pass(time.Hour)
		a.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Succeeded, "now", "")
		b.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Succeeded, "now", "")
		if len(w.taken) != 2 {
			t.Errorf("taken %v", w.taken)
		}
	})
}

// A backup that is requested once is taken once: a service that is asked while another one, which stops, takes it adopts that one,
// although it began before and is not the newest. Another reason, or one from before since, is a request of its own.
func TestTriggerOnceDuringAStop(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 10 * time.Second
		a, b := w.startTwo(t)
		created := time.Now()
		once := func(s *service, reason string, since time.Time) {
			t.Helper()
			err := s.TriggerOnce("prod", reason, since)
			if err != nil {
				t.Error(err)
			}
		}
		once(a, "UID 1", created)
		w.pass(5 * time.Second)
		a.stop()
		once(b, "UID 1", created)
		w.pass(time.Hour)
		b.trigger(t, "prod", scheduler.JobBackup, "a newer one")
		w.pass(time.Hour)
		once(b, "UID 1", created)
		w.pass(time.Hour)
		if len(w.taken) != 3 || w.taken[1].by != "a" {
			t.Errorf("taken %v", w.taken)
		}
		got := b.outcome(t, "prod", scheduler.JobBackup)
		started := got.Backup.Started().Sub(w.begin)
		if got.Verdict != scheduler.Succeeded || got.Reason != "UID 1" || started.Round(time.Second) != w.taken[1].at.Round(time.Second) {
			t.Errorf("the outcome is %+v, want the backup of %+v", got, w.taken[1])
		}
		once(b, "UID 2", created)
		w.pass(time.Hour)
		once(b, "UID 1", time.Now())
		w.pass(time.Hour)
		if len(w.taken) != 5 {
			t.Errorf("taken %v", w.taken)
		}
	})
}

func (s *service) suspend(t *testing.T, cluster string) {
	t.Helper()
	err := s.Suspend(t.Context(), cluster, "ops", "the disks are replaced")
	if err != nil {
		t.Fatal(err)
	}
}

// A suspension stops all services, including those that start later, and its end resumes all.
func TestSuspend(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := configOf(specOf(t, "prod", "0 * * * *", "main", "offsite"), specOf(t, "test", "0 * * * *", "main"))
		a, b := w.start("a", c), w.start("b", c)
		w.pass(at(0, "1h30m"))
		a.suspend(t, "prod")
		err := a.Trigger("prod", scheduler.JobBackup, "now")
		if !errors.Is(err, scheduler.ErrSuspended) {
			t.Errorf("asked of a suspended cluster: %v", err)
		}
		err = b.Trigger("prod", scheduler.JobBackup, "now")
		if err != nil { // it does not know yet
			t.Error(err)
		}
		w.pass(time.Minute)
		b.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.NotRun, "now", "suspended by ops: the disks are replaced")
		w.pass(at(0, "3h"))
		b.end()
		b = w.start("b", c)
		w.pass(at(0, "2h"))
		for _, s := range []*service{a, b} {
			got := s.status(t, "prod")
			if got.State != scheduler.Suspended || !got.Next.IsZero() || got.Last == nil {
				t.Errorf("status %+v", got)
			}
			why := got.Suspension
			if why == nil || !why.Since.Equal(w.begin.Add(at(0, "1h30m"))) || why.By != "ops" || why.Reason != "the disks are replaced" {
				t.Errorf("suspended by %+v", why)
			}
		}
		if len(w.times("prod")) != 2 || len(w.times("test")) != 7 {
			t.Errorf("prod was taken at %v, test at %v", w.times("prod"), w.times("test"))
		}
		err = b.Resume(t.Context(), "prod", "ops")
		if err != nil {
			t.Fatal(err)
		}
		w.pass(5 * time.Minute)
		got := w.times("prod")
		if len(got) != 3 {
			t.Errorf("what was missed is caught up once: %v", got)
		}
		w.pass(time.Hour)
		for _, s := range []*service{a, b} {
			got := s.status(t, "prod")
			if got.State != scheduler.Idle || got.Suspension != nil {
				t.Errorf("status %+v", got)
			}
		}
	})
}

// Only the configuration can resume a cluster that it suspends.
func TestResumeOfTheConfigurations(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := specOf(t, "prod", "@daily", "main")
		spec.Suspend = true
		s := w.start("a", configOf(spec))
		w.pass(time.Minute)
		err := s.Resume(t.Context(), "prod", "ops")
		if !errors.Is(err, scheduler.ErrSuspended) {
			t.Errorf("resumed: %v", err)
		}
		for _, err := range []error{s.Resume(t.Context(), "other", "ops"), s.Suspend(t.Context(), "other", "ops", "")} {
			if !errors.Is(err, scheduler.ErrUnknown) {
				t.Errorf("of an unknown cluster: %v", err)
			}
		}
	})
}

// The newest suspension of all repositories counts: one that was unreachable contains an old one.
func TestSuspendWhileAStoreIsUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		spec := specOf(t, "prod", "0 * * * *", "main", "offsite")
		s := w.start("a", configOf(spec))
		w.pass(time.Minute)
		s.suspend(t, "prod")
		w.pass(time.Minute)
		w.stores["offsite"].On(storagetest.VerbPut).Fail(errTest)
		err := s.Resume(t.Context(), "prod", "ops")
		if !errors.Is(err, errTest) || !strings.Contains(err.Error(), "offsite") {
			t.Errorf("resumed: %v", err)
		}
		w.pass(time.Hour)
		other := w.start("b", configOf(spec))
		w.pass(time.Minute)
		for _, s := range []*service{s, other} {
			got := s.status(t, "prod")
			if got.State != scheduler.Idle || len(w.taken) != 2 {
				t.Errorf("status %+v, taken %v", got, w.taken)
			}
		}
	})
}

// A damaged suspension suspends nothing: otherwise one written byte could stop all backups.
func TestSuspensionThatIsDamaged(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, err := w.stores["main"].Put(t.Context(), "prod/suspension.json", strings.NewReader("x"), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(time.Hour)
		if len(w.taken) != 1 || !slices.ContainsFunc(s.said, func(text string) bool { return strings.Contains(text, "ignoring a damaged suspension") }) {
			t.Errorf("taken %v, said %q", w.taken, s.said)
		}
	})
}

// A job that waits for its turn when the configuration suspends the cluster does not start.
func TestSuspendWhileItIsQueued(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 10 * time.Minute
		c := configOf(specOf(t, "first", "@daily", "main"), specOf(t, "second", "@daily", "main"))
		c.Concurrency = 1
		s := w.start("a", c)
		w.pass(time.Minute)
		for i := range c.Specs {
			c.Specs[i].Suspend, c.Specs[i].Digest = true, "suspended"
		}
		s.changes <- c
		w.pass(time.Hour)
		if len(w.taken) != 1 {
			t.Errorf("taken %v", w.taken)
		}
	})
}

// A job that runs when the cluster is suspended continues to its end.
func TestSuspendWhileItRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 10 * time.Minute
		s := w.start("a", configOf(specOf(t, "prod", "@every 15m", "main")))
		w.pass(time.Minute)
		s.suspend(t, "prod")
		w.pass(time.Hour)
		got := s.status(t, "prod")
		if len(w.taken) != 1 || got.State != scheduler.Suspended {
			t.Errorf("taken %v, status %+v", w.taken, got)
		}
	})
}
