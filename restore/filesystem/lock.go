package filesystem

import (
	"errors"
	"time"
)

const lockPause = 50 * time.Millisecond

// TryLock calls try until its error does not match taken, for about patience, and returns the last error. Another process may hold a lock
// for a moment only: one that does something short, or a process that a killed holder has started, until that executes its program.
func TryLock(patience time.Duration, taken error, try func() error) error {
	for began := time.Now(); ; time.Sleep(lockPause) {
		err := try()
		if !errors.Is(err, taken) || time.Since(began) >= patience {
			return err
		}
	}
}
