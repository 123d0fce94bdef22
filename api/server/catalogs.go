package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/records"
)

const (
	catalogsAtOnce = 4                // that are loaded, and that are reused; bounds connections and memory
	catalogFor     = 10 * time.Second // the age up to which a catalog is reused, so that a polling page does not keep the store busy
)

// catalogs loads catalogs. Concurrent requests for the same catalog share one load, and its result is reused for catalogFor.
type catalogs struct {
	scheduler *scheduler.Service
	turns     *semaphore.Weighted
	flights   singleflight.Group

	mu   sync.Mutex
	kept map[string]keptCatalog
}

type keptCatalog struct {
	catalog catalog.Catalog
	err     error
	until   time.Time
}

func newCatalogs(s *scheduler.Service) *catalogs {
	return &catalogs{scheduler: s, turns: semaphore.NewWeighted(catalogsAtOnce), kept: map[string]keptCatalog{}}
}

// load returns a cluster's repository of that name ("": its first), and the catalog in it with log and proofs.
func (c *catalogs) load(ctx context.Context, cluster, name string) (spec.Repository, catalog.Catalog, error) {
	place, store, err := c.scheduler.OpenRepository(ctx, cluster, name)
	if err != nil {
		return place, catalog.Catalog{}, err
	}
	key := catalogKey(cluster, place)
	k, ok := c.get(key)
	if ok {
		return place, k.catalog, k.err
	}
	// Other requests wait for this load: it must not fail for them if this client disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeWait)
	defer cancel()
	loaded, err, _ := c.flights.Do(key, func() (any, error) {
		k := keptCatalog{}
		k.err = c.turns.Acquire(ctx, 1)
		if k.err == nil {
			k.catalog, k.err = store.Cluster.Load(ctx, backups.LoadOptions{Imported: true, Proofs: true, Log: true, Copies: records.SignedCopies})
			c.turns.Release(1)
		}
		if k.err != nil {
			k.err = fmt.Errorf("repository %s: %w", place.Name, k.err)
		}
		c.put(key, k)
		return k.catalog, k.err
	})
	catalog, _ := loaded.(catalog.Catalog)
	return place, catalog, err
}

func catalogKey(cluster string, r spec.Repository) string {
	return fmt.Sprint(cluster, " ", r.Name, " ", r.URL, " ", r.Policy.Trusted().Keys())
}

func (c *catalogs) get(key string) (k keptCatalog, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok = c.kept[key]
	return k, ok && time.Now().Before(k.until)
}

// put keeps a result. It drops the expired ones and, if catalogsAtOnce others are left, the oldest, which bounds memory.
func (c *catalogs) put(key string, k keptCatalog) {
	now := time.Now()
	k.until = now.Add(catalogFor)
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, old := range c.kept {
		if now.After(old.until) {
			delete(c.kept, other)
		}
	}
	delete(c.kept, key)
	if len(c.kept) >= catalogsAtOnce {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(c.kept)), func(a, b string) int { return c.kept[a].until.Compare(c.kept[b].until) })
		delete(c.kept, oldest)
	}
	c.kept[key] = k
}

// forget drops a result after a write, so that the next load reads the repository.
func (c *catalogs) forget(cluster string, r spec.Repository) {
	key := catalogKey(cluster, r)
	c.flights.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, key)
}
