package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// fleet is a service with many clusters, whose members are emulated: a backup is a few bytes. So the cost is that of
// the service without its backups.
type fleet struct {
	clusters, backups int           // each cluster has this many backups at the beginning
	settles           time.Duration // after the start each cluster is checked twice for conditions
	lasts             time.Duration
	stores            map[string]*storagetest.Faults // one for each cluster: a mem.Bucket is slow with a million objects
	taken             atomic.Int64

	start    time.Duration // from Run until it knows all clusters
	startCPU time.Duration
	requests int // of the start
	cpu      time.Duration
	memory   int64 // bytes that the process has more than before
}

const (
	fleetEvery   = 10 * time.Minute     // one backup of each cluster
	fleetRequest = 5 * time.Millisecond // of the store, each
)

// The limits of a thousand clusters.
const (
	fleetShare  = 0.01 // of a core
	fleetMemory = 300 << 20
	fleetStart  = 20 * time.Second
)

// measureFleet starts a service for many clusters with many backups, and measures its cost for a while.
func measureFleet(ctx context.Context, o options) (page string, past error, err error) {
	f := &fleet{clusters: 1000, backups: 200, settles: 3 * time.Minute, lasts: fleetEvery / 2}
	if o.quick {
		f.clusters, f.backups, f.settles, f.lasts = 20, 5, 0, time.Second
	}
	err = f.fill(ctx)
	if err != nil {
		return "", nil, err
	}
	for _, store := range f.stores {
		for _, verb := range []storagetest.Verb{storagetest.VerbPut, storagetest.VerbOpen, storagetest.VerbStat, storagetest.VerbList, storagetest.VerbDelete} {
			store.On(verb).Always().Delay(fleetRequest)
		}
	}
	err = f.run(ctx)
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	past = f.render(&b)
	if o.quick {
		past = nil
	}
	return b.String(), past, nil
}

// fill stores the backups of the last hours, the newest of them a moment ago: none is due.
func (f *fleet) fill(ctx context.Context) error {
	f.stores = map[string]*storagetest.Faults{}
	now := time.Now()
	for n := range f.clusters {
		store := storagetest.Faulty(mem.New())
		f.stores[clusterName(n)] = store
		c, err := repository.Open(store, clusterName(n))
		if err != nil {
			return err
		}
		for i := f.backups - 1; i >= 0; i-- {
			_, err := emulated(ctx, c, now.Add(-time.Duration(i)*fleetEvery), nil)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func clusterName(n int) string { return fmt.Sprintf("cluster-%04d", n) }

// emulated stores a few bytes in place of a snapshot, as if a member had sent them.
func emulated(ctx context.Context, c *repository.Cluster, started time.Time, labels catalog.Labels) (catalog.Backup, error) {
	id, err := c.FreeID(ctx, catalog.NewID(started, 1000))
	if err != nil {
		return catalog.Backup{}, err
	}
	sum := sha256.Sum256(nil)
	return stored.CreateFrom(ctx, c, id, seal.Recipients{}.Seal(), bytes.NewReader([]byte("sealed")), func() (catalog.Manifest, error) {
		return catalog.Manifest{
			Started: started, Finished: started.Add(time.Second), Revision: 1000, RaftIndex: 1000, ClusterID: "cdf818194e3a8c32",
			Labels: labels, Plain: catalog.Blob{Name: "snapshot.db", Size: 1000, SHA256: hex.EncodeToString(sum[:])},
		}, nil
	})
}

func (f *fleet) config() (c spec.Config, err error) {
	c = spec.Config{Concurrency: 4, Lease: time.Minute}
	for n := range f.clusters {
		s := spec.Spec{Cluster: clusterName(n), Digest: clusterName(n), Timeout: time.Hour, Observe: fleetEvery}
		s.Backup.Require, s.Backup.Grace = spec.All, time.Hour
		s.Retention = retention.Policy{Last: f.backups}
		s.Repositories = []spec.Repository{{Name: "main", URL: s.Cluster}}
		s.Schedule, err = spec.ParseSchedule("@every 10m", time.UTC, fleetEvery, s.Cluster)
		if err != nil {
			return c, err
		}
		c.Specs = append(c.Specs, s)
	}
	return c, nil
}

func (f *fleet) service() *scheduler.Service {
	return &scheduler.Service{
		Open: func(_ context.Context, r spec.Repository) (storage.Bucket, error) { return f.stores[r.URL], nil },
		Backup: func(ctx context.Context, asked scheduler.BackupRequest, _ storage.Report) (r backup.Result, err error) {
			f.taken.Add(1)
			r.Backup, err = emulated(ctx, asked.To[0].Cluster, time.Now(), asked.Spec.Backup.Labels)
			return r, err
		},
		Host: "bench", Patience: time.Second, Report: func(storage.Event) {},
	}
}

// run starts the service, and stops it after the time of the measurement.
func (f *fleet) run(ctx context.Context) error {
	c, err := f.config()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	memory, requests := inUse(), f.reads()
	s, ended := f.service(), make(chan struct{})
	began, cpu := time.Now(), spentHere()
	go func() {
		defer close(ended)
		s.Run(running, c, nil)
	}()
	for f.start == 0 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		if knowsAll(s, f.clusters) {
			f.start, f.startCPU = time.Since(began), spentHere()-cpu
		}
	}
	f.requests = f.reads() - requests
	_ = storage.Sleep(ctx, f.settles)
	f.taken.Store(0)
	cpu = spentHere()
	_ = storage.Sleep(ctx, f.lasts)
	f.cpu = spentHere() - cpu
	f.memory = inUse() - memory
	stop()
	<-ended
	return ctx.Err()
}

// reads returns the number of requests to all stores for listings and objects.
func (f *fleet) reads() (n int) {
	for _, store := range f.stores {
		n += store.Calls(storagetest.VerbList) + store.Calls(storagetest.VerbOpen)
	}
	return n
}

// knowsAll reports whether the service has loaded every cluster.
func knowsAll(s *scheduler.Service, clusters int) bool {
	all := s.Status()
	for _, one := range all {
		if one.State == scheduler.Starting {
			return false
		}
	}
	return len(all) == clusters
}

// spentHere returns the CPU time of this process.
func spentHere() time.Duration {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	if err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inUse returns the memory of the process, in bytes, after a garbage collection.
func inUse() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func (f *fleet) render(b *strings.Builder) (past error) {
	share := f.cpu.Seconds() / f.lasts.Seconds()
	fmt.Fprintf(b, `
## A service with many clusters

One process, %d clusters with %d backups each, a backup of each every %v, by members that are emulated. The stores take %v
for each request. CPU is counted from three minutes after the start. Leases, looks at the repository, also those for conditions,
the objects of a backup and the store in memory count; snapshots do not, nor does pruning, which reads the manifests of all that
is kept.

| | measured | limit |
|---|---|---|
`, f.clusters, f.backups, fleetEvery, fleetRequest)
	fmt.Fprintf(b, "| start, until all clusters are known (%d requests, %.1f s of CPU) | %.1f s | %.0f s |\n",
		f.requests, f.startCPU.Seconds(), f.start.Seconds(), fleetStart.Seconds())
	fmt.Fprintf(b, "| CPU, of one core (%d backups in %.0f s) | %.2f %% | %.0f %% |\n",
		f.taken.Load(), f.lasts.Seconds(), 100*share, 100*fleetShare)
	fmt.Fprintf(b, "| memory | %d MiB | %d MiB |\n", f.memory>>20, fleetMemory>>20)
	if share > fleetShare {
		past = fmt.Errorf("fleet: %.2f %% of a core, the limit is %.0f %%", 100*share, 100*fleetShare)
	}
	if f.memory > fleetMemory {
		past = errors.Join(past, fmt.Errorf("fleet: %d MiB, the limit is %d MiB", f.memory>>20, fleetMemory>>20))
	}
	if f.start > fleetStart {
		past = errors.Join(past, fmt.Errorf("fleet: the start took %v, the limit is %v", f.start, fleetStart))
	}
	if f.taken.Load() == 0 && f.lasts > time.Minute {
		past = errors.Join(past, errors.New("fleet: no backup was taken"))
	}
	return past
}
