package log_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/log"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/golden"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func encodedIndex(tb testing.TB, segments []catalog.Segment) []byte {
	tb.Helper()
	data, err := log.EncodeIndex(segments)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestIndexGolden checks that an index of an earlier version can be read. The compression of a new one may differ.
func TestIndexGolden(t *testing.T) {
	w := stored.NewWriter(t, "c", stored.LineageID(1))
	want := stored.SegmentsOf([]segment.Encoded{w.Next(), w.Next(func(h *segment.Header) {
		h.First, h.Last, h.Reason = h.First+100, h.Last+100, "the log of the member was gone"
		h.Marks[0].Position = h.Last
	}), w.Next()})
	now := encodedIndex(t, want)
	for _, data := range [][]byte{golden.Read(t, filepath.Join("testdata", "index.json"), now), now} {
		got, err := log.DecodeIndex(data)
		diff := cmp.Diff(want, got)
		if err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

// TestIndexHeaders checks that the headers in an index are the documents of the segments, byte for byte, and common tools can
// read them.
func TestIndexHeaders(t *testing.T) {
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(3)
	var want []byte
	for _, e := range all {
		want = append(want, e.Bytes[12:len(e.Bytes)-int(e.Header.Stored.Size)]...)
	}
	var index struct{ Headers []byte }
	err := json.Unmarshal(encodedIndex(t, stored.SegmentsOf(all)), &index)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := zstd.NewReader(nil) // without a reader: this decoder only serves DecodeAll
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	got, err := dec.DecodeAll(index.Headers, nil)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: got  %q\nwant %q", err, got, want)
	}
}

func TestIndexFlippedBytes(t *testing.T) {
	data := encodedIndex(t, stored.SegmentsOf(stored.NewWriter(t, "c", stored.LineageID(1)).Some(2)))
	for at := range data {
		_, err := log.DecodeIndex(stored.Flip(at, 1)(slices.Clone(data)))
		if err == nil {
			t.Errorf("byte %d can be another one", at)
		}
		_, err = log.DecodeIndex(data[:at])
		if err == nil {
			t.Errorf("it can be cut to %d bytes", at)
		}
	}
}

// TestIndexRefused checks that segments that are not consecutive are neither written nor read as an index.
func TestIndexRefused(t *testing.T) {
	c := stored.OpenCluster(t, mem.New(), "c")
	all := stored.SegmentsOf(stored.NewWriter(t, "c", stored.LineageID(1)).Some(4))
	other := stored.SegmentsOf(stored.NewWriter(t, "c", stored.LineageID(2)).Some(4))
	foreign := stored.SegmentsOf(stored.NewWriter(t, "other", stored.LineageID(1)).Some(4))
	edited := slices.Clone(all)
	edited[1].Writer = "x"
	for what, segments := range map[string][]catalog.Segment{
		"none": nil, "a hole": {all[0], all[2]}, "twice": {all[0], all[0]}, "backwards": {all[1], all[0]},
		"another lineage": other, "another lineage's": {all[0], other[1]}, "another cluster": foreign,
		"another cluster's": {all[0], foreign[1]}, "not as stored": edited,
	} {
		err := c.Log().StoreIndex(t.Context(), stored.LineageID(1), segments)
		if err == nil {
			t.Errorf("%s: it was stored", what)
		}
	}
	good := encodedIndex(t, all)
	for what, change := range map[string][2]string{
		"first": {`"first": 1`, `"first": 2`}, "last": {`"last": 4`, `"last": 5`}, "cluster": {`"cluster": "c"`, `"cluster": "d"`},
		"lineage": {stored.LineageID(1), stored.LineageID(2)}, "headers": {`"headers": "`, `"headers": "AAAA`}, "format": {`"format": 1`, `"format": 2`},
	} {
		_, err := log.DecodeIndex(stored.Rewritten(t, good, change[0], change[1]))
		stored.WantError(t, what, err, catalog.ErrDamaged)
	}
	for what, headers := range map[string]string{"nothing": "", "spaces": strings.Repeat(" ", 200<<20)} {
		_, err := log.DecodeIndex(packed(t, headers))
		stored.WantError(t, what, err, catalog.ErrDamaged)
	}
}

// packed returns an index with any text in place of the headers.
func packed(tb testing.TB, headers string) []byte {
	tb.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer enc.Close()
	data, err := document.Encode(struct {
		Format  int    `json:"format"`
		Cluster string `json:"cluster"`
		Lineage string `json:"lineage"`
		First   uint64 `json:"first"`
		Last    uint64 `json:"last"`
		Headers []byte `json:"headers"`
	}{1, "c", stored.LineageID(1), 1, 1, enc.EncodeAll([]byte(headers), nil)})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestStoreIndexTwice checks that StoreIndex succeeds again for the same index, and fails for another one with the same first
// seq.
func TestStoreIndexTwice(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(4)
	stored.StoreSegments(t, c, all...)
	b.On(storagetest.VerbPut).FailLate(stored.ErrTest)
	stored.WantError(t, "lost answer", c.Log().StoreIndex(t.Context(), stored.LineageID(1), stored.SegmentsOf(all[:2])), stored.ErrTest)
	stored.StoreIndex(t, c, stored.SegmentsOf(all[:2]))
	stored.WantError(t, "another", c.Log().StoreIndex(t.Context(), stored.LineageID(1), stored.SegmentsOf(all)), storage.ErrExist)
	before := b.Calls(storagetest.VerbOpen)
	stored.WantLineage(t, "half indexed", stored.LoadLog(t, c, 1)[0], "1-4", "")
	reads := b.Calls(storagetest.VerbOpen) - before
	if reads != 3 {
		t.Errorf("%d reads, want those of an index and two headers", reads)
	}
}

// TestIndexOnlyCostsTime checks that the catalog contains the stored segments, whatever is wrong with indexes. A damaged
// index is one fault.
func TestIndexOnlyCostsTime(t *testing.T) {
	all := stored.NewWriter(t, "c", stored.LineageID(1)).Some(6)
	loser := stored.NewWriter(t, "c", stored.LineageID(1))
	loser.Header, loser.Digest, loser.Name = all[1].Header, all[1].Digest, "x" // the same size as the winner's
	lost := slices.Concat(all[:2], loser.Some(2))
	key := func(first uint64) string { return stored.IndexKey("c", stored.LineageID(1), first) }
	damaged := []string{"flipped", "cut", "empty", "endless", "moved"}
	for what, spoil := range map[string]func(b storage.Bucket){
		"flipped":          func(b storage.Bucket) { stored.Change(t, b, key(1), stored.Flip(300, 1)) },
		"cut":              func(b storage.Bucket) { stored.Change(t, b, key(1), func(p []byte) []byte { return p[:len(p)/2] }) },
		"empty":            func(b storage.Bucket) { stored.Put(t, b, key(1), nil) },
		"endless":          func(b storage.Bucket) { stored.Put(t, b, key(1), make([]byte, 17<<20)) },
		"gone":             func(b storage.Bucket) { stored.Remove(t, b, key(1)) },
		"moved":            func(b storage.Bucket) { stored.Put(t, b, key(2), stored.Get(t, b, key(1))) },
		"of a loser":       func(b storage.Bucket) { stored.Put(t, b, key(1), encodedIndex(t, stored.SegmentsOf(lost))) },
		"of a loser alone": func(b storage.Bucket) { stored.Put(t, b, key(4), encodedIndex(t, stored.SegmentsOf(lost[3:]))) },
		"twice":            func(b storage.Bucket) { stored.Put(t, b, key(2), encodedIndex(t, stored.SegmentsOf(all[1:]))) },
	} {
		b := mem.New()
		c := stored.OpenCluster(t, b, "c")
		stored.StoreSegments(t, c, all...)
		stored.StoreIndex(t, c, stored.SegmentsOf(all[:5]))
		spoil(b)
		l := stored.LoadLog(t, c, 1)[0]
		faults := ""
		if slices.Contains(damaged, what) {
			faults = "0 damaged"
		}
		stored.WantLineage(t, what, l, "1-6", faults)
		diff := cmp.Diff(stored.SegmentsOf(all), l.Segments)
		if diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
}

func FuzzDecodeIndex(f *testing.F) {
	data := encodedIndex(f, stored.SegmentsOf(stored.NewWriter(f, "c", stored.LineageID(1)).Some(3)))
	f.Add(data)
	f.Add([]byte(stored.Body(data)))
	f.Add([]byte(stored.Body(packed(f, "{\n}\n"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, document := range [][]byte{data, stored.Framed(string(data))} {
			segments, err := log.DecodeIndex(document)
			if err != nil {
				stored.WantError(t, "decode", err, catalog.ErrDamaged)
				continue
			}
			again, err := log.EncodeIndex(segments)
			if err != nil {
				continue // a header in another spelling has another digest, and cannot be encoded again
			}
			got, err := log.DecodeIndex(again)
			diff := cmp.Diff(segments, got)
			if err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		}
	})
}
