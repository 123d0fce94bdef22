package storagetest

import (
	"context"
	"errors"
	"io"
)

var errBroken = errors.New("the source is broken")

// source yields data and then err, in a Read of its own or together with the last bytes.
type source struct {
	data     []byte
	err      error
	together bool
	before   func() // called before err is returned
}

func (s *source) Read(p []byte) (int, error) {
	n := copy(p, s.data)
	s.data = s.data[n:]
	if len(s.data) > 0 || n > 0 && !s.together {
		return n, nil
	}
	if s.before != nil {
		s.before()
	}
	return n, s.err
}

// passing calls hook once, after at bytes, and continues.
type passing struct {
	r    io.Reader
	at   int
	hook func()
}

func (s *passing) Read(p []byte) (int, error) {
	if s.at == 0 && s.hook != nil {
		s.hook()
		s.hook = nil
	}
	if s.at > 0 {
		p = p[:min(len(p), s.at)]
	}
	n, err := s.r.Read(p)
	s.at -= min(n, s.at)
	return n, err
}

// endless yields more than any Put may read ahead, and then fails, so that a Put that ignores its cancellation ends.
type endless struct{ left int }

func (s *endless) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, errBroken
	}
	s.left -= len(p)
	clear(p)
	return len(p), nil
}

// stuck yields data, closes at, and hangs until ctx ends.
type stuck struct {
	ctx  context.Context
	data []byte
	at   chan struct{} // closed after data
}

func newStuck(ctx context.Context, data []byte) *stuck {
	return &stuck{ctx: ctx, data: data, at: make(chan struct{})}
}

func (s *stuck) Read(p []byte) (int, error) {
	n := copy(p, s.data)
	s.data = s.data[n:]
	if n > 0 {
		return n, nil
	}
	close(s.at)
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// idle returns 0, nil before each read that yields bytes.
type idle struct {
	r    io.Reader
	busy bool
}

func (s *idle) Read(p []byte) (int, error) {
	s.busy = !s.busy
	if s.busy {
		return 0, nil
	}
	return s.r.Read(p)
}

// owned counts its Reads and Closes.
type owned struct {
	r             io.Reader
	reads, closes int
}

func (s *owned) Read(p []byte) (int, error) {
	s.reads++
	return s.r.Read(p)
}

func (s *owned) Close() error {
	s.closes++
	return nil
}
