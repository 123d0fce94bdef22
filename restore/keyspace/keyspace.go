// Package keyspace reads the key space of a database from its bucket, in the order of the revisions, without the index that a server builds:
// for millions of small keys that index takes most of the time and memory of a restore.
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
	"slices"

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
	// Hash is the HashKV at the revision that Read got. One that equals a member's proves the key space. One that differs proves nothing: the
	// database may contain revisions that a compaction should have removed, or two keys may have the same hash in a pass.
	Hash uint32
}

// ErrUnfinished means that a compaction was running when the database was copied, or was interrupted: a server finishes it when it starts.
var ErrUnfinished = errors.New("a compaction is unfinished")

// Read reads the key space and computes its hash at a revision. It returns ErrUnfinished if a compaction is unfinished. It returns another
// error if the database does not come from etcd, or contains something that a server may refuse or skip: a malformed entry, a duplicate
// revision, or a tombstone that the compaction should have removed.
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

// pass is one pass over the key bucket. It identifies a key by a hash with a random seed.
type pass struct {
	compacted, at int64
	seed          maphash.Seed
	// changed contains the keys that were changed after compacted and no later than at, or deleted exactly at compacted. The server does not
	// hash their revisions up to compacted.
	changed map[uint64]struct{}

	previous []byte // the revision of the previous entry
	revision int64
	history  history // of all entries
	before   history // of the entries up to at; nil: no entry is later
	empty    bool    // the empty key exists: a restore that raised the revision has written it (etcdutl/snapshot, modifyLatestRevision)
	// hash covers the entries that a server hashes, all covers every entry up to at. They are equal until they diverge.
	hash, all uint32
	diverged  bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newPass(compacted, at int64) *pass {
	return &pass{
		compacted: compacted, at: at, seed: maphash.MakeSeed(), changed: map[uint64]struct{}{}, revision: max(compacted, 1),
		history: make(history, parts), hash: crc32.Checksum(schema.Key.Name(), castagnoli),
	}
}

func (p *pass) found() KeySpace {
	live := p.history.live()
	k := KeySpace{Revision: p.revision, Compacted: p.compacted, Keys: live.keys, Kubernetes: live.registry > 0, Hash: p.hash}
	if p.empty {
		k.Keys--
	}
	if p.diverged && p.isEmptyAt(live) { // a server hashes everything if no key exists
		k.Hash = p.all
	}
	return k
}

// isEmptyAt reports whether no key exists at the revision at. live is the count after all entries.
func (p *pass) isEmptyAt(live count) bool {
	if p.before != nil {
		live = p.before.live()
	}
	return live.keys == 0
}

// findChanged sets changed.
func (p *pass) findChanged(c *bolt.Cursor) error {
	if p.compacted < 0 {
		return nil
	}
	from := mvcc.RevToBytes(mvcc.Revision{Main: p.compacted}, mvcc.NewRevBytes())
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		at, one, err := parse(k, v)
		if err != nil || at.main > p.at {
			return err
		}
		// A key that is created after the compaction has no older revision, unless it was deleted after the compaction too.
		if at.tombstone || at.main > p.compacted && one.version > 1 {
			p.changed[p.id(one.key)] = struct{}{}
		}
	}
	return nil
}

func (p *pass) id(key []byte) uint64 { return maphash.Bytes(p.seed, key) }

// read reads all entries.
func (p *pass) read(c *bolt.Cursor) error {
	for k, v := c.First(); k != nil; k, v = c.Next() {
		at, one, err := parse(k, v)
		switch {
		case err != nil:
			return err
		case bytes.Equal(k[:plainPosition], p.previous):
			return fmt.Errorf("revision %d occurs twice", at.main)
		case at.tombstone && at.main < p.compacted:
			return fmt.Errorf("revision %d is a deletion before the compaction at revision %d", at.main, p.compacted)
		}
		p.previous = k[:plainPosition] // valid until the end of the transaction
		if at.main > p.at && p.before == nil {
			p.before = slices.Clone(p.history)
		}
		p.revision = max(p.revision, at.main)
		id := p.id(one.key)
		if at.main <= p.at && !(at.tombstone && at.main == p.compacted) {
			p.add(k, v, p.isHashed(at, id))
		}
		p.apply(at, one, id)
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

// isHashed reports whether a server hashes an entry up to p.at if any key exists there.
func (p *pass) isHashed(at position, id uint64) bool {
	if at.main > p.compacted {
		return true
	}
	_, changed := p.changed[id]
	return !changed
}

// apply creates or deletes a key.
func (p *pass) apply(at position, one entry, id uint64) {
	p.history.add(id, at.tombstone, bytes.HasPrefix(one.key, registry))
	if len(one.key) == 0 {
		p.empty = !at.tombstone
	}
}

// parse parses an entry of the key bucket.
func parse(k, v []byte) (at position, one entry, err error) {
	at, err = parsePosition(k)
	if err != nil {
		return at, one, err
	}
	if !at.isLoaded() {
		return at, one, fmt.Errorf("%x is not a revision that a server loads", k)
	}
	one, err = parseEntry(v)
	if err != nil {
		return at, one, fmt.Errorf("revision %d: %w", at.main, err)
	}
	return at, one, nil
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
		return position{}, fmt.Errorf("%x is not a revision", key)
	}
	return position{mvcc.BytesToRev(key).Main, mvcc.IsTombstone(key)}, nil
}

// isLoaded reports whether a server loads such a revision.
func (p position) isLoaded() bool { return p.main > 0 && p.main < math.MaxInt64 }

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
		if !field.IsValid() {
			return e, fmt.Errorf("its value is malformed: there is no field %d", field)
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
