package check_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/mem"
)

// Each fake is a store in memory that misbehaves in one way.

// fakeOverwriting ignores IfAbsent.
type fakeOverwriting struct{ *mem.Bucket }

func (f fakeOverwriting) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	o.IfAbsent = false
	return f.Bucket.Put(ctx, key, r, o)
}

// fakeLooking checks for the key before an upload of some size, and not at its end.
type fakeLooking struct {
	*mem.Bucket
	above int
}

func (f fakeLooking) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if !o.IfAbsent {
		return f.Bucket.Put(ctx, key, r, o)
	}
	_, err := f.Stat(ctx, key)
	if err == nil {
		return storage.Object{}, storage.ErrExist
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return storage.Object{}, err
	}
	o.IfAbsent = len(content) <= f.above
	return f.Bucket.Put(ctx, key, bytes.NewReader(content), o)
}

// fakeForgetting ignores IfVersion.
type fakeForgetting struct{ *mem.Bucket }

func (f fakeForgetting) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	o.IfVersion = ""
	return f.Bucket.Put(ctx, key, r, o)
}

// fakeRefusing returns err for every IfVersion.
type fakeRefusing struct {
	*mem.Bucket
	err error
}

func (f fakeRefusing) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if o.IfVersion != "" {
		return storage.Object{}, f.err
	}
	return f.Bucket.Put(ctx, key, r, o)
}

// fakeGlancing checks IfVersion before the write and not at its end.
type fakeGlancing struct{ *mem.Bucket }

func (f fakeGlancing) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if o.IfVersion != "" {
		now, err := f.Stat(ctx, key)
		if err != nil || now.Version != o.IfVersion {
			return storage.Object{}, storage.ErrChanged
		}
		time.Sleep(time.Second)
	}
	o.IfVersion = ""
	return f.Bucket.Put(ctx, key, r, o)
}

// fakeTearing shows half of the new object before the whole.
type fakeTearing struct{ *mem.Bucket }

func (f fakeTearing) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	content, err := io.ReadAll(r)
	if err == nil && !o.IfAbsent {
		_, err = f.Bucket.Put(ctx, key, bytes.NewReader(content[:len(content)/2]), o)
		if err == nil {
			time.Sleep(time.Second)
		}
	}
	if err != nil {
		return storage.Object{}, err
	}
	return f.Bucket.Put(ctx, key, bytes.NewReader(content), o)
}

// fakeAbsent deletes the old object before it stores the new one.
type fakeAbsent struct{ *mem.Bucket }

func (f fakeAbsent) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if !o.IfAbsent {
		err := f.Delete(ctx, key, storage.DeleteOptions{})
		if err != nil {
			return storage.Object{}, err
		}
		time.Sleep(time.Second)
	}
	return f.Bucket.Put(ctx, key, r, o)
}

// fakeWhole sends the whole object for every range.
type fakeWhole struct{ *mem.Bucket }

func (f fakeWhole) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	o.Offset, o.Length = 0, 0
	return f.Bucket.Open(ctx, key, o)
}

// fakeForgiving sends nothing for a range that begins past the end.
type fakeForgiving struct{ *mem.Bucket }

func (f fakeForgiving) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	obj, err := f.Stat(ctx, key)
	if err == nil && o.Version == "" {
		o.Offset = min(o.Offset, obj.Size)
	}
	return f.Bucket.Open(ctx, key, o)
}

// fakeUnpinned sends the newest version for every version.
type fakeUnpinned struct{ *mem.Bucket }

func (f fakeUnpinned) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	o.Version = ""
	return f.Bucket.Open(ctx, key, o)
}

// fakeFlipping flips a bit of an object that is larger than some size.
type fakeFlipping struct {
	*mem.Bucket
	above int64
}

func (f fakeFlipping) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	r, obj, err := f.Bucket.Open(ctx, key, o)
	if err != nil || obj.Size <= f.above {
		return r, obj, err
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, obj, err
	}
	content = slices.Clone(content)
	content[len(content)/2] ^= 1
	return io.NopCloser(bytes.NewReader(content)), obj, r.Close()
}

// fakeLate lists an object only after a minute.
type fakeLate struct{ *mem.Bucket }

func (f fakeLate) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for obj, err := range f.Bucket.List(ctx, o) {
			if err == nil && time.Since(obj.ModTime) < time.Minute {
				continue
			}
			if !yield(obj, err) {
				return
			}
		}
	}
}

// fakeCollating lists in the order of a language, not of bytes.
type fakeCollating struct{ *mem.Bucket }

func (f fakeCollating) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		var all []storage.Object
		for obj, err := range f.Bucket.List(ctx, o) {
			if err != nil {
				yield(obj, err)
				return
			}
			all = append(all, obj)
		}
		slices.SortFunc(all, func(a, b storage.Object) int {
			return strings.Compare(strings.ToLower(a.Key), strings.ToLower(b.Key))
		})
		for _, obj := range all {
			if !yield(obj, nil) {
				return
			}
		}
	}
}

// fakeKeeping reports a deletion and does not delete.
type fakeKeeping struct{ *mem.Bucket }

func (f fakeKeeping) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	if o.Version != "" { // so that the test can clean up
		return f.Bucket.Delete(ctx, key, o)
	}
	return nil
}

// fakePublishing stores the bytes received when an upload breaks.
type fakePublishing struct{ *mem.Bucket }

func (f fakePublishing) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	content, err := io.ReadAll(r)
	obj, perr := f.Bucket.Put(context.WithoutCancel(ctx), key, bytes.NewReader(content), o)
	if perr != nil {
		return obj, perr
	}
	return obj, err
}

// fakeSweeper has pieces of uploads, and never removes any by itself.
type fakeSweeper struct {
	*mem.Bucket
	pieces map[string]storage.Object
	broken bool // each broken upload leaves one
}

func (f fakeSweeper) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := f.Bucket.Put(ctx, key, r, o)
	if err != nil && f.broken && !o.IfAbsent && o.IfVersion == "" { // a refused condition breaks no upload
		f.pieces[key] = storage.Object{Key: key, Size: 7, ModTime: time.Now()}
	}
	return obj, err
}

func (f fakeSweeper) Leftovers(_ context.Context, prefix string) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for _, piece := range f.pieces {
			if strings.HasPrefix(piece.Key, prefix) && !yield(piece, nil) {
				return
			}
		}
	}
}

func (f fakeSweeper) Sweep(_ context.Context, piece storage.Object) error {
	delete(f.pieces, piece.Key)
	return nil
}

// fakeUnlocked reports locks, and its client refuses to delete a locked object, but the store itself deletes it.
type fakeUnlocked struct{ *mem.Bucket }

func (f fakeUnlocked) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	until := o.RetainUntil
	o.RetainUntil = time.Time{}
	obj, err := f.Bucket.Put(ctx, key, r, o)
	obj.RetainUntil = until
	return obj, err
}

func (f fakeUnlocked) Stat(ctx context.Context, key string) (storage.Object, error) {
	obj, err := f.Bucket.Stat(ctx, key)
	if strings.HasSuffix(key, "/locked") {
		obj.RetainUntil = time.Now().Add(time.Hour)
	}
	return obj, err
}

func (f fakeUnlocked) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	if strings.HasSuffix(key, "/locked") && !o.SkipLockCheck {
		return storage.ErrLocked
	}
	return f.Bucket.Delete(ctx, key, o)
}

// fakeUnlocking drops locks.
type fakeUnlocking struct{ *mem.Bucket }

func (f fakeUnlocking) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	o.RetainUntil = time.Time{}
	return f.Bucket.Put(ctx, key, r, o)
}

// fakeLockless has no locks.
type fakeLockless struct{ *mem.Bucket }

func (f fakeLockless) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	if !o.RetainUntil.IsZero() {
		return storage.Object{}, storage.ErrUnsupported
	}
	return f.Bucket.Put(ctx, key, r, o)
}

// fakeClock has a wrong clock.
type fakeClock struct {
	*mem.Bucket
	by time.Duration
}

func (f fakeClock) Stat(ctx context.Context, key string) (storage.Object, error) {
	obj, err := f.Bucket.Stat(ctx, key)
	obj.ModTime = obj.ModTime.Add(f.by)
	return obj, err
}

func (f fakeClock) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	return func(yield func(storage.ObjectVersion, error) bool) {
		for kept, err := range f.Bucket.Versions(ctx, o) {
			kept.ModTime = kept.ModTime.Add(f.by)
			if !kept.Until.IsZero() {
				kept.Until = kept.Until.Add(f.by)
			}
			if !yield(kept, err) {
				return
			}
		}
	}
}

// fakeNewest has the method for versions, and keeps none.
type fakeNewest struct{ *mem.Bucket }

func (f fakeNewest) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	old, missing := f.Stat(ctx, key)
	obj, err := f.Bucket.Put(ctx, key, r, o)
	if err == nil && missing == nil {
		err = f.Delete(ctx, key, storage.DeleteOptions{Version: old.Version})
	}
	return obj, err
}

// fakeForgetful reports a replaced version with the time of its replacement.
type fakeForgetful struct{ *mem.Bucket }

func (f fakeForgetful) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	return func(yield func(storage.ObjectVersion, error) bool) {
		for kept, err := range f.Bucket.Versions(ctx, o) {
			if !kept.Until.IsZero() {
				kept.ModTime = kept.Until
			}
			if !yield(kept, err) {
				return
			}
		}
	}
}

// fakeConfused returns another version of the past.
type fakeConfused struct{ *mem.Bucket }

func (f fakeConfused) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	return func(yield func(storage.ObjectVersion, error) bool) {
		for kept, err := range f.Bucket.Versions(ctx, o) {
			if err == nil {
				newest, serr := f.Stat(ctx, kept.Key)
				if serr == nil {
					kept.Version = newest.Version
				}
			}
			if !yield(kept, err) {
				return
			}
		}
	}
}

// fakeHiding has no method for versions.
type fakeHiding struct{ storage.Bucket }
