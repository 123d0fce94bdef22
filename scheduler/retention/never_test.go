package retention_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/etcd-dr/etcd-dr/scheduler/condition"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
	"github.com/etcd-dr/etcd-dr/storage/repository"
)

// TestNever: these backups stay under any policy.
func TestNever(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, p := drawWorld(rt), drawPolicy(rt, true)
		d := plan(rt, w.catalog, p, w.now)
		if len(d.Backups) != len(w.catalog.Backups) {
			rt.Fatalf("%d decisions about %d backups", len(d.Backups), len(w.catalog.Backups))
		}
		good := 0
		proven := map[catalog.Level]bool{}
		for i, b := range d.Backups {
			first := b.Doubt == "" && good == 0
			if b.Doubt == "" {
				good++
			}
			level, _ := b.Best()
			newestProven := b.Doubt == "" && level.Rank() > 0 && !proven[level]
			for _, l := range catalog.Levels {
				proven[l] = proven[l] || b.Doubt == "" && level.Rank() >= l.Rank()
			}
			switch {
			case b.Keep:
			case i == 0, first, newestProven, len(b.Pins) > 0, b.Doubt == "" && good <= p.MinCopies:
				rt.Errorf("%s goes: %+v", b.ID, b)
			}
			if b.Doubt == "" && slices.Contains(b.Alarms, "CORRUPT") {
				rt.Errorf("%s is called good", b.ID)
			}
		}
		gone := len(d.Backups) - len(kept(d))
		if good == 0 && gone > 0 {
			rt.Errorf("%d backups go, and none is good", gone)
		}
	})
}

// TestNeverABase: every part of the log that had a base and is kept still has one, except the end that an archiver continues.
func TestNeverABase(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		d := plan(rt, w.catalog, drawPolicy(rt, true), w.now)
		left := after(w.catalog, d)
		had := map[uint64]bool{} // by lineage and seq
		for n, l := range w.catalog.Lineages {
			for _, s := range l.Stretches() {
				for _, segment := range s.Segments {
					had[uint64(n)<<32|segment.Seq] = len(w.catalog.Bases(s)) > 0
				}
			}
		}
		for n, l := range left.Lineages {
			stretches := l.Stretches()
			for i, s := range stretches {
				isEnd := n == len(left.Lineages)-1 && i == len(stretches)-1 && len(s.Segments) == 1
				behind := i > 0 // of the front that is kept, all is kept
				if had[uint64(n)<<32|s.Segments[0].Seq] && len(left.Bases(s)) == 0 && !isEnd && !behind {
					rt.Errorf("lineage %d from segment %d has no base any more", n, s.Segments[0].Seq)
				}
			}
		}
	})
}

// TestWindowIsKept: any point of the window that could be restored can be afterwards.
func TestWindowIsKept(t *testing.T) {
	some := 0
	rapid.Check(t, func(rt *rapid.T) {
		w, p := drawWorld(rt), drawPolicy(rt, true)
		p.Window = max(p.Window, time.Hour)
		left := after(w.catalog, plan(rt, w.catalog, p, w.now))
		begins := w.now.Add(-p.Window)
		now := left.Windows()
		for _, before := range w.catalog.Windows() {
			if before.To.Time.Before(begins) || before.Doubt != "" {
				continue
			}
			i := slices.IndexFunc(now, func(n catalog.Window) bool { return n.Lineage == before.Lineage && n.To == before.To })
			if i < 0 {
				rt.Fatalf("the window %+v is gone", before)
			}
			if now[i].From.Time.After(before.From.Time) && now[i].From.Time.After(begins) {
				rt.Fatalf("the window %+v has become %+v, of the time since %s", before, now[i], begins)
			}
			some++
		}
		for _, b := range w.catalog.Backups {
			if b.Finished.After(begins) && b.Started.Before(w.now) && !slices.ContainsFunc(left.Backups, func(l catalog.Backup) bool { return l.ID == b.ID }) &&
				p.MaxSize == 0 {
				rt.Errorf("%s is of the window, and gone", b.ID)
			}
		}
	})
	if some == 0 {
		t.Error("there was no window to keep")
	}
}

// TestFuture: backups with a time in the future, from a wrong clock or an attacker, have no age. Otherwise any number of them
// would stay until that time.
func TestFuture(t *testing.T) {
	var backups []catalog.Backup
	for i := range 60 {
		b := taken(100 + i)
		if i%2 == 1 {
			b = taken(10*minutes + i)
		}
		backups = append(backups, b)
	}
	d := plan(t, catalogOf(backups...), retention.Policy{Last: 2, Within: time.Hour, Window: time.Hour}, minute(160))
	for i, b := range d.Backups {
		future := b.Started.After(minute(200))
		keep := !future || i < 2
		if b.Keep != keep {
			t.Errorf("%s: %+v", b.ID, b)
		}
	}
}

// TestSameFuture: a backup has a time in the future exactly if the conditions of its cluster say so. Otherwise retention would distrust
// backups for which the schedule waits.
func TestSameFuture(t *testing.T) {
	for ahead, want := range map[int]bool{0: false, 4: false, 7: false, 10: false, 11: true} {
		c := catalogOf(taken(1), taken(100+ahead))
		newest := plan(t, c, retention.Policy{Last: 2}, minute(100)).Backups[0]
		never := func(time.Time) time.Time { return time.Time{} }
		standing := condition.NewStanding("main", repository.Survey{Catalog: c}, never, minute(100))
		if (newest.Doubt != "") != want || (standing.Future != "") != want {
			t.Errorf("%d minutes ahead: doubt %q, the condition is about %q", ahead, newest.Doubt, standing.Future)
		}
	}
}

// TestMonotone: a policy that asks for more keeps all that one keeps which asks for less.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, less := drawWorld(rt), drawPolicy(rt, true)
		less.MaxSize = 0
		if less.Validate() != nil {
			less.Last = 1
		}
		more := less
		field := rapid.SampledFrom([]string{
			"Last", "Hourly", "Daily", "Weekly", "Monthly", "Yearly", "Within", "Window", "MinCopies", "MaxSize",
		}).Draw(rt, "field")
		if field == "Window" {
			less.Window = max(less.Window, 29*time.Hour)
		}
		by := rapid.Int64Range(1, 3).Draw(rt, "by")
		if field == "Within" || field == "Window" {
			by *= int64(31 * time.Hour)
		}
		more = less
		if field == "MaxSize" {
			less.MaxSize = rapid.Int64Range(1, 3000).Draw(rt, "max size")
			more.MaxSize = less.MaxSize + 100*by
		} else {
			v := reflect.ValueOf(&more).Elem().FieldByName(field)
			v.SetInt(v.Int() + by)
		}
		wantMore(rt, plan(rt, w.catalog, less, w.now), plan(rt, w.catalog, more, w.now))
	})
}

func wantMore(rt *rapid.T, less, more retention.Decisions) {
	stays, gone := kept(more), upto(more)
	for id := range kept(less) {
		if !stays[id] {
			rt.Errorf("%s goes though more is asked for", id)
		}
	}
	before := upto(less)
	for lineage, n := range gone {
		if n > before[lineage] {
			rt.Errorf("lineage %s goes up to %d, and up to %d where less is asked for", lineage, n, before[lineage])
		}
	}
}

// TestPruneTwice: a second pruning removes nothing. All sizes are equal: a backup that is far smaller than another would count
// once that one is removed.
func TestPruneTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, p := drawWorld(rt), drawPolicy(rt, true)
		for i := range w.catalog.Backups {
			w.catalog.Backups[i].Plain.Size = 1000
		}
		first := plan(rt, w.catalog, p, w.now)
		second := plan(rt, after(w.catalog, first), p, w.now)
		if len(kept(second)) != len(kept(first)) || len(second.Log) > 0 {
			rt.Errorf("the second time %d of %d stay, and %+v goes", len(kept(second)), len(kept(first)), second.Log)
		}
		if second.Kept != first.Kept || second.Removed != 0 {
			rt.Errorf("%d bytes are left, then %d", first.Kept, second.Kept)
		}
	})
}

// TestIndependent: the decisions do not depend on the order of the catalog or the zone of its times.
func TestIndependent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, p := drawWorld(rt), drawPolicy(rt, true)
		want := fmt.Sprintf("%+v", simple(plan(rt, w.catalog, p, w.now)))
		zone := rapid.SampledFrom([]*time.Location{berlin, time.FixedZone("", -9*3600)}).Draw(rt, "clock's zone")
		w.catalog.Backups = rapid.Permutation(w.catalog.Backups).Draw(rt, "order")
		for i := range w.catalog.Backups {
			b := &w.catalog.Backups[i]
			b.Started, b.Finished = b.Started.In(zone), b.Finished.In(zone)
		}
		got := fmt.Sprintf("%+v", simple(plan(rt, w.catalog, p, w.now.In(zone))))
		if got != want {
			rt.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// simple returns the decisions without times.
func simple(d retention.Decisions) any {
	var all []any
	for _, b := range d.Backups {
		all = append(all, b.ID, b.Keep, b.Reasons, b.Doubt)
	}
	return append(all, d.Log, d.Kept, d.Removed, d.Over(d.Kept))
}

// TestJunk: backups that do not count do not change the decisions on the others.
func TestJunk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, p := drawWorld(rt), drawPolicy(rt, true)
		if p.MaxSize > 0 {
			w.catalog.Lineages = nil // junk may be a base where there is no good one, and so make the log longer
		}
		good := func(d retention.Decisions) (all []catalog.ID) {
			for _, b := range d.Backups {
				if b.Doubt == "" && b.Keep {
					all = append(all, b.ID)
				}
			}
			return all
		}
		before := plan(rt, w.catalog, p, w.now)
		want := good(before)
		if len(want) == 0 {
			return
		}
		for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, minutes), 1, 20, rapid.ID[int]).Draw(rt, "junk") {
			b := taken(n)
			b.Stored.Size, b.Plain.Size = rapid.Int64Range(1, 5000).Draw(rt, "size"), rapid.Int64Range(1, 5000).Draw(rt, "plain")
			b.ID = catalog.NewID(b.Started, 999999)
			spoil(rt, &b)
			w.catalog.Backups = append(w.catalog.Backups, b)
		}
		got := good(plan(rt, w.catalog, p, w.now))
		if !slices.Equal(got, want) {
			rt.Errorf("beside junk %q stay, want %q", got, want)
		}
	})
}

// TestSlots: each rule keeps the newest backup of each of its newest slots, as many as there are.
func TestSlots(t *testing.T) {
	rules := map[string]struct {
		set  func(p *retention.Policy, n int)
		slot func(t time.Time) string
	}{
		"last":    {func(p *retention.Policy, n int) { p.Last = n }, func(t time.Time) string { return t.String() }},
		"hourly":  {func(p *retention.Policy, n int) { p.Hourly = n }, func(t time.Time) string { return t.Truncate(time.Hour).String() }},
		"daily":   {func(p *retention.Policy, n int) { p.Daily = n }, func(t time.Time) string { return t.Format(time.DateOnly) }},
		"monthly": {func(p *retention.Policy, n int) { p.Monthly = n }, func(t time.Time) string { return t.Format("Jan 2006") }},
		"yearly":  {func(p *retention.Policy, n int) { p.Yearly = n }, func(t time.Time) string { return t.Format("2006") }},
		"weekly": {func(p *retention.Policy, n int) { p.Weekly = n }, func(t time.Time) string {
			return t.AddDate(0, 0, -(int(t.Weekday())+6)%7).Format(time.DateOnly)
		}},
	}
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w := drawWorld(rt)
				p := retention.Policy{Zone: berlin}
				n := rapid.IntRange(1, 8).Draw(rt, "n")
				r.set(&p, n)
				taken := map[string]bool{}
				for _, b := range plan(rt, w.catalog, p, w.now).Backups {
					if b.Doubt != "" {
						continue
					}
					slot := r.slot(b.Started.In(berlin))
					want := !taken[slot] && len(taken) < n
					if want {
						taken[slot] = true
					}
					reason := fmt.Sprintf("%s %d", name, len(taken))
					got := slices.Contains(b.Reasons, reason)
					if got != want {
						rt.Fatalf("%s of slot %s: %q, want %q: %v", b.Started, slot, b.Reasons, reason, want)
					}
				}
			})
		})
	}
}
