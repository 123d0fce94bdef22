package storage

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/time/rate"
)

// Limits are how many bytes a second may pass. A limiter may be shared between Buckets, which then share its rate; nil
// is no limit.
type Limits struct {
	Up   *rate.Limiter // into the store: what Put reads
	Down *rate.Limiter // out of it: what is read from Open's stream
}

// WithLimit slows the streams of b down to l.
//
// It slows the reader that is given to Put too: one that must not wait, such as the snapshot stream of a live member,
// needs a spool before it.
func WithLimit(b Bucket, l Limits) Bucket {
	return limited{b, l}
}

type limited struct {
	Bucket
	limits Limits
}

func (l limited) Unwrap() Bucket { return l.Bucket }

func (l limited) Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error) {
	return l.Bucket.Put(ctx, key, slowed(ctx, r, l.limits.Up), o)
}

func (l limited) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	r, obj, err := l.Bucket.Open(ctx, key, o)
	if err != nil {
		return nil, obj, err
	}
	return limitedStream{slowed(ctx, r, l.limits.Down), r}, obj, nil
}

type limitedStream struct {
	io.Reader
	io.Closer
}

func slowed(ctx context.Context, r io.Reader, l *rate.Limiter) io.Reader {
	if l == nil {
		return r
	}
	return &slow{ctx, r, l}
}

type slow struct {
	ctx     context.Context
	r       io.Reader
	limiter *rate.Limiter
}

// Read waits after it has read, for only then it knows how many bytes it must pay for. A wait that fails replaces the
// error of the reader: an io.EOF that comes with the last bytes must not commit a Put that was cancelled.
func (s *slow) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:s.chunk(len(p))])
	if n <= 0 {
		return n, err
	}
	if werr := s.limiter.WaitN(s.ctx, n); werr != nil {
		return n, fmt.Errorf("wait for the rate limit: %w", werr)
	}
	return n, err
}

// chunk is how much may be read at once: no limiter grants more than its burst. One without a burst grants nothing, and
// says so when it is asked for one byte.
func (s *slow) chunk(n int) int {
	if s.limiter.Limit() == rate.Inf {
		return n
	}
	return min(n, max(1, s.limiter.Burst()))
}
