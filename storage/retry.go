package storage

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/reach"
)

// RetryPolicy limits the number and the pauses of tries.
type RetryPolicy struct {
	Attempts int           // consecutive tries without progress, including the first one; below 2 nothing is retried
	Base     time.Duration // the longest pause before the second try; it doubles from try to try
	Max      time.Duration // the longest pause of all
	// Total is the time since the start of the first try, or since the last progress, after which no failure is retried:
	// a store that does not answer fails slowly. 0: no bound.
	Total time.Duration
}

// WithRetry returns b with failed calls repeated that may succeed the next time: Stat, Delete, List (which continues
// after the last key that it has yielded) and Open (whose stream continues at the byte where it was cut, in the same
// version).
//
// Put is never retried, because its reader cannot be rewound. Errors that another try would not change are returned at
// once: this package's sentinels, and all errors once ctx has ended.
func WithRetry(b Bucket, p RetryPolicy) Bucket {
	return &retried{b, p}
}

type retried struct {
	Bucket
	policy RetryPolicy
}

func (r *retried) Unwrap() Bucket { return r.Bucket }

func (r *retried) Stat(ctx context.Context, key string) (obj Object, err error) {
	t := r.tries()
	for {
		obj, err = r.Bucket.Stat(ctx, key)
		err = t.again(ctx, err)
		if err != errAgain {
			return obj, err
		}
	}
}

func (r *retried) Delete(ctx context.Context, key string, o DeleteOptions) error {
	t := r.tries()
	for {
		err := t.again(ctx, r.Bucket.Delete(ctx, key, o))
		if err != errAgain {
			return err
		}
	}
}

func (r *retried) List(ctx context.Context, o ListOptions) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		t, o := r.tries(), o // callers may range over a sequence twice
		for {
			left, err := r.listOnce(ctx, &o, &t, yield)
			if left {
				return
			}
			err = t.again(ctx, err)
			if err == errAgain {
				continue
			}
			if err != nil {
				yield(Object{}, err)
			}
			return
		}
	}
}

// listOnce lists until the end, an error, or until the caller leaves the loop, which it reports. It advances o.After.
func (r *retried) listOnce(
	ctx context.Context, o *ListOptions, t *tries, yield func(Object, error) bool,
) (left bool, err error) {
	for obj, err := range r.Bucket.List(ctx, *o) {
		_, unlisted := errors.AsType[*UnlistedError](err)
		if unlisted {
			if !yield(obj, err) {
				return true, nil
			}
			continue
		}
		if err != nil {
			return false, err
		}
		t.progressed()
		o.After = obj.Key
		if !yield(obj, nil) {
			return true, nil
		}
	}
	return false, nil
}

// tries counts the consecutive failures of one call.
type tries struct {
	policy RetryPolicy
	failed int
	began  time.Time // time of the first try or the last progress
	last   error     // of the last failed try; nil: none has failed since the last progress
}

func (r *retried) tries() tries { return tries{policy: r.policy, began: time.Now()} }

// progressed makes the next try count as the first one.
func (t *tries) progressed() { t.failed, t.began, t.last = 0, time.Now(), nil }

// errAgain makes the caller of tries.again try again.
var errAgain = errors.New("try again")

// again returns errAgain after a pause if the call should be repeated, and otherwise the error for the caller.
func (t *tries) again(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return t.interrupted(ctx, err)
	}
	if isPermanent(err) {
		return err
	}
	t.failed++
	t.last = err
	if t.failed >= t.policy.Attempts || t.policy.Total > 0 && time.Since(t.began) > t.policy.Total {
		if t.failed > 1 {
			err = fmt.Errorf("%d tries have failed, the last one: %w", t.failed, err)
		}
		return err
	}
	pause := time.NewTimer(t.policy.Pause(t.failed))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return t.interrupted(ctx, ctx.Err())
	case <-pause.C:
		return errAgain
	}
}

// interrupted returns the error of a call whose context has ended. err is the error of the try that this has ended.
func (t *tries) interrupted(ctx context.Context, err error) error {
	_, explained := errors.AsType[*InterruptedError](err)
	if t.last == nil || explained || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return &InterruptedError{Err: err, Last: t.last}
}

// InterruptedError is the error of a call whose context ended after one or more tries had failed. It matches both errors.
type InterruptedError struct {
	Err  error // of the context
	Last error // of the last try that failed by itself
}

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("%v; the last try before that: %v", e.Err, e.Last)
}

// Unwrap returns both errors.
func (e *InterruptedError) Unwrap() []error { return []error{e.Err, e.Last} }

// lastTry returns the error of the last failed try before the interruption err, or nil if err is none.
func lastTry(err error) error {
	interrupted, ok := errors.AsType[*InterruptedError](err)
	if !ok {
		return nil
	}
	return interrupted.Last
}

// Pause returns how long to wait after that many failures in a row, counted from 1: a random duration between half and all of the
// longest pause, so that many clients do not retry in step. It keeps no state, unlike cenkalti/backoff: the S3 SDK counts the
// failures, and progress resets the count of others.
func (p RetryPolicy) Pause(failed int) time.Duration {
	longest := p.Base
	for i := 1; i < failed && longest < p.Max; i++ {
		longest *= 2
	}
	longest = min(longest, p.Max)
	return longest/2 + rand.N(longest/2+1)
}

func isPermanent(err error) bool {
	for _, sentinel := range []error{
		ErrNotExist, ErrExist, ErrChanged, ErrLocked, ErrDenied, ErrRange, ErrUnsupported, ErrUnreadable, ErrKey, ErrNoBucket, ErrNoAnswer,
		reach.ErrOwn, context.Canceled,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	// Another try does not make a certificate valid.
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted
}
