// Package schedules has fixtures for tests of schedules in time zones.
package schedules

import (
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// Zone returns the time zone of that name. It fails the test if there is none.
func Zone(tb rapid.TB, name string) *time.Location {
	tb.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		tb.Fatal(err)
	}
	return z
}

// Parse returns the schedule of text in the zone of that name, for a cluster called prod.
func Parse(tb rapid.TB, text, zone string) spec.Schedule {
	tb.Helper()
	s, err := spec.ParseSchedule(text, Zone(tb, zone), 0, "prod")
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Skips reports whether at is the instant at which the clock of its zone jumps over hour:minute.
func Skips(at time.Time, hour, minute int) bool {
	before := at.Add(-time.Nanosecond)
	_, was := before.Zone()
	_, is := at.Zone()
	skipped := time.Date(at.Year(), at.Month(), at.Day(), hour, minute, 0, 0, time.UTC)
	shownBefore := at.Add(time.Duration(was) * time.Second).UTC()
	shownAfter := at.Add(time.Duration(is) * time.Second).UTC()
	return !skipped.Before(shownBefore.Truncate(time.Minute)) && skipped.Before(shownAfter)
}
