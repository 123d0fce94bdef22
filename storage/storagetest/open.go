package storagetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage"
)

func (s suite) openRange(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"absent":          func(t *testing.T, b storage.Bucket) { wantAbsent(t, b, "a/b") },
		"every range":     openEveryRange,
		"out of range":    openOutOfRange,
		"empty object":    openEmpty,
		"part boundaries": s.openAtPartBoundaries,
		"cancelled":       s.openCancelled,
		"closed early":    s.openClosedEarly,
	})
}

func openEveryRange(t *testing.T, b storage.Bucket) {
	p := content(1, 10)
	put(t, b, "key", p)
	for offset := range len(p) + 1 {
		wantContent(t, b, "key", storage.OpenOptions{Offset: int64(offset)}, p[offset:])
		for length := 1; length <= len(p)+2; length++ {
			o := storage.OpenOptions{Offset: int64(offset), Length: int64(length)}
			wantContent(t, b, "key", o, p[offset:min(offset+length, len(p))])
		}
	}
}

func openOutOfRange(t *testing.T, b storage.Bucket) {
	put(t, b, "key", content(1, 10))
	for _, o := range []storage.OpenOptions{
		{Offset: 11}, {Offset: 1 << 40}, {Offset: 11, Length: 1}, {Offset: -1}, {Length: -1}, {Offset: 3, Length: -2},
	} {
		_, err := get(t.Context(), b, "key", o)
		wantError(t, fmt.Sprintf("Open an object of 10 bytes with %+v", o), err, storage.ErrRange)
	}
}

func openEmpty(t *testing.T, b storage.Bucket) {
	put(t, b, "key", nil)
	wantContent(t, b, "key", storage.OpenOptions{}, nil)
	wantContent(t, b, "key", storage.OpenOptions{Length: 1}, nil)
	_, err := get(t.Context(), b, "key", storage.OpenOptions{Offset: 1})
	wantError(t, "Open past an empty object", err, storage.ErrRange)
}

func (s suite) openAtPartBoundaries(t *testing.T, b storage.Bucket) {
	for _, part := range s.o.PartSizes {
		p := content(1, 2*part)
		put(t, b, "key", p)
		for _, offset := range []int{part - 1, part, part + 1, 2*part - 1, 2 * part} {
			wantContent(t, b, "key", storage.OpenOptions{Offset: int64(offset)}, p[offset:])
			o := storage.OpenOptions{Offset: int64(offset), Length: 2}
			wantContent(t, b, "key", o, p[offset:min(offset+2, len(p))])
		}
	}
}

func (s suite) openCancelled(t *testing.T, b storage.Bucket) {
	put(t, b, "key", content(1, 2*s.o.PartSizes[0]))
	ctx, cancel := context.WithCancel(t.Context())
	r, _, err := b.Open(ctx, "key", storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = io.ReadFull(r, make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = io.Copy(io.Discard, r)
	wantError(t, "reading on after a cancel", err, context.Canceled)
}

func (s suite) openClosedEarly(t *testing.T, b storage.Bucket) {
	put(t, b, "key", content(1, s.o.PartSizes[0]))
	for range 50 { // connections or files that are not closed would pile up
		r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadFull(r, make([]byte, 10))
		if err != nil {
			t.Fatal(err)
		}
		err = r.Close()
		if err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
}

func (s suite) version(t *testing.T) {
	s.each(t, map[string]func(*testing.T, storage.Bucket){
		"differs by content":   versionDiffers,
		"current":              versionCurrent,
		"gone":                 versionGone,
		"replaced":             s.versionReplaced,
		"replaced while read":  s.versionReplacedWhileRead,
		"delete only this one": s.versionDelete,
	})
}

// versionDiffers stores different contents of equal size in quick succession: a store that derives versions from the time
// would repeat one.
func versionDiffers(t *testing.T, b storage.Bucket) {
	seen := map[string]bool{}
	for seed := range 20 {
		obj := put(t, b, "key", content(seed, 10))
		if seen[obj.Version] {
			t.Fatalf("version %q was returned twice", obj.Version)
		}
		seen[obj.Version] = true
	}
}

func versionCurrent(t *testing.T, b storage.Bucket) {
	obj := put(t, b, "key", content(1, 10))
	wantContent(t, b, "key", storage.OpenOptions{Version: obj.Version, Offset: 3}, content(1, 10)[3:])
}

// versionGone opens a deleted version. The store contains another object, which must stay as it is.
func versionGone(t *testing.T, b storage.Bucket) {
	obj := put(t, b, "key", content(1, 10))
	other := put(t, b, "other", content(2, 10))
	remove(t, b, "key", storage.DeleteOptions{Version: obj.Version})
	_, err := get(t.Context(), b, "key", storage.OpenOptions{Version: obj.Version})
	wantError(t, "Open of a version that is gone", err, storage.ErrNotExist)
	wantSame(t, b, other, content(2, 10))
}

func (s suite) versionReplaced(t *testing.T, b storage.Bucket) {
	old := put(t, b, "key", content(1, 10))
	put(t, b, "key", content(2, 10))
	if !s.o.NoVersions {
		wantContent(t, b, "key", storage.OpenOptions{Version: old.Version}, content(1, 10))
		return
	}
	_, err := get(t.Context(), b, "key", storage.OpenOptions{Version: old.Version})
	wantError(t, "Open of a version that is gone", err, storage.ErrNotExist)
}

// versionReplacedWhileRead replaces an object while it is read. The stream may break, but must not continue with the new
// object.
func (s suite) versionReplacedWhileRead(t *testing.T, b storage.Bucket) {
	p := content(1, 2*s.o.PartSizes[0])
	put(t, b, "key", p)
	r, _, err := b.Open(t.Context(), "key", storage.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first := make([]byte, 10)
	_, err = io.ReadFull(r, first)
	if err != nil {
		t.Fatal(err)
	}
	put(t, b, "key", content(2, len(p)))
	rest, err := io.ReadAll(r)
	got := append(first, rest...)
	if !bytes.HasPrefix(p, got) || err == nil && len(got) != len(p) {
		t.Errorf("%d bytes, error %v: not the object that was opened", len(got), err)
	}
}

func (s suite) versionDelete(t *testing.T, b storage.Bucket) {
	old := put(t, b, "key", content(1, 10))
	obj := put(t, b, "key", content(2, 10))
	remove(t, b, "key", storage.DeleteOptions{Version: old.Version})
	wantSame(t, b, obj, content(2, 10))
	_, err := get(t.Context(), b, "key", storage.OpenOptions{Version: old.Version})
	wantError(t, "Open of a deleted version", err, storage.ErrNotExist)
	remove(t, b, "key", storage.DeleteOptions{Version: obj.Version})
	wantAbsent(t, b, "key")
}
