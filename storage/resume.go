package storage

import (
	"context"
	"fmt"
	"io"
)

func (r *retried) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	t := r.tries()
	for {
		stream, obj, err := r.Bucket.Open(ctx, key, o)
		err = t.again(ctx, err)
		if err == errAgain {
			continue
		}
		if err != nil {
			return nil, obj, err
		}
		o.Version = obj.Version
		left := obj.Size - o.Offset
		if o.Length > 0 {
			left = min(left, o.Length)
		}
		return &retriedStream{ctx: ctx, r: r, key: key, next: o, left: left, stream: stream, tries: t}, obj, nil
	}
}

// retriedStream is a stream of WithRetry. After a cut it opens the rest of its range.
type retriedStream struct {
	ctx    context.Context
	r      *retried
	key    string
	next   OpenOptions // the rest; its Version is the opened one
	left   int64       // bytes of the rest
	stream io.ReadCloser
	tries  tries
	err    error // the error that ended the stream
}

func (s *retriedStream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	for {
		n, err := s.stream.Read(p)
		s.left -= int64(n)
		s.next.Offset += int64(n)
		if n > 0 {
			s.tries.progressed()
		}
		if err == nil {
			return n, nil
		}
		s.err = s.resume(err)
		if n > 0 || s.err != nil {
			return n, s.err
		}
	}
}

// resume opens the rest, or returns the error that ends the stream.
func (s *retriedStream) resume(err error) error {
	// An error in place of io.EOF is no cut: the store rejects the bytes that it has already sent. And without a
	// version the rest might belong to another object.
	if err == io.EOF || s.left <= 0 || s.next.Version == "" {
		return err
	}
	if s.next.Length > 0 {
		s.next.Length = s.left
	}
	for {
		err = s.tries.again(s.ctx, err)
		if err != errAgain {
			return fmt.Errorf("read %q at byte %d: %w", s.key, s.next.Offset, err)
		}
		var stream io.ReadCloser
		stream, _, err = s.r.Bucket.Open(s.ctx, s.key, s.next)
		if err == nil {
			s.stream.Close() // it is broken, so its error does not matter
			s.stream = stream
			return nil
		}
	}
}

func (s *retriedStream) Close() error { return s.stream.Close() }
