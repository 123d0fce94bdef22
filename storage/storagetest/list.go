package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/etcd-dr/etcd-dr/storage"
)

// ordered has keys in byte order, which differs from the order of a walk through directories.
var ordered = []string{
	"a b/x", "a!", "a-b", "a-b.c/d", "a.b", "a/-", "a/b", "a/c/d", "a/c0", "a/d/e/f", "a0/x/y", "a00", "b", "cluster1/x",
	"cluster10/x", "cluster1x", "ü/x",
}

func (s suite) list(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"empty":          func(t *testing.T, b storage.Bucket) { wantKeys(t, b, storage.ListOptions{}) },
		"order":          listOrder,
		"every prefix":   listEveryPrefix,
		"every start":    listEveryStart,
		"no such prefix": listNoSuchPrefix,
		"stops":          listStops,
		"sizes":          listSizes,
		"while writing":  listWhileWriting,
		"many":           listMany,
	})
}

func listOrder(t *testing.T, b storage.Bucket) {
	for _, key := range slices.Backward(ordered) {
		put(t, b, key, nil)
	}
	wantKeys(t, b, storage.ListOptions{}, ordered...)
}

func listEveryPrefix(t *testing.T, b storage.Bucket) {
	putAll(t, b, ordered...)
	for _, key := range ordered {
		for n := range len(key) + 1 {
			prefix := key[:n]
			if !utf8.ValidString(prefix) { // no store accepts half a rune
				continue
			}
			wantKeys(t, b, storage.ListOptions{Prefix: prefix}, expect(prefix, "")...)
		}
	}
}

func listEveryStart(t *testing.T, b storage.Bucket) {
	putAll(t, b, ordered...)
	starts := append(slices.Clone(ordered), "a", "a/", "a/c", "a/c/", "a/c/zz", "a/zz", "a0", "0", "cluster1", "~")
	for _, after := range starts {
		wantKeys(t, b, storage.ListOptions{After: after}, expect("", after)...)
		wantKeys(t, b, storage.ListOptions{Prefix: "a/", After: after}, expect("a/", after)...)
		wantKeys(t, b, storage.ListOptions{Prefix: "a", After: after}, expect("a", after)...)
	}
}

func expect(prefix, after string) []string {
	return slices.DeleteFunc(slices.Clone(ordered), func(key string) bool {
		return !strings.HasPrefix(key, prefix) || key <= after
	})
}

func listNoSuchPrefix(t *testing.T, b storage.Bucket) {
	putAll(t, b, "a/b", "a/c")
	for _, prefix := range []string{"a/b/", "a/bb", "b", "b/c", "a/b/c/d", "A"} {
		wantKeys(t, b, storage.ListOptions{Prefix: prefix})
	}
}

func listStops(t *testing.T, b storage.Bucket) {
	putAll(t, b, "a/a", "a/b", "b/a", "c")
	for n := 1; n <= 4; n++ {
		seen := 0
		for _, err := range b.List(t.Context(), storage.ListOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			seen++
			if seen == n {
				break
			}
		}
	}
	seq := b.List(t.Context(), storage.ListOptions{})
	for range 2 { // a sequence can be ranged over twice
		n := 0
		for range seq {
			n++
		}
		if n != 4 {
			t.Fatalf("%d objects, want 4", n)
		}
	}
}

func listSizes(t *testing.T, b storage.Bucket) {
	for n := range 5 {
		put(t, b, fmt.Sprintf("k%d", n), content(1, n*100))
	}
	for n, obj := range listing(t, b, storage.ListOptions{}) {
		if obj.Size != int64(n*100) || obj.ModTime.IsZero() {
			t.Errorf("object %d is %+v", n, obj)
		}
	}
}

// listWhileWriting checks that List yields unchanged objects once while others appear and disappear.
func listWhileWriting(t *testing.T, b storage.Bucket) {
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("d%d/k", 10+i))
	}
	putAll(t, b, keys...)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() { putAndDelete(ctx, b) })
	for range 5 {
		var got []string
		for _, obj := range listing(t, b, storage.ListOptions{}) {
			if slices.Contains(keys, obj.Key) {
				got = append(got, obj.Key)
			}
		}
		if !slices.Equal(got, keys) {
			t.Errorf("List = %q, want %q", got, keys)
		}
	}
	stop()
	writer.Wait()
}

// putAndDelete puts and deletes objects until it is cancelled. Its errors come from that, so it ignores them.
func putAndDelete(ctx context.Context, b storage.Bucket) {
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprintf("d%d/passing", 10+i%20)
		_, err := b.Put(ctx, key, bytes.NewReader(nil), storage.PutOptions{})
		if errors.Join(err, b.Delete(ctx, key, storage.DeleteOptions{})) != nil {
			return
		}
	}
}

// listMany lists more than one page of stores whose pages have a thousand keys or fewer.
func listMany(t *testing.T, b storage.Bucket) {
	var keys []string
	for i := range 1100 {
		keys = append(keys, fmt.Sprintf("many/%04d", i))
	}
	errs := atOnce(8, func(worker int) error {
		for i := worker; i < len(keys); i += 8 {
			_, err := b.Put(t.Context(), keys[i], bytes.NewReader(nil), storage.PutOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	})
	err := errors.Join(errs...)
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(t, b, storage.ListOptions{Prefix: "many/"}, keys...)
	wantKeys(t, b, storage.ListOptions{Prefix: "many/", After: keys[1049]}, keys[1050:]...)
}
