package spec

import (
	"fmt"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// The labels that record why a backup was taken. Configured labels must not use these names.
const (
	LabelSlot    = "schedule" // the slot, in RFC 3339
	LabelTrigger = "trigger"  // the trigger's text, or the reason of a request
	LabelArchive = "archive"  // why the log needed a backup
)

// NextBackup returns when the schedule makes the backup after last due; the zero Time: never. If last is zero and there is a
// schedule or a trigger, a backup is due now. Of several missed slots only the first counts, so one backup catches up.
func (s Spec) NextBackup(last condition.Last, now time.Time) time.Time {
	if last.Started.IsZero() && !(s.Schedule.None() && s.Triggers.None()) {
		return now
	}
	return s.Schedule.Next(last.Started)
}

// NextDrill returns when the drill after last is due; the zero Time: never. If last is zero, a drill is due now.
func (d Drill) NextDrill(last, now time.Time) time.Time {
	if d.Schedule.None() {
		return time.Time{}
	}
	if last.IsZero() {
		return now
	}
	return d.Schedule.Next(last)
}

// Triggers make a backup due in addition to the schedule. The zero Triggers never do.
type Triggers struct {
	Revisions int64         // since the last backup; 0: does not trigger
	Bytes     int64         // of log archived since the last backup; 0: does not trigger
	Gap       bool          // a gap in the archived log that ends after the last backup began
	Every     time.Duration // between two checks of the triggers
}

// None reports whether no trigger is set.
func (t Triggers) None() bool { return t.Revisions == 0 && t.Bytes == 0 && !t.Gap }

// ReadsLog reports whether a trigger needs the archived log.
func (t Triggers) ReadsLog() bool { return t.Bytes > 0 || t.Gap }

// InRevision returns why a cluster at revision needs a backup after last, or "".
func (t Triggers) InRevision(revision int64, last condition.Last) string {
	n := revision - last.Revision
	if t.Revisions == 0 || n < t.Revisions {
		return ""
	}
	return fmt.Sprintf("%d revisions since the last backup", n)
}

// InLog returns why the log in c needs a backup after last, or "". c must contain the log and at least the newest backup.
func (t Triggers) InLog(c catalog.Catalog, last condition.Last) string {
	var bytes int64
	for _, window := range c.Windows() {
		bytes += window.Bytes
	}
	if t.Bytes > 0 && bytes >= t.Bytes {
		return fmt.Sprintf("%d bytes of log since the last backup", bytes)
	}
	if !t.Gap {
		return ""
	}
	var end time.Time
	for _, gap := range c.Gaps() {
		end = storage.Later(end, storage.Later(gap.Since, gap.Until))
	}
	if !end.After(last.Started) {
		return ""
	}
	why := fmt.Sprintf("a gap in the log until %s", end.UTC().Format(time.RFC3339))
	// If the agent's clock is ahead, the gap seems to end after the backup that it triggered. It must not trigger another.
	newest, err := c.Latest()
	if err == nil && newest.Labels[LabelTrigger] == why {
		return ""
	}
	return why
}

// Earlier returns the earlier of two times. The zero Time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
