package scheduler

import (
	"fmt"
	"time"
)

// How long to wait after a try that failed.
const (
	firstWait = 15 * time.Second
	lastWait  = 30 * time.Minute
)

// backoff is how long to wait after the nth try in a row that failed, from 1: twice as long each time, and off by up to a
// fifth, as seed decides, so that what failed together does not come back together.
func backoff(n int, seed string) time.Duration {
	wait := lastWait
	if n < 8 { // 15 s, seven times doubled, is past the last
		wait = min(lastWait, firstWait<<max(n-1, 0))
	}
	fifth := uint64(wait / 5)
	return wait - time.Duration(hash(fmt.Sprint(seed, "/", n))%fifth)
}
