package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// The numbers that bound concurrency, in one group (AtOnce) and in the whole service (OfAll).
const (
	firstReadsAtOnce = 16
	firstReadsOfAll  = 64 // bounds connections and memory when a service with thousands of clusters starts
	readAtOnce       = 4  // a read of a repository with a long log takes 80 MB
	readsOfAll       = 16
	checkedAtOnce    = 16 // clusters, in the whole service; bounds connections
	drillsAtOnce     = 1  // in a group, and in the whole service: each takes the memory of an etcd server
)

// askTime bounds how long one step of a job may wait for its repositories: for the suspension, the lease, the newest backup.
const askTime = 30 * time.Second

// repositoryGroup holds the turns that clusters with the same repositories share: a repository that is slow or does not answer
// delays only the clusters that use it.
type repositoryGroup struct {
	jobs       *semaphore.Weighted // for whole runs of workers
	drills     *semaphore.Weighted // for whole runs of drillers
	firstReads turns               // for reads of suspensions and newest backups, by workers and drillers
	reads      turns               // for reads of repositories with their logs, by observers and triggers
}

// turns are semaphores that are acquired in their order: the group's, then the service's.
type turns []*semaphore.Weighted

// do acquires t and calls f, with a context that ends after limit. An error reports that ctx has ended: f was not called, or
// may have been interrupted.
func (t turns) do(ctx context.Context, limit time.Duration, f func(context.Context)) error {
	for _, one := range t {
		err := one.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		defer one.Release(1)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f(limited)
	return ctx.Err()
}

// groupOf returns the group of a cluster's repositories. Clusters whose URLs have the same
// pattern share a group too: their store hangs for all of them at once. The caller holds s.mu.
func (s *Service) groupOf(repositories []spec.Repository, concurrency int) *repositoryGroup {
	urls := []string{}
	for _, r := range repositories {
		urls = append(urls, cmp.Or(r.Pattern, r.URL))
	}
	key := fmt.Sprint(concurrency, slices.SortedFunc(slices.Values(urls), cmp.Compare[string]))
	g, ok := s.groups[key]
	if ok {
		return g
	}
	g = &repositoryGroup{
		jobs: semaphore.NewWeighted(int64(concurrency)), drills: semaphore.NewWeighted(drillsAtOnce),
		firstReads: turns{semaphore.NewWeighted(firstReadsAtOnce), s.firstReads}, reads: turns{semaphore.NewWeighted(readAtOnce), s.reads},
	}
	s.groups[key] = g
	return g
}
