package replay_test

import (
	"runtime"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/replay"
)

// A restore maps the whole database after the replay: the replay's memory must be free by then.
func TestApplyFreesItsMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector takes memory of its own")
	}
	const keys = 100_000 // their index takes more than 20 MB
	db := copyOf(t, makeBase(t, 1<<20))
	before := inUse()
	_, err := replay.Apply(t.Context(), db, fromWAL(puts(t, 4*keys)), replay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	after := inUse()
	if after > before+8<<20 {
		t.Errorf("%d MB are still in use after the replay, %d MB were before", after>>20, before>>20)
	}
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
