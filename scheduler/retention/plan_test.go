package retention_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/test/golden"
)

// table returns a line for each backup that stays, and the number of the others.
func table(d retention.Decisions, zone *time.Location) string {
	var out strings.Builder
	gone := 0
	for _, b := range d.Backups {
		if !b.Keep {
			gone++
			continue
		}
		fmt.Fprintf(&out, "%s  %s", b.Started.In(zone).Format("Mon 2006-01-02 15:04 MST"), strings.Join(b.Reasons, ", "))
		if b.Doubt != "" {
			fmt.Fprintf(&out, " (%s)", b.Doubt)
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprintf(&out, "%d go\n", gone)
	for _, c := range d.Log {
		fmt.Fprintf(&out, "log %s: %d segments go, up to %d: %s\n", c.Lineage[28:], c.Segments, c.Upto, c.Reason)
	}
	return out.String()
}

func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Want(t, filepath.Join("testdata", name+".txt"), []byte(got))
}

// hourly returns backups of a whole year, each half past the hour, in UTC. Some are bad or pinned.
func hourly() (backups []catalog.Backup, end time.Time) {
	for n := range 365 * 24 {
		b := taken(60*n + 30)
		switch {
		case n%1000 == 999:
			b.Alarms = []string{"CORRUPT"}
		case n == 5000:
			b.Pins = []catalog.Pin{{Reason: "before 1.34"}}
		case n == 6000:
			b.Proofs = []catalog.Proof{proof(catalog.Booted, catalog.Passed, b.Finished)}
		case n == 8000:
			b.Plain.Size = 499
		}
		backups = append(backups, b)
	}
	return backups, backups[len(backups)-1].Finished
}

var grandfather = retention.Policy{Last: 3, Hourly: 24, Daily: 7, Weekly: 5, Monthly: 12, Yearly: 3}

// TestYear: the backups that a usual policy keeps of a year of hourly ones, with days in UTC, Berlin and Kathmandu.
func TestYear(t *testing.T) {
	backups, end := hourly()
	for name, zone := range map[string]*time.Location{"utc": time.UTC, "berlin": berlin, "kathmandu": mustZone("Asia/Kathmandu")} {
		p := grandfather
		p.Zone = zone
		wantGolden(t, "year-"+name, table(plan(t, catalogOf(backups...), p, end), zone))
	}
}

// TestYearDayByDay prunes after each backup.
func TestYearDayByDay(t *testing.T) {
	if testing.Short() {
		t.Skip("8,760 plans")
	}
	backups, _ := hourly()
	c := catalogOf()
	var d retention.Decisions
	for _, b := range backups {
		c.Backups = slices.Insert(c.Backups, 0, b)
		d = plan(t, c, grandfather, b.Finished)
		c = after(c, d)
	}
	wantGolden(t, "year-day-by-day", table(d, time.UTC))
}

// TestWindowAndSize: a recovery window with its log, together with rules and a size.
func TestWindowAndSize(t *testing.T) {
	var backups []catalog.Backup
	for n := range 20 {
		backups = append(backups, taken(12*60*n+30))
	}
	backups[3].Diverged = "m3 has another hash"
	c := catalogOf(backups...)
	c.Lineages = []catalog.Lineage{lineageOf(1, 0, 60, 40), lineageOf(2, 3000, 60, 178, 100)}
	now := minute(12*60*19 + 60)
	for name, p := range map[string]retention.Policy{
		"window":          {Window: 3 * 24 * time.Hour},
		"window-and-days": {Window: 36 * time.Hour, Daily: 4},
		"days":            {Daily: 4},
		"within":          {Within: 50 * time.Hour, MinCopies: 7},
		"size":            {MaxSize: 1400, MinCopies: 2},
		"size-of-window":  {Window: 3 * 24 * time.Hour, Daily: 10, MaxSize: 1},
		"long-window":     {Window: 1000 * time.Hour},
	} {
		d := plan(t, c, p, now)
		wantGolden(t, name, table(d, time.UTC)+fmt.Sprintf("%d bytes stay, %d go, %d too many\n", d.Kept, d.Removed, d.Over(d.Kept)))
	}
}

func TestPolicyRefused(t *testing.T) {
	for _, p := range []retention.Policy{
		{}, {MinCopies: 3}, {Zone: time.UTC}, {Last: -1}, {Last: 1, Hourly: -1}, {Last: 1, Daily: -1}, {Last: 1, Weekly: -1}, {Last: 1, Monthly: -1},
		{Last: 1, Yearly: -1}, {Last: 1, Within: -1}, {Last: 1, Window: -1}, {Last: 1, MaxSize: -1}, {Last: 1, MinCopies: -1},
	} {
		d, err := retention.Plan(catalogOf(taken(1), taken(2)), p, minute(3))
		if !errors.Is(err, retention.ErrPolicy) || len(d.Backups) > 0 || !errors.Is(p.Validate(), retention.ErrPolicy) {
			t.Errorf("%+v: error %v, %+v", p, err, d)
		}
	}
}

// TestFarSmaller: a database that has shrunk counts when it has been opened, and from then on it is the measure.
func TestFarSmaller(t *testing.T) {
	big, small, next, later := taken(1), taken(2), taken(3), taken(4)
	small.Plain.Size, next.Plain.Size, later.Plain.Size = 499, 300, 300
	doubts := func(backups ...catalog.Backup) (all []bool) {
		for _, b := range plan(t, catalogOf(backups...), retention.Policy{Last: 1}, minute(9)).Backups {
			all = append(all, b.Doubt != "")
		}
		return all
	}
	got := doubts(big, small, next)
	if !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("in doubt: %v", got)
	}
	got = doubts(big, small, next, later)
	if !slices.Equal(got, []bool{false, false, false, false}) {
		t.Errorf("in doubt after three of the new size: %v", got)
	}
	again, after, tiny := taken(4), taken(5), taken(6)
	after.Plain.Size, tiny.Plain.Size = 300, 100
	got = doubts(big, small, next, again, after, tiny)
	if !slices.Equal(got, []bool{true, true, false, true, true, false}) {
		t.Errorf("in doubt, none of three in a row: %v", got)
	}
	small.Proofs = []catalog.Proof{proof(catalog.Opened, catalog.Passed, small.Finished)}
	got = doubts(big, small, next, later)
	if !slices.Equal(got, []bool{false, false, false, false}) {
		t.Errorf("in doubt though it has been opened: %v", got)
	}
	small.Plain.Size, small.Proofs = 500, nil
	got = doubts(big, small)
	if got[0] {
		t.Error("half as large is in doubt")
	}
}

// TestStopped: if backups have stopped, or the clock is years ahead, backups that are kept for their age stay.
func TestStopped(t *testing.T) {
	c := catalogOf(taken(1), taken(600), taken(1200))
	c.Lineages = []catalog.Lineage{lineageOf(1, 0, 60, 22)}
	for _, p := range []retention.Policy{{Within: 24 * time.Hour}, {Window: 24 * time.Hour}} {
		d := plan(t, c, p, minute(1200).AddDate(30, 0, 0))
		if len(kept(d)) != 3 || len(d.Log) > 0 {
			t.Errorf("%+v leaves\n%s", p, table(d, time.UTC))
		}
	}
}

// TestNothingGood: without any good backup, none is removed.
func TestNothingGood(t *testing.T) {
	var all []catalog.Backup
	for n := range 9 {
		b := taken(600*n + 60)
		b.Alarms = []string{"CORRUPT"}
		all = append(all, b)
	}
	c := catalogOf(all...)
	c.Lineages = []catalog.Lineage{lineageOf(1, 0, 60, 90)}
	d := plan(t, c, retention.Policy{Last: 1, MaxSize: 1, Window: time.Hour}, minute(5400))
	if len(kept(d)) != 9 || len(d.Log) > 0 && d.Log[0].Upto > 1 {
		t.Errorf("what stays is\n%s", table(d, time.UTC))
	}
}

// TestEndOfLogStays: an archiver that was stopped continues after the last segment, even if no restore needs that.
func TestEndOfLogStays(t *testing.T) {
	c := catalogOf(taken(60), taken(50000))
	c.Lineages = []catalog.Lineage{lineageOf(1, 0, 60, 10), lineageOf(2, 700, 60, 10)}
	for _, p := range []retention.Policy{{Last: 1}, {Window: time.Hour}} {
		got := upto(plan(t, c, p, minute(50010)))
		if got[c.Lineages[0].ID] != 10 || got[c.Lineages[1].ID] != 9 {
			t.Errorf("the log goes up to %v", got)
		}
	}
}

// TestLargeJunk: the size of backups that do not count removes no good one, even if one of them stays as the newest.
func TestLargeJunk(t *testing.T) {
	junk := taken(4000)
	junk.Stored.Size, junk.Diverged = 1<<40, "m3 has another hash"
	older := junk
	older.ID, older.Started, older.Finished = taken(1500).ID, minute(1500), minute(1501)
	d := plan(t, catalogOf(taken(1), taken(1000), older, taken(2000), taken(3000), junk), retention.Policy{Last: 9, MaxSize: 300}, minute(4100))
	stays := kept(d)
	if len(stays) != 4 || !stays[junk.ID] || stays[older.ID] || stays[taken(1).ID] || d.Over(d.Kept) != 1<<40 {
		t.Errorf("what stays is\n%s, %d bytes too many", table(d, time.UTC), d.Over(d.Kept))
	}
}

// TestNewestByTime: after a restore revisions may be lower than before. Less than half would be another history.
func TestNewestByTime(t *testing.T) {
	older, newer := taken(100), taken(200)
	older.Revision, newer.Revision = 9000, 8000
	d := plan(t, catalogOf(older, newer), retention.Policy{Last: 1}, minute(300))
	if !kept(d)[newer.ID] || kept(d)[older.ID] {
		t.Errorf("what stays is\n%s", table(d, time.UTC))
	}
}

func TestSpans(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"30d": 30 * 24 * time.Hour, "1d12h": 36 * time.Hour, "30m": 30 * time.Minute, "10s": 10 * time.Second, "1h10m": 70 * time.Minute,
		"20h": 20 * time.Hour, "2d1m30s": 48*time.Hour + 90*time.Second,
	} {
		d := plan(t, catalogOf(taken(1)), retention.Policy{Within: d}, minute(2))
		got := d.Backups[0].Reasons[0]
		if got != "within "+want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRemoval(t *testing.T) {
	c := catalogOf(taken(1), taken(600), taken(1200))
	c.Lineages = []catalog.Lineage{lineageOf(1, 0, 60, 22)}
	r := plan(t, c, retention.Policy{Last: 1}, minute(1300)).Removal(minute(1300), "host, dr v1")
	var all []string
	for _, b := range r.Backups {
		all = append(all, fmt.Sprintf("%s %s, %s, %s", b.Backup, b.Reason, b.By, b.Time.Format(time.TimeOnly)))
	}
	for _, l := range r.Log {
		all = append(all, fmt.Sprintf("%s %d %s, %s, %s", l.Lineage, l.Upto, l.Reason, l.By, l.Time.Format(time.TimeOnly)))
	}
	want := []string{
		string(taken(600).ID) + " pruned: no rule keeps it, host, dr v1, 02:40:00",
		string(taken(1).ID) + " pruned: no rule keeps it, host, dr v1, 02:40:00",
		lineageOf(1, 0, 1, 1).ID + " 19 pruned: it is older than " + string(taken(1200).ID) +
			", the oldest kept base of the log, host, dr v1, 02:40:00",
	}
	diff := cmp.Diff(want, all)
	if diff != "" {
		t.Error(diff)
	}
}
