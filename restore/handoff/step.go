package handoff

import (
	"fmt"
	"time"
)

// Phase is the progress of a restore, as people read it.
type Phase string

// The phases.
const (
	Pending     Phase = "Pending"   // waits: another restore has claimed the target
	Planning    Phase = "Planning"  // reads the target and the repository
	Staging     Phase = "Staging"   // builds the new data on each disk; the old members may serve
	Fencing     Phase = "Fencing"   // stops all members
	Sealing     Phase = "Sealing"   // replaces each old data dir with a file on which etcd exits
	Placing     Phase = "Placing"   // replaces that file with the new data
	Releasing   Phase = "Releasing" // the manager starts all members
	Verifying   Phase = "Verifying" // compares what the members serve with the plan
	RollingBack Phase = "RollingBack"

	Planned   Phase = "Planned"   // a dry run has ended
	Succeeded Phase = "Succeeded" // the members serve the restored data
	Refused   Phase = "Refused"   // the members were not touched
	Failed    Phase = "Failed"    // the old data is in place again, except for that which is lost: Record.Reason names it
)

// HasEnded reports whether p is a final phase.
func (p Phase) HasEnded() bool {
	return p == Planned || p == Succeeded || p == Refused || p == Failed
}

// Step is the next step of a restore.
type Step string

// The steps towards the restored data, in their order.
const (
	Take    Step = "take"    // claims the target, which has at most one restore at a time
	Plan    Step = "plan"    // inspects the target, and plans; changes nothing
	Pin     Step = "pin"     // keeps the plan's backup from being pruned
	Stage   Step = "stage"   // a task on each disk
	Suspend Step = "suspend" // suspends the cluster's backups, so that none contains half of a restore
	Fence   Step = "fence"
	Seal    Step = "seal"  // a task on each disk
	Place   Step = "place" // a task on each disk
	Release Step = "release"
	Verify  Step = "verify"
)

// The steps of a rollback, in their order. The rollback of a restore that has succeeded begins with Retake.
const (
	Retake    Step = "retake"    // like Take
	Review    Step = "review"    // a task on each disk: checks that the old data can be put back
	Resuspend Step = "resuspend" // like Suspend
	Refence   Step = "refence"   // like Fence
	Withdraw  Step = "withdraw"  // a task on each disk: moves new data aside
	Back      Step = "back"      // a task on each disk: puts the old data back
	Block     Step = "block"     // a task on each disk whose old data is lost: keeps etcd from starting there
	Return    Step = "return"    // makes the manager's objects as they were
	Recheck   Step = "recheck"   // checks that the members serve again
)

// The steps at the end.
const (
	Discard Step = "discard" // a task on each disk: removes new data that was never in use
	Lift    Step = "lift"    // ends the claim, the pin and the suspension
	Keep    Step = "keep"    // waits until the data that was moved aside may be removed
	Clean   Step = "clean"   // a task on each disk: removes that data
	None    Step = ""        // nothing is left to do
)

// row is one step of the machine.
type row struct {
	phase Phase // "": that of the step before
	next  Step  // after the step is done
	// leaves means that a permanent error ends the restore or begins the rollback. If leaves is false, the step is repeated instead:
	// from Release on the members may have acknowledged writes, so only an order may begin the rollback, and during a rollback no other
	// step is safe. If there was no old data and members are down, the step is repeated even if leaves is true.
	leaves bool
}

var rows = map[Step]row{
	Take:    {Pending, Plan, true},
	Plan:    {Planning, Pin, true},
	Pin:     {Planning, Stage, true},
	Stage:   {Staging, Suspend, true},
	Suspend: {Staging, Fence, true},
	Fence:   {Fencing, Seal, true},
	Seal:    {Sealing, Place, true},
	Place:   {Placing, Release, true},
	Release: {Releasing, Verify, false},
	Verify:  {Verifying, Lift, false},

	Retake:    {RollingBack, Review, true},
	Review:    {RollingBack, Resuspend, true},
	Resuspend: {RollingBack, Refence, true},
	Refence:   {RollingBack, Withdraw, false},
	Withdraw:  {RollingBack, Back, false},
	Back:      {RollingBack, Block, false},
	Block:     {RollingBack, Return, false},
	Return:    {RollingBack, Recheck, false},
	Recheck:   {RollingBack, Discard, false},

	Discard: {"", Lift, false},
	Lift:    {"", Keep, false},
	Keep:    {"", Clean, false},
	Clean:   {"", None, false},
	None:    {"", None, false},
}

// isForward reports whether s is a step towards the restored data.
func (s Step) isForward() bool {
	switch s {
	case Take, Plan, Pin, Stage, Suspend, Fence, Seal, Place, Release, Verify:
		return true
	}
	return false
}

// Verdict classifies the result of one act.
type Verdict string

// The verdicts.
const (
	Done    Verdict = "done"
	Waits   Verdict = "waits"   // not done yet, or a temporary error: the step is repeated
	Fails   Verdict = "fails"   // a permanent error
	Forbids Verdict = "forbids" // the manager's API forbids it, perhaps only until it has read its rules
	Blocked Verdict = "blocked" // of Stage: the plan's backup or log cannot be used, and another plan may avoid that
	Stale   Verdict = "stale"   // of Seal: a data dir is not the one for which the new data was built
)

// Outcome is the result of one act.
type Outcome struct {
	Verdict Verdict
	Text    string // why the act is not done, for people; "" if it is
}

// Orders are the instructions of a restore's owner.
type Orders struct {
	DryRun bool          // end after the plan
	Pause  bool          // touch no member: wait before Fencing
	Back   bool          // roll back; before Fencing: end
	Limit  time.Duration // how long the members may be down before the restore rolls back by itself
	// Expires is how long after the beginning of Planning members that serve may still be stopped; 0: no limit, because the owner attends.
	Expires time.Duration
	Keep    time.Duration // how long data that was moved aside is kept
	Clean   bool          // after the end: remove that data now
}

// Obey returns r as changed by the orders w, which its owner may give at any time, and by their limits. It is pure.
func (r Record) Obey(w Orders, now time.Time) Record {
	switch {
	case w.Back && r.Step.isForward():
		return r.leave("ordered to go back", now)
	case r.isExpired(w, now):
		return r.leave(fmt.Sprintf("it has waited for %s%s, and its owner may not expect the stop of the members any more: order it again", w.Expires,
			r.because()), now)
	case r.Step == Fence && r.Leaves() && now.Sub(r.Down) > w.Limit: // no process has worked on it meanwhile
		return r.leave(fmt.Sprintf("the members were not stopped within %s%s", w.Limit, r.because()), now)
	case !w.Back:
		return r
	case r.Step == Keep && r.End == Succeeded && !r.Stays && now.Before(r.KeepUntil):
		r.Reason = "ordered to go back"
		return r.begin(Retake, now)
	}
	return r
}

// Due returns the step to carry out now; None if no step is due.
func (r Record) Due(w Orders, now time.Time) Step {
	switch {
	case r.IsPaused(w):
		return None
	case r.Step == Keep && now.Before(r.KeepUntil) && !w.Clean:
		return None
	}
	return r.Step
}

// IsPaused reports whether r waits for the end of the orders' pause, which has no effect once members are stopped.
func (r Record) IsPaused(w Orders) bool { return r.Step == Suspend && w.Pause && !r.isDown() }

// After returns r after its step has ended with the outcome o. It is pure.
func (r Record) After(o Outcome, w Orders, now time.Time) Record {
	leaves := r.Leaves()
	r = r.forbid(o.Verdict, now)
	switch {
	case o.Verdict == Done:
		return r.follow(w, now)
	case o.Verdict == Blocked:
		return r.begin(Plan, now)
	case o.Verdict == Stale:
		return r.begin(Stage, now)
	case o.Verdict == Fails && leaves, r.isBarred(now) && leaves:
		return r.leave(o.Text, now)
	case leaves && r.isDown() && now.Sub(r.Down) > w.Limit:
		return r.leave(fmt.Sprintf("the members were down for more than %s: %s", w.Limit, o.Text), now)
	case r.Step == Recheck && !r.Returned.IsZero() && now.Sub(r.Returned) > w.Limit: // the old data is back: another restore may be what helps
		r.Reason, r.Silent = fmt.Sprintf("%s; the members that were started again do not serve: %s", r.Reason, o.Text), true
		return r.follow(w, now)
	}
	r.Waiting = o.Text
	return r
}

// Leaves reports whether a permanent error of r's step ends the restore or begins the rollback. Else the step is repeated.
func (r Record) Leaves() bool { return rows[r.Step].leaves && !(r.Vacant && r.isDown()) }

// forbid returns r with the time since which the manager's API forbids the step.
func (r Record) forbid(v Verdict, now time.Time) Record {
	switch {
	case v != Forbids:
		r.Forbidden = time.Time{}
	case r.Forbidden.IsZero():
		r.Forbidden = now
	}
	return r
}

// because returns why r waits, in parentheses; "" if that is not known.
func (r Record) because() string {
	if r.Waiting == "" {
		return ""
	}
	return " (" + r.Waiting + ")"
}

// isExpired reports whether the order is too old to stop members that serve: it had to wait, such as for a store, and its owner may not
// expect the stop any more. Once the owner has paused it, the end of the pause is what lets it continue.
func (r Record) isExpired(w Orders, now time.Time) bool {
	return w.Expires > 0 && r.Step.isForward() && !r.Begun.IsZero() && !r.isDown() && r.Handoff.Serves && !w.Pause && !r.Paused && now.Sub(r.Begun) > w.Expires
}

// isBarred reports whether the manager's API forbids the step for good. While members are down, that is no reason to go back: the way back
// needs the same rights.
func (r Record) isBarred(now time.Time) bool {
	return !r.Forbidden.IsZero() && !r.isDown() && now.Sub(r.Forbidden) >= forbiddenAtStart
}

// forbiddenAtStart is how long an API server may forbid everything at its start. kube-apiserver does for some seconds.
const forbiddenAtStart = time.Minute
