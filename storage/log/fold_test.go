package log_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/soak"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// folding is a log with an index for about every twenty segments, and backups between them.
type folding struct {
	t       *testing.T
	rng     *rand.Rand
	b       *storagetest.Faults
	c       *repository.Cluster
	w       *stored.Writer
	indexed []catalog.Segment // segments of the current lineage after its last index
	second  int
	backups int
}

func newFolding(t *testing.T, seed uint64) *folding {
	b := storagetest.Faulty(mem.New())
	return &folding{t: t, rng: rand.New(rand.NewPCG(seed, 0)), b: b, c: stored.OpenCluster(t, b, "c"), w: stored.NewWriter(t, "c", stored.LineageID(1))}
}

// write stores the next segment, changed by edit, and sometimes an index or a backup after it.
func (f *folding) write(edit func(h *segment.Header)) {
	f.second += 1 + f.rng.IntN(50)
	e := f.w.Next(func(h *segment.Header) {
		h.Written = stored.At(f.second)
		h.Marks = []segment.Mark{stored.MarkAt(h.Last, f.second)}
		if f.second > 1300 && f.second < 1400 {
			h.Diverged = "two hashes"
		}
		if edit != nil {
			edit(h)
		}
	})
	stored.StoreSegments(f.t, f.c, e)
	f.indexed = append(f.indexed, catalog.SegmentOf(e))
	if len(f.indexed) == 20 {
		stored.StoreIndex(f.t, f.c, f.indexed)
		f.indexed = nil
		if f.rng.IntN(4) == 0 { // an agent that took over indexes the last segment again
			f.indexed = append(f.indexed, catalog.SegmentOf(e))
		}
	}
	if f.rng.IntN(15) == 0 {
		f.backups++
		id := catalog.NewID(stored.At(f.second), int64(1000+f.backups))
		m := stored.ManifestOf(stored.Content, stored.At(f.second))
		m.RaftIndex, m.RaftIndexMax, m.RaftTerm = e.Header.Last, 0, e.Header.End.Term
		_, err := stored.TryCreate(f.t, f.c, id, m)
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *folding) grow() {
	for range 90 + f.rng.IntN(60) {
		f.write(nil)
	}
}

// wrong returns functions that damage the log in one way each, by name.
func (f *folding) wrong() map[string]func() {
	some := func() uint64 { return 2 + f.rng.Uint64N(f.w.Header.Seq-2) }
	del := func(seq uint64) { stored.Remove(f.t, f.b, stored.SegmentKey("c", f.w.Header.Lineage, seq)) }
	flip := func(data []byte) []byte { data[f.rng.IntN(len(data))] ^= 1; return data }
	index := func() string { return stored.IndexKey("c", stored.LineageID(1), 1) }
	return map[string]func(){
		"nothing":     func() {},
		"one missing": func() { del(some()) },
		"a run missing": func() {
			s := min(some(), f.w.Header.Seq-8)
			for n := range uint64(5) {
				del(s + n)
			}
		},
		"the end gone": func() { del(f.w.Header.Seq) },
		"one shorter": func() {
			stored.ChangeSegment(f.t, f.b, stored.LineageID(1), some(), func(d []byte) []byte { return d[:len(d)-1] })
		},
		"a bad index": func() { stored.Change(f.t, f.b, index(), flip) },
		"no index": func() {
			stored.Remove(f.t, f.b, index())
		},
		"a recorded gap": func() {
			f.write(func(h *segment.Header) {
				h.First, h.Last, h.Reason = h.First+5, h.Last+5, "purged"
				h.Marks[0].Position += 5
			})
			f.grow()
		},
		"another history": func() {
			last := f.w.Header
			f.w, f.indexed = stored.NewWriter(f.t, "c", stored.LineageID(2)), nil
			f.w.Header.Last = last.Last + 100
			f.write(func(h *segment.Header) {
				h.Reason, h.After = "restored", &segment.After{Lineage: last.Lineage, Seq: last.Seq, Position: last.Last, Time: stored.At(f.second)}
			})
			f.grow()
		},
		"marks that go back": func() {
			f.write(func(h *segment.Header) { h.Marks = []segment.Mark{stored.MarkAt(h.Last, 1)} })
			f.grow()
		},
		"a clock set back": func() {
			f.second -= 400
			f.grow()
		},
		"another's index": func() { // of an agent that lost a race and indexed its own segments
			all := stored.Load(f.t, f.c, backups.LoadOptions{Log: true, Details: true}).Lineages[0].Segments
			stored.Remove(f.t, f.b, stored.IndexKey("c", stored.LineageID(1), 21))
			w := stored.NewWriter(f.t, "c", stored.LineageID(1))
			w.Name, w.Header, w.Digest = "v", all[19].Header, all[19].Digest
			var twins []catalog.Segment
			for _, s := range all[20:40] {
				twins = append(twins, catalog.SegmentOf(w.Next(func(h *segment.Header) { h.Written, h.Marks = s.Written, s.Marks })))
			}
			stored.StoreIndex(f.t, f.c, twins)
		},
		"pruned": func() {
			r := repository.Removal{Log: []log.Tombstone{{
				Lineage: stored.LineageID(1), Upto: 30 + f.rng.Uint64N(20), Reason: "old", Time: stored.At(f.second), By: "test",
			}}}
			_, err := f.c.Prune(f.t.Context(), r, repository.PruneOptions{Now: stored.At(f.second), Grace: time.Hour}, nil)
			if err != nil {
				f.t.Fatal(err)
			}
		},
	}
}

// TestSurveyFoldsCompleteIndexes checks that a survey folds intact indexes. Whatever is damaged, it finds the same windows and
// gaps as a load of all headers.
func TestSurveyFoldsCompleteIndexes(t *testing.T) {
	seeds := uint64(5)
	if testing.Short() {
		seeds = 1
	}
	if soak.On() {
		seeds = 40
	}
	for name := range newFolding(t, 0).wrong() {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				f := newFolding(t, seed)
				f.grow()
				f.wrong()[name]()
				before := f.b.Calls(storagetest.VerbOpen)
				whole := stored.Load(t, f.c, backups.LoadOptions{Log: true, Details: true, Proofs: true})
				between := f.b.Calls(storagetest.VerbOpen)
				folded := stored.Survey(t, f.c, repository.SurveyOptions{})
				all, some := between-before, f.b.Calls(storagetest.VerbOpen)-between
				if name == "nothing" && some > all {
					t.Errorf("seed %d: %d reads, folded %d", seed, all, some)
				}
				diff := cmp.Diff(whole.Gaps(), folded.Gaps())
				if diff != "" {
					t.Fatalf("seed %d: gaps (-all +folded):\n%s", seed, diff)
				}
				sameWindows(t, fmt.Sprint("seed ", seed), whole.Windows(), folded.Windows())
				catalog := stored.Load(t, f.c, backups.LoadOptions{Log: true})
				diff = cmp.Diff(whole.Windows(), catalog.Windows())
				if diff != "" {
					t.Fatalf("seed %d: windows (-all +loaded):\n%s", seed, diff)
				}
				sameSegments(t, f.c, whole, catalog)
				all = len(whole.Lineages[0].Segments)
				if name == "nothing" && (len(whole.Windows()) != 1 || len(folded.Lineages[0].Segments) > all/2) {
					t.Errorf("seed %d: %d windows, and of %d segments are left %d", seed, len(whole.Windows()), all, len(folded.Lineages[0].Segments))
				}
			}
		})
	}
}

// sameSegments fails the test unless the folded segments unfold to the loaded ones, with the same faults.
func sameSegments(t *testing.T, c *repository.Cluster, whole, cat catalog.Catalog) {
	t.Helper()
	for i, l := range cat.Lineages {
		var unfolded []catalog.Segment
		for s, err := range c.Log().Unfolded(t.Context(), l.Segments, 1, math.MaxUint64) {
			if err != nil {
				t.Fatal(err)
			}
			unfolded = append(unfolded, s)
		}
		diff := cmp.Diff(whole.Lineages[i].Segments, unfolded)
		if diff != "" {
			t.Fatalf("segments (-all +unfolded):\n%s", diff)
		}
		want, got := stored.FaultsOf(t, whole.Lineages[i]), stored.FaultsOf(t, l)
		if got != want {
			t.Fatalf("faults %q, want %q", got, want)
		}
	}
}

// sameWindows fails the test unless the windows are equal. A folded window may count up to an index more segments, and begin
// up to a minute later.
func sameWindows(t *testing.T, what string, whole, folded []catalog.Window) {
	t.Helper()
	if len(whole) != len(folded) {
		t.Fatalf("%s: %d windows, folded %d", what, len(whole), len(folded))
	}
	for i, w := range whole {
		f := folded[i]
		more := f.Segments - w.Segments
		if more < 0 || more > 20 || (more == 0) != (f.Bytes == w.Bytes) {
			t.Errorf("%s: %d segments of %d bytes, folded %d of %d", what, w.Segments, w.Bytes, f.Segments, f.Bytes)
		}
		late := f.From.Time.Sub(w.From.Time)
		if late < 0 || late > time.Minute {
			t.Errorf("%s: from %s, folded from %s", what, w.From.Time, f.From.Time)
		}
		f.Segments, f.Bytes, f.From.Time = w.Segments, w.Bytes, w.From.Time
		diff := cmp.Diff(w, f)
		if diff != "" {
			t.Errorf("%s (-all +folded):\n%s", what, diff)
		}
	}
}
