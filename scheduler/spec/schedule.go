package spec

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/etcd-dr/etcd-dr/restore/when"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrSchedule reports a schedule that cannot be used.
var ErrSchedule = fault.New(fault.Usage, "bad schedule")

// Schedule is a set of moments. They are absolute: every process with the same Schedule computes the same moments,
// independent of past runs. The zero Schedule has none.
//
// A time that clocks skip in spring counts once, at the first instant after the gap. A time that they show twice in autumn
// counts once, the first time, unless the schedule runs every hour ("15 * * * *"): hourly backups must not be two hours apart.
type Schedule struct {
	text  string
	zone  *time.Location
	delay time.Duration // by which jitter delays each moment

	every  time.Duration      // the interval of @every; 0: fields has the moments
	fields *cron.SpecSchedule // nil for @every and in the zero Schedule
}

// everyHour has the bits of all hours set.
const everyHour = 1<<24 - 1

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// ParseSchedule parses five cron fields in zone's time, or @hourly, @daily, @weekly, @monthly, @yearly, or @every with a
// duration in whole seconds, whose multiples since midnight UTC of Monday, January 1 of year 1 are the moments. Each moment is
// delayed by a part of jitter that seed, usually the cluster's name, determines, so that many clusters do not start at once.
// Errors match ErrSchedule.
func ParseSchedule(text string, zone *time.Location, jitter time.Duration, seed string) (Schedule, error) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "TZ=") { // cron's parser accepts it, and panics if nothing follows
		return Schedule{}, fmt.Errorf("%w %q: set the time zone next to it, as in zone: Europe/Berlin", ErrSchedule, text)
	}
	if jitter < 0 {
		return Schedule{}, fmt.Errorf("%w: jitter %s is negative: use 0 or more", ErrSchedule, jitter)
	}
	s := Schedule{text: text, zone: zone, delay: Spread(jitter, seed)}
	err := s.parse()
	if err != nil {
		return Schedule{}, fmt.Errorf("%w %q: %w", ErrSchedule, text, err)
	}
	if s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, fmt.Errorf("%w %q: it has no moment within five years: correct its day and month", ErrSchedule, text)
	}
	return s, nil
}

// parse sets every or fields from the text.
func (s *Schedule) parse() (err error) {
	interval, isInterval := strings.CutPrefix(s.text, "@every ")
	if isInterval {
		s.every, err = when.ParseSpan(strings.TrimSpace(interval))
		if err != nil || s.every < time.Second || s.every%time.Second != 0 {
			return errors.New("@every takes whole seconds, at least one: use a form like \"@every 6h\" or \"@every 1d12h\"")
		}
		return nil
	}
	parsed, err := parser.Parse(s.text)
	if err != nil {
		return fmt.Errorf("%w: use a form like \"30 2 * * *\", @daily or \"@every 6h\"", err)
	}
	s.fields = parsed.(*cron.SpecSchedule) // the only other type is that of @every
	s.fields.Location = time.UTC
	return nil
}

// Spread returns a duration in whole seconds, at least 0 and less than limit, that seed determines.
func Spread(limit time.Duration, seed string) time.Duration {
	seconds := uint64(limit / time.Second)
	if seconds == 0 {
		return 0
	}
	return time.Duration(Hash(seed)%seconds) * time.Second
}

// Hash returns a number that seed determines.
func Hash(seed string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(seed))
	x := h.Sum64() // FNV's upper bits hardly differ between short names
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// None reports whether s is the zero Schedule.
func (s Schedule) None() bool { return s.text == "" }

// String returns the text that s was parsed from.
func (s Schedule) String() string { return s.text }

// Zone returns the time zone of s, nil for the zero Schedule.
func (s Schedule) Zone() *time.Location { return s.zone }

// Delay returns how long the jitter delays each moment.
func (s Schedule) Delay() time.Duration { return s.delay }

// Next returns the first moment after t, in s's zone, or the zero Time if there is none within five years.
func (s Schedule) Next(t time.Time) time.Time {
	var next time.Time
	t = t.Add(-s.delay)
	switch {
	case s.every > 0:
		next = t.Truncate(s.every).Add(s.every)
	case s.fields == nil:
	case s.fields.Hour&everyHour == everyHour:
		next = s.nextHourly(t)
	default:
		next = s.next(t)
	}
	if next.IsZero() {
		return next
	}
	return next.Add(s.delay).In(s.zone)
}

// next returns the first moment after t, without the delay. It iterates over the wall times that match. The instants at which
// clocks first show them are in the same order.
func (s Schedule) next(t time.Time) time.Time {
	for wall := onTheWall(t.In(s.zone)); ; {
		wall = s.fields.Next(wall)
		if wall.IsZero() {
			return wall
		}
		at := firstShown(wall, s.zone)
		if at.After(t) {
			return at
		}
	}
}

// nextHourly is like next, but also counts the wall times that clocks show a second time.
func (s Schedule) nextHourly(t time.Time) time.Time {
	t = t.In(s.zone)
	at, ok := instantInPeriod(s.fields.Next(onTheWall(t)), t)
	if ok {
		return at
	}
	next := s.next(t)
	_, end := t.ZoneBounds() // right after end, clocks may show wall times for the second time
	at, ok = instantInPeriod(s.fields.Next(onTheWall(end).Add(-time.Second)), end)
	if ok && at.Before(next) {
		return at
	}
	return next
}

// onTheWall returns the wall time in t's zone at t, as a Time in UTC with the same digits.
func onTheWall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// instantOf returns the instant of wall, by the UTC offset that holds at t.
func instantOf(wall, t time.Time) time.Time {
	_, offset := t.Zone()
	return wall.Add(-time.Duration(offset) * time.Second).In(t.Location())
}

// instantInPeriod returns instantOf, and reports whether the offset still holds at that instant.
func instantInPeriod(wall, t time.Time) (at time.Time, ok bool) {
	_, end := t.ZoneBounds()
	at = instantOf(wall, t)
	return at, !wall.IsZero() && (end.IsZero() || at.Before(end))
}

// furthest exceeds every zone's offset from UTC.
const furthest = 26 * time.Hour

// firstShown returns the first instant at which clocks in zone show wall, or at which they have just skipped it.
func firstShown(wall time.Time, zone *time.Location) time.Time {
	for at := wall.Add(-furthest).In(zone); ; {
		start, end := at.ZoneBounds()
		shown := instantOf(wall, at)
		if shown.Before(start) { // an earlier period would have shown it
			return start
		}
		if end.IsZero() || shown.Before(end) {
			return shown
		}
		at = end
	}
}
