package replay

import (
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
)

// direct reports whether r can be applied without reading a stored value. Most logs consist of little else: an API server of
// Kubernetes writes all objects by such transactions.
func direct(r *pb.InternalRaftRequest) bool {
	switch {
	case r.Put != nil:
		return directPut(r.Put)
	case r.Txn != nil:
		return directTxn(r.Txn)
	}
	return r.DeleteRange != nil || r.LeaseGrant != nil || r.LeaseRevoke != nil || r.LeaseCheckpoint != nil || r.Compaction != nil
}

// directPut reports whether p keeps no part of the existing pair.
func directPut(p *pb.PutRequest) bool { return !p.IgnoreValue && !p.IgnoreLease }

// directTxn reports whether all parts of t are direct.
func directTxn(t *pb.TxnRequest) bool {
	otherOp := func(op *pb.RequestOp) bool { return !directOp(op) }
	otherCompare := func(c *pb.Compare) bool { return !directCompare(c) }
	return !slices.ContainsFunc(t.Compare, otherCompare) &&
		!slices.ContainsFunc(t.Success, otherOp) && !slices.ContainsFunc(t.Failure, otherOp)
}

// directCompare reports whether c compares a revision or the version of a single key: the index in memory holds these. The empty key
// is excluded: when etcdutl raises the revision of a database, it stores an empty record. The index lists it as the empty key at
// the raised revision, but a read returns zeros.
func directCompare(c *pb.Compare) bool {
	indexed := c.Target == pb.Compare_MOD || c.Target == pb.Compare_CREATE || c.Target == pb.Compare_VERSION
	return indexed && len(c.Key) > 0 && len(c.RangeEnd) == 0
}

// directOp reports whether op is a direct put, a delete, or a read. A read changes nothing, but a read at a given revision can
// make etcd refuse the transaction, so it is not direct.
func directOp(op *pb.RequestOp) bool {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return directPut(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return true
	case *pb.RequestOp_RequestRange:
		return op.RequestRange.Revision == 0
	}
	return false
}

// applyDirectly applies a direct request as etcd's applier does if authentication is disabled and no alarm is raised
// (etcdserver/txn, etcdserver/apply/backend.go). It omits the traces and the reads of values, which take the applier longer than the
// rest.
func (m *member) applyDirectly(r *pb.InternalRaftRequest) {
	switch {
	case r.LeaseGrant != nil:
		_, _ = m.lessor.Grant(lease.LeaseID(r.LeaseGrant.ID), r.LeaseGrant.TTL)
	case r.LeaseRevoke != nil:
		_ = m.lessor.Revoke(lease.LeaseID(r.LeaseRevoke.ID))
	case r.LeaseCheckpoint != nil:
		m.checkpoint(r.LeaseCheckpoint)
	case r.Compaction != nil:
		_ = m.compact(r.Compaction.Revision)
	default:
		m.writeDirectly(r)
	}
}

// checkpoint stores how long leases have left, up to the first lease for which the lessor returns an error.
func (m *member) checkpoint(r *pb.LeaseCheckpointRequest) {
	for _, c := range r.Checkpoints {
		err := m.lessor.Checkpoint(lease.LeaseID(c.ID), c.Remaining_TTL)
		if err != nil {
			return
		}
	}
}

// writeDirectly applies a put, a delete or a transaction. It writes nothing if a put names a lease that does not exist.
func (m *member) writeDirectly(r *pb.InternalRaftRequest) {
	ops := opsOf(r)
	if r.Txn != nil {
		ops = m.branch(r.Txn)
	}
	if slices.ContainsFunc(ops, writes) && m.haveLeases(ops) {
		m.write(ops)
	}
}

// write writes the puts and deletes in ops as one revision.
func (m *member) write(ops []*pb.RequestOp) {
	m.limitScans(ops)
	tx := m.keys.begin()
	for _, op := range ops {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			tx.Put(op.RequestPut.Key, op.RequestPut.Value, lease.LeaseID(op.RequestPut.Lease))
		case *pb.RequestOp_RequestDeleteRange:
			tx.DeleteRange(op.RequestDeleteRange.Key, endOf(op.RequestDeleteRange))
		}
	}
	tx.End() // not deferred: after a panic it could commit a part of ops
}

// limitScans opens etcd's store before deletes of ranges exceed the limit of scans. An index returns only after requests without any.
func (m *member) limitScans(ops []*pb.RequestOp) {
	ranges := 0
	for _, op := range ops {
		d := op.GetRequestDeleteRange()
		if d != nil && endOf(d) != nil {
			ranges++
		}
	}
	if ranges > 0 {
		m.waits = 0
	}
	if m.indexed != nil && !m.indexed.canScan(ranges) {
		m.useStore()
	}
}

// branch returns the operations of t that its comparisons select.
func (m *member) branch(t *pb.TxnRequest) []*pb.RequestOp {
	if len(t.Compare) == 0 {
		return t.Success
	}
	for _, c := range t.Compare {
		if !m.holds(c) {
			return t.Failure
		}
	}
	return t.Success
}

func writes(op *pb.RequestOp) bool {
	return op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil
}

// haveLeases reports whether the leases of all puts in ops exist.
func (m *member) haveLeases(ops []*pb.RequestOp) bool {
	for _, op := range ops {
		id := lease.LeaseID(op.GetRequestPut().GetLease())
		if id != lease.NoLease && m.lessor.Lookup(id) == nil {
			return false
		}
	}
	return true
}

// endOf returns the end of the range to delete as mvcc expects it: empty, but not nil, if the range extends to the last key.
func endOf(d *pb.DeleteRangeRequest) []byte {
	if openEnd(d.RangeEnd) {
		return []byte{}
	}
	return d.RangeEnd
}

// holds reports whether the direct comparison c holds (etcdserver/txn, applyCompare). All numbers of a key that does not exist
// are 0.
func (m *member) holds(c *pb.Compare) bool {
	key, _ := m.keys.find(c.Key)
	var order int
	switch c.Target {
	case pb.Compare_CREATE:
		order = cmp.Compare(key.created, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(key.modified, c.GetModRevision())
	default:
		order = cmp.Compare(key.version, c.GetVersion())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	default:
		return order < 0
	}
}
