package replay

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

// keySpace is the key space of the database: stored, which is etcd's own, or indexed, which knows only what direct requests need.
type keySpace interface {
	// begin begins a transaction. No other one can begin before it ends.
	begin() writeTxn
	// find returns the numbers of a key, all 0 if the key does not exist, and whether it does.
	find(key []byte) (numbers, bool)
	revisions() (newest, compact int64)
	// compact returns after the revisions are deleted. The error is mvcc.ErrCompacted or mvcc.ErrFutureRev.
	compact(revision int64) error
	// hash returns the hash at a revision, of which 0 is the newest. The error is mvcc.ErrCompacted if the revision is below that of the last
	// compaction, and mvcc.ErrFutureRev if it is above the newest; with any other error the key space cannot be read.
	hash(revision int64) (mvcc.KeyValueHash, error)
	// count returns what CountKeys does.
	count(ctx context.Context) (keys int64, kubernetes bool, err error)
}

// writeTxn is an open write transaction. It makes one revision, or none if nothing is put or deleted.
type writeTxn interface {
	Put(key, value []byte, id lease.LeaseID) int64
	lease.TxnDelete
}

// numbers are those that a comparison can name.
type numbers struct{ created, modified, version int64 }

// stored is the key space as etcd's own store.
type stored struct {
	mvcc.KV
	quiet *traceutil.Trace
}

func (s stored) begin() writeTxn { return s.Write(s.quiet) }

func (s stored) find(key []byte) (numbers, bool) {
	tx := s.Read(mvcc.SharedBufReadTxMode, s.quiet)
	defer tx.End()
	found, err := tx.Range(context.Background(), key, nil, mvcc.RangeOptions{FastKeysOnly: true})
	if err != nil || len(found.KVs) == 0 {
		return numbers{}, false
	}
	kv := found.KVs[0]
	return numbers{kv.CreateRevision, kv.ModRevision, kv.Version}, true
}

// revisions uses a shared buffer, since the store's own methods copy all uncommitted changes on each call.
func (s stored) revisions() (newest, compact int64) {
	tx := s.Read(mvcc.SharedBufReadTxMode, s.quiet)
	defer tx.End()
	return tx.Rev(), tx.FirstRev()
}

func (s stored) compact(revision int64) error {
	done, err := s.Compact(s.quiet, revision)
	if err != nil {
		return err
	}
	<-done
	return nil
}

func (s stored) hash(revision int64) (mvcc.KeyValueHash, error) {
	hash, _, err := s.HashStorage().HashByRev(revision)
	return hash, err
}

func (s stored) count(ctx context.Context) (keys int64, kubernetes bool, err error) {
	return CountKeys(ctx, s)
}

// awaitCompactions waits for the end of an interrupted compaction, which the store resumes. It asks for a compaction to a
// revision older than any, which does nothing, and waits until the store's queue has reached it.
func (s stored) awaitCompactions() {
	done, _ := s.Compact(s.quiet, -1)
	if done != nil {
		<-done
	}
}

// CountKeys returns the number of keys in the key space, and whether some of them belong to Kubernetes (below /registry/).
func CountKeys(ctx context.Context, kv mvcc.KV) (keys int64, kubernetes bool, err error) {
	all, err := kv.Range(ctx, []byte{0}, []byte{}, mvcc.RangeOptions{CountOnly: true})
	if err != nil {
		return 0, false, fmt.Errorf("count the keys: %w", err)
	}
	registry, err := kv.Range(ctx, []byte(keyspace.Registry), []byte("/registry0"), mvcc.RangeOptions{CountOnly: true})
	if err != nil {
		return 0, false, fmt.Errorf("count the keys of Kubernetes: %w", err)
	}
	return int64(all.Count), registry.Count > 0, nil
}
