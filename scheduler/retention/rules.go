package retention

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/catalog"
)

// applyRules applies the rules of the policy. Good and dubious backups never share a slot.
func (k *keeping) applyRules() {
	for _, candidates := range [][]*candidate{k.good, k.dubious} {
		for _, r := range k.policy.slotRules() {
			r.apply(candidates, k.policy.zone())
		}
		for _, c := range candidates {
			k.keepForAge(c)
		}
	}
	k.keepWindowBases()
}

// slotRule keeps the newest backup of each of the n newest slots that have one, and with fewer slots the oldest backup too.
type slotRule struct {
	name string
	n    int
	slot func(b catalog.Backup, zone *time.Location) string
}

// slotRules returns the rules that keep backups by their number.
func (p Policy) slotRules() []slotRule {
	by := func(layout string) func(catalog.Backup, *time.Location) string {
		return func(b catalog.Backup, zone *time.Location) string { return b.Started.In(zone).Format(layout) }
	}
	return []slotRule{
		{"last", p.Last, func(b catalog.Backup, _ *time.Location) string { return string(b.ID) }},
		{"hourly", p.Hourly, by("2006-01-02T15Z0700")}, // the offset separates the two equal hours in autumn
		{"daily", p.Daily, by("2006-01-02")},
		{"weekly", p.Weekly, func(b catalog.Backup, zone *time.Location) string {
			year, week := b.Started.In(zone).ISOWeek()
			return fmt.Sprintf("%d-W%02d", year, week)
		}},
		{"monthly", p.Monthly, by("2006-01")},
		{"yearly", p.Yearly, by("2006")},
	}
}

// apply applies r to candidates, which are sorted newest first.
func (r slotRule) apply(candidates []*candidate, zone *time.Location) {
	taken, before := 0, ""
	for i, c := range candidates {
		if taken == r.n {
			return
		}
		slot := r.slot(c.Backup, zone)
		switch {
		case slot != before:
			taken++
			c.keep(fmt.Sprintf("%s %d", r.name, taken))
		case i == len(candidates)-1:
			c.keep(r.name + ", the oldest")
		}
		before = slot
	}
}

// keepForAge applies Within and Window. Neither keeps a backup from the future, which would stay until its time comes.
func (k *keeping) keepForAge(c *candidate) {
	p := k.policy
	if p.Window == 0 && !p.hasRules() {
		c.keep("within the size limit")
	}
	if catalog.IsFuture(c.Started, k.now) {
		return
	}
	if p.Within > 0 && !c.Started.Before(k.lastGood().Add(-p.Within)) {
		c.keep("within " + Span(p.Within))
	}
	if p.Window > 0 && c.Finished.After(k.windowBegins()) {
		c.keep("in the window of " + Span(p.Window))
		c.firm = c.firm || c.doubt == ""
	}
}

// lastGood returns the start of the newest good backup, but not later than now; now without a good backup.
func (k *keeping) lastGood() time.Time {
	if len(k.good) == 0 || k.good[0].Started.After(k.now) {
		return k.now
	}
	return k.good[0].Started
}

// windowBegins returns the start of the window. The window ends at the newest state of a good backup or of the log, or now if
// now is earlier: if backups stop, nothing expires.
func (k *keeping) windowBegins() time.Time {
	var last time.Time
	if len(k.good) > 0 {
		last = k.good[0].Finished
	}
	for _, s := range k.log {
		if !s.doubtful {
			last = storage.Later(last, s.until)
		}
	}
	if last.IsZero() || last.After(k.now) {
		last = k.now
	}
	return last.Add(-k.policy.Window)
}

// keepWindowBases keeps the backups from which the start of the window is restored: the newest good one before it, and the base
// of each stretch of the log that reaches into the window.
func (k *keeping) keepWindowBases() {
	if k.policy.Window == 0 {
		return
	}
	begins := k.windowBegins()
	for _, c := range k.good {
		if !c.Finished.After(begins) {
			c.keepFirmly("base of the window of " + Span(k.policy.Window))
			break
		}
	}
	for _, s := range k.log {
		base := s.windowBase(begins)
		if base != nil {
			base.keepFirmly("base of the log")
		}
	}
}

// keepAlways keeps the backups that no policy removes.
func (k *keeping) keepAlways() {
	for i, c := range k.backups {
		if i == 0 {
			c.keepFirmly("the newest")
		}
		if len(k.good) == 0 {
			c.keepFirmly("there is no good backup")
		}
		if c.learning {
			c.keepFirmly("far smaller than before: not known yet whether that is right")
		}
		for _, pin := range c.Pins {
			c.keepFirmly(pinText(pin))
		}
	}
	for i, c := range k.good {
		if i == 0 && c != k.backups[0] {
			c.keepFirmly("the newest good one")
		}
		if i < k.policy.MinCopies {
			c.keepFirmly(fmt.Sprintf("min copies %d", i+1))
		}
	}
	k.keepEachHistory()
	k.keepLastProven()
}

// keepEachHistory keeps two backups of each history that is not the cluster's own: the newest usable one, because the history
// may prove to be the cluster's own, and the first, which shows when it began.
func (k *keeping) keepEachHistory() {
	for _, h := range k.histories {
		if !h.Doubtful {
			continue
		}
		k.find(h.Backups[len(h.Backups)-1].ID).keepFirmly("the first of cluster id " + h.ClusterID)
		i := slices.IndexFunc(h.Backups, func(b catalog.Backup) bool { return b.CheckUsable() == nil })
		if i >= 0 {
			k.find(h.Backups[i].ID).keepFirmly("the newest of cluster id " + h.ClusterID)
		}
	}
}

func (k *keeping) find(id catalog.ID) *candidate {
	return k.backups[slices.IndexFunc(k.backups, func(c *candidate) bool { return c.ID == id })]
}

func pinText(p catalog.Pin) string {
	text := "pinned"
	if !p.Until.IsZero() {
		text += " until " + p.Until.Format(time.RFC3339)
	}
	if p.Reason == "" {
		return text
	}
	return text + ": " + p.Reason
}

// keepLastProven keeps the newest backup that was proven to each level, if possible a good one.
func (k *keeping) keepLastProven() {
	var higher *candidate
	for i := len(catalog.Levels) - 1; i > catalog.Stored.Rank(); i-- {
		c := newestProven(k.good, i)
		if c == nil {
			c = newestProven(k.dubious, i)
		}
		if c != nil && c != higher {
			c.keepFirmly("the last proven: " + string(catalog.Levels[i]))
			higher = c
		}
	}
}

func newestProven(candidates []*candidate, rank int) *candidate {
	for _, c := range candidates {
		level, _ := c.Best()
		if level.Rank() >= rank {
			return c
		}
	}
	return nil
}

// Span returns d in days, hours, minutes and seconds, such as "1d12h", as dr.yaml writes it.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	rest := (d % day).String()
	for _, zero := range []string{"m0s", "h0m"} {
		short, ok := strings.CutSuffix(rest, zero)
		if ok {
			rest = short + zero[:1]
		}
	}
	switch {
	case d < day:
		return rest
	case d%day == 0:
		rest = ""
	}
	return fmt.Sprintf("%dd%s", d/day, rest)
}
