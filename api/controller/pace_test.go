package controller

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPace checks that no minute has more than five writes, that a write that is not urgent follows the one before by twelve seconds, and
// that an urgent one waits for nothing but the minute.
func TestPace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1e9, 0)
		var p pace
		var writes []time.Time
		for range 50 {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second)
			urgent := rapid.Bool().Draw(t, "urgent")
			wait := p.wait(now, urgent)
			full := len(writes) >= 5 && now.Sub(writes[len(writes)-5]) < time.Minute
			recent := len(writes) > 0 && now.Sub(writes[len(writes)-1]) < 12*time.Second
			if wait < 0 || wait > time.Minute || (wait > 0) != (full || recent && !urgent) {
				t.Fatalf("wait %s after the writes %v at %v; urgent: %v", wait, writes, now, urgent)
			}
			now = now.Add(wait)
			if p.wait(now, urgent) > 0 {
				t.Fatalf("a wait of %s does not suffice", wait)
			}
			p = p.after(now)
			writes = append(writes, now)
		}
		for i := range writes[5:] {
			if writes[i+5].Sub(writes[i]) < time.Minute {
				t.Fatalf("six writes within a minute: %v", writes[i:i+6])
			}
		}
	})
}
