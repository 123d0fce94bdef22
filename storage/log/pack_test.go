package log_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"slices"
	"strings"
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
	"github.com/etcd-dr/etcd-dr/test/stored"
)

var later = time.Now().Add(2 * time.Hour) // when everything that the tests store is old enough to be packed

// packing is a log of segments 1 to 30, of which 1 to 12 and 13 to 24 have an index each.
type packing struct {
	t        *testing.T
	b        *mem.Bucket
	c        *repository.Cluster
	segments []segment.Encoded
	lineage  string
}

func newPacking(t *testing.T) *packing {
	t.Helper()
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	p := &packing{t: t, b: b, c: c, segments: stored.NewWriter(t, "c", stored.LineageID(1)).Some(30), lineage: stored.LineageID(1)}
	stored.StoreSegments(t, c, p.segments...)
	stored.StoreIndex(t, c, stored.SegmentsOf(p.segments[:12]))
	stored.StoreIndex(t, c, stored.SegmentsOf(p.segments[12:24]))
	return p
}

// pack packs the log, and fails the test unless that makes so many packs.
func (p *packing) pack(want int) {
	p.t.Helper()
	packed, err := p.c.Log().Pack(p.t.Context(), log.PackOptions{Now: later})
	if err != nil || packed.Packs != want || packed.Segments != 12*want {
		p.t.Fatalf("%+v %v, want %d packs", packed, err, want)
	}
}

// sweep removes the segments that are packed.
func (p *packing) sweep() {
	p.t.Helper()
	_, err := p.c.Sweep(p.t.Context(), time.Hour, later)
	if err != nil {
		p.t.Fatal(err)
	}
}

// keys returns the names of the objects of the lineage.
func (p *packing) keys() string {
	var names []string
	for o, err := range p.b.List(p.t.Context(), storage.ListOptions{Prefix: "c/log/"}) {
		if err != nil {
			p.t.Fatal(err)
		}
		names = append(names, strings.TrimLeft(strings.TrimPrefix(o.Key, catalog.LineagePrefix("c", p.lineage)), "0"))
	}
	return strings.Join(names, " ")
}

// wantWhole fails the test unless a process that knows nothing yet can read all segments from the first one on, by all ways.
func (p *packing) wantWhole(what string, first int) {
	p.t.Helper()
	want := stored.SegmentsOf(p.segments[first-1:])
	fresh := stored.OpenCluster(p.t, p.b, "c")
	l := stored.LoadLog(p.t, fresh, 1)[0]
	if len(l.Faults) > 0 {
		p.t.Errorf("%s: faults %s", what, stored.FaultsOf(p.t, l))
	}
	diff := cmp.Diff(want, l.Segments)
	if diff != "" {
		p.t.Errorf("%s: the log differs: %s", what, diff)
	}
	for range 2 { // the second time from the cache
		p.wantFolded(what, fresh.Remembering(&log.Headers{}), want)
	}
	for _, c := range []*repository.Cluster{fresh, stored.OpenCluster(p.t, p.b, "c")} { // the second has listed nothing
		for i, s := range want {
			read, err := c.Log().ReadSegment(p.t.Context(), p.lineage, s.Seq)
			diff := cmp.Diff(s, read)
			if err != nil || diff != "" {
				p.t.Errorf("%s: segment %d: %v %s", what, s.Seq, err, diff)
			}
			p.wantContent(what, c, s, p.segments[first-1+i].Bytes)
		}
	}
	verified, err := fresh.Log().Verify(p.t.Context(), l, log.VerifyOptions{Check: drain})
	if err != nil || len(verified.Faults) > 0 {
		p.t.Errorf("%s: %v, faults %s", what, err, stored.FaultsOf(p.t, verified))
	}
}

// wantFolded fails the test unless c's folded log stands for the segments.
func (p *packing) wantFolded(what string, c *repository.Cluster, want []catalog.Segment) {
	p.t.Helper()
	l := stored.Load(p.t, c, backups.LoadOptions{Log: true}).Lineages[0]
	var unfolded []catalog.Segment
	for s, err := range c.Log().Unfolded(p.t.Context(), l.Segments, 1, 1000) {
		if err != nil {
			p.t.Fatalf("%s: %v", what, err)
		}
		unfolded = append(unfolded, s)
	}
	diff := cmp.Diff(want, unfolded)
	if diff != "" || len(l.Faults) > 0 {
		p.t.Errorf("%s: folded, faults %q, it differs: %s", what, stored.FaultsOf(p.t, l), diff)
	}
}

func (p *packing) wantContent(what string, c *repository.Cluster, s catalog.Segment, want []byte) {
	p.t.Helper()
	r, err := c.Log().OpenStored(p.t.Context(), s)
	if err != nil {
		p.t.Errorf("%s: segment %d: %v", what, s.Seq, err)
		return
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(content, want) {
		p.t.Errorf("%s: segment %d: %v, %d bytes of %d", what, s.Seq, err, len(content), len(want))
	}
	opened, err := c.Log().OpenSegment(p.t.Context(), s, seal.Keys{})
	if err != nil {
		p.t.Errorf("%s: segment %d: %v", what, s.Seq, err)
		return
	}
	defer opened.Close()
	for _, err := range opened.Records() {
		if err != nil {
			p.t.Errorf("%s: segment %d: %v", what, s.Seq, err)
		}
	}
}

// drain reads all records, as a check of log.VerifyOptions.
func drain(_ context.Context, _ catalog.Segment, records iter.Seq2[segment.Record, error]) error {
	for _, err := range records {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestPack checks that a packed log is the same log, before and after the segments' own objects are removed.
func TestPack(t *testing.T) {
	p := newPacking(t)
	p.wantWhole("unpacked", 1)
	early, err := p.c.Log().Pack(t.Context(), log.PackOptions{Now: time.Now()})
	if err != nil || early != (log.Packed{}) {
		t.Errorf("a log of this minute: %+v %v", early, err)
	}
	dry, err := p.c.Log().Pack(t.Context(), log.PackOptions{Now: later, DryRun: true})
	if err != nil || dry.Packs != 2 || dry.Segments != 24 {
		t.Errorf("dry run: %+v %v", dry, err)
	}
	old := stored.OpenCluster(t, p.b, "c") // a process that knows the log from before
	stored.LoadLog(t, old, 1)
	p.pack(2)
	p.wantWhole("packed", 1)
	p.pack(0)
	p.sweep()
	const want = "19.seg 1a.seg 1b.seg 1c.seg 1d.seg 1e.seg index-0000000000000001.json index-000000000000000d.json " +
		"pack-0000000000000001-000000000000000c.segs pack-000000000000000d-0000000000000018.segs"
	got := p.keys()
	if got != want {
		t.Errorf("objects %s", got)
	}
	p.wantWhole("swept", 1)
	for i, s := range stored.SegmentsOf(p.segments) {
		p.wantContent("a process that knows the log from before", old, s, p.segments[i].Bytes)
	}
	p.pack(0)
}

// TestPackWithoutIndex checks that a pack whose index is lost describes itself, and gets an index by the next Pack.
func TestPackWithoutIndex(t *testing.T) {
	for _, damage := range []string{"missing", "damaged", "of another pack"} {
		t.Run(damage, func(t *testing.T) {
			p := newPacking(t)
			p.pack(2)
			p.sweep()
			key := stored.IndexKey("c", p.lineage, 13)
			intact := stored.Get(t, p.b, key)
			stored.Remove(t, p.b, key)
			switch damage {
			case "damaged":
				stored.Put(t, p.b, key, []byte("{}"))
			case "of another pack":
				wrong, err := log.EncodeIndex(stored.SegmentsOf(p.segments[12:23]))
				if err != nil {
					t.Fatal(err)
				}
				stored.Put(t, p.b, key, wrong)
			}
			l := stored.LoadLog(t, stored.OpenCluster(t, p.b, "c"), 1)[0]
			if stored.Spans(l.Stretches()) != "1-30" || len(l.Segments) != 30 {
				t.Errorf("%s, faults %q", stored.Spans(l.Stretches()), stored.FaultsOf(t, l))
			}
			for i, s := range stored.SegmentsOf(p.segments) {
				p.wantContent("without an index", stored.OpenCluster(t, p.b, "c"), s, p.segments[i].Bytes)
			}
			if damage != "missing" {
				return
			}
			p.pack(0)
			if !bytes.Equal(stored.Get(t, p.b, key), intact) {
				t.Error("the index is not stored again")
			}
		})
	}
}

// TestDamagedPack checks that damage in a pack is a fault of the damaged segment and of no other.
func TestDamagedPack(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	key := catalog.PackKey("c", p.lineage, 13, 24)
	intact := stored.Get(t, p.b, key)
	index := stored.Get(t, p.b, stored.IndexKey("c", p.lineage, 13))
	third := len(p.segments[12].Bytes) + len(p.segments[13].Bytes) // where segment 15 begins
	for _, test := range []struct {
		name           string
		change         func(b []byte) []byte
		noIndex        bool
		loaded, tested string // faults after a load, and after a Verify
	}{
		{"a body", func(b []byte) []byte { b[third+len(p.segments[14].Bytes)-1]++; return b }, false, "", "15 damaged"},
		{"a header", func(b []byte) []byte { b[third+20]++; return b }, false, "", "15 damaged"},
		{"cut", func(b []byte) []byte { return b[:third+5] }, false, "15-24 damaged", "15-24 damaged"},
		{"longer", func(b []byte) []byte { return append(b, 1) }, false, "", ""},
		{"a header, no index", func(b []byte) []byte { b[third+20]++; return b }, true, "15-24 damaged", "15-24 damaged"},
		{"a body, no index", func(b []byte) []byte { b[third+len(p.segments[14].Bytes)-1]++; return b }, true, "", "15 damaged"},
		{"gone", func([]byte) []byte { return nil }, false, "13-24 missing", "13-24 missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored.Remove(t, p.b, key)
			changed := test.change(slices.Clone(intact))
			if changed != nil {
				stored.Put(t, p.b, key, changed)
			}
			stored.Remove(t, p.b, stored.IndexKey("c", p.lineage, 13))
			if !test.noIndex {
				stored.Put(t, p.b, stored.IndexKey("c", p.lineage, 13), index)
			}
			c := stored.OpenCluster(t, p.b, "c")
			l := stored.LoadLog(t, c, 1)[0]
			got := stored.FaultsOf(t, l)
			if got != test.loaded {
				t.Errorf("loaded: %q, want %q", got, test.loaded)
			}
			verified, err := c.Log().Verify(t.Context(), l, log.VerifyOptions{Check: drain})
			got = stored.FaultsOf(t, verified)
			if err != nil || got != test.tested {
				t.Errorf("verified: %v, %q, want %q", err, got, test.tested)
			}
		})
	}
}
