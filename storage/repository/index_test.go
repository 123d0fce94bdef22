package repository_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/backups"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
	"github.com/etcd-dr/etcd-dr/test/stored"
)

const indexKey = "c/backups-index.zst"

// everything selects all backups with their proofs, and copies selects copies of them.
var (
	everything = backups.LoadOptions{Imported: true, Proofs: true}
	copies     = backups.LoadOptions{Imported: true, Proofs: true, Copies: records.AnyCopies}
)

// store creates backups with the numbers from first to last, of which every fifth has a proof.
func store(tb testing.TB, c *repository.Cluster, first, last int) {
	tb.Helper()
	for n := first; n <= last; n++ {
		stored.Create(tb, c, stored.IDAt(n))
		if n%5 == 0 {
			stored.AppendProof(tb, c, provenAt(stored.IDAt(n), n))
		}
	}
}

// prune makes a prune that removes nothing, as dr prune does.
func prune(tb testing.TB, c *repository.Cluster, report storage.Report) {
	tb.Helper()
	o := everything
	o.Collect = &backups.Collector{}
	stored.Load(tb, c, o)
	_, err := c.Prune(tb.Context(), repository.Removal{}, repository.PruneOptions{Now: stored.Noon, Index: o.Collect}, report)
	if err != nil {
		tb.Fatal(err)
	}
}

// sameCatalog fails the test unless the catalogs are equal.
func sameCatalog(t *testing.T, what string, want, got catalog.Catalog) {
	t.Helper()
	diff := cmp.Diff(want, got, byText)
	if diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// readsOf returns the number of objects that a Load reads.
func readsOf(tb testing.TB, f *storagetest.Faults, c *repository.Cluster, o backups.LoadOptions) int {
	tb.Helper()
	before := f.Calls(storagetest.VerbOpen)
	stored.Load(tb, c, o)
	return f.Calls(storagetest.VerbOpen) - before
}

// A list reads the newest backups, the index, and each document that the index lacks.
func TestIndexSavesReads(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		f := storagetest.Faulty(b)
		c := stored.OpenWith(t, f, records.Policy{})
		reads := func(what string, want int) {
			t.Helper()
			n := readsOf(t, f, c, copies)
			if n != want {
				t.Errorf("%s: %d reads, want %d", what, n, want)
			}
		}
		store(t, c, 0, 99)
		whole := stored.Load(t, c, everything)
		reads("without an index", 1+100+20)
		prune(t, c, nil)
		sameCatalog(t, "with an index", whole, stored.Load(t, c, copies))
		reads("with an index", 1+8+1) // the index, eight manifests, a proof of one of them
		store(t, c, 100, 114)
		reads("with fifteen backups more", 1+15+3)
		prune(t, c, nil)
		reads("with the same index", 1+15+3)
		store(t, c, 115, 130)
		prune(t, c, nil)
		reads("with another index", 1+8+2)
		n := readsOf(t, f, c, everything)
		if n != 131+27 {
			t.Errorf("without copies: %d reads, want %d", n, 131+27)
		}
	})
}

// A reader that trusts the key uses copies of signed documents. A reader that trusts no key uses copies in lists alone.
func TestSignedCopies(t *testing.T) {
	owner := stored.NewSigner(t)
	f := storagetest.Faulty(mem.New())
	c := stored.OpenWith(t, f, records.Policy{Key: owner.Key})
	store(t, c, 0, 49)
	prune(t, c, nil)
	signed := copies
	signed.Copies = records.SignedCopies
	for _, test := range []struct {
		name   string
		policy records.Policy
		o      backups.LoadOptions
		want   int
	}{
		{"a list with trust", stored.Trust(t, owner.Public), copies, 1 + 8 + 1},
		{"a plan with trust", stored.Trust(t, owner.Public), signed, 1 + 8 + 1},
		{"a list without trust", records.Policy{}, copies, 1 + 8 + 1},
		{"a plan without trust", records.Policy{}, signed, 50 + 10},
		{"a list with another trust", stored.Trust(t, stored.NewSigner(t).Public), copies, 1 + 50},
	} {
		n := readsOf(t, f, stored.OpenWith(t, f, test.policy), test.o)
		if n != test.want {
			t.Errorf("%s: %d reads, want %d", test.name, n, test.want)
		}
	}
}

// A repository that was copied has an index of other objects, and a damaged index has none. The next prune replaces it.
func TestUselessIndexIsReplaced(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"of other objects": func(data []byte) []byte {
			return repacked(data, func(p []byte) []byte { return bytes.ReplaceAll(p, []byte(" 20"), []byte(" 19")) })
		},
		"damaged":         func(data []byte) []byte { return data[:len(data)/3] },
		"of another kind": func([]byte) []byte { return []byte("{}") },
		"too long":        func(data []byte) []byte { return append(data, stored.Noise(17<<20)...) },
	} {
		t.Run(name, func(t *testing.T) {
			f := storagetest.Faulty(mem.New())
			c := stored.OpenWith(t, f, records.Policy{})
			store(t, c, 0, 49)
			prune(t, c, nil)
			stored.Change(t, f, indexKey, spoil)
			prune(t, c, nil)
			n := readsOf(t, f, c, copies)
			if n != 1+8+1 {
				t.Errorf("%d reads, want %d", n, 1+8+1)
			}
		})
	}
}

// repacked changes the content of an index.
func repacked(data []byte, change func([]byte) []byte) []byte {
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		panic(err)
	}
	defer decoder.Close()
	content, err := decoder.DecodeAll(data, nil)
	if err != nil {
		panic(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer encoder.Close()
	return encoder.EncodeAll(change(content), nil)
}

// Whatever is in the index, a list of signed backups is the same as without it.
func TestWrongIndex(t *testing.T) {
	owner := stored.NewSigner(t)
	swap := func(a, b int) func([]byte) []byte { // the documents of two backups, which have the same size
		return func(p []byte) []byte {
			one, two, other := []byte(stored.Folder("c", stored.IDAt(a))), []byte(stored.Folder("c", stored.IDAt(b))), []byte("other/")
			p = bytes.Replace(p, one, other, 1)
			p = bytes.Replace(p, two, one, 1)
			return bytes.Replace(p, other, two, 1)
		}
	}
	for name, change := range map[string]func([]byte) []byte{
		"unchanged":               func(p []byte) []byte { return p },
		"copies of other backups": swap(11, 12),
		"forged": func(p []byte) []byte {
			return bytes.ReplaceAll(p, []byte(`"revision": 1000`), []byte(`"revision": 1001`))
		},
		"without signatures": func(p []byte) []byte {
			return bytes.ReplaceAll(p, []byte("untrusted comment"), []byte("untrusted_comment"))
		},
		"empty":             func([]byte) []byte { return nil },
		"cut off":           func(p []byte) []byte { return p[:len(p)/2] },
		"another format":    func(p []byte) []byte { return bytes.Replace(p, []byte("index 1"), []byte("index 2"), 1) },
		"negative sizes":    func(p []byte) []byte { return bytes.ReplaceAll(p, []byte(".json "), []byte(".json -")) },
		"large sizes":       func(p []byte) []byte { return bytes.ReplaceAll(p, []byte(".json "), []byte(".json 99999999999")) },
		"one endless line":  func([]byte) []byte { return bytes.Repeat([]byte("a"), 1<<20) },
		"endless documents": func(p []byte) []byte { return append(p, bytes.Repeat([]byte("a/b 3 c d\n{ }"), 1<<20)...) },
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			c := stored.OpenWith(t, b, records.Policy{Key: owner.Key})
			store(t, c, 0, 49)
			want := stored.Load(t, c, everything)
			prune(t, c, nil)
			stored.Change(t, b, indexKey, func(data []byte) []byte { return repacked(data, change) })
			sameCatalog(t, "signed", want, stored.Load(t, c, copies))
		})
	}
	b := mem.New()
	c := stored.OpenWith(t, b, records.Policy{})
	store(t, c, 0, 49)
	want := stored.Load(t, c, everything)
	prune(t, c, nil)
	data := stored.Get(t, b, indexKey)
	for at := 0; at < len(data); at += max(1, len(data)/40) {
		stored.Put(t, b, indexKey, stored.Flip(at, 1)(slices.Clone(data)))
		sameCatalog(t, fmt.Sprint("one bit at ", at), want, stored.Load(t, c, copies))
		stored.Put(t, b, indexKey, data[:at])
		sameCatalog(t, fmt.Sprint("cut at ", at), want, stored.Load(t, c, copies))
	}
}

// A forged copy of an unsigned manifest does not make an intact backup a damaged one.
func TestForgedSizeInTheIndex(t *testing.T) {
	b := mem.New()
	c := stored.OpenWith(t, b, records.Policy{})
	store(t, c, 0, 49)
	want := stored.Load(t, c, everything)
	prune(t, c, nil)
	key := stored.Folder("c", stored.IDAt(11)) + "manifest.json"
	manifest := stored.Get(t, b, key)
	stored.Change(t, b, indexKey, func(data []byte) []byte {
		return repacked(data, func(p []byte) []byte {
			size := fmt.Sprintf(`"size": %d`, want.Backups[49-11].Stored.Size)
			forged := stored.Rewritten(t, manifest, size, strings.Replace(size, ": 1", ": 2", 1))
			return bytes.Replace(p, manifest, forged, 1)
		})
	})
	sameCatalog(t, "forged", want, stored.Load(t, c, copies))
}

// An object that has changed since the index was written is read, and a list shows its damage.
func TestIndexHidesNoDamage(t *testing.T) {
	stored.EachStore(t, func(t *testing.T, b storage.Bucket) {
		c := stored.OpenWith(t, b, records.Policy{})
		store(t, c, 0, 49)
		prune(t, c, nil)
		stored.Change(t, b, stored.Folder("c", stored.IDAt(10))+"manifest.json", func(p []byte) []byte { return append(p, ' ') })
		stored.Remove(t, b, stored.Folder("c", stored.IDAt(20))+"manifest.json")
		cat := stored.Load(t, c, copies)
		if !slices.Equal(stored.DamagedIDs(cat), []catalog.ID{stored.IDAt(10)}) || len(cat.Backups) != 48 {
			t.Errorf("%d backups, damaged %v", len(cat.Backups), cat.Damaged)
		}
	})
}

// A prune that cannot store the index has pruned.
func TestIndexCannotBeStored(t *testing.T) {
	b := storagetest.Faulty(mem.New())
	c := stored.OpenWith(t, b, records.Policy{})
	store(t, c, 0, 49)
	b.On(storagetest.VerbPut).Always().Fail(stored.ErrTest)
	var said []string
	prune(t, c, func(e storage.Event) {
		if e.Level == storage.Warning {
			said = append(said, e.Message)
		}
	})
	if len(said) != 1 || !strings.Contains(said[0], stored.ErrTest.Error()) {
		t.Errorf("said: %q", said)
	}
}

// A small repository has no index.
func TestFewBackupsHaveNoIndex(t *testing.T) {
	b := mem.New()
	c := stored.OpenWith(t, b, records.Policy{})
	store(t, c, 0, 15)
	prune(t, c, nil)
	_, err := b.Stat(t.Context(), indexKey)
	if !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("the index: %v", err)
	}
}

// No index changes a list of signed backups.
func FuzzIndex(f *testing.F) {
	owner := stored.NewSigner(f)
	b := mem.New()
	c := stored.OpenWith(f, b, records.Policy{Key: owner.Key})
	store(f, c, 0, 39)
	want := stored.Load(f, c, everything)
	prune(f, c, nil)
	data := stored.Get(f, b, indexKey)
	f.Add(data)
	repacked(data, func(p []byte) []byte {
		f.Add(p)
		return p
	})
	packer, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, index := range [][]byte{data, packer.EncodeAll(data, nil)} {
			stored.Put(t, b, indexKey, index)
			sameCatalog(t, "fuzzed", want, stored.Load(t, c, copies))
		}
	})
}

// BenchmarkLoad measures a list of ten thousand backups, with the number of reads.
func BenchmarkLoad(b *testing.B) {
	f := storagetest.Faulty(mem.New())
	c := stored.OpenWith(b, f, records.Policy{})
	store(b, c, 0, 9_999)
	for _, name := range []string{"without an index", "with an index"} {
		b.Run(name, func(b *testing.B) {
			before := f.Calls(storagetest.VerbOpen)
			for b.Loop() {
				stored.Load(b, c, copies)
			}
			b.ReportMetric(float64(f.Calls(storagetest.VerbOpen)-before)/float64(b.N), "reads/op")
		})
		prune(b, c, nil)
	}
}
