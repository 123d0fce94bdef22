package storage

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// Loan is the body of a request, read from a buffer that is used again when the request has ended: see Upload.Part. An
// HTTP client may still be at it then, and would send what the buffer holds next; after End it gets an error.
type Loan struct {
	mu sync.Mutex
	r  *bytes.Reader // nil: given back
}

var _ io.ReadSeekCloser = (*Loan)(nil)

// ErrEnded: the request that a Loan was for has ended.
var ErrEnded = errors.New("the request has ended")

// Lend makes a Loan of p.
func Lend(p []byte) *Loan { return &Loan{r: bytes.NewReader(p)} }

// End gives the buffer back. It waits for a Read that is going on.
func (l *Loan) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r = nil
}

func (l *Loan) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return 0, ErrEnded
	}
	return l.r.Read(p)
}

// Seek is for a client that sends the body once more.
func (l *Loan) Seek(offset int64, whence int) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return 0, ErrEnded
	}
	return l.r.Seek(offset, whence)
}

// Close does nothing: clients close a body when they like.
func (l *Loan) Close() error { return nil }
