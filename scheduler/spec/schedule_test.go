package spec_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	_ "github.com/etcd-dr/etcd-dr/test/rapidseed"
	"github.com/etcd-dr/etcd-dr/test/schedules"
)

// nexts returns the first n times after from, which is in RFC 3339.
func nexts(t *testing.T, s spec.Schedule, from string, n int) (all []string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		at = s.Next(at)
		all = append(all, at.Format("01-02T15:04:05Z07:00"))
	}
	return all
}

func TestNext(t *testing.T) {
	for _, test := range []struct {
		text, zone, from string
		want             []string
	}{
		{"30 2 * * *", "UTC", "2026-11-21T10:00:00Z", []string{"11-22T02:30:00Z", "11-23T02:30:00Z"}},
		{"30 2 * * *", "UTC", "2026-11-21T02:30:00Z", []string{"11-22T02:30:00Z"}},
		{"30 2 * * *", "UTC", "2026-11-21T02:29:59.5Z", []string{"11-21T02:30:00Z"}},
		{"@daily", "Asia/Kolkata", "2026-11-21T10:00:00Z", []string{"11-22T00:00:00+05:30"}},
		{"0 0 29 2 *", "UTC", "2026-11-21T10:00:00Z", []string{"02-29T00:00:00Z"}},
		{"@every 6h", "UTC", "2026-11-21T10:00:00Z", []string{"11-21T12:00:00Z", "11-21T18:00:00Z", "11-22T00:00:00Z"}},
		{"@every 2s", "UTC", "2026-11-21T10:00:00.5Z", []string{"11-21T10:00:02Z", "11-21T10:00:04Z"}},
		{"@every 1d", "UTC", "2026-11-21T10:00:00Z", []string{"11-22T00:00:00Z", "11-23T00:00:00Z"}},
		{"@every 1w", "UTC", "2026-11-21T10:00:00Z", []string{"11-23T00:00:00Z", "11-30T00:00:00Z"}},
		{"@every 168h", "UTC", "2026-11-21T10:00:00Z", []string{"11-23T00:00:00Z"}},

		// In Berlin 02:00 to 03:00 is skipped on 2026-03-29 and there twice on 2026-10-25.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"03-29T03:00:00+02:00", "03-30T02:30:00+02:00"}},
		{"*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"03-29T03:00:00+02:00", "03-30T02:00:00+02:00"}},
		{"30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"03-29T03:00:00+02:00", "03-29T03:30:00+02:00"}},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"03-29T03:00:00+02:00", "03-30T02:00:00+02:00"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"10-25T02:30:00+02:00", "10-26T02:30:00+01:00"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", []string{"10-26T02:30:00+01:00"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:15:00Z", []string{"10-26T02:30:00+01:00"}},
		{"0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"10-25T03:00:00+01:00", "10-26T03:00:00+01:00"}},
		// Every hour is every hour.
		{"15 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"03-29T01:15:00+01:00", "03-29T03:00:00+02:00", "03-29T03:15:00+02:00"}},
		{"0 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"03-29T03:00:00+02:00", "03-29T04:00:00+02:00"}},
		{"0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z",
			[]string{"10-25T02:00:00+02:00", "10-25T02:00:00+01:00", "10-25T03:00:00+01:00"}},
		{"0 * * 12 *", "Europe/Berlin", "2026-01-05T00:00:00Z", []string{"12-01T00:00:00+01:00"}},
		// In New York it is the same, at other times.
		{"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"03-08T03:00:00-04:00", "03-09T02:30:00-04:00"}},
		{"30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", []string{"11-01T01:30:00-04:00", "11-02T01:30:00-05:00"}},
		// On Lord Howe half an hour is skipped and repeated.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T02:00:00Z", []string{"10-04T02:30:00+11:00", "10-05T02:15:00+11:00"}},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T02:00:00Z", []string{"04-05T01:45:00+11:00", "04-06T01:45:00+10:30"}},
		// Santiago skips midnight, Havana has it twice, and Apia skips a whole day.
		{"0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", []string{"09-06T01:00:00-03:00", "09-07T00:00:00-03:00"}},
		{"0 0 * * *", "America/Havana", "2026-10-31T12:00:00Z", []string{"11-01T00:00:00-04:00", "11-02T00:00:00-05:00"}},
		{"0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", []string{"12-29T12:00:00-10:00", "12-31T00:00:00+14:00", "12-31T12:00:00+14:00"}},
	} {
		got := nexts(t, schedules.Parse(t, test.text, test.zone), test.from, len(test.want))
		if !slices.Equal(got, test.want) {
			t.Errorf("%q in %s after %s: %q, want %q", test.text, test.zone, test.from, got, test.want)
		}
	}
}

func TestNextOfNothing(t *testing.T) {
	var none spec.Schedule
	at := none.Next(time.Now())
	if !none.None() || !at.IsZero() || none.String() != "" {
		t.Errorf("the zero schedule comes at %v, as %q", at, none)
	}
}

func TestParseScheduleRefuses(t *testing.T) {
	for _, text := range []string{
		"", "  ", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "@fortnightly", "@every", "@every x", "@every 0s", "@every -1h", "@every -1d",
		"@every 500ms", "@every 1500ms", "0 0 30 2 *", ", * * * *", "TZ=Europe/Berlin", "CRON_TZ=UTC 0 2 * * *", "TZ=",
	} {
		s, err := spec.ParseSchedule(text, time.UTC, 0, "")
		if !errors.Is(err, spec.ErrSchedule) {
			t.Errorf("%q is %v, %v, want an error that matches ErrSchedule", text, s, err)
		}
	}
	_, err := spec.ParseSchedule("@daily", time.UTC, -1, "")
	if !errors.Is(err, spec.ErrSchedule) {
		t.Errorf("a jitter below zero: %v", err)
	}
}

func TestJitter(t *testing.T) {
	delays := map[time.Duration]int{}
	for i := range 1000 {
		name := fmt.Sprintf("cluster-%d", i)
		s, err := spec.ParseSchedule("0 2 * * *", schedules.Zone(t, "Europe/Berlin"), 10*time.Minute, name)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := spec.ParseSchedule("0 2 * * *", time.UTC, 10*time.Minute, name)
		if s.Delay() != again.Delay() || s.Delay() < 0 || s.Delay() >= 10*time.Minute {
			t.Fatalf("%s is delayed by %v, and by %v", name, s.Delay(), again.Delay())
		}
		delays[s.Delay().Truncate(time.Minute)]++
		slot := time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC).Add(s.Delay())
		at := s.Next(slot.Add(-time.Second))
		if !at.Equal(slot) {
			t.Fatalf("%s at %v, want %v", name, at, slot)
		}
		at = s.Next(slot)
		if !at.Equal(slot.AddDate(0, 0, 1)) {
			t.Fatalf("%s again at %v", name, at)
		}
	}
	for minute := range 10 {
		n := delays[time.Duration(minute)*time.Minute]
		if n < 50 || n > 200 {
			t.Errorf("of 1000 clusters begin %d in minute %d", n, minute)
		}
	}
}

var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata", "Africa/Casablanca",
	"Pacific/Apia", "America/Havana", "Europe/Dublin", "Asia/Tehran",
}

// shown returns the wall clock's time.
func shown(t time.Time) string { return t.Format("2006-01-02 15:04:05") }

// A daily job happens once for every day that the calendar of its zone has: at its time if the clock shows that, else
// when the clock has just jumped over it.
func TestDailyIsOnceADay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := schedules.Zone(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		hour, minute := rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute")
		s := schedules.Parse(t, fmt.Sprintf("%d %d * * *", minute, hour), z.String())
		begin := time.Date(rapid.IntRange(2012, 2037).Draw(t, "year"), 1, 1, 12, 0, 0, 0, z)
		at, day := s.Next(begin), begin
		if at.Day() != 2 && (hour > 12 || hour == 12 && minute > 0) {
			day = begin.AddDate(0, 0, -1)
		}
		for range 400 {
			day = time.Date(day.Year(), day.Month(), day.Day()+1, 12, 0, 0, 0, z)
			want := time.Date(day.Year(), day.Month(), day.Day(), hour, minute, 0, 0, z)
			if shown(at) == shown(want) {
				before := at.Add(-time.Hour)
				if shown(before) == shown(at) {
					t.Fatalf("at %v the clock shows that for the second time", at)
				}
			} else if !schedules.Skips(at, hour, minute) {
				t.Fatalf("at %v, for %02d:%02d", at, hour, minute)
			}
			if at.Day() != day.Day() {
				t.Fatalf("at %v, for %v", at, day)
			}
			at = s.Next(at)
		}
	})
}

// A job of every hour, at one or several minutes, never waits longer than in an ordinary hour, but where the clock moves
// by half an hour.
func TestHourlyIsEveryHour(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		text := rapid.SampledFrom([]string{"0 * * * *", "30 * * * *", "59 * * * *", "*/20 * * * *", "@hourly"}).Draw(t, "text")
		s := schedules.Parse(t, text, name)
		most := time.Hour
		if text == "*/20 * * * *" {
			most = 20 * time.Minute
		}
		if name == "Australia/Lord_Howe" {
			most += 30 * time.Minute
		}
		at := time.Date(rapid.IntRange(2012, 2037).Draw(t, "year"), 1, 1, 0, 0, 0, 0, time.UTC)
		for end := at.AddDate(1, 0, 0); at.Before(end); {
			next := s.Next(at)
			if !next.After(at) || next.Sub(at) > most {
				t.Fatalf("%q in %s: after %v at %v", text, name, at, next)
			}
			at = next
		}
	})
}

// For any time, no slot lies between it and the next slot that the schedule returns.
func TestNextPassesNothingOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{
			"30 2 * * *", "*/7 * * * *", "0 1-3 * * *", "15 */2 * * 1", "0 0 1 * *", "0 0 * * 0", "@every 7m", "@every 26h", "* 2 * * *",
		}).Draw(t, "text")
		s, err := spec.ParseSchedule(text, schedules.Zone(t, rapid.SampledFrom(zones).Draw(t, "zone")),
			time.Duration(rapid.IntRange(0, 3600).Draw(t, "jitter"))*time.Second, rapid.String().Draw(t, "name"))
		if err != nil {
			t.Fatal(err)
		}
		from := time.Unix(rapid.Int64Range(1.3e9, 2.1e9).Draw(t, "from"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		next := s.Next(from)
		if !next.After(from) || next.Nanosecond() != 0 {
			t.Fatalf("after %v at %v", from, next)
		}
		between := from.Add(time.Duration(rapid.Int64Range(0, int64(next.Sub(from))-1).Draw(t, "between")))
		again := s.Next(between)
		if !again.Equal(next) {
			t.Fatalf("after %v at %v, and after %v at %v", from, next, between, again)
		}
	})
}

// Any text parses to a schedule with a next slot, or to an error.
func FuzzParseSchedule(f *testing.F) {
	for _, seed := range []string{"30 2 * * *", "@every 6h", "@every 2w", "@daily", "*/5,7-9 1 1 jan mon", "TZ=UTC 1 1 1 1 1", "? ? ? ? ?"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := spec.ParseSchedule(text, time.UTC, time.Minute, "prod")
		if err != nil {
			if !errors.Is(err, spec.ErrSchedule) {
				t.Fatalf("%q: %v matches nothing", text, err)
			}
			return
		}
		now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		at := s.Next(now)
		if !at.After(now) {
			t.Fatalf("%q after %v: %v", text, now, at)
		}
	})
}
