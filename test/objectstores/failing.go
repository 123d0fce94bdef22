package objectstores

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
)

// FailingTransport fails one request of its choice, or all that match, as a connection does that is reset: before the
// server hears of it, or when the server has done it and only the answer is lost. All others go to Base. Safe for
// concurrent use; the fields stay as they are while it is used.
type FailingTransport struct {
	Base  http.RoundTripper
	Match func(*http.Request) bool
	Nth   int64 // which of those that match, from 1; 0: every one
	// AfterAnswer waits for the server's answer and throws it away.
	AfterAnswer bool

	matched atomic.Int64
	failed  atomic.Int64
}

// Failed is how many requests were failed.
func (f *FailingTransport) Failed() int {
	return int(f.failed.Load())
}

// RoundTrip implements http.RoundTripper. Its failure is a syscall.ECONNRESET, which the SDKs take for worth another
// try.
func (f *FailingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.Match(r) || !f.isTurn(f.matched.Add(1)) {
		return f.Base.RoundTrip(r)
	}
	f.failed.Add(1)
	lost := fmt.Errorf("failed on purpose: %s %s: %w", r.Method, r.URL.Path, syscall.ECONNRESET)
	if f.AfterAnswer {
		return nil, errors.Join(lost, f.throwAway(r))
	}
	if r.Body != nil {
		return nil, errors.Join(lost, r.Body.Close())
	}
	return nil, lost
}

func (f *FailingTransport) isTurn(n int64) bool {
	return f.Nth == 0 || f.Nth == n
}

// throwAway reads the answer to its end: what the server does while it still answers must be done.
func (f *FailingTransport) throwAway(r *http.Request) error {
	response, err := f.Base.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}
