package catalog

import "time"

// The clocks of hosts differ. The two allowances for that are not one, because they err to different sides: a larger ClockAllowance
// could take a backup for a base of another history, since a restore in place can follow it within minutes. A smaller
// FutureAllowance would ignore good backups of a host whose clock is a little ahead.
const (
	// ClockAllowance is the tolerated difference between the clocks of the hosts that take backups and those that archive the log.
	ClockAllowance = 5 * time.Minute
	// FutureAllowance is how far a stored time may be ahead of the reader's clock. A later time comes from a wrong clock, or is
	// forged.
	FutureAllowance = 10 * time.Minute
)

// IsFuture reports whether t is more than FutureAllowance after now.
func IsFuture(t, now time.Time) bool { return t.After(now.Add(FutureAllowance)) }
