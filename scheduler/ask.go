package scheduler

import (
	"sync"
	"time"

	"github.com/etcd-dr/etcd-dr/scheduler/spec"
)

// ask is a job that somebody wants now.
type ask struct {
	job    Job
	reason string
	at     time.Time // when it was asked for
	after  time.Time // when to try
}

// asks are what people ask a goroutine for, and the jobs that it is at.
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
	default: // it is about to look
	}
}

// add asks for a job. Where it is asked for, queued or running already, that one is it.
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

// next is what to do now, the zero ask if nothing, and else when to ask again; the zero Time is when somebody asks.
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

// begin says that a job is queued: whoever has asked for it has it.
func (a *asks) begin(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[job] = true
	a.drop(job)
}

func (a *asks) end(job Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, job)
}

// all takes all that is wanted.
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
