package log_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestLogKeys checks that segments have the documented keys, and a cluster that has only a log is listed.
func TestLogKeys(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(18)
		stored.StoreSegments(t, c, all...)
		stored.StoreIndex(t, c, stored.SegmentsOf(all[2:]))
		want := []string{stored.IndexKey("c", stored.LineageID(1), 3), "c/repository.json"}
		for seq := range uint64(18) {
			want = append(want, stored.SegmentKey("c", stored.LineageID(1), seq+1))
		}
		slices.Sort(want)
		keys := stored.Keys(t, b)
		if !slices.Equal(keys, want) {
			t.Errorf("keys %q", keys)
		}
		clusters, err := repository.Clusters(t.Context(), b)
		if err != nil || !slices.Equal(clusters, []string{"c"}) {
			t.Errorf("clusters %q, %v", clusters, err)
		}
		swept, err := c.Sweep(t.Context(), 0, time.Now().Add(24*time.Hour))
		if err != nil || len(swept) > 0 {
			t.Errorf("swept %+v, %v", swept, err)
		}
		got := stored.LoadLog(t, c, 1)[0]
		diff := cmp.Diff(stored.SegmentsOf(all), got.Segments)
		if diff != "" || got.ID != stored.LineageID(1) {
			t.Errorf("lineage %s:\n%s", got.ID, diff)
		}
		stored.WantLineage(t, "whole", got, "1-18", "")
	})
}

// TestLogNeighbours checks that a log contains neither another cluster's segments nor files of other programs.
func TestLogNeighbours(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		for i, name := range []string{"cluster1", "cluster10", "cluster1-", "Cluster1"} {
			stored.StoreSegments(t, stored.OpenCluster(t, b, name), stored.NewWriter(t, name, stored.LineageID(i)).Some(2)...)
		}
		body := stored.Get(t, b, stored.SegmentKey("cluster1", stored.LineageID(0), 1))
		for _, key := range []string{
			"cluster1/log/x", "cluster1/log0/" + stored.LineageID(0) + "/0000000000000001.seg", "cluster1/log/" + stored.LineageID(0) + "/x.seg",
			"cluster1/log/" + stored.LineageID(0) + "/0000000000000000.seg", "cluster1/log/" + stored.LineageID(0) + "/000000000000000A.seg",
			"cluster1/log/" + stored.LineageID(0) + "/3.seg", "cluster1/log/" + stored.LineageID(0) + "/0000000000000003.seg.bak",
			"cluster1/log/" + stored.LineageID(0) + "/index-0000000000000003.seg", "cluster1/log/" + stored.LineageID(0) + "/0000000000000003.json",
			"cluster1/log/" + stored.LineageID(0) + "/a/0000000000000003.seg", "cluster1/log/" + strings.ToUpper(stored.LineageID(0)) + "/0000000000000003.seg",
		} {
			stored.Put(t, b, key, body)
		}
		for i, name := range []string{"cluster1", "cluster10", "cluster1-", "Cluster1"} {
			l := stored.LoadLog(t, stored.OpenCluster(t, b, name), 1)[0]
			stored.WantLineage(t, name, l, "1-2", "")
			if l.ID != stored.LineageID(i) {
				t.Errorf("%s has lineage %s", name, l.ID)
			}
		}
	})
}

// FuzzLogKey checks that only objects with documented names are part of the log.
func FuzzLogKey(f *testing.F) {
	for _, text := range []string{
		stored.LineageID(1) + "/0000000000000001.seg", stored.LineageID(1) + "/index-0000000000000001.json", stored.LineageID(1) + "/0000000000000000.seg",
		stored.LineageID(1) + "/ffffffffffffffff.seg", stored.LineageID(1) + "/FFFFFFFFFFFFFFFF.seg", stored.LineageID(1) + "/+000000000000001.seg",
		stored.LineageID(1) + "/00000000000000001.seg", stored.LineageID(1) + "/index-0000000000000001.seg", "x/0000000000000001.seg", "", "/",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if storage.ValidKey("c/log/"+text) != nil {
			return
		}
		b := mem.New()
		stored.Put(t, b, "c/log/"+text, nil)
		lineages := stored.Load(t, stored.OpenCluster(t, b, "c"), backups.LoadOptions{Log: true}).Lineages
		lineage, name, _ := strings.Cut(text, "/")
		var seq uint64
		index := strings.HasPrefix(name, "index-")
		if index {
			_, _ = fmt.Sscanf(name, "index-%016x.json", &seq)
		} else {
			_, _ = fmt.Sscanf(name, "%016x.seg", &seq)
		}
		ours := seq > 0 && seq < math.MaxUint64 && catalog.ValidLineage(lineage) == nil &&
			("c/log/"+text == stored.SegmentKey("c", lineage, seq) || "c/log/"+text == stored.IndexKey("c", lineage, seq))
		if ours != (len(lineages) == 1) {
			t.Fatalf("%q: lineages %+v", text, lineages)
		}
		if ours && !index && (len(lineages[0].Faults) != 1 || lineages[0].Faults[0].Key != "c/log/"+text) {
			t.Errorf("%q: faults %+v", text, lineages[0].Faults)
		}
	})
}

// TestStoreSegmentTwice checks that a repeated StoreSegment succeeds, whether or not the first response was lost.
func TestStoreSegmentTwice(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	stored.StoreSegments(t, c, w.Next())
	e := w.Next()
	b.On(storagetest.VerbPut).FailLate(stored.ErrTest)
	stored.WantError(t, "lost answer", c.Log().StoreSegment(t.Context(), e), stored.ErrTest)
	stored.StoreSegments(t, c, e, e)
	lost := w.Next()
	b.On(storagetest.VerbPut).Fail(stored.ErrTest)
	stored.WantError(t, "lost call", c.Log().StoreSegment(t.Context(), lost), stored.ErrTest)
	stored.WantLineage(t, "before", stored.LoadLog(t, c, 1)[0], "1-2", "")
	b.On(storagetest.VerbOpen).Fail(stored.ErrTest)
	stored.WantError(t, "cannot look", c.Log().StoreSegment(t.Context(), e), stored.ErrTest)
	stored.StoreSegments(t, c, lost)
	stored.WantLineage(t, "after", stored.LoadLog(t, c, 1)[0], "1-3", "")
}

// TestStoreSegmentTaken checks that the loser gets the winner's segment and can continue from it.
func TestStoreSegmentTaken(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		winner, loser := stored.NewWriter(t, "c", stored.LineageID(1)), stored.NewWriter(t, "c", stored.LineageID(1))
		loser.Name = "loser"
		won := winner.Next()
		stored.StoreSegments(t, c, won)
		err := c.Log().StoreSegment(t.Context(), loser.Next())
		stored.WantError(t, "taken", err, catalog.ErrTaken)
		taken, ok := errors.AsType[*log.TakenError](err)
		if !ok {
			t.Fatal(err)
		}
		diff := cmp.Diff(catalog.SegmentOf(won), taken.Segment)
		if diff != "" {
			t.Errorf("the winner is another one:\n%s", diff)
		}
		loser.Header, loser.Digest = taken.Segment.Header, taken.Segment.Digest
		stored.StoreSegments(t, c, loser.Next())
		stored.WantLineage(t, "both", stored.LoadLog(t, c, 1)[0], "1-2", "")
	})
}

// TestStoreSegmentRefused checks that StoreSegment refuses a segment of another cluster, and a name that a damaged object
// has.
func TestStoreSegmentRefused(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	err := c.Log().StoreSegment(t.Context(), stored.NewWriter(t, "other", stored.LineageID(1)).Next())
	if err == nil {
		t.Error("a segment of another cluster was stored")
	}
	e := stored.NewWriter(t, "c", stored.LineageID(1)).Next()
	e.Header.Lineage = "../../other"
	stored.WantError(t, "odd lineage", c.Log().StoreSegment(t.Context(), e), catalog.ErrName)
	got := stored.Keys(t, b)
	if len(got) > 0 {
		t.Errorf("keys %q", got)
	}
	e = stored.NewWriter(t, "c", stored.LineageID(1)).Next()
	for what, data := range map[string][]byte{
		"empty": {}, "cut": e.Bytes[:len(e.Bytes)-1], "longer": append(slices.Clone(e.Bytes), 0), "noise": stored.Noise(100_000),
	} {
		stored.Put(t, b, stored.SegmentKey("c", stored.LineageID(1), 1), data)
		stored.WantDamaged(t, what, c.Log().StoreSegment(t.Context(), e), stored.SegmentKey("c", stored.LineageID(1), 1))
	}
}

// TestStoreSegmentConcurrently checks that many concurrent archivers make one chain with one winner for each seq.
func TestStoreSegmentConcurrently(t *testing.T) {
	const writers, seqs = 8, 12
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		var wins sync.Map
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				w := stored.NewWriter(t, "c", stored.LineageID(1))
				w.Name = fmt.Sprintf("w%d", i)
				for w.Header.Seq < seqs {
					e := w.Next()
					err := c.Log().StoreSegment(t.Context(), e)
					taken, lost := errors.AsType[*log.TakenError](err)
					switch {
					case lost:
						w.Header, w.Digest = taken.Segment.Header, taken.Segment.Digest
					case err != nil:
						t.Error(err)
						return
					default:
						other, twice := wins.Swap(e.Header.Seq, w.Name)
						if twice {
							t.Errorf("segment %d was won by %v and %s", e.Header.Seq, other, w.Name)
						}
					}
				}
			})
		}
		all.Wait()
		l := stored.LoadLog(t, c, 1)[0]
		stored.WantLineage(t, "all", l, fmt.Sprintf("1-%d", seqs), "")
		for _, s := range l.Segments {
			winner, _ := wins.Load(s.Seq)
			if winner != s.Writer {
				t.Errorf("segment %d is of %s, and %v had won", s.Seq, s.Writer, winner)
			}
		}
	})
}

// readAll returns the requests of a segment.
func readAll(tb testing.TB, c *repository.Cluster, s catalog.Segment, keys seal.Keys) (texts []string, err error) {
	tb.Helper()
	r, err := c.Log().OpenSegment(tb.Context(), s, keys)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for record, err := range r.Records() {
		if err != nil {
			return texts, err
		}
		if record.Kind == segment.Request {
			texts = append(texts, fmt.Sprintf("%d=%s", record.Position, record.Data))
		}
	}
	return texts, nil
}

func TestOpenSegment(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(2)
		stored.StoreSegments(t, c, all...)
		cat := stored.LoadLog(t, c, 1)[0].Segments
		got, err := readAll(t, c, cat[1], seal.Keys{})
		if err != nil || !slices.Equal(got, []string{"20=w"}) {
			t.Errorf("records %q, %v", got, err)
		}
		key := stored.SegmentKey("c", stored.LineageID(1), 2)
		other := stored.NewWriter(t, "c", stored.LineageID(1))
		other.Name = "other"
		for what, data := range map[string][]byte{
			"another's": other.Some(2)[1].Bytes, "the one before": all[0].Bytes, "header flipped": stored.Flip(40, 1)(slices.Clone(all[1].Bytes)),
			"body flipped": stored.Flip(len(all[1].Bytes)-5, 1)(slices.Clone(all[1].Bytes)), "cut": all[1].Bytes[:len(all[1].Bytes)-1],
			"longer": append(slices.Clone(all[1].Bytes), 0), "empty": {},
		} {
			stored.Put(t, b, key, data)
			_, err := readAll(t, c, cat[1], seal.Keys{})
			stored.WantDamaged(t, what, err, key)
		}
		stored.Remove(t, b, key)
		_, err = readAll(t, c, cat[1], seal.Keys{})
		stored.WantError(t, "gone", err, catalog.ErrNotFound)
		if !strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("%v does not name %s", err, key)
		}
	})
}

// TestOpenSegmentStoreFails checks that the store's own errors are not damage.
func TestOpenSegmentStoreFails(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	stored.StoreSegments(t, c, stored.NewWriter(t, "c", stored.LineageID(1)).Next())
	s := stored.LoadLog(t, c, 1)[0].Segments[0]
	for _, n := range []int{0, 5, 100, int(s.Size) - 3} {
		b.On(storagetest.VerbOpen).Cut(n, stored.ErrTest)
		_, err := readAll(t, c, s, seal.Keys{})
		stored.WantError(t, "cut stream", err, stored.ErrTest)
		if errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	b.On(storagetest.VerbOpen).Fail(stored.ErrTest)
	_, err := readAll(t, c, s, seal.Keys{})
	stored.WantError(t, "no stream", err, stored.ErrTest)
}

// TestSegmentLongHeader checks that a header that is longer than usual is read with a second request.
func TestSegmentLongHeader(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	long := w.Next(func(h *segment.Header) { h.Reason = strings.Repeat("r", 40_000) })
	stored.StoreSegments(t, c, long)
	before := b.Calls(storagetest.VerbOpen)
	l := stored.LoadLog(t, c, 1)[0]
	diff := cmp.Diff(stored.SegmentsOf([]segment.Encoded{long}), l.Segments)
	if diff != "" {
		t.Error(diff)
	}
	reads := b.Calls(storagetest.VerbOpen) - before
	if reads != 2 {
		t.Errorf("%d reads", reads)
	}
	got, err := c.Log().Segments(t.Context(), stored.LineageID(1), []uint64{1, 1})
	if err != nil || len(got) != 2 || got[1].Digest != long.Digest {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = c.Log().Segments(t.Context(), stored.LineageID(1), []uint64{1, 2})
	stored.WantError(t, "absent", err, storage.ErrNotExist)
}
