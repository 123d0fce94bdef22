package storagetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// asOf checks that a store with versions still shows its past after objects were replaced and deleted.
func (s suite) asOf(t *testing.T) {
	tests := map[string]func(*testing.T, storage.Bucket){
		"replaced and deleted": s.asOfDeleted,
		"came back":            s.asOfCameBack,
		"newest removed":       s.asOfNewestRemoved,
		"read-only":            asOfReadOnly,
	}
	if s.o.NoVersions {
		tests = map[string]func(*testing.T, storage.Bucket){"what is still there": asOfStillThere}
	}
	s.each(t, tests)
}

// past returns b as of at. It skips the test if the store keeps no versions or is below a decorator that changes keys.
func past(t *testing.T, b storage.Bucket, at time.Time) storage.Bucket {
	t.Helper()
	p, err := storage.AsOf(b, at)
	if errors.Is(err, storage.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tick waits until the store's clock has advanced.
func (s suite) tick() { time.Sleep(max(s.o.Tick, time.Millisecond) * 5 / 4) }

func (s suite) asOfDeleted(t *testing.T, b storage.Bucket) {
	past(t, b, time.Now())
	putAll(t, b, "a/kept", "b/kept")
	put(t, b, "a/key", content(1, 10))
	first := stat(t, b, "a/key")
	s.tick()
	put(t, b, "a/key", content(2, 20))
	second := stat(t, b, "a/key")
	s.tick()
	remove(t, b, "a/key", storage.DeleteOptions{})
	remove(t, b, "a/kept", storage.DeleteOptions{})

	early := past(t, b, first.ModTime.Add(-time.Hour))
	wantAbsent(t, early, "a/key")
	wantKeys(t, early, storage.ListOptions{})
	wantPast(t, past(t, b, first.ModTime), first, content(1, 10))
	wantPast(t, past(t, b, second.ModTime), second, content(2, 20))
	late := past(t, b, second.ModTime.Add(time.Hour))
	wantAbsent(t, late, "a/key")
	wantKeys(t, late, storage.ListOptions{}, "b/kept")
}

// wantPast fails unless b shows obj with content p, next to the other objects of asOfDeleted.
func wantPast(t *testing.T, b storage.Bucket, obj storage.Object, p []byte) {
	t.Helper()
	wantSame(t, b, obj, p)
	wantContent(t, b, obj.Key, storage.OpenOptions{Offset: 3, Length: 5}, p[3:8])
	wantKeys(t, b, storage.ListOptions{}, "a/kept", "a/key", "b/kept")
	wantKeys(t, b, storage.ListOptions{Prefix: "a/k", After: "a/kept"}, "a/key")
	for _, key := range []string{"a/ke", "a/key0", "a"} {
		wantAbsent(t, b, key)
	}
	_, err := b.Stat(t.Context(), "a//b")
	wantError(t, "Stat of a malformed key", err, storage.ErrKey)
}

// asOfCameBack checks that a key is missing between its two lives.
func (s suite) asOfCameBack(t *testing.T, b storage.Bucket) {
	past(t, b, time.Now())
	put(t, b, "key", content(1, 10))
	first := stat(t, b, "key")
	s.tick()
	remove(t, b, "key", storage.DeleteOptions{})
	s.tick()
	put(t, b, "between", nil)
	between := stat(t, b, "between")
	s.tick()
	put(t, b, "key", content(2, 20))
	second := stat(t, b, "key")
	wantSame(t, past(t, b, first.ModTime), first, content(1, 10))
	wantAbsent(t, past(t, b, between.ModTime), "key")
	wantSame(t, past(t, b, second.ModTime), second, content(2, 20))
}

// asOfNewestRemoved removes the newest version for ever. The version before it is the newest again, or with NoReturn
// none is.
func (s suite) asOfNewestRemoved(t *testing.T, b storage.Bucket) {
	past(t, b, time.Now())
	put(t, b, "key", content(1, 10))
	first := stat(t, b, "key")
	s.tick()
	second := put(t, b, "key", content(2, 20))
	remove(t, b, "key", storage.DeleteOptions{Version: second.Version})
	late := past(t, b, time.Now().Add(time.Hour))
	if s.o.NoReturn {
		wantAbsent(t, b, "key")
		wantAbsent(t, late, "key")
		return
	}
	wantSame(t, late, first, content(1, 10))
}

func asOfReadOnly(t *testing.T, b storage.Bucket) {
	obj := put(t, b, "key", content(1, 10))
	p := past(t, b, time.Now().Add(time.Hour))
	src := &owned{r: strings.NewReader("content")}
	_, err := p.Put(t.Context(), "other", src, storage.PutOptions{})
	wantError(t, "Put into the past", err, storage.ErrUnsupported)
	if src.reads > 0 {
		t.Error("Put into the past has read its source")
	}
	err = p.Delete(t.Context(), "key", storage.DeleteOptions{})
	wantError(t, "Delete in the past", err, storage.ErrUnsupported)
	wantSame(t, b, obj, content(1, 10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Stat(ctx, "key")
	wantError(t, "Stat", err, context.Canceled)
	wantListError(ctx, t, p, "")
}

func asOfStillThere(t *testing.T, b storage.Bucket) {
	p := past(t, b, time.Now().Add(time.Hour))
	put(t, b, "gone", content(1, 10))
	remove(t, b, "gone", storage.DeleteOptions{})
	put(t, b, "key", content(1, 10))
	obj := put(t, b, "key", content(2, 20))
	wantKeys(t, p, storage.ListOptions{}, "key")
	wantSame(t, p, obj, content(2, 20))
}
