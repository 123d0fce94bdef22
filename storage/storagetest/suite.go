// Package storagetest checks the promises of storage.Bucket, and breaks stores on purpose.
//
// Run is the one suite for every store, every decorator and every stack of decorators. Faulty is a decorator that fails
// as a test demands.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Options name the features that a store lacks, and the sizes at which it may break. The zero value is a store with
// every feature.
type Options struct {
	// PartSizes are the sizes at which the store cuts an upload; sources break at and around them. Empty: 5 MiB and 8
	// MiB.
	PartSizes []int
	// NoVersions: a replaced or deleted object is gone.
	NoVersions bool
	// NoLocks: RetainUntil causes storage.ErrUnsupported.
	NoLocks bool
	// NoNesting: "a" and "a/b" cannot both be keys; the second one causes storage.ErrUnsupported.
	NoNesting bool
	// Tick is the time resolution of the store; 0 for a millisecond or less.
	Tick time.Duration
	// NoReturn: when the newest version is removed for ever, the one before stays an old one, and the key is missing.
	NoReturn bool
	// NoBackslash: a key with a backslash causes storage.ErrKey.
	NoBackslash bool
}

// Run checks one kind of Bucket. open returns an empty one; it is called for each test.
func Run(t *testing.T, open func(t *testing.T) storage.Bucket, o Options) {
	if len(o.PartSizes) == 0 {
		o.PartSizes = []int{5 << 20, 8 << 20}
	}
	s := suite{o: o, open: open}
	t.Run("Put", s.put)
	t.Run("Broken", s.broken)
	t.Run("Race", s.race)
	t.Run("Replace", s.replace)
	t.Run("Open", s.openRange)
	t.Run("Version", s.version)
	t.Run("List", s.list)
	t.Run("Delete", s.delete)
	t.Run("Key", s.key)
	t.Run("Cancel", s.cancel)
	t.Run("Lock", s.lock)
	t.Run("Sweep", s.sweep)
	t.Run("AsOf", s.asOf)
}

type suite struct {
	o    Options
	open func(t *testing.T) storage.Bucket
}

// each runs small named tests, each on its own Bucket.
func (s suite) each(t *testing.T, tests map[string]func(t *testing.T, b storage.Bucket)) {
	names := make([]string, 0, len(tests))
	for name := range tests {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) { tests[name](t, s.open(t)) })
	}
}

// noise is the source of all contents: to generate new ones for each test would take most of the suite's time.
var noise struct {
	sync.Mutex
	p []byte
}

// content returns n random bytes, which depend on seed. They are shared, so callers must not modify them.
func content(seed, n int) []byte {
	noise.Lock()
	defer noise.Unlock()
	from := 101 * seed
	if from+n > len(noise.p) {
		noise.p = make([]byte, 2*(from+n))
		rand.NewChaCha8([32]byte{}).Read(noise.p) // never fails, and begins with the same bytes each time
	}
	return noise.p[from : from+n : from+n]
}

func put(t *testing.T, b storage.Bucket, key string, p []byte) storage.Object {
	t.Helper()
	obj, err := b.Put(t.Context(), key, bytes.NewReader(p), storage.PutOptions{})
	if err != nil {
		t.Fatalf("Put(%q, %d bytes): %v", key, len(p), err)
	}
	return obj
}

func putAll(t *testing.T, b storage.Bucket, keys ...string) {
	t.Helper()
	for _, key := range keys {
		put(t, b, key, []byte(key))
	}
}

func get(ctx context.Context, b storage.Bucket, key string, o storage.OpenOptions) ([]byte, error) {
	r, _, err := b.Open(ctx, key, o)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(r)
	return p, errors.Join(err, r.Close())
}

func wantContent(t *testing.T, b storage.Bucket, key string, o storage.OpenOptions, want []byte) {
	t.Helper()
	p, err := get(t.Context(), b, key, o)
	if err != nil {
		t.Fatalf("Open(%q, %+v): %v", key, o, err)
	}
	if !bytes.Equal(p, want) {
		t.Fatalf("Open(%q, %+v) gives %d bytes, not the %d expected", key, o, len(p), len(want))
	}
}

func stat(t *testing.T, b storage.Bucket, key string) storage.Object {
	t.Helper()
	obj, err := b.Stat(t.Context(), key)
	if err != nil {
		t.Fatalf("Stat(%q): %v", key, err)
	}
	return obj
}

func remove(t *testing.T, b storage.Bucket, key string, o storage.DeleteOptions) {
	t.Helper()
	err := b.Delete(t.Context(), key, o)
	if err != nil {
		t.Fatalf("Delete(%q, %+v): %v", key, o, err)
	}
}

func listing(t *testing.T, b storage.Bucket, o storage.ListOptions) []storage.Object {
	t.Helper()
	var objects []storage.Object
	for obj, err := range b.List(t.Context(), o) {
		if err != nil {
			t.Fatalf("List(%+v): %v", o, err)
		}
		objects = append(objects, obj)
	}
	return objects
}

func wantKeys(t *testing.T, b storage.Bucket, o storage.ListOptions, want ...string) {
	t.Helper()
	var got []string
	for _, obj := range listing(t, b, o) {
		got = append(got, obj.Key)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("List(%+v) = %q, want %q", o, got, want)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want one that is %v", what, err, want)
	}
}

// wantAbsent fails if any method shows key.
func wantAbsent(t *testing.T, b storage.Bucket, key string) {
	t.Helper()
	_, err := b.Stat(t.Context(), key)
	wantError(t, "Stat of an absent key", err, storage.ErrNotExist)
	_, err = get(t.Context(), b, key, storage.OpenOptions{})
	wantError(t, "Open of an absent key", err, storage.ErrNotExist)
	if isListed(t, b, key) {
		t.Fatalf("List shows %q, which is absent", key)
	}
}

// wantSame fails unless every method shows obj with content p.
func wantSame(t *testing.T, b storage.Bucket, obj storage.Object, p []byte) {
	t.Helper()
	got := stat(t, b, obj.Key)
	if got.Key != obj.Key || got.Version != obj.Version || got.Size != int64(len(p)) {
		t.Fatalf("Stat = %+v, want %+v with %d bytes", got, obj, len(p))
	}
	wantContent(t, b, obj.Key, storage.OpenOptions{}, p)
	if !isListed(t, b, obj.Key) {
		t.Fatalf("List does not show %q", obj.Key)
	}
}

func isListed(t *testing.T, b storage.Bucket, key string) bool {
	t.Helper()
	for _, obj := range listing(t, b, storage.ListOptions{Prefix: key}) {
		if obj.Key == key {
			return true
		}
	}
	return false
}

// wantNoLeftovers fails if a Put has left pieces.
func wantNoLeftovers(t *testing.T, b storage.Bucket) {
	t.Helper()
	sweeper, ok := storage.AsSweeper(b)
	if !ok {
		return
	}
	for piece, err := range sweeper.Leftovers(t.Context(), "") {
		if err != nil {
			t.Fatalf("Leftovers: %v", err)
		}
		t.Fatalf("Put has left %+v", piece)
	}
}
