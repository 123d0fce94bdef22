package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (s suite) delete(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"absent":          deleteAbsent,
		"then put":        deleteThenPut,
		"leaves the rest": deleteLeavesRest,
		"while read":      s.deleteWhileRead,
	})
}

func deleteAbsent(t *testing.T, b storage.Bucket) {
	put(t, b, "a", nil)
	for _, key := range []string{"b", "c/d/e", "a/b"} {
		remove(t, b, key, storage.DeleteOptions{})
	}
	obj := put(t, b, "gone", content(1, 10))
	remove(t, b, "gone", storage.DeleteOptions{})
	remove(t, b, "gone", storage.DeleteOptions{})
	remove(t, b, "gone", storage.DeleteOptions{Version: obj.Version})
	remove(t, b, "gone", storage.DeleteOptions{Version: obj.Version})
	wantAbsent(t, b, "gone")
}

func deleteThenPut(t *testing.T, b storage.Bucket) {
	put(t, b, "a/b/c", content(1, 10))
	remove(t, b, "a/b/c", storage.DeleteOptions{})
	wantAbsent(t, b, "a/b/c")
	wantSame(t, b, put(t, b, "a/b/c", content(2, 20)), content(2, 20))
	remove(t, b, "a/b/c", storage.DeleteOptions{})
	wantSame(t, b, put(t, b, "a", content(3, 30)), content(3, 30))
}

func deleteLeavesRest(t *testing.T, b storage.Bucket) {
	putAll(t, b, "a/b", "a/b0", "a/c/d", "ab")
	remove(t, b, "a/b", storage.DeleteOptions{})
	wantKeys(t, b, storage.ListOptions{}, "a/b0", "a/c/d", "ab")
	remove(t, b, "a/c", storage.DeleteOptions{}) // a prefix is no key
	wantKeys(t, b, storage.ListOptions{}, "a/b0", "a/c/d", "ab")
}

func (s suite) deleteWhileRead(t *testing.T, b storage.Bucket) {
	p := content(1, s.o.PartSizes[0])
	put(t, b, "key", p)
	r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	remove(t, b, "key", storage.DeleteOptions{})
	var got bytes.Buffer
	_, err = got.ReadFrom(r)
	if !bytes.HasPrefix(p, got.Bytes()) || err == nil && got.Len() != len(p) {
		t.Errorf("%d of %d bytes, error %v", got.Len(), len(p), err)
	}
}

func (s suite) key(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"odd but valid": s.keyOdd,
		"malformed":     keyMalformed,
		"nested":        s.keyNested,
	})
}

func (s suite) keyOdd(t *testing.T, b storage.Bucket) {
	long := strings.Repeat(strings.Repeat("x", 199)+"/", 4) + strings.Repeat("y", 100) // leaves room for a prefix
	keys := []string{
		"a b", " leading", "trailing ", "100%", "%2F", "%2f/%00", "a+b", "a&b=c?d#e", "a:b", "*", "~", "'\"", "back\\slash",
		".hidden", "...", "a..b", "..a/b..", "a.", "Case", "case", "ü", "u\u0308", "日本語/🙂", "-", "--version", "$HOME", long,
	}
	if s.o.NoBackslash {
		keys = slices.DeleteFunc(keys, func(key string) bool { return strings.Contains(key, `\`) })
		_, err := b.Put(t.Context(), `back\slash`, bytes.NewReader(nil), storage.PutOptions{})
		wantError(t, "Put of a key with a backslash", err, storage.ErrKey)
	}
	for _, key := range keys {
		wantSame(t, b, put(t, b, key, []byte(key)), []byte(key))
	}
	slices.Sort(keys)
	wantKeys(t, b, storage.ListOptions{}, keys...)
	for _, key := range keys {
		wantContent(t, b, key, storage.OpenOptions{}, []byte(key))
		remove(t, b, key, storage.DeleteOptions{})
	}
	wantKeys(t, b, storage.ListOptions{})
}

func keyMalformed(t *testing.T, b storage.Bucket) {
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b", "a\x00b", "a\nb", "a\x7f", "\xff", "a/\xc3",
		strings.Repeat("x/", 512) + "x",
	} {
		src := &owned{r: strings.NewReader("content")}
		_, err := b.Put(t.Context(), key, src, storage.PutOptions{})
		wantError(t, fmt.Sprintf("Put(%q)", key), err, storage.ErrKey)
		if src.reads > 0 {
			t.Errorf("Put(%q) has read its source", key)
		}
		_, err = get(t.Context(), b, key, storage.OpenOptions{})
		wantError(t, fmt.Sprintf("Open(%q)", key), err, storage.ErrKey)
		_, err = b.Stat(t.Context(), key)
		wantError(t, fmt.Sprintf("Stat(%q)", key), err, storage.ErrKey)
		wantError(t, fmt.Sprintf("Delete(%q)", key), b.Delete(t.Context(), key, storage.DeleteOptions{}), storage.ErrKey)
	}
	wantKeys(t, b, storage.ListOptions{})
}

func (s suite) keyNested(t *testing.T, b storage.Bucket) {
	for _, pair := range [][2]string{{"a", "a/b"}, {"c/d/e", "c/d"}} {
		first := put(t, b, pair[0], content(1, 10))
		_, err := b.Put(t.Context(), pair[1], bytes.NewReader(content(2, 20)), storage.PutOptions{IfAbsent: true})
		if s.o.NoNesting {
			wantError(t, fmt.Sprintf("Put(%q) beside %q", pair[1], pair[0]), err, storage.ErrUnsupported)
			_, err := b.Stat(t.Context(), pair[1])
			wantError(t, fmt.Sprintf("Stat(%q)", pair[1]), err, storage.ErrNotExist)
		} else if err != nil {
			t.Fatalf("Put(%q) beside %q: %v", pair[1], pair[0], err)
		} else {
			wantContent(t, b, pair[1], storage.OpenOptions{}, content(2, 20))
		}
		wantContent(t, b, first.Key, storage.OpenOptions{}, content(1, 10))
	}
}

func (s suite) cancel(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){"before each verb": cancelBefore})
}

func cancelBefore(t *testing.T, b storage.Bucket) {
	obj := put(t, b, "dir/key", content(1, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Put(ctx, "dir/key", bytes.NewReader(content(2, 20)), storage.PutOptions{})
	wantError(t, "Put", err, context.Canceled)
	_, err = b.Put(ctx, "dir/new", bytes.NewReader(content(2, 20)), storage.PutOptions{IfAbsent: true})
	wantError(t, "Put", err, context.Canceled)
	_, err = get(ctx, b, "dir/key", storage.OpenOptions{})
	wantError(t, "Open", err, context.Canceled)
	_, err = b.Stat(ctx, "dir/key")
	wantError(t, "Stat", err, context.Canceled)
	wantError(t, "Delete", b.Delete(ctx, "dir/key", storage.DeleteOptions{}), context.Canceled)
	for _, prefix := range []string{"", "dir/", "nothing/here"} {
		wantListError(ctx, t, b, prefix)
	}
	wantSame(t, b, obj, content(1, 10))
	wantAbsent(t, b, "dir/new")
	wantNoLeftovers(t, b)
}

func wantListError(ctx context.Context, t *testing.T, b storage.Bucket, prefix string) {
	t.Helper()
	var errs []error
	for _, err := range b.List(ctx, storage.ListOptions{Prefix: prefix}) {
		errs = append(errs, err)
	}
	if len(errs) != 1 {
		t.Fatalf("List of %q yields %d times, want one error", prefix, len(errs))
	}
	wantError(t, "List", errs[0], context.Canceled)
}

func (s suite) lock(t *testing.T) {
	if s.o.NoLocks {
		s.each(t, map[string]func(*testing.T, storage.Bucket){"unsupported": lockUnsupported})
		return
	}
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"delete":    lockDelete,
		"replace":   s.lockReplace,
		"if absent": lockIfAbsent,
	})
}

func putLocked(t *testing.T, b storage.Bucket, key string, p []byte, o storage.PutOptions) (storage.Object, error) {
	t.Helper()
	o.RetainUntil = time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	obj, err := b.Put(t.Context(), key, bytes.NewReader(p), o)
	if err == nil && !obj.RetainUntil.Equal(o.RetainUntil) {
		t.Errorf("locked until %v, want %v", obj.RetainUntil, o.RetainUntil)
	}
	return obj, err
}

func lockUnsupported(t *testing.T, b storage.Bucket) {
	_, err := putLocked(t, b, "key", content(1, 10), storage.PutOptions{})
	wantError(t, "Put with a lock", err, storage.ErrUnsupported)
	wantAbsent(t, b, "key")
	wantNoLeftovers(t, b)
}

func lockDelete(t *testing.T, b storage.Bucket) {
	obj, err := putLocked(t, b, "key", content(1, 10), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := stat(t, b, "key").RetainUntil
	if !got.Equal(obj.RetainUntil) {
		t.Errorf("Stat says locked until %v, Put said %v", got, obj.RetainUntil)
	}
	err = b.Delete(t.Context(), "key", storage.DeleteOptions{})
	wantError(t, "Delete of a locked key", err, storage.ErrLocked)
	err = b.Delete(t.Context(), "key", storage.DeleteOptions{Version: obj.Version})
	wantError(t, "Delete of a locked version", err, storage.ErrLocked)
	wantSame(t, b, obj, content(1, 10))
}

func (s suite) lockReplace(t *testing.T, b storage.Bucket) {
	old, err := putLocked(t, b, "key", content(1, 10), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := b.Put(t.Context(), "key", bytes.NewReader(content(2, 20)), storage.PutOptions{})
	if s.o.NoVersions {
		wantError(t, "Put over a locked object", err, storage.ErrLocked)
		wantSame(t, b, old, content(1, 10))
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, b, obj, content(2, 20))
	err = b.Delete(t.Context(), "key", storage.DeleteOptions{Version: old.Version})
	wantError(t, "Delete of a locked version", err, storage.ErrLocked)
	remove(t, b, "key", storage.DeleteOptions{})
	wantAbsent(t, b, "key")
	wantContent(t, b, "key", storage.OpenOptions{Version: old.Version}, content(1, 10))
}

func lockIfAbsent(t *testing.T, b storage.Bucket) {
	old, err := putLocked(t, b, "key", content(1, 10), storage.PutOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = putLocked(t, b, "key", content(2, 20), storage.PutOptions{IfAbsent: true})
	wantError(t, "Put of a taken key", err, storage.ErrExist)
	wantSame(t, b, old, content(1, 10))
}
