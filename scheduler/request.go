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
	at     time.Time // when it was made
	after  time.Time // when it may be tried; zero: at once
	since  time.Time // a backup with this reason that began then or later is the outcome; zero: only one that began after the request
}

// requests holds the requests for one goroutine, and the jobs that it has queued or runs. All fields are guarded by mu.
type requests struct {
	mu     sync.Mutex
	wanted []request    // each job once
	active map[Job]bool // queued or running
	wakes  chan struct{}
}

func newRequests() *requests { return &requests{active: map[Job]bool{}, wakes: make(chan struct{}, 1)} }

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
	if a.active[one.job] {
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

// next returns the request to serve now. Without one it returns the zero request, and when the next request may be tried; the
// zero Time: there is none.
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

// begin records that a job is queued, and removes the request for it.
func (a *requests) begin(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active[job] = true
	a.drop(job)
}

// remove records that a job is neither queued nor running.
func (a *requests) remove(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.active, job)
}

// all removes and returns all requests.
func (a *requests) all() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.wanted
	a.wanted = nil
	return all
}

// drop removes the request for job. The caller holds a.mu.
func (a *requests) drop(job Job) {
	var left []request
	for _, one := range a.wanted {
		if one.job != job {
			left = append(left, one)
		}
	}
	a.wanted = left
}
