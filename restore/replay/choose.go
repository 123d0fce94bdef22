package replay

import (
	"errors"
	"time"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

// openKeys opens the key space: with an index of its own if possible, else with etcd's store.
func (m *member) openKeys() {
	err := m.useIndex()
	if errors.Is(err, keyspace.ErrUnfinished) { // etcd's store finishes it
		m.openStore()
		_, m.resumed = m.keys.revisions()
		err = m.useIndex()
	}
	if err == nil {
		return
	}
	m.onlyStore = true
	if m.keys == nil {
		m.openStore()
	}
}

// fewest is the lowest number of requests in a row that an index must be able to serve before it replaces etcd's store.
const fewest = 500

// chooseKeys is called after each request that an index could serve, and chooses what serves the next one. Opening an index or etcd's store
// takes time in proportion to the key space, so etcd's store stays for at least as many requests.
func (m *member) chooseKeys() {
	if m.indexed != nil {
		if m.indexed.Unusual() != nil {
			m.useStore()
		}
		return
	}
	m.direct++
	if m.direct > max(m.size, fewest) && !m.onlyStore {
		m.onlyStore = m.useIndex() != nil
	}
}

// useStore makes etcd's store serve the next request, and all others than direct ones.
func (m *member) useStore() {
	m.direct = 0
	if m.indexed != nil {
		m.size, m.onlyStore = m.indexed.Size(), m.indexed.Unusual() != nil
		m.indexed, m.keys = nil, nil // free before the store is loaded
		m.openStore()
	}
	if m.applier == nil {
		m.openAppliers()
	}
}

// openStore opens etcd's store, and waits until it has finished an interrupted compaction.
func (m *member) openStore() {
	m.store = stored{quiet: m.quiet, KV: mvcc.NewStore(LastWords(), m.be, m.lessor, mvcc.StoreConfig{
		CompactionBatchLimit: compactionBatch, CompactionSleepInterval: time.Nanosecond,
	})}
	m.keys = m.store
	m.store.awaitCompactions()
}

// useIndex replaces etcd's store, if it is open, by an index. It changes nothing if it returns an error.
func (m *member) useIndex() error {
	s, err := openIndexed(m.be, m.lessor)
	if err != nil {
		return err
	}
	m.keys, m.indexed = s, s
	return m.closeStore()
}

// closeStore closes etcd's store, if it is open, with its appliers.
func (m *member) closeStore() error {
	if m.store.KV == nil {
		return nil
	}
	err := m.store.Close()
	m.store.KV, m.applier, m.unalarmed = nil, nil, nil
	return err
}

// noteLostPut makes etcd's store serve all requests from now on if a compaction to a revision, which is about to begin, deletes a put from
// the database that the store still has: that of a key which the same revision deletes first.
func (m *member) noteLostPut(revision int64) {
	if m.indexed != nil { // it notes such a revision itself
		return
	}
	deleted := map[string]bool{}
	keys, values := m.made(revision)
	for i, key := range keys {
		one, err := keyspace.Parse(key, values[i])
		if err != nil || deleted[string(one.Key)] {
			m.onlyStore = true
			return
		}
		if one.Tombstone {
			deleted[string(one.Key)] = true
		}
	}
}
