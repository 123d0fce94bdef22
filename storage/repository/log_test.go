package repository_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// TestLogKeys: segments are where they are documented to be, and a cluster with nothing but a log is one.
func TestLogKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		all := newWriter(t, "c", lineageID(1)).some(18)
		storeSegments(t, c, all...)
		storeIndex(t, c, segmentsOf(all[2:]))
		want := []string{indexKey("c", lineageID(1), 3), "c/repository.json"}
		for seq := range uint64(18) {
			want = append(want, segmentKey("c", lineageID(1), seq+1))
		}
		slices.Sort(want)
		if got := keys(t, b); !slices.Equal(got, want) {
			t.Errorf("keys %q", got)
		}
		if got, err := repository.Clusters(t.Context(), b); err != nil || !slices.Equal(got, []string{"c"}) {
			t.Errorf("clusters %q, %v", got, err)
		}
		if swept, err := c.Sweep(t.Context(), 0, time.Now().Add(24*time.Hour)); err != nil || len(swept) > 0 {
			t.Errorf("swept %+v, %v", swept, err)
		}
		got := loadLog(t, c, 1)[0]
		if diff := cmp.Diff(segmentsOf(all), got.Segments); diff != "" || got.ID != lineageID(1) {
			t.Errorf("lineage %s:\n%s", got.ID, diff)
		}
		wantLineage(t, "whole", got, "1-18", "")
	})
}

// TestLogNeighbours: neither another cluster's log nor a stranger's file is seen.
func TestLogNeighbours(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		for i, name := range []string{"cluster1", "cluster10", "cluster1-", "Cluster1"} {
			storeSegments(t, openCluster(t, b, name), newWriter(t, name, lineageID(i)).some(2)...)
		}
		body := get(t, b, segmentKey("cluster1", lineageID(0), 1))
		for _, key := range []string{
			"cluster1/log/x", "cluster1/log0/" + lineageID(0) + "/0000000000000001.seg", "cluster1/log/" + lineageID(0) + "/x.seg",
			"cluster1/log/" + lineageID(0) + "/0000000000000000.seg", "cluster1/log/" + lineageID(0) + "/000000000000000A.seg",
			"cluster1/log/" + lineageID(0) + "/3.seg", "cluster1/log/" + lineageID(0) + "/0000000000000003.seg.bak",
			"cluster1/log/" + lineageID(0) + "/index-0000000000000003.seg", "cluster1/log/" + lineageID(0) + "/0000000000000003.json",
			"cluster1/log/" + lineageID(0) + "/a/0000000000000003.seg", "cluster1/log/" + strings.ToUpper(lineageID(0)) + "/0000000000000003.seg",
		} {
			put(t, b, key, body)
		}
		for i, name := range []string{"cluster1", "cluster10", "cluster1-", "Cluster1"} {
			l := loadLog(t, openCluster(t, b, name), 1)[0]
			if wantLineage(t, name, l, "1-2", ""); l.ID != lineageID(i) {
				t.Errorf("%s has lineage %s", name, l.ID)
			}
		}
	})
}

// FuzzLogKey: only the names that are documented are part of the log.
func FuzzLogKey(f *testing.F) {
	for _, text := range []string{
		lineageID(1) + "/0000000000000001.seg", lineageID(1) + "/index-0000000000000001.json", lineageID(1) + "/0000000000000000.seg",
		lineageID(1) + "/ffffffffffffffff.seg", lineageID(1) + "/FFFFFFFFFFFFFFFF.seg", lineageID(1) + "/+000000000000001.seg",
		lineageID(1) + "/00000000000000001.seg", lineageID(1) + "/index-0000000000000001.seg", "x/0000000000000001.seg", "", "/",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if storage.ValidKey("c/log/"+text) != nil {
			return
		}
		b := mem.New()
		put(t, b, "c/log/"+text, nil)
		lineages := load(t, openCluster(t, b, "c"), repository.LoadOptions{Log: true}).Lineages
		lineage, name, _ := strings.Cut(text, "/")
		var seq uint64
		index := strings.HasPrefix(name, "index-")
		if index {
			_, _ = fmt.Sscanf(name, "index-%016x.json", &seq)
		} else {
			_, _ = fmt.Sscanf(name, "%016x.seg", &seq)
		}
		ours := seq > 0 && catalog.ValidLineage(lineage) == nil &&
			("c/log/"+text == segmentKey("c", lineage, seq) || "c/log/"+text == indexKey("c", lineage, seq))
		if ours != (len(lineages) == 1) {
			t.Fatalf("%q: lineages %+v", text, lineages)
		}
		if ours && !index && (len(lineages[0].Faults) != 1 || lineages[0].Faults[0].Key != "c/log/"+text) {
			t.Errorf("%q: faults %+v", text, lineages[0].Faults)
		}
	})
}

// TestStoreSegmentTwice: a repeated call succeeds, whether or not the answer of the first was lost.
func TestStoreSegmentTwice(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	w := newWriter(t, "c", lineageID(1))
	storeSegments(t, c, w.next())
	e := w.next()
	b.On(storage.VerbPut).FailLate(errTest)
	wantError(t, "lost answer", c.StoreSegment(t.Context(), e), errTest)
	storeSegments(t, c, e, e)
	lost := w.next()
	b.On(storage.VerbPut).Fail(errTest)
	wantError(t, "lost call", c.StoreSegment(t.Context(), lost), errTest)
	wantLineage(t, "before", loadLog(t, c, 1)[0], "1-2", "")
	b.On(storage.VerbOpen).Fail(errTest)
	wantError(t, "cannot look", c.StoreSegment(t.Context(), e), errTest)
	storeSegments(t, c, lost)
	wantLineage(t, "after", loadLog(t, c, 1)[0], "1-3", "")
}

// TestStoreSegmentTaken: the loser is told what won and can go on from it.
func TestStoreSegmentTaken(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		winner, loser := newWriter(t, "c", lineageID(1)), newWriter(t, "c", lineageID(1))
		loser.name = "loser"
		won := winner.next()
		storeSegments(t, c, won)
		err := c.StoreSegment(t.Context(), loser.next())
		wantError(t, "taken", err, catalog.ErrTaken)
		taken, ok := errors.AsType[*repository.TakenError](err)
		if !ok {
			t.Fatal(err)
		}
		if diff := cmp.Diff(catalog.SegmentOf(won), taken.Segment); diff != "" {
			t.Errorf("the winner is another one:\n%s", diff)
		}
		loser.header, loser.digest = taken.Segment.Header, taken.Segment.Digest
		storeSegments(t, c, loser.next())
		wantLineage(t, "both", loadLog(t, c, 1)[0], "1-2", "")
	})
}

// TestStoreSegmentRefused: into another's place, or where something that is damaged has the name.
func TestStoreSegmentRefused(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	if err := c.StoreSegment(t.Context(), newWriter(t, "other", lineageID(1)).next()); err == nil {
		t.Error("a segment of another cluster was stored")
	}
	e := newWriter(t, "c", lineageID(1)).next()
	e.Header.Lineage = "../../other"
	wantError(t, "odd lineage", c.StoreSegment(t.Context(), e), catalog.ErrName)
	if got := keys(t, b); len(got) > 0 {
		t.Errorf("keys %q", got)
	}
	e = newWriter(t, "c", lineageID(1)).next()
	for what, data := range map[string][]byte{
		"empty": {}, "cut": e.Bytes[:len(e.Bytes)-1], "longer": append(slices.Clone(e.Bytes), 0), "noise": noise(100_000),
	} {
		put(t, b, segmentKey("c", lineageID(1), 1), data)
		wantDamaged(t, what, c.StoreSegment(t.Context(), e), segmentKey("c", lineageID(1), 1))
	}
}

// TestStoreSegmentConcurrently: many archivers at once make one chain, in which each seq has one winner.
func TestStoreSegmentConcurrently(t *testing.T) {
	const writers, seqs = 8, 12
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		var wins sync.Map
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				w := newWriter(t, "c", lineageID(1))
				w.name = fmt.Sprintf("w%d", i)
				for w.header.Seq < seqs {
					e := w.next()
					err := c.StoreSegment(t.Context(), e)
					taken, lost := errors.AsType[*repository.TakenError](err)
					switch {
					case lost:
						w.header, w.digest = taken.Segment.Header, taken.Segment.Digest
					case err != nil:
						t.Error(err)
						return
					default:
						if other, twice := wins.Swap(e.Header.Seq, w.name); twice {
							t.Errorf("segment %d was won by %v and %s", e.Header.Seq, other, w.name)
						}
					}
				}
			})
		}
		all.Wait()
		l := loadLog(t, c, 1)[0]
		wantLineage(t, "all", l, fmt.Sprintf("1-%d", seqs), "")
		for _, s := range l.Segments {
			if winner, _ := wins.Load(s.Seq); winner != s.Writer {
				t.Errorf("segment %d is of %s, and %v had won", s.Seq, s.Writer, winner)
			}
		}
	})
}

// readAll reads a segment's requests.
func readAll(tb testing.TB, c *repository.Cluster, s catalog.Segment, keys seal.Keys) (texts []string, err error) {
	tb.Helper()
	r, err := c.OpenSegment(tb.Context(), s, keys)
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
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		all := newWriter(t, "c", lineageID(1)).some(2)
		storeSegments(t, c, all...)
		cat := loadLog(t, c, 1)[0].Segments
		if got, err := readAll(t, c, cat[1], seal.Keys{}); err != nil || !slices.Equal(got, []string{"20=w"}) {
			t.Errorf("records %q, %v", got, err)
		}
		key := segmentKey("c", lineageID(1), 2)
		other := newWriter(t, "c", lineageID(1))
		other.name = "other"
		for what, data := range map[string][]byte{
			"another's": other.some(2)[1].Bytes, "the one before": all[0].Bytes, "header flipped": flip(40, 1)(slices.Clone(all[1].Bytes)),
			"body flipped": flip(len(all[1].Bytes)-5, 1)(slices.Clone(all[1].Bytes)), "cut": all[1].Bytes[:len(all[1].Bytes)-1],
			"longer": append(slices.Clone(all[1].Bytes), 0), "empty": {},
		} {
			put(t, b, key, data)
			_, err := readAll(t, c, cat[1], seal.Keys{})
			wantDamaged(t, what, err, key)
		}
		remove(t, b, key)
		_, err := readAll(t, c, cat[1], seal.Keys{})
		if wantError(t, "gone", err, catalog.ErrNotFound); !strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("%v does not name %s", err, key)
		}
	})
}

// TestOpenSegmentStoreFails: the store's own errors are no damage.
func TestOpenSegmentStoreFails(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	storeSegments(t, c, newWriter(t, "c", lineageID(1)).next())
	s := loadLog(t, c, 1)[0].Segments[0]
	for _, n := range []int{0, 5, 100, int(s.Size) - 3} {
		b.On(storage.VerbOpen).Cut(n, errTest)
		_, err := readAll(t, c, s, seal.Keys{})
		if wantError(t, "cut stream", err, errTest); errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	b.On(storage.VerbOpen).Fail(errTest)
	_, err := readAll(t, c, s, seal.Keys{})
	wantError(t, "no stream", err, errTest)
}

// TestSegmentLongHeader: a header that is longer than usual is read with a second request.
func TestSegmentLongHeader(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	w := newWriter(t, "c", lineageID(1))
	long := w.next(func(h *segment.Header) { h.Reason = strings.Repeat("r", 40_000) })
	storeSegments(t, c, long)
	before := b.Calls(storage.VerbOpen)
	l := loadLog(t, c, 1)[0]
	if diff := cmp.Diff(segmentsOf([]segment.Encoded{long}), l.Segments); diff != "" {
		t.Error(diff)
	}
	if reads := b.Calls(storage.VerbOpen) - before; reads != 2 {
		t.Errorf("%d reads", reads)
	}
	got, err := c.Segments(t.Context(), lineageID(1), []uint64{1, 1})
	if err != nil || len(got) != 2 || got[1].Digest != long.Digest {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = c.Segments(t.Context(), lineageID(1), []uint64{1, 2})
	wantError(t, "absent", err, storage.ErrNotExist)
}
