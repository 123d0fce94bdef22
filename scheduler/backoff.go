package scheduler

import (
	"fmt"
	"time"
)

// How long to wait after a try that failed.
const (
	firstWait      = 15 * time.Second
	lastBackupWait = 30 * time.Minute
	lastDrillWait  = 12 * time.Hour // each try that cannot run leaves a proof of that
	mostDoublings  = 20             // 15 s, doubled so often, is past any last wait
)

// backoff is how long to wait after the nth try in a row that failed, from 1: twice as long each time, up to last, and off
// by up to a fifth, as seed decides, so that what failed together does not come back together.
func backoff(n int, last time.Duration, seed string) time.Duration {
	wait := min(last, firstWait<<min(max(n-1, 0), mostDoublings))
	fifth := uint64(wait / 5)
	return wait - time.Duration(hash(fmt.Sprint(seed, "/", n))%fifth)
}
