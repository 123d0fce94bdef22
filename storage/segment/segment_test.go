package segment_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage/document"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

// fullHeader returns a header with every field set, including characters that JSON escapes.
func fullHeader() segment.Header {
	return segment.Header{
		Cluster: "prod-eu.1", Lineage: lineage, Seq: 1, First: 1000, Last: 1300,
		End:      segment.End{Position: 1300, Term: 9, Digest: digest},
		Diverged: "HashKV at revision 7: \"two\" <&>", Reason: "restored to \"<&> ü\"",
		After: &segment.After{Lineage: digest[1:33], Seq: 7, Position: 1<<63 + 1, Time: after(-60)},
		Marks: []segment.Mark{
			{Position: 999, Revision: 500, Interval: segment.Interval{NotBefore: noon, NotAfter: after(1)}},
			{Position: 1000, Interval: segment.Interval{NotBefore: after(1), NotAfter: after(1).Add(141592653)}},
			{Position: 1300, Revision: 502, Interval: segment.Interval{NotBefore: after(2), NotAfter: after(3)}},
		},
		Hashes: []segment.Hash{
			{Position: 999, Revision: 500, CompactRevision: -1, Hash: 4294967295},
			{Position: 1200, Revision: 501, CompactRevision: 400, Hash: 1},
		},
		Source: segment.WAL, ClusterID: "cdf818194e3a8c32", Member: "8e9e05c52164694d", ServerVersion: "3.5.35",
		Writer: "9f2c", Written: after(4), DRVersion: "v0.2.0",
	}
}

func fullRequests() []segment.Record {
	return []segment.Record{
		request(1000, 7, "first"), request(1001, 7, "\x00"), request(1200, 9, "third"), request(1300, 9, "last"),
	}
}

// fullRecords returns the records of a segment with fullHeader and fullRequests.
func fullRecords() []segment.Record {
	h := fullHeader()
	return append([]segment.Record{
		{Kind: segment.ServerVersion, Position: 999, Data: []byte("3.5.35")},
		{Kind: segment.RevisionMark, Position: 999, Revision: 500},
		{Kind: segment.TimeMark, Position: 999, Time: h.Marks[0].Interval},
		{Kind: segment.HashMark, Position: 999, Revision: 500, CompactRevision: -1, Hash: 4294967295},
		{Kind: segment.TimeMark, Position: 1000, Time: h.Marks[1].Interval},
		{Kind: segment.HashMark, Position: 1200, Revision: 501, CompactRevision: 400, Hash: 1},
		{Kind: segment.RevisionMark, Position: 1300, Revision: 502},
		{Kind: segment.TimeMark, Position: 1300, Time: h.Marks[2].Interval},
	}, fullRequests()...)
}

// parts splits a segment at its header's length.
func parts(stored []byte) (prefix, doc, sealed []byte) {
	n := 12 + int(binary.BigEndian.Uint32(stored[8:12]))
	return stored[:12], stored[12:n], stored[n:]
}

func unsealed(tb testing.TB, sealed []byte) []byte {
	tb.Helper()
	opened, err := seal.Open(bytes.NewReader(sealed), seal.Recipients{}.Seal(), seal.Keys{})
	if err != nil {
		tb.Fatal(err)
	}
	defer opened.Close()
	plain, err := io.ReadAll(opened)
	if err != nil {
		tb.Fatal(err)
	}
	return plain
}

// TestGolden checks that an old segment is still readable, and that encoding yields the same bytes today, except for
// the sealed body, which depends on the version of the compressor.
func TestGolden(t *testing.T) {
	e := encoded(t, fullHeader(), fullRequests(), seal.Recipients{})
	old := golden.Read(t, filepath.Join("testdata", "format1.seg"), e.Bytes)
	got, err := records(old, seal.Keys{})
	diff := cmp.Diff(fullRecords(), got)
	if err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	prefix, doc, sealed := parts(old)
	h, _, err := segment.DecodeHeader(doc)
	if err != nil {
		t.Fatal(err)
	}
	gotPrefix, _, gotSealed := parts(e.Bytes)
	if !bytes.Equal(gotPrefix[:8], prefix[:8]) {
		t.Errorf("it begins with %q, want %q", gotPrefix, prefix)
	}
	diff = cmp.Diff(hex.Dump(unsealed(t, sealed)), hex.Dump(unsealed(t, gotSealed)))
	if diff != "" {
		t.Errorf("plain body:\n%s", diff)
	}
	e.Header.Stored = h.Stored
	gotDoc, err := document.Encode(e.Header)
	diff = cmp.Diff(string(doc), string(gotDoc))
	if err != nil || diff != "" {
		t.Errorf("header: %v\n%s", err, diff)
	}
}

// TestRoundTrip checks that every valid segment can be read back, with large reads and byte by byte.
func TestRoundTrip(t *testing.T) {
	key := newPair(t)
	rapid.Check(t, func(t *rapid.T) {
		requests := drawRequests(t)
		h := drawHeader(t, requests)
		to := rapid.SampledFrom([]seal.Recipients{{}, key.to}).Draw(t, "to")
		e, err := segment.Encode(h, requests, to)
		if err != nil {
			t.Fatal(err)
		}
		var src io.Reader = bytes.NewReader(e.Bytes)
		if rapid.Bool().Draw(t, "bytewise") {
			src = iotest.DataErrReader(iotest.OneByteReader(src))
		}
		r, err := segment.Open(src, key.keys)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := drain(r)
		if err != nil {
			t.Fatal(err)
		}
		wantRecords(t, got, h, requests)
		diff := cmp.Diff(e.Header, r.Header)
		if diff != "" || r.Digest != e.Digest {
			t.Errorf("digest %s, want %s, header:\n%s", r.Digest, e.Digest, diff)
		}
		_, doc, _ := parts(e.Bytes)
		if !bytes.Equal(documentOf(t, r.Header), doc) {
			t.Error("the header that was read is written as another: an index of headers relies on that")
		}
		again, err := segment.Encode(r.Header, got[len(got)-len(requests):], to)
		if err != nil || again.Header.Plain != e.Header.Plain {
			t.Errorf("what was read is written as another: %v", err)
		}
	})
}

// wholeData makes cmp compare byte slices as a whole.
var wholeData = cmp.Comparer(bytes.Equal)

func drawRequests(t *rapid.T) []segment.Record {
	position, term := rapid.Uint64Range(0, math.MaxUint64>>1).Draw(t, "position"), rapid.Uint64Range(1, 300).Draw(t, "term")
	requests := make([]segment.Record, rapid.IntRange(1, 30).Draw(t, "requests"))
	for i := range requests {
		position += rapid.SampledFrom([]uint64{1, 1, 1, 2, 127, 128, 1 << 40}).Draw(t, "distance")
		term += rapid.SampledFrom([]uint64{0, 0, 0, 1, 128}).Draw(t, "rise")
		size := rapid.SampledFrom([]int{1, 2, 127, 128, 5_000, 32 << 10, 64 << 10, 200_000}).Draw(t, "size")
		data := bytes.Repeat([]byte{byte(i), 0, 0xff}, size/3+1)[:size]
		requests[i] = segment.Record{Kind: segment.Request, Position: position, Term: term, Data: data}
	}
	return requests
}

func drawHeader(t *rapid.T, requests []segment.Record) segment.Header {
	h := headerOf(requests)
	h.Seq = rapid.SampledFrom([]uint64{1, 2, math.MaxUint64}).Draw(t, "seq")
	if h.Seq > 1 {
		h.Previous = digest
	}
	if rapid.Bool().Draw(t, "more") { // raft's own entries
		h.Last, h.End.Position, h.End.Term = h.Last+3, h.Last+3, h.End.Term+1
	}
	position, revision := h.First-1, int64(1)
	for i := range rapid.IntRange(0, 6).Draw(t, "marks") {
		ahead := rapid.Uint64Range(0, (h.Last-position)/2).Draw(t, "ahead")
		position += ahead
		revision += int64(min(ahead, 3))
		mark := segment.Mark{Position: position, Interval: segment.Interval{NotBefore: after(i), NotAfter: after(2 * i)}}
		if rapid.Bool().Draw(t, "known") {
			mark.Revision = revision
		}
		h.Marks = append(h.Marks, mark)
		if rapid.Bool().Draw(t, "hashed") {
			h.Hashes = append(h.Hashes, segment.Hash{Position: position, Revision: revision, CompactRevision: -1, Hash: uint32(i)})
		}
	}
	return h
}

// wantRecords fails unless the version comes first, no mark is missing, and each mark comes before every request after
// its position.
func wantRecords(t *rapid.T, got []segment.Record, h segment.Header, requests []segment.Record) {
	version := segment.Record{Kind: segment.ServerVersion, Position: h.First - 1, Data: []byte(h.ServerVersion)}
	diff := cmp.Diff([]segment.Record{version}, got[:min(1, len(got))])
	if diff != "" {
		t.Fatalf("it begins with\n%s", diff)
	}
	var marks []segment.Mark
	var hashes []segment.Hash
	var read []segment.Record
	var revision int64
	for _, r := range got[1:] {
		n := len(read)
		if r.Kind != segment.Request && n > 0 && read[n-1].Position > r.Position {
			t.Errorf("a mark at %d comes behind the request at %d", r.Position, read[n-1].Position)
		}
		switch r.Kind {
		case segment.Request:
			read = append(read, r)
		case segment.RevisionMark:
			revision = r.Revision
		case segment.TimeMark:
			marks = append(marks, segment.Mark{Position: r.Position, Revision: revision, Interval: r.Time})
			revision = 0
		case segment.HashMark:
			hashes = append(hashes, segment.Hash{
				Position: r.Position, Revision: r.Revision, CompactRevision: r.CompactRevision, Hash: r.Hash,
			})
		default:
			t.Errorf("a record of kind %d", r.Kind)
		}
	}
	diff = cmp.Diff(h.Marks, marks) + cmp.Diff(h.Hashes, hashes) + cmp.Diff(requests, read, wholeData)
	if diff != "" {
		t.Error(diff)
	}
}

// TestMarksAlone uses the segment of an idle cluster, which has marks and no requests.
func TestMarksAlone(t *testing.T) {
	h := fullHeader()
	e := encoded(t, h, nil, seal.Recipients{})
	got, err := records(e.Bytes, seal.Keys{})
	want := fullRecords()
	diff := cmp.Diff(want[:len(want)-len(fullRequests())], got)
	if err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	h.Marks, h.Hashes = nil, nil
	_, err = segment.Encode(h, nil, seal.Recipients{})
	if err == nil {
		t.Error("an empty segment can be written")
	}
}

// TestNoMarks checks that an empty list of marks is encoded as a list, for readers in other languages.
func TestNoMarks(t *testing.T) {
	e := encoded(t, headerOf(fullRequests()), fullRequests(), seal.Recipients{})
	_, doc, _ := parts(e.Bytes)
	if !bytes.Contains(doc, []byte("\"marks\": [],\n")) {
		t.Errorf("the header has no empty list of marks: %s", doc)
	}
}

// TestReadHeader checks that reading a header needs no key and no byte after it.
func TestReadHeader(t *testing.T) {
	e := encoded(t, fullHeader(), fullRequests(), newPair(t).to)
	prefix, doc, sealed := parts(e.Bytes)
	src := bytes.NewReader(e.Bytes)
	h, digest, err := segment.ReadHeader(io.MultiReader(src, iotest.ErrReader(errTest)))
	diff := cmp.Diff(e.Header, h)
	if err != nil || diff != "" || digest != e.Digest || src.Len() != len(sealed) {
		t.Errorf("digest %s, %d bytes are left, %v\n%s", digest, src.Len(), err, diff)
	}
	_, _, headerErr := segment.ReadHeader(bytes.NewReader(slices.Concat(prefix, doc)))
	if headerErr != nil {
		t.Error(headerErr)
	}
	before := bytes.Clone(doc)
	for range 2 {
		h, digest, err = segment.DecodeHeader(doc)
		diff := cmp.Diff(e.Header, h)
		if err != nil || diff != "" || digest != e.Digest {
			t.Errorf("document: digest %s, %v\n%s", digest, err, diff)
		}
	}
	if !bytes.Equal(before, doc) {
		t.Error("reading has changed the document")
	}
}

// TestReadOnce checks that the records can be read only once.
func TestReadOnce(t *testing.T) {
	r, err := segment.Open(bytes.NewReader(encoded(t, fullHeader(), fullRequests(), seal.Recipients{}).Bytes), seal.Keys{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	got, err := drain(r)
	if err == nil || len(got) > 0 {
		t.Errorf("the second time: %d records, %v", len(got), err)
	}
}
