package storage_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/storage/storagetest"
)

func TestAsOfWantsVersions(t *testing.T) {
	for _, b := range []storage.Bucket{openFile(t), storage.WithPrefix(mem.New(), "some/where")} {
		_, err := storage.AsOf(b, time.Now())
		if !errors.Is(err, storage.ErrUnsupported) {
			t.Errorf("AsOf a store without versions: %v", err)
		}
	}
}

func putText(t *testing.T, b storage.Bucket, key, content string) {
	t.Helper()
	_, err := b.Put(t.Context(), key, strings.NewReader(content), storage.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, b storage.Bucket, key string) string {
	t.Helper()
	r, _, err := b.Open(t.Context(), key, storage.OpenOptions{})
	if errors.Is(err, storage.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// TestAsOfEdges checks that a version exists from the moment it was stored until the moment it was replaced.
func TestAsOfEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		start := time.Now()
		putText(t, b, "key", "one")
		time.Sleep(time.Hour)
		putText(t, b, "key", "two")
		time.Sleep(time.Hour)
		err := b.Delete(t.Context(), "key", storage.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for after, want := range map[time.Duration]string{
			-time.Nanosecond: "", 0: "one", time.Hour - time.Nanosecond: "one", time.Hour: "two",
			2*time.Hour - time.Nanosecond: "two", 2 * time.Hour: "",
		} {
			past, err := storage.AsOf(b, start.Add(after))
			if err != nil {
				t.Fatal(err)
			}
			got := text(t, past, "key")
			if got != want {
				t.Errorf("%v after the start: %q, want %q", after, got, want)
			}
		}
	})
}

// fakeVersions returns a test's versions; its objects cannot be read.
type fakeVersions struct {
	storage.Bucket
	kept  []storage.ObjectVersion
	err   error
	calls int
}

func (f *fakeVersions) Versions(context.Context, storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	f.calls++
	return func(yield func(storage.ObjectVersion, error) bool) {
		for _, k := range f.kept {
			if !yield(k, nil) {
				return
			}
		}
		if f.err != nil {
			yield(storage.ObjectVersion{}, f.err)
		}
	}
}

func kept(key, version string, at, until time.Duration) storage.ObjectVersion {
	start := time.Unix(1000, 0)
	k := storage.ObjectVersion{Object: storage.Object{Key: key, Version: version, ModTime: start.Add(at)}}
	if until > 0 {
		k.Until = start.Add(until)
	}
	return k
}

// TestAsOfWithoutEnds checks that the last version before the time wins, in every order of versions, if the store does
// not report when a version was replaced.
func TestAsOfWithoutEnds(t *testing.T) {
	one, two, three := kept("key", "1", 0, 0), kept("key", "2", 10, 0), kept("key", "3", 20, 0)
	for _, order := range [][]storage.ObjectVersion{{one, two, three}, {three, two, one}, {two, three, one}} {
		past, err := storage.AsOf(&fakeVersions{kept: order}, time.Unix(1000, 15))
		if err != nil {
			t.Fatal(err)
		}
		obj, err := past.Stat(t.Context(), "key")
		if err != nil || obj.Version != "2" {
			t.Errorf("version %q, %v, want 2", obj.Version, err)
		}
	}
}

// TestAsOfListsOnce checks that Open does not list again after a listing.
func TestAsOfListsOnce(t *testing.T) {
	f := &fakeVersions{kept: []storage.ObjectVersion{kept("a", "1", 0, 0), kept("b", "1", 0, 5), kept("c", "1", 0, 0)}}
	past, err := storage.AsOf(f, time.Unix(1000, 10))
	if err != nil {
		t.Fatal(err)
	}
	keys := ""
	for obj, err := range past.List(t.Context(), storage.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		keys += obj.Key
	}
	for _, key := range []string{"a", "c"} {
		_, err := past.Stat(t.Context(), key)
		if err != nil {
			t.Error(err)
		}
	}
	if keys != "ac" || f.calls != 1 {
		t.Errorf("listed %q by %d calls", keys, f.calls)
	}
}

// TestAsOfReturnsErrors checks that an object does not look missing if its versions could not be listed.
func TestAsOfReturnsErrors(t *testing.T) {
	broken := errors.New("broken")
	past, err := storage.AsOf(&fakeVersions{err: broken}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, err = past.Stat(t.Context(), "key")
	if !errors.Is(err, broken) {
		t.Errorf("Stat: %v", err)
	}
	_, _, err = past.Open(t.Context(), "key", storage.OpenOptions{})
	if !errors.Is(err, broken) {
		t.Errorf("Open: %v", err)
	}
}

// TestAsOfReadsThroughDecorators checks that a stream of the past continues after a cut like any other.
func TestAsOfReadsThroughDecorators(t *testing.T) {
	faulty := storagetest.Faulty(mem.New())
	b := storage.WithRetry(faulty, storage.RetryPolicy{Attempts: 3, Base: time.Nanosecond, Max: time.Nanosecond})
	putText(t, b, "key", "content")
	past, err := storage.AsOf(b, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	faulty.On(storagetest.VerbOpen).Cut(3, errors.New("cut"))
	got := text(t, past, "key")
	if got != "content" || faulty.Calls(storagetest.VerbOpen) != 2 {
		t.Errorf("%q by %d calls", got, faulty.Calls(storagetest.VerbOpen))
	}
}
