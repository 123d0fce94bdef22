// Package when parses points in time: "2026-11-21T10:00:00Z", "2h ago".
package when

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// ErrTime: the text is not a time in the past.
var ErrTime = fault.New(fault.Usage, "not a time")

// Parse parses an RFC 3339 time, with T or a space in it, or a duration before now: "90s ago", "2h ago", "1d12h ago", with d for 24
// hours. It refuses a time without a zone, which is ambiguous, and one after now. Errors match ErrTime.
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
	if span, ok := strings.CutSuffix(text, "ago"); ok {
		before, err := ParseSpan(strings.TrimSpace(span))
		if err != nil {
			return time.Time{}, fmt.Errorf("%w: %q: use a form like \"90s ago\", \"2h ago\", \"1d12h ago\"", ErrTime, text)
		}
		return now.Add(-before), nil
	}
	if day, clock, ok := strings.Cut(text, " "); ok {
		text = day + "T" + clock
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	if _, err := time.Parse("2006-01-02T15:04:05.999999999", text); err == nil {
		return time.Time{}, fmt.Errorf("%w: %q has no zone: add Z for UTC, or an offset such as +02:00", ErrTime, text)
	}
	return time.Time{}, fmt.Errorf("%w: %q: use 2026-11-21T10:00:00Z, or \"2h ago\"", ErrTime, text)
}

// ParseUntil reads when something that holds from now on is to end: an RFC 3339 time, with a space for the T if need be, or a date, of
// which the whole day counts, in UTC. Errors match ErrTime; a time that is over is one.
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
		return time.Time{}, fmt.Errorf("%w to come: %q is over (now: %s): use a time in the future", ErrTime, text, now.UTC().Format(time.RFC3339))
	}
	return at.UTC(), nil
}

var days = regexp.MustCompile(`^([0-9]{1,5})d`)

// ParseSpan reads how long something lasts: time.ParseDuration with days in front, as in "30d" or "1d12h". Errors match
// ErrTime.
func ParseSpan(text string) (time.Duration, error) {
	var whole time.Duration
	if found := days.FindStringSubmatch(text); found != nil {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			return 0, err
		}
		whole = time.Duration(n) * 24 * time.Hour
		if text = text[len(found[0]):]; text == "" {
			return whole, nil
		}
	}
	rest, err := time.ParseDuration(text)
	if err != nil || rest < 0 {
		return 0, ErrTime
	}
	return whole + rest, nil
}
