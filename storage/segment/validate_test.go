package segment_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// TestInvalidHeader checks that an invalid header is refused by Encode and by ReadHeader.
func TestInvalidHeader(t *testing.T) {
	good := encoded(t, fullHeader(), fullRequests(), seal.Recipients{})
	_, _, sealed := parts(good.Bytes)
	for what, spoil := range map[string]func(h *segment.Header){
		"no cluster":               func(h *segment.Header) { h.Cluster = "" },
		"no version":               func(h *segment.Header) { h.ServerVersion = "" },
		"no writer":                func(h *segment.Header) { h.Writer = "" },
		"no time":                  func(h *segment.Header) { h.Written = time.Time{} },
		"another source":           func(h *segment.Header) { h.Source = "disk" },
		"the wrong source":         func(h *segment.Header) { h.Source = segment.Watch },
		"guesses in a full log":    func(h *segment.Header) { h.GuessedLeases = 1 },
		"compaction in a full log": func(h *segment.Header) { h.Marks[2].CompactRevision = 1 },
		"odd cluster id":           func(h *segment.Header) { h.ClusterID = "xyz" },
		"odd member":               func(h *segment.Header) { h.Member = "" },
		"short lineage":            func(h *segment.Header) { h.Lineage = "abcd" },
		"lineage in capitals":      func(h *segment.Header) { h.Lineage = strings.ToUpper(h.Lineage) },
		"seq 0":                    func(h *segment.Header) { h.Seq = 0 },
		"first with previous":      func(h *segment.Header) { h.Previous = digest },
		"second without previous":  func(h *segment.Header) { h.Seq, h.After = 2, nil },
		"second after a lineage":   func(h *segment.Header) { h.Seq, h.Previous = 2, digest },
		"after itself":             func(h *segment.Header) { h.After = &segment.After{Lineage: h.Lineage, Seq: 1} },
		"after no seq":             func(h *segment.Header) { h.After = &segment.After{Lineage: digest[1:33]} },
		"after no lineage":         func(h *segment.Header) { h.After = &segment.After{Seq: 1} },
		"position 0":               func(h *segment.Header) { h.First = 0 },
		"ends before it begins":    func(h *segment.Header) { h.First = h.Last + 1 },
		"end elsewhere":            func(h *segment.Header) { h.End.Position-- },
		"end without term":         func(h *segment.Header) { h.End.Term = 0 },
		"end without digest":       func(h *segment.Header) { h.End.Digest = "" },
		"mark too early":           func(h *segment.Header) { h.Marks[0].Position = h.First - 2 },
		"mark too late":            func(h *segment.Header) { h.Marks[2].Position = h.Last + 1 },
		"marks out of order":       func(h *segment.Header) { h.Marks[0].Position, h.Marks[1].Position = 1000, 999 },
		"mark without time":        func(h *segment.Header) { h.Marks[0].Interval = segment.Interval{} },
		"mark turned round":        func(h *segment.Header) { h.Marks[0].NotAfter = noon.Add(-1) },
		"marks back in time":       func(h *segment.Header) { h.Marks[1].NotBefore = noon.Add(-1) },
		"marks back in time, ends": func(h *segment.Header) { h.Marks[0].NotAfter = after(9) },
		"mark below zero":          func(h *segment.Header) { h.Marks[0].Revision = -1 },
		"revision goes back":       func(h *segment.Header) { h.Marks[2].Revision = 499 },
		"two revisions at once":    func(h *segment.Header) { h.Marks[0].Position, h.Marks[1].Revision = h.First, 501 },
		"hash too early":           func(h *segment.Header) { h.Hashes[0].Position = h.First - 2 },
		"hash too late":            func(h *segment.Header) { h.Hashes[1].Position = h.Last + 1 },
		"hashes out of order":      func(h *segment.Header) { h.Hashes[0].Position = h.Last },
		"hash of nothing":          func(h *segment.Header) { h.Hashes[0].Revision = 0 },
		"hash of what was compact": func(h *segment.Header) { h.Hashes[1].CompactRevision = 502 },
		"hash below -1":            func(h *segment.Header) { h.Hashes[1].CompactRevision = -2 },
	} {
		h := fullHeader()
		spoil(&h)
		_, err := segment.Encode(h, fullRequests(), seal.Recipients{})
		if err == nil {
			t.Errorf("%s: it can be written", what)
		}
		h = good.Header
		h.Marks, h.Hashes = slices.Clone(h.Marks), slices.Clone(h.Hashes)
		spoil(&h)
		wantUnreadable(t, what, h, sealed)
	}
	for what, spoil := range map[string]func(h *segment.Header){
		"requests below zero":  func(h *segment.Header) { h.Requests = -1 },
		"more than positions":  func(h *segment.Header) { h.Requests = 302 },
		"more than bytes":      func(h *segment.Header) { h.Last, h.End.Position, h.Requests = 1<<51, 1<<51, 1<<50 },
		"no plain size":        func(h *segment.Header) { h.Plain.Size = 0 },
		"no plain digest":      func(h *segment.Header) { h.Plain.SHA256 = "" },
		"no stored size":       func(h *segment.Header) { h.Stored.Size = -1 },
		"odd stored digest":    func(h *segment.Header) { h.Stored.SHA256 = strings.Repeat("xy", 32) },
		"unknown compression":  func(h *segment.Header) { h.Seal.Compression = "lz4" },
		"unknown encryption":   func(h *segment.Header) { h.Seal.Encryption = "rot13" },
		"nothing in it at all": func(h *segment.Header) { h.Requests, h.Marks, h.Hashes = 0, nil, nil },
	} {
		h := good.Header
		spoil(&h)
		wantUnreadable(t, what, h, sealed)
	}
}

// TestRevisionsOfMarks uses marks of which some do not know the revision, as a member reports them that applies late.
func TestRevisionsOfMarks(t *testing.T) {
	type mark struct {
		position uint64
		revision int64 // 0: unknown
	}
	for what, test := range map[string]struct {
		marks []mark
		valid bool
	}{
		"known later at one position":       {[]mark{{1010, 5}, {1020, 0}, {1020, 8}}, true},
		"known, unknown and known again":    {[]mark{{1010, 5}, {1020, 8}, {1020, 0}, {1020, 8}}, true},
		"none known before":                 {[]mark{{1010, 0}, {1020, 0}, {1020, 8}}, true},
		"no new revision":                   {[]mark{{1010, 5}, {1020, 0}, {1020, 5}}, true},
		"two at one position":               {[]mark{{1010, 5}, {1010, 8}}, false},
		"two at one position, one between":  {[]mark{{1010, 5}, {1010, 0}, {1010, 8}}, false},
		"smaller at one position":           {[]mark{{1010, 5}, {1010, 0}, {1010, 4}}, false},
		"smaller later":                     {[]mark{{1010, 5}, {1020, 4}}, false},
		"smaller later, an unknown between": {[]mark{{1010, 5}, {1020, 0}, {1020, 4}}, false},
	} {
		h := fullHeader()
		h.Marks = nil
		for i, m := range test.marks {
			h.Marks = append(h.Marks, segment.Mark{
				Position: m.position, Revision: m.revision, Interval: segment.Interval{NotBefore: after(i), NotAfter: after(i)},
			})
		}
		_, err := segment.Encode(h, fullRequests(), seal.Recipients{})
		if (err == nil) != test.valid {
			t.Errorf("%s: valid is %t, expected %t: %v", what, err == nil, test.valid, err)
		}
	}
}

func wantUnreadable(t *testing.T, what string, h segment.Header, sealed []byte) {
	t.Helper()
	_, _, err := segment.ReadHeader(bytes.NewReader(join(documentOf(t, h), sealed)))
	wantDamage(t, what, err)
	if h.Validate() == nil {
		t.Errorf("%s: it is valid", what)
	}
}

func TestInvalidRequests(t *testing.T) {
	for what, spoil := range map[string]func(r []segment.Record){
		"a mark":               func(r []segment.Record) { r[1].Kind = segment.TimeMark },
		"no data":              func(r []segment.Record) { r[1].Data = nil },
		"no term":              func(r []segment.Record) { r[0].Term = 0 },
		"twice":                func(r []segment.Record) { r[1] = r[0] },
		"out of order":         func(r []segment.Record) { r[1], r[2] = r[2], r[1] },
		"before the first":     func(r []segment.Record) { r[0].Position = 999 },
		"behind the last":      func(r []segment.Record) { r[3].Position = 1301 },
		"term falls":           func(r []segment.Record) { r[2].Term = 6 },
		"term above the end's": func(r []segment.Record) { r[2].Term = 10 },
		"other term at end":    func(r []segment.Record) { r[2].Term, r[3].Term = 8, 8 },
	} {
		requests := fullRequests()
		spoil(requests)
		_, err := segment.Encode(fullHeader(), requests, seal.Recipients{})
		if err == nil {
			t.Errorf("%s: it can be written", what)
		}
	}
}
