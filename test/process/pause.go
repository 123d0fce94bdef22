package process

import "time"

// Pause returns how long to wait between two looks at a condition that is awaited since start. It grows up to 5 s: a look that runs a
// command takes a quarter of a second of a core from others.
func Pause(start time.Time) time.Duration {
	return min(300*time.Millisecond+time.Since(start)/4, 5*time.Second)
}
