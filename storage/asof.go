package storage

import (
	"context"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"
)

// Versioned is a Bucket that keeps replaced and deleted objects.
type Versioned interface {
	// Versions yields every version of every key that starts with o.Prefix and is greater than o.After, in byte order
	// of the keys. The versions of one key come in any order.
	Versions(ctx context.Context, o ListOptions) iter.Seq2[ObjectVersion, error]
}

// ObjectVersion is one version and the interval in which it was the newest version of its key.
type ObjectVersion struct {
	Object           // ModTime is the start of the interval
	Until  time.Time // when it was replaced or deleted; zero if it never was or the store does not report it
}

// at reports whether a reader saw this version at t.
func (k ObjectVersion) at(t time.Time) bool {
	return !k.ModTime.After(t) && (k.Until.IsZero() || k.Until.After(t))
}

// AsOf returns b as it was at t, by the store's clock. The result is read-only: Put and Delete return ErrUnsupported.
// AsOf returns ErrUnsupported if the store keeps no versions. A store whose versioning is off shows the objects that
// still exist. b may have decorators that do not change keys (those with an Unwrap method); reads pass through them.
func AsOf(b Bucket, t time.Time) (Bucket, error) {
	v, ok := asVersioned(b)
	if !ok {
		return nil, fmt.Errorf("%w: it keeps no versions: its state at %s is unknown", ErrUnsupported, t.Format(time.RFC3339))
	}
	return &past{b: b, versions: v, t: t, seen: map[string]Object{}}, nil
}

func asVersioned(b Bucket) (Versioned, bool) {
	for {
		v, ok := b.(Versioned)
		if ok {
			return v, true
		}
		u, ok := b.(interface{ Unwrap() Bucket })
		if !ok {
			return nil, false
		}
		b = u.Unwrap()
	}
}

type past struct {
	b        Bucket
	versions Versioned
	t        time.Time

	mu sync.Mutex
	// seen caches listed objects, to save Open a listing; guarded by mu. The past does not change, but a version may be
	// deleted for good, and then Open returns an error.
	seen map[string]Object
}

func (p *past) Put(_ context.Context, key string, _ io.Reader, _ PutOptions) (Object, error) {
	return Object{}, p.readOnly("put", key)
}

func (p *past) Delete(_ context.Context, key string, _ DeleteOptions) error {
	return p.readOnly("delete", key)
}

func (p *past) readOnly(verb, key string) error {
	return fmt.Errorf("%s %q: %w: this is the store as of %s, read-only", verb, key, ErrUnsupported, p.t.Format(time.RFC3339))
}

func (p *past) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	if o.Version == "" {
		obj, err := p.Stat(ctx, key)
		if err != nil {
			return nil, Object{}, err
		}
		o.Version = obj.Version
	}
	return p.b.Open(ctx, key, o)
}

func (p *past) Stat(ctx context.Context, key string) (Object, error) {
	err := ValidKey(key)
	if err != nil {
		return Object{}, fmt.Errorf("stat: %w", err)
	}
	obj, ok := p.cached(key)
	if ok {
		return obj, nil
	}
	for obj, err := range p.List(ctx, ListOptions{Prefix: key}) {
		if err != nil {
			return Object{}, err
		}
		if obj.Key == key {
			return obj, nil
		}
		break // the key itself sorts before the keys that it is a prefix of
	}
	return Object{}, fmt.Errorf("stat %q as of %s: %w", key, p.t.Format(time.RFC3339), ErrNotExist)
}

func (p *past) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var newest Object // of the current key
		for kept, err := range p.versions.Versions(ctx, o) {
			if err != nil {
				yield(Object{}, err)
				return
			}
			if newest.Key != "" && kept.Key != newest.Key {
				if !p.show(newest, yield) {
					return
				}
				newest = Object{}
			}
			if kept.at(p.t) && !kept.ModTime.Before(newest.ModTime) {
				newest = kept.Object
			}
		}
		if newest.Key != "" {
			p.show(newest, yield)
		}
	}
}

func (p *past) show(obj Object, yield func(Object, error) bool) bool {
	p.mu.Lock()
	p.seen[obj.Key] = obj
	p.mu.Unlock()
	return yield(obj, nil)
}

func (p *past) cached(key string) (Object, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	obj, ok := p.seen[key]
	return obj, ok
}
