package swap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// model is a disk in memory: which data is at each path of each slot.
type model struct {
	start
	data map[string]string // by live, new, old, failed; "": missing
	log  map[string]string // nil: no slot
}

// start is a kind of disk.
type start struct {
	withLog bool
	vacant  bool // there is no old data
}

var starts = []start{{}, {withLog: true}, {vacant: true}, {withLog: true, vacant: true}}

const (
	oldData  = "old"
	newData  = "new"
	aBlocker = "blocker"
)

func (s start) staged() model {
	slot := func() map[string]string {
		return map[string]string{"live": s.old(), newName: newData, oldName: aBlocker, failedName: aBlocker}
	}
	m := model{start: s, data: slot()}
	if s.withLog {
		m.log = slot()
	}
	return m
}

// old returns the live data before the first action.
func (s start) old() string {
	if s.vacant {
		return aBlocker
	}
	return oldData
}

// ends returns the data on which etcd starts after goal.
func (s start) ends(goal Goal) string {
	switch {
	case goal == Place:
		return newData
	case goal == Undo && !s.vacant:
		return oldData
	}
	return ""
}

var kindOf = map[string]Kind{"": Missing, oldData: OldDir, newData: NewDir, aBlocker: Blocker}

func (m model) slotOf(at map[string]string) Slot {
	s := Slot{kindOf[at["live"]], kindOf[at[newName]], kindOf[at[oldName]], kindOf[at[failedName]]}
	if m.vacant {
		s.Old = NoOld
	}
	return s
}

func (m model) facts() Facts {
	f := Facts{Data: m.slotOf(m.data)}
	if m.log != nil {
		slot := m.slotOf(m.log)
		f.Log = &slot
	}
	return f
}

func (m model) act(a action) {
	at := m.data
	if a.part == log {
		at = m.log
	}
	switch a.do {
	case block:
		at["live"] = aBlocker
	case prepare:
		at[a.with] = aBlocker
	case exchange:
		at["live"], at[a.with] = at[a.with], at["live"]
	}
}

// boots returns the data on which etcd would start: old, new, "" if it refuses; an error if it would start on anything else.
func (m model) boots() (string, error) {
	live := m.data["live"]
	switch {
	case live == aBlocker:
		return "", nil
	case live == "":
		return "", errors.New("the data dir is missing")
	case m.log != nil && m.log["live"] != live:
		return "", fmt.Errorf("the data is %s, the log %q", live, m.log["live"])
	}
	return live, nil
}

func (m model) reach(t *testing.T, goal Goal) {
	t.Helper()
	for range 20 {
		a, err := next(goal, m.facts())
		if err != nil {
			t.Fatalf("%s: %v", goal, err)
		}
		if a.do == done {
			return
		}
		m.act(a)
		_, err = m.boots()
		if err != nil {
			t.Fatalf("%s: after %+v: %v", goal, a, err)
		}
		if m.facts().State() == Unknown {
			t.Fatalf("%s: after %+v: %+v has no state", goal, a, m)
		}
	}
	t.Fatalf("%s is not reached", goal)
}

// From every point on the way, each goal that can be asked for there is reached, and etcd never starts on a part or on nothing.
func TestEveryWayIsSafe(t *testing.T) {
	for _, s := range starts {
		for _, way := range [][]Goal{
			{Close, Place, Undo}, {Close, Undo, Close, Place, Undo}, {Close, Place}, {Close, Withdraw}, {Close, Place, Withdraw},
			{Close, Place, Withdraw, Undo}, {Close, Withdraw, Place, Withdraw, Withdraw, Undo, Withdraw, Undo},
		} {
			m := s.staged()
			for _, goal := range way {
				m.reach(t, goal)
			}
			got, err := m.boots()
			if got != s.ends(way[len(way)-1]) || err != nil {
				t.Errorf("%+v, %v: etcd starts on %q, %v", s, way, got, err)
			}
		}
	}
}

// steps returns the number of actions of a way.
func (s start) steps(t *testing.T, way []Goal) (n int) {
	t.Helper()
	walk(t, s.staged(), way, 1000, func() { n++ })
	return n
}

// walk carries out at most limit actions of a way.
func walk(t *testing.T, m model, way []Goal, limit int, each func()) {
	t.Helper()
	for _, goal := range way {
		for ; limit > 0; limit-- {
			a, err := next(goal, m.facts())
			if err != nil {
				t.Fatal(err)
			}
			if a.do == done {
				break
			}
			m.act(a)
			each()
		}
	}
}

// After any action the operator may decide to go back, on this member alone or on several together. Once the new data is withdrawn, etcd
// starts on no data that it has not started on before.
func TestUndoFromEveryPoint(t *testing.T) {
	way := []Goal{Close, Place}
	for _, s := range starts {
		for k := range s.steps(t, way) + 1 {
			for _, back := range [][]Goal{{Undo}, {Withdraw, Undo}} {
				m := s.staged()
				walk(t, m, way, k, func() {})
				for _, goal := range back {
					before, _ := m.boots()
					m.reach(t, goal)
					got, err := m.boots()
					if goal == Withdraw && (got == newData || got != before && before != newData || err != nil) {
						t.Errorf("%+v, %d actions, withdrawn: etcd starts on %q, before it on %q, %v", s, k, got, before, err)
					}
				}
				got, err := m.boots()
				if got != s.ends(Undo) || err != nil {
					t.Errorf("%+v, after %d actions: etcd starts on %q, %v", s, k, got, err)
				}
			}
		}
	}
}

// A path that an operator removed is blocked first, whatever was asked for.
func TestMissingDataDirIsBlocked(t *testing.T) {
	for _, s := range starts {
		for _, way := range [][]Goal{{Close}, {Close, Place}} {
			for _, back := range [][]Goal{{Undo}, {Withdraw, Undo}} {
				m := s.staged()
				for _, goal := range way {
					m.reach(t, goal)
				}
				m.data["live"] = ""
				for _, goal := range back {
					m.reach(t, goal)
				}
				got, err := m.boots()
				if got != s.ends(Undo) || err != nil {
					t.Errorf("%+v, %v, %v: etcd starts on %q, %v", s, way, back, got, err)
				}
			}
		}
	}
}

// The data dir is blocked before a log that an operator removed.
func TestMissingLogIsBlocked(t *testing.T) {
	for _, vacant := range []bool{false, true} {
		for _, back := range [][]Goal{{Undo}, {Withdraw}, {Withdraw, Undo}} {
			s := start{withLog: true, vacant: vacant}
			m := s.staged()
			walk(t, m, []Goal{Close, Place}, 1000, func() {})
			m.log["live"] = ""
			for _, goal := range back {
				m.reach(t, goal)
				got, err := m.boots()
				if got != s.ends(goal) || err != nil {
					t.Errorf("%+v, %s: etcd starts on %q, %v", s, goal, got, err)
				}
			}
		}
	}
}

func TestGoalsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		f    Facts
		goal Goal
	}{
		"the new data is not complete": {Facts{Data: Slot{OldDir, PartDir, Missing, Missing}}, Close},
		"there is no new data":         {Facts{Data: Slot{OldDir, Missing, Missing, Missing}}, Close},
		"not closed":                   {Facts{Data: Slot{OldDir, NewDir, Blocker, Blocker}}, Place},
		"undone":                       {Facts{Data: Slot{OldDir, Blocker, Blocker, NewDir}}, Place},
		"other live data":              {Facts{Data: Slot{OtherDir, NewDir, Blocker, Blocker}}, Close},
		"other old data":               {Facts{Data: Slot{NewDir, Blocker, OtherDir, Blocker}}, Undo},
		"other new data":               {Facts{Data: Slot{Blocker, OtherDir, OldDir, Blocker}}, Place},
		"a link":                       {Facts{Data: Slot{Other, NewDir, Blocker, Blocker}}, Close},
		"the old data is missing":      {Facts{Data: Slot{NewDir, Blocker, Missing, Missing}}, Undo},
		"other data in a vacant place": {Facts{Data: Slot{OtherDir, NewDir, NoOld, Blocker}}, Place},
		"not built in a vacant place":  {Facts{Data: Slot{Blocker, PartDir, NoOld, Blocker}}, Place},
		"it was taken away again":      {Facts{Data: Slot{Blocker, Blocker, NoOld, NewDir}}, Place},
		"replaced, and withdrawn":      {Facts{Data: Slot{OtherDir, Blocker, NoOld, Blocker}}, Withdraw},
		"blocked, and withdrawn":       {Facts{Data: Slot{Foreign, NewDir, Blocker, Blocker}}, Withdraw},
		"the log is not staged":        {Facts{Data: Slot{OldDir, NewDir, Blocker, Blocker}, Log: &Slot{OldDir, Missing, Missing, Missing}}, Close},
	} {
		a, err := next(c.goal, c.f)
		if !errors.Is(err, fault.Refused) {
			t.Errorf("%s: %+v, error %v", name, a, err)
		}
	}
}

// While the new data is being built, there is nothing to take back.
func TestNothingToTakeBack(t *testing.T) {
	live, blocked := Slot{OldDir, PartDir, Missing, Missing}, Slot{Blocker, PartDir, NoOld, Missing}
	for _, f := range []Facts{{Data: live}, {live, &live}, {Data: blocked}, {blocked, &blocked}, {blocked, &Slot{OtherDir, Missing, NoOld, Missing}}} {
		for _, goal := range []Goal{Withdraw, Undo} {
			a, err := next(goal, f)
			if a.do != done || err != nil {
				t.Errorf("%s: %+v does %+v, %v", goal, f, a, err)
			}
		}
	}
}

// everySlot calls each for all combinations of kinds.
func everySlot(each func(Slot)) {
	all := []Kind{Missing, OldDir, NewDir, PartDir, OtherDir, Blocker, Foreign, Other}
	for _, live := range all {
		for _, n := range all {
			for _, o := range append(all, NoOld) {
				for _, f := range all {
					each(Slot{live, n, o, f})
				}
			}
		}
	}
}

// Whatever is on the disk, only entries of this restore are exchanged, a live path never becomes vacant, and Clean removes no data that
// the record does not know.
func TestStrangersAreNeitherMovedNorRemoved(t *testing.T) {
	ours := kinds{OldDir, NewDir, Blocker}
	everySlot(func(s Slot) {
		for _, goal := range []Goal{Close, Place, Withdraw, Undo} {
			a, err := next(goal, Facts{Data: s})
			if err == nil && a.do == exchange && (!ours.has(s.Live) || !ours.has(s.at(a.with))) {
				t.Errorf("%s: %+v exchanges %+v", goal, a, s)
			}
			if err == nil && a.do == block && s.Live != Missing {
				t.Errorf("%s: %+v blocks %+v", goal, a, s)
			}
		}
		if !(Facts{Data: s}).cleanable() {
			return
		}
		if s.Live == Blocker && s.Old != NoOld || s.Live == Foreign || s.Live == Missing && s.Old == OldDir {
			t.Errorf("%+v is removed, though no data is live", s)
		}
		for _, aside := range []Kind{s.New, s.Old, s.Failed} {
			if aside == OtherDir || aside == Other || aside == Foreign {
				t.Errorf("%+v is removed, with an unknown %s", s, aside)
			}
		}
	})
}

// The states of data and log are combined without regard for their order, and never to one in which data is removed while a path is blocked.
func TestStatesOfBothSlots(t *testing.T) {
	slots := make(map[State]Slot)
	everySlot(func(s Slot) { slots[s.state()] = s })
	for one, data := range slots {
		for two, log := range slots {
			f := Facts{Data: data, Log: &log}
			if one == two && f.State() != one {
				t.Errorf("both %s: %s", one, f.State())
			}
			if (f.stageable() || f.discardable()) && !f.cleanable() {
				t.Errorf("data %s, log %s: %s, which cannot be removed", one, two, f.State())
			}
			if f.cleanable() && !(Facts{Data: data}.cleanable() && Facts{Data: log}.cleanable()) {
				t.Errorf("data %s, log %s: %s, and removed", one, two, f.State())
			}
		}
	}
}

// An error names a remedy for every state in which a goal is refused.
func TestEachRefusalHasARemedy(t *testing.T) {
	everySlot(func(s Slot) {
		for _, goal := range []Goal{Close, Place, Withdraw, Undo} {
			_, err := next(goal, Facts{Data: s})
			if err != nil && s.state() != Unknown && remedies[s.state()] == nil {
				t.Errorf("%s: %s: %v", goal, s.state(), err)
			}
		}
	})
}

// An action that this version does not know moves nothing.
func TestUnknownActionIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := place{live: filepath.Join(dir, "live"), folder: filepath.Join(dir, "aside")}
	err := errors.Join(os.MkdirAll(filepath.Join(p.live, "of the live path"), 0o700), os.MkdirAll(p.at(oldName), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	s := &Swap{log: &p}
	for _, verb := range []verb{"twist", done} {
		err = s.act(action{verb, log, oldName}, OtherDir)
		if err == nil {
			t.Errorf("%q is carried out", verb)
		}
	}
	_, err = os.Stat(filepath.Join(p.live, "of the live path"))
	if err != nil {
		t.Error(err)
	}
}
