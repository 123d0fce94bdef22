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
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// Service looks after clusters. Its functions say how, and are called from several goroutines.
type Service struct {
	// Open opens a repository's bucket, for writing.
	Open func(ctx context.Context, r spec.Repository) (storage.Bucket, error)
	// Backup takes one backup, as backup.Run does; the Spec's labels say why.
	Backup func(ctx context.Context, s spec.Spec, to []backup.Store, report storage.Report) (backup.Result, error)
	// Prune removes from one repository what the Spec's retention does not keep. nil: nothing is ever removed.
	Prune func(ctx context.Context, s spec.Spec, in backup.Store, report storage.Report) error
	// Copy copies to one repository the backups since then that it lacks and another has. nil: none is copied.
	Copy func(ctx context.Context, from, to backup.Store, since time.Time, report storage.Report) (repository.CopyResult, error)
	// Drill restores from one repository what the Spec's Drill says, as verify.Drill does; seed draws the random point. nil:
	// none is ever run.
	Drill func(ctx context.Context, s spec.Spec, in backup.Store, seed uint64, report storage.Report) ([]catalog.Proof, error)
	// Revision asks a cluster for its revision; for Triggers, and Archive.
	Revision func(ctx context.Context, s spec.Spec) (int64, error)
	// Check says what is wrong with a cluster itself, as cluster.Check does. nil: nobody asks it.
	Check func(ctx context.Context, s spec.Spec) []check.Line
	// Tell is given each condition that begins or ends, besides Report; it must not block. nil: nobody is told.
	Tell func(c condition.Change)
	// TellCurrent is given what holds of each cluster, once after the start; it must not block. nil: nobody is told.
	TellCurrent func(c condition.Current)
	// Changed is called after each change of a cluster's Status; it must neither block nor call the Service. May be nil.
	Changed func(cluster string)
	// Archive archives a log until ctx ends, as archive.Run does. nil: no log is archived, whatever Specs say.
	Archive func(
		ctx context.Context, c archive.Config, to *repository.Cluster, observe func(archive.Status), report storage.Report,
	) error

	Host     string        // for whoever looks at a lease
	Patience time.Duration // how long Run waits for what is being done when it is to end
	Report   storage.Report

	began      time.Time
	mu         sync.Mutex
	workers    map[string]*worker           // by cluster
	faulty     map[string]*faulty           // by cluster that has no worker
	archivings map[string]*archiving        // by cluster
	buckets    map[string]*storage.Guard    // by what they are opened with
	headers    map[string]rememberedHeaders // by cluster and repository
	lanes      map[string]*lane
	running    sync.WaitGroup
	looks      *semaphore.Weighted // of all lanes, and so reads
	reads      *semaphore.Weighted
	drills     *semaphore.Weighted
	checks     *semaphore.Weighted // of clusters by observers
}

// Patience is how long a repository may keep its callers waiting.
var Patience = storage.GuardOptions{Limit: 15 * time.Second, Most: 64, Failures: 3, Rest: 30 * time.Second}

var errStopped = errors.New("the service was stopped")

// Run looks after the clusters of c, then of what comes from changes, until ctx ends. Then nothing is begun any more, and
// what is being done has Service.Patience to end. Nothing that fails ends it: Report and Status tell.
func (s *Service) Run(ctx context.Context, c spec.Config, changes <-chan spec.Config) {
	jobs, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	s.began = time.Now()
	s.mu.Lock()
	s.archivings = map[string]*archiving{}
	s.workers, s.buckets, s.lanes = map[string]*worker{}, map[string]*storage.Guard{}, map[string]*lane{}
	s.faulty = map[string]*faulty{}
	s.looks, s.drills = semaphore.NewWeighted(looksOfAll), semaphore.NewWeighted(drillsAtOnce)
	s.reads, s.checks = semaphore.NewWeighted(readsOfAll), semaphore.NewWeighted(checkedAtOnce)
	s.mu.Unlock()
	slots, concurrency := semaphore.NewWeighted(int64(c.Concurrency)), c.Concurrency
	for {
		if c.Concurrency != concurrency { // what runs now still counts on the old one, and is soon over
			slots, concurrency = semaphore.NewWeighted(int64(c.Concurrency)), c.Concurrency
		}
		removeAbandoned(c)
		s.apply(ctx, jobs, c, slots)
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

// removeAbandoned removes what drills have left that went down with their host: whole databases in plain, which would else stay until
// the next drill.
func removeAbandoned(c spec.Config) {
	seen := map[string]bool{}
	for _, spec := range c.Specs {
		if dir := spec.Drill.Dir; !spec.Drill.None() && !seen[dir] {
			seen[dir] = true
			child.RemoveAbandoned(dir)
		}
	}
}

// apply starts a worker for each cluster that is new, tells those of the others, and ends those of clusters that are gone.
func (s *Service) apply(ctx, jobs context.Context, c spec.Config, slots *semaphore.Weighted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := map[string]bool{}
	for _, spec := range c.Specs {
		wanted[spec.Cluster] = true
		o := order{spec, s.lane(spec.Repositories, c.Concurrency), slots, c.Lease, c.Faulty[spec.Cluster]}
		if w, ok := s.workers[spec.Cluster]; ok {
			w.told = spec
			w.give(o)
			w.driller.give(o)
			continue
		}
		own, stop := context.WithCancel(ctx)
		w := s.newWorker(o, jobs, stop)
		s.workers[spec.Cluster] = w
		s.running.Go(func() { w.work(own, w.turn, w.take) })
		s.running.Go(func() { w.driller.work(own, w.driller.turn, w.driller.take) })
		s.running.Go(func() { w.observer.run(own, ctx) })
	}
	for name, w := range s.workers {
		if !wanted[name] {
			w.stop()
			delete(s.workers, name)
		}
	}
	s.applyFaulty(ctx, c, wanted)
	s.archive(ctx, c, slots)
}

func (s *Service) newWorker(o order, jobs context.Context, stop context.CancelFunc) *worker {
	board := s.newBoard(o.spec.Cluster)
	hired := func() hand {
		return hand{
			order: o, service: s, jobs: jobs, orders: make(chan order, 1), asks: newAsks(), board: board,
			// Its own, as that of a cluster which was taken out and put back in may still be at work.
			holder: s.newHolder(),
		}
	}
	observer := newObserver(s, board, o)
	board.ended = observer.nudge
	w := &worker{hand: hired(), driller: &driller{hand: hired()}, observer: observer, stop: stop, told: o.spec}
	observer.gone = w.gone
	return w
}

func (s *Service) newHolder() string {
	return fmt.Sprintf("%s/%s", s.Host, strings.ToLower(rand.Text()[:16]))
}

// pass hands on what a job for a cluster says, but for its progress.
func (s *Service) pass(cluster string, e storage.Event) {
	if e.Level != storage.Progress {
		e.Cluster = cluster
		s.Report.Say(e)
	}
}

// open opens the cluster's part of each of its repositories. Clusters share buckets, and so connections. Nothing is asked
// yet: whether a repository is needed is for the caller to decide.
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

// rememberedHeaders are of one cluster in one repository. They hold for one Spec: another may trust other keys.
type rememberedHeaders struct {
	digest  string
	headers *log.Headers
}

// headersOf returns what all jobs of the cluster remember of its log in r.
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

// bucket returns the bucket of r, which is opened when it is first asked for something.
func (s *Service) bucket(r spec.Repository) *storage.Guard {
	key := fmt.Sprint(r.URL, " ", r.Parallel, " ", r.Limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.buckets[key]
	if !ok {
		b = storage.NewGuard(func(ctx context.Context) (storage.Bucket, error) { return s.Open(ctx, r) }, Patience)
		s.buckets[key] = b
	}
	return b
}
