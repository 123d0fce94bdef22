package storage

import (
	"io"
	"time"
)

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
	Cluster string    `json:"cluster,omitempty"` // where several are looked after: whose it is
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

// pace is how often a stream reports itself.
const pace = 200 * time.Millisecond

// Follow passes src on and reports e as the bytes go by, with Done counted up: at once, a few times a second, and at
// the end.
func (r Report) Follow(src io.Reader, e Event) io.Reader {
	r.Say(e)
	return &followed{src: src, event: e, report: r, last: time.Now()}
}

type followed struct {
	src    io.Reader
	event  Event
	report Report
	last   time.Time
}

func (f *followed) Read(p []byte) (int, error) {
	n, err := f.src.Read(p)
	f.event.Done += int64(n)
	if now := time.Now(); now.Sub(f.last) >= pace || err == io.EOF {
		f.last = now
		f.report.Say(f.event)
	}
	return n, err
}
