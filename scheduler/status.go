package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// State is what a service does for a cluster.
type State string

// The states of a cluster.
const (
	Starting  State = "starting"  // what its repositories hold is not known yet
	Idle      State = "idle"      // until Next
	Queued    State = "queued"    // due, while as many others run as may
	Running   State = "running"   // a backup is being taken
	Standby   State = "standby"   // due, and another service, Holder, works on it
	Failing   State = "failing"   // Problem says why; the next try is at Next
	Suspended State = "suspended" // nothing is started
)

// Status is what a service says of one cluster. It is a value: a copy may be kept.
type Status struct {
	Cluster  string    `json:"cluster"`
	State    State     `json:"state"`
	Problem  string    `json:"problem,omitempty"`
	Failures int       `json:"failures"`         // tries in a row that failed
	Reason   string    `json:"reason,omitempty"` // why a backup is due or being taken
	Holder   string    `json:"holder,omitempty"` // who works, on standby
	Last     *Last     `json:"last,omitempty"`   // the newest backup; absent: none is known
	Next     time.Time `json:"next,omitzero"`    // when the next backup is due, or tried
	Taken    int64     `json:"taken"`            // backups, by this service
	// Unpruned is why the last pruning has failed. Backups go on.
	Unpruned string `json:"unpruned,omitempty"`
}

// Status is what s says of each cluster, by name. It may be called while Run runs.
func (s *Service) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []Status{}
	for _, w := range s.workers {
		all = append(all, w.board.get())
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return all
}
