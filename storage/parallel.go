package storage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
)

// WithParallel returns a Bucket that reads from b. A read of more than size bytes takes up to n concurrent requests, each
// for the next size bytes of the version that was opened. If the store has no versions, one request reads everything. A
// stream uses up to (n+1) × size bytes of memory. With n below 2 the result is b itself.
func WithParallel(b Bucket, n int, size int64) Bucket {
	if n < 2 {
		return b
	}
	return &parallel{b, n, size}
}

type parallel struct {
	Bucket
	n    int
	size int64
}

func (p *parallel) Unwrap() Bucket { return p.Bucket }

func (p *parallel) Open(ctx context.Context, key string, o OpenOptions) (io.ReadCloser, Object, error) {
	head := o
	if o.Length == 0 || o.Length > p.size {
		head.Length = p.size
	}
	first, obj, err := p.Bucket.Open(ctx, key, head)
	if err != nil {
		return nil, obj, err
	}
	end := obj.Size
	if o.Length > 0 {
		end = min(end, o.Offset+o.Length)
	}
	if o.Offset+head.Length >= end {
		return first, obj, nil
	}
	if obj.Version == "" { // the ranges might belong to different objects
		first.Close()
		return p.Bucket.Open(ctx, key, o)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &parallelStream{
		parallel: p, key: key, version: obj.Version,
		Reader: first, first: first, queue: make(chan chan piece, p.n-1), free: make(chan []byte, p.n+1), cancel: cancel,
	}
	s.fetchers.Go(func() { s.fetchAll(ctx, o.Offset+head.Length, end) })
	return s, obj, nil
}

// piece is the content of one range, or the error of its request.
type piece struct {
	data []byte
	err  error
}

// parallelStream yields the ranges in order.
type parallelStream struct {
	*parallel
	key, version string

	io.Reader                 // the current range
	current   []byte          // its buffer; nil for the first one
	first     io.Closer       // the stream of the first range
	queue     chan chan piece // the requested ranges in order; closed after the last one
	broken    error           // the reason if queue was closed early; set before it is closed
	free      chan []byte     // buffers for reuse
	cancel    context.CancelFunc
	fetchers  sync.WaitGroup
	err       error
}

// fetchAll starts the requests, as many at a time as the queue has room for.
func (s *parallelStream) fetchAll(ctx context.Context, begin, end int64) {
	defer close(s.queue)
	for offset := begin; offset < end; offset += s.size {
		result := make(chan piece, 1)
		select {
		case s.queue <- result:
		case <-ctx.Done():
			s.broken = fmt.Errorf("read %q: %w", s.key, context.Cause(ctx))
			return
		}
		s.fetchers.Go(func() { result <- s.fetch(ctx, offset, min(s.size, end-offset)) })
	}
}

func (s *parallelStream) fetch(ctx context.Context, offset, length int64) piece {
	r, _, err := s.Bucket.Open(ctx, s.key, OpenOptions{Offset: offset, Length: length, Version: s.version})
	if err != nil {
		return piece{err: err}
	}
	defer r.Close()
	data := s.buffer()[:length]
	_, err = io.ReadFull(r, data)
	if err != nil {
		return piece{err: fmt.Errorf("read %q from byte %d on: %w", s.key, offset, notEOF(err))}
	}
	return piece{data: data}
}

// notEOF converts io.EOF, so that a short range does not look like the end of the object.
func notEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (s *parallelStream) buffer() []byte {
	select {
	case buffer := <-s.free:
		return buffer
	default:
		return make([]byte, s.size)
	}
}

func (s *parallelStream) Read(p []byte) (int, error) {
	for s.err == nil {
		n, err := s.Reader.Read(p)
		if err == io.EOF {
			s.err = s.next()
			err = nil
		}
		if err != nil {
			s.err = err
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, s.err
}

// next switches to the next range. It returns io.EOF if there is none.
func (s *parallelStream) next() error {
	if s.current != nil {
		s.free <- s.current[:cap(s.current)]
		s.current = nil
	}
	result, ok := <-s.queue
	if !ok && s.broken != nil {
		return s.broken
	}
	if !ok {
		return io.EOF
	}
	got := <-result
	if got.err != nil {
		return got.err
	}
	s.current = got.data
	s.Reader = bytes.NewReader(got.data)
	return nil
}

// Close cancels the requests and waits for their goroutines.
func (s *parallelStream) Close() error {
	s.cancel()
	s.fetchers.Wait()
	return s.first.Close()
}
