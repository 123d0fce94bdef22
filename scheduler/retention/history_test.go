package retention_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

const day = 24 * 60

// pruneDaily takes a backup per day and prunes after each. It returns the backups that remain, newest first.
func pruneDaily(t *testing.T, p retention.Policy, days int, backup func(day int) catalog.Backup) (kept []catalog.Backup) {
	t.Helper()
	for d := range days {
		kept = append(kept, backup(d))
		decided := plan(t, catalogOf(kept...), p, minute(d*day+2)).Backups
		kept = nil
		for _, b := range decided {
			if b.Keep {
				kept = append(kept, b.Backup)
			}
		}
	}
	return kept
}

func daysOf(backups []catalog.Backup) (days []int) {
	for _, b := range backups {
		days = append(days, int(b.Started.Sub(begun).Minutes())/day)
	}
	return days
}

// A defragmentation without any later verification must neither disable the rules nor remove the backups after it.
func TestNewSizeIsLearned(t *testing.T) {
	shrunk := func(d int) catalog.Backup {
		b := taken(d*day + 1)
		if d >= 20 {
			b.Plain.Size, b.Stored.Size = 200+int64(d), 20
		}
		return b
	}
	for name, test := range map[string]struct {
		policy retention.Policy
		most   int // backups
		oldest int // day, at least
	}{
		"daily and size":  {policy: retention.Policy{Daily: 30, MaxSize: 700}, most: 31, oldest: 20},
		"last and within": {policy: retention.Policy{Last: 7, Within: 48 * time.Hour}, most: 8, oldest: 51},
		"window":          {policy: retention.Policy{Daily: 7, Window: 48 * time.Hour}, most: 8, oldest: 51},
		"last alone":      {policy: retention.Policy{Last: 1}, most: 3, oldest: 57},
	} {
		kept := pruneDaily(t, test.policy, 60, shrunk)
		days := daysOf(kept)
		if len(days) > test.most || slices.Min(days) < test.oldest || slices.Max(days) != 59 {
			t.Errorf("%s: days %v, want at most %d from %d on", name, days, test.most, test.oldest)
		}
	}
}

// Pruning removes the good backups between small ones that were taken far apart. Those do not take a good one's slot.
func TestSmallBackupsFarApartAreNoNewSize(t *testing.T) {
	backups := []catalog.Backup{taken(22 * 60)}
	for _, hour := range []int{23, 24 + 16, 24 + 17} {
		small := taken(hour * 60)
		small.Plain.Size = 100
		backups = append(backups, small)
	}
	for hour := range 5 {
		backups = append(backups, taken((24+18+hour)*60))
	}
	p := retention.Policy{Last: 1, Daily: 2, Zone: time.FixedZone("", -5*3600)} // the day begins with the first
	for _, d := range plan(t, catalogOf(backups...), p, minute((24+23)*60)).Backups {
		small := d.Plain.Size == 100
		if small != (d.Doubt != "") {
			t.Errorf("%s, %d bytes: doubt %q", d.ID, d.Plain.Size, d.Doubt)
		}
		if d.ID == backups[0].ID && !d.Keep {
			t.Errorf("the newest good one of yesterday goes: %v", d.Reasons)
		}
	}
}

// One forged size must not make all that comes after it dubious.
func TestForgedSizeIsForgotten(t *testing.T) {
	var backups []catalog.Backup
	for d := range 10 {
		backups = append(backups, taken(d*day+1))
	}
	backups[4].Plain.Size = math.MaxInt64
	for _, b := range plan(t, catalogOf(backups...), retention.Policy{Daily: 7}, minute(9*day+2)).Backups {
		if b.Doubt != "" {
			t.Errorf("%s: %s", b.ID, b.Doubt)
		}
	}
}

// Members that lost their data form an empty cluster of the same id; wrong endpoints are of another cluster of any size. Neither
// pushes out anything of the cluster's own until a person confirms it.
func TestDoubtfulHistoryPushesNothingOut(t *testing.T) {
	restored := "0123456789abc" + catalog.RestoreMark("c")
	for name, test := range map[string]struct {
		change  func(*catalog.Backup)
		confirm bool
		pushes  bool // the older backups are removed
	}{
		"an empty cluster":              {change: func(b *catalog.Backup) { b.Plain.Size, b.Revision = 100, b.Revision-20*day }},
		"an empty cluster, confirmed":   {change: func(b *catalog.Backup) { b.Plain.Size, b.Revision = 100, b.Revision-20*day }, confirm: true, pushes: true},
		"another cluster":               {change: func(b *catalog.Backup) { b.ClusterID = "abcd" }},
		"another cluster, confirmed":    {change: func(b *catalog.Backup) { b.ClusterID = "abcd" }, confirm: true, pushes: true},
		"a larger one":                  {change: func(b *catalog.Backup) { b.ClusterID, b.Plain.Size = "abcd", 5000 }},
		"after a restore by dr":         {change: func(b *catalog.Backup) { b.ClusterID = restored }, pushes: true},
		"after a restore of less by dr": {change: func(b *catalog.Backup) { b.ClusterID, b.Plain.Size, b.Revision = restored, 100, 1 }, pushes: true},
	} {
		for _, policy := range []retention.Policy{{Last: 3}, {Daily: 3, Within: 48 * time.Hour}, {Window: 48 * time.Hour}, {MaxSize: 500}} {
			kept := daysOf(pruneDaily(t, policy, 60, func(d int) catalog.Backup {
				b := taken(d*day + 1)
				if d >= 20 {
					test.change(&b)
				}
				if d == 20 && test.confirm {
					b.Pins = []catalog.Pin{{Confirms: true}}
				}
				return b
			}))
			before := slices.DeleteFunc(slices.Clone(kept), func(d int) bool { return d >= 20 })
			pushed := len(before) < 2 || slices.Max(before) != 19
			if pushed != test.pushes || slices.Max(kept) != 59 {
				t.Errorf("%s, %+v: days %v are kept", name, policy, kept)
			}
		}
	}
}

// If endpoints are wrong for some days, the last backup from the wrong cluster stays, and the right cluster's backups follow
// the rules.
func TestNewestOfEachClusterStays(t *testing.T) {
	kept := pruneDaily(t, retention.Policy{Last: 2}, 12, func(d int) catalog.Backup {
		b := taken(d*day + 1)
		if d >= 3 && d < 6 {
			b.ClusterID = "abcd"
		}
		return b
	})
	days := daysOf(kept)
	if !slices.Contains(days, 5) || !slices.Contains(days, 11) || !slices.Contains(days, 10) || len(days) > 5 {
		t.Errorf("days %v are kept", days)
	}
}
