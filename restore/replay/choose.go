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
		err = m.useIndex()
	}
	if err != nil {
		m.onlyStore = true
		m.openStore()
	}
}

// scansPerKey limits how often deletes of ranges may look at all keys. That often takes about as long as opening etcd's store, which
// finds a range without a search.
const scansPerKey = 32

// chooseKeys is called after each request that an index could serve, and chooses what serves the next one: the index, unless many requests
// delete a range of keys. Opening either takes time in proportion to the key space, so etcd's store stays at least for as many requests.
func (m *member) chooseKeys(deletesRange bool) {
	if m.indexed != nil {
		if m.indexed.Unusual() != nil || m.indexed.scanned > scansPerKey*m.indexed.Size() {
			m.useStore()
		}
		return
	}
	m.direct++
	if deletesRange {
		m.direct = 0
	}
	if m.direct > m.size && !m.onlyStore {
		m.onlyStore = m.useIndex() != nil
	}
}

// useStore makes etcd's store serve the next request, and all others than direct ones.
func (m *member) useStore() {
	if m.indexed == nil {
		if m.applier == nil {
			m.openAppliers()
		}
		return
	}
	m.size, m.onlyStore = m.indexed.Size(), m.indexed.Unusual() != nil
	m.indexed = nil
	m.openStore()
	m.openAppliers()
}

// openStore opens etcd's store, and waits until it has finished an interrupted compaction.
func (m *member) openStore() {
	m.store = stored{quiet: m.quiet, KV: mvcc.NewStore(LastWords(), m.be, m.lessor, mvcc.StoreConfig{
		CompactionBatchLimit: compactionBatch, CompactionSleepInterval: time.Nanosecond,
	})}
	m.keys = m.store
	m.direct = 0
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
