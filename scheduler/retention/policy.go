// Package retention decides which of a cluster's backups, and how much of its log, are kept. It is pure: it maps a catalog, a
// policy and a time to decisions with reasons, which the caller carries out.
package retention

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrPolicy reports a policy that cannot be used.
var ErrPolicy = fault.New(fault.Usage, "bad retention policy")

// Policy holds rules. A backup that any rule keeps is kept. The zero Policy is refused: it would keep nothing.
type Policy struct {
	// Last keeps the newest backups. The next rules keep the newest backup of each of the newest hours, days, weeks (from
	// Monday), months and years that have one. If there are fewer than the rule asks for, it also keeps the oldest
	// backup, which a yearly rule, for example, needs while it has no backup of an earlier year.
	Last, Hourly, Daily, Weekly, Monthly, Yearly int
	// Within keeps backups that are younger than it. Ages are counted back from the start of the newest good backup, or from now if now
	// is earlier: if backups stop, none expires.
	Within time.Duration
	// Window keeps everything that is needed to restore any point of the last Window before the newest good state: all backups of that
	// time, the newest backup before it, and the log from that backup on. Earlier log goes. If Window is 0, the log is kept from the
	// oldest kept backup on.
	Window time.Duration
	// MaxSize bounds the stored bytes of backups and log together. If the rules keep more, the oldest backups go, except
	// those that Window or MinCopies needs and those that Plan never removes. Without another rule everything that fits is kept.
	MaxSize int64
	// MinCopies is the number of newest good backups that stay in any case.
	MinCopies int
	// Zone is the time zone of the slots; nil: UTC.
	Zone *time.Location
}

// Validate returns the first fault of p, or nil. Errors match ErrPolicy.
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
			return fmt.Errorf("%w: %s is negative: use 0 or more", ErrPolicy, n.name)
		}
	}
	if !p.hasRules() && p.MaxSize == 0 {
		return fmt.Errorf("%w: it keeps nothing: set a number of backups, a time, or a size", ErrPolicy)
	}
	return nil
}

// hasRules reports whether a rule keeps backups by their number or age.
func (p Policy) hasRules() bool {
	return p.Within > 0 || p.Window > 0 || slices.ContainsFunc(p.slotRules(), func(r slotRule) bool { return r.n > 0 })
}

func (p Policy) zone() *time.Location {
	if p.Zone == nil {
		return time.UTC
	}
	return p.Zone
}
