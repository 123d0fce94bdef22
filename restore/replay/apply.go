package replay

import (
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/backup/wal"
)

// apply applies one request. A request that the member refused is refused here too.
func (m *member) apply(at place, r *pb.InternalRaftRequest) {
	m.consistent.SetConsistentApplyingIndex(at.position, at.term)
	m.dispatch(r)
	if m.consistent.ConsistentIndex() < at.position { // the request changed nothing
		m.consistent.SetConsistentIndex(at.position, at.term)
	}
}

// dispatch applies r by the shortest path that has the effect of etcd's applier under the rules of the server version.
func (m *member) dispatch(r *pb.InternalRaftRequest) {
	switch {
	case wal.ChangesNothing(r) || r.Alarm != nil && r.Alarm.Action == pb.AlarmRequest_GET:
		return
	case !m.alarmed && !m.auth.IsAuthEnabled() && direct(r) && !m.compactsToNewest(r):
		m.applyDirectly(r)
		m.chooseKeys()
		return
	}
	m.useStore()
	if r.Compaction != nil {
		m.checkCompaction(r.Compaction.Revision)
	}
	if m.oldRulesRefuse(r) {
		return
	}
	result := m.submit(r)
	if r.Txn != nil && m.rules.readsUnchecked && refusesRead(result.Err) {
		m.disputed, _ = m.consistent.ConsistentApplyingIndex()
	}
	if r.Compaction != nil {
		m.finish(r.Compaction.Revision, result)
	}
	if r.Alarm != nil {
		m.alarmed = len(m.alarms.Get(pb.AlarmType_NONE)) > 0
	}
}

// compactsToNewest reports whether r compacts to the newest revision. A mark after such a compaction can contain the hash from before it,
// since members remember that one, as etcd's store does.
func (m *member) compactsToNewest(r *pb.InternalRaftRequest) bool {
	if r.Compaction == nil {
		return false
	}
	newest, _ := m.keys.revisions()
	return r.Compaction.Revision == newest
}

// refusesRead reports whether err refuses a read at a revision.
func refusesRead(err error) bool {
	return errors.Is(err, mvcc.ErrCompacted) || errors.Is(err, mvcc.ErrFutureRev)
}

// submit passes a request to etcd's applier as a member does when no client waits for the response.
func (m *member) submit(r *pb.InternalRaftRequest) *apply.Result {
	applier := m.applier
	if r.Txn != nil && m.rules.nestedTxnFree && m.onlyNoSpaceAlarm() && !hasTopLevelPut(r.Txn) {
		applier = m.unalarmed
	}
	return applier.Apply(&apply.InternalRaftRequestWrapper{
		InternalRaftRequest: r, SkipRangeExecution: r.Txn != nil,
	}, membership.ApplyBoth)
}

// onlyNoSpaceAlarm reports whether NOSPACE is the only alarm that is raised.
func (m *member) onlyNoSpaceAlarm() bool {
	return m.alarmed && len(m.alarms.Get(pb.AlarmType_CORRUPT)) == 0
}

// hasTopLevelPut reports whether t contains a put, not counting transactions nested in t.
func hasTopLevelPut(t *pb.TxnRequest) bool {
	isPut := func(op *pb.RequestOp) bool { return op.GetRequestPut() != nil }
	return slices.ContainsFunc(t.Success, isPut) || slices.ContainsFunc(t.Failure, isPut)
}

// finish waits until a compaction by etcd's applier has deleted the revisions, so that every run leaves the same bytes for the next
// request.
func (m *member) finish(revision int64, compaction *apply.Result) {
	if compaction.Physc != nil {
		<-compaction.Physc
	}
	m.compacted(revision, compaction.Err)
}

// compact compacts the key space. The error is mvcc.ErrCompacted or mvcc.ErrFutureRev.
func (m *member) compact(revision int64) error {
	m.checkCompaction(revision)
	err := m.keys.compact(revision)
	m.compacted(revision, err)
	return err
}

// compacted does what the server version does after a compaction that returned err.
func (m *member) compacted(revision int64, err error) {
	if err == nil && m.rules.dropsTombstones {
		m.dropTombstones(revision)
	}
}

// dropTombstones deletes the tombstones of the compacted revision, as servers before 3.4.34 and 3.5.16 did. Hashes do not
// include them.
func (m *member) dropTombstones(revision int64) {
	from := mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
	to := mvcc.RevToBytes(mvcc.Revision{Main: revision + 1}, mvcc.NewRevBytes())
	tx := m.be.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	keys, _ := tx.UnsafeRange(schema.Key, from, to, 0)
	for _, key := range keys {
		if mvcc.IsTombstone(key) {
			tx.UnsafeDelete(schema.Key, key)
		}
	}
}

// setVersion switches to the rules of the server version that applied the following requests. At the start that version also finishes the
// compaction that was interrupted.
func (m *member) setVersion(version string) error {
	next, err := rulesOf(version)
	if err != nil {
		return fmt.Errorf("the log's server version: %w", err)
	}
	m.rules, m.auth.rules = next, next
	if m.resumed > 0 && m.rules.dropsTombstones {
		m.dropTombstones(m.resumed)
	}
	m.resumed = 0
	return nil
}
