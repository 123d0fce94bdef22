package swap

import (
	"errors"
	"fmt"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// model is a disk in memory: which data is at each path of each slot.
type model struct {
	built bool
	data  map[string]string // by live, new, old, failed; "": missing
	log   map[string]string // nil: no slot
}

const (
	oldData  = "old"
	newData  = "new"
	aBlocker = "blocker"
)

func staged(withLog bool) model {
	m := model{built: true, data: map[string]string{"live": oldData, newName: newData}}
	if withLog {
		m.log = map[string]string{"live": oldData, newName: newData}
	}
	return m
}

func kindOf(content string) Kind {
	switch content {
	case "":
		return Missing
	case aBlocker:
		return Blocker
	}
	return Dir
}

func slotOf(at map[string]string) Slot {
	return Slot{kindOf(at["live"]), kindOf(at[newName]), kindOf(at[oldName]), kindOf(at[failedName])}
}

func (m model) facts() Facts {
	f := Facts{Built: m.built, Data: slotOf(m.data)}
	if m.log != nil {
		slot := slotOf(m.log)
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
		if _, err := m.boots(); err != nil {
			t.Fatalf("%s: after %+v: %v", goal, a, err)
		}
	}
	t.Fatalf("%s is not reached", goal)
}

// From every point on the way, each goal that can be asked for there is reached, and etcd never starts on a part or on nothing.
func TestEveryWayIsSafe(t *testing.T) {
	for _, withLog := range []bool{false, true} {
		for _, way := range [][]Goal{
			{Seal, Place, Undo}, {Seal, Undo, Seal, Place, Undo}, {Seal, Place},
		} {
			m := staged(withLog)
			for _, goal := range way {
				m.reach(t, goal)
			}
			want := oldData
			if way[len(way)-1] == Place {
				want = newData
			}
			if got, err := m.boots(); got != want || err != nil {
				t.Errorf("log %t, %v: etcd starts on %q, %v", withLog, way, got, err)
			}
		}
	}
}

// steps returns the number of actions of a way.
func steps(t *testing.T, withLog bool, way []Goal) (n int) {
	t.Helper()
	m := staged(withLog)
	walk(t, m, way, 1000, func() { n++ })
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

// After any action the operator may decide to go back.
func TestUndoFromEveryPoint(t *testing.T) {
	way := []Goal{Seal, Place}
	for _, withLog := range []bool{false, true} {
		for k := range steps(t, withLog, way) + 1 {
			m := staged(withLog)
			walk(t, m, way, k, func() {})
			m.reach(t, Undo)
			if got, err := m.boots(); got != oldData || err != nil {
				t.Errorf("log %t, after %d actions: etcd starts on %q, %v", withLog, k, got, err)
			}
		}
	}
}

// A path that an operator removed is blocked first, whatever was asked for.
func TestMissingDataDirIsBlocked(t *testing.T) {
	for _, withLog := range []bool{false, true} {
		m := staged(withLog)
		for _, goal := range []Goal{Seal, Place} {
			m.reach(t, goal)
			m.data["live"] = ""
			m.reach(t, Undo)
			if got, err := m.boots(); got != oldData || err != nil {
				t.Errorf("log %t, %s: etcd starts on %q, %v", withLog, goal, got, err)
			}
			m = staged(withLog)
			m.reach(t, Seal)
		}
	}
}

func TestGoalsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		f    Facts
		goal Goal
	}{
		"the new data is not complete": {Facts{Data: Slot{Dir, Dir, Missing, Missing}}, Seal},
		"there is no new data":         {Facts{Built: true, Data: Slot{Dir, Missing, Missing, Missing}}, Seal},
		"not sealed":                   {Facts{Built: true, Data: Slot{Dir, Dir, Missing, Missing}}, Place},
		"undone":                       {Facts{Built: true, Data: Slot{Dir, Blocker, Blocker, Dir}}, Place},
		"data of another":              {Facts{Built: true, Data: Slot{Dir, Dir, Dir, Missing}}, Place},
		"a link":                       {Facts{Built: true, Data: Slot{Other, Dir, Missing, Missing}}, Seal},
		"the old data is missing":      {Facts{Built: true, Data: Slot{Dir, Blocker, Missing, Missing}}, Undo},
		"the log is not staged":        {Facts{Built: true, Data: Slot{Dir, Dir, Missing, Missing}, Log: &Slot{Dir, Missing, Missing, Missing}}, Seal},
	} {
		a, err := next(c.goal, c.f)
		if !errors.Is(err, fault.Refused) {
			t.Errorf("%s: %+v, error %v", name, a, err)
		}
	}
}
