package scheduler

import (
	"slices"
	"sync"
)

// board holds the Status of one cluster. Values that a Status points to never change, so a copy may be kept.
type board struct {
	changed func() // is called after each change
	ended   func() // is called after a job of this or of another service has ended

	mu     sync.Mutex
	status Status // guarded by mu
}

// newBoard returns the board of a cluster whose state is not known yet.
func (s *Service) newBoard(cluster string) *board {
	return &board{status: starting(cluster), changed: func() { s.changed(cluster) }, ended: func() {}}
}

// changed calls s.Changed, if there is one.
func (s *Service) changed(cluster string) {
	if s.Changed != nil {
		s.Changed(cluster)
	}
}

func (b *board) set(change func(*Status)) {
	defer b.changed()
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

func (b *board) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// begin records that a job runs.
func (b *board) begin(o Outcome) {
	b.set(func(s *Status) {
		s.Jobs = append(slices.DeleteFunc(slices.Clone(s.Jobs), func(old Outcome) bool { return old.same(o) && old.Ended.IsZero() }), o)
	})
}

// publish replaces the last outcome of the job by o, and counts it.
func (b *board) publish(o Outcome) {
	defer b.ended()
	b.set(func(s *Status) {
		s.Jobs = append(slices.DeleteFunc(slices.Clone(s.Jobs), o.same), o)
		s.Counts = slices.Clone(s.Counts)
		i := slices.IndexFunc(s.Counts, func(c Count) bool { return c.Job == o.Job && c.Verdict == o.Verdict })
		if i < 0 {
			i, s.Counts = len(s.Counts), append(s.Counts, Count{Job: o.Job, Verdict: o.Verdict})
		}
		s.Counts[i].N++
	})
}

// running returns the running outcome of o's job in o's repository, or o if there is none.
func (b *board) running(o Outcome) Outcome {
	for _, other := range b.get().Jobs {
		if other.same(o) && other.Ended.IsZero() {
			return other
		}
	}
	return o
}

// same reports whether o and other are outcomes of the same job in the same repository.
func (o Outcome) same(other Outcome) bool {
	return o.Job == other.Job && o.Repository == other.Repository
}
