package lease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func hold(tb testing.TB, c *repository.Cluster, holder string) (lease.Hold, bool) {
	tb.Helper()
	h, held, err := c.Leases().Hold(tb.Context(), "archive", holder, ttl)
	if err != nil {
		tb.Fatal(err)
	}
	return h, held
}

func wantHolder(tb testing.TB, c *repository.Cluster, want string) {
	tb.Helper()
	got, err := c.Leases().Live(tb.Context(), "archive", time.Now())
	if got.Holder != want || err != nil {
		tb.Errorf("%q has the lease, %v; want %q", got.Holder, err, want)
	}
}

// kept is a Hold that Keep renews until stop.
func kept(tb testing.TB, h lease.Hold, renewed func(time.Time)) (stop func() error) {
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Keep(ctx, renewed) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// TestHold checks that a kept lease lasts, and that a released one is free at once.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "c")
		a, held := hold(t, c, "a")
		wantLease(t, "first", a.Lease, held, "a", 1, true)
		var last atomic.Value
		stop := kept(t, a, func(from time.Time) { last.Store(from) })
		time.Sleep(10*ttl + time.Second)
		b, held := hold(t, c, "b")
		wantLease(t, "while it is kept", b.Lease, held, "a", 1, false)
		since := time.Since(last.Load().(time.Time))
		if since > ttl/2 {
			t.Errorf("last told of a renewal %v ago, it lasts %v", since, ttl)
		}
		err := stop()
		if err != nil {
			t.Fatal(err)
		}
		b, held = hold(t, c, "b")
		wantLease(t, "given back", b.Lease, held, "b", 2, true)
		time.Sleep(ttl)
		a, held = hold(t, c, "a")
		wantLease(t, "that nobody keeps, at its end", a.Lease, held, "a", 3, true)
		err = a.Release(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantHolder(t, c, "")
	})
}

// unconditional is a store that ignores IfVersion or, with refuses, refuses it.
type unconditional struct {
	*mem.Bucket
	refuses bool
}

func (u unconditional) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if u.refuses && o.IfVersion != "" {
		return storage.Object{}, storage.ErrUnsupported
	}
	o.IfVersion = ""
	return u.Bucket.Put(ctx, key, r, o)
}

// eachUnconditional runs test in a synctest bubble with each kind of store without conditional writes.
func eachUnconditional(t *testing.T, test func(t *testing.T, b storage.Bucket)) {
	for name, refuses := range map[string]bool{"ignores": false, "refuses": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, unconditional{mem.New(), refuses}) })
		})
	}
}

// TestHoldWithoutConditions checks that in a store without conditional writes the last of several writers holds the
// lease, and that the others find out before they hold it.
func TestHoldWithoutConditions(t *testing.T) {
	eachUnconditional(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		go func() {
			time.Sleep(time.Millisecond)
			stored.Remove(t, b, leaseKey) // as if b had read before a wrote
			acquire(t, c, "b", time.Now())
		}()
		h, held := hold(t, c, "a")
		wantLease(t, "a", h.Lease, held, "b", 1, false)
		_, held = renew(t, c, h.Lease, time.Now())
		if !held {
			t.Error("b has lost the lease")
		}
	})
}

// TestHoldCancelled checks that a Hold that is cancelled while it waits releases the lease.
func TestHoldCancelled(t *testing.T) {
	eachUnconditional(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, held, err := c.Leases().Hold(ctx, "archive", "a", ttl)
		stored.WantError(t, "cancelled", err, context.DeadlineExceeded)
		if held {
			t.Error("a cancelled Hold holds the lease")
		}
		wantHolder(t, c, "")
	})
}

// TestHoldDoesNotWait checks that Hold does not wait in a store with conditional writes.
func TestHoldDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "c")
		began := time.Now()
		h, held := hold(t, c, "a")
		wantLease(t, "a", h.Lease, held, "a", 1, true)
		waited := time.Since(began)
		if waited > 0 {
			t.Errorf("Hold has waited for %v", waited)
		}
	})
}

// busy is a Bucket in which another process replaces each object until a time, as the store of files reports it while that process has the lock.
type busy struct {
	storage.Bucket
	until time.Time
}

func (b *busy) Put(ctx context.Context, key string, data io.Reader, o storage.PutOptions) (storage.Object, error) {
	if o.IfVersion != "" && time.Now().Before(b.until) {
		return storage.Object{}, storage.ErrChanged
	}
	return b.Bucket.Put(ctx, key, data, o)
}

// TestHoldWaitsForAnotherWriter takes a lease while another process is slow to complete its own change.
func TestHoldWaitsForAnotherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{mem.New(), time.Now().Add(time.Second)}
		h, held := hold(t, stored.OpenCluster(t, b, "c"), "a")
		if !held || h.Holder != "a" {
			t.Errorf("held: %t, by %q", held, h.Holder)
		}
	})
}

// TestHoldRace checks that exactly one of several processes that take a lease at the same time holds it, first a new lease and
// then a released one. Each process has its own Bucket, as on several hosts.
func TestHoldRace(t *testing.T) {
	dir, shared := t.TempDir(), mem.New()
	for name, open := range map[string]func(tb testing.TB) storage.Bucket{
		"mem":  func(testing.TB) storage.Bucket { return shared },
		"file": func(tb testing.TB) storage.Bucket { return stored.OpenFile(tb, dir) },
	} {
		t.Run(name, func(t *testing.T) {
			var all []*repository.Cluster
			for range 8 {
				all = append(all, stored.OpenCluster(t, open(t), "c"))
			}
			for round := range uint64(10) {
				h := oneHolds(t, all)
				if h.Generation != round+1 {
					t.Errorf("generation %d, want %d", h.Generation, round+1)
				}
				err := h.Release(t.Context())
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// oneHolds calls Hold for all at the same time, and returns the one that holds the lease.
func oneHolds(t *testing.T, all []*repository.Cluster) (winner lease.Hold) {
	t.Helper()
	holds, held := make([]lease.Hold, len(all)), make([]bool, len(all))
	var taking sync.WaitGroup
	for i, c := range all {
		taking.Go(func() {
			var err error
			holds[i], held[i], err = c.Leases().Hold(t.Context(), "archive", fmt.Sprint("holder ", i), ttl)
			if err != nil {
				t.Error(err)
			}
		})
	}
	taking.Wait()
	winners := 0
	for i := range all {
		if held[i] {
			winner = holds[i]
			winners++
		}
	}
	if winners != 1 {
		t.Fatalf("%d of %d hold the lease, want 1", winners, len(all))
	}
	for i := range all {
		if holds[i].Holder != winner.Holder {
			t.Errorf("%d was told that %q holds it, not %q", i, holds[i].Holder, winner.Holder)
		}
	}
	return winner
}

// TestFrozenHolder checks that a holder that sleeps between the read and the write of a renewal does not take the lease back
// from the process that has taken it since.
func TestFrozenHolder(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		frozen := &freezing{Bucket: b}
		a, c := stored.OpenCluster(t, frozen, "c"), stored.OpenCluster(t, b, "c")
		l, _ := acquire(t, a, "a", stored.Noon)
		frozen.beforePut = func() {
			taken, held := acquire(t, c, "b", stored.Noon.Add(ttl))
			wantLease(t, "b takes over", taken, held, "b", 2, true)
		}
		theirs, held := renew(t, a, l, stored.Noon.Add(ttl-1))
		wantLease(t, "a wakes up", theirs, held, "b", 2, false)
		now, err := c.Leases().Live(t.Context(), "archive", stored.Noon.Add(ttl))
		if now.Holder != "b" || err != nil {
			t.Errorf("%q has the lease, %v", now.Holder, err)
		}
	})
}

// freezing is a Bucket that calls beforePut before the next Put.
type freezing struct {
	storage.Bucket
	beforePut func()
}

func (f *freezing) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	do := f.beforePut
	f.beforePut = nil
	if do != nil {
		do()
	}
	return f.Bucket.Put(ctx, key, r, o)
}

// TestHoldLost checks that Keep returns ErrLost after another process has taken the lease, and does not release that lease.
func TestHoldLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "c")
		h, _ := hold(t, c, "a")
		ended := make(chan error, 1)
		go func() { ended <- h.Keep(t.Context(), nil) }()
		time.Sleep(time.Second)
		acquire(t, c, "b", time.Now().Add(ttl)) // with a fast clock
		stored.WantError(t, "taken", <-ended, lease.ErrLost)
		wantHolder(t, c, "b")
	})
}

// TestHoldRemoved checks that Keep ends when the stored lease has been removed, and does not blame another process for it.
func TestHoldRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		c := stored.OpenCluster(t, b, "c")
		h, _ := hold(t, c, "a")
		ended := make(chan error, 1)
		go func() { ended <- h.Keep(t.Context(), nil) }()
		time.Sleep(time.Second)
		stored.Remove(t, b, leaseKey)
		err := <-ended
		stored.WantError(t, "removed", err, lease.ErrLost)
		if !strings.Contains(err.Error(), "missing or damaged") {
			t.Error(err)
		}
	})
}

// TestHoldWhileTheStoreIsUnreachable checks that Keep reports no renewals while the store is unreachable, and renews the lease
// afterwards.
func TestHoldWhileTheStoreIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storagetest.Faulty(mem.New())
		c := stored.OpenCluster(t, b, "c")
		h, _ := hold(t, c, "a")
		var renewals atomic.Int64
		stop := kept(t, h, func(time.Time) { renewals.Add(1) })
		b.On(storagetest.VerbPut).Times(25).Fail(stored.ErrTest)
		time.Sleep(2*ttl + time.Second)
		wantHolder(t, c, "")
		if renewals.Load() > 0 {
			t.Errorf("%d renewals while the store was away", renewals.Load())
		}
		time.Sleep(ttl)
		wantHolder(t, c, "a")
		if renewals.Load() == 0 {
			t.Error("no renewal when the store was back")
		}
		b.On(storagetest.VerbPut).Fail(stored.ErrTest)
		err := stop()
		if !errors.Is(err, stored.ErrTest) {
			t.Errorf("given back to a store that is away: %v", err)
		}
	})
}

// TestHoldCosts checks how many requests a lease that is kept for an hour costs, in stores that honor conditions and in those that do not, and
// that it never ends meanwhile.
func TestHoldCosts(t *testing.T) {
	const lasts = time.Hour
	for _, test := range []struct {
		name  string
		store func() storage.Bucket
		idle  bool
		most  int
	}{
		{"busy", func() storage.Bucket { return mem.New() }, false, int(2 * lasts / ttl)},
		{"idle", func() storage.Bucket { return mem.New() }, true, int(2 * lasts / lease.IdleTTL)},
		{"idle, without conditions", func() storage.Bucket { return unconditional{Bucket: mem.New()} }, true, int(4 * lasts / lease.IdleTTL)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &counted{Bucket: test.store()}
				c := stored.OpenCluster(t, b, "c")
				h, _ := hold(t, c, "a")
				h.Idle = func() bool { return test.idle }
				before := b.requests.Load()
				stop := kept(t, h, nil)
				for range int(lasts / time.Second) {
					time.Sleep(time.Second)
					l, err := stored.OpenCluster(t, b.Bucket, "c").Leases().Live(t.Context(), "archive", time.Now())
					if err != nil || l.Holder != "a" {
						t.Fatalf("%q has the lease, %v", l.Holder, err)
					}
				}
				cost := int(b.requests.Load() - before)
				if cost > test.most {
					t.Errorf("%d requests, want at most %d", cost, test.most)
				}
				err := stop()
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// counted is a Bucket that counts the requests that read or write an object.
type counted struct {
	storage.Bucket
	requests atomic.Int64
}

func (c *counted) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	c.requests.Add(1)
	return c.Bucket.Put(ctx, key, r, o)
}

func (c *counted) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	c.requests.Add(1)
	return c.Bucket.Open(ctx, key, o)
}

// TestHoldAfterIdleness checks that the long lease of an idle job is shortened soon after the job has something to do.
func TestHoldAfterIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "c")
		h, _ := hold(t, c, "a")
		var busy atomic.Bool
		h.Idle = func() bool { return !busy.Load() }
		stop := kept(t, h, nil)
		time.Sleep(10 * time.Minute)
		busy.Store(true)
		time.Sleep(ttl/2 + time.Second)
		l, err := c.Leases().Live(t.Context(), "archive", time.Now())
		left := time.Until(l.Until)
		if err != nil || left <= 0 || left > ttl {
			t.Errorf("the lease lasts for %s still, %v", left, err)
		}
		err = stop()
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestHoldInAStoreThatChanges checks that a lease that another process has taken is not taken back when the store begins to refuse conditions.
func TestHoldInAStoreThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &changing{Bucket: mem.New()}
		c := stored.OpenCluster(t, b, "c")
		h, _ := hold(t, c, "a")
		b.refuses.Store(true)
		acquire(t, c, "b", time.Now().Add(ttl)) // with a fast clock
		stored.WantError(t, "taken", h.Keep(t.Context(), nil), lease.ErrLost)
		wantHolder(t, c, "b")
	})
}

// changing is a store that refuses IfVersion from some time on.
type changing struct {
	storage.Bucket
	refuses atomic.Bool
}

func (c *changing) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if c.refuses.Load() && o.IfVersion != "" {
		return storage.Object{}, storage.ErrUnsupported
	}
	return c.Bucket.Put(ctx, key, r, o)
}
