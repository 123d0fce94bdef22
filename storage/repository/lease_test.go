package repository_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

const ttl = 30 * time.Second

const leaseKey = "c/leases/archive.json"

func acquire(tb testing.TB, c *repository.Cluster, holder string, now time.Time) (repository.Lease, bool) {
	tb.Helper()
	l, held, err := c.AcquireLease(tb.Context(), "archive", holder, ttl, now)
	if err != nil {
		tb.Fatal(err)
	}
	return l, held
}

func renew(tb testing.TB, c *repository.Cluster, l repository.Lease, now time.Time) (repository.Lease, bool) {
	tb.Helper()
	l, held, err := c.RenewLease(tb.Context(), l, ttl, now)
	if err != nil {
		tb.Fatal(err)
	}
	return l, held
}

func wantLease(tb testing.TB, what string, l repository.Lease, held bool, holder string, generation uint64, wantHeld bool) {
	tb.Helper()
	if l.Holder != holder || l.Generation != generation || held != wantHeld {
		tb.Errorf("%s: %+v, held %v; want generation %d of %s, held %v", what, l, held, generation, holder, wantHeld)
	}
}

// TestLease: one at a time, for its time, renewed, released and taken over.
func TestLease(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		a, held := acquire(t, c, "a", noon)
		wantLease(t, "first", a, held, "a", 1, true)
		l, held := acquire(t, c, "b", noon.Add(ttl-1))
		wantLease(t, "while it lasts", l, held, "a", 1, false)
		a, held = renew(t, c, a, noon.Add(ttl-1))
		wantLease(t, "renewed", a, held, "a", 1, true)
		l, held = acquire(t, c, "b", noon.Add(2*ttl-2))
		wantLease(t, "while it lasts again", l, held, "a", 1, false)
		taken, held := acquire(t, c, "b", noon.Add(2*ttl-1))
		wantLease(t, "when it has ended", taken, held, "b", 2, true)
		l, held = renew(t, c, a, noon.Add(2*ttl))
		wantLease(t, "renewed by the old one", l, held, "b", 2, false)
		if err := c.ReleaseLease(t.Context(), a, noon.Add(2*ttl)); err != nil {
			t.Fatal(err)
		}
		l, held = acquire(t, c, "a", noon.Add(2*ttl))
		wantLease(t, "released by the old one", l, held, "b", 2, false)
		if err := c.ReleaseLease(t.Context(), taken, noon.Add(2*ttl)); err != nil {
			t.Fatal(err)
		}
		l, held = acquire(t, c, "a", noon.Add(2*ttl))
		wantLease(t, "released", l, held, "a", 3, true)
		l, held = acquire(t, c, "a", noon.Add(2*ttl))
		wantLease(t, "by the same", l, held, "a", 4, true)
		if swept, err := c.Sweep(t.Context(), 0, time.Now().Add(24*time.Hour)); len(swept) > 0 || err != nil {
			t.Errorf("swept %+v, %v", swept, err)
		}
	})
}

// TestLeaseRace: of two who take it at once the last writer keeps it, and the other one finds out.
func TestLeaseRace(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	a, _ := acquire(t, c, "a", noon)
	remove(t, b, leaseKey) // b reads before a has written
	winner, held := acquire(t, c, "b", noon)
	wantLease(t, "b", winner, held, "b", 1, true)
	l, held := renew(t, c, a, noon)
	wantLease(t, "a looks again", l, held, "b", 1, false)
	l, held = renew(t, c, winner, noon)
	wantLease(t, "b looks again", l, held, "b", 1, true)
}

// TestLeaseNobodyWaitsFor: one that is damaged, of another job, or of a clock that is far ahead.
func TestLeaseNobodyWaitsFor(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	far := repository.Lease{Format: 1, Job: "archive", Holder: "a", Until: noon.Add(repository.MaxLease), Generation: 7}
	put(t, b, leaseKey, encodedLease(t, far))
	l, held := acquire(t, c, "b", noon)
	wantLease(t, "as long as can be", l, held, "a", 7, false)
	l, held = acquire(t, c, "b", noon.Add(-1))
	wantLease(t, "longer than can be", l, held, "b", 8, true)
	far.Job = "other"
	for what, data := range map[string][]byte{
		"empty": nil, "noise": noise(100), "another job's": encodedLease(t, far), "huge": make([]byte, 2<<20),
	} {
		put(t, b, leaseKey, data)
		l, held = acquire(t, c, "b", noon)
		wantLease(t, what, l, held, "b", 1, true)
	}
	l, held = renew(t, openCluster(t, b, "other"), l, noon)
	wantLease(t, "in another cluster", l, held, "", 0, false)
}

func TestLeaseRefused(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	for _, job := range []string{"", "../x", "a/b", "A", "a b"} {
		_, _, err := c.AcquireLease(t.Context(), job, "a", ttl, noon)
		wantError(t, job, err, catalog.ErrName)
	}
	_, _, err := c.AcquireLease(t.Context(), "archive", "", ttl, noon)
	wantError(t, "nobody", err, catalog.ErrName)
	if _, _, err = c.AcquireLease(t.Context(), "archive", "a", repository.MaxLease+1, noon); err == nil {
		t.Error("a lease that nobody would believe")
	}
	for _, verb := range []storage.Verb{storage.VerbOpen, storage.VerbPut} {
		b.On(verb).Fail(errTest)
		_, held, err := c.AcquireLease(t.Context(), "archive", "a", ttl, noon)
		if wantError(t, "store away", err, errTest); held {
			t.Error("held while the store is away")
		}
	}
	l, _ := acquire(t, c, "a", noon)
	b.On(storage.VerbOpen).Fail(errTest)
	_, held, err := c.RenewLease(t.Context(), l, ttl, noon)
	if wantError(t, "renew", err, errTest); held {
		t.Error("held while the store is away")
	}
	b.On(storage.VerbOpen).Fail(errTest)
	wantError(t, "release", c.ReleaseLease(t.Context(), l, noon), errTest)
}

func encodedLease(tb testing.TB, l repository.Lease) []byte {
	tb.Helper()
	data, err := repository.Leases.Encode(l)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestLeaseGolden(t *testing.T) {
	want := repository.Lease{Format: 1, Job: "archive", Holder: "host-1/4f1d", Until: noon.Add(ttl), Generation: 3}
	wantGolden(t, "lease.json", encodedLease(t, want))
	got, err := repository.Leases.Decode(encodedLease(t, want))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func FuzzDecodeLease(f *testing.F) {
	document := encodedLease(f, repository.Lease{Format: 1, Job: "archive", Holder: "h", Until: noon, Generation: 3})
	f.Add(document)
	f.Add([]byte(body(document)))
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzed(t, data, repository.Leases.Decode, repository.Leases.Encode)
	})
}

// A segment is one request; a renewal is two, see RenewLease.
func TestRequestsOfAnAgent(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	w := newWriter(t, "c", lineageID(1))
	storeSegments(t, c, w.next()) // and it looks once whether others sign
	lease, held, err := c.AcquireLease(t.Context(), "archive", "a", time.Minute, noon)
	if err != nil || !held {
		t.Fatal(held, err)
	}
	verbs := []storage.Verb{storage.VerbPut, storage.VerbOpen, storage.VerbStat, storage.VerbList, storage.VerbDelete}
	for what, test := range map[string]struct {
		do   func()
		want []int // calls, by verb
	}{
		"a segment": {func() { storeSegments(t, c, w.next()) }, []int{1, 0, 0, 0, 0}},
		"a renewal": {func() {
			_, held, err := c.RenewLease(t.Context(), lease, time.Minute, noon)
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
