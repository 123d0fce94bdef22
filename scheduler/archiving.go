package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// hashEvery is the interval at which a member is asked for its HashKV. A restore of the log checks its result against it.
const hashEvery = time.Hour

// archiving archives one cluster's log in a goroutine of its own, so that it continues while a backup runs or waits.
type archiving struct {
	service *Service
	spec    spec.Spec
	lease   time.Duration
	holder  string // of the lease on backups
	stop    context.CancelFunc
	ended   chan struct{} // closed when run has returned
	stopped bool          // guarded by Service.mu

	mu     sync.Mutex
	slots  *slots // of backups; guarded by mu, like status
	status archive.Status
}

// archive starts, restarts and stops log archiving to match c. The caller holds s.mu.
func (s *Service) archive(ctx context.Context, c spec.Config, backups *slots) {
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
		a.slots = backups
		a.mu.Unlock()
	}
	for name, a := range s.archivings {
		if !wanted[name] {
			a.stop()
			a.stopped = true
		}
	}
}

// newArchiving stops before, unless it is nil, and starts an archiving after before has ended: the two would share a lease and a
// spool.
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

// longestUnarchived bounds the wait between tries, so that archiving resumes soon after a person has removed the cause.
const longestUnarchived = time.Minute

// run archives until ctx ends. If archiving ends earlier, only a person can remove the cause: run reports it, and tries again.
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

// try archives until ctx ends, or until an error that Service.Archive does not retry.
func (a *archiving) try(ctx context.Context) error {
	err := a.service.bucket(a.spec.Repositories[0]).Reach(ctx)
	if err != nil {
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
		Snapshot: a.snapshot, Report: a.forward,
		Observe: func(now archive.Status) { a.set(func(s *archive.Status) { *s = now }) },
	}
	if a.spec.Backup.NoHash {
		c.HashEvery = 0
	}
	return a.service.Archive(ctx, c, stores[0].Cluster)
}

// boardOf returns the board of a cluster, or an unused one if the cluster was removed.
func (s *Service) boardOf(cluster string) *board {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[cluster]
	if w != nil {
		return w.board
	}
	return s.newBoard(cluster)
}

// currentSlots returns the slots of backups.
func (a *archiving) currentSlots() *slots {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slots
}

func (a *archiving) set(change func(*archive.Status)) {
	defer a.service.changed(a.spec.Cluster)
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

func (a *archiving) forward(e storage.Event) { a.service.forward(a.spec.Cluster, e) }

func (a *archiving) warn(format string, args ...any) {
	a.forward(storage.Event{Stage: "archive", Level: storage.Warning, Message: fmt.Sprintf(format, args...)})
}
