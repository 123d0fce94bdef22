package lease_test

import (
	"context"
	"errors"
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
	if got, err := c.Leases().Live(tb.Context(), "archive", time.Now()); got.Holder != want || err != nil {
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

// TestHold: one that is kept lasts as long as it is, and is free at once when it is given back.
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
		if since := time.Since(last.Load().(time.Time)); since > ttl/2 {
			t.Errorf("last told of a renewal %v ago, it lasts %v", since, ttl)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		b, held = hold(t, c, "b")
		wantLease(t, "given back", b.Lease, held, "b", 2, true)
		time.Sleep(ttl)
		a, held = hold(t, c, "a")
		wantLease(t, "that nobody keeps, at its end", a.Lease, held, "a", 3, true)
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantHolder(t, c, "")
	})
}

// TestHoldRace: who takes it while another looks whether it has it, has it.
func TestHoldRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		c := stored.OpenCluster(t, b, "c")
		go func() {
			time.Sleep(time.Millisecond)
			stored.Remove(t, b, leaseKey) // b read before a has written
			acquire(t, c, "b", time.Now())
		}()
		h, held := hold(t, c, "a")
		wantLease(t, "a looks again", h.Lease, held, "b", 1, false)
	})
}

// TestHoldCancelled: who gives up while it looks has given it back.
func TestHoldCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, held, err := c.Leases().Hold(ctx, "archive", "a", ttl)
		if stored.WantError(t, "cancelled", err, context.DeadlineExceeded); held {
			t.Error("held by who has given up")
		}
		wantHolder(t, c, "")
	})
}

// TestHoldLost: whoever has lost it is told, and does not give back what is another's.
func TestHoldLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stored.OpenCluster(t, mem.New(), "c")
		h, _ := hold(t, c, "a")
		ended := make(chan error, 1)
		go func() { ended <- h.Keep(t.Context(), nil) }()
		time.Sleep(time.Second)
		acquire(t, c, "b", time.Now().Add(ttl)) // by a clock that is ahead
		stored.WantError(t, "taken", <-ended, lease.ErrLost)
		wantHolder(t, c, "b")
	})
}

// TestHoldWhileTheStoreIsAway: nothing is renewed, nobody is told that it is, and it goes on when the store is back.
func TestHoldWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storagetest.Faulty(mem.New())
		c := stored.OpenCluster(t, b, "c")
		h, _ := hold(t, c, "a")
		var renewals atomic.Int64
		stop := kept(t, h, func(time.Time) { renewals.Add(1) })
		b.On(storage.VerbOpen).Times(6).Fail(stored.ErrTest)
		time.Sleep(2*ttl + time.Second)
		if wantHolder(t, c, ""); renewals.Load() > 0 {
			t.Errorf("%d renewals while the store was away", renewals.Load())
		}
		time.Sleep(ttl)
		if wantHolder(t, c, "a"); renewals.Load() == 0 {
			t.Error("no renewal when the store was back")
		}
		b.On(storage.VerbOpen).Fail(stored.ErrTest)
		if err := stop(); !errors.Is(err, stored.ErrTest) {
			t.Errorf("given back to a store that is away: %v", err)
		}
	})
}
