package verify_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/restore/assertion"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// archive returns a backup at position 100, followed by the log of a watch with a segment of each length, which ends with a
// hash.
func archive(f fixture, lengths ...uint64) catalog.Catalog {
	b := f.backup
	l := catalog.Lineage{ID: lineage}
	first := uint64(b.Revision) + 1
	for i, length := range lengths {
		last := first + length - 1
		s := catalog.Segment{Digest: fmt.Sprintf("%064x", i+1), Size: 1000}
		s.Cluster, s.ClusterID, s.Lineage, s.Seq, s.Source = clusterName, "cafe", lineage, uint64(i+1), segment.Watch
		s.First, s.Last, s.Requests, s.Written = first, last, int(length), b.Finished.Add(time.Duration(i+1)*time.Minute)
		if i > 0 {
			s.Previous = l.Segments[i-1].Digest
		}
		s.Marks = []segment.Mark{{Position: last, Revision: int64(last), Interval: segment.Interval{NotBefore: s.Written, NotAfter: s.Written}}}
		s.Hashes = []segment.Hash{{Position: last, Revision: int64(last), CompactRevision: -1, Hash: uint32(i)}}
		l.Segments = append(l.Segments, s)
		first = last + 1
	}
	return catalog.Catalog{Cluster: clusterName, Backups: []catalog.Backup{b}, Lineages: []catalog.Lineage{l}}
}

// For any seed the point lies in the window, the same seed draws it again, and the hashes are those before it.
func TestRandomPointIsOneOfTheWindow(t *testing.T) {
	f := store(t, good(t))
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.Uint64Range(1, 50), 1, 5).Draw(t, "lengths")
		c := archive(f, lengths...)
		aim := verify.Aim{Seed: rapid.Uint64().Draw(t, "seed")}
		all, err := verify.PlanDrill(aim, c, noon)
		if err != nil || len(all) != 2 || all[0].Plan.Log != nil || all[0].Plan.Backup.ID != f.backup.ID || all[0].Drill.Seed != 0 {
			t.Fatalf("planned %+v, %v", all, err)
		}
		again, err := verify.PlanDrill(aim, c, noon)
		diff := cmp.Diff(all, again)
		if err != nil || diff != "" {
			t.Fatalf("the same seed: %v, %s", err, diff)
		}
		e, w := all[1], c.Windows()[0]
		at := e.Plan.Log.Position
		if at < w.From.Position || at > w.To.Position || e.Drill.Position != at || e.Drill.Seed != aim.Seed {
			t.Errorf("position %d, drill %+v, window %+v", at, e.Drill, w)
		}
		var want []catalog.HashKV
		for _, s := range c.Lineages[0].Segments {
			if s.Last <= e.Plan.Log.Position {
				h := s.Hashes[0]
				want = append([]catalog.HashKV{{Revision: h.Revision, CompactRevision: -1, Hash: h.Hash}}, want...)
			}
		}
		diff = cmp.Diff(append(want, *f.backup.HashKV), e.Hashes)
		if diff != "" {
			t.Error(diff)
		}
	})
}

// Some seeds draw different points, including both ends of the window.
func TestSeedsDrawEveryPoint(t *testing.T) {
	c := archive(store(t, good(t)), 2, 2)
	drawn := map[uint64]bool{}
	for seed := range uint64(64) {
		all, err := verify.PlanDrill(verify.Aim{Seed: seed}, c, noon)
		if err != nil {
			t.Fatal(err)
		}
		drawn[all[1].Plan.Log.Position] = true
	}
	w := c.Windows()[0]
	if len(drawn) != 5 || !drawn[w.From.Position] || !drawn[w.To.Position] {
		t.Errorf("drawn were %v of %+v", drawn, w)
	}
}

func TestNamedTargets(t *testing.T) {
	f := store(t, good(t))
	c := archive(f, 10, 10)
	revision := f.backup.Revision
	aim := verify.Aim{Targets: []plan.Target{
		{Backup: f.backup.ID}, {Revision: revision + 4}, {Time: f.backup.Finished.Add(90 * time.Second)}, {}, {Revision: revision + 99},
	}}
	all, err := verify.PlanDrill(aim, c, noon)
	if !errors.Is(err, catalog.ErrNotFound) || !strings.Contains(err.Error(), fmt.Sprintf("drill revision %d: ", revision+99)) {
		t.Errorf("error %v", err)
	}
	var words []string
	for _, e := range all {
		words = append(words, e.Drill.Target)
	}
	want := []string{"backup " + string(f.backup.ID), fmt.Sprintf("revision %d", revision+4), "2026-11-21T09:26:03Z", "the newest point"}
	diff := cmp.Diff(want, words)
	if diff != "" {
		t.Fatal(diff)
	}
	for i, hashes := range []int{1, 1, 2, 3} { // including the backup's own
		if len(all[i].Hashes) != hashes {
			t.Errorf("%s: the hashes are %+v", words[i], all[i].Hashes)
		}
	}
}

// Targets that cannot be planned do not stop the drill of the others.
func TestDamagedNewestBackupIsAnError(t *testing.T) {
	c := archive(store(t, good(t)), 10)
	newer := catalog.NewID(noon, 9999)
	c.Damaged = []catalog.Damage{{ID: newer, Err: fmt.Errorf("backup %s: %w", newer, catalog.ErrDamaged)}}
	all, err := verify.PlanDrill(verify.Aim{}, c, noon)
	if !errors.Is(err, catalog.ErrDamaged) || len(all) != 1 || all[0].Plan.Log == nil {
		t.Errorf("planned %+v, %v", all, err)
	}
	all, err = verify.PlanDrill(verify.Aim{}, catalog.Catalog{Cluster: clusterName}, noon)
	if !errors.Is(err, catalog.ErrNotFound) || len(all) > 0 {
		t.Errorf("of nothing: %+v, %v", all, err)
	}
}

func TestParseAssertion(t *testing.T) {
	for text, want := range map[string]assertion.Assertion{
		"key=/a:b":               {Key: "/a:b", Least: 1},
		"key=key=":               {Key: "key=", Least: 1},
		"prefix=/registry/a/:10": {Key: "/registry/a/", Prefix: true, Least: 10},
		"prefix=a:b:1":           {Key: "a:b", Prefix: true, Least: 1},
		"prefix=:5":              {Prefix: true, Least: 5},
	} {
		want.Text = text
		got, err := assertion.Parse(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "key", "key=", "/registry/", "prefix=/a", "prefix=/a:", "prefix=/a:0", "prefix=/a:-1", "prefix=/a:x", "Key=a"} {
		got, err := assertion.Parse(text)
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%q: ", text)) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// The text of a parsed assertion parses to the same assertion.
func FuzzParseAssertion(f *testing.F) {
	for _, text := range []string{"key=/a", "prefix=/a/:100", "prefix=:1", "prefix=a:b:2", "key="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := assertion.Parse(text)
		if err != nil {
			return
		}
		again := "key=" + a.Key
		if a.Prefix {
			again = fmt.Sprintf("prefix=%s:%d", a.Key, a.Least)
		}
		b, err := assertion.Parse(again)
		b.Text = a.Text
		if err != nil || a != b || a.Least < 1 || a.Key == "" && !a.Prefix {
			t.Errorf("%q is %+v, and %q is %+v, %v", text, a, again, b, err)
		}
	})
}
