package condition

import (
	"slices"
	"time"
)

// State is what happens to a condition.
type State string

// The states of a Change. One that gets critical begins again.
const (
	Begins State = "begins"
	Ends   State = "ends"
)

// Change is that a condition begins or ends: what webhooks are told.
type Change struct {
	State State     `json:"state"`
	Time  time.Time `json:"time"`
	Condition
}

// Holds is the state of a Current.
const Holds State = "holds"

// Current is all that holds of a cluster: what webhooks are sent once after a start, so that a receiver can end what ended while no
// service ran.
type Current struct {
	State      State       `json:"state"` // Holds
	Time       time.Time   `json:"time"`
	Cluster    string      `json:"cluster"`
	Conditions []Condition `json:"conditions"` // that were reported to have begun, the worst first
}

// Settle is how long a condition is there, or is away, before that is told: what comes and goes meanwhile pages nobody.
const Settle = time.Minute

// Record remembers, over many looks, since when there is what. The zero Record remembers nothing.
type Record struct {
	held map[place]*held
}

type place struct {
	name       Name
	repository string
}

// held is a condition that was there less than Settle ago.
type held struct {
	last Condition
	gone time.Time // since when it is away; zero: it is there
	told Severity  // with which one it was told to have begun; "": it was not
}

// Update is given what Judge says now. It returns the same with the true Since, and what is to be told.
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
		if settled := now.Sub(c.Since) >= Settle; settled && h.told != Critical && h.told != c.Severity {
			h.told = c.Severity
			changes = append(changes, Change{Begins, now.UTC(), c})
		}
	}
	return current, append(changes, r.forget(there, now)...)
}

// see remembers c, and gives it the Since that it has had before.
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

// forget lets go of what has been away for long enough.
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
		if h.told != "" {
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
		if h.told != "" {
			c.Conditions = append(c.Conditions, h.last)
		}
	}
	slices.SortFunc(c.Conditions, worstFirst)
	return c
}

// Close ends all that was told to have begun: nobody looks any more.
func (r *Record) Close(now time.Time) (changes []Change) {
	for _, h := range r.held {
		if h.told != "" {
			changes = append(changes, Change{Ends, now.UTC(), h.last})
		}
	}
	r.held = nil
	sortChanges(changes)
	return changes
}

// Unsettled reports whether something is there, or is away, that was not told yet. Another look should come after Settle.
func (r *Record) Unsettled() bool {
	for _, h := range r.held {
		if h.told != h.last.Severity && h.told != Critical || !h.gone.IsZero() {
			return true
		}
	}
	return false
}

func sortChanges(changes []Change) {
	slices.SortFunc(changes, func(a, b Change) int { return worstFirst(a.Condition, b.Condition) })
}
