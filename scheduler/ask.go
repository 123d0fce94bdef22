package scheduler

import (
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// ask is a person's request for a job.
type ask struct {
	job    Job
	reason string
	at     time.Time // of the request
	after  time.Time // of which it is tried
}

// asks holds the requests for one goroutine, and the jobs that it has queued or runs. All fields are guarded by mu.
type asks struct {
	mu     sync.Mutex
	wanted []ask        // each job once
	at     map[Job]bool // queued or running
	poke   chan struct{}
}

func newAsks() *asks { return &asks{at: map[Job]bool{}, poke: make(chan struct{}, 1)} }

// look wakes the goroutine.
func (a *asks) look() {
	select {
	case a.poke <- struct{}{}:
	default: // it was woken already
	}
}

// add adds a request, unless the same job is requested, queued or running already.
func (a *asks) add(one ask) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at[one.job] {
		return
	}
	for _, other := range a.wanted {
		if other.job == one.job {
			return
		}
	}
	a.wanted = append(a.wanted, one)
	a.look()
}

// next returns the request to serve now. Without one it returns the zero ask, and when the next one is due; the zero Time: none.
func (a *asks) next(now time.Time) (one ask, again time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.wanted {
		if !one.after.After(now) {
			return one, time.Time{}
		}
		again = spec.Earlier(again, one.after)
	}
	return ask{}, again
}

// begin records that a job is queued, which fulfils requests for it.
func (a *asks) begin(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[job] = true
	a.drop(job)
}

// end records that a job is neither queued nor running.
func (a *asks) end(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, job)
}

// all removes and returns all requests.
func (a *asks) all() []ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.wanted
	a.wanted = nil
	return all
}

func (a *asks) drop(job Job) {
	var left []ask
	for _, one := range a.wanted {
		if one.job != job {
			left = append(left, one)
		}
	}
	a.wanted = left
}
