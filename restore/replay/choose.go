package replay

import (
	"errors"
	"time"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcd-dr/etcd-dr/restore/keyspace"
)

// openKeys opens the key space: with an index of its own if possible, else with etcd's store.
func (m *member) openKeys() {
	createBuckets(m.be)
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

// minReopenAt is the minimum of reopenAt.
const minReopenAt = 500

// chooseKeys is called after each direct request, and chooses what serves the next one. Opening an index or etcd's store takes time in
// proportion to the key space, so etcd's store stays until it has served as many direct requests as the last index had entries.
func (m *member) chooseKeys() {
	if m.indexed != nil {
		if m.indexed.index.Unusual() != nil {
			m.useStore()
		}
		return
	}
	m.waits++
	if m.waits > m.reopenAt && !m.onlyStore {
		m.onlyStore = m.useIndex() != nil
	}
}

// useStore makes etcd's store serve the next request, with its appliers open.
func (m *member) useStore() {
	m.waits = 0
	if m.indexed != nil {
		m.reopenAt, m.onlyStore = max(m.indexed.index.Size(), minReopenAt), m.indexed.index.Unusual() != nil
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

// useIndex opens an index, and closes etcd's store if that is open. If it returns an error of openIndexed, the store stays in use.
func (m *member) useIndex() error {
	s, err := openIndexed(m.be, m.lessor)
	if err != nil {
		return err
	}
	err = m.closeStore()
	m.keys, m.indexed = s, s
	return err
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

// checkCompaction sets onlyStore if a revision, to which etcd's store is about to compact, deletes a key and puts it again: the compaction
// then deletes the put from the database, but not from the store's index.
func (m *member) checkCompaction(revision int64) {
	if m.indexed != nil { // it notices such a revision itself
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
