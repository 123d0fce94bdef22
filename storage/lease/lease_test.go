package lease_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/golden"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const ttl = 30 * time.Second

const leaseKey = "c/leases/archive.json"

func acquire(tb testing.TB, c *repository.Cluster, holder string, now time.Time) (lease.Lease, bool) {
	tb.Helper()
	l, held, err := c.Leases().Acquire(tb.Context(), "archive", holder, lease.Term{TTL: ttl, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	return l, held
}

func renew(tb testing.TB, c *repository.Cluster, l lease.Lease, now time.Time) (lease.Lease, bool) {
	tb.Helper()
	l, held, err := c.Leases().Renew(tb.Context(), l, ttl, now)
	if err != nil {
		tb.Fatal(err)
	}
	return l, held
}

func wantLease(tb testing.TB, what string, l lease.Lease, held bool, holder string, generation uint64, wantHeld bool) {
	tb.Helper()
	if l.Holder != holder || l.Generation != generation || held != wantHeld {
		tb.Errorf("%s: %+v, held %v; want generation %d of %s, held %v", what, l, held, generation, holder, wantHeld)
	}
}

// TestLease checks that one process at a time holds a lease, until it ends, is released or is taken.
func TestLease(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		a, held := acquire(t, c, "a", stored.Noon)
		wantLease(t, "first", a, held, "a", 1, true)
		l, held := acquire(t, c, "b", stored.Noon.Add(ttl-1))
		wantLease(t, "while it lasts", l, held, "a", 1, false)
		a, held = renew(t, c, a, stored.Noon.Add(ttl-1))
		wantLease(t, "renewed", a, held, "a", 1, true)
		l, held = acquire(t, c, "b", stored.Noon.Add(2*ttl-2))
		wantLease(t, "while it lasts again", l, held, "a", 1, false)
		taken, held := acquire(t, c, "b", stored.Noon.Add(2*ttl-1))
		wantLease(t, "when it has ended", taken, held, "b", 2, true)
		l, held = renew(t, c, a, stored.Noon.Add(2*ttl))
		wantLease(t, "renewed by the old one", l, held, "b", 2, false)
		err := c.Leases().Release(t.Context(), a, stored.Noon.Add(2*ttl))
		if err != nil {
			t.Fatal(err)
		}
		l, held = acquire(t, c, "a", stored.Noon.Add(2*ttl))
		wantLease(t, "released by the old one", l, held, "b", 2, false)
		err = c.Leases().Release(t.Context(), taken, stored.Noon.Add(2*ttl))
		if err != nil {
			t.Fatal(err)
		}
		l, held = acquire(t, c, "a", stored.Noon.Add(2*ttl))
		wantLease(t, "released", l, held, "a", 3, true)
		l, held = acquire(t, c, "a", stored.Noon.Add(2*ttl))
		wantLease(t, "by the same", l, held, "a", 4, true)
		swept, err := c.Sweep(t.Context(), 0, time.Now().Add(24*time.Hour))
		if len(swept) > 0 || err != nil {
			t.Errorf("swept %+v, %v", swept, err)
		}
	})
}

// TestAcquireReplacesInvalidLeases checks that Acquire takes a lease that is damaged, of another job, or of a clock that is far ahead.
func TestAcquireReplacesInvalidLeases(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	far := lease.Lease{Format: 1, Job: "archive", Holder: "a", Until: stored.Noon.Add(lease.MaxLease), Generation: 7}
	stored.Put(t, b, leaseKey, encodedLease(t, far))
	l, held := acquire(t, c, "b", stored.Noon)
	wantLease(t, "as long as can be", l, held, "a", 7, false)
	l, held = acquire(t, c, "b", stored.Noon.Add(-1))
	wantLease(t, "longer than can be", l, held, "b", 8, true)
	far.Job = "other"
	for what, data := range map[string][]byte{
		"empty": nil, "noise": stored.Noise(100), "another job's": encodedLease(t, far), "huge": make([]byte, 2<<20),
	} {
		stored.Put(t, b, leaseKey, data)
		l, held = acquire(t, c, "b", stored.Noon)
		wantLease(t, what, l, held, "b", 1, true)
	}
	l, held = renew(t, stored.OpenCluster(t, b, "other"), l, stored.Noon)
	wantLease(t, "in another cluster", l, held, "", 0, false)
}

func TestLeaseRefused(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	for _, job := range []string{"", "../x", "a/b", "A", "a b"} {
		_, _, err := c.Leases().Acquire(t.Context(), job, "a", lease.Term{TTL: ttl, Now: stored.Noon})
		stored.WantError(t, job, err, catalog.ErrName)
	}
	_, _, err := c.Leases().Acquire(t.Context(), "archive", "", lease.Term{TTL: ttl, Now: stored.Noon})
	stored.WantError(t, "nobody", err, catalog.ErrName)
	_, _, err = c.Leases().Acquire(t.Context(), "archive", "a", lease.Term{TTL: lease.MaxLease + 1, Now: stored.Noon})
	if err == nil {
		t.Error("a lease that nobody would believe")
	}
	for _, verb := range []storagetest.Verb{storagetest.VerbOpen, storagetest.VerbPut} {
		b.On(verb).Fail(stored.ErrTest)
		_, held, err := c.Leases().Acquire(t.Context(), "archive", "a", lease.Term{TTL: ttl, Now: stored.Noon})
		stored.WantError(t, "store away", err, stored.ErrTest)
		if held {
			t.Error("held while the store is away")
		}
	}
	l, _ := acquire(t, c, "a", stored.Noon)
	b.On(storagetest.VerbOpen).Fail(stored.ErrTest)
	_, held, err := c.Leases().Renew(t.Context(), l, ttl, stored.Noon)
	stored.WantError(t, "renew", err, stored.ErrTest)
	if held {
		t.Error("held while the store is away")
	}
	b.On(storagetest.VerbOpen).Fail(stored.ErrTest)
	stored.WantError(t, "release", c.Leases().Release(t.Context(), l, stored.Noon), stored.ErrTest)
}

func encodedLease(tb testing.TB, l lease.Lease) []byte {
	tb.Helper()
	data, err := lease.Kind.Encode(l)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestLeaseGolden(t *testing.T) {
	want := lease.Lease{Format: 1, Job: "archive", Holder: "host-1/4f1d", Until: stored.Noon.Add(ttl), Generation: 3}
	golden.Want(t, filepath.Join("testdata", "lease.json"), encodedLease(t, want))
	got, err := lease.Kind.Decode(encodedLease(t, want))
	diff := cmp.Diff(want, got)
	if err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func FuzzDecodeLease(f *testing.F) {
	document := encodedLease(f, lease.Lease{Format: 1, Job: "archive", Holder: "h", Until: stored.Noon, Generation: 3})
	f.Add(document)
	f.Add([]byte(stored.Body(document)))
	f.Fuzz(func(t *testing.T, data []byte) {
		stored.Fuzzed(t, data, lease.Kind.Decode, lease.Kind.Encode)
	})
}

// Storing a segment takes one request, and renewing a lease two, see Renew.
func TestRequestsOfAnAgent(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	now := func(h *segment.Header) { h.Written = time.Now() }
	stored.StoreSegments(t, c, w.Next(now)) // the first one also looks for packs, and whether the newest backup is signed
	lease, held, err := c.Leases().Acquire(t.Context(), "archive", "a", lease.Term{TTL: time.Minute, Now: stored.Noon})
	if err != nil || !held {
		t.Fatal(held, err)
	}
	verbs := []storagetest.Verb{storagetest.VerbPut, storagetest.VerbOpen, storagetest.VerbStat, storagetest.VerbList, storagetest.VerbDelete}
	for what, test := range map[string]struct {
		do   func()
		want []int // calls, by verb
	}{
		"a segment": {func() { stored.StoreSegments(t, c, w.Next(now)) }, []int{1, 0, 0, 0, 0}},
		"a renewal": {func() {
			_, held, err := c.Leases().Renew(t.Context(), lease, time.Minute, stored.Noon)
			if err != nil || !held {
				t.Error(held, err)
			}
		}, []int{1, 1, 0, 0, 0}},
	} {
		var calls []int
		for _, verb := range verbs {
			calls = append(calls, -b.Calls(verb))
		}
		test.do()
		for i, verb := range verbs {
			calls[i] += b.Calls(verb)
		}
		if !slices.Equal(calls, test.want) {
			t.Errorf("%s: calls of %v: %v, want %v", what, verbs, calls, test.want)
		}
	}
}
