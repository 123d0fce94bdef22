package replay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// Forget frees the memory of a closed key space. etcd's metrics refer to the newest store of a process, with its whole index,
// for ever (storage/mvcc/kvstore.go, setupMetricsReporter), so Forget replaces it with an empty one. It creates a temporary
// file in dir.
func Forget(dir string) error {
	scratch, err := os.MkdirTemp(dir, "forget-*")
	if err != nil {
		return fmt.Errorf("free the memory of a closed key space: %w", err)
	}
	be := backend.New(backend.BackendConfig{
		Path: filepath.Join(scratch, "empty"), UnsafeNoFsync: true, BatchLimit: 1, BatchInterval: time.Hour, Logger: LastWords(),
	})
	empty := mvcc.NewStore(LastWords(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	return errors.Join(empty.Close(), be.Close(), os.RemoveAll(scratch))
}
