package restores

import "sync"

// The bounds of restores that take a step at the same time. Each may have a catalog in memory.
const (
	AtOnce       = 8 // of all namespaces
	perNamespace = 2 // one whose stores or members do not answer must leave turns to the restores of others
)

// turns counts the steps that are being taken, by namespace.
type turns struct {
	mu    sync.Mutex
	taken map[string]int // guarded by mu
}

// take reports whether another step of a namespace may begin now. If so, give ends it.
func (t *turns) take(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken == nil {
		t.taken = map[string]int{}
	}
	if t.taken[namespace] == perNamespace {
		return false
	}
	t.taken[namespace]++
	return true
}

func (t *turns) give(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken[namespace]--
	if t.taken[namespace] == 0 {
		delete(t.taken, namespace)
	}
}
