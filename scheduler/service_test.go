package scheduler_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/schedules"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

var errTest = errors.New("broken by the test")

// world is shared by services: it contains stores, and clusters to back up. In a bubble it begins on a Saturday, 2000-01-01,
// 00:00 UTC.
type world struct {
	t      *testing.T
	begin  time.Time
	stores map[string]*storagetest.Faults // by URL

	mu       sync.Mutex
	took     time.Duration            // by a backup
	upload   map[string]time.Duration // by cluster: from a spool, after the backup
	broken   func(s spec.Spec) error
	partial  bool          // only the first store takes backups
	ahead    time.Duration // of the clock that backups are taken by
	revision int64
	position uint64 // of the log
	pruned   []string
	unpruned error
	running  map[string]int // by cluster
	most     int            // that ran at once
	taken    []taken
	ended    []error
	drills   drills
}

// taken is a backup that was stored.
type taken struct {
	at      time.Duration // since the world began
	by      string        // service
	cluster string
	labels  catalog.Labels
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, begin: time.Now(), took: time.Second, revision: 1000, position: 5, running: map[string]int{},
		stores: map[string]*storagetest.Faults{"main": storagetest.Faulty(mem.New()), "offsite": storagetest.Faulty(mem.New())},
	}
}

func (w *world) open(_ context.Context, r spec.Repository) (storage.Bucket, error) {
	store, own, _ := strings.Cut(r.URL, "/")
	if own != "" {
		return storage.WithPrefix(w.stores[store], own), nil
	}
	return w.stores[store], nil
}

// set calls change, which alters the clusters and stores, with the lock held.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// pass advances the time by d, and waits until all goroutines are idle. Accesses of the test before and after it are ordered
// for the race detector, by the lock and by Wait.
func (w *world) pass(d time.Duration) {
	w.set(func() {})
	time.Sleep(d)
	synctest.Wait()
}

// pause waits for d, or until ctx ends, and returns the cause of that. Like scheduler.after it uses no expired timer.
func pause(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	return context.Cause(ctx)
}

// backup stores a small one in each store when its time has passed.
func (w *world) backup(ctx context.Context, by string, asked scheduler.BackupRequest) (r backup.Result, err error) {
	started, s, to := time.Now(), asked.Spec, asked.To
	took, upload := w.enter(s.Cluster)
	defer func() { w.leave(s.Cluster, err) }()
	err = pause(ctx, took)
	if err == nil && upload > 0 {
		asked.Free()
		err = pause(ctx, upload)
	}
	if err != nil {
		return r, err
	}
	now, err := w.member(s)
	if err != nil {
		return r, err
	}
	for i, store := range to {
		if now.partial && i > 0 {
			r.Stores = append(r.Stores, backup.Outcome{Repository: store.Repository, Err: errTest})
			err = backup.ErrPartial
			continue
		}
		r.Backup, err = create(ctx, store.Cluster, started.Add(now.ahead), now.revision, now.position, s.Backup.Labels)
		if err != nil {
			return r, err
		}
		r.Stores = append(r.Stores, backup.Outcome{Repository: store.Repository})
	}
	w.set(func() { w.taken = append(w.taken, taken{started.Sub(w.begin), by, s.Cluster, s.Backup.Labels}) })
	return r, err
}

// member returns the state in which the member of a cluster is backed up now. The stores are written without the lock: a slow
// one waits in virtual time, which stands still while a goroutine waits for a mutex.
func (w *world) member(s spec.Spec) (now memberState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		err = w.broken(s)
	}
	return memberState{w.partial, w.ahead, w.revision, w.position}, err
}

type memberState struct {
	partial  bool          // only the first store is written
	ahead    time.Duration // of the member's clock
	revision int64
	position uint64
}

func create(
	ctx context.Context, c *repository.Cluster, started time.Time, revision int64, position uint64, labels catalog.Labels,
) (catalog.Backup, error) {
	id, err := c.FreeID(ctx, catalog.NewID(started, revision))
	if err != nil {
		return catalog.Backup{}, err
	}
	sum := sha256.Sum256([]byte("plain"))
	return stored.CreateFrom(ctx, c, id, seal.Recipients{}.Seal(), strings.NewReader("sealed"), func() (catalog.Manifest, error) {
		return catalog.Manifest{
			Started: started, Finished: started.Add(time.Second), Revision: revision, RaftIndex: position, Labels: labels, ClusterID: "cdf818194e3a8c32",
			Plain: catalog.Blob{Name: "snapshot.db", Size: 5, SHA256: hex.EncodeToString(sum[:])},
		}, nil
	})
}

func (w *world) enter(cluster string) (took, upload time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[cluster]++
	if w.running[cluster] > 1 {
		w.t.Errorf("two backups of %s at once", cluster)
	}
	all := 0
	for _, n := range w.running {
		all += n
	}
	w.most = max(w.most, all)
	return w.took, w.upload[cluster]
}

func (w *world) leave(cluster string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[cluster]--
	w.ended = append(w.ended, err)
}

// slots returns the due times in the labels of the backups.
func (w *world) slots(cluster string) (slots []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.taken {
		if b.cluster == cluster {
			slots = append(slots, b.labels[spec.LabelSlot])
		}
	}
	return slots
}

// times returns the start times of the backups of cluster.
func (w *world) times(cluster string) (times []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.taken {
		if b.cluster == cluster {
			times = append(times, b.at)
		}
	}
	return times
}

// service is a running service.
type service struct {
	*scheduler.Service
	changes chan spec.Config
	stop    context.CancelFunc
	ended   chan struct{}
	mu      sync.Mutex
	said    []string
}

func (w *world) start(name string, c spec.Config, change ...func(*scheduler.Service)) *service {
	s := &service{changes: make(chan spec.Config), ended: make(chan struct{})}
	s.Service = &scheduler.Service{
		Open: w.open, Host: name, Patience: time.Minute,
		Backup: func(ctx context.Context, r scheduler.BackupRequest, _ storage.Report) (backup.Result, error) {
			return w.backup(ctx, name, r)
		},
		Prune: func(_ context.Context, spec spec.Spec, in backup.Store, _ storage.Report) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pruned = append(w.pruned, spec.Cluster+" in "+in.Repository)
			return w.unpruned
		},
		Drill: func(ctx context.Context, r scheduler.DrillRequest, _ storage.Report) ([]catalog.Proof, error) {
			return w.drill(ctx, name, r)
		},
		Revision: func(context.Context, spec.Spec) (int64, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.revision, nil
		},
		Report: func(e storage.Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.said = append(s.said, e.Cluster+": "+e.Message)
		},
	}
	for _, change := range change {
		change(s.Service)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	s.stop = stop
	go func() {
		defer close(s.ended)
		s.Run(ctx, c, s.changes)
	}()
	w.t.Cleanup(s.end)
	return s
}

func (s *service) end() {
	s.stop()
	<-s.ended
}

// reported reports whether the service has reported a message that begins with the text.
func (s *service) reported(begin string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.said, func(line string) bool { return strings.HasPrefix(line, begin) })
}

// all returns all reported messages.
func (s *service) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said)
}

func (s *service) status(t *testing.T, cluster string) scheduler.Status {
	t.Helper()
	for _, one := range s.Status() {
		if one.Cluster == cluster {
			return one
		}
	}
	t.Fatalf("no status of %s in %+v", cluster, s.Status())
	return scheduler.Status{}
}

// counted returns how many jobs have ended with the verdict.
func counted(s scheduler.Status, job scheduler.Job, verdict scheduler.Verdict) int64 {
	for _, c := range s.Counts {
		if c.Job == job && c.Verdict == verdict {
			return c.N
		}
	}
	return 0
}

func specOf(t *testing.T, cluster, cron string, repositories ...string) spec.Spec {
	t.Helper()
	s := spec.Spec{Cluster: cluster, Digest: fmt.Sprint(cluster, cron, repositories), Timeout: time.Hour}
	if cron != "" {
		s.Schedule = schedules.Parse(t, cron, "UTC")
	}
	s.Backup.Require = spec.All
	for _, r := range repositories {
		s.Repositories = append(s.Repositories, spec.Repository{Name: r, URL: r})
	}
	return s
}

func configOf(specs ...spec.Spec) spec.Config {
	return spec.Config{Specs: specs, Concurrency: 4, Lease: 30 * time.Second}
}

// bubble runs test in a bubble, where time passes only while all goroutines are idle.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func at(days int, clock string) time.Duration {
	d, err := time.ParseDuration(clock)
	if err != nil {
		panic(err)
	}
	return time.Duration(days)*24*time.Hour + d
}

// equal reports whether the times are equal, apart from the time that leases take.
func equal(got, want []time.Duration) bool {
	return slices.EqualFunc(got, want, func(a, b time.Duration) bool { return a >= b && a <= b+10*time.Second })
}

func TestServiceTakesDueBackups(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := w.start("a", configOf(specOf(t, "prod", "30 2 * * *", "main"), specOf(t, "test", "@every 12h", "main")))
		w.pass(at(2, "5h"))
		times, wantTimes := w.times("prod"), []time.Duration{0, at(0, "2h30m"), at(1, "2h30m"), at(2, "2h30m")}
		if !equal(times, wantTimes) {
			t.Errorf("prod was taken at %v, want %v", times, wantTimes)
		}
		times, wantTimes = w.times("test"), []time.Duration{0, at(0, "12h"), at(1, "0h"), at(1, "12h"), at(2, "0h")}
		if !equal(times, wantTimes) {
			t.Errorf("test was taken at %v, want %v", times, wantTimes)
		}
		slot := w.slots("prod")[1]
		if slot != "2000-01-01T02:30:00Z" {
			t.Errorf("the slot is %q", slot)
		}
		got := s.status(t, "prod")
		if got.State != scheduler.Idle || counted(got, scheduler.JobBackup, scheduler.Succeeded) != 4 || got.Last == nil || !got.Next.Equal(w.begin.Add(at(3, "2h30m"))) {
			t.Errorf("status %+v", got)
		}
	})
}

// A service that starts without local state learns everything with one listing and at most two reads per cluster.
func TestServiceStartsWithNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var specs []spec.Spec
		for i := range 100 {
			specs = append(specs, specOf(t, fmt.Sprintf("c%03d", i), "0 * * * *", "main"))
		}
		first := w.start("a", configOf(specs...))
		w.pass(at(0, "3h30m"))
		first.end()
		lists, opens := w.stores["main"].Calls(storagetest.VerbList), w.stores["main"].Calls(storagetest.VerbOpen)
		second := w.start("b", configOf(specs...))
		w.pass(time.Minute)
		n := w.stores["main"].Calls(storagetest.VerbList) - lists
		if n != len(specs) {
			t.Errorf("%d listings for %d clusters", n, len(specs))
		}
		n = w.stores["main"].Calls(storagetest.VerbOpen) - opens
		if n > 2*len(specs) {
			t.Errorf("%d reads for %d clusters", n, len(specs))
		}
		for _, status := range second.Status() {
			if status.State != scheduler.Idle || status.Last == nil || !status.Next.Equal(w.begin.Add(4*time.Hour)) {
				t.Errorf("status %+v", status)
			}
		}
		if len(w.taken) != 4*len(specs) {
			t.Errorf("%d backups of %d clusters in four hours", len(w.taken), len(specs))
		}
	})
}

func TestServiceCatchesUpOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := configOf(specOf(t, "prod", "30 2 * * *", "main"))
		first := w.start("a", c)
		w.pass(time.Hour)
		first.end()
		w.pass(at(5, "10h"))
		w.start("b", c)
		w.pass(at(1, "0h"))
		got, want := w.times("prod"), []time.Duration{0, at(5, "11h"), at(6, "2h30m")}
		if !equal(got, want) {
			t.Errorf("taken at %v, want %v", got, want)
		}
	})
}

// While a backup takes longer than its schedule, no other starts; of the slots that pass meanwhile one is taken.
func TestServiceNeverOverlaps(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 25 * time.Minute
		w.start("a", configOf(specOf(t, "prod", "*/10 * * * *", "main")))
		w.pass(2 * time.Hour)
		got, want := w.times("prod"), []time.Duration{0, at(0, "25m"), at(0, "50m"), at(0, "75m")}
		if !equal(got[:4], want) {
			t.Errorf("taken at %v, want %v", got, want)
		}
	})
}

func TestServiceConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = time.Minute
		var specs []spec.Spec
		for i := range 10 {
			specs = append(specs, specOf(t, fmt.Sprintf("c%d", i), "@daily", "main"))
		}
		c := configOf(specs...)
		c.Concurrency = 3
		s := w.start("a", c)
		w.pass(30 * time.Second)
		states := map[scheduler.State]int{}
		for _, status := range s.Status() {
			states[status.State]++
		}
		if states[scheduler.Running] != 3 || states[scheduler.Queued] != 7 {
			t.Errorf("states %v", states)
		}
		w.pass(time.Hour)
		if w.most != 3 || len(w.taken) != 10 {
			t.Errorf("%d were taken, %d at once", len(w.taken), w.most)
		}
		c.Concurrency = 5
		s.changes <- c
		w.pass(at(1, "0h"))
		if w.most != 5 || len(w.taken) != 20 {
			t.Errorf("with more allowed %d were taken, %d at once", len(w.taken), w.most)
		}
	})
}

// Two services with one configuration take each slot once, while either or both run.
func TestTwoServices(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := configOf(specOf(t, "prod", "*/10 * * * *", "main"), specOf(t, "test", "*/10 * * * *", "main", "offsite"))
		a, b := w.start("a", c), w.start("b", c)
		w.pass(at(0, "5h5m"))
		a.end()
		w.pass(at(0, "1h"))
		a = w.start("a", c)
		w.pass(at(0, "1h"))
		b.end()
		w.pass(at(0, "1h"))
		a.end()
		for _, cluster := range []string{"prod", "test"} {
			slots := w.slots(cluster)
			if len(slots) != 1+6*8 || len(slices.Compact(slices.Sorted(slices.Values(slots)))) != len(slots) {
				t.Errorf("%s: the slots %q", cluster, slots)
			}
		}
		by := map[string]int{}
		for _, one := range w.taken {
			by[one.by]++
		}
		if by["a"] == 0 || by["b"] == 0 {
			t.Errorf("one did everything: %v", by)
		}
	})
}

// A killed service does not release its lease: the other takes over when the lease has ended.
func TestServiceTakesOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, err := repository.Open(w.stores["main"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		_, held, err := c.Leases().Acquire(t.Context(), "backup", "killed", lease.Term{TTL: 25 * time.Second, Now: time.Now()})
		if err != nil || !held {
			t.Fatal(held, err)
		}
		s := w.start("b", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(24 * time.Second)
		got := s.status(t, "prod")
		if got.State != scheduler.Standby || got.Holder != "killed" {
			t.Errorf("status %+v", got)
		}
		w.pass(time.Minute)
		times := w.times("prod")
		if len(times) != 1 || times[0] < 25*time.Second || times[0] > 28*time.Second {
			t.Errorf("taken at %v, the lease ended after 25 s", times)
		}
	})
}

// stealLease makes another holder, whose clock is ahead, take the lease of the cluster's backups in the store main.
func (w *world) stealLease(t *testing.T, cluster string) {
	t.Helper()
	c, err := repository.Open(w.stores["main"], cluster)
	if err != nil {
		t.Fatal(err)
	}
	_, held, err := c.Leases().Acquire(t.Context(), "backup", "thief", lease.Term{TTL: time.Minute, Now: time.Now().Add(9 * time.Minute)})
	if err != nil || !held {
		t.Fatal(held, err)
	}
}

// A service gives its backup up when another holder has taken the lease.
func TestServiceGivesUpWithoutItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 5 * time.Minute
		s := w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(time.Minute)
		got := s.status(t, "prod")
		if got.State != scheduler.Running {
			t.Fatalf("status %+v", got)
		}
		w.stealLease(t, "prod")
		w.pass(time.Minute)
		if len(w.ended) != 1 || len(w.taken) != 0 {
			t.Errorf("ended %v, taken %v", w.ended, w.taken)
		}
		got = s.status(t, "prod")
		if got.State != scheduler.Standby {
			t.Errorf("status %+v", got)
		}
	})
}

// Whose lease could not be renewed may have lost it: another service is about to begin.
func TestServiceStopsWithoutRenewal(t *testing.T) {
	for repositories, want := range map[int]int{1: 0, 2: 1} {
		bubble(t, func(t *testing.T, w *world) {
			w.took = 5 * time.Minute
			w.start("a", configOf(specOf(t, "prod", "@daily", []string{"main", "offsite"}[:repositories]...)))
			w.pass(time.Minute)
			w.stores["main"].On(storagetest.VerbPut).Times(8).Fail(errTest)
			w.pass(10 * time.Minute)
			if len(w.ended) != 2-want || (w.ended[0] == nil) != (want == 1) {
				t.Errorf("with %d repositories: ended %v", repositories, w.ended)
			}
		})
	}
}

// A failed backup is retried with growing delays, and at the next slot at the latest.
func TestServiceTriesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 0
		var tries []time.Duration
		w.broken = func(spec.Spec) error {
			tries = append(tries, time.Since(w.begin))
			if len(tries) < 14 {
				return errTest
			}
			return nil
		}
		s := w.start("a", configOf(specOf(t, "prod", "0 * * * *", "main")))
		w.pass(20 * time.Minute)
		got := s.status(t, "prod")
		if got.State != scheduler.Failing || got.Failures != len(tries) || !strings.Contains(got.Problem, errTest.Error()) || !got.Next.After(time.Now()) {
			t.Errorf("status %+v", got)
		}
		w.pass(3 * time.Hour)
		for i := 2; i < len(tries) && tries[i] < time.Hour; i++ {
			if tries[i]-tries[i-1] < (tries[i-1]-tries[i-2])*5/4 {
				t.Errorf("tries at %v", tries)
			}
		}
		if !slices.ContainsFunc(tries, func(d time.Duration) bool { return d >= time.Hour && d < time.Hour+2*time.Second }) {
			t.Errorf("none at the next slot: %v", tries)
		}
		got = s.status(t, "prod")
		if got.State != scheduler.Idle || got.Failures != 0 || got.Problem != "" {
			t.Errorf("status %+v", got)
		}
	})
}

// An unreachable store does not end a service, and causes no second backup when it is reachable again.
func TestServiceWithoutItsStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.stores["main"].On(storagetest.VerbList).Times(5).Fail(errTest)
		s := w.start("a", configOf(specOf(t, "prod", "0 * * * *", "main")))
		w.pass(time.Minute)
		got := s.status(t, "prod")
		if got.State != scheduler.Failing || len(w.taken) > 0 {
			t.Errorf("status %+v, taken %v", got, w.taken)
		}
		w.pass(58 * time.Minute)
		got = s.status(t, "prod")
		if got.State != scheduler.Idle || len(w.taken) != 1 {
			t.Errorf("status %+v, taken %v", got, w.taken)
		}
	})
}

func TestServiceChanges(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 10 * time.Minute
		prod, other := specOf(t, "prod", "0 * * * *", "main"), specOf(t, "other", "0 * * * *", "main")
		s := w.start("a", configOf(prod, other))
		w.pass(time.Minute)
		twice := specOf(t, "prod", "*/30 * * * *", "main")
		s.changes <- configOf(twice, specOf(t, "new", "0 * * * *", "main")) // while backups run
		w.pass(58 * time.Minute)
		got, want := w.times("prod"), []time.Duration{0, at(0, "30m")}
		if !equal(got, want) {
			t.Errorf("prod was taken at %v, want %v", got, want)
		}
		if len(w.times("new")) != 1 || len(s.Status()) != 2 {
			t.Errorf("new was taken at %v; status %+v", w.times("new"), s.Status())
		}
		twice.Suspend, twice.Digest = true, "suspended"
		s.changes <- configOf(twice)
		w.pass(5 * time.Hour)
		status := s.status(t, "prod")
		if status.State != scheduler.Suspended || len(w.times("prod")) != 2 {
			t.Errorf("status %+v, taken at %v", status, w.times("prod"))
		}
		got, want = w.times("other"), []time.Duration{0}
		if !equal(got, want) {
			t.Errorf("other, which was taken out, was taken at %v, want %v", got, want)
		}
		s.changes <- configOf(prod)
		w.pass(time.Minute)
		status = s.status(t, "prod")
		if status.State != scheduler.Running {
			t.Errorf("what was missed while it was suspended is not caught up: %+v", status)
		}
	})
}

// A cluster that is removed and added again while its backup runs does not get a second backup at the same time.
func TestServiceOutAndIn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.took = 10 * time.Minute
		c := configOf(specOf(t, "prod", "@daily", "main"))
		s := w.start("a", c)
		w.pass(time.Minute)
		s.changes <- configOf()
		w.pass(time.Minute)
		s.changes <- c
		w.pass(time.Hour)
		if len(w.taken) != 1 {
			t.Errorf("taken %v", w.taken)
		}
	})
}

func TestServiceEnds(t *testing.T) {
	for took, want := range map[time.Duration]error{30 * time.Second: nil, 10 * time.Minute: context.Canceled} {
		bubble(t, func(t *testing.T, w *world) {
			w.took = took
			s := w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
			w.pass(10 * time.Second)
			stopped := time.Now()
			s.end()
			waited := time.Since(stopped)
			if waited > s.Patience+time.Second {
				t.Errorf("it ended after %v", waited)
			}
			if len(w.ended) != 1 || (w.ended[0] == nil) != (want == nil) {
				t.Errorf("a backup of %v ended with %v", took, w.ended)
			}
			c, _ := repository.Open(w.stores["main"], "prod")
			l, err := c.Leases().Live(t.Context(), "backup", time.Now())
			if l.Holder != "" || err != nil {
				t.Errorf("%q still has the lease: %v", l.Holder, err)
			}
		})
	}
}

// If all repositories must take a backup, only backups in all of them count: a new repository gets its first backup at once.
func TestServiceSeveralRepositories(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, both := specOf(t, "prod", "@daily", "main"), specOf(t, "prod", "@daily", "main", "offsite")
		s := w.start("a", configOf(one))
		w.pass(time.Hour)
		s.changes <- configOf(both)
		w.pass(time.Hour)
		got, want := w.times("prod"), []time.Duration{0, time.Hour}
		if !equal(got, want) {
			t.Errorf("taken at %v, want %v", got, want)
		}
		w.set(func() { w.partial = true })
		w.pass(at(0, "23h"))
		status := s.status(t, "prod")
		if status.State != scheduler.Failing {
			t.Errorf("one repository has no backup, and the status is %+v", status)
		}
		w.set(func() { w.partial = false })
		before := len(w.times("prod"))
		w.pass(2 * time.Hour)
		status = s.status(t, "prod")
		if status.State != scheduler.Idle || len(w.times("prod")) != before+1 {
			t.Errorf("status %+v, taken at %v", status, w.times("prod"))
		}
	})
}

// If any repository is enough, an unreachable one delays no backup.
func TestServiceAnyRepository(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		settings := specOf(t, "prod", "@daily", "main", "offsite")
		settings.Backup.Require = spec.Any
		w.start("a", configOf(settings))
		w.pass(time.Minute)
		w.stores["main"].On(storagetest.VerbList).Times(-1).Fail(errTest)
		w.stores["main"].On(storagetest.VerbOpen).Times(-1).Fail(errTest)
		s := w.start("b", configOf(settings))
		w.pass(time.Minute)
		got := s.status(t, "prod")
		if got.State != scheduler.Idle || len(w.taken) != 1 {
			t.Errorf("status %+v, taken %v", got, w.taken)
		}
	})
}

// A repository that cannot be opened, such as a missing mount, is treated as unreachable.
func TestServiceAnyRepositoryOpens(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		settings := specOf(t, "prod", "@daily", "main", "offsite")
		unmounted := func(s *scheduler.Service) {
			s.Open = func(ctx context.Context, r spec.Repository) (storage.Bucket, error) {
				if r.Name == "main" {
					return nil, errTest
				}
				return w.open(ctx, r)
			}
		}
		all := w.start("a", configOf(settings), unmounted)
		w.pass(time.Minute)
		got := all.status(t, "prod")
		if len(w.taken) != 0 || !strings.Contains(got.Problem, errTest.Error()) {
			t.Errorf("where all are needed: status %+v, taken %v", got, w.taken)
		}
		all.end()
		settings.Backup.Require = spec.Any
		any := w.start("b", configOf(settings), unmounted, func(s *scheduler.Service) {
			s.Backup = func(ctx context.Context, r scheduler.BackupRequest, _ storage.Report) (backup.Result, error) {
				r.To = r.To[1:]
				return w.backup(ctx, "b", r)
			}
		})
		w.pass(time.Minute)
		got = any.status(t, "prod")
		if len(w.taken) != 1 || got.State != scheduler.Idle {
			t.Errorf("where any will do: status %+v, taken %v", got, w.taken)
		}
	})
}

// Backups from the future, from a wrong clock or an attacker, prevent no backup.
func TestServicePassesOverTheFuture(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, err := repository.Open(w.stores["main"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		_, err = create(t.Context(), c, w.begin.AddDate(50, 0, 0), 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.start("a", configOf(specOf(t, "prod", "0 * * * *", "main")))
		w.pass(at(0, "2h30m"))
		w.start("b", configOf(specOf(t, "prod", "0 * * * *", "main")))
		w.pass(at(0, "1h"))
		got, want := w.times("prod"), []time.Duration{0, at(0, "1h"), at(0, "2h"), at(0, "3h")}
		if !equal(got, want) {
			t.Errorf("taken at %v, want %v", got, want)
		}
	})
}

// After a clock that was ahead during a backup is corrected, the next backup does not wait for the wrong time to come.
func TestServiceWhoseClockWasAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ahead = 5 * 365 * 24 * time.Hour
		s := w.start("a", configOf(specOf(t, "prod", "0 * * * *", "main")))
		w.pass(30 * time.Second) // of which it thinks that they are five years
		w.set(func() { w.ahead = 0 })
		w.pass(at(0, "2h30m"))
		got, want := w.times("prod"), []time.Duration{at(0, "1h"), at(0, "2h")}
		if len(got) < 3 || !equal(got[len(got)-2:], want) {
			t.Errorf("taken at %v, want one at once, and then at %v", got, want)
		}
		status := s.status(t, "prod")
		if !status.Next.Equal(w.begin.Add(at(0, "3h"))) {
			t.Errorf("status %+v", status)
		}
	})
}

// TestEachSlotStartsWithShortWaits checks that failures before the last slot do not lengthen the waits after it.
func TestEachSlotStartsWithShortWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := configOf(specOf(t, "prod", "@daily", "main"))
		first := w.start("a", c)
		w.pass(time.Minute)
		first.end()
		w.stores["main"].On(storagetest.VerbList).Times(8).Fail(errTest)
		w.start("b", c)
		w.pass(at(0, "23h"))
		w.stores["main"].On(storagetest.VerbList).Fail(errTest)
		w.pass(at(0, "2h"))
		got := w.times("prod")
		want := at(1, "0h")
		if len(got) != 2 || got[1] > want+time.Minute {
			t.Errorf("taken at %v, want one at most a minute after %v", got, want)
		}
	})
}

func TestServiceReplacesADamagedBackup(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, err := repository.Open(w.stores["main"], "prod")
		if err != nil {
			t.Fatal(err)
		}
		b, err := create(t.Context(), c, w.begin, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		key := "prod/backups/" + string(b.ID) + "/manifest.json"
		_, err = w.stores["main"].Put(t.Context(), key, bytes.NewReader([]byte("x")), storage.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.start("a", configOf(specOf(t, "prod", "@daily", "main")))
		w.pass(time.Hour)
		if len(w.taken) != 1 {
			t.Errorf("the only backup is damaged, and taken are %v", w.taken)
		}
	})
}

func TestServicePrunes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		everything, settings := specOf(t, "all", "@daily", "main"), specOf(t, "prod", "@daily", "main", "offsite")
		settings.Retention.Last = 1
		s := w.start("a", configOf(everything, settings))
		w.pass(time.Hour)
		want := []string{"prod in main", "prod in offsite"}
		if !slices.Equal(w.pruned, want) {
			t.Errorf("pruned %q, want %q", w.pruned, want)
		}
		w.set(func() { w.unpruned = errTest })
		w.pass(at(1, "0h"))
		got := s.status(t, "prod")
		if got.State != scheduler.Idle || !strings.Contains(got.Unpruned, errTest.Error()) {
			t.Errorf("status %+v", got)
		}
		w.set(func() { w.unpruned, w.broken = nil, func(spec.Spec) error { return errTest } })
		pruned := len(w.pruned)
		w.pass(at(1, "0h"))
		if len(w.pruned) != pruned {
			t.Errorf("without a backup were pruned %q", w.pruned[pruned:])
		}
	})
}

func TestServiceRevisions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		settings := specOf(t, "prod", "", "main")
		settings.Triggers = spec.Triggers{Revisions: 100, Every: 5 * time.Minute}
		s := w.start("a", configOf(settings))
		w.pass(time.Hour)
		w.set(func() { w.revision += 99 })
		w.pass(time.Hour)
		w.set(func() { w.revision++ })
		w.pass(time.Hour)
		got, want := w.times("prod"), []time.Duration{0, at(0, "2h")}
		if len(got) != 2 || got[1] < want[1] || got[1] > want[1]+6*time.Minute {
			t.Errorf("taken at %v, want about %v", got, want)
		}
		why := w.taken[1].labels[spec.LabelTrigger]
		if why != "100 revisions since the last backup" {
			t.Errorf("the labels are %v", w.taken[1].labels)
		}
		status := s.status(t, "prod")
		if status.State != scheduler.Idle {
			t.Errorf("status %+v", status)
		}
	})
}

// Whichever requests fail and services stop: each slot has at most one backup, no backup is taken without a reason, and in the
// end every cluster has one of its last slot.
func TestServicesUnderChaos(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		bubble(t, func(t *testing.T, w *world) { chaos(t, w, uint64(seed)) })
	}
}

func chaos(t *testing.T, w *world, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 6))
	w.took = time.Duration(random.IntN(120)) * time.Second
	breaks := rand.New(rand.NewPCG(seed, 7))
	w.broken = func(spec.Spec) error {
		if breaks.IntN(3) == 0 {
			return errTest
		}
		return nil
	}
	c := configOf(specOf(t, "prod", "*/20 * * * *", "main"), specOf(t, "test", "7 * * * *", "main", "offsite"))
	services := map[string]*service{}
	for range 60 {
		name := string(rune('a' + random.IntN(3)))
		running, ok := services[name]
		if ok {
			running.end()
			delete(services, name)
		} else {
			services[name] = w.start(name, c)
		}
		verbs := []storagetest.Verb{storagetest.VerbList, storagetest.VerbOpen, storagetest.VerbPut}
		if random.IntN(3) == 0 {
			w.stores["main"].On(verbs[random.IntN(3)]).Times(random.IntN(4)).Fail(errTest)
		}
		w.pass(time.Duration(random.IntN(3600)) * time.Second)
	}
	w.set(func() { w.broken = nil })
	for _, s := range services {
		s.end()
	}
	w.start("last", c)
	w.pass(time.Hour)
	for _, cluster := range []string{"prod", "test"} {
		slots := w.slots(cluster)
		unique := slices.Compact(slices.Sorted(slices.Values(slots)))
		if len(unique) != len(slots) {
			t.Errorf("seed %d: %s has a slot twice: %q", seed, cluster, slots)
		}
		times := w.times(cluster)
		if time.Since(w.begin)-times[len(times)-1] > time.Hour {
			t.Errorf("seed %d: the last backup of %s was at %v, it is %v", seed, cluster, times[len(times)-1], time.Since(w.begin))
		}
	}
}
