package storage

import (
	"io"
	"time"
)

// Report receives the progress of a library function. Progress bars, JSON lines, metrics and the status of a custom
// resource are implementations. It may be called from several goroutines and must not block. A nil Report is valid: see
// Report.Say.
type Report func(Event)

// Event is one step of a command's progress.
type Event struct {
	Time time.Time `json:"time"` // when it happened
	// Stage is the part of the work. Backup: "connect", "stream", "compare", "commit". Restore: "survey", "ask", "fetch", "check",
	// "prove", "replay", "build", "rename", "replace"; in place in Kubernetes "pending", "planning", "staging", "fencing", "sealing",
	// "placing", "releasing", "verifying", "rollingback", "claim". Verify and drill also: "boot", "assert", "compare", "verify", "drill". Log:
	// "archive", "read". Copy: "ask", "copy". Service: "schedule", "config", "condition", "notify", "listen". Others: "find", "prune".
	Stage   string `json:"stage"`
	Level   Level  `json:"level,omitempty"`   // "": progress
	Message string `json:"message,omitempty"` // one plain sentence without secrets
	Cluster string `json:"cluster,omitempty"` // only in dr serve
	Object  string `json:"object,omitempty"`  // the key, file, member or endpoint
	Done    int64  `json:"done,omitempty"`    // bytes so far
	Total   int64  `json:"total,omitempty"`   // bytes expected; 0 if unknown
}

// Level distinguishes progress, notes and warnings.
type Level string

// The levels of an Event. Errors are returned and are never events.
const (
	Progress Level = ""
	Note     Level = "note"
	Warning  Level = "warning"
)

// Say reports e, with the current time if it has none. On a nil Report it does nothing.
func (r Report) Say(e Event) {
	if r == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	r(e)
}

// pace is the interval between the reports of a stream.
const pace = 200 * time.Millisecond

// Follow returns a reader of src that reports e with the bytes read so far in Done: at once, a few times a second, and
// at the end.
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
	now := time.Now()
	if now.Sub(f.last) >= pace || err == io.EOF {
		f.last = now
		f.report.Say(f.event)
	}
	return n, err
}
