package scheduler

import (
	"slices"
	"sync"
)

// board is the status, which others read. What a Status points to is never changed, so that a copy may be kept.
type board struct {
	mu     sync.Mutex
	status Status
	ended  func() // is called when a job has
}

func (b *board) set(change func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.status)
}

func (b *board) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// begin says that a job runs.
func (b *board) begin(o Outcome) {
	b.set(func(s *Status) {
		s.Jobs = append(slices.DeleteFunc(slices.Clone(s.Jobs), func(old Outcome) bool { return old.same(o) && old.Ended.IsZero() }), o)
	})
}

// end says how a job went, in place of how it went before, and counts it.
func (b *board) end(o Outcome) {
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

// running is what runs of o's job there, or o if nothing does.
func (b *board) running(o Outcome) Outcome {
	for _, other := range b.get().Jobs {
		if other.same(o) && other.Ended.IsZero() {
			return other
		}
	}
	return o
}

// same reports whether both are of one job in one repository.
func (o Outcome) same(other Outcome) bool {
	return o.Job == other.Job && o.Repository == other.Repository
}
