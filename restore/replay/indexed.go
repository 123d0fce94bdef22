package replay

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcd-dr/etcd-dr/restore/keyindex"
	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

// indexed is the key space with an index of the keys alone. It writes what etcd's store does (mvcc/kvstore_txn.go, kvstore_compaction.go).
type indexed struct {
	*keyindex.Index
	be     backend.Backend
	lessor lease.Lessor
	// scanned is the number of keys that deletes of ranges have looked at.
	scanned int

	tx    backend.BatchTx   // of the revision that is being made
	next  keyspace.Position // of its next change
	chunk []byte            // entries are parts of it: one allocation for many
}

// openIndexed reads the index from the database. The error matches keyspace.ErrUnfinished if a compaction is unfinished; after any other
// error only etcd's store may open the database.
func openIndexed(be backend.Backend, lessor lease.Lessor) (*indexed, error) {
	tx := be.BatchTx()
	tx.LockOutsideApply()
	tx.UnsafeCreateBucket(schema.Key)
	schema.UnsafeCreateMetaBucket(tx)
	tx.Unlock()
	be.ForceCommit()

	tx.LockOutsideApply()
	defer tx.Unlock()
	compacted, err := keyspace.Compacted(func(name []byte) []byte {
		_, values := tx.UnsafeRange(schema.Meta, name, nil, 0)
		if len(values) == 0 {
			return nil
		}
		return values[0]
	})
	if err != nil {
		return nil, err
	}
	s := &indexed{Index: keyindex.New(compacted), be: be, lessor: lessor}
	leases := map[string]lease.LeaseID{}
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
		return s.Load(e)
	})
	if err != nil {
		return nil, err
	}
	for key, id := range leases {
		err := lessor.Attach(id, []lease.LeaseItem{{Key: key}})
		if err != nil {
			return nil, fmt.Errorf("%w: attach key %q: %w", keyindex.ErrUnusual, key, err)
		}
	}
	lessor.SetRangeDeleter(func() lease.TxnDelete { return s.begin() })
	return s, nil
}

func (s *indexed) begin() revision {
	s.tx = s.be.BatchTx()
	s.tx.LockInsideApply()
	newest, _ := s.Revisions()
	s.next.Main, s.next.Sub = newest+1, 0
	return s
}

// End ends the revision that begin began.
func (s *indexed) End() { s.tx.Unlock() }

// Put puts a key and returns the revision.
func (s *indexed) Put(key, value []byte, id lease.LeaseID) int64 {
	k, existed := s.Index.Put(key, s.next)
	s.store(s.encode(k, value, id))
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
		at := s.next
		at.Tombstone = true
		s.Delete(k, at)
		s.store(s.encodeTombstone(k))
		s.attach(k, s.lessor.GetLease(lease.LeaseItem{Key: k.Name}), lease.NoLease)
		deleted++
	}
	newest, _ := s.Revisions()
	return deleted, newest
}

func (s *indexed) inRange(key, end []byte) []*keyindex.Key {
	if end != nil {
		s.scanned += s.Len()
		return s.Range(key, end)
	}
	k := s.Get(key)
	if k == nil {
		return nil
	}
	return []*keyindex.Key{k}
}

// scansPerKey limits how often deletes of ranges may look at all keys. That often takes about as long as opening etcd's store, which
// finds a range without a search.
const scansPerKey = 32

// canScan reports whether so many more deletes of ranges may look at all keys.
func (s *indexed) canScan(ranges int) bool { return s.scanned+ranges*s.Len() <= scansPerKey*s.Size() }

// store writes an entry, of which the first part is the key.
func (s *indexed) store(key, value []byte) {
	s.tx.UnsafeSeqPut(schema.Key, key, value)
	s.next.Sub++
}

// The fields of mvccpb.KeyValue (api/mvccpb/kv.proto).
const (
	fieldKey      = protowire.Number(1)
	fieldCreated  = protowire.Number(2)
	fieldModified = protowire.Number(3)
	fieldVersion  = protowire.Number(4)
	fieldValue    = protowire.Number(5)
	fieldLease    = protowire.Number(6)
)

const (
	revisionSize = 18        // of an encoded revision
	numbersSize  = 64        // the most that the numbers and the tags of an entry take
	chunkSize    = 256 << 10 // holds some hundred entries
)

// encode returns the entry of a key at the next revision.
func (s *indexed) encode(k *keyindex.Key, value []byte, id lease.LeaseID) (key, entry []byte) {
	b := s.room(len(k.Name) + len(value))
	b = appendRevision(b, s.next)
	key, b = b[:len(b):len(b)], b[len(b):]
	b = appendBytes(b, fieldKey, k.Name)
	b = appendNumber(b, fieldCreated, k.Created)
	b = appendNumber(b, fieldModified, s.next.Main)
	b = appendNumber(b, fieldVersion, k.Version)
	b = appendBytes(b, fieldValue, value)
	b = appendNumber(b, fieldLease, int64(id))
	s.chunk = b[len(b):]
	return key, b[:len(b):len(b)]
}

// encodeTombstone returns the entry of a deleted key at the next revision.
func (s *indexed) encodeTombstone(k *keyindex.Key) (key, entry []byte) {
	at := s.next
	at.Tombstone = true
	b := s.room(len(k.Name))
	b = appendRevision(b, at)
	key, b = b[:len(b):len(b)], b[len(b):]
	b = appendBytes(b, fieldKey, k.Name)
	s.chunk = b[len(b):]
	return key, b[:len(b):len(b)]
}

// room returns an empty slice with room for an entry with a key and a value of size bytes together.
func (s *indexed) room(size int) []byte {
	size += revisionSize + numbersSize
	if cap(s.chunk) < size {
		s.chunk = make([]byte, 0, max(chunkSize, size))
	}
	return s.chunk[:0]
}

// appendRevision appends the key of an entry, as mvcc.BucketKeyToBytes does.
func appendRevision(b []byte, at keyspace.Position) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(at.Main))
	b = append(b, '_')
	b = binary.BigEndian.AppendUint64(b, uint64(at.Sub))
	if at.Tombstone {
		b = append(b, 't')
	}
	return b
}

// appendBytes and appendNumber append a field unless it is empty, as protobuf does.
func appendBytes[T string | []byte](b []byte, field protowire.Number, value T) []byte {
	if len(value) == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(value)))
	return append(b, value...)
}

func appendNumber(b []byte, field protowire.Number, value int64) []byte {
	if value == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(value))
}

func (s *indexed) find(key []byte) (numbers, bool) {
	k := s.Get(key)
	if k == nil {
		return numbers{}, false
	}
	return numbers{k.Created, k.Modified(), k.Version}, true
}

func (s *indexed) revisions() (newest, compact int64) { return s.Revisions() }

func (s *indexed) compact(revision int64) error {
	newest, compacted := s.Revisions()
	switch {
	case revision <= compacted:
		return mvcc.ErrCompacted
	case revision > newest:
		return mvcc.ErrFutureRev
	}
	mvcc.SetScheduledCompact(s.be.BatchTx(), revision)
	s.be.ForceCommit()
	drops := make([]keyspace.Position, 0, compactionBatch)
	s.Compact(revision, func(at keyspace.Position) {
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
func (s *indexed) drop(all []keyspace.Position) {
	tx := s.be.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	var key []byte
	for _, at := range all {
		key = appendRevision(key[:0], at)
		tx.UnsafeDelete(schema.Key, key)
	}
}

func (s *indexed) hash(revision int64) (mvcc.KeyValueHash, error) {
	newest, compacted := s.Revisions()
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
	for k := range s.Keys() {
		if k.Name == "" { // not a client's: see directCompare
			continue
		}
		keys++
		kubernetes = kubernetes || strings.HasPrefix(k.Name, "/registry/")
	}
	return keys, kubernetes, nil
}
