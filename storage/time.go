package storage

import "time"

// Later returns the later of two times, a if they are equal.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
