package storage

import (
	"context"
	"io"
	"iter"
	"sync"
)

// Verb is one of the five methods of a Bucket.
type Verb string

// The verbs.
const (
	VerbPut    Verb = "put"
	VerbOpen   Verb = "open"
	VerbStat   Verb = "stat"
	VerbList   Verb = "list"
	VerbDelete Verb = "delete"
)

// Usage is one finished call. A call of Open is finished when its stream is closed, and one of List when the caller has
// left the loop.
type Usage struct {
	Verb Verb
	In   int64 // bytes that went into the store, from Put's reader
	Out  int64 // bytes that came out of it, from Open's stream
	Err  error // the error that ended the call or its stream early
}

// WithMeter returns b with used called after each finished call. The goroutines that make the calls also call used,
// several at a time.
func WithMeter(b Bucket, used func(Usage)) Bucket {
	return &metered{b, used}
}

type metered struct {
	b    Bucket
	used func(Usage)
}

func (m *metered) Unwrap() Bucket { return m.b }

func (m *metered) Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error) {
	c := counted{r: r}
	obj, err := m.b.Put(ctx, key, &c, o)
	m.used(Usage{Verb: VerbPut, In: c.n, Err: err})
	return obj, err
}

func (m *metered) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	r, obj, err := m.b.Open(ctx, key, o)
	if err != nil {
		m.used(Usage{Verb: VerbOpen, Err: err})
		return nil, obj, err
	}
	return &meteredStream{counted: counted{r: r}, close: r, used: m.used}, obj, nil
}

func (m *metered) Stat(ctx context.Context, key string) (Object, error) {
	obj, err := m.b.Stat(ctx, key)
	m.used(Usage{Verb: VerbStat, Err: err})
	return obj, err
}

func (m *metered) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		u := Usage{Verb: VerbList}
		defer func() { m.used(u) }()
		for obj, err := range m.b.List(ctx, o) {
			u.Err = err
			if !yield(obj, err) {
				return
			}
		}
	}
}

func (m *metered) Delete(ctx context.Context, key string, o DeleteOptions) error {
	err := m.b.Delete(ctx, key, o)
	m.used(Usage{Verb: VerbDelete, Err: err})
	return err
}

// counted counts the bytes read and keeps the error that ended the reading.
type counted struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

type meteredStream struct {
	counted
	close io.Closer
	used  func(Usage)
	once  sync.Once // a stream that is closed twice is one call
}

func (s *meteredStream) Close() error {
	err := s.close.Close()
	s.once.Do(func() {
		if s.err == nil {
			s.err = err
		}
		s.used(Usage{Verb: VerbOpen, Out: s.n, Err: s.err})
	})
	return err
}
