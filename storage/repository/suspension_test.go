package repository_test

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
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// word is what is said of a cluster n seconds past noon.
func word(suspended bool, n int) repository.Suspension {
	return repository.Suspension{Suspended: suspended, Time: stored.Noon.Add(time.Duration(n) * time.Second), By: "test", Reason: "why not"}
}

func say(tb testing.TB, c *repository.Cluster, s repository.Suspension) repository.Suspension {
	tb.Helper()
	said, err := c.WriteSuspension(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	return said
}

// wantWord fails unless want is the last word.
func wantWord(tb testing.TB, what string, c *repository.Cluster, want repository.Suspension) {
	tb.Helper()
	got, err := c.Suspension(tb.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		tb.Errorf("%s: %v\n%s", what, err, diff)
	}
}

// TestSuspension: the last word counts, whatever clock it was said by, where objects are locked too.
func TestSuspension(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c, other := stored.OpenCluster(t, b, "c"), stored.OpenCluster(t, b, "c2")
		wantWord(t, "nobody said anything", c, repository.Suspension{})
		first := say(t, c, word(true, 10))
		if !first.Suspended || !first.Time.Equal(stored.Noon.Add(10*time.Second)) || first.Cluster != "c" {
			t.Errorf("said %+v", first)
		}
		wantWord(t, "suspended", c, first)
		wantWord(t, "of another cluster", other, repository.Suspension{})
		last := say(t, c, word(false, 5)) // by a clock that is behind
		if last.Suspended || !last.Time.After(first.Time) {
			t.Errorf("said %+v behind %+v", last, first)
		}
		wantWord(t, "resumed", c, last)
	})
	b := mem.New()
	c := stored.OpenWith(t, b, records.Policy{Lock: records.Lock{For: time.Hour}})
	say(t, c, word(true, 0))
	wantWord(t, "with locks", c, say(t, c, word(false, 1)))
}

// TestSuspensionRefused: what is damaged, moved here, or not signed by who is trusted counts for nothing, and is written over.
func TestSuspensionRefused(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	owner := stored.NewSigner(t)
	policy := stored.Trust(t, owner.Public)
	policy.Key = owner.Key
	c := stored.OpenWith(t, b, policy)
	say(t, stored.OpenCluster(t, b, "c"), word(true, 0)) // by somebody without a key
	_, err := c.Suspension(t.Context())
	stored.WantError(t, "not signed", err, sign.ErrUntrusted)
	stored.WantError(t, "not signed", err, catalog.ErrDamaged)
	wantWord(t, "signed", c, say(t, c, word(true, 1)))

	write(t, b, "c2/suspension.json", read(t, b, "c/suspension.json"))
	_, err = stored.OpenCluster(t, b, "c2").Suspension(t.Context())
	stored.WantError(t, "moved", err, catalog.ErrDamaged)
	write(t, b, "c/suspension.json", stored.Noise(100))
	_, err = c.Suspension(t.Context())
	stored.WantError(t, "noise", err, catalog.ErrDamaged)
	wantWord(t, "anew", c, say(t, c, word(true, 2)))

	for _, verb := range []storage.Verb{storage.VerbOpen, storage.VerbPut} {
		b.On(verb).Fail(stored.ErrTest)
		_, err := c.WriteSuspension(t.Context(), word(false, 3))
		stored.WantError(t, "the store is away", err, stored.ErrTest)
	}
	b.On(storage.VerbOpen).Fail(stored.ErrTest)
	_, err = c.Suspension(t.Context())
	stored.WantError(t, "the store is away", err, stored.ErrTest)
}

func FuzzDecodeSuspension(f *testing.F) {
	data, err := repository.Suspensions.Encode(fullSuspension())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(stored.Body(data)))
	f.Fuzz(func(t *testing.T, data []byte) {
		stored.Fuzzed(t, data, repository.Suspensions.Decode, repository.Suspensions.Encode)
	})
}
