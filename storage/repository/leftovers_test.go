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
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

const grace = 24 * time.Hour

func leftoverKeys(all []repository.Leftover) []string {
	var keys []string
	for _, l := range all {
		keys = append(keys, l.Key)
	}
	return keys
}

func leftovers(t *testing.T, c *repository.Cluster) []repository.Leftover {
	t.Helper()
	all, err := c.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wantSwept sweeps as if it were now, and fails unless just these keys went.
func wantSwept(t *testing.T, c *repository.Cluster, now time.Time, want ...string) {
	t.Helper()
	swept, err := c.Sweep(t.Context(), grace, now)
	if got := leftoverKeys(swept); err != nil || !slices.Equal(got, want) {
		t.Errorf("at %v it has swept %q, %v, want %q", now, got, err, want)
	}
}

// TestSweepGrace: to the nanosecond, from the last sign of life.
func TestSweepGrace(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		create(t, c, idAt(0))
		key := folder("c", idAt(1)) + plainName
		put(t, b, key, content)
		all := leftovers(t, c)
		if len(all) != 1 || all[0].Key != key || all[0].Size != int64(len(content)) || all[0].Since.IsZero() {
			t.Fatalf("leftovers %+v", all)
		}
		wantSwept(t, c, all[0].Since.Add(-time.Hour))
		wantSwept(t, c, all[0].Since.Add(grace-1))
		wantSwept(t, c, all[0].Since.Add(grace), key)
		wantSwept(t, c, all[0].Since.Add(10*grace))
		wantIDs(t, load(t, c, repository.LoadOptions{}), []catalog.ID{idAt(0)}, nil)
		latest, err := load(t, c, repository.LoadOptions{}).Latest()
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, c, latest)
	})
}

// TestLeftoverSince: the later one of the time in the name and the store's.
func TestLeftoverSince(t *testing.T) {
	b := mem.New()
	old := catalog.NewID(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	future := catalog.NewID(time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	for _, id := range []catalog.ID{old, future} {
		put(t, b, folder("c", id)+plainName, content)
	}
	stat, err := b.Stat(t.Context(), folder("c", old)+plainName)
	if err != nil {
		t.Fatal(err)
	}
	all := leftovers(t, openCluster(t, b, "c"))
	if len(all) != 2 || !all[0].Since.Equal(stat.ModTime) || !all[1].Since.Equal(future.Started()) {
		t.Errorf("leftovers %+v", all)
	}
}

// TestSweepAll: what a backup that is being removed, or was never finished, consists of.
func TestSweepAll(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c := openCluster(t, b, "c")
		for i := range 4 {
			create(t, c, idAt(i))
			appendProof(t, c, proofOf(idAt(i), catalog.Hashed, catalog.Passed, 1))
		}
		var want []string
		for _, i := range []int{1, 3} {
			remove(t, b, folder("c", idAt(i))+"manifest.json")
			for _, key := range keys(t, b) {
				if strings.HasPrefix(key, folder("c", idAt(i))) {
					want = append(want, key)
				}
			}
		}
		if got := leftoverKeys(leftovers(t, c)); !slices.Equal(got, want) || len(want) != 4 {
			t.Errorf("leftovers %q, want %q", got, want)
		}
		wantSwept(t, c, time.Now().Add(2*grace), want...)
		cat := load(t, c, repository.LoadOptions{Proofs: true})
		wantIDs(t, cat, []catalog.ID{idAt(2), idAt(0)}, nil)
		if len(keys(t, b)) != 8 || len(cat.Backups[0].Proofs) != 1 { // with the marker, and the object that the store's time was read of
			t.Errorf("left is %q", keys(t, b))
		}
	})
}

// piece writes what a killed Put leaves in a directory: see the package file.
func piece(t *testing.T, dir, folder, name string, age time.Duration) string {
	t.Helper()
	key := folder + ".dr-tmp-0123456789abcdef-" + name
	path := filepath.Join(dir, key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-age)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	return key
}

// TestSweepPieces: of backups and of proofs, old ones only, in the order of the keys and of this cluster only.
func TestSweepPieces(t *testing.T) {
	dir := t.TempDir()
	b := openFile(t, dir)
	c := openCluster(t, storage.WithMeter(b, func(storage.Usage) {}), "c")
	create(t, c, idAt(2))
	data := folder("c", idAt(3)) + plainName
	put(t, b, data, content)
	want := []string{
		piece(t, dir, folder("c", idAt(1)), plainName, 2*grace),
		piece(t, dir, folder("c", idAt(2)), "proof-20261121T130000.000Z.json", 2*grace),
		data,
		piece(t, dir, folder("c", idAt(4)), plainName, 2*grace),
		piece(t, dir, "c/leases/", "archive.json", 2*grace),
		piece(t, dir, "c/log/"+strings.Repeat("a", 32)+"/", "0000000000000001.seg", 2*grace),
	}
	young := piece(t, dir, folder("c", idAt(5)), plainName, grace-time.Hour)
	other := piece(t, dir, folder("c1", idAt(1)), plainName, 2*grace)
	if got := leftoverKeys(leftovers(t, c)); !slices.Equal(got, slices.Insert(slices.Clone(want), 4, young)) {
		t.Errorf("leftovers %q", got)
	}
	wantSwept(t, c, time.Now(), want[0], want[1], want[3], want[4], want[5])
	wantSwept(t, c, time.Now().Add(2*grace), data, young)
	if _, err := os.Stat(filepath.Join(dir, other)); err != nil {
		t.Errorf("another cluster's: %v", err)
	}
	wantIDs(t, load(t, c, repository.LoadOptions{}), []catalog.ID{idAt(2)}, nil)
}

// behind is a store whose clock is behind this host's, which is the same as a host whose clock is ahead.
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

// TestSweepByTheStoresClock: on a host that is two days ahead, what was stored a moment ago is not old.
func TestSweepByTheStoresClock(t *testing.T) {
	b := behind{mem.New(), 2 * grace}
	c := openCluster(t, b, "c")
	id := catalog.NewID(time.Now().Add(-b.by), 1)
	put(t, b, folder("c", id)+plainName, content)
	wantSwept(t, c, time.Now())
	wantSwept(t, c, time.Now().Add(grace+time.Hour), folder("c", id)+plainName)
}

// asking hands over its data, then asks before it goes on.
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

// TestSweepLeavesTheRunning: one that streams, and one that has stored its data and not yet its manifest.
func TestSweepLeavesTheRunning(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		c, other := openCluster(t, b, "c"), openCluster(t, b, "c")
		calls := 0
		sweep := func() {
			calls++
			wantSwept(t, other, time.Now())
			wantSwept(t, other, time.Now().Add(grace-time.Hour))
		}
		stream := &asking{sealed(t, content, seal.Recipients{}), sweep}
		backup, err := c.Create(t.Context(), idAt(0), seal.Recipients{}.Seal(), 0, stream, func() (catalog.Manifest, error) {
			sweep()
			return manifestOf(content, noon), nil
		})
		if err != nil || calls != 2 {
			t.Fatalf("%v, %d calls", err, calls)
		}
		wantContent(t, c, backup)
	})
}

// TestSweptUnderABackup: a grace that was far too short costs the backup, and Create says so.
func TestSweptUnderABackup(t *testing.T) {
	b := openFile(t, t.TempDir())
	c := openCluster(t, b, "c")
	stream := &asking{sealed(t, content, seal.Recipients{}), func() {
		if swept, err := c.Sweep(t.Context(), 0, time.Now().Add(time.Hour)); err != nil || len(swept) != 1 {
			t.Errorf("swept %+v, %v", swept, err)
		}
	}}
	_, err := c.Create(t.Context(), idAt(0), seal.Recipients{}.Seal(), 0, stream,
		func() (catalog.Manifest, error) { return manifestOf(content, noon), nil })
	if err == nil {
		t.Error("a backup whose data was swept is one")
	}
	wantIDs(t, load(t, c, repository.LoadOptions{}), nil, nil)
}

func TestSweepStoreFails(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	var all []string
	for i := range 3 {
		all = append(all, folder("c", idAt(i))+plainName)
		put(t, b, all[i], content)
	}
	now := time.Now().Add(2 * grace)
	b.On(storage.VerbList).Fail(errTest)
	swept, err := c.Sweep(t.Context(), grace, now)
	if wantError(t, "Sweep", err, errTest); len(swept) > 0 {
		t.Errorf("swept %+v", swept)
	}
	b.On(storage.VerbDelete).Nth(2).Fail(errTest)
	swept, err = c.Sweep(t.Context(), grace, now)
	wantError(t, "Sweep", err, errTest)
	if got := leftoverKeys(swept); !slices.Equal(got, []string{all[0], all[2]}) || !strings.Contains(fmt.Sprint(err), all[1]) {
		t.Errorf("swept %q, %v", got, err)
	}
	wantSwept(t, c, now, all[1])
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = openCluster(t, openFile(t, t.TempDir()), "c").Leftovers(ctx)
	wantError(t, "cancelled", err, context.Canceled)
}
