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

// The limits of concurrency, in one group of clusters and in the whole service.
const (
	firstReadsPerGroup   = 16
	firstReadsPerService = 64 // bounds connections and memory when a service with thousands of clusters starts
	readsPerGroup        = 4  // a read of a repository with a long log takes 80 MB
	readsPerService      = 16
	checksPerService     = 16 // of clusters; bounds connections
	drillsPerService     = 1  // unless Service.Drills is set: each takes the memory of an etcd server
)

// askTime bounds how long one step of a job may wait for its repositories: for the suspension, the lease, the newest backup.
const askTime = 30 * time.Second

// repositoryGroup limits the jobs of a tenant's clusters that have the same repositories. The clusters share these limits, so that a
// slow or silent repository delays only the clusters that use it.
type repositoryGroup struct {
	jobs   *semaphore.Weighted // held by each run of a worker
	drills *semaphore.Weighted // held by each run of a driller, until it gives its slot back
	readLimits
}

// readLimits limit reads. The clusters of all tenants that have the same repositories share them.
type readLimits struct {
	firstReads semaphores // for reads of suspensions and newest backups, by workers and drillers
	reads      semaphores // for reads of repositories with their logs, by observers and triggers
}

// semaphores are acquired in order: the group's, then the service's.
type semaphores []*semaphore.Weighted

// do acquires all semaphores and calls f with a context that ends after limit. It returns an error only if ctx has ended: then f
// was not called, or may have been interrupted.
func (all semaphores) do(ctx context.Context, limit time.Duration, f func(context.Context)) error {
	for _, one := range all {
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

// groupOf returns the group of cluster c. Clusters whose URLs have the same pattern share a group too, because they share a store. The
// caller holds s.mu.
func (s *Service) groupOf(c spec.Spec, concurrency int) *repositoryGroup {
	urls := urlsOf(c.Repositories)
	key := fmt.Sprintf("%d %q %s", concurrency, c.Tenant, urls)
	g, ok := s.groups[key]
	if !ok {
		g = &repositoryGroup{
			jobs: semaphore.NewWeighted(int64(concurrency)), drills: semaphore.NewWeighted(int64(s.drillsAtOnce())), readLimits: s.readLimitsOf(urls),
		}
		s.groups[key] = g
	}
	return g
}

// readLimitsOf returns the limits of reads in the repositories with these URLs. The caller holds s.mu.
func (s *Service) readLimitsOf(urls string) readLimits {
	t, ok := s.readLimits[urls]
	if !ok {
		t = readLimits{
			firstReads: semaphores{semaphore.NewWeighted(firstReadsPerGroup), s.firstReads}, reads: semaphores{semaphore.NewWeighted(readsPerGroup), s.reads},
		}
		s.readLimits[urls] = t
	}
	return t
}

// urlsOf returns the URLs of repositories, or their patterns, sorted and as one text.
func urlsOf(repositories []spec.Repository) string {
	urls := []string{}
	for _, r := range repositories {
		urls = append(urls, cmp.Or(r.Pattern, r.URL))
	}
	slices.Sort(urls)
	return fmt.Sprintf("%q", urls)
}

// drillsAtOnce returns how many drills may run at a time, in a group and in the whole service.
func (s *Service) drillsAtOnce() int { return cmp.Or(s.Drills, drillsPerService) }
