package replay

import (
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
)

// guessedTTL is the time to live, in seconds, that a lease gets if the log contains only its id.
const guessedTTL = 60

// decodeChange decodes a change from a log of source Watch: the grant of a lease, or puts and deletes of single keys.
func decodeChange(data []byte) (*pb.InternalRaftRequest, error) {
	r, err := decode(data)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Put != nil:
		return r, validPut(r.Put)
	case r.DeleteRange != nil:
		return r, validDelete(r.DeleteRange)
	case r.Txn != nil:
		return r, validTxn(r.Txn)
	case r.LeaseGrant != nil:
		return r, validGrant(r.LeaseGrant)
	}
	return nil, fmt.Errorf("%w: it is neither a put, a delete, a transaction nor a lease's grant", ErrRequest)
}

func validPut(p *pb.PutRequest) error {
	if len(p.Key) == 0 || !directPut(p) || p.PrevKv {
		return fmt.Errorf("%w: a put without a key, or with a result that depends on the old value", ErrRequest)
	}
	return nil
}

func validDelete(d *pb.DeleteRangeRequest) error {
	if len(d.Key) == 0 || len(d.RangeEnd) > 0 || d.PrevKv {
		return fmt.Errorf("%w: a delete of several keys, or with a result that depends on the old value", ErrRequest)
	}
	return nil
}

// validTxn refuses a transaction that cannot be one revision. A key may occur more than once: nested transactions may put a
// key and then delete it.
func validTxn(t *pb.TxnRequest) error {
	if len(t.Success) == 0 || len(t.Compare) > 0 || len(t.Failure) > 0 {
		return fmt.Errorf("%w: a transaction that is empty, or depends on existing keys", ErrRequest)
	}
	deleted := make(map[string]bool, len(t.Success))
	for _, op := range t.Success {
		key, err := validOp(op)
		if err != nil {
			return err
		}
		deletes := op.GetRequestDeleteRange() != nil
		if deletes && deleted[string(key)] {
			return fmt.Errorf("%w: its transaction deletes a key twice", ErrRequest)
		}
		deleted[string(key)] = deletes
	}
	return nil
}

func validOp(op *pb.RequestOp) (key []byte, err error) {
	p := op.GetRequestPut()
	if p != nil {
		return p.Key, validPut(p)
	}
	d := op.GetRequestDeleteRange()
	if d != nil {
		return d.Key, validDelete(d)
	}
	return nil, fmt.Errorf("%w: a transaction with neither a put nor a delete", ErrRequest)
}

func validGrant(g *pb.LeaseGrantRequest) error {
	if g.ID == 0 || g.TTL < 1 || g.TTL > lease.MaxLeaseTTL {
		return fmt.Errorf("%w: its lease has id %d and lives for %d s", ErrRequest, g.ID, g.TTL)
	}
	return nil
}

// nextRevision checks that the revision next of a change follows that of the record before it: no revision is missing, and none
// is made twice. The grants of leases for a revision come before its change, and have the same position.
func (r *run) nextRevision(next uint64) error {
	last := r.seen.position
	begun := last > r.base // last came from the log, not from the database
	switch {
	case last == 0 && next > r.base+1:
		return fmt.Errorf("%w: the log begins with revision %d, the database is at revision %d", ErrForeign, next, r.base)
	case last != 0 && next != last && next != last+1:
		return r.badRecord(r.at.Position, fmt.Errorf("%w: the change at revision %d comes after the one at %d", ErrForeign, next, last))
	case begun && next == last && r.at.Position == last:
		return r.badRecord(last, fmt.Errorf("%w: revision %d is made twice", ErrForeign, next))
	case begun && next != last && r.at.Position != last:
		return r.halfMade(last)
	}
	r.seen.position = next
	return nil
}

// endsWhole returns an error if the log ends with the leases for a revision, without the revision itself.
func (r *run) endsWhole() error {
	last := r.seen.position
	if last > r.at.Position {
		return r.halfMade(last)
	}
	return nil
}

// halfMade returns the error for a revision of which the log contains only the leases.
func (r *run) halfMade(revision uint64) error {
	return r.badRecord(r.at.Position, fmt.Errorf("%w: of revision %d there are the leases alone", ErrForeign, revision))
}

// change makes one revision. It bypasses the applier: the log contains only changes that passed authentication, alarms and the
// quota. It writes all of the revision or nothing.
func (r *run) change(position uint64, request *pb.InternalRaftRequest) error {
	ops := opsOf(request)
	for _, op := range ops {
		p := op.GetRequestPut()
		if p != nil {
			err := r.grantMissing(p)
			if err != nil {
				return err
			}
		}
	}
	if !r.changeAll(ops) {
		return &MismatchError{Position: position, Absent: true, Last: r.held}
	}
	return nil
}

// opsOf returns the operations of a put, a delete, or the success of a transaction, in order.
func opsOf(request *pb.InternalRaftRequest) []*pb.RequestOp {
	switch {
	case request.Put != nil:
		return []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: request.Put}}}
	case request.DeleteRange != nil:
		return []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: request.DeleteRange}}}
	}
	return request.Txn.GetSuccess()
}

// changeAll makes one revision with sub-revisions in the order of ops. It returns false and changes nothing if a key to delete
// does not exist.
func (m *member) changeAll(ops []*pb.RequestOp) bool {
	if !m.canDelete(ops) {
		return false
	}
	m.write(ops)
	m.chooseKeys()
	return true
}

// canDelete reports whether each key exists when its delete in ops is reached: in the key space, or put by an earlier op.
func (m *member) canDelete(ops []*pb.RequestOp) bool {
	if !slices.ContainsFunc(ops, func(op *pb.RequestOp) bool { return op.GetRequestDeleteRange() != nil }) {
		return true
	}
	present := make(map[string]bool, len(ops)) // whether a key exists after the earlier ops; only keys that they changed
	for _, op := range ops {
		p := op.GetRequestPut()
		if p != nil {
			present[string(p.Key)] = true
			continue
		}
		key := op.GetRequestDeleteRange().Key
		exists, changed := present[string(key)]
		if !changed {
			_, exists = m.keys.find(key)
		}
		if !exists {
			return false
		}
		present[string(key)] = false
	}
	return true
}

// grant grants a lease. It does nothing if the lease exists: the log repeats a grant wherever the lease may be missing. But an
// existing lease without keys and with another time to live is an older lease with the same id, whose end the watch could not
// see: grant replaces it.
func (m *member) grant(g *pb.LeaseGrantRequest) error {
	id := lease.LeaseID(g.ID)
	held := m.lessor.Lookup(id)
	if held != nil {
		if held.TTL() == max(g.TTL, minTTL) || len(held.Keys()) > 0 {
			return nil
		}
		err := m.lessor.Revoke(id)
		if err != nil {
			return fmt.Errorf("revoke lease %016x, which has no keys: %w", g.ID, err)
		}
	}
	_, err := m.lessor.Grant(id, g.TTL)
	if err != nil {
		return fmt.Errorf("grant lease %016x: %w", g.ID, err)
	}
	return nil
}

// grantMissing grants the lease of a put for guessedTTL if it does not exist: the key space panics on an unknown lease.
func (r *run) grantMissing(p *pb.PutRequest) error {
	if p.Lease == 0 || r.lessor.Lookup(lease.LeaseID(p.Lease)) != nil {
		return nil
	}
	r.at.GuessedLeases++
	return r.grant(&pb.LeaseGrantRequest{ID: p.Lease, TTL: guessedTTL})
}

// compactTo compacts the key space to the revision that a log of source Watch names. It does nothing if the key space is
// already compacted that far.
func (r *run) compactTo(revision int64) error {
	if revision <= r.at.CompactRevision {
		return nil
	}
	err := r.compact(revision)
	if err != nil {
		return fmt.Errorf("%w: at revision %d it is compacted to %d: %w", ErrForeign, r.at.Revision, revision, err)
	}
	_, r.at.CompactRevision = r.keys.revisions()
	return nil
}
