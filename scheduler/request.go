package scheduler

import (
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// request is a person's request for a job.
type request struct {
	job    Job
	reason string
	at     time.Time // of the request
	after  time.Time // of which it is tried
}

// requests holds the requests for one goroutine, and the jobs that it has queued or runs. All fields are guarded by mu.
type requests struct {
	mu     sync.Mutex
	wanted []request    // each job once
	at     map[Job]bool // queued or running
	wakes  chan struct{}
}

func newAsks() *requests { return &requests{at: map[Job]bool{}, wakes: make(chan struct{}, 1)} }

// wake wakes the goroutine.
func (a *requests) wake() {
	select {
	case a.wakes <- struct{}{}:
	default: // it was woken already
	}
}

// add adds a request, unless the same job is requested, queued or running already.
func (a *requests) add(one request) {
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
	a.wake()
}

// next returns the request to serve now. Without one it returns the zero request, and when the next one is due; the zero Time: none.
func (a *requests) next(now time.Time) (one request, again time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.wanted {
		if !one.after.After(now) {
			return one, time.Time{}
		}
		again = spec.Earlier(again, one.after)
	}
	return request{}, again
}

// begin records that a job is queued, which fulfils requests for it.
func (a *requests) begin(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[job] = true
	a.drop(job)
}

// remove records that a job is neither queued nor running.
func (a *requests) remove(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, job)
}

// all removes and returns all requests.
func (a *requests) all() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.wanted
	a.wanted = nil
	return all
}

func (a *requests) drop(job Job) {
	var left []request
	for _, one := range a.wanted {
		if one.job != job {
			left = append(left, one)
		}
	}
	a.wanted = left
}
