package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// hashEvery is how often a member is asked for its HashKV, which a restore of the log compares.
const hashEvery = time.Hour

// archiving is the archiving of one cluster's log, in a goroutine of its own beside the worker's: it goes on while a backup
// is taken, or waits for its turn.
type archiving struct {
	service *Service
	spec    spec.Spec
	lease   time.Duration
	holder  string // of the lease on backups
	stop    context.CancelFunc
	ended   chan struct{} // closed when it has
	stopped bool          // guarded by the service's mutex

	mu     sync.Mutex
	slots  *semaphore.Weighted // of backups at a time
	status archive.Status
}

// archive has the logs archived that c asks for, and ends what it asks for no more or in another way. s.mu is held.
func (s *Service) archive(ctx context.Context, c spec.Config, slots *semaphore.Weighted) {
	wanted := map[string]bool{}
	for _, spec := range c.Specs {
		if s.Archive == nil || spec.Suspend || spec.Archive.Flush == 0 {
			continue
		}
		wanted[spec.Cluster] = true
		a := s.archivings[spec.Cluster]
		if a == nil || a.stopped || a.spec.Digest != spec.Digest || a.lease != c.Lease {
			a = s.newArchiving(ctx, spec, c.Lease, a)
			s.archivings[spec.Cluster] = a
		}
		a.mu.Lock()
		a.slots = slots
		a.mu.Unlock()
	}
	for name, a := range s.archivings {
		if !wanted[name] {
			a.stop()
			a.stopped = true
		}
	}
}

// newArchiving begins when before has ended, if there was one: two would stand in each other's way, in the spool too.
func (s *Service) newArchiving(ctx context.Context, spec spec.Spec, lease time.Duration, before *archiving) *archiving {
	ctx, stop := context.WithCancel(ctx)
	a := &archiving{
		service: s, spec: spec, lease: lease, holder: s.newHolder(), stop: stop, ended: make(chan struct{}),
		status: archive.Status{State: archive.Starting, Source: segment.Watch, Cluster: spec.Cluster},
	}
	s.running.Go(func() {
		defer close(a.ended)
		if before != nil {
			before.stop()
			<-before.ended
		}
		a.run(ctx)
	})
	return a
}

// longestUnarchived bounds how long it takes until the log is archived again once a person has mended what was wrong.
const longestUnarchived = time.Minute

// run archives until ctx ends. What ends the archiving otherwise only a person can mend: it is told, and tried again.
func (a *archiving) run(ctx context.Context) {
	for tries := 1; ctx.Err() == nil; tries++ {
		began := time.Now()
		err := a.try(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > longestUnarchived {
			tries = 1
		}
		wait := spec.Backoff(tries, longestUnarchived, a.spec.Cluster)
		a.set(func(s *archive.Status) { s.State, s.Problem = archive.Waiting, err.Error() })
		a.warn("the log is not archived: %v; the next try is at %s", err, time.Now().Add(wait).UTC().Format(time.RFC3339))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

func (a *archiving) try(ctx context.Context) error {
	if err := a.service.bucket(a.spec.Repositories[0]).Reach(ctx); err != nil {
		return fmt.Errorf("repository %s: %w", a.spec.Repositories[0].Name, err)
	}
	stores, err := a.service.open(a.spec)
	if err != nil {
		return err
	}
	c := archive.Config{
		Source: segment.Watch, Etcd: ClusterConfig(a.spec.Etcd), To: a.spec.Backup.To, Plain: a.spec.Backup.Plain,
		Flush: a.spec.Archive.Flush, SegmentSize: spec.SegmentSize, Lease: a.lease, HashEvery: hashEvery, HashMax: a.spec.Backup.HashMax,
		Spool: a.spec.Archive.Spool, SpoolMax: a.spec.Archive.SpoolMax, Host: a.service.Host,
		Snapshot: a.snapshot,
	}
	if a.spec.Backup.NoHash {
		c.HashEvery = 0
	}
	told := func(now archive.Status) { a.set(func(s *archive.Status) { *s = now }) }
	return a.service.Archive(ctx, c, stores[0].Cluster, told, a.pass)
}

// snapshot takes the backup that the log needs, when it is this service's turn. One that has come meanwhile and holds all
// that was written until now is as good: when a service begins, the schedule wants one at the same moment.
func (a *archiving) snapshot(ctx context.Context, why string) error {
	stores, err := a.service.open(a.spec)
	if err != nil {
		return err
	}
	need, err := a.service.Revision(ctx, a.spec)
	if err != nil {
		return err
	}
	before, err := newestIn(ctx, stores[0].Cluster)
	if err != nil {
		return err
	}
	enough := func(b catalog.Backup) bool { return b.ID != before.ID && b.Revision >= need }
	for {
		there, err := a.turn(ctx, stores, why, enough)
		if there || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(a.lease / 3):
		}
	}
}

// turn takes a backup, unless what is there is enough, another has the lease, or somebody has suspended the cluster. there reports whether there is one now.
func (a *archiving) turn(
	ctx context.Context, stores []backup.Store, why string, enough func(catalog.Backup) bool,
) (there bool, err error) {
	word, err := lastWord(ctx, stores, a.spec.Backup.Require)
	if err != nil || word.last.Suspended {
		return false, err
	}
	held, _, err := acquire(ctx, word.answered, a.spec.Backup.Require, holding(JobBackup, a.holder, a.lease))
	if err != nil || len(held) == 0 {
		return false, err
	}
	ctx, end := context.WithCancelCause(ctx)
	keeping := held.keep(ctx, a.lease, end)
	defer keeping.Wait()
	defer end(nil)
	last, err := newestIn(ctx, stores[0].Cluster)
	if err != nil || enough(last) {
		return err == nil, err
	}
	slots := a.limited()
	if err := slots.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer slots.Release(1)
	ctx, timedOut := context.WithTimeout(ctx, a.spec.Timeout)
	defer timedOut()
	err = a.backup(ctx, held.stores(), why)
	return err == nil, err
}

// newestIn is the newest backup of c, the zero one if there is none.
func newestIn(ctx context.Context, c *repository.Cluster) (catalog.Backup, error) {
	cat, err := c.Load(ctx, repository.LoadOptions{Newest: 1})
	if err != nil || len(cat.Backups) == 0 {
		return catalog.Backup{}, err
	}
	return cat.Backups[0], nil
}

// backup takes one, which is a job of the cluster as the schedule's are.
func (a *archiving) backup(ctx context.Context, stores []backup.Store, why string) error {
	o, board := task{job: JobBackup, cause: cause{text: "the log needs it: " + why}}.outcome(), a.service.boardOf(a.spec.Cluster)
	board.begin(o)
	r, err := a.take(ctx, stores, why)
	o.Ended, o.Verdict, o.Backup = time.Now().UTC(), Succeeded, r.ID
	if err != nil {
		o.Verdict, o.Message = Failed, err.Error()
	}
	board.end(o)
	return err
}

// take takes a backup, and fails unless it is where the log is. What is wrong with it besides is no reason to take another.
func (a *archiving) take(ctx context.Context, stores []backup.Store, why string) (backup.Result, error) {
	settings := a.spec
	labels := maps.Clone(settings.Backup.Labels)
	if labels == nil {
		labels = catalog.Labels{}
	}
	labels[spec.LabelArchive] = why
	settings.Backup.Labels = labels
	r, err := a.service.Backup(ctx, settings, stores, a.pass)
	there := reached(stores, r)
	if first := a.spec.Repositories[0].Name; r.ID == "" || len(there) == 0 || there[0].Repository != first {
		return r, cmp.Or(err, fmt.Errorf("repository %s was left out: the log needs the backup there", first))
	}
	if err != nil {
		a.warn("%v", err)
	}
	return r, nil
}

// boardOf returns the board of a cluster, or one that nobody reads if s looks after it no more.
func (s *Service) boardOf(cluster string) *board {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[cluster]; w != nil {
		return w.board
	}
	return &board{ended: func() {}}
}

func (a *archiving) limited() *semaphore.Weighted {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slots
}

func (a *archiving) set(change func(*archive.Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.status)
}

func (a *archiving) get() *archive.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	status := a.status
	return &status
}

func (a *archiving) pass(e storage.Event) { a.service.pass(a.spec.Cluster, e) }

func (a *archiving) warn(format string, args ...any) {
	a.pass(storage.Event{Stage: "archive", Level: storage.Warning, Message: fmt.Sprintf(format, args...)})
}
