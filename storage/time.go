package storage

import (
	"context"
	"time"
)

// Later returns the later of two times, a if they are equal.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Sleep waits for d. It returns the cause of the end of ctx if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
