package storage

import "time"

// Report is how a library of etcd-dr speaks while it works. Progress bars, JSON lines, metrics and a CR's status are
// readers of it. It may be called from several goroutines, must not block, and is never nil where a library calls it:
// see Report.Say.
type Report func(Event)

// Event is one thing that happened on the way.
type Event struct {
	Time    time.Time `json:"time"`
	Stage   string    `json:"stage"`             // connect, stream, commit; ask, fetch, check, build, rename; boot
	Level   Level     `json:"level,omitempty"`   // "" is progress
	Message string    `json:"message,omitempty"` // one plain sentence, no secret in it
	Object  string    `json:"object,omitempty"`  // key, file or member it is about
	Done    int64     `json:"done,omitempty"`    // bytes so far
	Total   int64     `json:"total,omitempty"`   // bytes expected, 0 where nobody knows
}

// Level tells a note from a warning.
type Level string

// The levels of an Event. An error is never an event: it is returned.
const (
	Progress Level = ""
	Note     Level = "note"
	Warning  Level = "warning"
)

// Say reports e, stamped with the time, and does nothing on a nil Report.
func (r Report) Say(e Event) {
	if r == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	r(e)
}
