package log_test

import (
	"context"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestLongLog checks that a long log that is mostly indexed loads with few reads.
func TestLongLog(t *testing.T) {
	dir := t.TempDir()
	longLog(t, dir, 4000)
	b := storagetest.Faulty(stored.OpenFile(t, dir))
	wantLongLog(t, stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{Log: true}), 4000)
	reads := b.Calls(storagetest.VerbOpen)
	if reads != 1+2+1+400 {
		t.Errorf("%d reads, want one manifest, two indexes, the recent index, which is missing, and 400 headers", reads)
	}
	catalog := stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{})
	if catalog.Lineages != nil {
		t.Error("the log was read though nobody asked for it")
	}
}

// TestLogDamage checks the stretches and faults of a log of nine segments after each kind of damage, with and without an
// index of segments 1 to 6.
func TestLogDamage(t *testing.T) {
	id := stored.LineageID(1)
	other := stored.NewWriter(t, "c", stored.LineageID(2)).Some(9)
	foreign := stored.NewWriter(t, "other", id).Some(9)
	cut := func(p []byte) []byte { return p[:len(p)-1] }
	longer := func(p []byte) []byte { return append(p, 0) }
	drop := func(b storage.Bucket, seqs ...uint64) {
		for _, seq := range seqs {
			stored.Remove(t, b, stored.SegmentKey("c", id, seq))
		}
	}
	copyTo := func(b storage.Bucket, from, to uint64) {
		stored.Put(t, b, stored.SegmentKey("c", id, to), stored.Get(t, b, stored.SegmentKey("c", id, from)))
	}
	for what, test := range map[string]struct {
		spoil     func(b storage.Bucket)
		stretches string
		faults    string
	}{
		"one gone":           {func(b storage.Bucket) { drop(b, 4) }, "1-3 5-9", "4 missing"},
		"one cut":            {func(b storage.Bucket) { stored.ChangeSegment(t, b, id, 4, cut) }, "1-3 5-9", "4 damaged"},
		"one empty":          {func(b storage.Bucket) { stored.Put(t, b, stored.SegmentKey("c", id, 4), nil) }, "1-3 5-9", "4 damaged"},
		"one longer":         {func(b storage.Bucket) { stored.ChangeSegment(t, b, id, 4, longer) }, "1-3 5-9", "4 damaged"},
		"doubled":            {func(b storage.Bucket) { copyTo(b, 8, 9) }, "1-8", "9 damaged"},
		"doubled at the end": {func(b storage.Bucket) { copyTo(b, 9, 10) }, "1-9", "10 damaged"},
		"doubled far behind": {
			func(b storage.Bucket) { copyTo(b, 9, 1<<60) }, "1-9", "10-1152921504606846975 missing 1152921504606846976 damaged",
		},
		"another lineage's": {func(b storage.Bucket) { stored.Put(t, b, stored.SegmentKey("c", id, 8), other[7].Bytes) }, "1-7 9-9", "8 damaged"},
		"another cluster's": {func(b storage.Bucket) { stored.Put(t, b, stored.SegmentKey("c", id, 8), foreign[7].Bytes) }, "1-7 9-9", "8 damaged"},
		"last ones gone":    {func(b storage.Bucket) { drop(b, 8, 9) }, "1-7", ""},
		"first ones gone":   {func(b storage.Bucket) { drop(b, 1, 2) }, "3-9", "1-2 missing"},
		"a few": {func(b storage.Bucket) {
			drop(b, 3)
			stored.ChangeSegment(t, b, id, 4, cut)
		}, "1-2 5-9", "3 missing 4 damaged"},
		"swapped": {func(b storage.Bucket) {
			seven := stored.Get(t, b, stored.SegmentKey("c", id, 7))
			copyTo(b, 8, 7)
			stored.Put(t, b, stored.SegmentKey("c", id, 8), seven)
		}, "1-6 9-9", "7 damaged 8 damaged"},
	} {
		for _, indexed := range []bool{true, false} {
			if !indexed && what == "first ones gone" {
				continue // without an index their loss is invisible
			}
			b := mem.New()
			c := stored.OpenCluster(t, b, "c")
			all := stored.NewWriter(t, "c", id).Some(9)
			stored.StoreSegments(t, c, all...)
			if indexed {
				stored.StoreIndex(t, c, stored.SegmentsOf(all[:6]))
			}
			test.spoil(b)
			stored.WantLineage(t, what, stored.LoadLog(t, c, 1)[0], test.stretches, test.faults)
		}
	}
}

// TestLogLostEnd checks that an index reveals lost segments at the end of the log, even if no segment is left.
func TestLogLostEnd(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(6)
	stored.StoreSegments(t, c, all...)
	stored.StoreIndex(t, c, stored.SegmentsOf(all[:5]))
	for seq := uint64(6); seq > 3; seq-- {
		stored.Remove(t, b, stored.SegmentKey("c", stored.LineageID(1), seq))
	}
	catalog := stored.Load(t, c, backups.LoadOptions{Log: true})
	l := catalog.Lineages[0]
	stored.WantLineage(t, "end", l, "1-3", "4-5 missing")
	f := l.Faults[0]
	if f.First != 31 || f.Last != 50 || f.Key != stored.SegmentKey("c", stored.LineageID(1), 4) {
		t.Errorf("fault %+v", f)
	}
	gaps := catalog.Gaps()
	if len(gaps) != 1 || gaps[0].From != 31 || gaps[0].To != 50 || gaps[0].NextLineage != "" || !gaps[0].Since.Equal(stored.At(3).Add(5e8)) {
		t.Errorf("gaps %+v", gaps)
	}
	for seq := uint64(1); seq <= 3; seq++ {
		stored.Remove(t, b, stored.SegmentKey("c", stored.LineageID(1), seq))
	}
	stored.WantLineage(t, "all", stored.LoadLog(t, c, 1)[0], "", "1-5 missing")
}

// racing is a Bucket that calls meanwhile once while it lists.
type racing struct {
	storage.Bucket
	meanwhile func()
}

// List calls r.meanwhile when it gets to the first index.
func (r *racing) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for object, err := range r.Bucket.List(ctx, o) {
			if r.meanwhile != nil && strings.Contains(object.Key, "/index-") {
				r.meanwhile()
				r.meanwhile = nil
			}
			if !yield(object, err) {
				return
			}
		}
	}
}

// TestLogGrowsMeanwhile checks that a segment that is stored while the log is listed is not missing, even if an index that
// was written later contains it.
func TestLogGrowsMeanwhile(t *testing.T) {
	for _, tail := range []bool{false, true} {
		b := mem.New()
		c := stored.OpenCluster(t, b, "c")
		all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(7)
		stored.StoreSegments(t, c, all[:4]...)
		stored.StoreIndex(t, c, stored.SegmentsOf(all[:2]))
		raced := stored.OpenCluster(t, &racing{b, func() {
			stored.StoreSegments(t, c, all[4:]...)
			stored.Put(t, b, stored.IndexKey("c", stored.LineageID(1), 1), encodedIndex(t, stored.SegmentsOf(all[:6])))
		}}, "c")
		if !tail {
			stored.WantLineage(t, "raced", stored.LoadLog(t, raced, 1)[0], "1-6", "")
			continue
		}
		got, err := raced.Log().Tail(t.Context())
		if err != nil || got.Broken != nil || got.Last.Seq != 6 {
			t.Errorf("tail %+v, %v", got, err)
		}
	}
}

// TestLogStoreFails checks that an unreachable store is an error, never an empty or a damaged log.
func TestLogStoreFails(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(5)
	stored.StoreSegments(t, c, all...)
	stored.StoreIndex(t, c, stored.SegmentsOf(all[:3]))
	for _, verb := range []storagetest.Verb{storagetest.VerbList, storagetest.VerbOpen} {
		for n := range 3 {
			b.On(verb).Nth(n + 1).Fail(stored.ErrTest)
			_, err := c.Load(t.Context(), backups.LoadOptions{Log: true})
			if verb == storagetest.VerbList && n == 2 {
				if err != nil {
					t.Errorf("a third listing: %v", err)
				}
				_, _ = c.Log().Tail(t.Context()) // consumes the fault
				continue
			}
			stored.WantError(t, "Load", err, stored.ErrTest)
		}
	}
	for n := range 3 {
		b.On(storagetest.VerbOpen).Nth(n + 1).Fail(stored.ErrTest)
		_, err := c.Log().Tail(t.Context())
		stored.WantError(t, "LogTail", err, stored.ErrTest)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Load(ctx, backups.LoadOptions{Log: true})
	stored.WantError(t, "cancelled", err, context.Canceled)
}

func wantTail(
	tb testing.TB, what string, c *repository.Cluster, lineage string, last uint64, unindexed []uint64, broken error,
) {
	tb.Helper()
	got, err := c.Log().Tail(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if got.Lineage != lineage || got.Last.Seq != last || !slices.Equal(got.Unindexed, unindexed) {
		tb.Errorf("%s: tail of lineage %q at %d, unindexed %v", what, got.Lineage, got.Last.Seq, got.Unindexed)
	}
	stored.WantError(tb, what, got.Broken, broken)
	if broken == nil && got.Broken != nil {
		tb.Errorf("%s: broken: %v", what, got.Broken)
	}
}

func TestLogTail(t *testing.T) {
	id := stored.LineageID(1)
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	wantTail(t, "empty", c, "", 0, nil, nil)
	all := stored.NewWriter(t, "c", id).Some(9)
	stored.StoreSegments(t, c, all...)
	wantTail(t, "no index", c, id, 9, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}, nil)
	stored.StoreIndex(t, c, stored.SegmentsOf(all[:2]))
	stored.StoreIndex(t, c, stored.SegmentsOf(all[2:6]))
	before := b.Calls(storagetest.VerbOpen)
	wantTail(t, "indexed", c, id, 9, []uint64{7, 8, 9}, nil)
	reads := b.Calls(storagetest.VerbOpen) - before
	if reads != 3 {
		t.Errorf("%d reads, want the first header, the last one and an index", reads)
	}
	stored.ChangeSegment(t, b, id, 9, func(p []byte) []byte { return p[:20] })
	wantTail(t, "last damaged", c, id, 8, []uint64{7, 8, 9}, catalog.ErrDamaged)
	for seq := uint64(6); seq <= 9; seq++ {
		stored.Remove(t, b, stored.SegmentKey("c", id, seq))
	}
	wantTail(t, "last gone", c, id, 5, nil, catalog.ErrNotFound)
	stored.Put(t, b, stored.IndexKey("c", id, 3), nil)
	wantTail(t, "index damaged", c, id, 5, []uint64{4, 5}, nil)
	for seq := uint64(1); seq <= 5; seq++ {
		stored.Remove(t, b, stored.SegmentKey("c", id, seq))
	}
	wantTail(t, "all gone", c, id, 0, nil, catalog.ErrNotFound)
}

// TestLogNewestLineage checks that the headers decide which lineage is the newest, not names, the store's clock or the
// archivers' clocks alone.
func TestLogNewestLineage(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		begin := func(n, second int, after string) {
			stored.StoreSegments(t, c, stored.NewWriter(t, "c", stored.LineageID(n)).Next(func(h *segment.Header) {
				h.Written = stored.At(second)
				if after != "" {
					h.After = &segment.After{Lineage: after, Seq: 3, Position: 30, Time: stored.At(second)}
				}
			}))
		}
		begin(5, 100, "")
		begin(9, 50, "")
		wantTail(t, "the older has the higher name", c, stored.LineageID(5), 1, []uint64{1}, nil)
		begin(7, 20, stored.LineageID(5))
		wantTail(t, "by a clock that is behind", c, stored.LineageID(7), 1, []uint64{1}, nil)
		begin(6, 120, stored.LineageID(99))
		wantTail(t, "after one that was pruned", c, stored.LineageID(6), 1, []uint64{1}, nil)
		begin(1, 130, stored.LineageID(2))
		begin(2, 130, stored.LineageID(1))
		var ids []string
		for _, l := range stored.Load(t, c, backups.LoadOptions{Log: true}).Lineages {
			ids = append(ids, strings.TrimLeft(l.ID, "0"))
		}
		got := strings.Join(ids, " ")
		if got != "a9 a5 a7 a6 a1 a2" {
			t.Errorf("order %s", got)
		}
	})
}

// TestLogOfKilledPut checks that files that a killed Put of a segment has left are ignored.
func TestLogOfKilledPut(t *testing.T) {
	dir := t.TempDir()
	c := stored.OpenCluster(t, stored.OpenFile(t, dir), "c")
	stored.StoreSegments(t, c, stored.NewWriter(t, "c", stored.LineageID(1)).Next())
	folder := filepath.ToSlash(filepath.Dir(stored.SegmentKey("c", stored.LineageID(1), 2))) + "/"
	stored.Piece(t, dir, folder, "0000000000000002.seg", 2*stored.Grace)
	stored.WantLineage(t, "piece", stored.LoadLog(t, c, 1)[0], "1-1", "")
}
