// Package keyspace reads the key space of a database from its bucket, in the order of the revisions, without the index that a server builds:
// for millions of small keys that index takes most of the time and memory of a restore.
//
// The rules are those of etcd's server/storage/mvcc: revisions and compactions of kvstore.go (restore), the hash of hash.go (kvHasher) and
// kvstore.go (hashByRev).
package keyspace

import (
	"bytes"
	"context"
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

// Summary describes the key space of a database.
type Summary struct {
	Revision   int64 // the newest
	Compacted  int64 // the revision of the last compaction; -1: there was none
	Keys       int64 // number of keys
	Kubernetes bool  // some keys are below /registry/
	// Hash is the HashKV at the revision passed to Read. One that equals a member's proves the key space. One that differs proves nothing: the
	// database may contain revisions that a compaction should have removed, or two keys may have the same hash in a pass.
	Hash uint32
}

// ErrUnfinished means that a compaction was running when the database was copied, or was interrupted: a server finishes it when it starts.
var ErrUnfinished = errors.New("a compaction is unfinished")

// Read reads the key space and computes its hash at a revision. It returns ErrUnfinished if a compaction is unfinished. It returns another
// error if the database does not come from etcd, or contains something that a server may refuse or skip: a malformed entry, a duplicate
// revision, or a tombstone that the compaction should have removed. It ends early if ctx does.
func Read(ctx context.Context, tx *bolt.Tx, at int64) (Summary, error) {
	keys, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
	if keys == nil || meta == nil {
		return Summary{}, errors.New("the key or meta bucket is missing")
	}
	compacted, err := Compacted(meta.Get)
	if err != nil {
		return Summary{}, err
	}
	found, err := read(inBucket(ctx, keys), compacted, at)
	return found, errors.Join(err, ctx.Err())
}

// ReadOpen does what Read does in a database that a server's backend has open, including uncommitted changes. The caller
// holds the lock of tx. compacted is that of Compacted.
func ReadOpen(tx backend.UnsafeReader, compacted, at int64) (Summary, error) {
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
	at, err := parseBucketKey(value)
	return at.Main, err
}

// entries yields the entries of the key bucket whose key is from or later; nil: all.
type entries func(from []byte) iter.Seq2[[]byte, []byte]

// inBucket yields no more soon after ctx ends.
func inBucket(ctx context.Context, keys *bolt.Bucket) entries {
	return func(from []byte) iter.Seq2[[]byte, []byte] {
		return func(yield func(k, v []byte) bool) {
			c, n := keys.Cursor(), 0
			for k, v := c.Seek(from); k != nil && yield(k, v); k, v = c.Next() {
				n++
				if n%atOnce == 0 && ctx.Err() != nil {
					return
				}
			}
		}
	}
}

// atOnce is the number of entries that are read from a backend at a time, and between two looks at a context.
const atOnce = 10_000

func inBackend(tx backend.UnsafeReader) entries {
	end := bytes.Repeat([]byte{math.MaxUint8}, bucketKeySize+1)
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

func read(keys entries, compacted, at int64) (Summary, error) {
	r := newReader(compacted, at)
	err := r.findChanged(keys)
	if err == nil {
		err = r.read(keys)
	}
	return r.found(), err
}

// reader reads the key bucket. It identifies a key by a hash with a random seed.
type reader struct {
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
	// hash covers the entries that a server hashes, all covers every entry up to at but deletions exactly at compacted. They are equal until
	// they diverge.
	hash, all uint32
	diverged  bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newReader(compacted, at int64) *reader {
	return &reader{
		compacted: compacted, at: at, seed: maphash.MakeSeed(), changed: map[uint64]struct{}{}, revision: max(compacted, 1),
		history: make(history, parts), hash: crc32.Checksum(schema.Key.Name(), castagnoli),
	}
}

func (r *reader) found() Summary {
	live := r.history.live()
	k := Summary{Revision: r.revision, Compacted: r.compacted, Keys: live.keys, Kubernetes: live.registry > 0, Hash: r.hash}
	if r.empty {
		k.Keys--
	}
	if r.diverged && r.isEmptyAt(live) { // a server hashes everything if no key exists
		k.Hash = r.all
	}
	return k
}

// isEmptyAt reports whether no key exists at the revision at. live is the count after all entries.
func (r *reader) isEmptyAt(live count) bool {
	if r.before != nil {
		live = r.before.live()
	}
	return live.keys == 0
}

// findChanged sets changed.
func (r *reader) findChanged(keys entries) error {
	if r.compacted < 0 {
		return nil
	}
	for k, v := range keys(mvcc.RevToBytes(mvcc.Revision{Main: r.compacted}, mvcc.NewRevBytes())) {
		one, err := Parse(k, v)
		if err != nil || one.Main > r.at {
			return err
		}
		// A key that is created after the compaction has no older revision, unless it was deleted after the compaction too.
		if one.Tombstone || one.Main > r.compacted && one.Version > 1 {
			r.changed[r.id(one.Key)] = struct{}{}
		}
	}
	return nil
}

func (r *reader) id(key []byte) uint64 { return maphash.Bytes(r.seed, key) }

// read reads all entries.
func (r *reader) read(keys entries) error {
	for k, v := range keys(nil) {
		one, err := Parse(k, v)
		switch {
		case err != nil:
			return err
		case bytes.Equal(k[:bucketKeySize], r.previous):
			return fmt.Errorf("revision %d occurs twice", one.Main)
		case one.Tombstone && one.Main < r.compacted:
			return fmt.Errorf("revision %d is a deletion before the compaction at revision %d", one.Main, r.compacted)
		}
		r.previous = k[:bucketKeySize] // valid until the end of the transaction
		if one.Main > r.at && r.before == nil {
			r.before = slices.Clone(r.history)
		}
		r.revision = max(r.revision, one.Main)
		id := r.id(one.Key)
		if one.Main <= r.at && !(one.Tombstone && one.Main == r.compacted) {
			r.add(k, v, r.isHashed(one.Main, id))
		}
		r.apply(one, id)
	}
	return nil
}

// add adds an entry to all and, if it is hashed, to hash.
func (r *reader) add(k, v []byte, hashed bool) {
	switch {
	case !hashed && !r.diverged:
		r.all, r.diverged = r.hash, true
	case hashed:
		r.hash = crc32.Update(crc32.Update(r.hash, castagnoli, k), castagnoli, v)
	}
	if r.diverged {
		r.all = crc32.Update(crc32.Update(r.all, castagnoli, k), castagnoli, v)
	}
}

// isHashed reports whether a server hashes an entry up to r.at if any key exists there.
func (r *reader) isHashed(revision int64, id uint64) bool {
	if revision > r.compacted {
		return true
	}
	_, changed := r.changed[id]
	return !changed
}

// apply creates or deletes a key.
func (r *reader) apply(one Entry, id uint64) {
	r.history.add(id, one.Tombstone, bytes.HasPrefix(one.Key, registry))
	if len(one.Key) == 0 {
		r.empty = !one.Tombstone
	}
}
