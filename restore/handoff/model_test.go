package handoff_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// data is what a data dir contains.
type data string

const (
	old     data = "old"
	fresh   data = "new"
	blocker data = "blocker" // etcd exits on it
	guard   data = "guard"   // likewise; it outlives the restore
	empty   data = "empty"   // etcd starts a new, empty cluster on it
)

// fakeMember is one member of a fakeWorld.
type fakeMember struct {
	live, staged, aside, failed data // "": nothing
	serves                      data // what its process serves; "": no process
	lost                        bool // its disk no longer exists; the manager makes a new one before it starts the member
	renewed                     bool // it has a new disk
}

// fakeWorld is a manager with its members, in memory: it behaves as a StatefulSet does, and sees faults, kills and strangers.
type fakeWorld struct {
	t          *testing.T
	random     *rand.Rand
	members    []fakeMember
	scaled     bool // the manager starts members
	claimed    bool
	pinned     bool
	suspended  bool
	touched    bool // a member was stopped
	down       bool // the record has members stopped
	first      data // in the data dirs at the beginning: old, or "" for none
	sabotage   int  // faults that may still happen
	detours    int  // obstacles that may still be met
	forbids    bool // the API forbids everything
	hangs      bool // no process gets anything from the store
	leaderless bool // no member finds a leader
	quota      int  // how often it refuses a process for each disk before that is an error; 0: it refuses none
	away       int  // the number of a member whose node starts no process, from 1 on; 0: none
	saved      bool // the manager started members at the beginning
	serves     bool // its members had a leader then
	strikes    int  // how often the record may still be lost
	losses     int  // disks that may still be lost

	findings []handoff.Finding       // of Inspect
	doing    func(task handoff.Task) // is called before each task; nil: is not
	restless bool                    // the manager replaces pods
}

func newFakeWorld(t *testing.T, random *rand.Rand) *fakeWorld {
	w := &fakeWorld{t: t, random: random, scaled: true, sabotage: random.IntN(12), detours: random.IntN(3)}
	if random.IntN(4) > 0 {
		w.first = old
	}
	if random.IntN(20) == 0 {
		w.quota = 1 + random.IntN(10)
	}
	if random.IntN(4) == 0 {
		w.strikes = 1 + random.IntN(2)
	}
	if random.IntN(4) == 0 {
		w.losses = 1 + random.IntN(2)
	}
	if random.IntN(20) == 0 {
		w.away, w.strikes, w.losses = 1+random.IntN(3), 0, 0
	}
	w.scaled = w.first == old && random.IntN(8) > 0 // else the cluster is new, and not started yet, or stopped
	for range 3 {
		m := fakeMember{live: w.first}
		if w.scaled {
			m.serves = m.live
		}
		w.members = append(w.members, m)
	}
	w.saved, w.serves = w.scaled, w.scaled && random.IntN(8) > 0
	return w
}

// fails reports whether a fault happens now.
func (w *fakeWorld) fails(oneIn int) bool {
	if w.sabotage == 0 || w.random.IntN(oneIn) > 0 {
		return false
	}
	w.sabotage--
	return true
}

// fault returns an error of a random kind now and then: one that passes, or one that does not.
func (w *fakeWorld) fault() error {
	switch {
	case w.forbids:
		return handoff.ErrForbidden
	case w.fails(8):
		return errors.New("the API server does not answer")
	case w.fails(20):
		return fmt.Errorf("%w: the disk is broken", fault.Damaged)
	}
	return nil
}

// run lets time pass: a stranger may scale the manager up, and the manager starts members.
func (w *fakeWorld) run() {
	if !w.isExposed() && w.fails(15) {
		w.scaled = true
	}
	for i := range w.members {
		m := &w.members[i]
		if w.scaled && m.lost {
			*m = fakeMember{renewed: true}
		}
		starts := w.scaled && m.serves == "" && m.live != blocker && m.live != guard && w.random.IntN(3) == 0
		if starts && (m.live != "" || w.down) { // before and after it, an empty cluster is not the restore's
			m.serves = cmp.Or(m.live, empty)
		}
	}
	w.check()
}

// lose loses the disk of a stopped member now and then.
func (w *fakeWorld) lose() {
	m := &w.members[w.random.IntN(len(w.members))]
	if w.losses > 0 && m.serves == "" && !w.scaled && w.random.IntN(4) == 0 {
		w.losses--
		*m = fakeMember{lost: true}
	}
}

// isExposed reports whether a disk was lost that is not blocked yet: a stranger who scales up then starts an empty member, and no restore
// can prevent that.
func (w *fakeWorld) isExposed() bool {
	return slices.ContainsFunc(w.members, func(m fakeMember) bool { return m.lost || m.renewed && m.live == "" })
}

// check fails the test if two clusters serve, or an empty member.
func (w *fakeWorld) check() {
	w.t.Helper()
	serving := map[data]int{}
	for _, m := range w.members {
		serving[m.serves]++
		if m.serves == empty {
			w.t.Fatalf("an empty member has started: %+v", w.members)
		}
	}
	if serving[old] > 0 && serving[fresh] > 0 {
		w.t.Fatalf("%v serve at the same time", serving)
	}
}

func (w *fakeWorld) Inspect(context.Context) (handoff.Handoff, error) {
	err := w.fault()
	h := handoff.Handoff{Manager: "fake", Serves: w.serves, Stopped: !w.saved, Held: w.touched, Saved: fmt.Sprint(w.saved), Findings: w.findings}
	for i := range w.members {
		h.Members = append(h.Members, handoff.Member{Member: plan.Member{Name: name(i)}})
	}
	return h, err
}

func name(i int) string { return fmt.Sprintf("m%d", i) }

func (w *fakeWorld) Fence(context.Context, handoff.Handoff) (handoff.Progress, error) {
	err := w.fault()
	if err != nil {
		return handoff.Progress{}, err
	}
	w.scaled, w.touched = false, true
	for i := range w.members {
		if w.members[i].serves != "" {
			w.members[i].serves = ""
			return handoff.Progress{Waiting: "members run"}, nil
		}
	}
	return handoff.Progress{Done: true}, nil
}

func (w *fakeWorld) Release(context.Context, handoff.Handoff) (handoff.Progress, error) {
	w.scaled = true
	err := w.fault()
	return handoff.Progress{Done: err == nil}, err
}

func (w *fakeWorld) Return(_ context.Context, h handoff.Handoff) (handoff.Progress, error) {
	w.scaled = h.Saved == "true"
	err := w.fault()
	return handoff.Progress{Done: err == nil}, err
}

func (w *fakeWorld) Settled(context.Context, handoff.Handoff) (handoff.Progress, error) {
	return handoff.Progress{Done: !w.restless, Waiting: "pods are replaced"}, w.fault()
}

func (w *fakeWorld) Do(_ context.Context, r handoff.Record, t handoff.Task) ([]handoff.Progress, error) {
	all := make([]handoff.Progress, len(w.members))
	if w.doing != nil {
		w.doing(t)
	}
	if w.hangs && t == handoff.DoStage {
		return slices.Repeat([]handoff.Progress{{Waiting: "the store does not answer"}}, len(all)), nil
	}
	if w.quota > 0 {
		return w.refuse(all, r, t)
	}
	if w.away > 0 {
		all[w.away-1].Idle = true
	}
	w.lose()
	for i := range w.members {
		err := w.fault()
		if err != nil {
			return all, err
		}
		m := &w.members[i]
		if t == handoff.DoBlock && !slices.Contains(r.Lost, name(i)) {
			all[i] = handoff.Progress{Done: !m.lost, Gone: m.lost}
			continue
		}
		if w.away == i+1 {
			all[i], err = w.unreached(r, i, t)
		} else {
			all[i], err = w.task(m, t)
		}
		if err != nil {
			return all, err
		}
		w.run()
	}
	return all, nil
}

// unreached returns the progress of a task on the disk of a member whose node starts no process.
func (w *fakeWorld) unreached(r handoff.Record, i int, t handoff.Task) (handoff.Progress, error) {
	switch {
	case t == handoff.DoDiscard && slices.Contains(r.Untouched, r.Handoff.Members[i].Name):
		return handoff.Progress{Done: true, Idle: true}, nil
	case t == handoff.DoStage && w.random.IntN(10) == 0:
		return handoff.Progress{Idle: true}, fmt.Errorf("%w: the node is down", fault.Refused)
	}
	return handoff.Progress{Waiting: "the node is down", Idle: t == handoff.DoStage}, nil
}

// refuse refuses a process for each disk.
func (w *fakeWorld) refuse(all []handoff.Progress, r handoff.Record, t handoff.Task) ([]handoff.Progress, error) {
	for i := range all {
		all[i] = handoff.Progress{Waiting: "the quota is used up", Idle: t == handoff.DoStage}
		if t == handoff.DoDiscard && slices.Contains(r.Untouched, r.Handoff.Members[i].Name) {
			all[i] = handoff.Progress{Done: true, Idle: true}
		}
	}
	w.quota = max(1, w.quota-1)
	if w.quota == 1 && t != handoff.DoDiscard {
		return all, fmt.Errorf("%w: the quota is used up", fault.Refused)
	}
	return all, nil
}

// task carries out a task on one disk, as package swap does.
func (w *fakeWorld) task(m *fakeMember, t handoff.Task) (handoff.Progress, error) {
	running := handoff.Progress{Waiting: "etcd runs"}
	switch {
	case m.lost && t == handoff.DoStage:
		*m = fakeMember{renewed: true, staged: fresh, live: blocker}
		return handoff.Progress{Done: true, Built: &handoff.Built{ClusterID: "new"}, Vacant: true}, nil
	case m.lost && t == handoff.DoBlock:
		*m = fakeMember{renewed: true, live: guard}
	case t == handoff.DoBlock && (m.live == "" || m.live == blocker || m.live == guard):
		m.live = guard
	case t == handoff.DoBlock:
		return handoff.Progress{Waiting: "there is other data"}, nil
	case t == handoff.DoSeal && m.live == "" && !m.lost:
		return handoff.Progress{Stale: true}, nil
	case m.lost && (t == handoff.DoSeal || t == handoff.DoPlace || t == handoff.DoReview):
		return handoff.Progress{}, fmt.Errorf("%w: the disk no longer exists", fault.Refused)
	case m.lost:
		return handoff.Progress{Done: true, Gone: true}, nil
	case t == handoff.DoStage && w.detours > 0 && w.random.IntN(3) == 0:
		w.detours--
		return handoff.Progress{Met: &handoff.Met{Obstacle: plan.Obstacle{Base: true}}}, nil
	case t == handoff.DoStage:
		m.staged, m.live = fresh, cmp.Or(m.live, blocker)
		return handoff.Progress{Done: true, Built: &handoff.Built{ClusterID: "new"}, Vacant: w.first == "" || m.renewed}, nil
	case t == handoff.DoSeal && m.live == old:
		if m.serves != "" {
			return running, nil
		}
		if w.fails(20) {
			return handoff.Progress{Stale: true}, nil
		}
		m.live, m.aside = blocker, old
	case t == handoff.DoPlace && m.live == blocker:
		m.live, m.staged = m.staged, ""
	case t == handoff.DoWithdraw && m.live == fresh:
		if m.serves != "" {
			return running, nil
		}
		m.live, m.failed = blocker, fresh
	case t == handoff.DoBack && m.live == blocker && m.aside == old:
		m.live, m.aside = old, ""
	case t == handoff.DoBack:
		return handoff.Progress{Done: true, Vacant: m.live == "" || m.live == blocker || m.live == guard}, nil
	case t == handoff.DoDiscard && (m.live == old || m.live == guard):
		m.staged = ""
	case t == handoff.DoDiscard && m.aside == "" && m.live != fresh:
		m.staged, m.live = "", ""
	case t == handoff.DoClean:
		m.aside, m.failed, m.staged = "", "", ""
	}
	return handoff.Progress{Done: true}, nil
}

func (w *fakeWorld) Take(context.Context, handoff.Record) (handoff.Progress, error) {
	return w.hold(&w.claimed, true)
}

func (w *fakeWorld) Pin(context.Context, handoff.Record) (handoff.Progress, error) {
	return w.hold(&w.pinned, true)
}

func (w *fakeWorld) Suspend(context.Context, handoff.Record) (handoff.Progress, error) {
	return w.hold(&w.suspended, true)
}

func (w *fakeWorld) Lift(context.Context, handoff.Record) (handoff.Progress, error) {
	w.pinned, w.suspended = false, false
	return w.hold(&w.claimed, false)
}

func (w *fakeWorld) hold(what *bool, held bool) (handoff.Progress, error) {
	err := w.fault()
	if err == nil {
		*what = held
	}
	return handoff.Progress{Done: err == nil}, err
}

// verify checks that all members serve the expected data.
func (w *fakeWorld) verify(_ context.Context, _ handoff.Handoff, b handoff.Built) (handoff.Progress, error) {
	if w.leaderless {
		return handoff.Progress{Waiting: "no leader"}, nil
	}
	for _, m := range w.members {
		if m.serves == "" && !(m.live == guard && b.ClusterID == "") || b.ClusterID != "" && m.serves != fresh {
			return handoff.Progress{Waiting: "members do not serve"}, nil
		}
	}
	return handoff.Progress{Done: true}, nil
}

// TestEveryOrderEndsRight carries out restores in a fake world: with errors that pass and errors that do not, kills before a step is on
// record, strangers who start members, disks that are lost, and orders to go back at any time. Two clusters never serve at the same time, nor an
// empty member.
// Each restore ends, and its last phase agrees with the state of the members.
func TestEveryOrderEndsRight(t *testing.T) {
	ends := map[handoff.Phase]int{}
	seeds := uint64(10_000)
	if testing.Short() {
		seeds = 1000
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newFakeWorld(t, random)
		ends[w.restore(seed)]++
	}
	t.Log(ends)
	for _, p := range []handoff.Phase{handoff.Planned, handoff.Succeeded, handoff.Refused, handoff.Failed} {
		if uint64(ends[p]) < seeds/100 {
			t.Errorf("%d restores end in %s: the faults do not lead there", ends[p], p)
		}
	}
}

// restore carries out one restore, and returns the phase in which it has ended.
func (w *fakeWorld) restore(seed uint64) handoff.Phase {
	now := time.Unix(0, 0)
	orders := handoff.Orders{DryRun: w.random.IntN(20) == 0, Limit: 10 * time.Minute, Keep: time.Hour}
	if orders.DryRun { // it has no record
		w.strikes = 0
	}
	back := w.random.IntN(400) // the step at which the order comes; most restores have ended by then
	if w.quota > 0 {           // a lost record does not show that no process was started
		w.strikes = 0
	}
	act := handoff.Restore{
		Manager: w, Claim: w, Verify: w.verify,
		Plan: func(context.Context, handoff.Handoff, []handoff.Met) (plan.Plan, error) {
			return plan.Plan{ID: "p"}, w.fault()
		},
	}
	r := handoff.New("0123456789abcdef", orders, now)
	var path []handoff.Step
	released := false
	for n := 0; r.Step != handoff.None; n++ {
		if n > 1000 {
			w.t.Fatalf("seed %d: it does not end: %s %+v, members %+v", seed, path[len(path)-20:], r, w.members)
		}
		orders.Back = orders.Back || n == back
		path = append(path, r.Step)
		next := act.Act(w.t.Context(), r, orders, func() time.Time { return now })
		w.run()
		w.checkRecord(seed, next)
		if !w.fails(12) { // else it was killed before it stored the record
			r = next
			w.down = !r.Down.IsZero() && r.Up.IsZero()
		}
		r = w.strike(r, now)
		if r.Step == handoff.Clean && now.Sub(r.Up) < orders.Keep {
			w.t.Fatalf("seed %d: data is removed %s after the end", seed, now.Sub(r.Up))
		}
		released = released || r.Step == handoff.Release
		if released && r.Phase == handoff.RollingBack && !orders.Back {
			w.t.Fatalf("seed %d: it goes back by itself after the restored members were started: %s", seed, r.Reason)
		}
		now = now.Add(time.Duration(w.random.IntN(60)) * time.Second)
	}
	w.checkEnd(seed, r)
	return r.Phase
}

// strike loses the record of a restore that has not ended, now and then.
func (w *fakeWorld) strike(r handoff.Record, now time.Time) handoff.Record {
	isOver := r.Phase.HasEnded() || w.first == "" && r.End != "" // an empty cluster that a stranger starts then is not the restore's
	if w.strikes == 0 || isOver || r.Phase == handoff.Pending || w.random.IntN(20) > 0 {
		return r
	}
	w.strikes--
	h, err := w.Inspect(w.t.Context())
	if err != nil {
		return r
	}
	w.claimed, w.suspended = true, true // by the owner
	return handoff.Rebuild(r.ID, r.Phase, h, now)
}

// checkRecord checks a record against the world.
func (w *fakeWorld) checkRecord(seed uint64, r handoff.Record) {
	w.t.Helper()
	if r.Down.IsZero() && w.touched {
		w.t.Fatalf("seed %d: a member was stopped, and the record does not have it: %+v", seed, r)
	}
	stopped := !r.Down.IsZero() && r.Up.IsZero()
	if stopped && (!w.claimed || !w.suspended) {
		w.t.Fatalf("seed %d: in %s the target is claimed: %t, backups are suspended: %t", seed, r.Step, w.claimed, w.suspended)
	}
}

// checkEnd checks that the phase in which a restore has ended is true.
func (w *fakeWorld) checkEnd(seed uint64, r handoff.Record) {
	w.t.Helper()
	if w.claimed || w.pinned || w.suspended {
		w.t.Fatalf("seed %d: after the end the target is claimed: %t, pinned: %t, suspended: %t", seed, w.claimed, w.pinned, w.suspended)
	}
	want := w.first
	if r.Phase == handoff.Succeeded {
		want = fresh
	}
	for _, m := range w.members {
		isLost := m.lost || m.renewed
		switch {
		case m.renewed && r.Phase == handoff.Failed && r.Sealed && w.first == old && m.live != guard:
			w.t.Fatalf("seed %d: after %s a new disk is not blocked: %+v", seed, r.Phase, w.members)
		case isLost, w.first == "" && r.Rebuilt && m.live == guard: // no record says that there was no old data
			continue
		case r.Phase != handoff.Succeeded && (r.StaysStopped() || !w.saved || !w.serves && len(r.Lost) == 0):
			m.serves = want
		}
		if m.live != want || m.serves != want && want != "" || m.staged != "" || m.aside != "" || m.failed != "" {
			w.t.Fatalf("seed %d: after %s (%s): %+v", seed, r.Phase, r.Reason, w.members)
		}
	}
	if w.touched && (r.Phase == handoff.Refused || r.Phase == handoff.Planned) {
		w.t.Fatalf("seed %d: a member was stopped, and it ended in %s", seed, r.Phase)
	}
	if !r.Phase.HasEnded() || r.Phase != handoff.Succeeded && r.Phase != handoff.Planned && r.Reason == "" {
		w.t.Fatalf("seed %d: it ended in %s, reason %q", seed, r.Phase, r.Reason)
	}
}

// TestForbidden lets the API forbid acts, as an API server does with all at its start. For a while, that ends no restore. For ever, it does:
// after a minute if no member is down, else by the time limit.
func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		forbids func(r handoff.Record, acts int) bool // acts counts those of the step
		end     handoff.Phase
		after   time.Duration // at least
	}{
		{func(_ handoff.Record, acts int) bool { return acts < 5 }, handoff.Succeeded, 0},
		{func(r handoff.Record, acts int) bool { return acts < 20 && !r.Down.IsZero() }, handoff.Succeeded, 0},
		{func(r handoff.Record, _ int) bool { return r.Step == handoff.Take }, handoff.Refused, time.Minute},
		{func(r handoff.Record, _ int) bool { return r.Step == handoff.Stage }, handoff.Refused, time.Minute},
		{func(r handoff.Record, _ int) bool { return r.Step == handoff.Seal }, handoff.Failed, time.Hour},
	} {
		phase, took := newCalmWorld(t).restoreWhile(c.forbids)
		if phase != c.end || took < c.after {
			t.Errorf("the restore is %s after %s, want %s after %s", phase, took, c.end, c.after)
		}
	}
}

// TestOldOrdersStopNoMember restores from a store that does not answer for hours. In the end the restore is refused, because its owner may not
// expect the stop of the members any more.
func TestOldOrdersStopNoMember(t *testing.T) {
	for name, c := range map[string]struct {
		silence, pause time.Duration
		serves         bool
		want           handoff.Phase
	}{
		"a short silence":        {5 * time.Hour, 0, true, handoff.Succeeded},
		"a long silence":         {7 * time.Hour, 0, true, handoff.Refused},
		"of a dead cluster":      {7 * time.Hour, 0, false, handoff.Succeeded},
		"then a pause that ends": {7 * time.Hour, 9 * time.Hour, true, handoff.Succeeded},
		"after a pause":          {8 * time.Hour, 7 * time.Hour, true, handoff.Succeeded},
	} {
		w, waited := newCalmWorld(t), time.Duration(0)
		w.serves = c.serves
		r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
			waited += 10 * time.Second // as restoreWith does
			w.hangs = waited < c.silence
			orders.Expires, orders.Pause = 6*time.Hour, waited < c.pause
		})
		if r.Phase != c.want || c.want == handoff.Refused && (w.touched || !strings.Contains(r.Reason, "the store does not answer")) {
			t.Errorf("%s: the restore is %s: %s", name, r.Phase, r.Reason)
		}
	}
}

// TestOldFenceIsNotBegun continues a restore whose process was away when it was about to stop the members: it stops none.
func TestOldFenceIsNotBegun(t *testing.T) {
	w := newCalmWorld(t)
	r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
		if r.Step == handoff.Fence {
			orders.Limit = -time.Second // as if it had passed
		}
	})
	if r.Phase != handoff.Refused && r.Phase != handoff.Failed || w.touched {
		t.Errorf("the restore is %s, and has stopped members: %t", r.Phase, w.touched)
	}
}

// TestRecheckEnds goes back without a disk, and the others get no leader: after the limit the restore ends, so that another one can help.
func TestRecheckEnds(t *testing.T) {
	w := newCalmWorld(t)
	w.serves = true
	r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
		orders.Back = r.Step == handoff.Place
		w.leaderless = r.Step == handoff.Recheck
	})
	if r.Phase != handoff.Failed || !strings.Contains(r.Reason, "do not serve: no leader") || r.Step != handoff.None && r.Step != handoff.Keep {
		t.Errorf("the restore is %s: %s", r.Phase, r.Reason)
	}
}

// TestDisksLostBeforeAnotherBuild exchanges all disks for new ones while the old data is being sealed, and orders the restore back once the
// new data was built again. The new disks do not count as disks without old data: no member is started on them.
func TestDisksLostBeforeAnotherBuild(t *testing.T) {
	w := newCalmWorld(t)
	builds := 0
	r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
		switch {
		case r.Step == handoff.Seal && builds == 0:
			for i := range w.members {
				w.members[i] = fakeMember{renewed: true}
			}
			builds++
		case r.Step == handoff.Seal && w.members[0].staged == fresh:
			orders.Back = true
		}
	})
	if r.Phase != handoff.Failed || !r.StaysStopped() || len(r.Lost) != 3 || w.scaled {
		t.Errorf("the restore is %s without the disks of %v, and members are started: %t; want Failed, without all, and none started",
			r.Phase, r.Lost, w.scaled)
	}
}

// TestPauseAfterTheStop orders a pause while members are down, and exchanges a disk, so that the restore builds again: it does not wait.
func TestPauseAfterTheStop(t *testing.T) {
	w, acts := newCalmWorld(t), 0
	r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
		if r.Step == handoff.Seal && !orders.Pause {
			orders.Pause = true
			w.members[1] = fakeMember{renewed: true}
		}
		acts++
		if acts > 100 {
			t.Fatalf("the restore waits in %s, with members down since %s", r.Step, r.Down)
		}
	})
	if r.Phase != handoff.Succeeded {
		t.Errorf("the restore is %s: %s", r.Phase, r.Reason)
	}
}

// TestOldDataGoneBeforeSeal removes the live data of members after the new data was built, and orders the restore back. Nothing is there to
// put back, so no such member is started.
func TestOldDataGoneBeforeSeal(t *testing.T) {
	for gone := 1; gone <= 3; gone++ {
		w := newCalmWorld(t)
		r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
			if r.Step != handoff.Seal {
				return
			}
			orders.Back = true
			for i := range gone {
				w.members[i].live = ""
			}
		})
		if r.Phase != handoff.Failed || len(r.Lost) != gone || r.StaysStopped() != (gone > 1) || w.members[0].live != guard {
			t.Errorf("%d gone: the restore is %s without the disks of %v: %+v", gone, r.Phase, r.Lost, w.members)
		}
		if !strings.Contains(r.Reason, "the old data of m0") || !strings.Contains(r.Reason, "restore again") {
			t.Errorf("%d gone: the reason is %q", gone, r.Reason)
		}
	}
}

// TestLostDiskNeedsALeader loses one disk of a cluster that had no leader: with a lost disk, the restore ends only once the others have one.
func TestLostDiskNeedsALeader(t *testing.T) {
	w := newCalmWorld(t)
	w.serves = false
	rechecks := 0
	r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
		switch {
		case r.Step == handoff.Seal:
			orders.Back, w.members[0] = true, fakeMember{lost: true}
		case r.Step == handoff.Recheck && rechecks < 20:
			w.members[1].serves = ""
			rechecks++
		}
	})
	if r.Phase != handoff.Failed || rechecks != 20 || w.members[1].serves != old {
		t.Errorf("the restore is %s after %d checks: %+v", r.Phase, rechecks, w.members)
	}
}

// TestEachExchangeStopsMembersFirst lets another program start members before each task that exchanges data, of a restore that goes back and finds
// that a disk is lost: they are stopped again before the task begins.
func TestEachExchangeStopsMembersFirst(t *testing.T) {
	w := newCalmWorld(t)
	exchanges := map[handoff.Step]handoff.Task{
		handoff.Seal: handoff.DoSeal, handoff.Place: handoff.DoPlace, handoff.Withdraw: handoff.DoWithdraw, handoff.Back: handoff.DoBack, handoff.Block: handoff.DoBlock,
	}
	step := handoff.None
	begun := map[handoff.Step]bool{}
	w.doing = func(task handoff.Task) {
		if exchanges[step] != task {
			return
		}
		begun[step] = true
		if w.scaled {
			t.Errorf("%s begins while members are started", task)
		}
		if task == handoff.DoWithdraw {
			w.members[0] = fakeMember{lost: true}
		}
	}
	w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
		step = r.Step
		_, exchanged := exchanges[step]
		w.scaled = w.scaled || exchanged
		orders.Back = orders.Back || step == handoff.Release
	})
	if len(begun) != len(exchanges) {
		t.Errorf("tasks have begun in %v, want in %v", begun, exchanges)
	}
}

// TestFindingThatRefuses checks that a finding which refuses the restore ends it, and that no member is stopped.
func TestFindingThatRefuses(t *testing.T) {
	w := newCalmWorld(t)
	w.findings = []handoff.Finding{{Text: "a note"}, {Text: "a claim of a later pod", Remedy: "delete it", Refuses: true}}
	r := w.restoreWith(func(handoff.Record, *handoff.Orders) {})
	if r.Phase != handoff.Refused || r.Reason != "a claim of a later pod: delete it" || w.touched || w.members[0].staged != "" {
		t.Errorf("the restore is %s: %s; members were stopped: %t", r.Phase, r.Reason, w.touched)
	}
}

// TestPauseStopsNoMember pauses a restore: it builds the new data, and stops no member before the pause ends.
func TestPauseStopsNoMember(t *testing.T) {
	w, acts := newCalmWorld(t), 0
	r := w.restoreWith(func(r handoff.Record, orders *handoff.Orders) {
		acts++
		orders.Pause = acts <= 50
		if orders.Pause && w.touched {
			t.Fatalf("in step %s members are stopped: %+v", r.Step, w.members)
		}
	})
	if r.Phase != handoff.Succeeded || acts <= 50 {
		t.Errorf("the restore is %s after %d acts: %s", r.Phase, acts, r.Reason)
	}
}

// TestSuccessIsObserved keeps the members without a leader for a while, or their manager from being settled: only after that the restore has succeeded.
func TestSuccessIsObserved(t *testing.T) {
	for name, set := range map[string]func(w *fakeWorld, away bool){
		"no leader":   func(w *fakeWorld, away bool) { w.leaderless = away },
		"not settled": func(w *fakeWorld, away bool) { w.restless = away },
	} {
		w, acts := newCalmWorld(t), 0
		r := w.restoreWith(func(handoff.Record, *handoff.Orders) {
			acts++
			set(w, acts <= 50)
		})
		if r.Phase != handoff.Succeeded || acts <= 50 {
			t.Errorf("%s: the restore is %s after %d acts: %s", name, r.Phase, acts, r.Reason)
		}
	}
}

// TestNoQuorumIsStarted checks with how many members a rollback starts none: the others could not have a leader, and one that a person adds to them
// would get an old identity back.
func TestNoQuorumIsStarted(t *testing.T) {
	for _, c := range []struct {
		members, lost int
		want          bool
	}{{1, 0, false}, {1, 1, true}, {2, 1, true}, {3, 0, false}, {3, 1, false}, {3, 2, true}, {4, 1, false}, {4, 2, true}, {5, 2, false}, {5, 3, true}} {
		r := handoff.Record{Handoff: handoff.Handoff{Members: make([]handoff.Member, c.members)}, Lost: make([]string, c.lost)}
		if r.StaysStopped() != c.want {
			t.Errorf("%d of %d members are lost: the others stay stopped: %t", c.lost, c.members, !c.want)
		}
	}
}

// newCalmWorld returns a world of members that serve old data, without faults.
func newCalmWorld(t *testing.T) *fakeWorld {
	w := &fakeWorld{t: t, random: rand.New(rand.NewPCG(1, 1)), first: old, scaled: true, saved: true, serves: true}
	for range 3 {
		w.members = append(w.members, fakeMember{live: old, serves: old})
	}
	return w
}

// restoreWhile carries out a restore. It returns its end, and how long that took.
func (w *fakeWorld) restoreWhile(forbids func(r handoff.Record, acts int) bool) (handoff.Phase, time.Duration) {
	acts, step := 0, handoff.None
	r := w.restoreWith(func(r handoff.Record, _ *handoff.Orders) {
		if r.Step != step {
			acts, step = 0, r.Step
		}
		w.forbids = forbids(r, acts)
		acts++
	})
	return r.Phase, r.Since.Sub(time.Unix(0, 0))
}

// restoreWith carries out a restore, with ten seconds from act to act, and calls before ahead of each. It returns the record at the end.
func (w *fakeWorld) restoreWith(before func(handoff.Record, *handoff.Orders)) handoff.Record {
	now := time.Unix(0, 0)
	act := handoff.Restore{
		Manager: w, Claim: w, Verify: w.verify,
		Plan: func(context.Context, handoff.Handoff, []handoff.Met) (plan.Plan, error) {
			return plan.Plan{ID: "p"}, nil
		},
	}
	orders := handoff.Orders{Limit: time.Hour, Keep: time.Hour}
	r := handoff.New("0123456789abcdef", orders, now)
	for !r.Phase.HasEnded() {
		before(r, &orders)
		r = act.Act(w.t.Context(), r, orders, func() time.Time { return now })
		w.down = !r.Down.IsZero() && r.Up.IsZero()
		w.run()
		now = now.Add(10 * time.Second)
	}
	return r
}
