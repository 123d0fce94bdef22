package storagetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
)

// replace checks conditional Puts.
func (s suite) replace(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"the version":         replaceVersion,
		"another version":     replaceOtherVersion,
		"a malformed one":     replaceMalformedVersion,
		"a missing key":       replaceMissing,
		"a deleted key":       replaceDeleted,
		"one of many writers": raceReplaceVersion,
		"large":               func(t *testing.T, b storage.Bucket) { replaceLarge(t, b, 2*s.o.PartSizes[0]) },
	})
}

func putOver(t *testing.T, b storage.Bucket, version string, p []byte) (storage.Object, error) {
	t.Helper()
	return b.Put(t.Context(), "a/key", bytes.NewReader(p), storage.PutOptions{IfVersion: version})
}

// replaceVersion replaces each version that Put, Stat and Open have returned.
func replaceVersion(t *testing.T, b storage.Bucket) {
	version := put(t, b, "a/key", content(1, 100)).Version
	for i, seen := range []func(storage.Object) string{
		func(o storage.Object) string { return o.Version },
		func(storage.Object) string { return stat(t, b, "a/key").Version },
		func(storage.Object) string {
			r, o, err := b.Open(t.Context(), "a/key", storage.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			return o.Version
		},
	} {
		obj, err := putOver(t, b, version, content(2+i, 100))
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, b, obj, content(2+i, 100))
		version = seen(obj)
	}
	wantNoLeftovers(t, b)
}

func replaceOtherVersion(t *testing.T, b storage.Bucket) {
	old := put(t, b, "a/key", content(1, 100))
	now := put(t, b, "a/key", content(2, 100))
	_, err := putOver(t, b, old.Version, content(3, 100))
	wantError(t, "Put over a replaced version", err, storage.ErrChanged)
	wantSame(t, b, now, content(2, 100))
	other := put(t, b, "b/key", content(4, 100))
	_, err = putOver(t, b, other.Version, content(3, 100))
	wantError(t, "Put over another key's version", err, storage.ErrChanged)
	wantSame(t, b, now, content(2, 100))
	wantNoLeftovers(t, b)
}

func replaceMalformedVersion(t *testing.T, b storage.Bucket) {
	now := put(t, b, "a/key", content(1, 100))
	_, err := putOver(t, b, "no version of any store", content(2, 100))
	wantError(t, "Put over a malformed version", err, storage.ErrChanged)
	wantSame(t, b, now, content(1, 100))
}

func replaceMissing(t *testing.T, b storage.Bucket) {
	other := put(t, b, "b/key", content(1, 100))
	_, err := putOver(t, b, other.Version, content(2, 100))
	wantError(t, "Put over a missing key", err, storage.ErrChanged)
	wantAbsent(t, b, "a/key")
	wantNoLeftovers(t, b)
}

func replaceDeleted(t *testing.T, b storage.Bucket) {
	old := put(t, b, "a/key", content(1, 100))
	remove(t, b, "a/key", storage.DeleteOptions{})
	_, err := putOver(t, b, old.Version, content(2, 100))
	wantError(t, "Put over a deleted key", err, storage.ErrChanged)
	wantAbsent(t, b, "a/key")
}

// raceReplaceVersion has several writers replace one version, again and again.
func raceReplaceVersion(t *testing.T, b storage.Bucket) {
	version := put(t, b, "a/key", content(0, 100)).Version
	for round := range 5 {
		const writers = 8
		errs := atOnce(writers, func(i int) error {
			_, err := putOver(t, b, version, content(1+round*writers+i, 100))
			return err
		})
		winner := onlyWinner(t, errs, storage.ErrChanged)
		wantContent(t, b, "a/key", storage.OpenOptions{}, content(1+round*writers+winner, 100))
		version = stat(t, b, "a/key").Version
	}
	wantNoLeftovers(t, b)
}

// replaceLarge checks that an object in parts is refused or replaces only its version.
func replaceLarge(t *testing.T, b storage.Bucket, size int) {
	old := put(t, b, "a/key", content(1, 100))
	now := put(t, b, "a/key", content(2, 100))
	_, err := putOver(t, b, old.Version, content(3, size))
	if !errors.Is(err, storage.ErrUnsupported) {
		wantError(t, "Put of a large object over a replaced version", err, storage.ErrChanged)
	}
	wantSame(t, b, now, content(2, 100))
	wantNoLeftovers(t, b)
}
