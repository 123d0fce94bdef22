package segment_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

func change(revision uint64, data string) segment.Record {
	return segment.Record{Kind: segment.Change, Position: revision, Data: []byte(data)}
}

func changes() []segment.Record {
	return []segment.Record{
		change(1000, "grant"), change(1000, "grant"), change(1000, "put"), change(1001, "delete"), change(1002, "txn"),
	}
}

// watchHeader returns the header of a log from a watch, with every field set that only such a log has.
func watchHeader() segment.Header {
	h := fullHeader()
	h.Source, h.Last, h.GuessedLeases = segment.Watch, 1002, 2
	h.End = segment.End{Position: 1002, Digest: digest}
	h.Marks = []segment.Mark{
		{Position: 999, Revision: 999, Interval: segment.Interval{NotBefore: noon, NotAfter: after(1)}},
		{Position: 1001, Revision: 1001, CompactRevision: 400, Interval: segment.Interval{NotBefore: after(1), NotAfter: after(2)}},
		{Position: 1001, Revision: 1001, CompactRevision: 900, Interval: segment.Interval{NotBefore: after(2), NotAfter: after(3)}},
	}
	h.Hashes = []segment.Hash{{Position: 1001, Revision: 1001, CompactRevision: 500, Hash: 7}}
	return h
}

// TestWatchedSegment checks a round trip, and that of the marks at one position those with an older compaction come
// first: a hash that starts from it cannot be compared later.
func TestWatchedSegment(t *testing.T) {
	e := encoded(t, watchHeader(), changes(), seal.Recipients{})
	got, err := records(e.Bytes, seal.Keys{})
	if err != nil {
		t.Fatal(err)
	}
	h := watchHeader()
	want := append([]segment.Record{
		{Kind: segment.ServerVersion, Position: 999, Data: []byte("3.5.35")},
		{Kind: segment.RevisionMark, Position: 999, Revision: 999},
		{Kind: segment.TimeMark, Position: 999, Time: h.Marks[0].Interval},
		{Kind: segment.RevisionMark, Position: 1001, Revision: 1001},
		{Kind: segment.TimeMark, Position: 1001, Time: h.Marks[1].Interval},
		{Kind: segment.RevisionMark, Position: 1001, Revision: 1001},
		{Kind: segment.TimeMark, Position: 1001, Time: h.Marks[2].Interval},
		{Kind: segment.CompactionMark, Position: 1001, CompactRevision: 400},
		{Kind: segment.HashMark, Position: 1001, Revision: 1001, CompactRevision: 500, Hash: 7},
		{Kind: segment.CompactionMark, Position: 1001, CompactRevision: 900},
	}, changes()...)
	diff := cmp.Diff(want, got)
	if diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	whole, err := segment.Decode(e.Bytes)
	diff = cmp.Diff(e, whole)
	if err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for i := range e.Bytes {
		spoiled := slices.Clone(e.Bytes)
		spoiled[i] ^= 1
		_, err := segment.Decode(spoiled)
		if err == nil {
			t.Fatalf("byte %d is another one, and it is whole", i)
		}
	}
	_, err = segment.Decode(e.Bytes[:len(e.Bytes)-1])
	wantDamage(t, "cut off", err)
	_, err = segment.Decode(append(slices.Clone(e.Bytes), 0))
	wantDamage(t, "too long", err)
}

func TestInvalidWatchHeader(t *testing.T) {
	good := encoded(t, watchHeader(), changes(), seal.Recipients{})
	_, _, sealed := parts(good.Bytes)
	for what, spoil := range map[string]func(h *segment.Header){
		"a term":                     func(h *segment.Header) { h.End.Term = 1 },
		"no end":                     func(h *segment.Header) { h.End.Digest = "" },
		"fewer changes than spanned": func(h *segment.Header) { h.Requests = 2 },
		"more guesses than changes":  func(h *segment.Header) { h.GuessedLeases = 6 },
		"guesses below zero":         func(h *segment.Header) { h.GuessedLeases = -1 },
		"mark of another revision":   func(h *segment.Header) { h.Marks[0].Revision = 998 },
		"mark of no revision":        func(h *segment.Header) { h.Marks[0].Revision = 0 },
		"compacted ahead of itself":  func(h *segment.Header) { h.Marks[2].CompactRevision = 1002 },
		"compactions go back":        func(h *segment.Header) { h.Marks[2].CompactRevision = 399 },
		"hash of another revision":   func(h *segment.Header) { h.Hashes[0].Revision = 1000 },
		"the wrong source":           func(h *segment.Header) { h.Source = segment.WAL },
	} {
		h := good.Header
		h.Marks, h.Hashes = slices.Clone(h.Marks), slices.Clone(h.Hashes)
		spoil(&h)
		wantUnreadable(t, what, h, sealed)
	}
}

func TestInvalidChanges(t *testing.T) {
	for what, spoil := range map[string]func(r []segment.Record) []segment.Record{
		"a request":              func(r []segment.Record) []segment.Record { r[1].Kind = segment.Request; return r },
		"a term":                 func(r []segment.Record) []segment.Record { r[1].Term = 1; return r },
		"no data":                func(r []segment.Record) []segment.Record { r[1].Data = nil; return r },
		"one is left out":        func(r []segment.Record) []segment.Record { return slices.Delete(r, 3, 4) },
		"the first is left out":  func(r []segment.Record) []segment.Record { return r[3:] },
		"the last is left out":   func(r []segment.Record) []segment.Record { return r[:4] },
		"before the first":       func(r []segment.Record) []segment.Record { r[0].Position = 999; return r },
		"behind the last":        func(r []segment.Record) []segment.Record { return append(r, change(1003, "x")) },
		"one comes back":         func(r []segment.Record) []segment.Record { return append(r, change(1001, "x")) },
		"nothing but the header": func([]segment.Record) []segment.Record { return nil },
	} {
		_, err := segment.Encode(watchHeader(), spoil(changes()), seal.Recipients{})
		if err == nil {
			t.Errorf("%s: it can be written", what)
		}
	}
}
