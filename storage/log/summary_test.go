package log_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/soak"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestPackedIsTheSameLog checks that a log, whatever is damaged, is the same after it was packed and swept, folded or not, with a
// summary and without.
func TestPackedIsTheSameLog(t *testing.T) {
	seeds, growth := uint64(3), 4
	if testing.Short() {
		seeds, growth = 1, 1
	}
	if soak.On() {
		seeds = 40
	}
	for name := range newFolding(t, 0).wrong() {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				f := newFolding(t, seed)
				for range growth {
					f.grow()
				}
				f.wrong()[name]()
				whole := stored.Load(t, f.c, backups.LoadOptions{Log: true, Details: true, Proofs: true})
				prune(t, f.c)
				if !testing.Short() {
					f.same(fmt.Sprint("seed ", seed, ", packed"), whole)
				}
				prune(t, f.c)
				f.same(fmt.Sprint("seed ", seed, ", swept"), whole)
			}
		})
	}
}

// prune packs the log of c and stores its summary, as a prune of a process that has just been started does.
func prune(t *testing.T, c *repository.Cluster) log.Packed {
	t.Helper()
	c.Remembering(&log.Headers{})
	defer c.Remembering(nil)
	stored.Load(t, c, backups.LoadOptions{Log: true})
	r, err := c.Prune(t.Context(), repository.Removal{}, repository.PruneOptions{Now: later, Grace: 1000 * time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Packed
}

// same fails the test unless the log is whole, read in any way.
func (f *folding) same(what string, whole catalog.Catalog) {
	f.t.Helper()
	for i, l := range whole.Lineages {
		f.sameRange(what, i, l)
	}
	details := stored.Load(f.t, stored.OpenCluster(f.t, f.b, "c"), backups.LoadOptions{Log: true, Details: true, Proofs: true})
	sameSegments(f.t, f.c, whole, details)
	for _, copies := range []records.Copies{records.NoCopies, records.AnyCopies} {
		folded := stored.Load(f.t, stored.OpenCluster(f.t, f.b, "c"), backups.LoadOptions{Log: true, Copies: copies})
		sameSegments(f.t, f.c, whole, folded)
		diff := cmp.Diff(whole.Windows(), folded.Windows())
		if diff != "" {
			f.t.Fatalf("%s, copies %v: windows (-all +loaded):\n%s", what, copies, diff)
		}
		diff = cmp.Diff(whole.Gaps(), folded.Gaps())
		if diff != "" {
			f.t.Fatalf("%s, copies %v: gaps (-all +loaded):\n%s", what, copies, diff)
		}
	}
}

// sameRange fails the test unless a range of l is loaded as it is.
func (f *folding) sameRange(what string, n int, l catalog.Lineage) {
	f.t.Helper()
	first := l.Segments[0].Seq + f.rng.Uint64N(uint64(len(l.Segments)))
	last := first + f.rng.Uint64N(50)
	c := stored.OpenCluster(f.t, f.b, "c")
	got, err := c.Log().LoadRange(f.t.Context(), l.ID, first, last)
	if err != nil {
		f.t.Fatal(err)
	}
	inRange := func(s catalog.Segment) bool { return s.Seq >= first && s.Seq <= last }
	want := catalog.Lineage{Segments: slices.DeleteFunc(slices.Clone(l.Segments), func(s catalog.Segment) bool { return !inRange(s) })}
	if len(got.Segments) > 0 && (got.Segments[0].FirstSeq() < first || got.Segments[len(got.Segments)-1].Seq > last) {
		f.t.Errorf("%s: of %d to %d, segments %d to %d are loaded", what, first, last, got.Segments[0].FirstSeq(), got.Segments[len(got.Segments)-1].Seq)
	}
	var unfolded []catalog.Segment
	for s, err := range c.Log().Unfolded(f.t.Context(), got.Segments, first, last) {
		if err != nil {
			f.t.Fatal(err)
		}
		unfolded = append(unfolded, s)
	}
	diff := cmp.Diff(want.Segments, unfolded, cmpopts.EquateEmpty())
	if diff != "" {
		f.t.Errorf("%s: segments %d to %d of lineage %d: %s", what, first, last, n, diff)
	}
}

// summarized is a packed and swept log of 17 indexes of 8 segments each, with its summary.
func summarized(t *testing.T, policy records.Policy) *storagetest.Faults {
	t.Helper()
	b := mem.New()
	c := stored.OpenWith(t, b, policy)
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	w.Key = policy.Key
	storeIndexed(t, c, w, 17)
	packed, swept := prune(t, c), prune(t, c)
	if packed.Segments != 17*8 || len(swept.Removed) != 17*8 {
		t.Fatal(packed, swept)
	}
	return storagetest.Faulty(b)
}

// storeIndexed stores the next segments of w, eight for each of so many indexes.
func storeIndexed(t *testing.T, c *repository.Cluster, w *stored.Writer, indexes int) {
	t.Helper()
	for range indexes {
		segments := w.Some(8)
		stored.StoreSegments(t, c, segments...)
		stored.StoreIndex(t, c, stored.SegmentsOf(segments))
	}
}

// TestSummarySavesRequests checks that a load with the summary reads no index, and one that may not use it reads all.
func TestSummarySavesRequests(t *testing.T) {
	owner, stranger := stored.NewSigner(t), stored.NewSigner(t)
	for name, test := range map[string]struct {
		written, read records.Policy
		copies        records.Copies
		used          bool
	}{
		"any, unsigned":             {records.Policy{}, records.Policy{}, records.AnyCopies, true},
		"signed only, unsigned":     {records.Policy{}, records.Policy{}, records.SignedCopies, false},
		"none":                      {records.Policy{Key: owner.Key}, records.Policy{Trust: owner.Key.Trust()}, records.NoCopies, false},
		"signed only, trusted":      {records.Policy{Key: owner.Key}, records.Policy{Trust: owner.Key.Trust()}, records.SignedCopies, true},
		"any, of a stranger's key":  {records.Policy{Key: stranger.Key}, records.Policy{Trust: owner.Key.Trust()}, records.AnyCopies, false},
		"any, trusted, no key here": {records.Policy{Key: owner.Key}, records.Policy{Trust: owner.Key.Trust()}, records.AnyCopies, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := summarized(t, test.written)
			c := stored.OpenWith(t, b, test.read)
			lineages, err := c.Log().Load(t.Context(), log.LoadOptions{Copies: test.copies})
			if err != nil || len(lineages) != 1 {
				t.Fatal(lineages, err)
			}
			reads := b.Calls(storagetest.VerbOpen)
			used := reads <= 2
			if used != test.used {
				t.Errorf("%d reads", reads)
			}
		})
	}
}

// TestBadSummary checks that a summary which is damaged, old or forged changes nothing but the number of requests.
func TestBadSummary(t *testing.T) {
	const key = "c/log-summary.json"
	for name, change := range map[string]func(t *testing.T, b storage.Bucket){
		"no document": func(t *testing.T, b storage.Bucket) { stored.Put(t, b, key, []byte("x")) },
		"cut": func(t *testing.T, b storage.Bucket) {
			stored.Change(t, b, key, func(d []byte) []byte { return d[:len(d)/2] })
		},
		"a flipped bit": func(t *testing.T, b storage.Bucket) {
			stored.Change(t, b, key, func(d []byte) []byte { d[len(d)/2] ^= 2; return d })
		},
		"of another cluster": func(t *testing.T, b storage.Bucket) {
			stored.Put(t, b, key, stored.Get(t, ofAnotherCluster(t), "d/log-summary.json"))
		},
		"a pack is gone": func(t *testing.T, b storage.Bucket) {
			stored.Remove(t, b, catalog.PackKey("c", stored.LineageID(1), 49, 56))
		},
		"an index is gone": func(t *testing.T, b storage.Bucket) {
			stored.Remove(t, b, stored.IndexKey("c", stored.LineageID(1), 49))
		},
		"a pack is cut": func(t *testing.T, b storage.Bucket) {
			stored.Change(t, b, catalog.PackKey("c", stored.LineageID(1), 49, 56), func(d []byte) []byte { return d[:len(d)-1] })
		},
		"a pack is longer": func(t *testing.T, b storage.Bucket) {
			stored.Change(t, b, catalog.PackKey("c", stored.LineageID(1), 49, 56), func(d []byte) []byte { return append(d, 0) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := summarized(t, records.Policy{})
			change(t, b)
			whole := stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{Log: true, Details: true})
			f := &folding{t: t, rng: rand.New(rand.NewPCG(1, 0)), b: b, c: stored.OpenCluster(t, b, "c")}
			f.same(name, whole)
			if testing.Short() {
				return
			}
			prune(t, f.c)
			f.same(name+", after another prune", stored.Load(t, f.c, backups.LoadOptions{Log: true, Details: true}))
		})
	}
}

// ofAnotherCluster returns a bucket with the summary of the log of cluster d.
func ofAnotherCluster(t *testing.T) storage.Bucket {
	b := mem.New()
	c := stored.OpenCluster(t, b, "d")
	storeIndexed(t, c, stored.NewWriter(t, "d", stored.LineageID(1)), 17)
	prune(t, c)
	return b
}
