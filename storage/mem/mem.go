// Package mem stores objects in memory. New returns a storage.Bucket with versions and locks, the reference for the
// behaviour of a write-once (WORM) store.
package mem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
)

// Bucket is a store in memory. Every Put creates a new version. Delete without a Version hides a key; its versions stay
// readable by their names until Delete removes them by name. A locked version can be neither deleted nor hidden, but a
// new version may be put over it.
type Bucket struct {
	mu    sync.Mutex
	keys  map[string]*history
	names []string // of keys, in byte order
	puts  int64    // the number of Puts, which numbers the versions
}

var (
	_ storage.Bucket    = (*Bucket)(nil)
	_ storage.Versioned = (*Bucket)(nil)
)

// history holds the versions of one key.
type history struct {
	versions []version // oldest first
	hidden   bool      // deleted without a Version after the newest of them
}

// version is one object. Its content never changes, so readers share it.
type version struct {
	storage.ObjectVersion
	content []byte
}

// New returns an empty Bucket.
func New() *Bucket {
	return &Bucket{keys: map[string]*history{}}
}

// Put implements storage.Bucket.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	obj, err := b.put(ctx, key, r, o)
	if err != nil {
		return storage.Object{}, fmt.Errorf("put %q: %w", key, err)
	}
	return obj, nil
}

func (b *Bucket) put(ctx context.Context, key string, r io.Reader, o storage.PutOptions) (storage.Object, error) {
	err := b.checkCondition(ctx, key, o)
	if err != nil { // do not read the source in vain
		return storage.Object{}, err
	}
	var content bytes.Buffer
	_, err = content.ReadFrom(&source{ctx, r})
	if err != nil {
		return storage.Object{}, fmt.Errorf("read the content to store: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.checkConditionLocked(ctx, key, o)
	if err != nil {
		return storage.Object{}, err
	}
	return b.add(key, content.Bytes(), o.RetainUntil), nil
}

// source is a reader that fails once ctx has ended.
type source struct {
	ctx context.Context
	r   io.Reader
}

func (s *source) Read(p []byte) (int, error) {
	err := s.ctx.Err()
	if err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

func (b *Bucket) checkCondition(ctx context.Context, key string, o storage.PutOptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checkConditionLocked(ctx, key, o)
}

// checkConditionLocked returns the error of a Put whose condition does not hold. The caller holds b.mu.
func (b *Bucket) checkConditionLocked(ctx context.Context, key string, o storage.PutOptions) error {
	v, err := b.find(ctx, key, "")
	absent := errors.Is(err, storage.ErrNotExist)
	switch {
	case err != nil && !absent:
		return err
	case o.IfAbsent && !absent:
		return storage.ErrExist
	case o.IfVersion != "" && (absent || v.Version != o.IfVersion):
		return storage.ErrChanged
	}
	return nil
}

// add makes content the newest version of key.
func (b *Bucket) add(key string, content []byte, retain time.Time) storage.Object {
	b.puts++
	obj := storage.Object{
		Key:         key,
		Size:        int64(len(content)),
		Version:     strconv.FormatInt(b.puts, 10),
		ModTime:     time.Now().UTC().Round(0),
		RetainUntil: retain,
	}
	h := b.keys[key]
	if h == nil {
		h = &history{}
		b.keys[key] = h
		i, _ := slices.BinarySearch(b.names, key)
		b.names = slices.Insert(b.names, i, key)
	}
	h.end(obj.ModTime)
	h.versions = append(h.versions, version{storage.ObjectVersion{Object: obj}, content})
	h.hidden = false
	return obj
}

// end sets Until of the newest version, if it is not set.
func (h *history) end(now time.Time) {
	n := len(h.versions)
	if n > 0 && h.versions[n-1].Until.IsZero() {
		h.versions[n-1].Until = now
	}
}

// find returns a version of key; named "" means the newest one. The caller holds b.mu.
func (b *Bucket) find(ctx context.Context, key, named string) (version, error) {
	err := ctx.Err()
	if err != nil {
		return version{}, err
	}
	err = storage.ValidKey(key)
	if err != nil {
		return version{}, err
	}
	h := b.keys[key]
	if h == nil || named == "" && h.hidden {
		return version{}, storage.ErrNotExist
	}
	if named == "" {
		return h.versions[len(h.versions)-1], nil
	}
	i := h.index(named)
	if i < 0 {
		return version{}, fmt.Errorf("%w: version %q", storage.ErrNotExist, named)
	}
	return h.versions[i], nil
}

func (h *history) index(named string) int {
	return slices.IndexFunc(h.versions, func(v version) bool { return v.Version == named })
}

// Open implements storage.Bucket.
func (b *Bucket) Open(ctx context.Context, key string, o storage.OpenOptions) (io.ReadCloser, storage.Object, error) {
	b.mu.Lock()
	v, err := b.find(ctx, key, o.Version)
	b.mu.Unlock()
	if err == nil && (o.Offset < 0 || o.Length < 0 || o.Offset > v.Size) {
		err = fmt.Errorf("%w: offset %d, length %d of %d bytes", storage.ErrRange, o.Offset, o.Length, v.Size)
	}
	if err != nil {
		return nil, storage.Object{}, fmt.Errorf("open %q: %w", key, err)
	}
	part := v.content[o.Offset:]
	if o.Length > 0 {
		part = part[:min(o.Length, int64(len(part)))]
	}
	return io.NopCloser(&source{ctx, bytes.NewReader(part)}), v.Object, nil
}

// Stat implements storage.Bucket.
func (b *Bucket) Stat(ctx context.Context, key string) (storage.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, err := b.find(ctx, key, "")
	if err != nil {
		return storage.Object{}, fmt.Errorf("stat %q: %w", key, err)
	}
	return v.Object, nil
}

// List implements storage.Bucket.
func (b *Bucket) List(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.Object, error] {
	return func(yield func(storage.Object, error) bool) {
		for _, obj := range b.shown(o.Prefix, o.After) {
			if ctx.Err() != nil {
				break
			}
			if !yield(obj, nil) {
				return
			}
		}
		err := ctx.Err()
		if err != nil {
			yield(storage.Object{}, fmt.Errorf("list %q: %w", o.Prefix, err))
		}
	}
}

// shown returns the newest versions of the keys that are not hidden.
func (b *Bucket) shown(prefix, after string) (objects []storage.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.keysAfter(prefix, after)
	objects = make([]storage.Object, 0, len(keys))
	for _, key := range keys {
		h := b.keys[key]
		if !h.hidden {
			objects = append(objects, h.versions[len(h.versions)-1].Object)
		}
	}
	return objects
}

// keysAfter returns keys in byte order. The caller holds b.mu.
func (b *Bucket) keysAfter(prefix, after string) []string {
	from, _ := slices.BinarySearch(b.names, max(prefix, after))
	if from < len(b.names) && b.names[from] == after {
		from++
	}
	to := from
	for to < len(b.names) && strings.HasPrefix(b.names[to], prefix) {
		to++
	}
	return b.names[from:to]
}

// Versions implements storage.Versioned.
func (b *Bucket) Versions(ctx context.Context, o storage.ListOptions) iter.Seq2[storage.ObjectVersion, error] {
	return func(yield func(storage.ObjectVersion, error) bool) {
		for _, kept := range b.kept(o.Prefix, o.After) {
			if !yield(kept, nil) {
				return
			}
		}
		err := ctx.Err()
		if err != nil {
			yield(storage.ObjectVersion{}, fmt.Errorf("list versions of %q: %w", o.Prefix, err))
		}
	}
}

func (b *Bucket) kept(prefix, after string) (kept []storage.ObjectVersion) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.keysAfter(prefix, after) {
		for _, v := range b.keys[key].versions {
			kept = append(kept, v.ObjectVersion)
		}
	}
	return kept
}

// Delete implements storage.Bucket.
func (b *Bucket) Delete(ctx context.Context, key string, o storage.DeleteOptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, err := b.find(ctx, key, o.Version)
	switch {
	case errors.Is(err, storage.ErrNotExist):
		return nil
	case err == nil && time.Now().Before(v.RetainUntil):
		err = fmt.Errorf("%w until %s", storage.ErrLocked, v.RetainUntil.Format(time.RFC3339))
	}
	if err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	b.drop(key, o.Version)
	return nil
}

// drop hides key, or removes the named version. A key without versions is removed.
func (b *Bucket) drop(key, named string) {
	h := b.keys[key]
	if named == "" {
		h.hidden = true
		h.end(time.Now().UTC().Round(0))
		return
	}
	i := h.index(named)
	h.versions = slices.Delete(h.versions, i, i+1)
	switch n := len(h.versions); {
	case n == 0:
		delete(b.keys, key)
		i, _ = slices.BinarySearch(b.names, key)
		b.names = slices.Delete(b.names, i, i+1)
	case n == i && !h.hidden: // the version before it is the newest again
		h.versions[n-1].Until = time.Time{}
	}
}
