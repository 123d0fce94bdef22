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

// How much is done at once. A lane's numbers bound what clusters with the same repositories do, the service's what all do.
const (
	looksAtOnce   = 16 // of a lane, and readAtOnce, too: a repository with a long log takes 80 MB to look at
	looksOfAll    = 64 // bounds the connections and the memory of a start with thousands of clusters
	readAtOnce    = 4
	readsOfAll    = 16
	checkedAtOnce = 16 // clusters themselves: bounds connections
	drillsAtOnce  = 1  // each takes the memory of an etcd server
)

// askTime bounds how long one step of a job may wait for its repositories: whether the cluster is suspended, the lease,
// which backup is the newest.
const askTime = 30 * time.Second

// lane is where clusters with the same repositories wait for each other: a repository that is slow or does not answer
// takes no turn from a cluster that does not use it.
type lane struct {
	jobs   *semaphore.Weighted // backups with what comes before and after them, and prunings
	drills *semaphore.Weighted // with what comes before them
	looks  turns               // first looks at what a repository holds
	reads  turns               // of repositories with their logs, by observers and triggers
}

// turns bound how much is done at once: first a lane's, then the service's.
type turns []*semaphore.Weighted

// take does one of many things, for long at most. The error is that ctx has ended: what was done may be cut short.
func (t turns) take(ctx context.Context, long time.Duration, do func(context.Context)) error {
	for _, one := range t {
		if err := one.Acquire(ctx, 1); err != nil {
			return err
		}
		defer one.Release(1)
	}
	limited, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	do(limited)
	return ctx.Err()
}

// lane returns the lane of a cluster's repositories. Clusters that have each a place of their own in one store wait for each other
// too: it hangs for all of them at once. The caller holds s.mu.
func (s *Service) lane(repositories []spec.Repository, concurrency int) *lane {
	urls := []string{}
	for _, r := range repositories {
		urls = append(urls, cmp.Or(r.Pattern, r.URL))
	}
	key := fmt.Sprint(concurrency, slices.SortedFunc(slices.Values(urls), cmp.Compare[string]))
	if l, ok := s.lanes[key]; ok {
		return l
	}
	l := &lane{
		jobs: semaphore.NewWeighted(int64(concurrency)), drills: semaphore.NewWeighted(drillsAtOnce),
		looks: turns{semaphore.NewWeighted(looksAtOnce), s.looks}, reads: turns{semaphore.NewWeighted(readAtOnce), s.reads},
	}
	s.lanes[key] = l
	return l
}
