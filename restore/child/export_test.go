package child

import (
	"testing"
	"time"
)

// Hasten shortens how long a child that is to end is waited for.
func Hasten(t *testing.T) {
	polite, longest := politeTime, longestEnd
	politeTime, longestEnd = 100*time.Millisecond, time.Second
	t.Cleanup(func() { politeTime, longestEnd = polite, longest })
}
