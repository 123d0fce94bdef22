// Package when parses points in time and durations as a user types them: "2026-11-21T10:00:00Z", "2h ago", "30d".
package when

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrTime reports a text that is not a usable time.
var ErrTime = fault.New(fault.Usage, "invalid time")

// Parse parses an RFC 3339 time, also with a space in place of the T, or a duration before now: "90s ago", "2h ago", "1d12h ago",
// with d for 24 hours. Errors match ErrTime. It refuses a time after now, and a time without a zone, which is ambiguous.
func Parse(text string, now time.Time) (time.Time, error) {
	at, err := parse(strings.TrimSpace(text), now)
	if err != nil {
		return time.Time{}, err
	}
	if at.After(now) {
		return time.Time{}, fmt.Errorf("%w: %q is in the future (now: %s): use a time in the past", ErrTime, text, now.UTC().Format(time.RFC3339))
	}
	return at.UTC(), nil
}

func parse(text string, now time.Time) (time.Time, error) {
	span, ok := strings.CutSuffix(text, "ago")
	if ok {
		before, err := ParseSpan(strings.TrimSpace(span))
		if err != nil {
			return time.Time{}, fmt.Errorf("%w: %q: use a form like \"90s ago\", \"2h ago\", \"1d12h ago\"", ErrTime, text)
		}
		return now.Add(-before), nil
	}
	day, clock, ok := strings.Cut(text, " ")
	if ok {
		text = day + "T" + clock
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err == nil {
		return at, nil
	}
	_, err = time.Parse("2006-01-02T15:04:05.999999999", text)
	if err == nil {
		return time.Time{}, fmt.Errorf("%w: %q has no zone: add Z for UTC, or an offset such as +02:00", ErrTime, text)
	}
	return time.Time{}, fmt.Errorf("%w: %q: use 2026-11-21T10:00:00Z, or \"2h ago\"", ErrTime, text)
}

// ParseUntil parses the end of a period that begins now: an RFC 3339 time, also with a space in place of the T, or a date,
// which means the end of that day in UTC. It returns an error that matches ErrTime, also for a time that has passed.
func ParseUntil(text string, now time.Time) (time.Time, error) {
	text = strings.TrimSpace(text)
	day, err := time.Parse(time.DateOnly, text)
	at := day.AddDate(0, 0, 1)
	if err != nil {
		at, err = parse(text, now)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %q: use 2026-12-31, or 2026-12-31T10:00:00Z", ErrTime, text)
	}
	if !at.After(now) {
		return time.Time{}, fmt.Errorf("%w: %q is in the past (now: %s): use a time in the future", ErrTime, text, now.UTC().Format(time.RFC3339))
	}
	return at.UTC(), nil
}

// ParseSpan parses a duration of whole years, weeks, days, hours, minutes, seconds and milliseconds, such as "30d" or "1d12h". A day
// has 24 hours, a year 365 days. Errors match ErrTime.
func ParseSpan(text string) (time.Duration, error) {
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrTime, err)
	}
	return time.Duration(d), nil
}

// Span is a duration, as the value of a flag.
type Span time.Duration

// String implements pflag.Value.
func (s *Span) String() string { return time.Duration(*s).String() }

// Set implements pflag.Value. It accepts the same text as ParseSpan.
func (s *Span) Set(text string) error {
	d, err := ParseSpan(text)
	if err != nil {
		return errors.New("use a form like 90s, 12h or 1d12h")
	}
	*s = Span(d)
	return nil
}

// Type implements pflag.Value.
func (s *Span) Type() string { return "duration" }
