package scheduler_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler"
	"github.com/etcd-dr/etcd-dr/scheduler/retention"
	"github.com/etcd-dr/etcd-dr/scheduler/spec"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/lease"
	"github.com/etcd-dr/etcd-dr/storage/mem"
	"github.com/etcd-dr/etcd-dr/test/schedules"
	"github.com/etcd-dr/etcd-dr/test/soak"
)

// How late a backup may be without a report: others are before it, or the service has just started.
const inTime = 6 * time.Minute

// robberyLasts is longer than a stolen lease or a frozen host blocks the other services.
const robberyLasts = lease.MaxLease + inTime

// subject is a cluster in the configuration, with a record of its backups.
type subject struct {
	f     *fleet
	spec  spec.Spec
	slots []time.Time // of the year

	mu      sync.Mutex
	away    time.Time // until then no member answers
	running int
	over    time.Time // when one last ran
	last    taking
	next    int         // slots that have a backup
	robbed  []time.Time // its leases, without a double backup since
	warned  time.Time
	said    []string // the last that was
	ledgers map[string]*ledger
	taken   int
	counts  bool // one of them was not from the future, so that the next is for a slot of the schedule
	late    int
	doubled int
	partial int // that failed since something was pruned
}

// taking is a backup in all stores that must have it.
type taking struct {
	slot    time.Time // that it was taken for
	began   time.Time
	started time.Time // by the clock of its host
	by      string
	in      []string
}

// plan is the fate of one backup.
type plan struct {
	took       time.Duration
	fails      bool // before it is stored
	partial    bool // only the first store takes it
	lost       bool // stored, but the answer is lost
	corrupt    bool
	size       int64
	ahead      time.Duration // of the clock that it was taken by, which was set right since
	disruption string        // of the lease, or a standstill
	after      time.Duration // it has begun
}

// usualSize is the size of a good backup's database, in bytes.
const usualSize = 1000

func (s *subject) plan(began time.Time) plan {
	r := s.f.draw("backup", s.spec.Cluster, began.UnixNano())
	p := plan{took: time.Duration(1+r.IntN(20)) * time.Second, size: usualSize}
	if began.After(s.f.end.AddDate(0, 0, -2)) {
		return p
	}
	switch r.IntN(200) {
	case 0, 1:
		p.fails = true
	case 2:
		p.partial = true
	case 3:
		p.lost = true
	case 4, 5:
		p.corrupt = true
	case 6, 7:
		p.size = 100
	case 8:
		p.ahead = time.Duration(r.IntN(240)) * time.Second
	case 9:
		p.ahead = time.Duration(2+r.IntN(8)) * 365 * 24 * time.Hour
	case 10:
		p.took = 20 * time.Minute
	case 11, 12, 13:
		p.disruption = []string{"gone", "rubbish", "taken", "still"}[r.IntN(4)]
		// Leases are renewed each 20 s. A lease that is found lost at the instant at which the backup is stored leaves open whether it
		// is: the request may succeed after it was given up.
		p.took = 2*time.Minute + 500*time.Millisecond
		p.after = time.Duration(r.Int64N(int64(p.took)))
	}
	return p
}

// enter is called when a backup begins.
func (s *subject) enter(by *server, p plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	if s.running > 1 && !s.leaseDisruptedSince(time.Now().Add(-robberyLasts)) {
		s.errorf("two backups at once")
	}
	if p.disruption == "" {
		return
	}
	time.AfterFunc(p.after, func() {
		s.disruptLease(by, p.disruption)
		for _, other := range s.f.subjects {
			if other == s || p.disruption == "still" {
				other.miss(by, p.disruption)
			}
		}
	})
}

func (s *subject) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.over = time.Now()
}

// disruptLease removes the leases of their holder, or freezes its host.
func (s *subject) disruptLease(from *server, how string) {
	if how == "still" {
		from.freeze(time.Now().Add(4 * time.Minute))
		return
	}
	for _, r := range s.spec.Repositories {
		d := s.f.stores[r.URL]
		for _, key := range d.keys(s.spec.Cluster + "/leases/") {
			switch how {
			case "gone":
				_ = d.remove(context.Background(), key)
			case "rubbish":
				_, _ = d.put(context.Background(), key, strings.NewReader("{"), storage.PutOptions{})
			case "taken":
				job := strings.TrimSuffix(key[strings.LastIndex(key, "/")+1:], ".json")
				l := lease.Lease{Format: 1, Job: job, Holder: "a thief", Until: time.Now().Add(8 * time.Minute), Generation: 1 << 40}
				data, err := lease.Kind.Encode(l)
				if err != nil {
					s.f.errorf("%v", err)
				}
				_, _ = d.put(context.Background(), key, strings.NewReader(string(data)), storage.PutOptions{})
			}
		}
	}
}

// miss notes that a lease was lost, or may be soon.
func (s *subject) miss(by *server, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.robbed = append(s.robbed, time.Now())
	s.note("a lease of %s: %s", by.name, how)
}

func (s *subject) leaseDisruptedSince(t time.Time) bool {
	return slices.ContainsFunc(s.robbed, func(at time.Time) bool { return !at.Before(t) })
}

func (s *subject) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.away)
}

// hear records a report of a service on the cluster.
func (s *subject) hear(by string, e storage.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Level == storage.Warning {
		s.warned = time.Now()
	}
	s.note("%s: %s", by, e.Message)
}

func (s *subject) note(format string, args ...any) {
	s.said = append(s.said, time.Now().UTC().Format(time.RFC3339)+" "+fmt.Sprintf(format, args...))
	s.said = s.said[max(0, len(s.said)-20):]
}

// errorf fails the test, with the cluster's messages.
func (s *subject) errorf(format string, args ...any) {
	s.f.t.Helper()
	s.f.errorf("%s: %s; the last that was said:\n%s", s.spec.Cluster, fmt.Sprintf(format, args...), strings.Join(s.said, "\n"))
}

// took checks a backup: no slot is skipped, none has two backups, and a late one was reported.
func (s *subject) took(b taking) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, before := !s.counts, s.last
	s.taken++
	s.counts = s.counts || !b.started.After(b.began.Add(time.Hour))
	s.last = b
	next := s.nextSlot()
	if b.slot.After(next) && !first {
		s.errorf("the slot of %s has none, and this one is for %s", next, b.slot)
	}
	upto := b.began
	ahead := b.started.Sub(b.began)
	if ahead > 0 && ahead <= 5*time.Minute {
		upto = b.started // as all believe
	}
	if upto.Before(next) && !first {
		s.double(before, b)
		return
	}
	late := b.began.Sub(next)
	if late > inTime && b.began.Sub(s.over) > inTime && !s.excused(next, b.began) {
		s.errorf("the slot of %s was late by %s, and nobody has said why", next, late)
	} else if late > inTime {
		s.late++
	}
	for s.next < len(s.slots) && !s.slots[s.next].After(upto) {
		s.next++
	}
}

// nextSlot returns the first slot without a backup.
func (s *subject) nextSlot() time.Time { return s.slots[s.next] }

// double checks a second backup of one slot. It is allowed once for each lease that was stolen from its holder; if any store
// is enough and those with the first backup are unreachable; and if the first seems to be from the future, since it does not
// count then.
func (s *subject) double(before, b taking) {
	s.doubled++
	if before.started.After(b.began.Add(time.Hour)) {
		return
	}
	away := func(name string) bool { return s.f.stores[name].isAway() }
	if s.spec.Backup.Require == spec.Any && !slices.ContainsFunc(before.in, func(name string) bool { return !away(name) }) {
		return
	}
	i := slices.IndexFunc(s.robbed, func(at time.Time) bool { return at.After(before.began.Add(-robberyLasts)) })
	if i < 0 {
		s.errorf("a second backup for %s, begun at %s by %s; the first for %s at %s by %s, and no lease was lost",
			b.slot, b.began, b.by, before.slot, before.began, before.by)
		return
	}
	s.robbed = slices.Delete(s.robbed, i, i+1)
}

// excused reports whether a service has reported that the slot has no backup, none ran, or a thief has the lease.
func (s *subject) excused(slot, began time.Time) bool {
	robbed := s.leaseDisruptedSince(slot.Add(-robberyLasts)) && began.Sub(slot) < 2*robberyLasts
	return robbed || !s.warned.Before(slot) || began.Sub(s.f.unserved) < inTime
}

// wantTold fails if a slot has no backup and every service reports that all is well.
func (s *subject) wantTold(all []scheduler.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := s.nextSlot()
	if time.Since(slot) < inTime || s.running > 0 || time.Since(s.over) < inTime || s.leaseDisruptedSince(time.Now().Add(-2*robberyLasts)) {
		return
	}
	told := slices.ContainsFunc(all, func(one scheduler.Status) bool {
		return one.Problem != "" && one.Failures > 0 // Failing, or trying again
	})
	if !told || s.warned.Before(slot) {
		s.errorf("there is none of %s, and its status is %+v; it was last warned of at %s", slot, all, s.warned)
	}
}

// rule is a schedule and its meaning: this minute of every hour with hour % each == rest.
type rule struct {
	cron, zone         string
	each, rest, minute int
}

// CI runs the first ten: six are hourly, and a change of the clock affects the other four most.
var yearRules = []rule{
	{"15 * * * *", "Europe/Berlin", 1, 0, 15}, {"30 * * * *", "Australia/Lord_Howe", 1, 0, 30}, {"@hourly", "UTC", 1, 0, 0},
	{"5 * * * *", "Europe/Dublin", 1, 0, 5}, {"50 * * * *", "America/Havana", 1, 0, 50}, {"@every 1h", "Europe/Berlin", 1, 0, 0},
	{"30 2 * * *", "Europe/Berlin", 24, 2, 30}, {"10 2 * * *", "Australia/Lord_Howe", 24, 2, 10},
	{"30 1 * * *", "Europe/Dublin", 24, 1, 30}, {"45 1-23/4 * * *", "America/Santiago", 4, 1, 45},
	{"0 * * * *", "America/New_York", 1, 0, 0}, {"45 * * * *", "America/Santiago", 1, 0, 45},
	{"20 * * * *", "Asia/Tehran", 1, 0, 20}, {"10 0-23 * * *", "Europe/Berlin", 1, 0, 10},
	{"0 */4 * * *", "America/New_York", 4, 0, 0}, {"20 */4 * * *", "Asia/Tehran", 4, 0, 20}, {"@every 4h", "Europe/Berlin", 4, 0, 0},
	{"0 0-23/4 * * *", "America/Havana", 4, 0, 0}, {"30 1 * * *", "America/New_York", 24, 1, 30}, {"0 0 * * *", "America/Havana", 24, 0, 0},
	{"15 3 * * *", "UTC", 24, 3, 15},
}

// slots returns the slots of the year, found by reading the wall clock each minute. jitter delays them.
func (r rule) slots(t *testing.T, begin, end time.Time, jitter time.Duration) (slots []time.Time) {
	t.Helper()
	at := schedules.Zone(t, r.zone)
	if strings.HasPrefix(r.cron, "@every") {
		at = time.UTC
	}
	done := map[string]bool{} // where it is not of every hour: the clock may show it again
	for now := begin.AddDate(0, 0, -1); now.Before(end); now = now.Add(time.Minute) {
		wall := now.In(at)
		due := wall.Minute() == r.minute && wall.Hour()%r.each == r.rest
		if !due && !r.skipped(wall) {
			continue
		}
		shown := wall.Format("2006-01-02 15")
		if r.each == 1 || !done[shown] {
			done[shown] = true
			slot := now.Add(jitter)
			if slot.After(begin) {
				slots = append(slots, slot)
			}
		}
	}
	return slots
}

// skipped reports whether the clock has just jumped over one that is due.
func (r rule) skipped(wall time.Time) bool {
	if !skips(wall) {
		return false
	}
	for hour := r.rest; hour < 24; hour += r.each {
		if schedules.Skips(wall, hour, r.minute) {
			return true
		}
	}
	return false
}

// skips reports whether the clock has just jumped ahead.
func skips(wall time.Time) bool {
	_, was := wall.Add(-time.Nanosecond).Zone()
	_, is := wall.Zone()
	return is > was
}

// newFleet returns a fleet of n clusters that use the rules in turn. Every third cluster has two repositories, and needs both
// or any.
func newFleet(t *testing.T, seed uint64, days, n int) *fleet {
	f := &fleet{
		t: t, seed: seed, begin: time.Now(), end: time.Now().AddDate(0, 0, days), unserved: time.Now(), subjects: map[string]*subject{},
		stores: map[string]*depot{}, servers: map[string]*server{}, back: map[string]time.Time{"a": time.Now(), "b": time.Now()},
	}
	for _, url := range []string{"main", "offsite", "third"} {
		f.stores[url] = &depot{url: url, below: mem.New()}
	}
	for i := range n {
		s := f.newSubject(i)
		f.subjects[s.spec.Cluster] = s
	}
	return f
}

func (f *fleet) newSubject(i int) *subject {
	r, name := yearRules[i%len(yearRules)], fmt.Sprintf("c%d", i)
	jitter := time.Duration(i%2) * 3 * time.Minute
	schedule, err := spec.ParseSchedule(r.cron, schedules.Zone(f.t, r.zone), jitter, name)
	if err != nil {
		f.t.Fatal(err)
	}
	s := &subject{f: f, slots: r.slots(f.t, f.begin, f.end.AddDate(0, 0, 2), schedule.Delay()), ledgers: map[string]*ledger{}}
	s.spec = spec.Spec{Cluster: name, Digest: name, Timeout: time.Hour, Schedule: schedule}
	s.spec.Backup.Require, s.spec.Backup.Grace = spec.All, 3*time.Hour
	s.spec.Retention = retention.Policy{
		Last: 1, Hourly: 2, Daily: 2, Weekly: 1, Monthly: 1, MinCopies: 5, Window: 90 * time.Minute, Zone: schedule.Zone(),
	}
	names := []string{"main"}
	switch i % 6 {
	case 2:
		names = []string{"main", "offsite"}
	case 5:
		names = []string{"offsite", "third"}
		s.spec.Backup.Require = spec.Any
	}
	for _, name := range names {
		s.spec.Repositories = append(s.spec.Repositories, spec.Repository{Name: name, URL: name})
		s.ledgers[name] = newLedger()
	}
	return s
}

func (f *fleet) config() spec.Config {
	c := spec.Config{Concurrency: max(4, len(f.subjects)/6), Lease: time.Minute} // so that what was missed is caught up in time
	for i := range len(f.subjects) {
		c.Specs = append(c.Specs, f.subjects[fmt.Sprintf("c%d", i)].spec)
	}
	return c
}

// TestHundredDays: with any faults of services, clusters and stores in a hundred days, each slot has a backup, in time or
// caught up, or a service has reported that it has none. No slot has two unless a lease was stolen, and every backup that must
// be kept exists. The days begin on 20 August, so most clocks are set back in them, and Santiago's forward. The short test has four days.
func TestHundredDays(t *testing.T) {
	days := 100
	if testing.Short() {
		days = 4
	}
	synctest.Test(t, func(t *testing.T) { manyDays(t, yearSeed(t), days, 10) })
}

// TestSoakYear does the same as TestHundredDays in a year with a hundred clusters.
func TestSoakYear(t *testing.T) {
	soak.Only(t, "takes minutes")
	synctest.Test(t, func(t *testing.T) { manyDays(t, yearSeed(t), 365, 100) })
}

func yearSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("ETCD_DR_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("ETCD_DR_SEED: %v", err)
	}
	return seed
}

const step = 10 * time.Minute

func manyDays(t *testing.T, seed uint64, days, clusters int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // goroutines that wake each other on two cores cost twice as much
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	time.Sleep(time.Until(time.Date(2000, 8, 20, 0, 0, 0, 0, time.UTC)))
	f := newFleet(t, seed, days, clusters)
	c := f.config()
	for ; time.Now().Before(f.end) && !t.Failed(); time.Sleep(step) {
		quiet := time.Now().After(f.end.AddDate(0, 0, -2))
		f.serve(c, quiet)
		if !quiet {
			f.injectEvent()
		}
		f.look()
	}
	for name := range f.servers {
		f.kill(name, false)
	}
	var sum [4]int
	for _, s := range f.subjects {
		next := s.nextSlot()
		if next.Before(f.end.Add(-inTime)) {
			s.errorf("the slot of %s has no backup", next)
		}
		for i, n := range []int{s.taken, s.next, s.late, s.doubled} {
			sum[i] += n
		}
	}
	t.Logf("ETCD_DR_SEED=%d: %d backups for %d slots; %d late, and said so; %d doubled, by lost leases",
		seed, sum[0], sum[1], sum[2], sum[3])
	if !t.Failed() && !testing.Short() && (sum[2] == 0 || sum[3] == 0) {
		t.Errorf("ETCD_DR_SEED=%d: nothing was late, or nothing doubled: the time was too quiet to prove anything", seed)
	}
}

// serve starts the servers that should run: one always, the other one every fifth week.
func (f *fleet) serve(c spec.Config, quiet bool) {
	f.served()
	for _, name := range []string{"a", "b"} {
		wanted := name == "a" || int(time.Since(f.begin)/(7*24*time.Hour))%5 == 0
		s := f.servers[name]
		switch {
		case s == nil && wanted && (quiet || !time.Now().Before(f.back[name])):
			f.start(name, c)
		case s != nil && !wanted:
			f.kill(name, false)
		}
	}
	synctest.Wait()
}

// injectEvent causes a random event, about every third hour.
func (f *fleet) injectEvent() {
	r := f.draw("event", time.Now().Unix())
	if r.IntN(18) > 0 {
		return
	}
	upTo := func(d time.Duration) time.Time { return time.Now().Add(time.Duration(r.Int64N(int64(d)))) }
	one := f.subjects[fmt.Sprintf("c%d", r.IntN(len(f.subjects)))]
	switch what := r.IntN(20); what {
	case 0, 1, 2, 3: // a server is killed, or stopped
		name := []string{"a", "b"}[what%2]
		if f.servers[name] != nil {
			f.kill(name, what < 2)
			f.back[name] = upTo(3 * time.Hour)
		}
	case 4: // no service runs, sometimes for days
		for name := range f.servers {
			f.kill(name, true)
		}
		until := upTo([]time.Duration{20 * time.Minute, 5 * time.Hour, 3 * 24 * time.Hour}[max(0, r.IntN(16)-13)])
		f.back["a"], f.back["b"] = until, until
	case 5, 6, 7, 8, 9:
		one.mu.Lock()
		one.away = upTo([]time.Duration{5 * time.Minute, 2 * time.Hour, 36 * time.Hour}[r.IntN(3)])
		one.mu.Unlock()
	case 10, 11, 12:
		store := f.stores[[]string{"main", "offsite", "third"}[r.IntN(3)]]
		store.leave(upTo([]time.Duration{5 * time.Minute, 8 * time.Hour}[r.IntN(2)]))
	case 13, 14, 15:
		one.prove()
	default:
		one.pin(upTo(60 * 24 * time.Hour))
	}
}

// settled: there is one that has had the time to find out.
func (f *fleet) settled() bool {
	for _, s := range f.servers {
		if time.Since(s.began) >= inTime {
			return true
		}
	}
	return false
}

// look compares the services' reports with the facts.
func (f *fleet) look() {
	f.looks++
	synctest.Wait()
	told := map[string][]scheduler.Status{}
	for _, s := range f.servers {
		for _, one := range s.Status() {
			told[one.Cluster] = append(told[one.Cluster], one)
		}
	}
	for name, s := range f.subjects {
		if f.settled() {
			s.wantTold(told[name])
		}
		if f.looks%300 == 0 {
			s.tidy()
		}
	}
}
