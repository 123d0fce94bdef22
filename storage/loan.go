package storage

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// Loan is the body of a request, read from a buffer that is reused after the request: see Upload.Part. An HTTP client
// may still read the body then, and would send the buffer's next content. After End it gets an error.
type Loan struct {
	mu sync.Mutex
	r  *bytes.Reader // nil after End
}

var _ io.ReadSeekCloser = (*Loan)(nil)

// ErrEnded means that a Loan's request has ended.
var ErrEnded = errors.New("the request has ended")

// Lend returns a Loan of p.
func Lend(p []byte) *Loan { return &Loan{r: bytes.NewReader(p)} }

// End takes the buffer back. It waits for a Read in progress.
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

// Seek serves clients that send the body again.
func (l *Loan) Seek(offset int64, whence int) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return 0, ErrEnded
	}
	return l.r.Seek(offset, whence)
}

// Close does nothing: clients close a body at any time.
func (l *Loan) Close() error { return nil }
