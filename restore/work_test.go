package restore_test

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore"
	"github.com/etcd-dr/etcd-dr/storage/fault"
)

// Concurrent runs of one plan never share a work dir, and leave none.
func TestWorkDirsAtOnce(t *testing.T) {
	parent := t.TempDir()
	target := filepath.Join(parent, "data")
	var holders atomic.Int32
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for range 300 {
				there, remove, err := restore.WorkDir(target, "0123456789abcdef")
				if errors.Is(err, fault.Refused) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				n := holders.Add(1)
				if n != 1 {
					t.Errorf("%d have it at once", n)
				}
				for range 20 {
					if !there() {
						t.Error("somebody has removed it")
						break
					}
				}
				holders.Add(-1)
				remove()
			}
		})
	}
	working.Wait()
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
