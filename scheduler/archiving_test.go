package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// fakeArchive replaces archive.Run: it archives nothing, and reports that it works.
type fakeArchive struct {
	mu      sync.Mutex
	running map[string]archive.Config // by cluster
	began   []string
	ended   []string
	broken  error
	first   bool // each has to have a backup first
	observe func(archive.Status)
	lingers time.Duration
}

func (f *fakeArchive) run(ctx context.Context, c archive.Config, to *repository.Cluster) error {
	err := f.enter(c, to.Name())
	if err != nil {
		return err
	}
	defer f.leave(to.Name())
	f.set(func() { f.observe = c.Observe })
	c.Observe(archive.Status{State: archive.Working, Cluster: to.Name(), Durable: 7})
	c.Report.Say(storage.Event{Stage: "archive", Level: storage.Note, Message: "works"})
	if f.first {
		err := c.Snapshot(ctx, "the first of this cluster")
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	<-ctx.Done()
	time.Sleep(f.lingers)
	return nil
}

func (f *fakeArchive) enter(c archive.Config, cluster string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = append(f.began, cluster)
	if f.broken != nil {
		return f.broken
	}
	_, twice := f.running[cluster]
	if twice {
		return fmt.Errorf("%s is archived twice by one service", cluster)
	}
	if f.running == nil {
		f.running = map[string]archive.Config{}
	}
	f.running[cluster] = c
	return nil
}

func (f *fakeArchive) leave(cluster string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, cluster)
	f.ended = append(f.ended, cluster)
}

func (f *fakeArchive) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// wantRuns fails unless so many have begun and ended, and just these run.
func (f *fakeArchive) wantRuns(t *testing.T, what string, began, ended int, running ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var now []string
	for cluster := range f.running {
		now = append(now, cluster)
	}
	slices.Sort(now)
	if len(f.began) != began || len(f.ended) != ended || !slices.Equal(now, running) {
		t.Errorf("%s: began %q, ended %q, running %q; want %d, %d, %q", what, f.began, f.ended, now, began, ended, running)
	}
}

func archived(t *testing.T, cluster string) spec.Spec {
	t.Helper()
	s := specOf(t, cluster, "@every 1h", "main", "offsite")
	s.Archive = spec.Archive{Flush: 2 * time.Second, Spool: "/spool", SpoolMax: 1 << 30}
	return s
}

// archiving starts a service with a fake archive.
func (w *world) archiving(c spec.Config) (*service, *fakeArchive) {
	f := &fakeArchive{}
	s := w.start("a", c, func(s *scheduler.Service) { s.Archive = f.run })
	return s, f
}

// A service archives exactly the logs that the configuration in effect declares, with their settings.
func TestServiceArchives(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		prod, test := archived(t, "prod"), specOf(t, "test", "@every 1h", "main")
		s, f := w.archiving(configOf(prod, test))
		w.pass(time.Minute)
		f.wantRuns(t, "one asks for it", 1, 0, "prod")
		f.set(func() {
			c := f.running["prod"]
			if c.Flush != 2*time.Second || c.Spool != "/spool" || c.SpoolMax != 1<<30 || c.Lease != 30*time.Second || c.HashEvery != time.Hour || c.Host != "a" {
				t.Errorf("archived by %+v", c)
			}
		})
		status := s.status(t, "prod").Archive
		if status == nil || status.State != archive.Working || status.Durable != 7 || s.status(t, "test").Archive != nil {
			t.Errorf("status %+v, of who asks for nothing %+v", status, s.status(t, "test").Archive)
		}
		if !slices.Contains(s.all(), "prod: works") {
			t.Errorf("it said %q", s.all())
		}

		s.changes <- configOf(prod, test)
		w.pass(time.Minute)
		f.wantRuns(t, "nothing has changed", 1, 0, "prod")
		prod.Archive.Flush, prod.Digest = time.Second, "another"
		s.changes <- configOf(prod, test)
		w.pass(time.Minute)
		f.wantRuns(t, "another flush", 2, 1, "prod")
		c := configOf(prod, test)
		c.Lease = time.Minute
		s.changes <- c
		w.pass(time.Minute)
		f.wantRuns(t, "another lease", 3, 2, "prod")

		suspended := prod
		suspended.Suspend, suspended.Digest = true, "suspended"
		c.Specs = []spec.Spec{suspended, test}
		s.changes <- c
		w.pass(time.Minute)
		f.wantRuns(t, "suspended", 3, 3)
		got := s.status(t, "prod").Archive
		if got != nil {
			t.Errorf("suspended, its log is %+v", got)
		}
		c.Specs = []spec.Spec{prod}
		s.changes <- c
		w.pass(time.Minute)
		f.wantRuns(t, "back", 4, 3, "prod")
		c.Specs = []spec.Spec{test}
		s.changes <- c
		w.pass(time.Minute)
		f.wantRuns(t, "taken out", 4, 4)
	})
}

// The next one begins when the one before has ended, and a service has ended when all have.
func TestServiceArchivesOnceAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		prod := archived(t, "prod")
		s, f := w.archiving(configOf(prod))
		f.set(func() { f.lingers = 10 * time.Second })
		w.pass(time.Minute)
		for n := range 3 { // each before the one before has ended
			prod.Digest = fmt.Sprint(n)
			s.changes <- configOf(prod)
			w.pass(time.Second)
		}
		s.changes <- configOf()
		w.pass(time.Second)
		s.changes <- configOf(prod)
		w.pass(time.Minute)
		f.mu.Lock()
		began := len(f.began)
		f.mu.Unlock()
		f.wantRuns(t, "changed in a row", began, began-1, "prod")
		before := time.Now()
		s.end()
		lingered := time.Since(before)
		if lingered != 10*time.Second {
			t.Errorf("ended after %v", lingered)
		}
		f.wantRuns(t, "stopped", began, began)
	})
}

// When archiving ends, the service reports why and tries again within a minute.
func TestServiceArchivesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		f := &fakeArchive{broken: errTest}
		s := w.start("a", configOf(archived(t, "prod")), func(s *scheduler.Service) { s.Archive = f.run })
		w.pass(time.Second)
		status := s.status(t, "prod")
		a := status.Archive
		if a == nil || a.State != archive.Waiting || a.Problem != errTest.Error() {
			t.Errorf("status %+v", status.Archive)
		}
		said := strings.Join(s.all(), "\n")
		if !strings.Contains(said, "prod: the log is not archived: "+errTest.Error()) {
			t.Errorf("it said %s", said)
		}
		w.pass(10 * time.Minute)
		f.mu.Lock()
		tries := len(f.began)
		f.mu.Unlock()
		if tries < 10 || tries > 20 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		f.set(func() { f.broken = nil })
		w.pass(time.Minute)
		f.wantRuns(t, "mended", tries+1, 0, "prod")
		a = s.status(t, "prod").Archive
		if a.State != archive.Working || a.Problem != "" {
			t.Errorf("mended: %+v", a)
		}
		if status.State == scheduler.Failing || len(w.times("prod")) == 0 {
			t.Errorf("no backups without a log: %+v", status)
		}
	})
}

// A service keeps trying while the repository cannot be opened.
func TestServiceArchivesWhenTheStoreIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		f, away := &fakeArchive{}, true
		w.start("a", configOf(archived(t, "prod")), func(s *scheduler.Service) {
			s.Archive = f.run
			s.Open = func(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if away {
					return nil, errTest
				}
				return w.stores[r.URL], nil
			}
		})
		w.pass(time.Minute)
		f.wantRuns(t, "away", 0, 0)
		w.set(func() { away = false })
		w.pass(time.Minute)
		f.wantRuns(t, "back", 1, 0, "prod")
	})
}

// The log needs a backup as the first one is due: there is one, which both go by.
func TestServiceTakesOneBackupForTheLogAndTheSchedule(t *testing.T) {
	for _, slow := range []string{"neither", "the log", "the schedule"} {
		t.Run(slow, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.took = 20 * time.Second
				f := &fakeArchive{first: true}
				w.start("a", configOf(archived(t, "prod")), func(s *scheduler.Service) {
					s.Archive = func(ctx context.Context, c archive.Config, to *repository.Cluster) error {
						if slow == "the log" {
							time.Sleep(10 * time.Second)
						}
						return f.run(ctx, c, to)
					}
					open := s.Open
					s.Open = func(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
						if slow == "the schedule" && r.Name == "offsite" {
							time.Sleep(10 * time.Second)
						}
						return open(ctx, r)
					}
				})
				w.pass(30 * time.Minute)
				times := w.times("prod")
				if len(times) != 1 {
					t.Errorf("backups at %v", times)
				}
			})
		})
	}
}

// The cluster was written to after the scheduled backup began, so the log begins after that backup and needs one of its own.
func TestServiceTakesTheBackupThatALogNeeds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 20 * time.Second
		f := &fakeArchive{first: true}
		var needed time.Duration
		s := w.start("a", configOf(archived(t, "prod")), func(s *scheduler.Service) {
			s.Archive = func(ctx context.Context, c archive.Config, to *repository.Cluster) error {
				time.Sleep(10 * time.Second) // while the schedule's is taken
				return f.run(ctx, c, to)
			}
			s.Revision = func(context.Context, spec.Spec) (int64, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				needed = time.Since(w.begin)
				return w.revision + 1, nil // by the time that the schedule's ends, no client has written more
			}
		})
		w.pass(30 * time.Minute)
		times := w.times("prod")
		if len(times) != 2 || times[1] < needed {
			t.Fatalf("backups at %v, the log needs one from %v", times, needed)
		}
		late := times[1] - times[0] - w.took
		if late > 5*time.Second { // until then the log restores nothing
			t.Errorf("the log's backup began %s after the schedule's", late)
		}
		w.set(func() {
			label := w.taken[1].labels[spec.LabelArchive]
			if label != "the first of this cluster" {
				t.Errorf("the log's backup has the labels %v", w.taken[1].labels)
			}
		})
		s.wantOutcome(t, "prod", scheduler.JobBackup, scheduler.Succeeded, "the log needs it: the first of this cluster", "")
		got := s.status(t, "prod")
		if counted(got, scheduler.JobBackup, scheduler.Succeeded) != 2 || s.outcome(t, "prod", scheduler.JobBackup).Backup == "" {
			t.Errorf("the log's backup is no job: %+v, %+v", got.Jobs, got.Counts)
		}
	})
}

// The log of a suspended cluster is archived. The backup that it needs is taken after the cluster was resumed.
func TestServiceSuspendedArchives(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		f, begin := &fakeArchive{first: true}, make(chan struct{})
		s := w.start("a", configOf(archived(t, "prod")), func(s *scheduler.Service) {
			s.Archive = func(ctx context.Context, c archive.Config, to *repository.Cluster) error {
				<-begin
				return f.run(ctx, c, to)
			}
		})
		w.pass(time.Minute)
		s.suspend(t, "prod")
		close(begin)
		w.pass(30 * time.Minute)
		f.wantRuns(t, "suspended", 1, 0, "prod")
		times := w.times("prod")
		if len(times) != 1 {
			t.Errorf("suspended after the first: backups at %v", times)
		}
		err := s.Resume(t.Context(), "prod", "ops")
		if err != nil {
			t.Fatal(err)
		}
		w.pass(10 * time.Minute)
		times = w.times("prod")
		if len(times) != 2 {
			t.Errorf("resumed: backups at %v", times)
		}
	})
}

// The archiving retries the backup that its log needs. A backup that has reached the log's repository counts.
func TestServiceLearnsOfTheLogsBackup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.broken = func(spec.Spec) error { return errTest }
		var got error
		f := func(ctx context.Context, c archive.Config, _ *repository.Cluster) error {
			got = c.Snapshot(ctx, "a gap")
			w.set(func() { w.broken, w.partial = nil, true })
			err := c.Snapshot(ctx, "a gap")
			if err != nil {
				t.Errorf("the log's own repository has it: %v", err)
			}
			<-ctx.Done()
			return nil
		}
		w.start("a", configOf(archived(t, "prod")), func(s *scheduler.Service) { s.Archive = f })
		w.pass(time.Hour / 2)
		if !errors.Is(got, errTest) {
			t.Errorf("a backup that failed: %v", got)
		}
	})
}
