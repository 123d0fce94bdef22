package repository_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

func leftoverKeys(all []catalog.Leftover) []string {
	var keys []string
	for _, l := range all {
		keys = append(keys, l.Key)
	}
	return keys
}

func leftovers(t *testing.T, c *repository.Cluster) []catalog.Leftover {
	t.Helper()
	all, err := c.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantSwept sweeps at the given time, and fails unless exactly these keys are removed.
func wantSwept(t *testing.T, c *repository.Cluster, now time.Time, want ...string) {
	t.Helper()
	swept, err := c.Sweep(t.Context(), stored.Grace, now)
	got := leftoverKeys(swept)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("at %v it has swept %q, %v, want %q", now, got, err, want)
	}
}

// TestSweepGrace checks that the grace counts from the last write, to the nanosecond.
func TestSweepGrace(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		stored.Create(t, c, stored.IDAt(0))
		key := stored.Folder("c", stored.IDAt(1)) + stored.PlainName
		stored.Put(t, b, key, stored.Content)
		all := leftovers(t, c)
		if len(all) != 1 || all[0].Key != key || all[0].Size != int64(len(stored.Content)) || all[0].Since.IsZero() {
			t.Fatalf("leftovers %+v", all)
		}
		wantSwept(t, c, all[0].Since.Add(-time.Hour))
		wantSwept(t, c, all[0].Since.Add(stored.Grace-1))
		wantSwept(t, c, all[0].Since.Add(stored.Grace), key)
		wantSwept(t, c, all[0].Since.Add(10*stored.Grace))
		stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(0)}, nil)
		latest, err := stored.Load(t, c, backups.LoadOptions{}).Latest()
		if err != nil {
			t.Fatal(err)
		}
		stored.WantContent(t, c, latest)
	})
}

// TestLeftoverSince checks that Since is the later of the time in the name and the store's.
func TestLeftoverSince(t *testing.T) {
	b := mem.New()
	old := catalog.NewID(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	future := catalog.NewID(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	for _, id := range []catalog.ID{old, future} {
		stored.Put(t, b, stored.Folder("c", id)+stored.PlainName, stored.Content)
	}
	stat, err := b.Stat(t.Context(), stored.Folder("c", old)+stored.PlainName)
	if err != nil {
		t.Fatal(err)
	}
	all := leftovers(t, stored.OpenCluster(t, b, "c"))
	if len(all) != 2 || !all[0].Since.Equal(stat.ModTime) || !all[1].Since.Equal(future.Started()) {
		t.Errorf("leftovers %+v", all)
	}
}

// TestSweepAll checks that Sweep removes every object of a deleted or an unfinished backup.
func TestSweepAll(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenCluster(t, b, "c")
		for i := range 4 {
			stored.Create(t, c, stored.IDAt(i))
			stored.AppendProof(t, c, stored.ProofOf(stored.IDAt(i), catalog.Hashed, catalog.Passed, 1))
		}
		var want []string
		for _, i := range []int{1, 3} {
			stored.Remove(t, b, stored.Folder("c", stored.IDAt(i))+"manifest.json")
			for _, key := range stored.Keys(t, b) {
				if strings.HasPrefix(key, stored.Folder("c", stored.IDAt(i))) {
					want = append(want, key)
				}
			}
		}
		got := leftoverKeys(leftovers(t, c))
		if !slices.Equal(got, want) || len(want) != 4 {
			t.Errorf("leftovers %q, want %q", got, want)
		}
		wantSwept(t, c, time.Now().Add(2*stored.Grace), want...)
		cat := stored.Load(t, c, backups.LoadOptions{Proofs: true})
		stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(2), stored.IDAt(0)}, nil)
		if len(stored.Keys(t, b)) != 8 || len(cat.Backups[0].Proofs) != 1 { // with the marker, and the object that StoreTime writes
			t.Errorf("left is %q", stored.Keys(t, b))
		}
	})
}

// TestSweepPieces checks that Sweep removes old unfinished uploads of this cluster, sorted by key.
func TestSweepPieces(t *testing.T) {
	dir := t.TempDir()
	b := stored.OpenFile(t, dir)
	c := stored.OpenCluster(t, storage.WithLimit(b, storage.Limits{}), "c")
	stored.Create(t, c, stored.IDAt(2))
	data := stored.Folder("c", stored.IDAt(3)) + stored.PlainName
	stored.Put(t, b, data, stored.Content)
	want := []string{
		stored.Piece(t, dir, stored.Folder("c", stored.IDAt(1)), stored.PlainName, 2*stored.Grace),
		stored.Piece(t, dir, stored.Folder("c", stored.IDAt(2)), "proof-20261121T130000.000Z.json", 2*stored.Grace),
		data,
		stored.Piece(t, dir, stored.Folder("c", stored.IDAt(4)), stored.PlainName, 2*stored.Grace),
		stored.Piece(t, dir, "c/leases/", "archive.json", 2*stored.Grace),
		stored.Piece(t, dir, "c/log/"+strings.Repeat("a", 32)+"/", "0000000000000001.seg", 2*stored.Grace),
	}
	young := stored.Piece(t, dir, stored.Folder("c", stored.IDAt(5)), stored.PlainName, stored.Grace-time.Hour)
	other := stored.Piece(t, dir, stored.Folder("c1", stored.IDAt(1)), stored.PlainName, 2*stored.Grace)
	got := leftoverKeys(leftovers(t, c))
	if !slices.Equal(got, slices.Insert(slices.Clone(want), 4, young)) {
		t.Errorf("leftovers %q", got)
	}
	wantSwept(t, c, time.Now(), want[0], want[1], want[3], want[4], want[5])
	wantSwept(t, c, time.Now().Add(2*stored.Grace), data, young)
	_, err := os.Stat(filepath.Join(dir, other))
	if err != nil {
		t.Errorf("another cluster's: %v", err)
	}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), []catalog.ID{stored.IDAt(2)}, nil)
}

// behind is a store whose clock is slow, which looks the same as a host whose clock is fast.
type behind struct {
	storage.Bucket
	by time.Duration
}

func (b behind) Stat(ctx context.Context, key string) (storage.Object, error) {
	o, err := b.Bucket.Stat(ctx, key)
	o.ModTime = o.ModTime.Add(-b.by)
	return o, err
}

func (b behind) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for o, err := range b.Bucket.List(ctx, o) {
			o.ModTime = o.ModTime.Add(-b.by)
			if !yield(o, err) {
				return
			}
		}
	}
}

// TestSweepByTheStoresClock checks that new objects are not old on a host whose clock is two days ahead.
func TestSweepByTheStoresClock(t *testing.T) {
	b := behind{mem.New(), 2 * stored.Grace}
	c := stored.OpenCluster(t, b, "c")
	id := catalog.NewID(time.Now().Add(-b.by), 1)
	stored.Put(t, b, stored.Folder("c", id)+stored.PlainName, stored.Content)
	wantSwept(t, c, time.Now())
	wantSwept(t, c, time.Now().Add(stored.Grace+time.Hour), stored.Folder("c", id)+stored.PlainName)
}

// asking is a Reader that calls a function after its data and before its end.
type asking struct {
	io.Reader
	ask func()
}

func (a *asking) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if err == io.EOF && a.ask != nil {
		a.ask()
		a.ask = nil
	}
	return n, err
}

// TestSweepLeavesTheRunning checks that Sweep keeps a backup that is streaming, and one that has stored its data but no
// manifest.
func TestSweepLeavesTheRunning(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c, other := stored.OpenCluster(t, b, "c"), stored.OpenCluster(t, b, "c")
		calls := 0
		sweep := func() {
			calls++
			wantSwept(t, other, time.Now())
			wantSwept(t, other, time.Now().Add(stored.Grace-time.Hour))
		}
		stream := &asking{stored.Sealed(t, stored.Content, seal.Recipients{}), sweep}
		backup, err := stored.CreateFrom(t.Context(), c, stored.IDAt(0), seal.Recipients{}.Seal(), stream, func() (catalog.Manifest, error) {
			sweep()
			return stored.ManifestOf(stored.Content, stored.Noon), nil
		})
		if err != nil || calls != 2 {
			t.Fatalf("%v, %d calls", err, calls)
		}
		stored.WantContent(t, c, backup)
	})
}

// TestSweptUnderABackup checks that Create reports that a sweep with too short a grace has removed its data.
func TestSweptUnderABackup(t *testing.T) {
	b := stored.OpenFile(t, t.TempDir())
	c := stored.OpenCluster(t, b, "c")
	stream := &asking{stored.Sealed(t, stored.Content, seal.Recipients{}), func() {
		swept, err := c.Sweep(t.Context(), 0, time.Now().Add(time.Hour))
		if err != nil || len(swept) != 1 {
			t.Errorf("swept %+v, %v", swept, err)
		}
	}}
	_, err := stored.CreateFrom(t.Context(), c, stored.IDAt(0), seal.Recipients{}.Seal(), stream,
		func() (catalog.Manifest, error) { return stored.ManifestOf(stored.Content, stored.Noon), nil })
	if err == nil {
		t.Error("a backup whose data was swept is one")
	}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), nil, nil)
}

// TestSweepMeetsACommit checks that a backup that slept for longer than the grace, and becomes complete during a sweep, keeps its
// data, or that the sweep reports it and removes it from the listing.
func TestSweepMeetsACommit(t *testing.T) {
	data := stored.Folder("c", stored.IDAt(0)) + stored.PlainName
	for name, moment := range map[string]struct {
		is   func(v storagetest.Verb, key string) bool
		kept bool
	}{
		"after the listing": {func(v storagetest.Verb, key string) bool {
			return v == storagetest.VerbPut && strings.Contains(key, "/leases/")
		}, true},
		"before the removal": {func(v storagetest.Verb, key string) bool { return v == storagetest.VerbDelete && key == data }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			c := stored.OpenCluster(t, b, "c")
			upload, err := c.Upload(t.Context(), stored.IDAt(0), repository.Sealed{Seal: seal.Recipients{}.Seal(), Reader: stored.Sealed(t, stored.Content, seal.Recipients{})})
			if err != nil {
				t.Fatal(err)
			}
			commits := 0
			sweeper := stored.OpenWith(t, gated{b, func(v storagetest.Verb, key string) error {
				if moment.is(v, key) && commits == 0 {
					commits++
					_, err = upload.Commit(t.Context(), stored.ManifestOf(stored.Content, stored.Noon))
				}
				return nil
			}}, records.Policy{})
			_, swept := sweeper.Sweep(t.Context(), stored.Grace, time.Now().Add(2*stored.Grace))
			if err != nil || commits != 1 {
				t.Fatalf("%d commits, %v", commits, err)
			}
			if !moment.kept {
				stored.WantError(t, "Sweep", swept, catalog.ErrNotFound)
				stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), nil, nil)
				return
			}
			if swept != nil {
				t.Error(swept)
			}
			latest, err := stored.Load(t, c, backups.LoadOptions{}).Latest()
			if err != nil {
				t.Fatal(err)
			}
			stored.WantContent(t, c, latest)
		})
	}
}

func TestSweepStoreFails(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	var all []string
	for i := range 3 {
		all = append(all, stored.Folder("c", stored.IDAt(i))+stored.PlainName)
		stored.Put(t, b, all[i], stored.Content)
	}
	now := time.Now().Add(2 * stored.Grace)
	b.On(storagetest.VerbList).Fail(stored.ErrTest)
	swept, err := c.Sweep(t.Context(), stored.Grace, now)
	stored.WantError(t, "Sweep", err, stored.ErrTest)
	if len(swept) > 0 {
		t.Errorf("swept %+v", swept)
	}
	b.On(storagetest.VerbDelete).Nth(2).Fail(stored.ErrTest)
	swept, err = c.Sweep(t.Context(), stored.Grace, now)
	stored.WantError(t, "Sweep", err, stored.ErrTest)
	got := leftoverKeys(swept)
	if !slices.Equal(got, []string{all[0], all[2]}) || !strings.Contains(fmt.Sprint(err), all[1]) {
		t.Errorf("swept %q, %v", got, err)
	}
	wantSwept(t, c, now, all[1])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = stored.OpenCluster(t, stored.OpenFile(t, t.TempDir()), "c").Leftovers(ctx)
	stored.WantError(t, "cancelled", err, context.Canceled)
}
