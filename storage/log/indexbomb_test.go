package log_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestIndexBomb checks that small indexes that unpack to a very large size are refused, each by name, before they take
// memory. This holds with and without trusted keys, whatever size the frame declares and however many headers the index
// claims.
func TestIndexBomb(t *testing.T) {
	owner := stored.NewSigner(t)
	for _, policy := range []records.Policy{{}, {Key: owner.Key, Trust: stored.Trust(t, owner.Public).Trust}} {
		for what, pack := range map[string]func(*testing.T, []byte) []byte{"its size": packFrame, "no size": packStream} {
			counts := []uint64{0, 511, 1 << 62}
			if testing.Short() {
				counts = counts[1:2]
			}
			for _, last := range counts {
				t.Run(fmt.Sprintf("signed %v, frame with %s, %d more", !policy.Trust.None(), what, last), func(t *testing.T) {
					b := mem.New()
					stored.Create(t, stored.OpenWith(t, b, policy), stored.IDAt(0))
					keys := putIndexes(t, b, pack, last)
					peak := heapPeak()
					survey, err := stored.OpenWith(t, b, policy).Survey(t.Context(), repository.SurveyOptions{Newest: 6})
					most := peak()
					if most > 128<<20 {
						t.Errorf("%d MiB of heap", most>>20)
					}
					if err != nil || len(survey.Backups) != 1 {
						t.Fatalf("%d backups, %v", len(survey.Backups), err)
					}
					wantRefusedIndexes(t, survey.Lineages, keys)
				})
			}
		}
	}
}

// TestIndexOfLongHeaders checks that only the bounds of long headers stay in memory if their segments do not exist. Without
// trusted keys an attacker can write valid headers that compress well.
func TestIndexOfLongHeaders(t *testing.T) {
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	all := w.Some(1)
	for range 100 {
		all = append(all, w.Next(func(h *segment.Header) {
			h.First, h.Last = h.First+1, h.Last+1
			h.Marks[0].Position = h.Last
			h.Reason = strings.Repeat("x", 60<<10) + strconv.Itoa(int(h.Seq))
		}))
	}
	b := &liveHeap{Bucket: mem.New()}
	stored.Put(t, b, stored.IndexKey("c", stored.LineageID(1), 1), encodedIndex(t, stored.SegmentsOf(all)))
	all, w = nil, nil
	before := stored.Live()
	stored.WantLineage(t, "index alone", stored.LoadLog(t, stored.OpenCluster(t, b, "c"), 1)[0], "", "1-101 missing")
	if b.most == 0 || b.most > before+3<<20 {
		t.Errorf("%d KiB of headers are in memory", (int64(b.most)-int64(before))>>10)
	}
}

// liveHeap measures the live heap each time a segment is opened.
type liveHeap struct {
	storage.Bucket
	most uint64
}

// Open measures the heap if key is a segment's, and opens the object.
func (b *liveHeap) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	if strings.HasSuffix(key, ".seg") {
		b.most = max(b.most, stored.Live())
	}
	return b.Bucket.Open(ctx, key, o)
}

// putIndexes stores 32 indexes whose headers are zeros and returns their keys. Each claims to have more+1 headers.
func putIndexes(t *testing.T, b storage.Bucket, pack func(*testing.T, []byte) []byte, more uint64) (keys []string) {
	t.Helper()
	zeros := pack(t, make([]byte, 31<<20))
	for l := range 4 {
		for first := uint64(1); first <= 8; first++ {
			key := stored.IndexKey("c", stored.LineageID(l+1), first)
			stored.Put(t, b, key, indexOf(t, stored.LineageID(l+1), first, first+more, zeros))
			keys = append(keys, key)
		}
	}
	return keys
}

func indexOf(tb testing.TB, lineage string, first, last uint64, headers []byte) []byte {
	tb.Helper()
	data, err := document.Encode(struct {
		Format  int    `json:"format"`
		Cluster string `json:"cluster"`
		Lineage string `json:"lineage"`
		First   uint64 `json:"first"`
		Last    uint64 `json:"last"`
		Headers []byte `json:"headers"`
	}{1, "c", lineage, first, last, headers})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// packFrame returns a frame that declares its size and needs a small window.
func packFrame(t *testing.T, content []byte) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	return enc.EncodeAll(content, nil)
}

// packStream returns a frame that does not declare its size.
func packStream(t *testing.T, content []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	enc, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	_, err = enc.ReadFrom(bytes.NewReader(content)) // in pieces: a frame that is written at once declares its size
	if err != nil {
		t.Fatal(err)
	}
	err = enc.Close()
	if err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// wantRefusedIndexes fails the test unless each of keys is exactly one fault.
func wantRefusedIndexes(t *testing.T, lineages []catalog.Lineage, keys []string) {
	t.Helper()
	count := map[string]int{}
	for _, l := range lineages {
		for _, f := range l.Faults {
			count[f.Key]++
			stored.WantDamaged(t, f.Key, f.Err, f.Key)
		}
	}
	for _, key := range keys {
		if count[key] != 1 {
			t.Errorf("%d faults of %s", count[key], key)
		}
	}
	if len(count) != len(keys) {
		t.Errorf("%d objects have faults, want %d", len(count), len(keys))
	}
}

// heapPeak samples the heap until the returned function is called, which returns the highest growth in bytes.
func heapPeak() func() uint64 {
	var m runtime.MemStats
	before, stop, done := stored.Live(), make(chan struct{}), make(chan uint64)
	go func() {
		most := before
		for {
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-stop:
				done <- most - before
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(stop)
		return <-done
	}
}
