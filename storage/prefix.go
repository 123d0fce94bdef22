package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// WithPrefix returns the keys of b that start with prefix, without the prefix. Errors name the keys of b. A prefix
// without a "/" at the end gets one, or cluster1 would include cluster10. An empty prefix returns b. With a prefix that
// no key can have, every call fails with ErrKey.
//
// The result is a Sweeper if b contains one. Its pieces have the names that b gives them.
func WithPrefix(b Bucket, prefix string) Bucket {
	if prefix == "" {
		return b
	}
	p := prefixed{b: b, prefix: strings.TrimSuffix(prefix, "/") + "/"}
	s, ok := AsSweeper(b)
	if ok {
		return prefixedSweeper{p, s}
	}
	return p
}

// prefixed has no Unwrap: the bucket below has other keys.
type prefixed struct {
	b      Bucket
	prefix string
}

// key checks key before it adds the prefix: a store that cleans paths must not get "a" + "/" + "../b".
func (p prefixed) key(key string) (string, error) {
	err := ValidKey(key)
	if err != nil {
		return "", err
	}
	return p.prefix + key, ValidKey(p.prefix + key)
}

func (p prefixed) object(obj Object, err error) (Object, error) {
	obj.Key = strings.TrimPrefix(obj.Key, p.prefix)
	return obj, err
}

func (p prefixed) Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error) {
	full, err := p.key(key)
	if err != nil {
		return Object{}, fmt.Errorf("put: %w", err)
	}
	return p.object(p.b.Put(ctx, full, r, o))
}

func (p prefixed) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	full, err := p.key(key)
	if err != nil {
		return nil, Object{}, fmt.Errorf("open: %w", err)
	}
	r, obj, err := p.b.Open(ctx, full, o)
	obj, err = p.object(obj, err)
	return r, obj, err
}

func (p prefixed) Stat(ctx context.Context, key string) (Object, error) {
	full, err := p.key(key)
	if err != nil {
		return Object{}, fmt.Errorf("stat: %w", err)
	}
	return p.object(p.b.Stat(ctx, full))
}

func (p prefixed) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	o.Prefix = p.prefix + o.Prefix
	if o.After != "" {
		o.After = p.prefix + o.After
	}
	return func(yield func(Object, error) bool) {
		err := ValidKey(p.prefix + "x")
		if err != nil {
			yield(Object{}, fmt.Errorf("list: %w", err))
			return
		}
		for obj, err := range p.b.List(ctx, o) {
			u, ok := errors.AsType[*UnlistedError](err)
			if ok {
				err = &UnlistedError{strings.TrimPrefix(u.Prefix, p.prefix), u.Err}
			}
			if !yield(p.object(obj, err)) {
				return
			}
		}
	}
}

func (p prefixed) Delete(ctx context.Context, key string, o DeleteOptions) error {
	full, err := p.key(key)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return p.b.Delete(ctx, full, o)
}

type prefixedSweeper struct {
	prefixed
	sweeper Sweeper
}

func (p prefixedSweeper) Leftovers(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return p.sweeper.Leftovers(ctx, p.prefix+prefix)
}

func (p prefixedSweeper) Sweep(ctx context.Context, piece Object) error {
	return p.sweeper.Sweep(ctx, piece)
}
