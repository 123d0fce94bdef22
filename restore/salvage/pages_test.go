package salvage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// write creates a bbolt file with buckets of one page, of many pages, inside another page, and without keys.
func write(t testing.TB, path string, keys int) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from <= keys; from += 1000 { // several transactions, so that pages are freed and reused
		err := db.Update(func(tx *bolt.Tx) error {
			for _, name := range []string{"small", "many", "empty"} {
				b, err := tx.CreateBucketIfNotExists([]byte(name))
				if err != nil {
					return err
				}
				if name == "small" {
					err = b.Put([]byte("only"), []byte("one"))
				}
				for i := from; name == "many" && err == nil && i < min(from+1000, keys); i++ {
					err = b.Put(fmt.Appendf(nil, "key %06d", i), bytes.Repeat([]byte{byte(i)}, i%900))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err = db.Close()
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t testing.TB, path string) *tree {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := openTree(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// The tree reads the same data as bbolt.
func TestTreeMatchesBbolt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	write(t, path, 20000)
	tree := opened(t, path)
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, want *bolt.Bucket) error {
			b, ok, err := tree.bucket(name)
			if err != nil || !ok {
				t.Fatalf("bucket %s: %t, %v", name, ok, err)
			}
			count := 0
			err = b.each(func(key, value []byte) error {
				count++
				if !bytes.Equal(want.Get(key), value) {
					t.Errorf("%s: key %s has another value", name, key)
				}
				return nil
			})
			if err != nil || count != want.Stats().KeyN {
				t.Errorf("%s: %d keys, want %d (%v)", name, count, want.Stats().KeyN, err)
			}
			wantLast, _ := want.Cursor().Last()
			last, err := b.last()
			if err != nil || !bytes.Equal(last, wantLast) {
				t.Errorf("%s: the last key is %q, want %q (%v)", name, last, wantLast, err)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	many, _, err := tree.bucket([]byte("many"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"key 000000", "key 012345", "key 019999", "a", "key 012345x", "z"} {
		_, ok, err := many.get([]byte(key))
		want := len(key) == 10
		if err != nil || ok != want {
			t.Errorf("%s: %t, %v", key, ok, err)
		}
	}
	_, ok, err := tree.bucket([]byte("none"))
	if ok || err != nil {
		t.Errorf("a bucket that is not there: %t, %v", ok, err)
	}
}

// look ends with a result or an error, whatever the file contains.
func FuzzLook(f *testing.F) {
	path := filepath.Join(f.TempDir(), "db")
	write(f, path, 300)
	good, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte{1})
	f.Add(uint32(4096*3+10), []byte{0xff, 0xff})
	f.Add(uint32(4096*5+16), []byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, change []byte) {
		data := bytes.Clone(good)
		copy(data[int(at)%len(data):], change)
		tree, err := openTree(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for _, name := range []string{"small", "many", "empty"} {
			b, ok, err := tree.bucket([]byte(name))
			if ok && err == nil {
				_ = b.each(func(_, _ []byte) error { return nil })
				_, _ = b.last()
				_, _, _ = b.get([]byte("key 000100"))
			}
		}
	})
}
