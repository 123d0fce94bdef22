package condition

import (
	"slices"
	"time"
)

// State is the state that a notification reports.
type State string

// The states of a Change. A warning that becomes critical is reported as begun once more.
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

// Current holds the conditions of a cluster that were reported to have begun, and not to have ended. Webhooks get it once after a
// start, so that a receiver can close those that ended while no service ran.
type Current struct {
	State      State       `json:"state"` // Holds
	Time       time.Time   `json:"time"`
	Cluster    string      `json:"cluster"`
	Conditions []Condition `json:"conditions"` // worst first
}

// Settle is how long a condition must hold before its begin is reported, and be over before its end is: no operator is alerted to
// a shorter one.
const Settle = time.Minute

// Record follows conditions over several surveys. Record knows since when each has held, and whether that was reported.
// The zero Record is empty.
type Record struct {
	held map[key]*held
}

type key struct {
	name       Name
	repository string
}

// held is a condition that holds, or has been over for less than Settle.
type held struct {
	last     Condition
	gone     time.Time // since when it has been over; zero: it holds
	reported Severity  // severity of the last reported begin; "": none
}

// Update takes the result of Judge. It returns the conditions with Since set to when each was first found,
// and the changes to report.
func (r *Record) Update(judged []Condition, now time.Time) (current []Condition, changes []Change) {
	if r.held == nil {
		r.held = map[key]*held{}
	}
	present := map[key]bool{}
	current = []Condition{}
	for _, c := range judged {
		k := key{c.Name, c.Repository}
		present[k] = true
		c = r.see(k, c)
		current = append(current, c)
		h := r.held[k]
		settled := now.Sub(c.Since) >= Settle
		if settled && h.reported != Critical && h.reported != c.Severity {
			h.reported = c.Severity
			changes = append(changes, Change{Begins, now.UTC(), c})
		}
	}
	return current, append(changes, r.forget(present, now)...)
}

// see records c, and returns it with Since set to when it was first found.
func (r *Record) see(k key, c Condition) Condition {
	h, ok := r.held[k]
	if !ok {
		h = &held{}
		r.held[k] = h
	} else {
		c.Since = h.last.Since
	}
	h.last, h.gone = c, time.Time{}
	return c
}

// forget removes conditions that have been over for at least Settle, and returns the ends to report.
func (r *Record) forget(present map[key]bool, now time.Time) (changes []Change) {
	for k, h := range r.held {
		if present[k] {
			continue
		}
		if h.gone.IsZero() {
			h.gone = now
		}
		if now.Sub(h.gone) < Settle {
			continue
		}
		delete(r.held, k)
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

// Unsettled reports whether a begin or an end may have to be reported soon. Then the next survey should come within Settle.
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
