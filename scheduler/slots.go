package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// slots bounds the jobs of one kind that run at a time. A free slot goes to the tenant that holds the fewest, and among the jobs of
// such tenants to the one that has waited longest: a tenant with hundreds of due jobs does not keep the others waiting.
type slots struct {
	mu      sync.Mutex
	free    int            // guarded by mu, as all below
	held    map[string]int // by tenant; tenants without a slot are missing
	waiting []*waiter      // in the order of their arrival; empty if slots are free
}

// waiter is a job that waits for a slot.
type waiter struct {
	tenant  string
	granted chan struct{} // closed when it has the slot
}

func newSlots(n int) *slots { return &slots{free: n, held: map[string]int{}} }

// acquire waits for a slot until ctx ends. The caller must call release once.
func (s *slots) acquire(ctx context.Context, tenant string) (release func(), err error) {
	w := &waiter{tenant, make(chan struct{})}
	s.change(func() { s.waiting = append(s.waiting, w) })
	select {
	case <-w.granted:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		s.change(func() { s.leave(w) })
		return nil, context.Cause(ctx)
	}
	return func() { s.change(func() { s.giveBack(tenant) }) }, nil
}

// change calls do, and grants the slots that are free after it.
func (s *slots) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	for s.free > 0 && len(s.waiting) > 0 {
		w := slices.MinFunc(s.waiting, func(a, b *waiter) int { return cmp.Compare(s.held[a.tenant], s.held[b.tenant]) }) // the first of equal ones
		s.remove(w)
		s.free--
		s.held[w.tenant]++
		close(w.granted)
	}
}

// leave removes w, which no longer waits. If it was just granted a slot, it gives that back. The caller holds s.mu.
func (s *slots) leave(w *waiter) {
	if !s.remove(w) {
		s.giveBack(w.tenant)
	}
}

// remove removes w from those that wait, and reports whether it was one. The caller holds s.mu.
func (s *slots) remove(w *waiter) bool {
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// giveBack takes a slot from a tenant. The caller holds s.mu.
func (s *slots) giveBack(tenant string) {
	s.free++
	s.held[tenant]--
	if s.held[tenant] == 0 {
		delete(s.held, tenant)
	}
}
