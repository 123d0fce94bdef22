package condition

import (
	"slices"
	"time"
)

// State is the state that a notification reports.
type State string

// The states of a Change. A condition that becomes critical begins again.
const (
	Begins State = "begins"
	Ends   State = "ends"
)

// Change is the begin or the end of a condition.
type Change struct {
	State State     `json:"state"`
	Time  time.Time `json:"time"`
	Condition
}

// Holds is the state of a Current.
const Holds State = "holds"

// Current holds all conditions of a cluster. Webhooks get it once after a start, so that a receiver can end conditions that ended
// while no service ran.
type Current struct {
	State      State       `json:"state"` // Holds
	Time       time.Time   `json:"time"`
	Cluster    string      `json:"cluster"`
	Conditions []Condition `json:"conditions"` // that were reported to have begun, worst first
}

// Settle is the time that a condition must hold, or be over, before its change is reported: a shorter change alarms no
// operator.
const Settle = time.Minute

// Record follows conditions over several surveys. It holds since when each holds, and whether it was reported. The
// zero Record is empty.
type Record struct {
	held map[place]*held
}

type place struct {
	name       Name
	repository string
}

// held is a condition that holds, or is over for less than Settle.
type held struct {
	last     Condition
	gone     time.Time // since when it is over; zero: it holds
	reported Severity  // severity of the last reported begin; "": none
}

// Update takes the result of Judge. It returns the conditions with their true Since, and the changes to report.
func (r *Record) Update(judged []Condition, now time.Time) (current []Condition, changes []Change) {
	if r.held == nil {
		r.held = map[place]*held{}
	}
	there := map[place]bool{}
	current = []Condition{}
	for _, c := range judged {
		at := place{c.Name, c.Repository}
		there[at] = true
		c = r.see(at, c)
		current = append(current, c)
		h := r.held[at]
		settled := now.Sub(c.Since) >= Settle
		if settled && h.reported != Critical && h.reported != c.Severity {
			h.reported = c.Severity
			changes = append(changes, Change{Begins, now.UTC(), c})
		}
	}
	return current, append(changes, r.forget(there, now)...)
}

// see records c, and returns it with its earlier Since.
func (r *Record) see(at place, c Condition) Condition {
	h, ok := r.held[at]
	if !ok {
		h = &held{}
		r.held[at] = h
	} else {
		c.Since = h.last.Since
	}
	h.last, h.gone = c, time.Time{}
	return c
}

// forget removes conditions that are over for at least Settle, and returns the ends to report.
func (r *Record) forget(there map[place]bool, now time.Time) (changes []Change) {
	for at, h := range r.held {
		if there[at] {
			continue
		}
		if h.gone.IsZero() {
			h.gone = now
		}
		if now.Sub(h.gone) < Settle {
			continue
		}
		delete(r.held, at)
		if h.reported != "" {
			changes = append(changes, Change{Ends, now.UTC(), h.last})
		}
	}
	sortChanges(changes)
	return changes
}

// Current returns the conditions that were reported to have begun and not to have ended.
func (r *Record) Current(cluster string, now time.Time) Current {
	c := Current{State: Holds, Time: now.UTC(), Cluster: cluster, Conditions: []Condition{}}
	for _, h := range r.held {
		if h.reported != "" {
			c.Conditions = append(c.Conditions, h.last)
		}
	}
	slices.SortFunc(c.Conditions, worstFirst)
	return c
}

// Close empties r, and returns the ends of all conditions that were reported: nothing observes the cluster any longer.
func (r *Record) Close(now time.Time) (changes []Change) {
	for _, h := range r.held {
		if h.reported != "" {
			changes = append(changes, Change{Ends, now.UTC(), h.last})
		}
	}
	r.held = nil
	sortChanges(changes)
	return changes
}

// Unsettled reports whether a begin or an end was not reported yet. Then the next survey should come after Settle.
func (r *Record) Unsettled() bool {
	for _, h := range r.held {
		if h.reported != h.last.Severity && h.reported != Critical || !h.gone.IsZero() {
			return true
		}
	}
	return false
}

func sortChanges(changes []Change) {
	slices.SortFunc(changes, func(a, b Change) int { return worstFirst(a.Condition, b.Condition) })
}
