// Package retention decides which of a cluster's backups, and how much of its log, are kept. It is pure: a catalog, a policy
// and a moment give decisions with their reasons, and repository.Prune carries them out.
package retention

import (
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrPolicy: a policy cannot be used as it is.
var ErrPolicy = fault.New(fault.Usage, "bad retention policy")

// Policy says what to keep. What any of its rules keeps is kept. The zero Policy is refused: it would keep nothing.
type Policy struct {
	// Last and the rules behind it keep so many backups: the newest ones; the newest one of each of the newest hours, days,
	// weeks (from Monday), months and years that have one. Where there are fewer, the oldest backup is kept too, so that a
	// long rule has something to begin with.
	Last, Hourly, Daily, Weekly, Monthly, Yearly int
	// Within keeps all that is no older. It counts back from the newest good backup, or from now if that is earlier: where
	// backups have stopped, nothing runs out.
	Within time.Duration
	// Window keeps what it takes to restore any point between so long ago and now: all backups of that time, the newest one
	// before, and the log from there on. The log before it goes. Without it the log is kept from the oldest kept backup on.
	Window time.Duration
	// MaxSize, in bytes as stored, is what backups and log may have together. Where the rules keep more the oldest backups go,
	// but none that Window or MinCopies needs, nor any that is never removed. With no other rule all is kept that fits.
	MaxSize int64
	// MinCopies is how many good backups stay in any case.
	MinCopies int
	// Zone is where days begin; nil is UTC.
	Zone *time.Location
}

// Validate says what is wrong with p, if anything is. Errors match ErrPolicy.
func (p Policy) Validate() error {
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"last", int64(p.Last)}, {"hourly", int64(p.Hourly)}, {"daily", int64(p.Daily)}, {"weekly", int64(p.Weekly)},
		{"monthly", int64(p.Monthly)}, {"yearly", int64(p.Yearly)}, {"within", int64(p.Within)}, {"window", int64(p.Window)},
		{"max size", p.MaxSize}, {"min copies", int64(p.MinCopies)},
	} {
		if n.value < 0 {
			return fmt.Errorf("%w: %s is below zero", ErrPolicy, n.name)
		}
	}
	if !p.hasRules() && p.MaxSize == 0 {
		return fmt.Errorf("%w: it keeps nothing: say how many backups to keep, for how long, or up to which size", ErrPolicy)
	}
	return nil
}

// hasRules: something is kept for its age or its place.
func (p Policy) hasRules() bool {
	return p.Last+p.Hourly+p.Daily+p.Weekly+p.Monthly+p.Yearly > 0 || p.Within > 0 || p.Window > 0
}

func (p Policy) zone() *time.Location {
	if p.Zone == nil {
		return time.UTC
	}
	return p.Zone
}
