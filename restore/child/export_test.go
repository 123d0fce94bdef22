package child

import (
	"testing"
	"time"
)

// Hasten shortens the limits on a child's end.
func Hasten(t *testing.T) {
	polite, longest := politeTime, longestEnd
	politeTime, longestEnd = 100*time.Millisecond, time.Second
	t.Cleanup(func() { politeTime, longestEnd = polite, longest })
}
