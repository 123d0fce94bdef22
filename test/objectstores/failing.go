package objectstores

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
)

// FailingTransport fails one selected request, or all that match, with a connection reset: before the server receives
// it, or after the server has executed it so that only the answer is lost. All others go to Base. It is safe for
// concurrent use; the fields must not change during use.
type FailingTransport struct {
	Base  http.RoundTripper
	Match func(*http.Request) bool
	Nth   int64 // which of the matching requests, from 1; 0: every one
	// AfterAnswer waits for the server's answer and drops it.
	AfterAnswer bool

	matched atomic.Int64
	failed  atomic.Int64
}

// Failed returns the number of failed requests.
func (f *FailingTransport) Failed() int {
	return int(f.failed.Load())
}

// RoundTrip implements http.RoundTripper. Its error is a syscall.ECONNRESET, which the SDKs retry.
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

// throwAway reads the answer to its end, so that the server has finished the request.
func (f *FailingTransport) throwAway(r *http.Request) error {
	response, err := f.Base.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}
