package when_test

import (
	"errors"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/when"
)

var now = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-11-21T09:24:33Z":          time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC),
		"2026-11-21 09:24:33Z":          time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC),
		"2026-11-21T09:24:33.5Z":        time.Date(2026, 11, 21, 9, 24, 33, 5e8, time.UTC),
		"2026-11-21T11:24:33+02:00":     time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC),
		" 2026-11-21T11:24:33.1+02:00 ": time.Date(2026, 11, 21, 9, 24, 33, 1e8, time.UTC),
		"2h ago":                        now.Add(-2 * time.Hour),
		"2hago":                         now.Add(-2 * time.Hour),
		"1h30m ago":                     now.Add(-90 * time.Minute),
		"1d12h ago":                     now.Add(-36 * time.Hour),
		"3d ago":                        now.Add(-72 * time.Hour),
		"0s ago":                        now,
	} {
		got, err := when.Parse(text, now)
		if err != nil || !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "ago", "yesterday", "2h", "-2h ago", "2x ago", "1d-2h ago", "2026-11-21", "2026-11-21T09:24:33", "2026-11-21 09:24:33",
		"2026-13-21T09:24:33Z", "2026-11-21T10:00:01Z", "999999d ago",
	} {
		got, err := when.Parse(text, now)
		if !errors.Is(err, when.ErrTime) {
			t.Errorf("%q is %v, %v, want an error that matches ErrTime", text, got, err)
		}
	}
}

// Any text parses to a time in the past, or to an error.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"2026-11-21T09:24:33Z", "2h ago", "1d12h ago", "99999d ago", "1d1d ago", "2026-11-21 09:24:33+14:00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := when.Parse(text, now)
		if err != nil {
			if !errors.Is(err, when.ErrTime) {
				t.Errorf("%q: %v does not match ErrTime", text, err)
			}
			return
		}
		if got.After(now) {
			t.Errorf("%q is %v, after now", text, got)
		}
	})
}

func TestParseUntil(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2026-12-31":                "2027-01-01T00:00:00Z",
		" 2026-11-21 ":              "2026-11-22T00:00:00Z", // today is not over
		"2026-12-31T10:00:00+02:00": "2026-12-31T08:00:00Z",
		"2026-12-31 10:00:00Z":      "2026-12-31T10:00:00Z",
	} {
		got, err := when.ParseUntil(text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q is %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2026-11-20", "2026-11-21T12:00:00Z", "2h ago", "90d", "2026-12-31T10:00:00", "2026-13-01"} {
		got, err := when.ParseUntil(text, now)
		if !errors.Is(err, when.ErrTime) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}
