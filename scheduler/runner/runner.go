// Package runner is the state machine of one job that is due or requested. Backups, prunings, copies, drills and the backup
// that an archived log needs all pass the same states:
//
//	Queued      waits for its turn among the clusters with the same repositories
//	  │ ─────────────────────── new settings ──────────────► Drop
//	  ▼
//	Asking      reads in the repositories whether the cluster is suspended
//	  │ ─────────────────────── suspended ─────────────────► Skip
//	  ▼
//	Leasing     acquires the job's lease in the repositories
//	  │ ─────────────────────── another service has it ────► StandBy, Postpone or Refuse
//	  ▼
//	Admitting   waits for one of the service's slots
//	  │ ─────────────────────── new settings ──────────────► Drop
//	  ▼
//	Comparing   reads the repositories again, under the lease and after all waits
//	  │ ─────────────────────── done meanwhile ────────────► Done or Adopt
//	  ▼
//	Working     does the work, within the cluster's timeout
//	  ▼
//	Recording   records the result, under the lease but without the slot ──► Done
//
// An error in any state ends the run with GiveUp if the lease was lost or the service stopped the job, else with Drop if the
// service is stopping, else with Report if a person requested the job, else with Retry.
//
// Next is pure. Package scheduler carries its actions out and collects the facts.
package runner

// State is the point that a run has reached.
type State string

// The states, in the order in which a run passes them.
const (
	Queued    State = "queued"
	Asking    State = "asking"
	Leasing   State = "leasing"
	Admitting State = "admitting"
	Comparing State = "comparing"
	Working   State = "working"
	Recording State = "recording"
	Ended     State = "ended"
)

// Action is the next action of a run. The next state follows from its Facts.
type Action string

// The actions that lead to a next state.
const (
	Queue          Action = "queue"           // wait for a turn: the first action, in state Queued
	ReadSuspension Action = "read suspension" // in the repositories, and record which of them respond
	AcquireLease   Action = "acquire lease"
	TakeSlot       Action = "take slot"
	ReadStored     Action = "read stored" // results that other services have stored
	Work           Action = "work"
	Record         Action = "record"
)

// The actions that end a run. The lease and the slot are released first.
const (
	Done     Action = "done"     // nothing is left to do
	Drop     Action = "drop"     // record nothing
	Skip     Action = "skip"     // the cluster is suspended
	StandBy  Action = "stand by" // look again when the other service's lease may have ended
	Postpone Action = "postpone" // keep the request until the other service's lease may have ended
	Refuse   Action = "refuse"   // another service has been at work since the request
	Adopt    Action = "adopt"    // answer the request with the other service's result
	Retry    Action = "retry"    // after a wait that grows with each failure
	Report   Action = "report"   // the failure to the person who requested the job: it is not retried
	GiveUp   Action = "give up"  // leave the job to another service
)

// Facts are the results of the last action. Facts that the action did not check are false.
type Facts struct {
	Requested bool // a person requested the job; false: the job is due
	Withdrawn bool // by Queue and TakeSlot: the settings have changed meanwhile
	Suspended bool // by ReadSuspension
	Held      bool // by AcquireLease: this service has the lease
	Overdue   bool // by AcquireLease: the request has waited for more than two leases, so the holder is alive
	Stored    bool // by ReadStored: the repositories hold a result that makes the job unnecessary

	Failed   bool // the action returned an error
	Lost     bool // the lease was lost, or the service stopped the job
	Stopping bool // the service starts nothing more
}

// Next returns the state that follows s after an action with the facts f, and the action to carry out in it. Every run ends
// after at most seven calls. Calls in state Ended return Done.
func Next(s State, f Facts) (State, Action) {
	if f.Failed && s != Ended {
		return Ended, f.failure()
	}
	switch s {
	case Queued:
		if f.Withdrawn {
			return Ended, Drop
		}
		return Asking, ReadSuspension
	case Asking:
		if f.Suspended {
			return Ended, Skip
		}
		return Leasing, AcquireLease
	case Leasing:
		if !f.Held {
			return Ended, f.elsewhere()
		}
		return Admitting, TakeSlot
	case Admitting:
		if f.Withdrawn {
			return Ended, Drop
		}
		return Comparing, ReadStored
	case Comparing:
		if f.Stored {
			return Ended, f.done()
		}
		return Working, Work
	case Working:
		return Recording, Record
	}
	return Ended, Done
}

// failure returns the end of a run after an error. Lost comes before Stopping: if a stopping service stopped a running job,
// GiveUp records that, and Drop would not.
func (f Facts) failure() Action {
	switch {
	case f.Lost:
		return GiveUp
	case f.Stopping:
		return Drop
	case f.Requested:
		return Report
	}
	return Retry
}

// elsewhere returns the end of a run for which another service has the lease.
func (f Facts) elsewhere() Action {
	switch {
	case f.Requested && f.Overdue:
		return Refuse
	case f.Requested:
		return Postpone
	}
	return StandBy
}

// done returns the end of a run that another service has made unnecessary.
func (f Facts) done() Action {
	if f.Requested {
		return Adopt
	}
	return Done
}
