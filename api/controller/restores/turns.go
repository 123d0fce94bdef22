package restores

import (
	"sync"

	"github.com/etcd-dr/etcd-dr/restore/handoff"
)

// The bounds of restores that take a step at the same time. Each may have a catalog in memory.
const (
	AtOnce       = 8 // of all namespaces
	serving      = 6 // whose members are not stopped: the others have a time limit, and must never wait for stores that do not answer
	perNamespace = 2 // of a turn: one whose stores or members do not answer must leave turns to the restores of others
)

// turn is what bounds a step of a restore.
type turn struct {
	namespace string
	down      bool // members may be stopped
}

// turnOf returns the turn of a restore in phase p. It is pure.
func turnOf(namespace string, p handoff.Phase) turn {
	switch p {
	case handoff.Fencing, handoff.Sealing, handoff.Placing, handoff.Releasing, handoff.Verifying, handoff.RollingBack:
		return turn{namespace, true}
	}
	return turn{namespace, false}
}

// turns counts the steps that are being taken.
type turns struct {
	mu      sync.Mutex
	taken   map[turn]int // guarded by mu
	serving int          // those of taken whose members are not stopped; guarded by mu
}

// take reports whether another step with the turn k may begin now. If so, give ends it.
func (t *turns) take(k turn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken == nil {
		t.taken = map[turn]int{}
	}
	if t.taken[k] == perNamespace || !k.down && t.serving == serving {
		return false
	}
	t.count(k, 1)
	return true
}

func (t *turns) give(k turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(k, -1)
}

// count adds n steps. The caller holds t.mu.
func (t *turns) count(k turn, n int) {
	t.taken[k] += n
	if t.taken[k] == 0 {
		delete(t.taken, k)
	}
	if !k.down {
		t.serving += n
	}
}
