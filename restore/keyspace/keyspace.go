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
	"iter"
	"math"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
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
	compacted, err := Compacted(meta.Get)
	if err != nil {
		return KeySpace{}, err
	}
	return read(inBucket(keys), compacted, at)
}

// ReadOpen does what Read does in a database that a server's backend has open, with all changes that are not committed yet. The caller
// holds the lock of tx. compacted is that of Compacted.
func ReadOpen(tx backend.UnsafeReader, compacted, at int64) (KeySpace, error) {
	return read(inBackend(tx), compacted, at)
}

// Compacted returns the revision of the last compaction; -1 if there was none. get returns a value of the meta bucket; nil: there is none.
// The error is ErrUnfinished if a compaction is unfinished.
func Compacted(get func(name []byte) []byte) (int64, error) {
	finished, err := compaction(get(schema.FinishedCompactKeyName))
	if err != nil {
		return 0, err
	}
	scheduled, err := compaction(get(schema.ScheduledCompactKeyName))
	switch {
	case err != nil:
		return 0, err
	case scheduled > finished:
		return 0, ErrUnfinished
	}
	return finished, nil
}

// compaction parses the revision of a compaction; it returns -1 for nil.
func compaction(value []byte) (int64, error) {
	if value == nil {
		return -1, nil
	}
	at, err := parsePosition(value)
	return at.Main, err
}

// entries yields the entries of the key bucket from the key from on; nil: all.
type entries func(from []byte) iter.Seq2[[]byte, []byte]

func inBucket(keys *bolt.Bucket) entries {
	return func(from []byte) iter.Seq2[[]byte, []byte] {
		return func(yield func(k, v []byte) bool) {
			c := keys.Cursor()
			for k, v := c.Seek(from); k != nil && yield(k, v); k, v = c.Next() {
			}
		}
	}
}

// atOnce is the number of entries that are read from a backend at a time.
const atOnce = 10_000

func inBackend(tx backend.UnsafeReader) entries {
	end := bytes.Repeat([]byte{math.MaxUint8}, plainPosition+1)
	return func(from []byte) iter.Seq2[[]byte, []byte] {
		return func(yield func(k, v []byte) bool) {
			next := from
			for {
				keys, values := tx.UnsafeRange(schema.Key, next, end, atOnce)
				for i := range keys {
					if !yield(keys[i], values[i]) {
						return
					}
				}
				if len(keys) < atOnce {
					return
				}
				next = append(slices.Clone(keys[len(keys)-1]), 0) // the next one in the order of bytes
			}
		}
	}
}

func read(keys entries, compacted, at int64) (KeySpace, error) {
	p := newPass(compacted, at)
	err := p.findChanged(keys)
	if err == nil {
		err = p.read(keys)
	}
	return p.found(), err
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
func (p *pass) findChanged(keys entries) error {
	if p.compacted < 0 {
		return nil
	}
	for k, v := range keys(mvcc.RevToBytes(mvcc.Revision{Main: p.compacted}, mvcc.NewRevBytes())) {
		one, err := Parse(k, v)
		if err != nil || one.Main > p.at {
			return err
		}
		// A key that is created after the compaction has no older revision, unless it was deleted after the compaction too.
		if one.Tombstone || one.Main > p.compacted && one.Version > 1 {
			p.changed[p.id(one.Key)] = struct{}{}
		}
	}
	return nil
}

func (p *pass) id(key []byte) uint64 { return maphash.Bytes(p.seed, key) }

// read reads all entries.
func (p *pass) read(keys entries) error {
	for k, v := range keys(nil) {
		one, err := Parse(k, v)
		switch {
		case err != nil:
			return err
		case bytes.Equal(k[:plainPosition], p.previous):
			return fmt.Errorf("revision %d occurs twice", one.Main)
		case one.Tombstone && one.Main < p.compacted:
			return fmt.Errorf("revision %d is a deletion before the compaction at revision %d", one.Main, p.compacted)
		}
		p.previous = k[:plainPosition] // valid until the end of the transaction
		if one.Main > p.at && p.before == nil {
			p.before = slices.Clone(p.history)
		}
		p.revision = max(p.revision, one.Main)
		id := p.id(one.Key)
		if one.Main <= p.at && !(one.Tombstone && one.Main == p.compacted) {
			p.add(k, v, p.isHashed(one.Main, id))
		}
		p.apply(one, id)
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
func (p *pass) isHashed(revision int64, id uint64) bool {
	if revision > p.compacted {
		return true
	}
	_, changed := p.changed[id]
	return !changed
}

// apply creates or deletes a key.
func (p *pass) apply(one Entry, id uint64) {
	p.history.add(id, one.Tombstone, bytes.HasPrefix(one.Key, registry))
	if len(one.Key) == 0 {
		p.empty = !one.Tombstone
	}
}
