// Package database writes etcd databases for tests, with etcd's own packages and without a server. The files equal a
// member's snapshot without the digest at its end.
package database

import (
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Write creates the database at path and calls fill to add content. Leases are not known to the store.
func Write(path string, fill func(be backend.Backend, store mvcc.KV) error) error {
	be := backend.New(backend.BackendConfig{
		Path: path, UnsafeNoFsync: true, BatchLimit: 1000, BatchInterval: time.Hour, Logger: zap.NewNop(),
	})
	tx := be.BatchTx()
	tx.LockOutsideApply()
	for _, bucket := range schema.AllBuckets {
		tx.UnsafeCreateBucket(bucket)
	}
	tx.Unlock()
	store := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	err := fill(be, store)
	if err != nil {
		return err
	}
	store.Commit()
	err = store.Close()
	if err != nil {
		return err
	}
	return be.Close()
}

// Generate writes a database of about size bytes, always the same for a size: objects of 1 to 3 KB like those of
// Kubernetes, a third of whose bytes do not compress.
func Generate(path string, size int64) error {
	return Write(path, func(be backend.Backend, store mvcc.KV) error {
		random := rand.New(rand.NewPCG(1, uint64(size)))
		for i := 0; be.Size() < size; i++ {
			key := fmt.Appendf(nil, "/registry/%s/namespace-%03d/object-%09d", kinds[i%len(kinds)], i%200, random.IntN(1_000_000))
			store.Put(key, object(random), lease.NoLease)
		}
		return nil
	})
}

// GenerateSmall writes a database with a number of keys of about 100 bytes with their values, always the same for a number.
func GenerateSmall(path string, keys int) error {
	return Write(path, func(_ backend.Backend, store mvcc.KV) error {
		random := rand.New(rand.NewPCG(2, uint64(keys)))
		for i := range keys {
			key := fmt.Appendf(nil, "/registry/%s/object-%09d", kinds[i%len(kinds)], i)
			store.Put(key, fmt.Appendf(nil, "%016x %s", random.Uint64(), filler[:40]), lease.NoLease)
		}
		return nil
	})
}

var kinds = []string{"pods", "configmaps", "secrets", "events", "leases/kube-node-lease", "replicasets"}

const filler = `{"kind":"Object","apiVersion":"v1","metadata":{"labels":{"app":"server","tier":"backend"},` +
	`"managedFields":[{"manager":"kubelet","operation":"Update"}]}}`

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
