package repository_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

// TestLoadOrder: by the times in the manifests, then by revision, then by name; never by name alone.
func TestLoadOrder(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	for id, m := range map[int]struct {
		started  int
		revision int64
	}{0: {50, 10}, 1: {40, 99}, 2: {60, 5}, 3: {50, 11}, 4: {50, 10}, 5: {30, 1}} {
		manifest := manifestOf(content, noon.Add(time.Duration(m.started)*time.Minute))
		manifest.Revision = m.revision
		if _, err := tryCreate(t, c, idAt(id), manifest); err != nil {
			t.Fatal(err)
		}
	}
	want := []catalog.ID{idAt(2), idAt(3), idAt(4), idAt(0), idAt(1), idAt(5)}
	wantIDs(t, load(t, c, repository.LoadOptions{}), want, nil)
	if latest, err := load(t, c, repository.LoadOptions{}).Latest(); err != nil || latest.ID != idAt(2) {
		t.Errorf("latest %s, %v", latest.ID, err)
	}
}

func TestLoadReadsNoMoreThanAsked(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := openCluster(t, b, "c")
	for i := range 10 {
		create(t, c, idAt(i))
		appendProof(t, c, proofOf(idAt(i), catalog.Hashed, catalog.Passed, i))
	}
	newest := []catalog.ID{idAt(9), idAt(8), idAt(7)}
	for _, o := range []struct {
		repository.LoadOptions
		want  []catalog.ID
		reads int
	}{
		{repository.LoadOptions{Newest: 3}, newest, 3},
		{repository.LoadOptions{Newest: 3, Proofs: true}, newest, 6},
		{repository.LoadOptions{Newest: 1}, newest[:1], 1},
		{repository.LoadOptions{Newest: 5, After: idAt(6)}, newest, 3},
		{repository.LoadOptions{Newest: 1, After: idAt(8)}, newest[:1], 1},
		{repository.LoadOptions{After: catalog.NewID(idAt(7).Started().Add(-time.Second), 1)}, newest, 3},
		{repository.LoadOptions{After: idAt(9)}, nil, 0},
		{repository.LoadOptions{Only: idAt(4)}, []catalog.ID{idAt(4)}, 1},
		{repository.LoadOptions{Only: idAt(4), Newest: 2, Proofs: true}, []catalog.ID{idAt(4)}, 2},
		{repository.LoadOptions{Only: idAt(40)}, nil, 0},
		{repository.LoadOptions{Only: "../x"}, nil, 0},
		{repository.LoadOptions{Only: idAt(4)[:10]}, nil, 0},
	} {
		opens, lists := b.Calls(storage.VerbOpen), b.Calls(storage.VerbList)
		catalog := load(t, c, o.LoadOptions)
		opens, lists = b.Calls(storage.VerbOpen)-opens, b.Calls(storage.VerbList)-lists
		if wantIDs(t, catalog, o.want, nil); opens != o.reads || lists != 1 {
			t.Errorf("%+v costs %d reads and %d listings", o.LoadOptions, opens, lists)
		}
		for _, backup := range catalog.Backups {
			if (len(backup.Proofs) == 1) != o.Proofs {
				t.Errorf("%+v: %d proofs", o.LoadOptions, len(backup.Proofs))
			}
		}
	}
	if got := load(t, c, repository.LoadOptions{Newest: 100}); len(got.Backups) != 10 {
		t.Errorf("%d backups", len(got.Backups))
	}
}

// TestStrangers: what dr has not written is neither shown, read nor removed.
func TestStrangers(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		faults := storagetest.Faulty(b)
		c := openCluster(t, faults, "c")
		create(t, c, idAt(0))
		good := get(t, b, folder("c", idAt(0))+"manifest.json")
		strange := []string{
			"c/notes.txt", "c/backups0/x", "c/backups/README", "c/backups/" + string(idAt(1)), "c/backups/old/manifest.json",
			"c/backups/" + string(idAt(2)) + ".bak/manifest.json", folder("c", idAt(0)) + "notes.txt",
			folder("c", idAt(0)) + "old/manifest.json", folder("c", idAt(3)) + "old/manifest.json",
			folder("c", idAt(0)) + "manifest.json.bak", folder("c", idAt(0)) + "xproof-1.json",
		}
		for _, key := range strange {
			put(t, b, key, good)
		}
		opens := faults.Calls(storage.VerbOpen)
		cat := load(t, c, repository.LoadOptions{Proofs: true})
		wantIDs(t, cat, []catalog.ID{idAt(0)}, nil)
		if reads := faults.Calls(storage.VerbOpen) - opens; reads != 1 || len(cat.Backups[0].Proofs) > 0 {
			t.Errorf("%d reads, proofs %v", reads, cat.Backups[0].Proofs)
		}
		if swept, err := c.Sweep(t.Context(), 0, time.Now().Add(24*time.Hour)); len(swept) > 0 || err != nil {
			t.Errorf("swept %+v, %v", swept, err)
		}
		for _, key := range strange {
			if !bytes.Equal(get(t, b, key), good) {
				t.Errorf("%s has changed", key)
			}
		}
	})
}

// spoils are ways to damage a backup, and which object is to be blamed.
var spoils = map[string]struct {
	blamed string
	do     func(tb testing.TB, b storage.Bucket, dir string)
}{
	"no data": {plainName, func(tb testing.TB, b storage.Bucket, dir string) { remove(tb, b, dir+plainName) }},
	"data cut": {plainName, func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+plainName, func(p []byte) []byte { return p[:len(p)-1] })
	}},
	"data empty": {plainName, func(tb testing.TB, b storage.Bucket, dir string) { put(tb, b, dir+plainName, nil) }},
	"data longer": {plainName, func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+plainName, func(p []byte) []byte { return append(p, 0) })
	}},
	"data under another name": {plainName, func(tb testing.TB, b storage.Bucket, dir string) {
		put(tb, b, dir+plainName+".age", get(tb, b, dir+plainName))
		remove(tb, b, dir+plainName)
	}},
	"manifest flipped": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+"manifest.json", flip(40, 1))
	}},
	"manifest cut": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+"manifest.json", func(p []byte) []byte { return p[:len(p)-1] })
	}},
	"manifest empty": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) { put(tb, b, dir+"manifest.json", nil) }},
	"manifest of a newer dr": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+"manifest.json", func(p []byte) []byte { return rewritten(tb, p, `"format": 1`, `"format": 2`) })
	}},
	"manifest endless": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+"manifest.json", func(p []byte) []byte { return append(bytes.Repeat([]byte(" "), 1<<20), p...) })
	}},
	"manifest of another cluster": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+"manifest.json", func(p []byte) []byte { return rewritten(tb, p, `"cluster": "c"`, `"cluster": "d"`) })
	}},
	"manifest of another backup": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		change(tb, b, dir+"manifest.json", func(p []byte) []byte {
			return rewritten(tb, p, `"id": "20261121`, `"id": "20261122`)
		})
	}},
}

func TestLoadDamaged(t *testing.T) {
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, b storage.Bucket) {
				c := openCluster(t, b, "c")
				for i := range 3 {
					create(t, c, idAt(i))
				}
				spoil.do(t, b, folder("c", idAt(1)))
				cat := load(t, c, repository.LoadOptions{Proofs: true})
				wantIDs(t, cat, []catalog.ID{idAt(2), idAt(0)}, []catalog.ID{idAt(1)})
				if len(cat.Damaged) == 0 {
					return
				}
				wantDamaged(t, "Load", cat.Damaged[0].Err, folder("c", idAt(1))+spoil.blamed)
				only := load(t, c, repository.LoadOptions{Only: idAt(1)})
				wantIDs(t, only, nil, []catalog.ID{idAt(1)})
			})
		})
	}
}

// TestMovedWhole: a folder that was copied to another name, or to another cluster, is not believed there.
func TestMovedWhole(t *testing.T) {
	eachStore(t, func(t *testing.T, b storage.Bucket) {
		create(t, openCluster(t, b, "c"), idAt(0))
		from := folder("c", idAt(0))
		for _, to := range []struct {
			cluster string
			id      catalog.ID
		}{{"c", idAt(9)}, {"d", idAt(0)}, {"C", idAt(0)}} {
			for _, name := range []string{plainName, "manifest.json"} {
				put(t, b, folder(to.cluster, to.id)+name, get(t, b, from+name))
			}
			cat := load(t, openCluster(t, b, to.cluster), repository.LoadOptions{})
			if got := damagedIDs(cat); !slices.Equal(got, []catalog.ID{to.id}) {
				t.Fatalf("damaged are %q", got)
			}
			err := cat.Damaged[0].Err
			wantDamaged(t, "Load", err, folder(to.cluster, to.id)+"manifest.json")
			if text := err.Error(); !strings.Contains(text, string(idAt(0))) || !strings.Contains(text, "cluster c ") {
				t.Errorf("%v does not say where it belongs", err)
			}
		}
	})
}

// TestLoadStoreFails: a store that cannot be read is no damage, and half a catalog is none.
func TestLoadStoreFails(t *testing.T) {
	for name, arm := range map[string]func(f *storagetest.Faults){
		"list":              func(f *storagetest.Faults) { f.On(storage.VerbList).Fail(errTest) },
		"list, half of it":  func(f *storagetest.Faults) { f.On(storage.VerbList).Cut(3, errTest) },
		"list, at its end":  func(f *storagetest.Faults) { f.On(storage.VerbList).FailLate(errTest) },
		"manifest":          func(f *storagetest.Faults) { f.On(storage.VerbOpen).Nth(3).Fail(errTest) },
		"manifest, half":    func(f *storagetest.Faults) { f.On(storage.VerbOpen).Nth(2).Cut(100, errTest) },
		"manifest or proof": func(f *storagetest.Faults) { f.On(storage.VerbOpen).Nth(6).Fail(errTest) },
		"all":               func(f *storagetest.Faults) { f.On(storage.VerbOpen).Always().Fail(errTest) },
	} {
		b := storagetest.Faulty(mem.New())
		c := openCluster(t, b, "c")
		for i := range 3 {
			create(t, c, idAt(i))
			appendProof(t, c, proofOf(idAt(i), catalog.Hashed, catalog.Passed, i))
		}
		arm(b)
		catalog, err := c.Load(t.Context(), repository.LoadOptions{Proofs: true})
		wantError(t, name, err, errTest)
		if err != nil && !strings.Contains(err.Error(), "cluster c") {
			t.Errorf("%s: %v does not name the cluster", name, err)
		}
		if len(catalog.Backups)+len(catalog.Damaged) > 0 {
			t.Errorf("%s: %v has come with %v", name, catalog, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := openCluster(t, mem.New(), "c").Load(ctx, repository.LoadOptions{})
	wantError(t, "cancelled", err, context.Canceled)
}

func TestLatest(t *testing.T) {
	for name, c := range map[string]struct {
		spoiled []int // of the backups 0 to 2
		want    string
	}{
		"all whole":             {nil, ""},
		"older ones damaged":    {[]int{0, 1}, ""},
		"the newest damaged":    {[]int{2}, "the newest whole one is " + string(idAt(1))},
		"the newest two":        {[]int{1, 2}, "the newest whole one is " + string(idAt(0))},
		"every one is damaged":  {[]int{0, 1, 2}, "every backup of cluster c is damaged"},
		"first and last of all": {[]int{0, 2}, "the newest whole one is " + string(idAt(1))},
	} {
		b := mem.New()
		cluster := openCluster(t, b, "c")
		for i := range 3 {
			create(t, cluster, idAt(i))
		}
		for _, i := range c.spoiled {
			remove(t, b, folder("c", idAt(i))+plainName)
		}
		latest, err := load(t, cluster, repository.LoadOptions{}).Latest()
		if c.want == "" {
			if err != nil || latest.ID != idAt(2) {
				t.Errorf("%s: %s, %v", name, latest.ID, err)
			}
			continue
		}
		wantDamaged(t, name, err, folder("c", idAt(2))+plainName)
		if err != nil && !strings.Contains(err.Error(), c.want) || latest.ID != "" {
			t.Errorf("%s: %s, %v", name, latest.ID, err)
		}
	}
	_, err := load(t, openCluster(t, mem.New(), "c"), repository.LoadOptions{}).Latest()
	wantError(t, "Latest of nothing", err, catalog.ErrNotFound)
}

func TestFind(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	for i := range 3 {
		create(t, c, idAt(i))
	}
	remove(t, b, folder("c", idAt(1))+plainName)
	cat := load(t, c, repository.LoadOptions{})
	if got, err := cat.Find(idAt(0)); err != nil || got.ID != idAt(0) {
		t.Errorf("%s, %v", got.ID, err)
	}
	_, err := cat.Find(idAt(1))
	wantDamaged(t, "Find", err, folder("c", idAt(1))+plainName)
	_, err = cat.Find(idAt(5))
	wantError(t, "Find", err, catalog.ErrNotFound)
	if err != nil && !strings.Contains(err.Error(), string(idAt(5))) {
		t.Errorf("%v does not name it", err)
	}
}

func TestManyBackups(t *testing.T) {
	b := mem.New()
	c := openCluster(t, b, "c")
	var want []catalog.ID
	for i := range 100 {
		create(t, c, idAt(i))
		want = append(want, idAt(99-i))
	}
	wantIDs(t, load(t, c, repository.LoadOptions{}), want, nil)
	for _, n := range []int{1, 50, 99, 100, 101} {
		wantIDs(t, load(t, c, repository.LoadOptions{Newest: n}), want[:min(n, 100)], nil)
	}
	if got := fmt.Sprint(load(t, c, repository.LoadOptions{Newest: 1}).Cluster); got != "c" {
		t.Errorf("cluster %q", got)
	}
}
