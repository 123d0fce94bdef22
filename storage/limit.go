package storage

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/time/rate"
)

// Limits are rates in bytes per second. Buckets may share a limiter, and then share its rate; nil means no limit.
type Limits struct {
	Up   *rate.Limiter // into the store: Put's reader
	Down *rate.Limiter // out of it: Open's stream
}

// WithLimit returns b with its streams slowed down to l.
//
// It slows down the reader of Put too. A reader that must not wait, such as the snapshot stream of a live member, needs
// a spool between the two.
func WithLimit(b Bucket, l Limits) Bucket {
	return limited{b, l}
}

type limited struct {
	Bucket
	limits Limits
}

func (l limited) Unwrap() Bucket { return l.Bucket }

func (l limited) Put(ctx context.Context, key string, r io.Reader, o PutOptions) (Object, error) {
	return l.Bucket.Put(ctx, key, withLimiter(ctx, r, l.limits.Up), o)
}

func (l limited) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	r, obj, err := l.Bucket.Open(ctx, key, o)
	if err != nil {
		return nil, obj, err
	}
	return limitedStream{withLimiter(ctx, r, l.limits.Down), r}, obj, nil
}

type limitedStream struct {
	io.Reader
	io.Closer
}

func withLimiter(ctx context.Context, r io.Reader, l *rate.Limiter) io.Reader {
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

// Read waits after reading, because only then does it know how many bytes to pay for. A failed wait replaces the
// reader's error: an io.EOF that comes with the last bytes must not commit a cancelled Put.
func (s *slow) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:s.chunk(len(p))])
	if n <= 0 {
		return n, err
	}
	werr := s.limiter.WaitN(s.ctx, n)
	if werr != nil {
		return n, fmt.Errorf("wait for the rate limit: %w", werr)
	}
	return n, err
}

// chunk returns how many of n bytes may be read at once: a limiter grants at most its burst. A limiter without a burst
// grants nothing, and returns an error when it is asked for one byte.
func (s *slow) chunk(n int) int {
	if s.limiter.Limit() == rate.Inf {
		return n
	}
	return min(n, max(1, s.limiter.Burst()))
}
