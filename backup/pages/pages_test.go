package pages_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/backup/pages"
	"github.com/etcd-dr/etcd-dr/test/database"
)

// written returns the file of a database that write has filled, and the number of entries in its key bucket.
func written(t testing.TB, write func(mvcc.KV)) (file []byte, entries int64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	err := database.Write(path, func(_ backend.Backend, store mvcc.KV) error {
		write(store)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		entries = int64(tx.Bucket([]byte("key")).Stats().KeyN)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file, entries
}

// read writes a file to a Content in parts of random sizes.
func read(t testing.TB, file []byte, random *rand.Rand) (c pages.Content) {
	t.Helper()
	for len(file) > 0 {
		n := min(len(file), 1+random.IntN(40_000))
		if random.IntN(3) == 0 {
			n = min(len(file), 32<<10) // as members send it
		}
		got, err := c.Write(file[:n])
		if got != n || err != nil {
			t.Fatal(got, err)
		}
		file = file[n:]
	}
	return c
}

// TestEntries compares the number of entries with the bucket's. It may be higher, because free pages keep their old entries.
func TestEntries(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 3))
		file, entries := written(t, func(store mvcc.KV) {
			for i := range 1000 + random.IntN(2000) {
				key := fmt.Appendf(nil, "key-%d", random.IntN(3000))
				if i%7 == 0 {
					store.DeleteRange(key, nil)
				} else {
					store.Put(key, make([]byte, random.IntN(1+100*random.IntN(100))), lease.NoLease)
				}
			}
		})
		c := read(t, file, random)
		if c.Entries < entries || c.Entries > 2*entries || c.Kubernetes || c.Encrypted {
			t.Errorf("seed %d: %d entries, Kubernetes %t, encrypted %t; the bucket has %d", seed, c.Entries, c.Kubernetes, c.Encrypted, entries)
		}
	}
}

func TestKubernetes(t *testing.T) {
	for name, c := range map[string]struct {
		key, value            string
		kubernetes, encrypted bool
	}{
		"another program's":       {"/registryfoo/secrets/a", "k8s:enc:", false, false},
		"a pod":                   {"/registry/pods/a/b", "k8s:enc:aescbc", true, false},
		"a Secret":                {"/registry/secrets/a/b", "k8s\x00\n", true, false},
		"an almost encrypted one": {"/registry/secrets/a/b", "k8s:enc", true, false},
		"an encrypted one":        {"/registry/secrets/a/b", "k8s:enc:aescbc:v1:key1:...", true, true},
		"a large one":             {"/registry/secrets/a/b", "k8s:enc:kms:v2:key1:" + string(make([]byte, 20_000)), true, true},
		"a Secret's neighbour":    {"/registry/secretsandmore/a", "k8s:enc:", true, false},
	} {
		file, _ := written(t, func(store mvcc.KV) {
			store.Put([]byte("first"), nil, lease.NoLease)
			store.Put([]byte(c.key), []byte(c.value), lease.NoLease)
		})
		got := read(t, file, rand.New(rand.NewPCG(1, 1)))
		if got.Kubernetes != c.kubernetes || got.Encrypted != c.encrypted {
			t.Errorf("%s: Kubernetes %t, encrypted %t", name, got.Kubernetes, got.Encrypted)
		}
	}
}

// TestOverlap checks that overlapping elements are skipped: reading a page full of them could take forever.
func TestOverlap(t *testing.T) {
	file, entries := written(t, func(store mvcc.KV) {
		for i := range 1000 {
			store.Put(fmt.Appendf(nil, "%04d", i), []byte("value"), lease.NoLease)
		}
	})
	got := read(t, slices.Clone(file), rand.New(rand.NewPCG(1, 1))).Entries
	if got < entries {
		t.Fatalf("%d entries, not %d", got, entries)
	}
	for page := range slices.Chunk(file, os.Getpagesize()) {
		if page[8] == 2 { // a leaf: make every element point to the data of the first
			for at := 32; at < 16+16*int(page[10]); at += 16 {
				binary.LittleEndian.PutUint32(page[at+4:], binary.LittleEndian.Uint32(page[20:])-uint32(at-16))
			}
		}
	}
	got = read(t, file, rand.New(rand.NewPCG(1, 1))).Entries
	if got > entries/10 {
		t.Errorf("%d entries", got)
	}
}

// TestNewestSecret checks that only the newest revision of a Secret determines Encrypted, not an older, encrypted one.
func TestNewestSecret(t *testing.T) {
	for _, last := range []string{"k8s:enc:new", "k8s\x00plain"} {
		file, _ := written(t, func(store mvcc.KV) {
			for _, value := range []string{"k8s:enc:old", "k8s\x00plain", last} {
				store.Put([]byte("/registry/secrets/a/b"), []byte(value), lease.NoLease)
			}
			store.DeleteRange([]byte("/registry/secrets/a/b"), nil)
		})
		got := read(t, file, rand.New(rand.NewPCG(1, 1)))
		if got.Encrypted != (last == "k8s:enc:new") {
			t.Errorf("after %q: %t", last, got.Encrypted)
		}
	}
}

// TestValuesInFurtherPages checks that a Secret is found wherever its leaf continues.
func TestValuesInFurtherPages(t *testing.T) {
	for size := 500; size < 6000; size += 500 {
		file, _ := written(t, func(store mvcc.KV) {
			for i := range 20 {
				store.Put(fmt.Appendf(nil, "/registry/secrets/a/%d", i), make([]byte, size), lease.NoLease)
			}
			store.Put([]byte("/registry/secrets/a/last"), []byte("k8s:enc:"), lease.NoLease)
		})
		got := read(t, file, rand.New(rand.NewPCG(1, 1)))
		if !got.Encrypted {
			t.Errorf("the Secret after those of %d bytes was not found", size)
		}
	}
}

// FuzzWrite checks that anything is accepted, and that the result does not depend on the parts in which it arrives.
func FuzzWrite(f *testing.F) {
	file, _ := written(f, func(store mvcc.KV) {
		store.Put([]byte("/registry/secrets/a/b"), []byte("k8s:enc:"), lease.NoLease)
	})
	f.Add(file[:min(len(file), 64<<10)], uint16(100))
	f.Add([]byte{}, uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, part uint16) {
		var whole, parts pages.Content
		whole.Write(data)
		for rest := bytes.NewBuffer(data); rest.Len() > 0; {
			parts.Write(rest.Next(int(part) + 1))
		}
		if whole.Entries != parts.Entries || whole.Kubernetes != parts.Kubernetes || whole.Encrypted != parts.Encrypted {
			t.Errorf("%+v, in parts %+v", whole, parts)
		}
	})
}

// BenchmarkWrite reads small keys, the most work for each byte.
func BenchmarkWrite(b *testing.B) {
	file, _ := written(b, func(store mvcc.KV) {
		for i := range 100_000 {
			store.Put(fmt.Appendf(nil, "/registry/secrets/object-%09d", i), make([]byte, 57), lease.NoLease)
		}
	})
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		var c pages.Content
		for rest := bytes.NewBuffer(file); rest.Len() > 0; {
			c.Write(rest.Next(32 << 10))
		}
	}
}
