package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// generate writes a database of about that many MB, always the same one: objects of 1 to 3 KB such as Kubernetes
// keeps, a third of whose bytes do not compress.
func generate(path string, megabytes int) error {
	be := backend.New(backend.BackendConfig{
		Path: path, UnsafeNoFsync: true, BatchLimit: 10000, BatchInterval: time.Hour, Logger: zap.NewNop(),
	})
	tx := be.BatchTx()
	tx.LockOutsideApply()
	for _, bucket := range schema.AllBuckets {
		tx.UnsafeCreateBucket(bucket)
	}
	tx.Unlock()
	store := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	random := rand.New(rand.NewPCG(1, uint64(megabytes)))
	var written int
	for i := 0; written < megabytes*1_000_000; i++ {
		key := fmt.Sprintf("/registry/%s/namespace-%03d/object-%06d", kinds[i%len(kinds)], i%200, random.IntN(1_000_000))
		value := object(random)
		store.Put([]byte(key), value, lease.NoLease)
		written += len(key) + len(value) + 64
	}
	store.Commit()
	if err := store.Close(); err != nil {
		return err
	}
	if err := be.Close(); err != nil {
		return err
	}
	return os.Chmod(path, 0o600)
}

var kinds = []string{"pods", "configmaps", "secrets", "events", "leases/kube-node-lease", "replicasets"}

const filler = `{"kind":"Object","apiVersion":"v1","metadata":{"labels":{"app":"server","tier":"backend"},"managedFields":[{"manager":"kubelet","operation":"Update"}]}}`

func object(random *rand.Rand) []byte {
	value := make([]byte, 1000+random.IntN(2000))
	noise := len(value) / 3
	for i := range noise {
		value[i] = byte(random.Uint32())
	}
	for i := noise; i < len(value); {
		i += copy(value[i:], filler)
	}
	return value
}
