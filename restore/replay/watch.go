package replay

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-dr/etcd-dr/storage/segment"
)

// Keys is one key or a range of keys, in the notation of etcd's requests.
type Keys struct {
	From []byte `json:"from"`         // the first key
	To   []byte `json:"to,omitempty"` // the first key after them; empty: From alone; a zero byte: all keys from From on
}

// Watch receives every change of some keys during a replay.
type Watch struct {
	Keys
	// Tell is called for each change, in order. The Change is valid until Tell returns. An error ends the replay.
	Tell func(Change) error
}

// Change is the change of one key by one request.
type Change struct {
	Position uint64           // of the request
	Revision mvcc.Revision    // made by the request; Sub counts the changes of one request
	Deleted  bool             // false: the key was put
	KV       *mvccpb.KeyValue // after the change; only the key if it was deleted
	Request  RequestKind      // the request's kind
	Keys     int              // the number of changes that the request made, of watched keys or not
}

// RequestKind is the kind of request that changed a key.
type RequestKind string

// The kinds of requests that change keys. The log does not distinguish an expired lease from a revoked one.
//
// A log of source Watch contains no requests: ByPut, ByDelete and ByTxn then name the changes of one revision, whatever
// request made them.
const (
	ByPut    RequestKind = "put"
	ByDelete RequestKind = "delete"
	ByRange  RequestKind = "delete of a range"
	ByTxn    RequestKind = "transaction"
	ByLease  RequestKind = "end of a lease"

	// Only in a log of source Watch.
	ByDeletes       RequestKind = "delete of several keys"   // by a range or one by one
	ByDeleteOrLease RequestKind = "delete or end of a lease" // the deleted keys are exactly those of one lease
)

// Has reports whether k contains key.
func (k Keys) Has(key []byte) bool {
	if len(k.To) == 0 {
		return bytes.Equal(key, k.From)
	}
	return bytes.Compare(key, k.From) >= 0 && (openEnd(k.To) || bytes.Compare(key, k.To) < 0)
}

// meet reports whether some key is in both k and other.
func (k Keys) meet(other Keys) bool {
	switch {
	case len(other.To) == 0:
		return k.Has(other.From)
	case len(k.To) == 0:
		return other.Has(k.From)
	}
	return (openEnd(other.To) || bytes.Compare(k.From, other.To) < 0) &&
		(openEnd(k.To) || bytes.Compare(other.From, k.To) < 0)
}

// openEnd reports whether the end of a range means all following keys.
func openEnd(to []byte) bool { return len(to) == 1 && to[0] == 0 }

// touches returns the kind of a request that may change a key in k, and "" for any other. It must be called before the request
// is applied: afterwards the keys of a lease are unknown.
func (m *member) touches(k Keys, r *pb.InternalRaftRequest) RequestKind {
	switch {
	case r.Put != nil && k.Has(r.Put.Key):
		return ByPut
	case r.DeleteRange != nil && k.meet(Keys{r.DeleteRange.Key, r.DeleteRange.RangeEnd}):
		if len(r.DeleteRange.RangeEnd) > 0 {
			return ByRange
		}
		return ByDelete
	case r.Txn != nil && k.inTxn(r.Txn):
		return ByTxn
	case r.LeaseRevoke != nil && m.onLease(k, lease.LeaseID(r.LeaseRevoke.ID)):
		return ByLease
	}
	return ""
}

// kindOf returns the kind of a change from a watch that touches watched keys. It refines kind for deletes, which may come from
// a lease.
func (m *member) kindOf(change *pb.InternalRaftRequest, kind RequestKind) RequestKind {
	ops := opsOf(change)
	on := map[lease.LeaseID]bool{} // the leases of the deleted keys
	for _, op := range ops {
		d := op.GetRequestDeleteRange()
		if d == nil {
			return kind
		}
		on[m.lessor.GetLease(lease.LeaseItem{Key: string(d.Key)})] = true
	}
	for id := range on {
		held := m.lessor.Lookup(id)
		if len(on) == 1 && held != nil && len(held.Keys()) == len(ops) {
			return ByDeleteOrLease
		}
	}
	if len(ops) > 1 {
		return ByDeletes
	}
	return kind
}

func (k Keys) inTxn(t *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			if k.inOp(op) {
				return true
			}
		}
	}
	return false
}

func (k Keys) inOp(op *pb.RequestOp) bool {
	p := op.GetRequestPut()
	if p != nil {
		return k.Has(p.Key)
	}
	d := op.GetRequestDeleteRange()
	if d != nil {
		return k.meet(Keys{d.Key, d.RangeEnd})
	}
	t := op.GetRequestTxn()
	if t != nil {
		return k.inTxn(t)
	}
	return false
}

// onLease reports whether the lease has a key in k.
func (m *member) onLease(k Keys, id lease.LeaseID) bool {
	held := m.lessor.Lookup(id)
	if held == nil {
		return false
	}
	for _, key := range held.Keys() {
		if k.Has([]byte(key)) {
			return true
		}
	}
	return false
}

// applyWatched applies one request and reports its changes of the watched keys.
func (r *run) applyWatched(at place, request *pb.InternalRaftRequest) error {
	if r.watch == nil {
		return r.applyOne(at, request)
	}
	kind := r.touches(r.watch.Keys, request)
	if r.source == segment.Watch && kind != "" {
		kind = r.kindOf(request, kind)
	}
	err := r.applyOne(at, request)
	if err != nil || kind == "" {
		return err
	}
	newest, _ := r.keys.revisions()
	if newest == r.at.Revision { // the request changed nothing, or was refused
		return nil
	}
	return r.tell(at, newest, kind)
}

func (r *run) applyOne(at place, request *pb.InternalRaftRequest) error {
	if r.source == segment.Watch {
		return r.change(at.position, request)
	}
	r.apply(at, request)
	return nil
}

// tell calls Tell for each change of a watched key in a revision.
func (r *run) tell(at place, revision int64, kind RequestKind) error {
	keys, values := r.made(revision)
	for i, key := range keys {
		kv := &mvccpb.KeyValue{}
		err := proto.Unmarshal(values[i], kv)
		if err != nil {
			return fmt.Errorf("read revision %d back: %w", revision, err)
		}
		if !r.watch.Has(kv.Key) {
			continue
		}
		err = r.watch.Tell(Change{
			Position: at.position, Revision: mvcc.BytesToRev(key), Deleted: mvcc.IsTombstone(key),
			KV: kv, Request: kind, Keys: len(keys),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// made returns the keys and values of a revision. It uses a read transaction, which sees them as soon as the request is applied:
// a write transaction would sort all uncommitted changes when it is unlocked.
func (m *member) made(revision int64) (keys, values [][]byte) {
	from := mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
	to := mvcc.RevToBytes(mvcc.Revision{Main: revision + 1}, mvcc.NewRevBytes())
	tx := m.be.ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	return tx.UnsafeRange(schema.Key, from, to, 0)
}
