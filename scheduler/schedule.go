package scheduler

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// ErrSchedule: a schedule cannot be used as written.
var ErrSchedule = errors.New("bad schedule")

// Schedule says when something is to happen. Its moments are absolute: whoever has the same Schedule finds the same
// moments, whatever happened before. The zero Schedule has none.
//
// What a zone's clocks skip in spring happens once, at the first instant behind the gap; what they show twice in autumn
// happens once, the first time. A schedule that says every hour ("15 * * * *") goes on through the second time too:
// backups of every hour must not be two hours apart.
type Schedule struct {
	text string
	zone *time.Location
	late time.Duration // by how much this one comes after what text says

	every  time.Duration // above zero: of @every
	fields *cron.SpecSchedule
}

// everyHour are the bits of all hours.
const everyHour = 1<<24 - 1

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// ParseSchedule reads five fields of cron, in zone's time, or @hourly, @daily, @weekly, @monthly, @yearly or @every with
// a duration in whole seconds, which counts from Monday, midnight UTC. Every moment is put off by a part of jitter that
// seed, a cluster's name, decides, so that many clusters do not begin at once. Errors match ErrSchedule.
func ParseSchedule(text string, zone *time.Location, jitter time.Duration, seed string) (Schedule, error) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "TZ=") { // cron's parser would take it, and one without anything behind it ends the process
		return Schedule{}, fmt.Errorf("%w %q: the zone stands beside it, as zone: Europe/Berlin", ErrSchedule, text)
	}
	if jitter < 0 {
		return Schedule{}, fmt.Errorf("%w: jitter %s is below zero", ErrSchedule, jitter)
	}
	parsed, err := parser.Parse(text)
	if err != nil {
		return Schedule{}, fmt.Errorf("%w %q: %w: use a form like \"30 2 * * *\", @daily or \"@every 6h\"", ErrSchedule, text, err)
	}
	s := Schedule{text: text, zone: zone, late: part(jitter, seed)}
	switch parsed := parsed.(type) {
	case *cron.SpecSchedule:
		parsed.Location = time.UTC
		s.fields = parsed
	case cron.ConstantDelaySchedule:
		if s.every, err = time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(text, "@every"))); err != nil || s.every != parsed.Delay {
			return Schedule{}, fmt.Errorf("%w %q: @every takes whole seconds, at least one", ErrSchedule, text)
		}
	}
	if s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, fmt.Errorf("%w %q: that never comes", ErrSchedule, text)
	}
	return s, nil
}

// part is how much of jitter seed's moments are put off by, in whole seconds: no whole jitter, so that what is put off
// by one period stays in it.
func part(jitter time.Duration, seed string) time.Duration {
	seconds := uint64(jitter / time.Second)
	if seconds == 0 {
		return 0
	}
	return time.Duration(hash(seed)%seconds) * time.Second
}

func hash(seed string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(seed))
	x := h.Sum64() // FNV's upper bits hardly differ between short names
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// None reports whether s is the zero Schedule.
func (s Schedule) None() bool { return s.text == "" }

// String is the schedule as it was written.
func (s Schedule) String() string { return s.text }

// Zone is whose time the schedule is in; nil for the zero Schedule.
func (s Schedule) Zone() *time.Location { return s.zone }

// Late is by how much this one's moments come after what is written, for the jitter.
func (s Schedule) Late() time.Duration { return s.late }

// Next is the first moment after t, in s's zone; the zero Time if none comes within five years.
func (s Schedule) Next(t time.Time) time.Time {
	var next time.Time
	switch t = t.Add(-s.late); {
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
	return next.Add(s.late).In(s.zone)
}

// next asks cron for what a clock on the wall shows next. The instants of these are in the same order, so the first that
// lies after t is the next.
func (s Schedule) next(t time.Time) time.Time {
	for wall := onTheWall(t.In(s.zone)); ; {
		if wall = s.fields.Next(wall); wall.IsZero() {
			return wall
		}
		if at := firstShown(wall, s.zone); at.After(t) {
			return at
		}
	}
}

// nextHourly is next that does not pass over what the clock shows for the second time.
func (s Schedule) nextHourly(t time.Time) time.Time {
	t = t.In(s.zone)
	if at, ok := shownWithin(s.fields.Next(onTheWall(t)), t); ok {
		return at
	}
	next := s.next(t)
	_, end := t.ZoneBounds()
	if at, ok := shownWithin(s.fields.Next(onTheWall(end).Add(-time.Second)), end); ok && at.Before(next) {
		return at
	}
	return next
}

// onTheWall is what a clock in t's zone shows, as a time without any zone's jumps.
func onTheWall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// shownAt is when the clock shows wall, if it goes as it does at t.
func shownAt(wall, t time.Time) time.Time {
	_, offset := t.Zone()
	return wall.Add(-time.Duration(offset) * time.Second).In(t.Location())
}

// shownWithin is shownAt, if the clock does go like that until then.
func shownWithin(wall, t time.Time) (at time.Time, ok bool) {
	_, end := t.ZoneBounds()
	at = shownAt(wall, t)
	return at, !wall.IsZero() && (end.IsZero() || at.Before(end))
}

// furthest is more than any zone is away from UTC.
const furthest = 26 * time.Hour

// firstShown is the first instant at which a clock in zone shows wall, or has just jumped over it.
func firstShown(wall time.Time, zone *time.Location) time.Time {
	for at := wall.Add(-furthest).In(zone); ; {
		start, end := at.ZoneBounds()
		shown := shownAt(wall, at)
		if shown.Before(start) { // an earlier period would have shown it
			return start
		}
		if end.IsZero() || shown.Before(end) {
			return shown
		}
		at = end
	}
}
