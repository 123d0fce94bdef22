// Package keyindex holds what the next write to a key depends on: when the key was created, its version, and which of its revisions a
// compaction deletes. A server's index (etcd's server/storage/mvcc, key_index.go) also finds each old revision, and takes several times as
// long and as much memory.
package keyindex

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

// Key is a key that exists, or was deleted at or after the last compaction.
type Key struct {
	Name    string
	Created int64 // the revision that created it
	Version int64 // how often it was put since then

	last keyspace.BucketKey // its newest revision
	kept keyspace.BucketKey // its newest revision up to the last compaction; Main 0: none
	id   int                // the key is numbered[id]
}

// Exists reports whether the key exists. A nil Key does not.
func (k *Key) Exists() bool { return k != nil && k.last.Main > 0 && !k.last.Tombstone }

// Modified returns the revision of the key's last change.
func (k *Key) Modified() int64 { return k.last.Main }

// Index is an index of the keys of a key space.
type Index struct {
	keys       map[string]*Key
	numbered   []*Key // nil: free
	free       []int  // of numbered
	changes    changes
	tombstones []*Key // deleted exactly at compacted: the next compaction deletes their kept revision
	newest     int64
	compacted  int64
	previous   keyspace.BucketKey // the last one that was loaded
	unusual    error
}

// New returns the index of an empty key space that is compacted to a revision; -1: it was never compacted.
func New(compacted int64) *Index {
	return &Index{keys: map[string]*Key{}, newest: max(compacted, 1), compacted: compacted}
}

// Load adds an entry of the key bucket. Entries must come in the order of the bucket, before any Put or Delete. It returns an
// error for a key space for which an Index could differ from a server's; x must then not be used.
func (x *Index) Load(e keyspace.Entry) error {
	if e.Revision == x.previous.Revision {
		return fmt.Errorf("revision %d occurs twice", e.Main)
	}
	x.previous = e.BucketKey
	k := x.key(e.Key)
	if e.Main > x.compacted {
		return x.loadChange(k, e)
	}
	return x.loadKept(k, e)
}

// loadChange loads an entry after the last compaction.
func (x *Index) loadChange(k *Key, e keyspace.Entry) error {
	if e.Tombstone {
		if !k.Exists() {
			return fmt.Errorf("revision %d deletes a key that does not exist", e.Main)
		}
		x.add(k, e.BucketKey)
		return x.unusual
	}
	x.put(k, e.BucketKey)
	if k.Created != e.Created || k.Version != e.Version {
		return fmt.Errorf("revision %d does not continue the key's last revision", e.Main)
	}
	return x.unusual
}

// loadKept loads an entry that the last compaction kept.
func (x *Index) loadKept(k *Key, e keyspace.Entry) error {
	switch {
	case k.last.Main > 0:
		return fmt.Errorf("revision %d is superseded, but the compaction at revision %d did not delete it", k.last.Main, x.compacted)
	case e.Tombstone && e.Main < x.compacted:
		return fmt.Errorf("revision %d is a deletion before the compaction at revision %d", e.Main, x.compacted)
	case e.Tombstone:
		x.tombstones = append(x.tombstones, k)
	}
	k.Created, k.Version = e.Created, e.Version
	k.last, k.kept = e.BucketKey, e.BucketKey
	return nil
}

// key returns the key of a name, which it adds if necessary.
func (x *Index) key(name []byte) *Key {
	k := x.keys[string(name)]
	if k == nil {
		k = &Key{Name: string(name)}
		x.keys[k.Name] = k
		x.number(k)
	}
	return k
}

func (x *Index) number(k *Key) {
	last := len(x.free) - 1
	if last < 0 {
		k.id = len(x.numbered)
		x.numbered = append(x.numbered, k)
		return
	}
	k.id = x.free[last]
	x.free = x.free[:last]
	x.numbered[k.id] = k
}

// Unusual returns why x could differ from a server's index from now on; nil: it does not.
func (x *Index) Unusual() error { return x.unusual }

// Revisions returns the newest revision and that of the last compaction; -1: there was none.
func (x *Index) Revisions() (newest, compacted int64) { return x.newest, x.compacted }

// Size returns the number of keys, with deleted ones, plus the number of changes since the last compaction.
func (x *Index) Size() int { return len(x.keys) + x.changes.len }

// Len returns the number of keys in x. Some may not exist anymore.
func (x *Index) Len() int { return len(x.keys) }

// Get returns the key of a name; nil: it does not exist.
func (x *Index) Get(name []byte) *Key {
	k := x.keys[string(name)]
	if !k.Exists() {
		return nil
	}
	return k
}

// Keys yields all keys that exist, in no order.
func (x *Index) Keys() iter.Seq[*Key] {
	return func(yield func(*Key) bool) {
		for _, k := range x.keys {
			if k.Exists() && !yield(k) {
				return
			}
		}
	}
}

// Range returns the keys in a range, sorted by name. An empty end means all keys from the first on. It takes O(Len) time.
func (x *Index) Range(first, end []byte) (found []*Key) {
	for k := range x.Keys() {
		if k.Name >= string(first) && (len(end) == 0 || k.Name < string(end)) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// Put notes that a key is put at a revision, which must be the newest. It returns the key, and whether it existed before.
func (x *Index) Put(name []byte, at keyspace.BucketKey) (k *Key, existed bool) {
	k = x.key(name)
	existed = k.Exists()
	x.put(k, at)
	return k, existed
}

func (x *Index) put(k *Key, at keyspace.BucketKey) {
	if !k.Exists() {
		if k.last.Main == at.Main { // a compaction of the server then deletes too much
			x.unusual = fmt.Errorf("revision %d deletes a key and puts it again", at.Main)
		}
		k.Created, k.Version = at.Main, 0
	}
	k.Version++
	x.add(k, at)
}

// Delete notes that an existing key is deleted at a revision, which must be the newest.
func (x *Index) Delete(k *Key, at keyspace.BucketKey) { x.add(k, at) }

func (x *Index) add(k *Key, at keyspace.BucketKey) {
	k.last = at
	x.newest = at.Main
	x.changes.add(change{k.id, at})
}

// Compact compacts to a revision that is newer than the last compaction and not newer than the newest. It calls drop for each entry that
// the compaction deletes: all up to revision but the newest one of each key, and that one too if it is a tombstone before revision.
func (x *Index) Compact(revision int64, drop func(keyspace.BucketKey)) {
	for _, k := range x.tombstones {
		drop(k.kept)
		k.kept = keyspace.BucketKey{}
		x.forget(k)
	}
	x.tombstones = x.tombstones[:0]
	for c := range x.changes.upTo(revision) {
		k := x.numbered[c.key]
		if k.kept.Main > 0 {
			drop(k.kept)
		}
		k.kept = c.at
	}
	x.compacted = revision
	for c := range x.changes.upTo(revision) {
		x.dropTombstone(c, drop)
	}
	x.changes.forget(revision)
}

// dropTombstone drops the change if it is a tombstone that its key keeps. One exactly at the compaction is dropped by the next one.
func (x *Index) dropTombstone(c change, drop func(keyspace.BucketKey)) {
	k := x.numbered[c.key]
	if k.kept != c.at || !c.at.Tombstone {
		return
	}
	if c.at.Main == x.compacted {
		x.tombstones = append(x.tombstones, k)
		return
	}
	drop(k.kept)
	k.kept = keyspace.BucketKey{}
	x.forget(k)
}

// forget removes a key that keeps no revision and has no later one.
func (x *Index) forget(k *Key) {
	if k.last.Tombstone && k.last.Main <= x.compacted {
		delete(x.keys, k.Name)
		x.numbered[k.id] = nil
		x.free = append(x.free, k.id)
	}
}
