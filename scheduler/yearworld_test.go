package scheduler_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// fleet is shared by the services of a year: it contains simulated clusters, and stores in memory.
type fleet struct {
	t     *testing.T
	seed  uint64
	begin time.Time
	end   time.Time

	subjects map[string]*subject
	stores   map[string]*depot // by URL
	servers  map[string]*server
	back     map[string]time.Time // when a server that is down comes back
	unserved time.Time            // the last moment without any server
	looks    int
}

// draw decides one thing. The result does not depend on the order of calls, so that a seed determines the year.
func (f *fleet) draw(what ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, what...)
	return rand.New(rand.NewPCG(f.seed, h.Sum64()))
}

func (f *fleet) errorf(format string, args ...any) {
	f.t.Helper()
	if !f.t.Failed() { // one line is enough: the rest follows from it
		f.t.Errorf("ETCD_DR_SEED=%d, on %s: %s", f.seed, time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
	}
}

// depot is a store that may be unreachable. It keeps no old versions.
type depot struct {
	url   string
	below *mem.Bucket

	mu   sync.Mutex
	away time.Time // until then
}

func (d *depot) isAway() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Before(d.away)
}

func (d *depot) leave(until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = until
}

// put and remove leave no old versions: a year of them would take most of the test's time.
func (d *depot) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	old, missing := d.below.Stat(ctx, key)
	object, err := d.below.Put(ctx, key, r, o)
	if err == nil && missing == nil {
		_ = d.below.Delete(ctx, key, storage.DeleteOptions{Version: old.Version})
	}
	return object, err
}

func (d *depot) remove(ctx context.Context, key string) error {
	old, err := d.below.Stat(ctx, key)
	if err != nil {
		return nil
	}
	return d.below.Delete(ctx, key, storage.DeleteOptions{Version: old.Version})
}

func (d *depot) keys(prefix string) (keys []string) {
	for o, err := range d.below.List(context.Background(), storage.ListOptions{Prefix: prefix}) {
		if err == nil {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// view is a store as one server sees it.
type view struct {
	*depot
	of *server
}

func (v view) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	ctx, err := v.of.reach(ctx, v.depot)
	if err != nil {
		return storage.Object{}, err
	}
	var content bytes.Buffer
	object, err := v.put(ctx, key, io.TeeReader(r, &content), o)
	if err == nil {
		v.of.f.stored(v.depot, key, content.Bytes())
	}
	return object, err
}

// stored records a backup when it becomes complete, regardless of the response that its service gets: a request may succeed
// after the service has given it up.
func (f *fleet) stored(in *depot, key string, content []byte) {
	cluster, rest, _ := strings.Cut(key, "/backups/")
	if !strings.HasSuffix(rest, "/manifest.json") {
		return
	}
	m, err := catalog.Manifests.Decode(content)
	if err != nil {
		f.errorf("%s: %v", key, err)
		return
	}
	good := len(m.Alarms) == 0 && m.Plain.Size == usualSize && time.Until(m.Started) < time.Hour
	f.subjects[cluster].ledger(in.url).record(catalog.Backup{Manifest: m}, good)
}

func (v view) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	ctx, err := v.of.reach(ctx, v.depot)
	if err != nil {
		return nil, storage.Object{}, err
	}
	return v.below.Open(ctx, key, o)
}

func (v view) Stat(ctx context.Context, key string) (storage.Object, error) {
	ctx, err := v.of.reach(ctx, v.depot)
	if err != nil {
		return storage.Object{}, err
	}
	return v.below.Stat(ctx, key)
}

func (v view) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		ctx, err := v.of.reach(ctx, v.depot)
		if err != nil {
			yield(storage.Object{}, err)
			return
		}
		v.below.List(ctx, o)(yield)
	}
}

func (v view) Delete(ctx context.Context, key string, _ storage.DeleteOptions) error {
	ctx, err := v.of.reach(ctx, v.depot)
	if err != nil {
		return err
	}
	return v.remove(ctx, key)
}

// server is a running service, on a host that may be killed or frozen.
type server struct {
	*scheduler.Service
	f     *fleet
	name  string
	began time.Time
	stop  context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	dead   bool
	frozen time.Time // until then its requests are blocked
}

// reach is called before each request. It fails if the host is dead or the store unreachable, and blocks while the host is
// frozen. A request that was sent before is carried out afterwards, even if the service has given it up.
func (s *server) reach(ctx context.Context, d *depot) (context.Context, error) {
	s.mu.Lock()
	dead, frozen := s.dead, s.frozen
	s.mu.Unlock()
	wait := time.Until(frozen)
	if wait > 0 {
		time.Sleep(wait)
		ctx = context.WithoutCancel(ctx)
	}
	if dead {
		return ctx, fmt.Errorf("the host is dead: %w", errTest)
	}
	if d.isAway() {
		return ctx, fmt.Errorf("the store %s is away: %w", d.url, errTest)
	}
	return ctx, ctx.Err()
}

func (s *server) freeze(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = until
}

func (f *fleet) start(name string, c spec.Config) {
	s := &server{f: f, name: name, began: time.Now(), ended: make(chan struct{})}
	s.Service = &scheduler.Service{
		Open: func(_ context.Context, r spec.Repository) (storage.Bucket, error) {
			return view{f.stores[r.URL], s}, nil
		},
		Backup: func(ctx context.Context, r scheduler.BackupRequest, _ storage.Report) (backup.Result, error) {
			return f.subjects[r.Spec.Cluster].backup(ctx, s, r.Spec, r.To)
		},
		Prune: func(ctx context.Context, spec spec.Spec, in backup.Store, _ storage.Report) error {
			return f.subjects[spec.Cluster].prune(ctx, s, spec, in)
		},
		Host: name, Patience: time.Minute,
		Report: func(e storage.Event) { f.subjects[e.Cluster].hear(name, e) },
	}
	ctx, stop := context.WithCancel(f.t.Context())
	s.stop = stop
	f.servers[name] = s
	go func() {
		defer close(s.ended)
		s.Run(ctx, c, nil)
	}()
}

// kill stops a server. A dead one cannot release its leases.
func (f *fleet) kill(name string, dead bool) {
	s := f.servers[name]
	s.mu.Lock()
	s.dead = dead
	s.mu.Unlock()
	s.stop()
	<-s.ended
	delete(f.servers, name)
	f.served()
}

// served records when no service runs.
func (f *fleet) served() {
	if len(f.servers) == 0 {
		f.unserved = time.Now()
	}
}

// backup stores a simulated snapshot of the subject in each store that is reachable.
func (s *subject) backup(ctx context.Context, by *server, settings spec.Spec, to []backup.Store) (r backup.Result, err error) {
	began := time.Now()
	plan := s.plan(began)
	s.enter(by, plan)
	defer s.leave()
	err = pause(ctx, plan.took)
	if err != nil {
		return r, err
	}
	if s.isAway() || plan.fails {
		return r, fmt.Errorf("no member answers: %w", errTest)
	}
	var reached []string
	var missing error
	for i, store := range to {
		var one catalog.Backup
		failed := errTest
		if !plan.partial || i == 0 {
			one, failed = s.store(ctx, store.Cluster, began, settings.Backup.Labels, plan)
		}
		r.Stores = append(r.Stores, backup.Outcome{Repository: store.Repository, Err: failed})
		if failed != nil {
			missing = failed
			continue
		}
		r.Backup = one
		reached = append(reached, store.Repository)
	}
	switch {
	case len(reached) == 0:
		return backup.Result{}, missing
	case missing != nil && settings.Backup.Require != spec.Any:
		s.left()
		return r, fmt.Errorf("%w: %w", backup.ErrPartial, missing)
	}
	s.took(taking{slot: slotOf(settings.Backup.Labels), began: began, started: r.Started, by: by.name, in: reached})
	if plan.lost {
		return backup.Result{}, fmt.Errorf("the answer is lost: %w", errTest)
	}
	return r, nil
}

// left counts one that is in some stores and not where it must be.
func (s *subject) left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial++
}

func slotOf(labels catalog.Labels) time.Time {
	slot, err := time.Parse(time.RFC3339, labels[spec.LabelSlot])
	if err != nil {
		panic(err)
	}
	return slot
}

// store stores a backup as backup.Run does, but with content that cannot be opened.
func (s *subject) store(
	ctx context.Context, c *repository.Cluster, began time.Time, labels catalog.Labels, p plan,
) (catalog.Backup, error) {
	started := began.Add(p.ahead)
	id, err := c.FreeID(ctx, catalog.NewID(started, 1000))
	if err != nil {
		return catalog.Backup{}, err
	}
	return stored.CreateFrom(ctx, c, id, seal.Recipients{}.Seal(), strings.NewReader("sealed"), func() (catalog.Manifest, error) {
		m := catalog.Manifest{
			Started: started, Finished: started.Add(p.took), Revision: 1000, RaftIndex: 5, Labels: labels, ClusterID: "cdf818194e3a8c32",
			Plain: catalog.Blob{Name: "snapshot.db", Size: p.size, SHA256: plainSum},
		}
		if p.corrupt {
			m.Alarms = []string{"CORRUPT"}
		}
		return m, nil
	})
}

var plainSum = func() string {
	sum := sha256.Sum256([]byte("plain"))
	return hex.EncodeToString(sum[:])
}()

// prune prunes like dr serve after a backup, and checks the rules of retention before and after it.
func (s *subject) prune(ctx context.Context, by *server, spec spec.Spec, in backup.Store) error {
	now := time.Now()
	catalog, err := in.Cluster.Load(ctx, backups.LoadOptions{Proofs: true, Log: true})
	if err != nil {
		return err
	}
	decisions, err := retention.Plan(catalog, spec.Retention, now)
	if err != nil {
		return err
	}
	_, err = in.Cluster.Prune(ctx, decisions.Removal(now, by.name), repository.PruneOptions{Grace: spec.Backup.Grace, Now: now}, nil)
	if err == nil {
		s.wantFew(in.Repository, len(catalog.Backups))
	}
	s.wantKept(in, now)
	return err
}
