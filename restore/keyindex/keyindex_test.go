package keyindex_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/restore/keyindex"
	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

func at(main, sub int64, tombstone bool) keyspace.BucketKey {
	return keyspace.BucketKey{Revision: mvcc.Revision{Main: main, Sub: sub}, Tombstone: tombstone}
}

// bucket is the key bucket that belongs to an index, as a slow model of it.
type bucket struct {
	entries   []keyspace.Entry
	revision  int64
	compacted int64
}

// last returns the newest entry of a key up to a revision; nil: there is none, or it is a deletion.
func (b *bucket) last(key string, revision int64) *keyspace.Entry {
	for i := range slices.Backward(b.entries) {
		e := &b.entries[i]
		if e.Main <= revision && string(e.Key) == key {
			if e.Tombstone {
				return nil
			}
			return e
		}
	}
	return nil
}

func (b *bucket) put(key string, p keyspace.BucketKey) {
	e := keyspace.Entry{BucketKey: p, Key: []byte(key), Created: p.Main, Version: 1}
	before := b.last(key, p.Main)
	if before != nil {
		e.Created, e.Version = before.Created, before.Version+1
	}
	b.entries = append(b.entries, e)
}

// compact removes what a compaction deletes, and returns the positions of that.
func (b *bucket) compact(revision int64) (dropped []keyspace.BucketKey) {
	var kept []keyspace.Entry
	for i, e := range b.entries {
		superseded := slices.ContainsFunc(b.entries[i+1:], func(later keyspace.Entry) bool {
			return later.Main <= revision && string(later.Key) == string(e.Key)
		})
		if e.Main <= revision && (superseded || e.Tombstone && e.Main < revision) {
			dropped = append(dropped, e.BucketKey)
		} else {
			kept = append(kept, e)
		}
	}
	b.entries, b.compacted = kept, revision
	return dropped
}

func byPosition(a, b keyspace.BucketKey) int {
	return cmp.Or(cmp.Compare(a.Main, b.Main), cmp.Compare(a.Sub, b.Sub))
}

func load(t *testing.T, b *bucket) *keyindex.Index {
	t.Helper()
	x := keyindex.New(b.compacted)
	for _, e := range b.entries {
		err := x.Load(e)
		if err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// TestIndex compares an index with the model after random changes, and loads it again now and then.
func TestIndex(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := &bucket{revision: 1, compacted: -1}
		x := keyindex.New(-1)
		for range 300 {
			switch random.IntN(12) {
			case 0:
				x = load(t, b)
			case 1:
				revision := max(b.compacted, 0) + random.Int64N(b.revision-max(b.compacted, 0)+1)
				if revision > b.compacted {
					wantDropped(t, x, b, revision)
				}
			default:
				b.revision++
				randomRevision(x, b, random)
			}
			wantEqual(t, x, b)
		}
	}
}

// randomRevision makes a revision of one or two changes.
func randomRevision(x *keyindex.Index, b *bucket, random *rand.Rand) {
	made := int64(0)
	for range 1 + random.IntN(2) {
		key := fmt.Sprint("key", random.IntN(10))
		k := x.Get([]byte(key))
		switch {
		case k != nil && random.IntN(3) == 0:
			p := at(b.revision, made, true)
			x.Delete(k, p)
			b.entries = append(b.entries, keyspace.Entry{BucketKey: p, Key: []byte(key)})
			made++
		case k != nil || b.lastChange(key) < b.revision: // else it would be put after its deletion
			p := at(b.revision, made, false)
			x.Put([]byte(key), p)
			b.put(key, p)
			made++
		}
	}
	if made == 0 {
		b.revision--
	}
}

// lastChange returns the revision of the newest entry of a key.
func (b *bucket) lastChange(key string) int64 {
	for _, e := range slices.Backward(b.entries) {
		if string(e.Key) == key {
			return e.Main
		}
	}
	return 0
}

func wantDropped(t *testing.T, x *keyindex.Index, b *bucket, revision int64) {
	t.Helper()
	var got []keyspace.BucketKey
	x.Compact(revision, func(p keyspace.BucketKey) { got = append(got, p) })
	want := b.compact(revision)
	slices.SortFunc(got, byPosition)
	slices.SortFunc(want, byPosition)
	if !slices.Equal(got, want) {
		t.Fatalf("a compaction to %d drops %v, want %v", revision, got, want)
	}
}

func wantEqual(t *testing.T, x *keyindex.Index, b *bucket) {
	t.Helper()
	newest, compacted := x.Revisions()
	if newest != b.revision || compacted != b.compacted || x.Unusual() != nil {
		t.Fatalf("revisions %d and %d, want %d and %d: %v", newest, compacted, b.revision, b.compacted, x.Unusual())
	}
	var names []string
	for i := range 10 {
		key := fmt.Sprint("key", i)
		want, got := b.last(key, b.revision), x.Get([]byte(key))
		if want == nil && got == nil {
			continue
		}
		if want == nil || got == nil || got.Created != want.Created || got.Version != want.Version || got.Modified() != want.Main {
			t.Fatalf("%s: %+v, want %+v", key, got, want)
		}
		if key >= "key2" && key < "key8" {
			names = append(names, key)
		}
	}
	var inRange []string
	for _, k := range x.Range([]byte("key2"), []byte("key8")) {
		inRange = append(inRange, k.Name)
	}
	if !slices.Equal(inRange, names) {
		t.Fatalf("the range has %q, want %q", inRange, names)
	}
}

// TestUnusual loads entries for which an index could give other answers than a server.
func TestUnusual(t *testing.T) {
	entry := func(p keyspace.BucketKey, created, version int64) keyspace.Entry {
		return keyspace.Entry{BucketKey: p, Key: []byte("key"), Created: created, Version: version}
	}
	for name, entries := range map[string][]keyspace.Entry{
		"twice":                         {entry(at(6, 0, false), 6, 1), entry(at(6, 0, true), 0, 0)},
		"superseded before":             {entry(at(3, 0, false), 3, 1), entry(at(4, 0, false), 3, 2)},
		"a deletion before":             {entry(at(4, 0, true), 0, 0)},
		"a deletion of nothing":         {entry(at(6, 0, true), 0, 0)},
		"a deletion of a deletion":      {entry(at(5, 0, true), 0, 0), entry(at(6, 0, true), 0, 0)},
		"another version":               {entry(at(6, 0, false), 6, 1), entry(at(7, 0, false), 6, 3)},
		"another creation":              {entry(at(6, 0, false), 6, 1), entry(at(7, 0, false), 7, 2)},
		"deleted and put in a revision": {entry(at(6, 0, false), 6, 1), entry(at(7, 0, true), 0, 0), entry(at(7, 1, false), 7, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			x := keyindex.New(5)
			for i, e := range entries {
				err := x.Load(e)
				if (err != nil) != (i == len(entries)-1) {
					t.Errorf("entry %d: %v", i, err)
				}
			}
		})
	}
}

// TestIndexForgetsDeletedKeys checks that the memory of keys that come and go does not grow.
func TestIndexForgetsDeletedKeys(t *testing.T) {
	x := keyindex.New(-1)
	for n := range int64(1000) {
		k, _ := x.Put(fmt.Append(nil, n), at(2*n+2, 0, false))
		x.Delete(k, at(2*n+3, 0, true))
		if n%10 == 9 {
			x.Compact(2*n+3, func(keyspace.BucketKey) {})
		}
	}
	if x.Size() > 20 {
		t.Errorf("the index still holds %d revisions", x.Size())
	}
}
