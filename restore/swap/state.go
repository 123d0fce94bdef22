package swap

import (
	"errors"
	"fmt"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Kind is the kind of the entry at a path.
type Kind string

// The kinds.
const (
	Missing Kind = "missing"
	Dir     Kind = "directory"
	Blocker Kind = "blocker" // the file of this restore that keeps etcd from starting
	Foreign Kind = "foreign" // the blocker of another restore
	Other   Kind = "other"   // anything else, such as a symbolic link
)

// Slot is one directory that is exchanged, as it is found on its disk.
type Slot struct {
	Live   Kind `json:"live"`   // at the path that etcd uses
	New    Kind `json:"new"`    // the restored data, until it is placed
	Old    Kind `json:"old"`    // the old data, once it is sealed
	Failed Kind `json:"failed"` // restored data that an undo took away again
}

// Facts are the facts that decide the next action.
type Facts struct {
	Built bool  `json:"built"` // the restore engine has completed New
	Data  Slot  `json:"data"`
	Log   *Slot `json:"log,omitempty"` // nil: the log is in the data dir
}

// State is the state of a slot, or of both.
type State string

// The states of a slot. In Sealed and Withdrawn a blocker is at the live path.
const (
	Unstaged  State = "unstaged"  // the old data is live, the new data is not built
	Staged    State = "staged"    // the old data is live, the new data is next to it
	Sealed    State = "sealed"    // old and new data are aside
	Placed    State = "placed"    // the new data is live, the old data is aside
	Withdrawn State = "withdrawn" // the new data was live, and is aside again
	Undone    State = "undone"    // the old data is live again
	Exposed   State = "exposed"   // the old data is aside, and its path is missing: etcd could begin an empty cluster
	Blocked   State = "blocked"   // another restore of the same data dir has put its blocker there
	Unknown   State = "unknown"   // not by this package

	none State = "" // of the log, if it has no slot
)

// The states of both slots that are between those of one.
const (
	Sealing State = "sealing"
	Placing State = "placing"
	Undoing State = "undoing"
)

// state returns the state of s. Exchanges are atomic, so every kill leaves one of them.
func (s Slot) state(built bool) State {
	vacant := func(k Kind) bool { return k == Missing || k == Blocker }
	switch {
	case s.Live == Foreign:
		return Blocked
	case s.Live == Missing && s.Old == Dir:
		return Exposed
	case s.Live == Dir && s.New == Blocker && s.Old == Blocker:
		return Undone
	case s.Live == Dir && s.New == Blocker && s.Old == Dir && vacant(s.Failed):
		return Placed
	case s.Live == Blocker && s.New == Blocker && s.Old == Dir:
		return Withdrawn
	case s.Live == Blocker && s.New == Dir && s.Old == Dir && s.Failed == Missing && built:
		return Sealed
	case s.Live == Dir && s.New == Dir && vacant(s.Old) && s.Failed == Missing && built:
		return Staged
	case s.Live == Dir && (s.New == Dir || s.New == Missing) && vacant(s.Old) && s.Failed == Missing:
		return Unstaged
	}
	return Unknown
}

// pair holds the states of the data and of the log.
type pair struct{ data, log State }

func (f Facts) pair() pair {
	p := pair{data: f.Data.state(f.Built)}
	if f.Log != nil {
		p.log = f.Log.state(f.Built)
	}
	return p
}

// State returns the state of both slots.
func (f Facts) State() State {
	p := f.pair()
	switch {
	case p.log == none || p.log == p.data:
		return p.data
	case p.data == Blocked || p.log == Blocked:
		return Blocked
	case p.data == Exposed || p.log == Exposed:
		return Exposed
	case p.data == Unknown || p.log == Unknown:
		return Unknown
	case p.data == Unstaged || p.log == Unstaged:
		return Unstaged
	case p == pair{Sealed, Staged}:
		return Sealing
	case p == pair{Sealed, Placed}:
		return Placing
	case p.data == Withdrawn:
		return Undoing
	}
	return Unknown
}

// Goal is the state that a caller asks for.
type Goal string

// The goals.
const (
	Seal  Goal = "seal"  // old data aside, blockers in its place
	Place Goal = "place" // new data live
	Undo  Goal = "undo"  // old data live
)

// part names one of the two slots.
type part string

const (
	data part = "data dir"
	log  part = "log"
)

// verb is what an action does to its slot.
type verb string

const (
	done     verb = ""
	prepare  verb = "prepare"  // makes the blocker that the next exchange puts in place
	exchange verb = "exchange" // exchanges the live path with one that is aside
	block    verb = "block"    // makes a blocker at a live path that is missing
)

// action is one step on the disk.
type action struct {
	do   verb
	part part
	with string // newName, oldName or failedName
}

// The names of the directories that are aside.
const (
	newName    = "new"
	oldName    = "old"
	failedName = "failed"
)

// moves holds the action for each goal and state. The data dir is the gate: while it is blocked etcd does not start, whatever the log is.
// So the data dir is sealed first and opened last, and it never opens on a log of other data.
var moves = map[Goal]map[pair]action{
	Seal: {
		{Staged, none}:   {exchange, data, oldName},
		{Staged, Staged}: {exchange, data, oldName},
		{Sealed, Staged}: {exchange, log, oldName},
		{Sealed, none}:   {}, {Sealed, Sealed}: {}, {Sealed, Placed}: {}, {Placed, none}: {}, {Placed, Placed}: {},
	},
	Place: {
		{Sealed, none}:   {exchange, data, newName},
		{Sealed, Sealed}: {exchange, log, newName},
		{Sealed, Placed}: {exchange, data, newName},
		{Placed, none}:   {}, {Placed, Placed}: {},
	},
	Undo: {
		{Staged, none}: {}, {Staged, Staged}: {}, {Unstaged, none}: {}, {Unstaged, Unstaged}: {},
		// etcd has not started on the new data: it can be placed later.
		{Sealed, none}:   {exchange, data, oldName},
		{Sealed, Placed}: {exchange, log, newName},
		{Sealed, Sealed}: {exchange, log, oldName},
		{Sealed, Staged}: {exchange, data, oldName},
		// etcd may have started on the new data: it is kept apart.
		{Placed, none}:         {exchange, data, failedName},
		{Placed, Placed}:       {exchange, data, failedName},
		{Placed, Exposed}:      {exchange, data, failedName},
		{Withdrawn, Placed}:    {exchange, log, failedName},
		{Withdrawn, Withdrawn}: {exchange, log, oldName},
		{Withdrawn, Undone}:    {exchange, data, oldName},
		{Withdrawn, none}:      {exchange, data, oldName},
		{Undone, none}:         {}, {Undone, Undone}: {},
	},
}

// next returns the action that leads from f to goal; the zero action if f is there.
func next(goal Goal, f Facts) (action, error) {
	p := f.pair()
	if p.data == Exposed {
		return action{do: block, part: data}, nil
	}
	if p.log == Exposed && f.Data.Live == Blocker {
		return action{do: block, part: log}, nil
	}
	a, ok := moves[goal][p]
	if !ok {
		return action{}, fmt.Errorf("%w: cannot %s: %w", fault.Refused, goal, f.remedy())
	}
	if a.do == exchange && f.slot(a.part).at(a.with) == Missing {
		a.do = prepare
	}
	return a, nil
}

// remedy returns why no action leads on from f, and what the operator can do.
func (f Facts) remedy() error {
	switch f.State() {
	case Unstaged:
		return errors.New("the new data is not built: run dr restore --replace again")
	case Staged:
		return errors.New("the old data is still in place: seal it first")
	case Undone:
		return errors.New("the restore was undone: run dr restore --replace again, which begins a new one")
	case Placed:
		return errors.New("the new data is in place: undo it first")
	case Blocked:
		return errors.New("another restore of the data dir is not complete: complete or undo that one first, its id is in the file at the path of the data dir or of member")
	case Withdrawn, Undoing:
		return errors.New("its undo is not complete: repeat dr restore --undo")
	}
	if f.Data.Live == Dir || f.Data.Live == Other || f.Log != nil && f.Log.Live == Other {
		return errors.New("something that this restore did not put there is in the place of the data dir or of the log: move it aside")
	}
	return fmt.Errorf("unexpected entries (data dir: %+v, log: %+v): move aside by hand what does not belong there", f.Data, f.Log)
}

func (f Facts) slot(p part) Slot {
	if p == log {
		return *f.Log
	}
	return f.Data
}

func (s Slot) at(name string) Kind {
	switch name {
	case newName:
		return s.New
	case oldName:
		return s.Old
	}
	return s.Failed
}

// cleanable reports whether the directories that are aside can be removed: one whole set of data is live.
func (f Facts) cleanable() bool {
	switch f.State() {
	case Unstaged, Staged, Placed, Undone:
		return true
	}
	return false
}
