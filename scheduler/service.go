// Package scheduler runs the jobs of many clusters when they are due: backups, pruning, copies to a repository that missed
// backups, drills, and the backups that an archived log needs.
//
// It keeps no state. It reads from the repositories which jobs were done, so a service on an empty machine continues where
// the last one ended. Several services may share one configuration: a lease selects the one that runs a job, and the stored
// result stops the others from repeating it.
package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/check"
	"github.com/etcd-dr/etcd-dr/storage/copying"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// BackupRequest describes a backup of Service.Backup.
type BackupRequest struct {
	Spec spec.Spec // its labels include the cause of the backup
	To   []backup.Store
	// Free gives the backup's slot back before its end. Backup may call it, once or more, when nothing remains but to upload a spool.
	Free func()
}

// CopyRequest selects the backups that Service.Copy copies.
type CopyRequest struct {
	From, To backup.Store
	Since    time.Time // backups that began at this time or later
}

// DrillRequest describes a drill of Service.Drill.
type DrillRequest struct {
	Spec spec.Spec
	In   backup.Store
	Seed uint64 // selects the random point
	// Free gives the drill's slot back before its end, and its turn among the clusters with the same repositories. Drill may call it, once
	// or more, if all it does from then on is to wait for work elsewhere.
	Free func()
}

// Service runs the jobs of clusters. Its function fields do the work. They are called from several goroutines at once.
type Service struct {
	// Open opens a repository's bucket, for writing.
	Open func(ctx context.Context, r spec.Repository) (storage.Bucket, error)
	// Backup takes one backup, as backup.Run does.
	Backup func(ctx context.Context, r BackupRequest, report storage.Report) (backup.Result, error)
	// Prune removes the backups and segments in one repository that the Spec's retention does not keep. nil: nothing is
	// removed.
	Prune func(ctx context.Context, s spec.Spec, in backup.Store, report storage.Report) error
	// Copy copies backups from one repository to another that lacks them. nil: none is copied.
	Copy func(ctx context.Context, r CopyRequest, report storage.Report) (copying.Result, error)
	// Drill restores from one repository as the Spec's Drill describes, as verify.Drill does. nil: no drill is run.
	Drill func(ctx context.Context, r DrillRequest, report storage.Report) ([]catalog.Proof, error)
	// Revision returns a cluster's revision, for triggers and archiving.
	Revision func(ctx context.Context, s spec.Spec) (int64, error)
	// Check checks a cluster itself, as cluster.Check does. nil: it is not checked.
	Check func(ctx context.Context, s spec.Spec) []check.Line
	// Tell is called, after Report, when a condition begins or ends; it must not block. May be nil.
	Tell func(c condition.Change)
	// TellCurrent is called once for each cluster after the start, with all its conditions; it must not block. May be nil.
	TellCurrent func(c condition.Current)
	// Changed is called after each change of a cluster's Status; it must neither block nor call the Service. May be nil.
	Changed func(cluster string)
	// Archive archives a log until ctx ends, as archive.Run does. nil: no log is archived.
	Archive func(ctx context.Context, c archive.Config, to *repository.Cluster) error

	Host     string        // shown in leases
	Drills   int           // slots of drills; 0: one, since each takes the memory of an etcd server
	Patience time.Duration // how long Run waits for running jobs after ctx has ended
	Report   storage.Report

	began      time.Time
	mu         sync.Mutex                   // guards the maps
	workers    map[string]*worker           // by cluster
	faulty     map[string]*faulty           // by cluster without a worker
	archivings map[string]*archiving        // by cluster
	buckets    map[string]*storage.Guard    // by bucketKey
	headers    map[string]rememberedHeaders // by cluster and repository
	groups     map[string]*repositoryGroup  // by the key of groupOf
	readLimits map[string]readLimits        // by urlsOf
	running    sync.WaitGroup
	firstReads *semaphore.Weighted // of all groups
	reads      *semaphore.Weighted // of all groups
	drills     *slots              // of all groups
	checks     *semaphore.Weighted // of clusters, by observers
}

// StoreLimits bound how long the service waits for a store that hangs or fails.
var StoreLimits = storage.GuardOptions{Limit: 15 * time.Second, Most: 64, Failures: 3, Rest: 30 * time.Second}

var errStopped = errors.New("the service was stopped")

// Run runs the jobs of c's clusters, and follows the changes of c, until ctx ends. Then it starts no job, and gives running
// jobs Service.Patience to end. No failure ends Run: Report and Status show
// failures.
func (s *Service) Run(ctx context.Context, c spec.Config, changes <-chan spec.Config) {
	jobs, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	s.began = time.Now()
	s.mu.Lock()
	s.archivings = map[string]*archiving{}
	s.workers, s.buckets, s.faulty = map[string]*worker{}, map[string]*storage.Guard{}, map[string]*faulty{}
	s.groups, s.readLimits = map[string]*repositoryGroup{}, map[string]readLimits{}
	s.firstReads, s.drills = semaphore.NewWeighted(firstReadsPerService), newSlots(s.drillsAtOnce())
	s.reads, s.checks = semaphore.NewWeighted(readsPerService), semaphore.NewWeighted(checksPerService)
	s.mu.Unlock()
	backups, concurrency := newSlots(c.Concurrency), c.Concurrency
	for {
		if c.Concurrency != concurrency { // running jobs keep their old slots
			backups, concurrency = newSlots(c.Concurrency), c.Concurrency
		}
		removeAbandoned(c)
		s.apply(ctx, jobs, c, backups)
		select {
		case c = <-changes:
		case <-ctx.Done():
			timer := time.AfterFunc(s.Patience, func() { end(errStopped) })
			defer timer.Stop()
			s.running.Wait()
			return
		}
	}
}

// removeAbandoned removes the scratch copies of drills that ended with their host: whole databases in plain text, which would
// otherwise stay until the next drill.
func removeAbandoned(c spec.Config) {
	seen := map[string]bool{}
	for _, spec := range c.Specs {
		dir := spec.Drill.Dir
		if !spec.Drill.None() && !seen[dir] {
			seen[dir] = true
			child.RemoveAbandoned(dir)
		}
	}
}

// apply starts, updates and stops workers to match c.
func (s *Service) apply(ctx, jobs context.Context, c spec.Config, backups *slots) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]bool{}
	for _, spec := range c.Specs {
		wanted[spec.Cluster] = true
		o := assignment{
			spec: spec, group: s.groupOf(spec, c.Concurrency), slots: backups, lease: c.Lease, fault: c.Faulty[spec.Cluster],
		}
		w, ok := s.workers[spec.Cluster]
		if ok {
			w.reassign(o)
			continue
		}
		workerCtx, stop := context.WithCancel(ctx)
		w = s.newWorker(o, jobs, stop)
		s.workers[spec.Cluster] = w
		s.running.Go(func() { w.work(workerCtx, w.turn, w.accept) })
		s.running.Go(func() { w.driller.work(workerCtx, w.driller.turn, w.driller.accept) })
		s.running.Go(func() { w.observer.run(workerCtx, ctx) })
	}
	for name, w := range s.workers {
		if !wanted[name] {
			w.stop()
			delete(s.workers, name)
		}
	}
	s.forgetBuckets(c)
	s.applyFaulty(ctx, c, wanted)
	s.archive(ctx, c, backups)
}

func (s *Service) newWorker(o assignment, jobs context.Context, stop context.CancelFunc) *worker {
	board := s.newBoard(o.spec.Cluster)
	newLoop := func() loop {
		return loop{
			assignment: o, service: s, jobs: jobs, assignments: make(chan assignment, 1), requests: newRequests(), board: board,
			// Each loop has its own holder: after a cluster was removed and added again, the old loop may still be at work.
			holder: s.newHolder(),
		}
	}
	observer := newObserver(s, board, o)
	board.ended = observer.nudge
	w := &worker{loop: newLoop(), driller: &driller{loop: newLoop()}, observer: observer, stop: stop, assigned: o}
	observer.gone = w.gone
	return w
}

// newHolder returns a new unique name of a holder of leases.
func (s *Service) newHolder() string {
	return fmt.Sprintf("%s/%s", s.Host, strings.ToLower(rand.Text()[:16]))
}

// forward reports an event of a job, unless it is progress.
func (s *Service) forward(cluster string, e storage.Event) {
	if e.Level != storage.Progress {
		e.Cluster = cluster
		s.Report.Say(e)
	}
}

// open opens the cluster's part of each of its repositories. Clusters share buckets, and so connections. open sends no
// request: the caller decides whether a repository must answer.
func (s *Service) open(spec spec.Spec) (stores []backup.Store, err error) {
	for _, r := range spec.Repositories {
		c, err := repository.OpenWith(s.bucket(r), spec.Cluster, r.Policy)
		if err != nil {
			return nil, err
		}
		stores = append(stores, backup.Store{Repository: r.Name, Cluster: c.Remembering(s.headersOf(spec, r))})
	}
	return stores, nil
}

// rememberedHeaders are the headers of the log that one cluster has in one repository. They are valid for one Spec: another may
// trust other keys.
type rememberedHeaders struct {
	digest  string // of the Spec
	headers *log.Headers
}

// headersOf returns the headers of the log in r that all jobs of the cluster share.
func (s *Service) headersOf(spec spec.Spec, r spec.Repository) *log.Headers {
	key := spec.Cluster + " " + r.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.headers[key]
	if !ok || known.digest != spec.Digest {
		known = rememberedHeaders{spec.Digest, &log.Headers{}}
		if s.headers == nil {
			s.headers = map[string]rememberedHeaders{}
		}
		s.headers[key] = known
	}
	return known.headers
}

// bucket returns the bucket of r. Its first use opens it.
func (s *Service) bucket(r spec.Repository) *storage.Guard {
	key := bucketKey(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.buckets[key]
	if !ok {
		b = storage.NewGuard(func(ctx context.Context) (storage.Bucket, error) { return s.Open(ctx, r) }, StoreLimits)
		s.buckets[key] = b
	}
	return b
}

// bucketKey is equal for repositories that can share a bucket.
func bucketKey(r spec.Repository) string {
	return fmt.Sprintf("%s %d %d %s %q %q", r.URL, r.Parallel, r.Limit, r.Credentials.Digest(), r.Reach, r.CA)
}

// forgetBuckets forgets the buckets that c does not use. Otherwise each renewal of credentials would add a bucket.
// Running jobs keep theirs. The caller holds s.mu.
func (s *Service) forgetBuckets(c spec.Config) {
	used := map[string]bool{}
	for _, spec := range c.Specs {
		for _, r := range spec.Repositories {
			used[bucketKey(r)] = true
		}
	}
	maps.DeleteFunc(s.buckets, func(key string, _ *storage.Guard) bool { return !used[key] })
}
