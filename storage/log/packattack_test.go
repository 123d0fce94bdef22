package log_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestHostileSummary checks that a summary of many tiny fields is refused before they take memory.
func TestHostileSummary(t *testing.T) {
	b := summarized(t, records.Policy{})
	stored.Change(t, b, "c/log-summary.json", func(data []byte) []byte {
		var summary struct {
			Folds []byte `json:"folds"`
		}
		err := json.Unmarshal(data, &summary)
		if err != nil {
			t.Fatal(err)
		}
		dec, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer dec.Close()
		lines, err := dec.DecodeAll(summary.Folds, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines = bytes.ReplaceAll(lines, []byte(`"marks":[`), []byte(`"marks":[`+strings.Repeat("{},", 40_000)))
		enc, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		defer enc.Close()
		data, err = document.EncodeUpTo(1<<20, map[string]any{"format": 1, "cluster": "c", "folds": enc.EncodeAll(lines, nil)})
		if err != nil {
			t.Fatal(err)
		}
		return data
	})
	before := allocated()
	l := stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{Log: true, Copies: records.AnyCopies}).Lineages
	grown := allocated() - before
	if grown > 100<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
	if len(l) != 1 || len(l[0].Faults) > 0 {
		t.Errorf("%+v", l)
	}
}

// allocated returns how many bytes the process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestPackOfForgedSizes checks that headers with huge sizes are refused.
func TestPackOfForgedSizes(t *testing.T) {
	for _, size := range []int64{1 << 62, 1<<63 - 1, 1 << 41} {
		h := newPacking(t).segments[3].Header
		h.Stored.Size = size
		if h.Validate() == nil {
			t.Errorf("a body of %d bytes is valid", size)
		}
	}
}

// TestManyPacks checks that the time to list packs grows with their number, not with its square.
func TestManyPacks(t *testing.T) {
	took := func(n int) time.Duration {
		b := mem.New()
		for i := range uint64(n) {
			stored.Put(t, b, catalog.PackKey("c", stored.LineageID(1), 1+i*8, 8+i*8), []byte("x"))
		}
		start := time.Now()
		_, err := stored.OpenCluster(t, b, "c").Log().Pack(t.Context(), log.PackOptions{Now: later, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	few, many := took(2000), took(20_000)
	if many > 40*few+time.Second {
		t.Errorf("2,000 packs take %s, 20,000 %s", few, many)
	}
}

// TestCutOfARememberedPack checks a log that is pruned within a pack whose folded index is cached or in the summary.
func TestCutOfARememberedPack(t *testing.T) {
	b := summarized(t, records.Policy{})
	cached := stored.OpenCluster(t, b, "c").Remembering(&log.Headers{})
	stored.Load(t, cached, backups.LoadOptions{Log: true})
	err := cached.Log().Delete(t.Context(), log.Tombstone{Lineage: stored.LineageID(1), Upto: 13, Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]*repository.Cluster{"cached": cached, "with the summary": stored.OpenCluster(t, b, "c")} {
		l := stored.Load(t, c, backups.LoadOptions{Log: true, Copies: records.AnyCopies}).Lineages[0]
		if len(l.Faults) > 0 || l.Segments[0].FirstSeq() != 14 {
			t.Errorf("%s: from segment %d, faults %+v", what, l.Segments[0].FirstSeq(), l.Faults)
		}
	}
}

// TestTailWithGarbagePacks checks that packs of an attacker cost an agent that starts few requests.
func TestTailWithGarbagePacks(t *testing.T) {
	p := newPacking(t)
	for i := range uint64(20) {
		stored.Put(t, p.b, catalog.PackKey("c", p.lineage, 31+i*4096, 30+(i+1)*4096), []byte("x"))
	}
	b := storagetest.Faulty(p.b)
	tail, err := stored.OpenCluster(t, b, "c").Log().Tail(t.Context())
	if err != nil || tail.Last.Seq != 30 || !errors.Is(tail.Broken, catalog.ErrDamaged) || b.Calls(storagetest.VerbOpen) > 100 {
		t.Errorf("%v, last %d, broken %v, %d requests", err, tail.Last.Seq, tail.Broken, b.Calls(storagetest.VerbOpen))
	}
}

// TestPoisonedLineage checks that a pack which cannot be described does not keep other lineages from being packed.
func TestPoisonedLineage(t *testing.T) {
	p := newPacking(t)
	w := stored.NewWriter(t, "c", stored.LineageID(0)) // sorts first
	long := func(h *segment.Header) { h.Writer = strings.Repeat("w", 600<<10) }
	pack := contentOf(w.Next(long), w.Next(long))
	stored.Put(t, p.b, catalog.PackKey("c", stored.LineageID(0), 1, 2), pack)
	packed, err := p.c.Log().Pack(t.Context(), log.PackOptions{Now: later})
	if err != nil || packed.Packs != 2 {
		t.Errorf("%+v %v", packed, err)
	}
}

func contentOf(all ...segment.Encoded) (content []byte) {
	for _, e := range all {
		content = append(content, e.Bytes...)
	}
	return content
}

// TestSpooledSegmentOfAPackedName checks that an agent which was cut off for long gets a TakenError for a segment that others have stored.
func TestSpooledSegmentOfAPackedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacking(t)
		late := stored.OpenCluster(t, p.b, "c")
		w := stored.NewWriter(t, "c", p.lineage)
		w.Header, w.Digest, w.Name = p.segments[13].Header, p.segments[13].Digest, "late"
		now := func(h *segment.Header) { h.Written = time.Now() }
		own := w.Next(now)
		other := stored.NewWriter(t, "c", stored.LineageID(2))
		stored.StoreSegments(t, late, other.Next(now))
		p.pack(2)
		p.sweep()
		time.Sleep(3 * time.Hour)
		taken, ok := errors.AsType[*log.TakenError](late.Log().StoreSegment(t.Context(), own))
		if !ok || taken.Segment.Digest != p.segments[14].Digest {
			t.Errorf("the segment of the late writer: %v", taken)
		}
		err := late.Log().StoreSegment(t.Context(), p.segments[14])
		if err != nil {
			t.Errorf("the segment that is packed, once more: %v", err)
		}
		p.sweep()
		if strings.Count(p.keys(), ".seg ") != 6 {
			t.Errorf("%s", p.keys())
		}
	})
}

// TestPackHasNoLock checks that a pack does not lock its segments again.
func TestPackHasNoLock(t *testing.T) {
	p := newPacking(t)
	locking := stored.OpenWith(t, p.b, records.Policy{Lock: records.Lock{For: 1000 * time.Hour}})
	_, err := locking.Log().Pack(t.Context(), log.PackOptions{Now: later})
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.b.Stat(t.Context(), catalog.PackKey("c", p.lineage, 1, 12))
	if err != nil || !o.RetainUntil.IsZero() {
		t.Errorf("locked until %s, %v", o.RetainUntil, err)
	}
}

// TestPackAgainReadsLittle checks that a prune does not read segments again that were packed a moment ago.
func TestPackAgainReadsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		c := stored.OpenCluster(t, b, "c")
		storeIndexed(t, c, stored.NewWriter(t, "c", stored.LineageID(1)), 40)
		time.Sleep(2 * time.Hour)
		first, err := c.Log().Pack(t.Context(), log.PackOptions{Now: time.Now(), Grace: time.Hour})
		if err != nil || first.Packs != 40 {
			t.Fatal(first, err)
		}
		time.Sleep(time.Minute)
		counted := storagetest.Faulty(b)
		again, err := stored.OpenCluster(t, counted, "c").Log().Pack(t.Context(), log.PackOptions{Now: time.Now(), Grace: time.Hour})
		if err != nil || again.Packs > 0 || counted.Calls(storagetest.VerbOpen) > 2 {
			t.Errorf("%+v %v, %d reads", again, err, counted.Calls(storagetest.VerbOpen))
		}
	})
}

// TestPackOfACutLog checks that the segments which a prune removes are not packed, nor counted by a dry run.
func TestPackOfACutLog(t *testing.T) {
	for _, dry := range []bool{true, false} {
		p := newPacking(t)
		cut := repository.Removal{Log: []log.Tombstone{{Lineage: p.lineage, Upto: 12, Time: stored.Noon}}}
		r, err := p.c.Prune(t.Context(), cut, repository.PruneOptions{Now: later, Grace: 1000 * time.Hour, DryRun: dry}, nil)
		if err != nil || r.Packed.Packs != 1 || r.Packed.Segments != 12 {
			t.Errorf("dry %v: %+v %v", dry, r.Packed, err)
		}
	}
}

// TestIndexWithinAPack checks that an index which begins within a pack does not slow a load.
func TestIndexWithinAPack(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	stored.StoreIndex(t, p.c, stored.SegmentsOf(p.segments[13:24]))
	b := storagetest.Faulty(p.b)
	stored.LoadLog(t, stored.OpenCluster(t, b, "c"), 1)
	if b.Calls(storagetest.VerbOpen) > 2+6 {
		t.Errorf("%d reads, want the two indexes and six segments", b.Calls(storagetest.VerbOpen))
	}
	stored.Remove(t, p.b, stored.IndexKey("c", p.lineage, 13))
	tail, err := p.c.Log().Tail(t.Context())
	if err != nil || fmt.Sprint(tail.Unindexed) != "[25 26 27 28 29 30]" {
		t.Errorf("not indexed: %v, %v", tail.Unindexed, err)
	}
}

// TestErrorsNameThePack checks that the error of a packed segment names the object that is there.
func TestErrorsNameThePack(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	key := catalog.PackKey("c", p.lineage, 13, 24)
	stored.Change(t, p.b, key, func(b []byte) []byte { b[len(b)-1]++; return b })
	_, err := readAll(t, p.c, catalog.SegmentOf(p.segments[23]), seal.Keys{})
	name := key[strings.LastIndex(key, "/")+1:]
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("%v, want an error that names %s", err, name)
	}
}

// TestPackIsOpenedOnce checks that many readers of one pack read its index once.
func TestPackIsOpenedOnce(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	b := storagetest.Faulty(p.b)
	c := stored.OpenCluster(t, b, "c")
	_, err := c.Log().LoadRange(t.Context(), p.lineage, 1, 30)
	if err != nil {
		t.Fatal(err)
	}
	before := b.Calls(storagetest.VerbOpen)
	err = records.Parallel(t.Context(), 12, 12, func(ctx context.Context, i int) error {
		r, err := c.Log().OpenStored(ctx, catalog.SegmentOf(p.segments[i]))
		if err == nil {
			err = r.Close()
		}
		return err
	})
	reads := b.Calls(storagetest.VerbOpen) - before
	if err != nil || reads != 13 {
		t.Errorf("%v, %d reads, want that of the index and those of 12 segments", err, reads)
	}
}

// TestRangeWithGarbagePacks checks that an attacker's index and pack do not hide an older pack from a restore.
func TestRangeWithGarbagePacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacking(t)
		p.pack(2)
		p.sweep()
		time.Sleep(time.Second)
		stored.Put(t, p.b, stored.IndexKey("c", p.lineage, 5), []byte("x"))
		stored.Put(t, p.b, catalog.PackKey("c", p.lineage, 5, 20), []byte("x"))
		l, err := stored.OpenCluster(t, p.b, "c").Log().LoadRange(t.Context(), p.lineage, 8, 28)
		if err != nil || stored.Count(l) != 21 || len(l.Faults) > 0 {
			t.Errorf("%v, %d segments, faults %q", err, stored.Count(l), stored.FaultsOf(t, l))
		}
	})
}

// late is a Bucket that omits one key from listings.
type late struct {
	storage.Bucket
	key string
}

func (b late) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for object, err := range b.Bucket.List(ctx, o) {
			if object.Key != b.key && !yield(object, err) {
				return
			}
		}
	}
}

// TestRangeWithUnlistedSegments checks that a segment which a listing omits is found by its name, and that a missing one is a fault.
func TestRangeWithUnlistedSegments(t *testing.T) {
	p := newPacking(t)
	for _, seq := range []uint64{25, 27, 29} {
		key := stored.SegmentKey("c", p.lineage, seq)
		l, err := stored.OpenCluster(t, late{p.b, key}, "c").Log().LoadRange(t.Context(), p.lineage, 25, 29)
		if err != nil || stored.Count(l) != 5 || len(l.Faults) > 0 {
			t.Errorf("segment %d is not listed: %v, %d segments, faults %q", seq, err, stored.Count(l), stored.FaultsOf(t, l))
		}
		content := stored.Get(t, p.b, key)
		stored.Remove(t, p.b, key)
		l, err = stored.OpenCluster(t, p.b, "c").Log().LoadRange(t.Context(), p.lineage, 25, 29)
		if err != nil || stored.FaultsOf(t, l) != fmt.Sprint(seq, " missing") {
			t.Errorf("segment %d is missing: %v, faults %q", seq, err, stored.FaultsOf(t, l))
		}
		stored.Put(t, p.b, key, content)
	}
}

// TestWriterThatSleptAsksUntilItKnows checks that an error does not make a writer forget that it has slept.
func TestWriterThatSleptAsksUntilItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacking(t)
		b := storagetest.Faulty(p.b)
		slow := stored.OpenCluster(t, b, "c")
		w := stored.NewWriter(t, "c", p.lineage)
		w.Header, w.Digest, w.Name = p.segments[13].Header, p.segments[13].Digest, "late"
		now := func(h *segment.Header) { h.Written = time.Now() }
		stored.StoreSegments(t, slow, stored.NewWriter(t, "c", stored.LineageID(2)).Next(now))
		p.pack(2)
		p.sweep()
		time.Sleep(3 * time.Hour)
		own := w.Next(now)
		b.On(storagetest.VerbOpen).Fail(errUnreachable)
		err := slow.Log().StoreSegment(t.Context(), own)
		if !errors.Is(err, errUnreachable) {
			t.Errorf("while the store is unreachable: %v", err)
		}
		for range 2 {
			err := slow.Log().StoreSegment(t.Context(), own)
			_, taken := errors.AsType[*log.TakenError](err)
			if !taken {
				t.Errorf("the segment of a writer that slept: %v", err)
			}
		}
	})
}

// TestPruneKeepsTheIndexOfACutPack checks that a late index does not make a prune remove that of a pack which is cut.
func TestPruneKeepsTheIndexOfACutPack(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	stored.StoreIndex(t, p.c, stored.SegmentsOf(p.segments[3:20]))
	err := p.c.Log().Delete(t.Context(), log.Tombstone{Lineage: p.lineage, Upto: 5, Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	leftovers, err := p.c.Log().Leftovers(t.Context())
	if err != nil || slices.ContainsFunc(leftovers, func(l catalog.Leftover) bool { return l.Key == stored.IndexKey("c", p.lineage, 1) }) {
		t.Errorf("%v, %+v", err, leftovers)
	}
	p.wantWhole("cut", 6)
}
