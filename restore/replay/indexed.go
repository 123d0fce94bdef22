package replay

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/restore/keyindex"
	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

// indexed is the key space with an index of the keys alone. It writes what etcd's store does (mvcc/kvstore_txn.go, kvstore_compaction.go).
type indexed struct {
	index  *keyindex.Index
	be     backend.Backend
	lessor lease.Lessor
	// scanned is the number of keys that deletes of ranges have looked at.
	scanned int

	tx    backend.BatchTx    // of the revision that is being made
	next  keyspace.BucketKey // of its next change
	chunk []byte             // the next entries become parts of it: one allocation for many. The backend keeps them until it commits
}

// openIndexed reads the index from the database. The error matches keyspace.ErrUnfinished if a compaction is unfinished; after any other
// error only etcd's store may open the database. Some leases may have got their keys then, which the store repeats.
func openIndexed(be backend.Backend, lessor lease.Lessor) (*indexed, error) {
	tx := be.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	index, leases, err := loadIndex(tx)
	if err != nil {
		return nil, err
	}
	for key, id := range leases {
		err := lessor.Attach(id, []lease.LeaseItem{{Key: key}})
		if err != nil {
			return nil, fmt.Errorf("attach key %q: %w", key, err)
		}
	}
	s := &indexed{index: index, be: be, lessor: lessor}
	lessor.SetRangeDeleter(func() lease.TxnDelete { return s.begin() })
	return s, nil
}

// createBuckets creates the buckets that etcd's store does when it is opened.
func createBuckets(be backend.Backend) {
	tx := be.BatchTx()
	tx.LockOutsideApply()
	tx.UnsafeCreateBucket(schema.Key)
	schema.UnsafeCreateMetaBucket(tx)
	tx.Unlock()
	be.ForceCommit()
}

// loadIndex reads the index, and the lease of each key that has one.
func loadIndex(tx backend.UnsafeReader) (index *keyindex.Index, leases map[string]lease.LeaseID, err error) {
	compacted, err := keyspace.Compacted(func(name []byte) []byte {
		_, values := tx.UnsafeRange(schema.Meta, name, nil, 0)
		if len(values) == 0 {
			return nil
		}
		return values[0]
	})
	if err != nil {
		return nil, nil, err
	}
	index, leases = keyindex.New(compacted), map[string]lease.LeaseID{}
	err = tx.UnsafeForEach(schema.Key, func(k, v []byte) error {
		e, err := keyspace.Parse(k, v)
		if err != nil {
			return err
		}
		if e.Lease != 0 {
			leases[string(e.Key)] = lease.LeaseID(e.Lease)
		} else if len(leases) > 0 {
			delete(leases, string(e.Key))
		}
		return index.Load(e)
	})
	return index, leases, err
}

func (s *indexed) begin() writeTxn {
	s.tx = s.be.BatchTx()
	s.tx.LockInsideApply()
	newest, _ := s.index.Revisions()
	s.next.Main, s.next.Sub = newest+1, 0
	return s
}

// End ends the revision that begin began.
func (s *indexed) End() { s.tx.Unlock() }

// Put puts a key and returns the revision.
func (s *indexed) Put(key, value []byte, id lease.LeaseID) int64 {
	k, existed := s.index.Put(key, s.next)
	s.store(keyspace.Entry{BucketKey: s.next, Key: key, Created: k.Created, Version: k.Version, Lease: int64(id)}, value)
	held := lease.NoLease
	if existed {
		held = s.lessor.GetLease(lease.LeaseItem{Key: k.Name})
	}
	if held != id {
		s.attach(k, held, id)
	}
	return s.next.Main
}

// attach moves a key from one lease to another.
func (s *indexed) attach(k *keyindex.Key, from, to lease.LeaseID) {
	items := []lease.LeaseItem{{Key: k.Name}}
	if from != lease.NoLease {
		_ = s.lessor.Detach(from, items) // the lease has the key
	}
	if to == lease.NoLease {
		return
	}
	err := s.lessor.Attach(to, items)
	if err != nil {
		panic(fmt.Sprintf("attach key %q to lease %016x: %v", k.Name, to, err)) // the caller has looked the lease up
	}
}

// DeleteRange deletes key, or all keys from key to end if end is not nil, and returns their number and the revision.
func (s *indexed) DeleteRange(key, end []byte) (deleted, revision int64) {
	for _, k := range s.inRange(key, end) {
		at := keyspace.BucketKey{Revision: s.next.Revision, Tombstone: true}
		s.index.Delete(k, at)
		s.store(keyspace.Entry{BucketKey: at, Key: []byte(k.Name)}, nil)
		s.attach(k, s.lessor.GetLease(lease.LeaseItem{Key: k.Name}), lease.NoLease)
		deleted++
	}
	newest, _ := s.index.Revisions()
	return deleted, newest
}

func (s *indexed) inRange(key, end []byte) []*keyindex.Key {
	if end != nil {
		s.scanned += s.index.Len()
		return s.index.Range(key, end)
	}
	k := s.index.Get(key)
	if k == nil {
		return nil
	}
	return []*keyindex.Key{k}
}

// scansPerKey limits how often deletes of ranges may look at all keys. So many scans take about as long as opening etcd's store, which needs
// none.
const scansPerKey = 32

// canScan reports whether this many more deletes of ranges are within the limit.
func (s *indexed) canScan(ranges int) bool {
	return s.scanned+ranges*s.index.Len() <= scansPerKey*s.index.Size()
}

// store writes an entry with the value that a client has put.
func (s *indexed) store(e keyspace.Entry, value []byte) {
	key := e.Append(s.room(len(e.Key) + len(value)))
	entry := e.AppendValue(key[len(key):], value)
	s.chunk = entry[len(entry):]
	s.tx.UnsafeSeqPut(schema.Key, key[:len(key):len(key)], entry[:len(entry):len(entry)])
	s.next.Sub++
}

const (
	numbersSize = 96        // the most that an entry takes beside its key and its value
	chunkSize   = 256 << 10 // holds some hundred entries
)

// room returns an empty slice with room for an entry with a key and a value of size bytes together.
func (s *indexed) room(size int) []byte {
	size += numbersSize
	if cap(s.chunk) < size {
		s.chunk = make([]byte, 0, max(chunkSize, size))
	}
	return s.chunk
}

func (s *indexed) find(key []byte) (numbers, bool) {
	k := s.index.Get(key)
	if k == nil {
		return numbers{}, false
	}
	return numbers{k.Created, k.Modified(), k.Version}, true
}

func (s *indexed) revisions() (newest, compact int64) { return s.index.Revisions() }

func (s *indexed) compact(revision int64) error {
	newest, compacted := s.index.Revisions()
	switch {
	case revision <= compacted:
		return mvcc.ErrCompacted
	case revision > newest:
		return mvcc.ErrFutureRev
	}
	mvcc.SetScheduledCompact(s.be.BatchTx(), revision)
	s.be.ForceCommit()
	drops := make([]keyspace.BucketKey, 0, compactionBatch)
	s.index.Compact(revision, func(at keyspace.BucketKey) {
		drops = append(drops, at)
		if len(drops) == cap(drops) {
			s.drop(drops)
			drops = drops[:0]
		}
	})
	s.drop(drops)
	mvcc.SetFinishedCompact(s.be.BatchTx(), revision)
	return nil
}

// drop deletes revisions from the database.
func (s *indexed) drop(all []keyspace.BucketKey) {
	tx := s.be.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	var key []byte
	for _, at := range all {
		key = at.Append(key[:0])
		tx.UnsafeDelete(schema.Key, key)
	}
}

func (s *indexed) hash(revision int64) (mvcc.KeyValueHash, error) {
	newest, compacted := s.index.Revisions()
	switch {
	case revision == 0:
		revision = newest
	case revision < compacted:
		return mvcc.KeyValueHash{}, mvcc.ErrCompacted
	case revision > newest:
		return mvcc.KeyValueHash{}, mvcc.ErrFutureRev
	}
	tx := s.be.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	found, err := keyspace.ReadOpen(tx, compacted, revision)
	return mvcc.KeyValueHash{Hash: found.Hash, CompactRevision: compacted, Revision: revision}, err
}

func (s *indexed) count(context.Context) (keys int64, kubernetes bool, err error) {
	for k := range s.index.Keys() {
		if k.Name == "" { // not a client's: see directCompare
			continue
		}
		keys++
		kubernetes = kubernetes || strings.HasPrefix(k.Name, keyspace.Registry)
	}
	return keys, kubernetes, nil
}
