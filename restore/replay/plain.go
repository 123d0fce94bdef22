package replay

import (
	"cmp"
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// plain reports whether the effect of r depends only on revisions, versions and leases, but not on values. Most requests of
// most logs are plain, among them all that an API server of Kubernetes makes to write objects.
func plain(r *pb.InternalRaftRequest) bool {
	switch {
	case r.Put != nil:
		return plainPut(r.Put)
	case r.Txn != nil:
		return plainTxn(r.Txn)
	}
	return r.DeleteRange != nil
}

// plainPut reports whether p neither uses nor returns the existing value.
func plainPut(p *pb.PutRequest) bool { return !p.IgnoreValue && !p.IgnoreLease && !p.PrevKv }

// plainTxn reports whether t compares only numbers of single keys, and contains no transaction and no read of an old revision,
// which may be refused.
func plainTxn(t *pb.TxnRequest) bool {
	complicated := func(op *pb.RequestOp) bool { return !plainOp(op) }
	return !slices.ContainsFunc(t.Compare, comparesValues) &&
		!slices.ContainsFunc(t.Success, complicated) && !slices.ContainsFunc(t.Failure, complicated)
}

// comparesValues reports whether c needs more than the numbers of one key that the key space has in memory.
func comparesValues(c *pb.Compare) bool {
	return len(c.RangeEnd) > 0 || c.Target != pb.Compare_MOD && c.Target != pb.Compare_CREATE && c.Target != pb.Compare_VERSION
}

func plainOp(op *pb.RequestOp) bool {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return plainPut(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return true
	case *pb.RequestOp_RequestRange:
		return op.RequestRange.Revision == 0
	}
	return false
}

// applyPlain applies a plain request as the applier does without authentication and alarms (etcdserver/txn), but without its
// traces, metrics and reads, which cost more than the rest.
func (m *member) applyPlain(r *pb.InternalRaftRequest) {
	tx := m.kv.Write(m.quiet)
	defer tx.End()
	switch {
	case r.Put != nil:
		if m.hasLease(r.Put) {
			tx.Put(r.Put.Key, r.Put.Value, lease.LeaseID(r.Put.Lease))
		}
	case r.DeleteRange != nil:
		tx.DeleteRange(r.DeleteRange.Key, endOf(r.DeleteRange))
	default:
		m.applyPlainTxn(tx, r.Txn)
	}
}

// applyPlainTxn writes the operations of t to tx. It writes none of them if a put names a lease that does not exist.
func (m *member) applyPlainTxn(tx mvcc.TxnWrite, t *pb.TxnRequest) {
	ops := t.Success
	if slices.ContainsFunc(t.Compare, func(c *pb.Compare) bool { return !holds(tx, c) }) {
		ops = t.Failure
	}
	for _, op := range ops {
		p := op.GetRequestPut()
		if p != nil && !m.hasLease(p) {
			return
		}
	}
	for _, op := range ops {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			tx.Put(op.RequestPut.Key, op.RequestPut.Value, lease.LeaseID(op.RequestPut.Lease))
		case *pb.RequestOp_RequestDeleteRange:
			tx.DeleteRange(op.RequestDeleteRange.Key, endOf(op.RequestDeleteRange))
		}
	}
}

// hasLease reports whether the lease of p exists, if p has one.
func (m *member) hasLease(p *pb.PutRequest) bool {
	id := lease.LeaseID(p.Lease)
	return id == lease.NoLease || m.lessor.Lookup(id) != nil
}

// endOf returns the end of a range to delete in the notation of mvcc, where an empty but not nil end stands for all keys.
func endOf(d *pb.DeleteRangeRequest) []byte {
	if openEnd(d.RangeEnd) {
		return []byte{}
	}
	return d.RangeEnd
}

// holds reports whether c, which comparesValues did not refuse, holds (etcdserver/txn, applyCompare). All numbers of a key that
// does not exist are 0.
func holds(tx mvcc.TxnWrite, c *pb.Compare) bool {
	found, err := tx.Range(context.Background(), c.Key, nil, mvcc.RangeOptions{FastKeysOnly: true})
	if err != nil {
		return false
	}
	var created, modified, version int64
	if len(found.KVs) > 0 {
		created, modified, version = found.KVs[0].CreateRevision, found.KVs[0].ModRevision, found.KVs[0].Version
	}
	var order int
	switch c.Target {
	case pb.Compare_CREATE:
		order = cmp.Compare(created, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(modified, c.GetModRevision())
	default:
		order = cmp.Compare(version, c.GetVersion())
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
