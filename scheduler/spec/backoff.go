package spec

import (
	"fmt"
	"time"
)

// FirstWait is the wait of Backoff after a first failure.
const FirstWait = 15 * time.Second

const mostDoublings = 20 // after so many, FirstWait has grown beyond any longest wait

// Backoff returns how long to wait after the nth failure in a row, counted from 1. The wait doubles each time up to
// longest, and is shorter by up to a fifth, which seed determines: clusters that failed together do not retry together.
// Libraries such as cenkalti/backoff keep state and draw random numbers, which a pure package must not.
func Backoff(n int, longest time.Duration, seed string) time.Duration {
	wait := min(longest, FirstWait<<min(max(n-1, 0), mostDoublings))
	fifth := uint64(wait / 5)
	return wait - time.Duration(Hash(fmt.Sprint(seed, "/", n))%fifth)
}

// Retry returns when to try again after the nth failure in a row, and the number of failures in the row by then. If a slot
// of s comes first, the next try is at the slot, and a new row begins: failures is 0.
func (s Schedule) Retry(n int, longest time.Duration, seed string, now time.Time) (again time.Time, failures int) {
	again = now.Add(Backoff(n, longest, seed))
	slot := s.Next(now)
	if slot.IsZero() || slot.After(again) {
		return again, n
	}
	return now.Add(slot.Sub(now)), 0 // keeps the monotonic clock of now: the wall clock may be set back
}
