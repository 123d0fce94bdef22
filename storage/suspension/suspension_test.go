package suspension_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/storage/suspension"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// wantWord fails the test unless want is the latest suspension of c.
func wantWord(tb testing.TB, what string, c *repository.Cluster, want suspension.Suspension) {
	tb.Helper()
	got, err := c.Services().Read(tb.Context())
	diff := cmp.Diff(want, got)
	if err != nil || diff != "" {
		tb.Errorf("%s: %v\n%s", what, err, diff)
	}
}

// TestSuspension checks that the latest suspension counts, even if an earlier one has a later time, and in a store that locks
// objects.
func TestSuspension(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c, other := stored.OpenCluster(t, b, "c"), stored.OpenCluster(t, b, "c2")
		wantWord(t, "nobody said anything", c, suspension.Suspension{})
		first := stored.Suspend(t, c, stored.Suspension(true, 10))
		if !first.Suspended || !first.Time.Equal(stored.Noon.Add(10*time.Second)) || first.Cluster != "c" {
			t.Errorf("said %+v", first)
		}
		wantWord(t, "suspended", c, first)
		wantWord(t, "of another cluster", other, suspension.Suspension{})
		last := stored.Suspend(t, c, stored.Suspension(false, 5)) // by a slow clock
		if last.Suspended || !last.Time.After(first.Time) {
			t.Errorf("said %+v behind %+v", last, first)
		}
		wantWord(t, "resumed", c, last)
	})
	b := mem.New()
	c := stored.OpenWith(t, b, records.Policy{Lock: records.Lock{For: time.Hour}})
	stored.Suspend(t, c, stored.Suspension(true, 0))
	wantWord(t, "with locks", c, stored.Suspend(t, c, stored.Suspension(false, 1)))
}

// TestSuspensionRefused checks that a suspension that is damaged, was moved or has no trusted signature has no effect and can
// be replaced.
func TestSuspensionRefused(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	owner := stored.NewSigner(t)
	policy := stored.Trust(t, owner.Public)
	policy.Key = owner.Key
	c := stored.OpenWith(t, b, policy)
	stored.Suspend(t, stored.OpenCluster(t, b, "c"), stored.Suspension(true, 0)) // by a writer without a key
	_, err := c.Services().Read(t.Context())
	stored.WantError(t, "not signed", err, sign.ErrUntrusted)
	stored.WantError(t, "not signed", err, catalog.ErrDamaged)
	wantWord(t, "signed", c, stored.Suspend(t, c, stored.Suspension(true, 1)))

	stored.Put(t, b, "c2/suspension.json", stored.Get(t, b, "c/suspension.json"))
	_, err = stored.OpenCluster(t, b, "c2").Services().Read(t.Context())
	stored.WantError(t, "moved", err, catalog.ErrDamaged)
	stored.Put(t, b, "c/suspension.json", stored.Noise(100))
	_, err = c.Services().Read(t.Context())
	stored.WantError(t, "noise", err, catalog.ErrDamaged)
	wantWord(t, "anew", c, stored.Suspend(t, c, stored.Suspension(true, 2)))

	for _, verb := range []storagetest.Verb{storagetest.VerbOpen, storagetest.VerbPut} {
		b.On(verb).Fail(stored.ErrTest)
		_, err := c.Services().Write(t.Context(), stored.Suspension(false, 3))
		stored.WantError(t, "the store is away", err, stored.ErrTest)
	}
	b.On(storagetest.VerbOpen).Fail(stored.ErrTest)
	_, err = c.Services().Read(t.Context())
	stored.WantError(t, "the store is away", err, stored.ErrTest)
}

func FuzzDecodeSuspension(f *testing.F) {
	data, err := suspension.Kind.Encode(stored.FullSuspension())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(stored.Body(data)))
	f.Fuzz(func(t *testing.T, data []byte) {
		stored.Fuzzed(t, data, suspension.Kind.Decode, suspension.Kind.Encode)
	})
}
