package archive_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-dr/etcd-dr/backup"
	"github.com/etcd-dr/etcd-dr/backup/archive"
	"github.com/etcd-dr/etcd-dr/backup/cluster"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/embedded"
	"github.com/etcd-dr/etcd-dr/test/objectstores"
)

// agent is one run of archive.Run in this process.
type agent struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	status atomic.Pointer[archive.Status]
	mu     sync.Mutex
	said   []string
}

func configOf(s *embedded.Server) archive.Config {
	return archive.Config{
		Source: segment.WAL, DataDir: s.DataDir,
		Etcd:  cluster.Config{Endpoints: []string{s.URL}, DialTimeout: 5 * time.Second, CommandTimeout: 5 * time.Second},
		Flush: 100 * time.Millisecond, SegmentSize: 1 << 20, Lease: time.Second, HashEvery: time.Hour, MaxWALs: 5,
		Host: "test", Version: "test",
	}
}

func start(t *testing.T, c archive.Config, to *repository.Cluster) *agent {
	t.Helper()
	a := &agent{t: t, ended: make(chan struct{})}
	a.status.Store(&archive.Status{})
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(context.Background())
	if c.Snapshot == nil {
		c.Snapshot = func(ctx context.Context, _ string) error {
			r := backup.Request{From: "any", MaxStream: time.Minute, Grace: time.Hour}
			_, err := backup.Run(ctx, c.Etcd, []backup.Store{{Cluster: to}}, r)
			return err
		}
	}
	c.Observe = func(s archive.Status) { a.status.Store(&s) }
	c.Report = func(e storage.Event) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.said = append(a.said, e.Message)
	}
	go func() {
		defer close(a.ended)
		a.err = archive.Run(ctx, c, to)
	}()
	t.Cleanup(a.stop)
	return a
}

func (a *agent) stop() {
	a.cancel()
	<-a.ended
	if a.err != nil {
		a.t.Errorf("the archive ended: %v", a.err)
	}
}

// patience is for a machine that is ten times slower than an idle one.
const patience = 3 * time.Minute

// wait waits until the status is as wanted.
func (a *agent) wait(what string, ok func(archive.Status) bool) {
	a.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s := *a.status.Load()
		if ok(s) {
			return
		}
		if time.Now().After(end) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.t.Fatalf("wait for %s: the status is %+v; it said %q", what, s, a.said)
		}
	}
}

// catchUp waits until everything that was acknowledged before the call is stored.
func (a *agent) catchUp() {
	a.t.Helper()
	now := time.Now()
	a.wait("everything to be stored", func(s archive.Status) bool { return s.ConfirmedAt.After(now) })
}

func open(t *testing.T, b storage.Bucket) *repository.Cluster {
	t.Helper()
	c, err := repository.Open(b, "prod")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func put(t *testing.T, s *embedded.Server, keys ...string) {
	t.Helper()
	c := s.Client(t)
	for _, key := range keys {
		_, err := c.Put(t.Context(), key, "value of "+key)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func numbered(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%s%04d", prefix, i))
	}
	return keys
}

// stored returns the whole log, which must be one stretch without a gap, and its requests.
func stored(t *testing.T, c *repository.Cluster) (catalog.Stretch, []segment.Record) {
	t.Helper()
	catalog, err := c.Load(t.Context(), backups.LoadOptions{Log: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(catalog.Lineages) != 1 || len(catalog.Lineages[0].Faults) > 0 || len(catalog.Lineages[0].Stretches()) != 1 {
		t.Fatalf("the log is not one stretch: %d lineages, gaps %+v", len(catalog.Lineages), catalog.Gaps())
	}
	s := catalog.Lineages[0].Stretches()[0]
	return s, requests(t, c, s)
}

func requests(t *testing.T, c *repository.Cluster, s catalog.Stretch) (all []segment.Record) {
	t.Helper()
	for _, one := range s.Segments {
		r, err := c.Log().OpenSegment(t.Context(), one, seal.Keys{})
		if err != nil {
			t.Fatal(err)
		}
		for record, err := range r.Records() {
			if err != nil {
				t.Fatal(err)
			}
			if record.Kind == segment.Request {
				all = append(all, record)
			}
		}
		r.Close()
	}
	return all
}

func TestWritesAreStored(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	put(t, etcd, numbered("before", 20)...)
	a := start(t, configOf(etcd), c)
	a.catchUp()
	put(t, etcd, numbered("after", 30)...)
	a.catchUp()
	s, all := stored(t, c)
	if len(all) != 50 {
		t.Errorf("%d requests are stored, want 50", len(all))
	}
	catalog, err := c.Load(t.Context(), backups.LoadOptions{Log: true})
	if err != nil {
		t.Fatal(err)
	}
	w := catalog.Windows()
	if len(w) != 1 || w[0].To.Position != s.Last() || w[0].To.Revision != 51 {
		t.Errorf("windows %+v, want one up to position %d, revision 51", w, s.Last())
	}
	got := *a.status.Load()
	if got.StoredRequests != 50 || got.State != archive.Working || got.Durable != s.Last() {
		t.Errorf("status %+v", got)
	}
}

// TestMarksAreTrue checks that marks have correct times and revisions: targets are found by them.
func TestMarksAreTrue(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	a := start(t, configOf(etcd), c)
	a.catchUp()
	type written struct {
		before, after time.Time
		revision      int64
	}
	var writes []written
	client := etcd.Client(t)
	for i := range 12 {
		w := written{before: time.Now()}
		answer, err := client.Put(t.Context(), "key", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		w.after, w.revision = time.Now(), answer.Header.Revision
		writes = append(writes, w)
		time.Sleep(300 * time.Millisecond)
	}
	a.catchUp()
	s, _ := stored(t, c)
	checked := 0
	for _, one := range s.Segments {
		for _, m := range one.Marks {
			for _, w := range writes {
				if m.Revision == 0 {
					continue
				}
				if w.after.Before(m.NotBefore) && m.Revision < w.revision {
					t.Errorf("mark %+v leaves out revision %d, which was acknowledged at %v", m, w.revision, w.after)
				}
				if w.before.After(m.NotAfter) && m.Revision >= w.revision {
					t.Errorf("mark %+v holds revision %d, which was written after %v", m, w.revision, w.before)
				}
				checked++
			}
		}
	}
	if checked < len(writes) {
		t.Errorf("%d comparisons: there are too few marks with a revision", checked)
	}
}

func TestAgentContinuesWhereItStopped(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	for round := range 3 {
		a := start(t, configOf(etcd), c)
		put(t, etcd, numbered(fmt.Sprintf("round%d", round), 10)...)
		a.catchUp()
		a.stop()
		put(t, etcd, numbered(fmt.Sprintf("between%d", round), 10)...)
	}
	_, all := stored(t, c)
	if len(all) != 50 {
		t.Errorf("%d requests are stored, want 50", len(all))
	}
}

// TestPendingRequestsAreStoredAtTheEnd checks that a stopped agent stores everything that it has read.
func TestPendingRequestsAreStoredAtTheEnd(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	config := configOf(etcd)
	a := start(t, config, c)
	a.catchUp()
	a.stop()
	config.Flush = time.Hour
	a = start(t, config, c)
	put(t, etcd, numbered("key", 10)...)
	a.wait("ten requests to be pending", func(s archive.Status) bool { return s.PendingRequests == 10 })
	a.stop()
	_, all := stored(t, c)
	if len(all) != 10 {
		t.Errorf("%d requests are stored, want 10", len(all))
	}
}

func TestUnreachableStoreIsWaitedFor(t *testing.T) {
	etcd, bucket := embedded.Start(t, nil), storagetest.Faulty(mem.New())
	c := open(t, bucket)
	a := start(t, configOf(etcd), c)
	a.catchUp()
	away := errors.New("the store is away")
	bucket.On(storagetest.VerbPut).Times(6).Fail(away) // leases are hit too
	put(t, etcd, numbered("key", 10)...)
	a.wait("the failure to be told", func(s archive.Status) bool { return s.State == archive.Waiting && s.Problem != "" })
	a.catchUp()
	got := *a.status.Load()
	if got.Failures == 0 || got.State != archive.Working || got.Problem != "" {
		t.Errorf("status %+v tells of no failure", got)
	}
	_, all := stored(t, c)
	if len(all) != 10 {
		t.Errorf("%d requests are stored, want 10", len(all))
	}
}

// TestASpoolIsOneAgents checks that a second agent with the same spool is refused while the first one runs: they would store each other's segments.
func TestASpoolIsOneAgents(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	config := configOf(etcd)
	config.Source, config.Spool, config.SpoolMax, config.Snapshot = segment.Watch, t.TempDir(), 1<<30, noBackup
	first := start(t, config, c)
	first.wait("the first to work", func(s archive.Status) bool { return s.State == archive.Working })
	err := archive.Run(t.Context(), config, c)
	if !errors.Is(err, archive.ErrConfig) {
		t.Errorf("a second one with the same spool: error %v", err)
	}
	first.stop()
	start(t, config, c).wait("the next one to work", func(s archive.Status) bool { return s.State == archive.Working })
}

// TestLostAnswerStoresOnce checks that a segment is stored once even if the response to its upload is lost: its name is the fence.
func TestLostAnswerStoresOnce(t *testing.T) {
	etcd, bucket := embedded.Start(t, nil), storagetest.Faulty(mem.New())
	c := open(t, bucket)
	a := start(t, configOf(etcd), c)
	a.catchUp()
	for i := range 5 {
		bucket.On(storagetest.VerbPut).FailLate(errors.New("connection reset"))
		put(t, etcd, fmt.Sprintf("key%d", i))
		a.catchUp()
	}
	_, all := stored(t, c)
	if len(all) != 5 {
		t.Errorf("%d requests are stored, want 5", len(all))
	}
}

func TestOneWorksAndAnotherTakesOver(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	config := configOf(etcd)
	config.Lease = 10 * time.Second // it is not lost on a machine that stops for a moment
	first := start(t, config, c)
	first.wait("the first to work", func(s archive.Status) bool { return s.State == archive.Working })
	second := start(t, config, c)
	second.wait("the second to stand by", func(s archive.Status) bool { return s.State == archive.Standby && s.Holder != "" })
	put(t, etcd, numbered("first", 10)...)
	first.catchUp()
	first.stop()
	put(t, etcd, numbered("second", 10)...)
	second.catchUp()
	_, all := stored(t, c)
	if len(all) != 20 {
		t.Errorf("%d requests are stored, want 20", len(all))
	}
	got := second.status.Load()
	if got.StoredRequests != 10 {
		t.Errorf("the second stored %d requests, want 10", got.StoredRequests)
	}
}

// TestAnotherClusterBeginsAnotherLineage checks that another cluster under the same name begins another history.
func TestAnotherClusterBeginsAnotherLineage(t *testing.T) {
	c := open(t, mem.New())
	for i := range 2 {
		etcd := embedded.Start(t, func(c *embed.Config) { c.InitialClusterToken = fmt.Sprint("token-", i) })
		a := start(t, configOf(etcd), c)
		put(t, etcd, numbered(fmt.Sprintf("cluster%d/", i), 10)...)
		a.catchUp()
		writeUntilBased(t, etcd, c, i+1)
		if i == 1 { // without a restore
			a.wait("the change to be reported", func(s archive.Status) bool { return strings.Contains(s.Changed, "another cluster") })
		}
		a.stop()
	}
	catalog, err := c.Load(t.Context(), backups.LoadOptions{Log: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(catalog.Lineages) != 2 || len(catalog.Windows()) != 2 || len(catalog.Gaps()) != 1 {
		t.Fatalf("lineages %d, windows %+v, gaps %+v, want two, two and one", len(catalog.Lineages), catalog.Windows(), catalog.Gaps())
	}
	after := catalog.Lineages[1].Segments[0].After
	if after == nil || after.Lineage != catalog.Lineages[0].ID {
		t.Errorf("the second lineage comes after %+v", after)
	}
}

// TestTheLogGetsItsBackup checks that a failed snapshot is retried, also by the next run: without it the log restores nothing.
func TestTheLogGetsItsBackup(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	config := configOf(etcd)
	var tries atomic.Int32
	config.Snapshot = func(context.Context, string) error { tries.Add(1); return errors.New("the user lacks root") }
	a := start(t, config, c)
	put(t, etcd, "key")
	a.wait("the reason to be reported", func(s archive.Status) bool {
		return s.StoredRequests > 0 && s.State == archive.Waiting && !s.Based && strings.Contains(s.Problem, "the user lacks root")
	})
	a.stop()
	if tries.Load() == 0 {
		t.Error("no backup was tried")
	}
	at := a.status.Load().ConfirmedAt
	if !at.IsZero() {
		t.Errorf("there is no backup, and all that was written until %v is said to be safe", at)
	}
	config.Snapshot = nil
	a = start(t, config, c)
	a.catchUp()
	writeUntilBased(t, etcd, c, 1)
}

// writeUntilBased writes until the catalog has the given number of windows. A backup at the end of the log is the base of nothing
// yet, and the test does not know when the agent takes it.
func writeUntilBased(t *testing.T, etcd *embedded.Server, c *repository.Cluster, windows int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		catalog, err := c.Load(t.Context(), backups.LoadOptions{Log: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(catalog.Windows()) == windows {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the log gets no base: windows %+v, want %d", catalog.Windows(), windows)
		}
		put(t, etcd, "another key")
	}
}

// noBackup returns without a backup.
func noBackup(context.Context, string) error { return nil }

func TestConfigIsChecked(t *testing.T) {
	etcd, c := embedded.Start(t, nil), open(t, mem.New())
	for name, spoil := range map[string]func(*archive.Config){
		"flush":      func(c *archive.Config) { c.Flush = time.Millisecond },
		"size":       func(c *archive.Config) { c.SegmentSize = 1 },
		"lease":      func(c *archive.Config) { c.Lease = time.Hour },
		"hash":       func(c *archive.Config) { c.HashEvery = -1 },
		"dir":        func(c *archive.Config) { c.DataDir += "/nowhere" },
		"endpoints":  func(c *archive.Config) { c.Etcd.Endpoints = nil },
		"passphrase": func(c *archive.Config) { c.To, _ = seal.PassphraseRecipient("secret") },
		"no backup":  func(c *archive.Config) { c.Snapshot = nil },
		"no source":  func(c *archive.Config) { c.Source = "" },
		"spool":      func(c *archive.Config) { c.Spool, c.SpoolMax = t.TempDir(), 1<<30 }, // the member's log is the spool
		"small spool": func(c *archive.Config) {
			c.Source, c.Spool, c.SpoolMax = segment.Watch, t.TempDir(), int64(c.SegmentSize)
		},
		"no spool": func(c *archive.Config) {
			c.Source, c.Spool, c.SpoolMax = segment.Watch, filepath.Join(c.DataDir, "member", "snap", "db"), 1<<30
		},
	} {
		config := configOf(etcd)
		config.Snapshot = noBackup
		spoil(&config)
		err := archive.Run(t.Context(), config, c)
		if !errors.Is(err, archive.ErrConfig) && !errors.Is(err, cluster.ErrConfig) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	other := embedded.Start(t, nil) // the log of one cluster and the endpoints of another
	config := configOf(etcd)
	config.Etcd.Endpoints, config.Snapshot = []string{other.URL}, noBackup
	err := archive.Run(t.Context(), config, c)
	if !errors.Is(err, archive.ErrConfig) {
		t.Errorf("another cluster's endpoints: error %v", err)
	}
}

// TestAChangeThatComesSlowly checks that a change arrives that takes longer than two lease times, although a new request would restart its transfer.
func TestAChangeThatComesSlowly(t *testing.T) {
	etcd, to := embedded.Start(t, nil), open(t, mem.New())
	proxy := objectstores.NewProxy(t, etcd.URL)
	c := configOf(etcd)
	c.Source, c.Etcd.Endpoints, c.Snapshot = segment.Watch, []string{"http://" + proxy.Address}, noBackup
	a := start(t, c, to)
	a.wait("it works", func(s archive.Status) bool { return s.State == archive.Working })
	put(t, etcd, "first") // so that there is a log to continue
	a.wait("the first one to be stored", func(s archive.Status) bool { return s.StoredRequests == 1 })
	proxy.Slow(200 << 10)
	_, err := etcd.Client(t).Put(t.Context(), "large", strings.Repeat("x", 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	a.wait("the change to be stored", func(s archive.Status) bool { return s.StoredRequests == 2 })
}
