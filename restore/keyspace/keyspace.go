// Package keyspace reads the key space of a database in one sequential pass, without the index that a server builds: for millions of small
// keys that index takes most of the time and memory of a restore.
//
// The rules are those of etcd's server/storage/mvcc: revisions and compactions of kvstore.go (restore), the hash of hash.go (kvHasher) and
// kvstore.go (hashByRev).
package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"math"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
)

// KeySpace describes the key space of a database.
type KeySpace struct {
	Revision   int64 // the newest
	Compacted  int64 // the revision of the last compaction; -1: there was none
	Keys       int64 // number of keys
	Kubernetes bool  // some keys are below /registry/
	// Hash is the HashKV at the revision that Read got. It equals a member's, unless the database contains revisions that a compaction
	// should have removed. So a Hash that equals a member's is a proof, and one that differs is none of the contrary.
	Hash uint32
}

// ErrUnfinished means that a compaction was interrupted: a server finishes it when it starts.
var ErrUnfinished = errors.New("a compaction is unfinished")

// Read reads the key space, and computes its hash at a revision. It returns ErrUnfinished if a compaction was interrupted, and another error
// if the database is no etcd's, or a key or value is malformed.
func Read(tx *bolt.Tx, at int64) (KeySpace, error) {
	keys, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
	if keys == nil || meta == nil {
		return KeySpace{}, errors.New("the key or meta bucket is missing")
	}
	finished, err := compaction(meta, schema.FinishedCompactKeyName)
	if err != nil {
		return KeySpace{}, err
	}
	scheduled, err := compaction(meta, schema.ScheduledCompactKeyName)
	switch {
	case err != nil:
		return KeySpace{}, err
	case scheduled > finished:
		return KeySpace{}, ErrUnfinished
	}
	p := newPass(finished, at)
	err = p.findChanged(keys.Cursor())
	if err == nil {
		err = p.read(keys.Cursor())
	}
	return p.found(), err
}

// compaction returns the revision of a compaction that the meta bucket names; -1 if it names none.
func compaction(meta *bolt.Bucket, name []byte) (int64, error) {
	value := meta.Get(name)
	if value == nil {
		return -1, nil
	}
	at, err := parsePosition(value)
	return at.main, err
}

// pass is one pass over the key bucket.
type pass struct {
	compacted, at int64
	// changed contains the hashes of the keys that were changed after compacted, up to at: of these keys the server does not hash older
	// revisions. Keys with equal hashes would make Hash differ, as it may.
	changed map[uint64]struct{}
	seed    maphash.Seed

	revision       int64
	keys, registry int64 // numbers of keys
	keysAt         int64 // at the revision at
	// hash is that of the entries that a server hashes, all that of all up to at. They are equal until they diverge.
	hash, all uint32
	diverged  bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newPass(compacted, at int64) *pass {
	return &pass{
		compacted: compacted, at: at, changed: map[uint64]struct{}{}, seed: maphash.MakeSeed(), revision: max(compacted, 1),
		hash: crc32.Checksum(schema.Key.Name(), castagnoli),
	}
}

func (p *pass) found() KeySpace {
	k := KeySpace{Revision: p.revision, Compacted: p.compacted, Keys: p.keys, Kubernetes: p.registry > 0, Hash: p.hash}
	if p.keysAt == 0 && p.diverged { // a server hashes everything if no key exists
		k.Hash = p.all
	}
	return k
}

// findChanged sets changed.
func (p *pass) findChanged(c *bolt.Cursor) error {
	if p.compacted < 0 {
		return nil
	}
	after := mvcc.RevToBytes(mvcc.Revision{Main: p.compacted + 1}, mvcc.NewRevBytes())
	for k, v := c.Seek(after); k != nil; k, v = c.Next() {
		at, err := parsePosition(k)
		if err != nil || at.main > p.at {
			return err
		}
		one, err := parseEntry(v)
		if err != nil {
			return fmt.Errorf("revision %d: %w", at.main, err)
		}
		p.changed[maphash.Bytes(p.seed, one.key)] = struct{}{}
	}
	return nil
}

// read reads all entries.
func (p *pass) read(c *bolt.Cursor) error {
	for k, v := c.First(); k != nil; k, v = c.Next() {
		at, err := parsePosition(k)
		if err != nil {
			return err
		}
		one, err := parseEntry(v)
		if err != nil {
			return fmt.Errorf("revision %d: %w", at.main, err)
		}
		p.revision = max(p.revision, at.main)
		p.count(at, one)
		if at.main <= p.at && !(at.tombstone && at.main == p.compacted) {
			p.add(k, v, p.isHashed(at, one))
		}
	}
	return nil
}

// add adds an entry to all and, if it is hashed, to hash.
func (p *pass) add(k, v []byte, hashed bool) {
	switch {
	case !hashed && !p.diverged:
		p.all, p.diverged = p.hash, true
	case hashed:
		p.hash = crc32.Update(crc32.Update(p.hash, castagnoli, k), castagnoli, v)
	}
	if p.diverged {
		p.all = crc32.Update(crc32.Update(p.all, castagnoli, k), castagnoli, v)
	}
}

var registry = []byte("/registry/")

// count counts a key when it is created or deleted. Of each key that existed at the compaction one older entry is left. The empty key is none:
// a restore that raised the revision has written it (etcdutl/snapshot, modifyLatestRevision).
func (p *pass) count(at position, one entry) {
	var by int64
	switch {
	case len(one.key) == 0:
	case at.tombstone && at.main > p.compacted:
		by = -1
	case !at.tombstone && (at.main <= p.compacted || one.version == 1):
		by = 1
	}
	p.keys += by
	if at.main <= p.at {
		p.keysAt += by
	}
	if bytes.HasPrefix(one.key, registry) {
		p.registry += by
	}
}

// isHashed reports whether a server hashes an entry up to p.at if any key exists there.
func (p *pass) isHashed(at position, one entry) bool {
	if at.main > p.compacted {
		return true
	}
	_, changed := p.changed[maphash.Bytes(p.seed, one.key)]
	return !at.tombstone && !changed
}

// position is a parsed key of the key bucket.
type position struct {
	main      int64
	tombstone bool
}

// plainPosition is the length of the key of an entry that is no tombstone: two numbers of eight bytes, with a '_' between them.
const plainPosition = 17

func parsePosition(key []byte) (position, error) {
	marked := len(key) == plainPosition+1
	if len(key) != plainPosition && !marked || key[8] != '_' || key[0] > math.MaxInt8 || key[9] > math.MaxInt8 {
		return position{}, fmt.Errorf("%x is no revision", key)
	}
	return position{mvcc.BytesToRev(key).Main, mvcc.IsTombstone(key)}, nil
}

// entry is a part of a value of the key bucket, an mvccpb.KeyValue.
type entry struct {
	key     []byte
	version int64
}

// Fields of mvccpb.KeyValue (api/mvccpb/kv.proto).
const (
	fieldKey     = 1
	fieldVersion = 4
)

// parseEntry parses the whole value, although it returns only a part.
func parseEntry(value []byte) (e entry, err error) {
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return e, fmt.Errorf("its value is malformed: %w", protowire.ParseError(n))
		}
		value = value[n:]
		switch {
		case field == fieldKey && kind == protowire.BytesType:
			e.key, n = protowire.ConsumeBytes(value)
		case field == fieldVersion && kind == protowire.VarintType:
			var version uint64
			version, n = protowire.ConsumeVarint(value)
			e.version = int64(version)
		default:
			n = protowire.ConsumeFieldValue(field, kind, value)
		}
		if n < 0 {
			return e, fmt.Errorf("its value is malformed: %w", protowire.ParseError(n))
		}
		value = value[n:]
	}
	return e, nil
}
