package repository_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

func encodedIndex(tb testing.TB, segments []catalog.Segment) []byte {
	tb.Helper()
	data, err := repository.EncodeIndex(segments)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestIndexGolden: an index that was written once is read for ever. How tightly it is packed may change.
func TestIndexGolden(t *testing.T) {
	w := newWriter(t, "c", lineageID(1))
	want := segmentsOf([]segment.Encoded{w.next(), w.next(func(h *segment.Header) {
		h.First, h.Last, h.Reason = h.First+100, h.Last+100, "the log of the member was gone"
		h.Marks[0].Position = h.Last
	}), w.next()})
	path := filepath.Join("testdata", "index.json")
	if *update {
		if err := os.WriteFile(path, encodedIndex(t, want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{data, encodedIndex(t, want)} {
		got, err := repository.DecodeIndex(data)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

// TestIndexHeaders: they are the documents of the segments, byte for byte, and public tools read them.
func TestIndexHeaders(t *testing.T) {
	all := newWriter(t, "c", lineageID(1)).some(3)
	var want []byte
	for _, e := range all {
		want = append(want, e.Bytes[12:len(e.Bytes)-int(e.Header.Stored.Size)]...)
	}
	var index struct{ Headers []byte }
	if err := json.Unmarshal(encodedIndex(t, segmentsOf(all)), &index); err != nil {
		t.Fatal(err)
	}
	dec, err := zstd.NewReader(nil) // with a stream to decode as well it may wait for itself
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
	data := encodedIndex(t, segmentsOf(newWriter(t, "c", lineageID(1)).some(2)))
	for at := range data {
		if _, err := repository.DecodeIndex(flip(at, 1)(slices.Clone(data))); err == nil {
			t.Errorf("byte %d can be another one", at)
		}
		if _, err := repository.DecodeIndex(data[:at]); err == nil {
			t.Errorf("it can be cut to %d bytes", at)
		}
	}
}

// TestIndexRefused: what is no run of segments is neither written nor read.
func TestIndexRefused(t *testing.T) {
	c := openCluster(t, mem.New(), "c")
	all := segmentsOf(newWriter(t, "c", lineageID(1)).some(4))
	other := segmentsOf(newWriter(t, "c", lineageID(2)).some(4))
	foreign := segmentsOf(newWriter(t, "other", lineageID(1)).some(4))
	edited := slices.Clone(all)
	edited[1].Writer = "x"
	for what, segments := range map[string][]catalog.Segment{
		"none": nil, "a hole": {all[0], all[2]}, "twice": {all[0], all[0]}, "backwards": {all[1], all[0]},
		"another lineage": other, "another lineage's": {all[0], other[1]}, "another cluster": foreign,
		"another cluster's": {all[0], foreign[1]}, "not as stored": edited,
	} {
		if err := c.StoreIndex(t.Context(), lineageID(1), segments); err == nil {
			t.Errorf("%s: it was stored", what)
		}
	}
	good := encodedIndex(t, all)
	for what, change := range map[string][2]string{
		"first": {`"first": 1`, `"first": 2`}, "last": {`"last": 4`, `"last": 5`}, "cluster": {`"cluster": "c"`, `"cluster": "d"`},
		"lineage": {lineageID(1), lineageID(2)}, "headers": {`"headers": "`, `"headers": "AAAA`}, "format": {`"format": 1`, `"format": 2`},
	} {
		_, err := repository.DecodeIndex(rewritten(t, good, change[0], change[1]))
		wantError(t, what, err, catalog.ErrDamaged)
	}
	for what, headers := range map[string]string{"nothing": "", "spaces": strings.Repeat(" ", 200<<20)} {
		_, err := repository.DecodeIndex(packed(t, headers))
		wantError(t, what, err, catalog.ErrDamaged)
	}
}

// packed is an index with any text in place of the headers.
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
	}{1, "c", lineageID(1), 1, 1, enc.EncodeAll([]byte(headers), nil)})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// TestStoreIndexTwice: the same one again is stored; another one from the same seq is not.
func TestStoreIndexTwice(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	all := newWriter(t, "c", lineageID(1)).some(4)
	storeSegments(t, c, all...)
	b.On(storage.VerbPut).FailLate(errTest)
	wantError(t, "lost answer", c.StoreIndex(t.Context(), lineageID(1), segmentsOf(all[:2])), errTest)
	storeIndex(t, c, segmentsOf(all[:2]))
	wantError(t, "another", c.StoreIndex(t.Context(), lineageID(1), segmentsOf(all)), storage.ErrExist)
	before := b.Calls(storage.VerbOpen)
	wantLineage(t, "half indexed", loadLog(t, c, 1)[0], "1-4", "")
	if reads := b.Calls(storage.VerbOpen) - before; reads != 3 {
		t.Errorf("%d reads, want those of an index and two headers", reads)
	}
}

// TestIndexOnlyCostsTime: whatever is wrong with indexes, the catalog is what the segments contain. An index that is damaged
// is one fault.
func TestIndexOnlyCostsTime(t *testing.T) {
	all := newWriter(t, "c", lineageID(1)).some(6)
	loser := newWriter(t, "c", lineageID(1))
	loser.header, loser.digest, loser.name = all[1].Header, all[1].Digest, "x" // as long as the winner's
	lost := slices.Concat(all[:2], loser.some(2))
	key := func(first uint64) string { return indexKey("c", lineageID(1), first) }
	damaged := []string{"flipped", "cut", "empty", "endless", "moved"}
	for what, spoil := range map[string]func(b storage.Bucket){
		"flipped":          func(b storage.Bucket) { change(t, b, key(1), flip(300, 1)) },
		"cut":              func(b storage.Bucket) { change(t, b, key(1), func(p []byte) []byte { return p[:len(p)/2] }) },
		"empty":            func(b storage.Bucket) { put(t, b, key(1), nil) },
		"endless":          func(b storage.Bucket) { put(t, b, key(1), make([]byte, 17<<20)) },
		"gone":             func(b storage.Bucket) { remove(t, b, key(1)) },
		"moved":            func(b storage.Bucket) { put(t, b, key(2), get(t, b, key(1))) },
		"of a loser":       func(b storage.Bucket) { put(t, b, key(1), encodedIndex(t, segmentsOf(lost))) },
		"of a loser alone": func(b storage.Bucket) { put(t, b, key(4), encodedIndex(t, segmentsOf(lost[3:]))) },
		"twice":            func(b storage.Bucket) { put(t, b, key(2), encodedIndex(t, segmentsOf(all[1:]))) },
	} {
		b := mem.New()
		c := openCluster(t, b, "c")
		storeSegments(t, c, all...)
		storeIndex(t, c, segmentsOf(all[:5]))
		spoil(b)
		l := loadLog(t, c, 1)[0]
		faults := ""
		if slices.Contains(damaged, what) {
			faults = "0 damaged"
		}
		wantLineage(t, what, l, "1-6", faults)
		if diff := cmp.Diff(segmentsOf(all), l.Segments); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
}

func FuzzDecodeIndex(f *testing.F) {
	data := encodedIndex(f, segmentsOf(newWriter(f, "c", lineageID(1)).some(3)))
	f.Add(data)
	f.Add([]byte(body(data)))
	f.Add([]byte(body(packed(f, "{\n}\n"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, document := range [][]byte{data, framed(string(data))} {
			segments, err := repository.DecodeIndex(document)
			if err != nil {
				wantError(t, "decode", err, catalog.ErrDamaged)
				continue
			}
			again, err := repository.EncodeIndex(segments)
			if err != nil {
				continue // a header that somebody has spelt in another way keeps its digest, and cannot be made again
			}
			got, err := repository.DecodeIndex(again)
			if diff := cmp.Diff(segments, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		}
	})
}
