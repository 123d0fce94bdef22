package swap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Kind is the kind of the entry at a path. The record knows directories by their identity, so it does not matter who moved them.
type Kind string

// The kinds.
const (
	Missing  Kind = "missing"
	NoOld    Kind = "no old data"     // in the place of Old: the record has no old data, and none is there
	OldDir   Kind = "old data"        // the directory that was live when the new data was built
	NewDir   Kind = "new data"        // the directory that the restore engine has built
	PartDir  Kind = "incomplete data" // a directory at the path of the new data while none is complete
	OtherDir Kind = "other directory"
	Blocker  Kind = "blocker" // the file of this restore that keeps etcd from starting
	Foreign  Kind = "foreign" // the blocker of another restore
	Guard    Kind = "guard"   // the file that keeps etcd from starting where old data is lost; it belongs to no restore
	Other    Kind = "other"   // anything else, such as a symbolic link
)

// Slot is one directory that is exchanged, as it is found on its disk.
type Slot struct {
	Live   Kind // at the path that etcd uses
	New    Kind // the new data, until it is placed
	Old    Kind // the old data, once the live path is closed
	Failed Kind // new data that an undo took away again
}

// Facts are the facts that decide the next action.
type Facts struct {
	Data Slot
	Log  *Slot // nil: the log is in the data dir
}

// State is the state of one slot, or of both slots together.
type State string

// The states of a slot. In Closed and Withdrawn a blocker is at the live path. In Bare, Vacant, Ready and Emptied there is no old data.
const (
	Unstaged   State = "unstaged"   // the new data is not built
	Staged     State = "staged"     // the old data is live, the new data is next to it
	Closed     State = "closed"     // old and new data are aside
	Placed     State = "placed"     // the new data is live, the old data is aside, if there was any
	Withdrawn  State = "withdrawn"  // the new data was live, and is aside again
	Undone     State = "undone"     // the old data is live again
	Bare       State = "bare"       // its path is missing: etcd could begin an empty cluster
	Vacant     State = "vacant"     // a blocker is live, the new data is not built
	Ready      State = "ready"      // a blocker is live, the new data is next to it
	Emptied    State = "emptied"    // the new data was live, and is aside again: a blocker is live
	Exposed    State = "exposed"    // the old data is aside, and its path is missing: etcd could begin an empty cluster
	Vacated    State = "vacated"    // an operator or another program has moved the live data away, before CloseLive or after Undo
	Stale      State = "stale"      // the new data was built for a directory that is not live any more
	Superseded State = "superseded" // after Place or Undo, data of another restore or of an operator became live
	Blocked    State = "blocked"    // another restore of the same data dir has put its blocker there
	Guarded    State = "guarded"    // the old data is lost, and a guard is live
	Unknown    State = "unknown"    // none that this package makes

	none State = "" // of the log, if it has no slot
)

// The states in which CloseLive, Place or Undo has exchanged one of the two slots, and not yet the other.
const (
	Closing State = "closing" // the data is closed, the log is staged
	Placing State = "placing" // the data is closed, the log is placed
	Undoing State = "undoing" // the data is withdrawn, the log is placed or undone
)

// kinds is a set of kinds; nil contains all.
type kinds []Kind

func (k kinds) has(one Kind) bool { return k == nil || slices.Contains(k, one) }

var (
	directory = kinds{OldDir, NewDir, OtherDir}
	notNew    = kinds{OldDir, OtherDir}
	unused    = kinds{Missing, Blocker}
	anyNew    = kinds{Missing, PartDir, NewDir, Blocker} // of New, whatever was done with it
	noneAside = kinds{Missing, Blocker, NoOld}           // of Old, while no old data is there
	anyFailed = kinds{Missing, Blocker, NewDir}          // of Failed, whether or not an undo has put new data there
)

// layouts holds the kinds of the four entries of a slot in each state. The first row that matches counts.
var layouts = []struct {
	live, new, old, failed kinds
	state                  State
}{
	{kinds{Foreign}, nil, nil, nil, Blocked},
	{kinds{Guard}, nil, noneAside, nil, Guarded},
	{kinds{Missing}, nil, kinds{OldDir}, nil, Exposed},
	{kinds{OldDir}, kinds{NewDir}, unused, unused, Staged},
	{kinds{Blocker}, kinds{NewDir}, kinds{OldDir}, unused, Closed},
	{kinds{NewDir}, kinds{Blocker}, kinds{OldDir, NoOld}, unused, Placed},
	{kinds{Blocker}, kinds{Blocker}, kinds{OldDir}, anyFailed, Withdrawn},
	{kinds{OldDir}, kinds{Blocker}, unused, anyFailed, Undone},
	{kinds{Missing}, anyNew, kinds{NoOld}, anyFailed, Bare},
	{kinds{Blocker}, kinds{Missing, PartDir}, kinds{NoOld}, unused, Vacant},
	{kinds{Blocker}, kinds{NewDir}, kinds{NoOld}, unused, Ready},
	{kinds{Blocker}, kinds{Blocker}, kinds{NoOld}, anyFailed, Emptied},
	{notNew, kinds{Missing, PartDir}, noneAside, unused, Unstaged},
	{notNew, kinds{NewDir}, noneAside, unused, Stale},
	{directory, kinds{Blocker}, kinds{Missing, Blocker, NoOld, OldDir}, anyFailed, Superseded},
	{kinds{Missing}, anyNew, unused, anyFailed, Vacated},
}

// state returns the state of s. Exchanges are atomic, so a kill at any moment leaves a row of layouts.
func (s Slot) state() State {
	for _, l := range layouts {
		if l.live.has(s.Live) && l.new.has(s.New) && l.old.has(s.Old) && l.failed.has(s.Failed) {
			return l.state
		}
	}
	return Unknown
}

// pair holds the states of the data and of the log.
type pair struct{ data, log State }

func (f Facts) pair() pair {
	p := pair{data: f.Data.state()}
	if f.Log != nil {
		p.log = f.Log.state()
	}
	return p
}

// has reports whether one of the two is s.
func (p pair) has(s State) bool { return p.data == s || p.log == s }

// isBefore reports whether the slots are in states before CloseLive or, without old data, before Place.
func (p pair) isBefore() bool {
	before := []State{Unstaged, Staged, Stale, Vacated, Bare, Vacant, Ready}
	return slices.Contains(before, p.data) && (p.log == none || slices.Contains(before, p.log))
}

// State returns the state of both slots, or of the data's slot if the log has none.
func (f Facts) State() State {
	p := f.pair()
	if p.log == none || p.log == p.data {
		return p.data
	}
	if p.data == Guarded && f.Log.Old != OldDir {
		return Guarded
	}
	for _, s := range []State{Blocked, Exposed, Unknown} {
		if p.has(s) {
			return s
		}
	}
	switch {
	case p == pair{Closed, Staged}:
		return Closing
	case p == pair{Closed, Placed}, p == pair{Ready, Placed}:
		return Placing
	case p.data == Withdrawn, p == pair{Emptied, Placed}:
		return Undoing
	case p == pair{Emptied, Bare}:
		return Emptied
	case p.has(Closed) || p.has(Withdrawn):
		return Unknown
	case p.has(Superseded):
		return Superseded
	case !p.isBefore():
		return Unknown
	}
	for _, s := range []State{Vacated, Bare, Vacant, Unstaged, Stale} {
		if p.has(s) {
			return s
		}
	}
	return Unknown
}

// IsUntouched reports whether this restore has not changed the live path.
func (s State) IsUntouched() bool {
	return slices.Contains([]State{Unstaged, Staged, Stale, Vacated}, s)
}

// Goal is the state that a caller asks for.
type Goal string

// The goals.
const (
	Close    Goal = "close"    // old data aside, blockers in its place
	Place    Goal = "place"    // new data live
	Withdraw Goal = "withdraw" // no new data live; blockers in its place
	Undo     Goal = "undo"     // old data live, if there was any
)

// part names one of the two slots.
type part string

const (
	data part = "data dir"
	log  part = "log"
)

// verb names the operation of an action on its slot.
type verb string

const (
	done     verb = ""
	prepare  verb = "prepare"  // makes the blocker that the next exchange puts in place, if it was removed
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

// moves holds the action for each goal and state; the zero action means that the goal is reached. etcd does not start while the data dir
// is blocked, in whatever state the log is. So the data dir is closed first and opened last, and never opens on a log of other data.
var moves = map[Goal]map[pair]action{
	Close: {
		{Staged, none}:   {exchange, data, oldName},
		{Staged, Staged}: {exchange, data, oldName},
		{Closed, Staged}: {exchange, log, oldName},
		{Closed, none}:   {}, {Closed, Closed}: {}, {Closed, Placed}: {}, {Placed, none}: {}, {Placed, Placed}: {},
		// There is no old data.
		{Ready, none}: {}, {Ready, Ready}: {}, {Ready, Placed}: {},
	},
	Place: {
		{Closed, none}:   {exchange, data, newName},
		{Closed, Closed}: {exchange, log, newName},
		{Closed, Placed}: {exchange, data, newName},
		{Ready, none}:    {exchange, data, newName},
		{Ready, Ready}:   {exchange, log, newName},
		{Ready, Placed}:  {exchange, data, newName},
		{Placed, none}:   {}, {Placed, Placed}: {},
	},
	Withdraw: {
		// etcd may have started on the new data: it is kept apart.
		{Placed, none}:      {exchange, data, failedName},
		{Placed, Placed}:    {exchange, data, failedName},
		{Placed, Exposed}:   {exchange, data, failedName},
		{Placed, Bare}:      {exchange, data, failedName},
		{Withdrawn, Placed}: {exchange, log, failedName},
		{Emptied, Placed}:   {exchange, log, failedName},
		{Withdrawn, none}:   {}, {Withdrawn, Withdrawn}: {}, {Withdrawn, Undone}: {}, {Emptied, none}: {}, {Emptied, Emptied}: {},
		{Closed, none}: {}, {Closed, Staged}: {}, {Closed, Closed}: {}, {Closed, Placed}: {}, {Ready, Placed}: {},
		{Undone, none}: {}, {Undone, Undone}: {},
	},
	Undo: {
		{Staged, none}: {}, {Staged, Staged}: {}, {Unstaged, none}: {}, {Unstaged, Unstaged}: {},
		// etcd has not started on the new data: it can be placed later.
		{Closed, none}:   {exchange, data, oldName},
		{Closed, Placed}: {exchange, log, newName},
		{Closed, Closed}: {exchange, log, oldName},
		{Closed, Staged}: {exchange, data, oldName},
		{Ready, Placed}:  {exchange, log, newName},
		// etcd may have started on the new data: it is kept apart.
		{Placed, none}:         {exchange, data, failedName},
		{Placed, Placed}:       {exchange, data, failedName},
		{Placed, Exposed}:      {exchange, data, failedName},
		{Placed, Bare}:         {exchange, data, failedName},
		{Withdrawn, Placed}:    {exchange, log, failedName},
		{Withdrawn, Withdrawn}: {exchange, log, oldName},
		{Withdrawn, Undone}:    {exchange, data, oldName},
		{Withdrawn, none}:      {exchange, data, oldName},
		{Undone, none}:         {}, {Undone, Undone}: {},
		// There is no old data: the blockers stay.
		{Emptied, Placed}: {exchange, log, failedName},
		{Emptied, none}:   {}, {Emptied, Emptied}: {}, {Ready, none}: {}, {Ready, Ready}: {}, {Vacant, none}: {}, {Vacant, Vacant}: {},
		{Vacant, Unstaged}: {}, // the log is an empty directory
	},
}

// next returns the action that leads from f towards goal; the zero action if goal is reached.
func next(goal Goal, f Facts) (action, error) {
	p := f.pair()
	switch {
	case p.data == Exposed || p.data == Bare:
		return action{do: block, part: data}, nil
	case (p.log == Exposed || p.log == Bare) && f.Data.Live == Blocker:
		return action{do: block, part: log}, nil
	case goal == Withdraw && p.isBefore(): // the new data was never live
		return action{}, nil
	case (goal == Withdraw || goal == Undo) && f.State() == Guarded: // no data is live, and there is no old data
		return action{}, nil
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

// remedies holds, by state, the reason why no action leads to the goal, and what the operator can do.
var remedies = map[State]error{
	Unstaged:  errors.New("the new data is not built: run dr restore --replace again"),
	Staged:    errors.New("the old data is still in place: run dr restore --replace again"),
	Undone:    errors.New("the restore was undone: run dr restore --replace again, which begins a new one"),
	Placed:    errors.New("the new data is in place: undo it first"),
	Withdrawn: errors.New("its undo is not complete: repeat dr restore --undo"),
	Undoing:   errors.New("its undo is not complete: repeat dr restore --undo"),
	Vacated: errors.New("the data dir or the log is missing, and was not moved by this restore: move it back, " +
		"or remove the data of this restore with dr restore --clean"),
	Stale: errors.New("the data dir or the log is not the one for which the new data was built: another restore or an operator has replaced it. " +
		"Check its data, then run dr restore --replace again, which builds again"),
	Vacant: errBlocked, Ready: errBlocked,
	Bare: errEmptied, Emptied: errEmptied,
	Guarded: errors.New("its old data is lost, and a file keeps etcd from starting: begin another restore"),
	Blocked: errors.New("another restore of the data dir is not complete: complete or undo that one first; " +
		"its id is in the file at the path of the data dir or of member"),
	Superseded: errors.New("another restore or an operator has replaced the data of this restore: stop etcd, move the current data dir, and the log " +
		"if it has a directory of its own, aside, and run the same command again"),
}

var (
	errBlocked = errors.New("there is no old data, and a file keeps etcd from starting: complete the restore that created this file, " +
		"or run dr restore --clean, which removes it and the new data of that restore")
	errEmptied = errors.New("there was no old data, and the restore was undone: run dr restore --clean, which removes the restored data and the file " +
		"that keeps etcd from starting")
)

// remedy returns the reason why no action leads from f to the goal, and what the operator can do.
func (f Facts) remedy() error {
	if f.Log != nil && *f.Log == (Slot{Missing, Missing, Missing, Missing}) {
		return errors.New("the directory of the log is missing: if its disk has another path now, name where the log is now with --wal-dir")
	}
	err, known := remedies[f.State()]
	if known {
		return err
	}
	if f.Data.isStrange() || f.Log != nil && f.Log.isStrange() {
		return errors.New("something that this restore did not put there is in the place of the data dir or of the log: move it aside, " +
			"and run the same command again")
	}
	found := "at the data dir " + f.Data.entries()
	if f.Log != nil {
		found += "; at the log " + f.Log.entries()
	}
	return fmt.Errorf("the directories are not as a restore leaves them: %s: move aside by hand what does not belong there", found)
}

// entries returns the kinds of the entries of s as words.
func (s Slot) entries() string {
	return fmt.Sprintf("%s, at new %s, at old %s, at failed %s", s.Live, s.New, s.Old, s.Failed)
}

// isStrange reports whether the live entry is unknown: neither data of this restore nor a blocker.
func (s Slot) isStrange() bool { return s.Live == OtherDir || s.Live == Other }

// isVacant reports whether there is no old data, be it lost or never there, and no other data in its place.
func (s Slot) isVacant() bool {
	return s.Old == NoOld && kinds{Missing, Blocker, NewDir}.has(s.Live) || noneAside.has(s.Old) && kinds{Missing, Guard}.has(s.Live)
}

// slot returns one slot. For the log, f.Log must not be nil.
func (f Facts) slot(p part) Slot {
	if p == log {
		return *f.Log
	}
	return f.Data
}

// at returns the kind of the entry that is kept aside as name.
func (s Slot) at(name string) Kind {
	switch name {
	case newName:
		return s.New
	case oldName:
		return s.Old
	}
	return s.Failed
}

// stageable reports whether new data can be built: etcd cannot have started on new data of this restore, and no old data is aside.
func (f Facts) stageable() bool {
	return slices.Contains([]State{Unstaged, Staged, Stale, Vacated, Bare, Vacant, Ready, Guarded}, f.State()) && f.Data.New != Blocker
}

// cleanable reports whether the directories that are aside can be removed. That is so if the new data can be discarded, if the live path has
// the new data or the old data again, or if another restore or an operator has replaced the data.
func (f Facts) cleanable() bool {
	return f.discardable() || slices.Contains([]State{Placed, Undone, Superseded}, f.State())
}

// discardable reports whether the new data can be removed: it is neither live nor kept after an undo, as etcd may have started on it.
func (f Facts) discardable() bool {
	return slices.Contains([]State{Unstaged, Staged, Stale, Vacated, Bare, Vacant, Ready, Emptied, Guarded}, f.State())
}
