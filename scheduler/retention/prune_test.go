package retention_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/file"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestPruneARepository: a pruned repository contains exactly the planned backups and windows, before and after the grace
// period, and no new fault or gap.
func TestPruneARepository(t *testing.T) {
	for name, open := range map[string]func(rt *rapid.T) storage.Bucket{
		"mem": func(*rapid.T) storage.Bucket { return mem.New() },
		"file": func(rt *rapid.T) storage.Bucket {
			b, err := file.Open(t.TempDir())
			if err != nil {
				rt.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			left := 100
			if name == "file" {
				left = 5 // each write is synced
			}
			rapid.Check(t, func(rt *rapid.T) {
				left--
				if left < 0 {
					return
				}
				pruneARepository(rt, open(rt))
			})
		})
	}
}

func pruneARepository(rt *rapid.T, b storage.Bucket) {
	w := drawWorld(rt)
	c, err := repository.Open(b, "c")
	if err != nil {
		rt.Fatal(err)
	}
	store(rt, c, w.catalog)
	before := load(rt, c)
	if len(before.Backups) != len(w.catalog.Backups) || len(before.Lineages) != len(w.catalog.Lineages) || len(before.Damaged) > 0 {
		rt.Fatalf("%d backups and %d lineages are stored, and there are %d and %d",
			len(w.catalog.Backups), len(w.catalog.Lineages), len(before.Backups), len(before.Lineages))
	}
	d := plan(rt, before, drawPolicy(rt, true), w.now)
	want := after(detailed(rt, c), d)
	for _, later := range []time.Duration{0, 48 * time.Hour} {
		o := repository.PruneOptions{Grace: 24 * time.Hour, Now: time.Now().Add(later)}
		_, err := c.Prune(context.Background(), d.Removal(w.now, "test"), o, nil)
		if err != nil {
			rt.Fatal(err)
		}
		diff := cmp.Diff(summary(want), summary(detailed(rt, c)))
		if diff != "" {
			rt.Fatal(diff)
		}
		now := load(rt, c)
		for _, g := range now.Gaps() {
			if !slices.Contains(before.Gaps(), g) {
				rt.Errorf("a gap has come: %+v", g)
			}
		}
		again := plan(rt, now, drawPolicy(rt, true), w.now)
		if len(again.Backups) != len(want.Backups) {
			rt.Errorf("%d backups are left", len(again.Backups))
		}
	}
}

// summary returns the visible contents of c.
func summary(c catalog.Catalog) []string {
	var all []string
	for _, b := range c.Backups {
		all = append(all, string(b.ID))
	}
	for _, l := range c.Lineages {
		seqs := fmt.Sprintf("%s pruned up to %d:", l.ID, l.Pruned)
		for _, s := range l.Segments {
			seqs += fmt.Sprintf(" %d", s.Seq)
		}
		all = append(all, seqs)
	}
	for _, w := range c.Windows() {
		all = append(all, fmt.Sprintf("%+v", w))
	}
	return all
}

// load loads the catalog as pruning does, with folded segments.
func load(rt *rapid.T, c *repository.Cluster) catalog.Catalog {
	rt.Helper()
	return loadWith(rt, c, backups.LoadOptions{Proofs: true, Log: true})
}

// detailed loads the catalog with unfolded segments.
func detailed(rt *rapid.T, c *repository.Cluster) catalog.Catalog {
	rt.Helper()
	return loadWith(rt, c, backups.LoadOptions{Proofs: true, Log: true, Details: true})
}

func loadWith(rt *rapid.T, c *repository.Cluster, o backups.LoadOptions) catalog.Catalog {
	rt.Helper()
	catalog, err := c.Load(context.Background(), o)
	if err != nil {
		rt.Fatal(err)
	}
	return catalog
}

// store writes a catalog whose segments have no bodies yet.
func store(rt *rapid.T, c *repository.Cluster, cat catalog.Catalog) {
	rt.Helper()
	for _, b := range cat.Backups {
		m := b.Manifest
		m.EtcdVersion, m.Plain.Name, m.Plain.SHA256 = "3.7.3", "snapshot.db", strings.Repeat("ab", 32)
		id := m.ID
		sealed := bytes.NewReader(make([]byte, m.Stored.Size))
		_, err := stored.CreateFrom(context.Background(), c, id, seal.Recipients{}.Seal(), sealed, func() (catalog.Manifest, error) { return m, nil })
		if err != nil {
			rt.Fatal(err)
		}
		for _, p := range b.Proofs {
			p.Backup = id
			err := c.Append(context.Background(), p)
			if err != nil {
				rt.Fatal(err)
			}
		}
		for _, p := range b.Pins {
			_, err := c.Pin(context.Background(), p)
			if err != nil {
				rt.Fatal(err)
			}
		}
	}
	for _, l := range cat.Lineages {
		storeLineage(rt, c, l)
	}
}

// storeLineage stores the segments with real bodies and digests, and an index of those at the beginning that have no hole.
func storeLineage(rt *rapid.T, c *repository.Cluster, l catalog.Lineage) {
	rt.Helper()
	var indexed []catalog.Segment
	previous, seq := "", uint64(0)
	for _, s := range l.Segments {
		h := s.Header
		h.Previous = previous
		if h.Seq != seq+1 {
			h.Previous = strings.Repeat("ef", 32) // of one that is lost
		}
		seq = h.Seq
		h.Source, h.Member, h.ServerVersion, h.Writer, h.DRVersion = segment.WAL, "8e9e05c52164694d", "3.7.3", "w", "v1"
		h.End.Digest = strings.Repeat("e", 64)
		r := segment.Record{Kind: segment.Request, Position: h.Last, Term: h.End.Term, Data: []byte("x")}
		e, err := segment.Encode(h, []segment.Record{r}, seal.Recipients{})
		if err == nil {
			err = c.Log().StoreSegment(context.Background(), e)
		}
		if err != nil {
			rt.Fatal(err)
		}
		previous = e.Digest
		if seq == uint64(len(indexed)+1) {
			indexed = append(indexed, catalog.SegmentOf(e))
		}
	}
	for n := 0; n+7 <= len(indexed); n += 7 {
		err := c.Log().StoreIndex(context.Background(), l.ID, indexed[n:n+7])
		if err != nil {
			rt.Fatal(err)
		}
	}
}
