package controller

import "time"

const (
	statusAfter  = 12 * time.Second // between two writes of a status that are not urgent
	statusMinute = 5                // writes of a status in a minute, also urgent ones
)

// pace is when the API server was last asked to write a status, at most statusMinute times, the oldest first. Requests that it refused
// count: after an outage the cache is behind for some seconds, and each write is a conflict.
type pace []time.Time

// wait returns how long to wait before the next write. Urgent writes wait only if there were many in the last minute.
func (p pace) wait(now time.Time, urgent bool) time.Duration {
	var wait time.Duration
	if len(p) == statusMinute {
		wait = p[0].Add(time.Minute).Sub(now)
	}
	if len(p) > 0 && !urgent {
		wait = max(wait, p[len(p)-1].Add(statusAfter).Sub(now))
	}
	return max(wait, 0)
}

// after returns the pace after a write.
func (p pace) after(now time.Time) pace {
	if len(p) == statusMinute {
		p = p[1:]
	}
	return append(p[:len(p):len(p)], now)
}
