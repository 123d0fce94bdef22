package log_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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
	"github.com/etcd-dr/etcd-dr/test/soak"
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
	warnings []string // of the last sweep
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

// sweep removes the own objects of packed segments, and pruned objects.
func (p *packing) sweep() {
	p.t.Helper()
	p.warnings = nil
	report := func(e storage.Event) {
		if e.Level == storage.Warning {
			p.warnings = append(p.warnings, e.Object+": "+e.Message)
		}
	}
	_, err := p.c.Prune(p.t.Context(), repository.Removal{}, repository.PruneOptions{Now: later, Grace: time.Hour}, report)
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
	if err != nil || early.Packs > 0 {
		t.Errorf("a log of this minute: %+v %v", early, err)
	}
	dry, err := p.c.Log().Pack(t.Context(), log.PackOptions{Now: later, DryRun: true})
	if err != nil || dry.Packs != 2 || dry.Segments != 24 {
		t.Errorf("dry run: %+v %v", dry, err)
	}
	wrong := func(context.Context) (time.Duration, error) { return 2 * time.Hour, nil }
	early, err = p.c.Log().Pack(t.Context(), log.PackOptions{Now: later, Ahead: wrong})
	if err != nil || early.Packs > 0 {
		t.Errorf("a log of this minute, by a clock that is ahead: %+v %v", early, err)
	}
	old := stored.OpenCluster(t, p.b, "c") // a process that knows the log from before
	stored.LoadLog(t, old, 1)
	p.pack(2)
	p.wantWhole("packed", 1)
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
	for _, damage := range []string{"missing", "damaged", "of another pack", "of another writer"} {
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
			case "of another writer":
				other := stored.NewWriter(t, "c", p.lineage)
				other.Header, other.Digest, other.Name = p.segments[11].Header, p.segments[11].Digest, "another writer"
				wrong, err := log.EncodeIndex(stored.SegmentsOf(other.Some(12)))
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

// TestPackIsCheckedBeforeTheSweep checks that no segment is removed before its pack was read and found equal.
func TestPackIsCheckedBeforeTheSweep(t *testing.T) {
	for name, damage := range map[string]func(p *packing, key string){
		"the pack is damaged": func(p *packing, key string) {
			stored.Change(p.t, p.b, key, func(b []byte) []byte { b[len(b)-1]++; return b })
		},
		"the pack is cut": func(p *packing, key string) {
			stored.Change(p.t, p.b, key, func(b []byte) []byte { return b[:len(b)-1] })
		},
		"no pack":              func(p *packing, key string) { stored.Remove(p.t, p.b, key) },
		"its index is missing": func(p *packing, _ string) { stored.Remove(p.t, p.b, stored.IndexKey("c", p.lineage, 13)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPacking(t)
			p.pack(2)
			key := catalog.PackKey("c", p.lineage, 13, 24)
			damage(p, key)
			p.sweep()
			warned := len(p.warnings) == 1 && strings.Contains(p.warnings[0], key) && strings.Contains(p.warnings[0], "delete the pack")
			if strings.Contains(name, "pack is") != warned {
				t.Errorf("the sweep warns %q", p.warnings)
			}
			p.wantWhole("swept", 1)
			want := 18
			if name == "its index is missing" { // it is stored again
				want = 6
			}
			segments := strings.Count(p.keys(), ".seg ")
			if segments != want {
				t.Errorf("%d segments stay, want %d: %s", segments, want, p.keys())
			}
			if !strings.Contains(p.keys(), "index-000000000000000d.json") {
				t.Errorf("the index is not stored again: %s", p.keys())
			}
		})
	}
}

// TestPackOfAnotherLog checks that the sweep keeps a segment that differs from the pack of an attacker, who can only create
// objects.
func TestPackOfAnotherLog(t *testing.T) {
	p := newPacking(t)
	forged := stored.NewWriter(t, "c", p.lineage)
	forged.Name = "the attacker"
	var content []byte
	var segments []catalog.Segment
	for _, e := range forged.Some(29)[1:] {
		content = append(content, e.Bytes...)
		segments = append(segments, catalog.SegmentOf(e))
	}
	stored.StoreIndex(t, p.c, segments)
	stored.Put(t, p.b, catalog.PackKey("c", p.lineage, 2, 29), content)
	p.wantWhole("before the sweep", 1)
	p.sweep()
	p.wantWhole("after the sweep", 1)
	p.pack(0) // the attacker prevents it
	p.wantWhole("after another pack", 1)
}

// TestBogusPacks checks that packs which an attacker adds hide nothing.
func TestBogusPacks(t *testing.T) {
	synctest.Test(t, bogusPacks)
}

func bogusPacks(t *testing.T) {
	for name, at := range map[string][2]uint64{"over another": {1, 20}, "in place of another": {1, 11}, "over two": {6, 18}, "within": {3, 9}, "over the end": {20, 60}, "after the end": {31, 60}, "of all": {1, 4096}, "too large": {1, 4097}} {
		for _, content := range []string{"", "x", strings.Repeat("x", 10000)} {
			p := newPacking(t)
			p.pack(2)
			p.sweep()
			time.Sleep(time.Second) // the resolution of a store's times
			stored.Put(t, p.b, catalog.PackKey("c", p.lineage, at[0], at[1]), []byte(content))
			l := stored.LoadLog(t, stored.OpenCluster(t, p.b, "c"), 1)[0]
			if stored.Spans(l.Stretches()) != "1-30" {
				t.Errorf("%s, %d bytes: %s, faults %q", name, len(content), stored.Spans(l.Stretches()), stored.FaultsOf(t, l))
			}
			stored.StoreSegments(t, p.c, nextOf(t, p.segments[29]))
			l = stored.LoadLog(t, stored.OpenCluster(t, p.b, "c"), 1)[0]
			if stored.Spans(l.Stretches()) != "1-31" {
				t.Errorf("%s, %d bytes, one segment more: %s, faults %q", name, len(content), stored.Spans(l.Stretches()), stored.FaultsOf(t, l))
			}
		}
	}
}

// nextOf returns a segment that continues e.
func nextOf(t *testing.T, e segment.Encoded) segment.Encoded {
	w := stored.NewWriter(t, "c", e.Header.Lineage)
	w.Header, w.Digest = e.Header, e.Digest
	return w.Next()
}

// TestStraySegment checks that a segment which a writer stores under the name of a packed one, after a sleep, changes nothing.
func TestStraySegment(t *testing.T) {
	synctest.Test(t, straySegment)
}

func straySegment(t *testing.T) {
	for _, sameSize := range []bool{true, false} {
		p := newPacking(t)
		p.pack(2)
		p.sweep()
		time.Sleep(time.Second) // the resolution of a store's times
		other := stored.NewWriter(t, "c", p.lineage)
		other.Header, other.Digest = p.segments[13].Header, p.segments[13].Digest
		other.Name = "v"
		if !sameSize {
			other.Name = "another writer"
		}
		stored.StoreSegments(t, p.c, other.Next())
		p.wantStray("after a sleep")
		p.sweep()
		p.wantStray("after another sweep")
	}
}

// wantStray is wantWhole, but ReadSegment may return the stray segment.
func (p *packing) wantStray(what string) {
	p.t.Helper()
	fresh := stored.OpenCluster(p.t, p.b, "c")
	l := stored.LoadLog(p.t, fresh, 1)[0]
	diff := cmp.Diff(stored.SegmentsOf(p.segments), l.Segments)
	if diff != "" || len(l.Faults) > 0 {
		p.t.Errorf("%s: faults %q, %s", what, stored.FaultsOf(p.t, l), diff)
	}
	p.wantFolded(what, stored.OpenCluster(p.t, p.b, "c"), stored.SegmentsOf(p.segments))
	for _, c := range []*repository.Cluster{fresh, stored.OpenCluster(p.t, p.b, "c")} {
		for i, s := range l.Segments {
			p.wantContent(what, c, s, p.segments[i].Bytes)
		}
	}
}

// TestPruneOfAPackedLog checks a log that is pruned within a pack, and then after it.
func TestPruneOfAPackedLog(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	cut := func(upto uint64) {
		t.Helper()
		err := p.c.Log().Delete(t.Context(), log.Tombstone{Lineage: p.lineage, Upto: upto, Time: stored.Noon})
		if err != nil {
			t.Fatal(err)
		}
	}
	cut(5)
	p.wantWhole("cut within a pack", 6)
	p.sweep()
	p.wantWhole("cut within a pack and swept", 6)
	cut(12)
	p.wantWhole("cut after a pack", 13)
	p.sweep()
	p.wantWhole("cut after a pack and swept", 13)
	if strings.Contains(p.keys(), "pack-0000000000000001") || strings.Contains(p.keys(), "index-0000000000000001") {
		t.Errorf("the pack stays: %s", p.keys())
	}
	cut(30)
	p.sweep()
	if strings.Contains(p.keys(), "pack") || strings.Contains(p.keys(), "index") {
		t.Errorf("a pack stays: %s", p.keys())
	}
}

// TestPruneKeepsTheIndexOfAPack checks a log of which no segment is an object of its own.
func TestPruneKeepsTheIndexOfAPack(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	for _, e := range p.segments[24:] {
		stored.Remove(t, p.b, stored.SegmentKey("c", p.lineage, e.Header.Seq))
	}
	p.segments = p.segments[:24]
	err := p.c.Log().Delete(t.Context(), log.Tombstone{Lineage: p.lineage, Upto: 5, Time: stored.Noon})
	if err != nil {
		t.Fatal(err)
	}
	p.sweep()
	p.wantWhole("cut and swept", 6)
	if !strings.Contains(p.keys(), "index-0000000000000001.json") {
		t.Errorf("the index is gone: %s", p.keys())
	}
}

// TestIndexesOverlapPacks checks indexes that an agent, which was replaced, stores after the segments were packed.
func TestIndexesOverlapPacks(t *testing.T) {
	p := newPacking(t)
	p.pack(2)
	p.sweep()
	for _, span := range [][2]int{{7, 30}, {20, 26}, {25, 30}, {27, 30}} {
		stored.StoreIndex(t, p.c, stored.SegmentsOf(p.segments[span[0]-1:span[1]]))
		p.wantWhole(fmt.Sprint("with an index of ", span), 1)
	}
	p.pack(0)
	p.sweep()
	p.wantWhole("after another sweep", 1)
}

// TestPackOfLockedSegments checks that a pack waits until the segments' own objects can be removed.
func TestPackOfLockedSegments(t *testing.T) {
	p := newPacking(t)
	key := stored.SegmentKey("c", p.lineage, 24)
	content := stored.Get(t, p.b, key)
	stored.Remove(t, p.b, key)
	_, err := p.b.Put(t.Context(), key, bytes.NewReader(content), storage.PutOptions{RetainUntil: later.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	p.pack(1)
	p.sweep()
	p.wantWhole("half of it locked", 1)
}

// TestPackIsInterrupted checks that a prune which fails at any request loses and doubles nothing, and that the next one
// completes it.
func TestPackIsInterrupted(t *testing.T) {
	for verb, atLeast := range map[storagetest.Verb]int{
		storagetest.VerbPut: 2, storagetest.VerbOpen: 50, storagetest.VerbList: 5, storagetest.VerbStat: 4, storagetest.VerbDelete: 24,
	} {
		for how, arm := range map[string]func(*storagetest.Fault){
			"before": func(f *storagetest.Fault) { f.Fail(errUnreachable) },
			"after":  func(f *storagetest.Fault) { f.FailLate(errUnreachable) },
			"amid":   func(f *storagetest.Fault) { f.Cut(10, errUnreachable) },
		} {
			if how == "amid" && verb != storagetest.VerbOpen {
				continue
			}
			tried := interrupt(t, fmt.Sprint(how, " ", verb), verb, arm)
			if tried < atLeast {
				t.Errorf("%s %v: only %d requests", how, verb, tried)
			}
		}
	}
}

var errUnreachable = errors.New("the store is unreachable")

// interrupt lets each request of a verb fail in turn, and returns how many there are.
func interrupt(t *testing.T, what string, verb storagetest.Verb, arm func(*storagetest.Fault)) int {
	step := 5
	if testing.Short() {
		step = 29
	}
	if soak.On() {
		step = 1
	}
	for n := 1; ; n += step {
		p := newPacking(t)
		b := storagetest.Faulty(p.b)
		arm(b.On(verb).Nth(n))
		c := stored.OpenCluster(t, b, "c")
		_, packErr := c.Log().Pack(t.Context(), log.PackOptions{Now: later})
		_, sweepErr := c.Log().Pack(t.Context(), log.PackOptions{Now: later, Grace: time.Hour})
		if b.Calls(verb) < n {
			if packErr != nil || sweepErr != nil {
				t.Fatalf("%s: %v %v without a fault", what, packErr, sweepErr)
			}
			return n
		}
		p.wantWhole(what, 1)
		_, err := p.c.Log().Pack(t.Context(), log.PackOptions{Now: later})
		if err != nil {
			t.Error(err)
		}
		p.sweep()
		p.wantWhole(what+", completed", 1)
		segments := strings.Count(p.keys(), ".seg ")
		if segments != 6 {
			t.Fatalf("%s, request %d: %d segments stay, want 6: %s", what, n, segments, p.keys())
		}
	}
}
