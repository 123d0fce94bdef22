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
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

// TestLoadOrder checks that Load sorts backups by the times in their manifests, then by revision, then by name.
func TestLoadOrder(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	for id, m := range map[int]struct {
		started  int
		revision int64
	}{0: {50, 10}, 1: {40, 99}, 2: {60, 5}, 3: {50, 11}, 4: {50, 10}, 5: {30, 1}} {
		manifest := stored.ManifestOf(stored.Content, stored.Noon.Add(time.Duration(m.started)*time.Minute))
		manifest.Revision = m.revision
		_, err := stored.TryCreate(t, c, stored.IDAt(id), manifest)
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []catalog.ID{stored.IDAt(2), stored.IDAt(3), stored.IDAt(4), stored.IDAt(0), stored.IDAt(1), stored.IDAt(5)}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), want, nil)
	latest, err := stored.Load(t, c, backups.LoadOptions{}).Latest()
	if err != nil || latest.ID != stored.IDAt(2) {
		t.Errorf("latest %s, %v", latest.ID, err)
	}
}

func TestLoadReadsNoMoreThanAsked(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenCluster(t, b, "c")
	for i := range 10 {
		stored.Create(t, c, stored.IDAt(i))
		stored.AppendProof(t, c, stored.ProofOf(stored.IDAt(i), catalog.Hashed, catalog.Passed, i))
	}
	newest := []catalog.ID{stored.IDAt(9), stored.IDAt(8), stored.IDAt(7)}
	for _, o := range []struct {
		backups.LoadOptions
		want  []catalog.ID
		reads int
	}{
		{backups.LoadOptions{Newest: 3}, newest, 3},
		{backups.LoadOptions{Newest: 3, Proofs: true}, newest, 6},
		{backups.LoadOptions{Newest: 1}, newest[:1], 1},
		{backups.LoadOptions{Newest: 5, After: stored.IDAt(6)}, newest, 3},
		{backups.LoadOptions{Newest: 1, After: stored.IDAt(8)}, newest[:1], 1},
		{backups.LoadOptions{After: catalog.NewID(stored.IDAt(7).Started().Add(-time.Second), 1)}, newest, 3},
		{backups.LoadOptions{After: stored.IDAt(9)}, nil, 0},
		{backups.LoadOptions{Only: stored.IDAt(4)}, []catalog.ID{stored.IDAt(4)}, 1},
		{backups.LoadOptions{Only: stored.IDAt(4), Newest: 2, Proofs: true}, []catalog.ID{stored.IDAt(4)}, 2},
		{backups.LoadOptions{Only: stored.IDAt(40)}, nil, 0},
		{backups.LoadOptions{Only: "../x"}, nil, 0},
		{backups.LoadOptions{Only: stored.IDAt(4)[:10]}, nil, 0},
	} {
		opens, lists := b.Calls(storagetest.VerbOpen), b.Calls(storagetest.VerbList)
		catalog := stored.Load(t, c, o.LoadOptions)
		opens, lists = b.Calls(storagetest.VerbOpen)-opens, b.Calls(storagetest.VerbList)-lists
		stored.WantIDs(t, catalog, o.want, nil)
		if opens != o.reads || lists != 1 {
			t.Errorf("%+v costs %d reads and %d listings", o.LoadOptions, opens, lists)
		}
		for _, backup := range catalog.Backups {
			if (len(backup.Proofs) == 1) != o.Proofs {
				t.Errorf("%+v: %d proofs", o.LoadOptions, len(backup.Proofs))
			}
		}
	}
	got := stored.Load(t, c, backups.LoadOptions{Newest: 100})
	if len(got.Backups) != 10 {
		t.Errorf("%d backups", len(got.Backups))
	}
}

// TestStrangers checks that objects of other programs are neither listed nor read nor removed.
func TestStrangers(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		faults := storagetest.Faulty(b)
		c := stored.OpenCluster(t, faults, "c")
		stored.Create(t, c, stored.IDAt(0))
		good := stored.Get(t, b, stored.Folder("c", stored.IDAt(0))+"manifest.json")
		strange := []string{
			"c/notes.txt", "c/backups0/x", "c/backups/README", "c/backups/" + string(stored.IDAt(1)), "c/backups/old/manifest.json",
			"c/backups/" + string(stored.IDAt(2)) + ".bak/manifest.json", stored.Folder("c", stored.IDAt(0)) + "notes.txt",
			stored.Folder("c", stored.IDAt(0)) + "old/manifest.json", stored.Folder("c", stored.IDAt(3)) + "old/manifest.json",
			stored.Folder("c", stored.IDAt(0)) + "manifest.json.bak", stored.Folder("c", stored.IDAt(0)) + "xproof-1.json",
		}
		for _, key := range strange {
			stored.Put(t, b, key, good)
		}
		opens := faults.Calls(storagetest.VerbOpen)
		cat := stored.Load(t, c, backups.LoadOptions{Proofs: true})
		stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(0)}, nil)
		reads := faults.Calls(storagetest.VerbOpen) - opens
		if reads != 1 || len(cat.Backups[0].Proofs) > 0 {
			t.Errorf("%d reads, proofs %v", reads, cat.Backups[0].Proofs)
		}
		swept, err := c.Sweep(t.Context(), 0, time.Now().Add(24*time.Hour))
		if len(swept) > 0 || err != nil {
			t.Errorf("swept %+v, %v", swept, err)
		}
		for _, key := range strange {
			if !bytes.Equal(stored.Get(t, b, key), good) {
				t.Errorf("%s has changed", key)
			}
		}
	})
}

// spoils are ways to damage a backup. The error must name the object called blamed.
var spoils = map[string]struct {
	blamed string
	do     func(tb testing.TB, b storage.Bucket, dir string)
}{
	"no data": {stored.PlainName, func(tb testing.TB, b storage.Bucket, dir string) { stored.Remove(tb, b, dir+stored.PlainName) }},
	"data cut": {stored.PlainName, func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+stored.PlainName, func(p []byte) []byte { return p[:len(p)-1] })
	}},
	"data empty": {stored.PlainName, func(tb testing.TB, b storage.Bucket, dir string) { stored.Put(tb, b, dir+stored.PlainName, nil) }},
	"data longer": {stored.PlainName, func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+stored.PlainName, func(p []byte) []byte { return append(p, 0) })
	}},
	"data under another name": {stored.PlainName, func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Put(tb, b, dir+stored.PlainName+".age", stored.Get(tb, b, dir+stored.PlainName))
		stored.Remove(tb, b, dir+stored.PlainName)
	}},
	"manifest flipped": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+"manifest.json", stored.Flip(40, 1))
	}},
	"manifest cut": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+"manifest.json", func(p []byte) []byte { return p[:len(p)-1] })
	}},
	"manifest empty": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) { stored.Put(tb, b, dir+"manifest.json", nil) }},
	"manifest of a newer dr": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+"manifest.json", func(p []byte) []byte { return stored.Rewritten(tb, p, `"format": 1`, `"format": 2`) })
	}},
	"manifest endless": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+"manifest.json", func(p []byte) []byte { return append(bytes.Repeat([]byte(" "), 1<<20), p...) })
	}},
	"manifest of another cluster": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+"manifest.json", func(p []byte) []byte { return stored.Rewritten(tb, p, `"cluster": "c"`, `"cluster": "d"`) })
	}},
	"manifest of another backup": {"manifest.json", func(tb testing.TB, b storage.Bucket, dir string) {
		stored.Change(tb, b, dir+"manifest.json", func(p []byte) []byte {
			return stored.Rewritten(tb, p, `"id": "20261121`, `"id": "20261122`)
		})
	}},
}

func TestLoadDamaged(t *testing.T) {
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
				c := stored.OpenCluster(t, b, "c")
				for i := range 3 {
					stored.Create(t, c, stored.IDAt(i))
				}
				spoil.do(t, b, stored.Folder("c", stored.IDAt(1)))
				cat := stored.Load(t, c, backups.LoadOptions{Proofs: true})
				stored.WantIDs(t, cat, []catalog.ID{stored.IDAt(2), stored.IDAt(0)}, []catalog.ID{stored.IDAt(1)})
				if len(cat.Damaged) == 0 {
					return
				}
				stored.WantDamaged(t, "Load", cat.Damaged[0].Err, stored.Folder("c", stored.IDAt(1))+spoil.blamed)
				only := stored.Load(t, c, backups.LoadOptions{Only: stored.IDAt(1)})
				stored.WantIDs(t, only, nil, []catalog.ID{stored.IDAt(1)})
			})
		})
	}
}

// TestMovedWhole checks that a folder copied to another name, or to another cluster, counts as damaged there.
func TestMovedWhole(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		stored.Create(t, stored.OpenCluster(t, b, "c"), stored.IDAt(0))
		from := stored.Folder("c", stored.IDAt(0))
		for _, to := range []struct {
			cluster string
			id      catalog.ID
		}{{"c", stored.IDAt(9)}, {"d", stored.IDAt(0)}, {"C", stored.IDAt(0)}} {
			for _, name := range []string{stored.PlainName, "manifest.json"} {
				stored.Put(t, b, stored.Folder(to.cluster, to.id)+name, stored.Get(t, b, from+name))
			}
			cat := stored.Load(t, stored.OpenCluster(t, b, to.cluster), backups.LoadOptions{})
			got := stored.DamagedIDs(cat)
			if !slices.Equal(got, []catalog.ID{to.id}) {
				t.Fatalf("damaged are %q", got)
			}
			err := cat.Damaged[0].Err
			stored.WantDamaged(t, "Load", err, stored.Folder(to.cluster, to.id)+"manifest.json")
			text := err.Error()
			if !strings.Contains(text, string(stored.IDAt(0))) || !strings.Contains(text, "cluster c ") {
				t.Errorf("%v does not say where it belongs", err)
			}
		}
	})
}

// TestLoadStoreFails checks that Load returns the error of a store that fails, not damage and not a part of the catalog.
func TestLoadStoreFails(t *testing.T) {
	for name, arm := range map[string]func(f *storagetest.Faults){
		"list":              func(f *storagetest.Faults) { f.On(storagetest.VerbList).Fail(stored.ErrTest) },
		"list, half of it":  func(f *storagetest.Faults) { f.On(storagetest.VerbList).Cut(3, stored.ErrTest) },
		"list, at its end":  func(f *storagetest.Faults) { f.On(storagetest.VerbList).FailLate(stored.ErrTest) },
		"manifest":          func(f *storagetest.Faults) { f.On(storagetest.VerbOpen).Nth(3).Fail(stored.ErrTest) },
		"manifest, half":    func(f *storagetest.Faults) { f.On(storagetest.VerbOpen).Nth(2).Cut(100, stored.ErrTest) },
		"manifest or proof": func(f *storagetest.Faults) { f.On(storagetest.VerbOpen).Nth(6).Fail(stored.ErrTest) },
		"all":               func(f *storagetest.Faults) { f.On(storagetest.VerbOpen).Always().Fail(stored.ErrTest) },
	} {
		b := storagetest.Faulty(mem.New())
		c := stored.OpenCluster(t, b, "c")
		for i := range 3 {
			stored.Create(t, c, stored.IDAt(i))
			stored.AppendProof(t, c, stored.ProofOf(stored.IDAt(i), catalog.Hashed, catalog.Passed, i))
		}
		arm(b)
		catalog, err := c.Load(t.Context(), backups.LoadOptions{Proofs: true})
		stored.WantError(t, name, err, stored.ErrTest)
		if err != nil && !strings.Contains(err.Error(), "cluster c") {
			t.Errorf("%s: %v does not name the cluster", name, err)
		}
		if len(catalog.Backups)+len(catalog.Damaged) > 0 {
			t.Errorf("%s: %v has come with %v", name, catalog, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := stored.OpenCluster(t, mem.New(), "c").Load(ctx, backups.LoadOptions{})
	stored.WantError(t, "cancelled", err, context.Canceled)
}

func TestLatest(t *testing.T) {
	for name, c := range map[string]struct {
		spoiled []int // indexes of damaged backups, 0 to 2
		want    string
	}{
		"all whole":             {nil, ""},
		"older ones damaged":    {[]int{0, 1}, ""},
		"the newest damaged":    {[]int{2}, "the newest whole one is " + string(stored.IDAt(1))},
		"the newest two":        {[]int{1, 2}, "the newest whole one is " + string(stored.IDAt(0))},
		"every one is damaged":  {[]int{0, 1, 2}, "no backup of cluster c can be used"},
		"first and last of all": {[]int{0, 2}, "the newest whole one is " + string(stored.IDAt(1))},
	} {
		b := mem.New()
		cluster := stored.OpenCluster(t, b, "c")
		for i := range 3 {
			stored.Create(t, cluster, stored.IDAt(i))
		}
		for _, i := range c.spoiled {
			stored.Remove(t, b, stored.Folder("c", stored.IDAt(i))+stored.PlainName)
		}
		latest, err := stored.Load(t, cluster, backups.LoadOptions{}).Latest()
		if c.want == "" {
			if err != nil || latest.ID != stored.IDAt(2) {
				t.Errorf("%s: %s, %v", name, latest.ID, err)
			}
			continue
		}
		stored.WantDamaged(t, name, err, stored.Folder("c", stored.IDAt(2))+stored.PlainName)
		if err != nil && !strings.Contains(err.Error(), c.want) || latest.ID != "" {
			t.Errorf("%s: %s, %v", name, latest.ID, err)
		}
	}
	_, err := stored.Load(t, stored.OpenCluster(t, mem.New(), "c"), backups.LoadOptions{}).Latest()
	stored.WantError(t, "Latest of nothing", err, catalog.ErrNotFound)
}

func TestFind(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	for i := range 3 {
		stored.Create(t, c, stored.IDAt(i))
	}
	stored.Remove(t, b, stored.Folder("c", stored.IDAt(1))+stored.PlainName)
	cat := stored.Load(t, c, backups.LoadOptions{})
	got, err := cat.Find(stored.IDAt(0))
	if err != nil || got.ID != stored.IDAt(0) {
		t.Errorf("%s, %v", got.ID, err)
	}
	_, err = cat.Find(stored.IDAt(1))
	stored.WantDamaged(t, "Find", err, stored.Folder("c", stored.IDAt(1))+stored.PlainName)
	_, err = cat.Find(stored.IDAt(5))
	stored.WantError(t, "Find", err, catalog.ErrNotFound)
	if err != nil && !strings.Contains(err.Error(), string(stored.IDAt(5))) {
		t.Errorf("%v does not name it", err)
	}
}

func TestManyBackups(t *testing.T) {
	b := mem.New()
	c := stored.OpenCluster(t, b, "c")
	var want []catalog.ID
	for i := range 100 {
		stored.Create(t, c, stored.IDAt(i))
		want = append(want, stored.IDAt(99-i))
	}
	stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{}), want, nil)
	for _, n := range []int{1, 50, 99, 100, 101} {
		stored.WantIDs(t, stored.Load(t, c, backups.LoadOptions{Newest: n}), want[:min(n, 100)], nil)
	}
	got := fmt.Sprint(stored.Load(t, c, backups.LoadOptions{Newest: 1}).Cluster)
	if got != "c" {
		t.Errorf("cluster %q", got)
	}
}
