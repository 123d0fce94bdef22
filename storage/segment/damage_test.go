package segment_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

var errTest = errors.New("broken by the test")

// sample is a small segment and the keys that open it.
type sample struct {
	name   string
	stored []byte
	keys   seal.Keys
}

func samples(t *testing.T) []sample {
	key := newPair(t)
	return []sample{
		{"plain", encoded(t, fullHeader(), fullRequests(), seal.Recipients{}).Bytes, seal.Keys{}},
		{"encrypted", encoded(t, fullHeader(), fullRequests(), key.to).Bytes, key.keys},
	}
}

func wantDamage(tb testing.TB, what string, err error) {
	tb.Helper()
	if !errors.Is(err, storage.ErrDamaged) || errors.Is(err, seal.ErrWrongKey) {
		tb.Errorf("%s: error %v, want damage", what, err)
	}
}

func TestFlippedBytes(t *testing.T) {
	for _, s := range samples(t) {
		for at := range s.stored {
			for _, mask := range []byte{0x01, 0x80} {
				stored := bytes.Clone(s.stored)
				stored[at] ^= mask
				_, err := records(stored, s.keys)
				if !errors.Is(err, storage.ErrDamaged) {
					t.Errorf("%s: byte %d of %d ^ %#x: %v", s.name, at, len(stored), mask, err)
				}
			}
		}
	}
}

func TestCutOrLonger(t *testing.T) {
	for _, s := range samples(t) {
		for size := range s.stored {
			_, err := records(s.stored[:size], s.keys)
			if !errors.Is(err, storage.ErrDamaged) {
				t.Errorf("%s: cut to %d of %d bytes: %v", s.name, size, len(s.stored), err)
			}
		}
		_, _, sealed := parts(s.stored)
		for _, more := range [][]byte{{0}, {'\n'}, bytes.Repeat([]byte{7}, 70_000), sealed, s.stored} {
			_, err := records(slices.Concat(s.stored, more), s.keys)
			wantDamage(t, s.name+" and more", err)
		}
	}
}

// TestSourceErrors checks that the error of a failing source is returned and is not damage, at every byte and in place
// of the end.
func TestSourceErrors(t *testing.T) {
	for _, s := range samples(t) {
		for size := range len(s.stored) + 1 {
			for _, want := range []error{errTest, io.ErrUnexpectedEOF} {
				src := io.MultiReader(bytes.NewReader(s.stored[:size]), iotest.ErrReader(want))
				r, err := segment.Open(src, s.keys)
				if err == nil {
					_, err = drain(r)
					r.Close()
				}
				if err != want {
					t.Errorf("%s: the source fails at byte %d of %d: %v, want %v", s.name, size, len(s.stored), err, want)
				}
			}
		}
	}
}

func TestWrongKey(t *testing.T) {
	key := newPair(t)
	e := encoded(t, fullHeader(), fullRequests(), key.to)
	for what, keys := range map[string]seal.Keys{"another key": newPair(t).keys, "no key": {}} {
		_, err := records(e.Bytes, keys)
		if !errors.Is(err, seal.ErrWrongKey) || errors.Is(err, storage.ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r, err := segment.Open(bytes.NewReader(e.Bytes), key.keys)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Key != e.Header.Seal.Recipients[0] {
		t.Errorf("opened by %q, want %q", r.Key, e.Header.Seal.Recipients[0])
	}
}

// TestUnknownFormat checks that the error for a newer segment names its format.
func TestUnknownFormat(t *testing.T) {
	e := encoded(t, fullHeader(), fullRequests(), seal.Recipients{})
	prefix, doc, sealed := parts(e.Bytes)
	newer := bytes.Clone(prefix)
	newer[7] = 2
	h := e.Header
	h.Format = 2
	for what, stored := range map[string][]byte{
		"newer from its first bytes": slices.Concat(newer, doc, sealed),
		"newer by its header":        join(documentOf(t, h), sealed),
	} {
		_, _, err := segment.ReadHeader(bytes.NewReader(stored))
		wantDamage(t, what, err)
		if err != nil && !strings.Contains(err.Error(), "format 2 is unknown to this version of dr, which knows 1") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func documentOf(tb fataler, h segment.Header) []byte {
	tb.Helper()
	doc, err := document.Encode(h)
	if err != nil {
		tb.Fatal(err)
	}
	return doc
}

// join joins the parts of a segment.
func join(doc, sealed []byte) []byte {
	return slices.Concat([]byte("DRSEG\x00\x00\x01"), binary.BigEndian.AppendUint32(nil, uint32(len(doc))), doc, sealed)
}

// forged returns a segment with any body whose digests are all right, as an attacker could write it.
func forged(tb testing.TB, h segment.Header, plain []byte) []byte {
	tb.Helper()
	stream, err := seal.New(bytes.NewReader(plain), seal.Recipients{})
	if err != nil {
		tb.Fatal(err)
	}
	defer stream.Close()
	sealed, err := io.ReadAll(stream)
	if err != nil {
		tb.Fatal(err)
	}
	h.Format, h.Seal = segment.Format, seal.Recipients{}.Seal()
	h.Plain, h.Stored = blobOf(plain), blobOf(sealed)
	return join(documentOf(tb, h), sealed)
}

func blobOf(p []byte) segment.Blob {
	sum := sha256.Sum256(p)
	return segment.Blob{Size: int64(len(p)), SHA256: hex.EncodeToString(sum[:])}
}

// block returns a block with the fields, numbers as varints.
func block(fields ...any) []byte {
	var p []byte
	for _, f := range fields {
		switch f := f.(type) {
		case int:
			p = binary.AppendUvarint(p, uint64(f))
		case uint64:
			p = binary.AppendUvarint(p, f)
		case string:
			p = append(p, f...)
		}
	}
	return slices.Concat(
		binary.AppendUvarint(nil, uint64(len(p))), p,
		binary.BigEndian.AppendUint32(nil, crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli))),
	)
}

// TestForgedBody has right digests and an invalid body. The header covers positions 10 to 20, whose last entry has term
// 5, and two requests.
func TestForgedBody(t *testing.T) {
	h := headerOf([]segment.Record{request(10, 3, "x"), request(20, 5, "y")})
	h.Requests = 2
	end := []byte{0, 2}
	two := block(1, 3, 1, "x", 10, 2, 1, "y")
	good := slices.Concat(two, end)
	bad := bytes.Clone(good)
	bad[len(bad)-3] ^= 1
	got, err := records(forged(t, h, good), seal.Keys{})
	if err != nil || len(got) != 3 {
		t.Fatalf("the model itself: %d records, %v", len(got), err)
	}
	_, err = records(forged(t, h, slices.Concat(block(1, 3, 1, "x"), block(10, 2, 1, "y"), end)), seal.Keys{})
	if err != nil {
		t.Errorf("in two blocks: %v", err)
	}
	for what, plain := range map[string][]byte{
		"another checksum":         bad,
		"no end":                   two,
		"half an end":              slices.Concat(two, []byte{0}),
		"more behind the end":      slices.Concat(good, []byte{0}),
		"another count":            slices.Concat(two, []byte{0, 3}),
		"fewer than in the header": slices.Concat(block(1, 3, 1, "x"), []byte{0, 1}),
		"more than in the header":  slices.Concat(block(1, 3, 1, "x", 1, 0, 1, "z", 9, 2, 1, "y"), []byte{0, 3}),
		"the same position twice":  slices.Concat(block(1, 3, 1, "x", 0, 2, 1, "y"), end),
		"position before first":    slices.Concat(block(0, 3, 1, "x", 10, 2, 1, "y"), end),
		"position behind last":     slices.Concat(block(1, 3, 1, "x", 11, 2, 1, "y"), end),
		"position overflows":       slices.Concat(block(1, 3, 1, "x", uint64(1<<64-1), 2, 1, "y"), end),
		"term overflows":           slices.Concat(block(1, 3, 1, "x", 10, uint64(1<<64-1), 1, "y"), end),
		"no term":                  slices.Concat(block(1, 0, 1, "x", 10, 5, 1, "y"), end),
		"term above the end's":     slices.Concat(block(1, 3, 1, "x", 10, 3, 1, "y"), end),
		"term above, before last":  slices.Concat(block(1, 3, 1, "x", 9, 3, 1, "y"), end),
		"term below the end's":     slices.Concat(block(1, 3, 1, "x", 10, 1, 1, "y"), end),
		"no data":                  slices.Concat(block(1, 3, 1, "x", 10, 2, 0), end),
		"data beyond the block":    slices.Concat(block(1, 3, 1, "x", 10, 2, 2, "y"), end),
		"data far beyond":          slices.Concat(block(1, 3, 1, "x", 10, 2, uint64(1<<63), "y"), end),
		"half a record":            slices.Concat(block(1, 3, 1, "x", 10), end),
		"no varint":                slices.Concat(block(1, 3, 1, "x", strings.Repeat("\xff", 11)), end),
		"no varint as a length":    slices.Concat(two, bytes.Repeat([]byte{0xff}, 11), end),
		"a block beyond the body":  {0xff, 0xff, 0x7f, 1, 2, 3},
		"text":                     []byte("hello, this is no body"),
	} {
		_, err := records(forged(t, h, plain), seal.Keys{})
		wantDamage(t, what, err)
	}
}

// TestLimits checks that a length beyond all limits is refused, even if enough bytes follow.
func TestLimits(t *testing.T) {
	h := headerOf(fullRequests())
	h.Requests = 1
	for stored, want := range map[string]string{
		"DRSEG\x00\x00\x01\x00\x10\x00\x01{":                     "its header has 1048577 bytes",
		"DRSEG\x00\x00\x01\xff\xff\xff\xff{":                     "its header has 4294967295 bytes",
		string(forged(t, h, binary.AppendUvarint(nil, 1<<31))):   "a block of its body has 2147483648 bytes",
		string(forged(t, h, binary.AppendUvarint(nil, 1<<64-1))): "a block of its body has 18446744073709551615 bytes",
	} {
		_, err := records([]byte(stored), seal.Keys{})
		wantDamage(t, want, err)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}

// TestForgedDigests has a valid body that differs from the header's.
func TestForgedDigests(t *testing.T) {
	e := encoded(t, fullHeader(), fullRequests(), seal.Recipients{})
	_, _, sealed := parts(e.Bytes)
	key := newPair(t)
	for what, spoil := range map[string]func(h *segment.Header){
		"plain digest":  func(h *segment.Header) { h.Plain.SHA256 = digest },
		"plain shorter": func(h *segment.Header) { h.Plain.Size-- },
		"plain longer":  func(h *segment.Header) { h.Plain.Size++ },
		"stored digest": func(h *segment.Header) { h.Stored.SHA256 = digest },
		"stored longer": func(h *segment.Header) { h.Stored.Size++ },
		"stored less":   func(h *segment.Header) { h.Stored.Size-- },
		"encrypted":     func(h *segment.Header) { h.Seal = key.to.Seal() },
	} {
		h := e.Header
		spoil(&h)
		_, err := records(join(documentOf(t, h), sealed), key.keys)
		wantDamage(t, what, err)
	}
}

// allocated returns the number of bytes that run allocates, including those it frees.
func allocated(run func()) uint64 {
	var before, since runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&since)
	return since.TotalAlloc - before.TotalAlloc
}

// TestMemory checks that reading a long body needs as much memory as a short one, and that a false length needs none.
func TestMemory(t *testing.T) {
	const n = 40_000
	requests, data := make([]segment.Record, n), bytes.Repeat([]byte("all the same "), 80)
	for i := range requests {
		requests[i] = segment.Record{Kind: segment.Request, Position: uint64(1 + i), Term: 1, Data: data}
	}
	long := encoded(t, headerOf(requests), requests, seal.Recipients{}).Bytes
	got := allocated(func() { wantCount(t, long, n) })
	if got > 16<<20 {
		t.Errorf("%d MiB were allocated for a body of %d MiB", got>>20, n*len(data)>>20)
	}
	h := headerOf(requests)
	h.Requests = 1
	for what, stored := range map[string][]byte{
		"block":  forged(t, h, binary.AppendUvarint(nil, 1<<30)),
		"header": []byte("DRSEG\x00\x00\x01\x00\x0f\xff\xff{"),
		"far":    []byte("DRSEG\x00\x00\x01\xff\xff\xff\xff{"),
	} {
		var err error
		got := allocated(func() { _, err = records(stored, seal.Keys{}) })
		if got > 2<<20 {
			t.Errorf("%s: %d KiB were allocated for %d bytes", what, got>>10, len(stored))
		}
		wantDamage(t, what, err)
	}
}

// wantCount reads the records without keeping them.
func wantCount(t *testing.T, stored []byte, want int) {
	t.Helper()
	r, err := segment.Open(bytes.NewReader(stored), seal.Keys{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	count := 0
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind == segment.Request {
			count++
		}
	}
	if count != want {
		t.Errorf("%d requests, want %d", count, want)
	}
}
