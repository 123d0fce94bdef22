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

// Keys are one key or a range of them, as etcd's own requests say it.
type Keys struct {
	From []byte `json:"from"`         // the first key
	To   []byte `json:"to,omitempty"` // the first key behind them; empty: From alone, a zero byte: all from From on
}

// Watch is told of every change of some keys that a replay makes.
type Watch struct {
	Keys
	// Tell gets the changes in the order in which they were made. What a Change holds is good until it returns. An error
	// ends the replay.
	Tell func(Change) error
}

// Change is what one request did to one key.
type Change struct {
	Position uint64           // of the request
	Revision mvcc.Revision    // that it made; Sub counts the changes of one request
	Deleted  bool             // else it was put
	KV       *mvccpb.KeyValue // as it is afterwards; of a deleted key the key alone
	Request  RequestKind      // what asked for it
	Keys     int              // how many changes of any keys the request made
}

// RequestKind says which kind of request changed a key.
type RequestKind string

// The kinds of requests that change keys. A lease that has run out and one that was revoked look the same in the log.
//
// A log from a watch has no requests: ByPut, ByDelete and ByTxn then say what was changed at once, whatever asked for it.
const (
	ByPut    RequestKind = "put"
	ByDelete RequestKind = "delete"
	ByRange  RequestKind = "delete of a range"
	ByTxn    RequestKind = "transaction"
	ByLease  RequestKind = "end of a lease"

	// Only from a watch.
	ByDeletes       RequestKind = "delete of several keys"   // by a range or one by one
	ByDeleteOrLease RequestKind = "delete or end of a lease" // the keys deleted are those that were on one lease
)

// Has reports whether a key is one of them.
func (k Keys) Has(key []byte) bool {
	if len(k.To) == 0 {
		return bytes.Equal(key, k.From)
	}
	return bytes.Compare(key, k.From) >= 0 && (openEnd(k.To) || bytes.Compare(key, k.To) < 0)
}

// meet reports whether a key is in both.
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

// openEnd is how requests say "and all behind it".
func openEnd(to []byte) bool { return len(to) == 1 && to[0] == 0 }

// touches names the kind of a request that may change a watched key, and "" for any other. It is asked before the
// request is applied: afterwards nobody knows what hung on a lease.
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

// kindOf says more of a change from a watch that touches watched keys: what its deletes may have come from.
func (m *member) kindOf(change *pb.InternalRaftRequest, kind RequestKind) RequestKind {
	ops := opsOf(change)
	on := map[lease.LeaseID]bool{}
	for _, op := range ops {
		d := op.GetRequestDeleteRange()
		if d == nil {
			return kind
		}
		on[m.lessor.GetLease(lease.LeaseItem{Key: string(d.Key)})] = true
	}
	for id := range on {
		if held := m.lessor.Lookup(id); len(on) == 1 && held != nil && len(held.Keys()) == len(ops) {
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
	if p := op.GetRequestPut(); p != nil {
		return k.Has(p.Key)
	}
	if d := op.GetRequestDeleteRange(); d != nil {
		return k.meet(Keys{d.Key, d.RangeEnd})
	}
	if t := op.GetRequestTxn(); t != nil {
		return k.inTxn(t)
	}
	return false
}

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

// applyWatched applies one request, and tells of what it did to the watched keys.
func (r *run) applyWatched(at place, request *pb.InternalRaftRequest) error {
	if r.watch == nil {
		return r.applyOne(at, request)
	}
	kind := r.touches(r.watch.Keys, request)
	if r.source == segment.Watch && kind != "" {
		kind = r.kindOf(request, kind)
	}
	if err := r.applyOne(at, request); err != nil || kind == "" {
		return err
	}
	newest, _ := r.revisions()
	if newest == r.at.Revision { // it changed nothing, or was refused
		return nil
	}
	return r.tell(at, newest, kind)
}

func (r *run) applyOne(at place, request *pb.InternalRaftRequest) error {
	if r.source == segment.Watch {
		return r.change(at.position, request)
	}
	return r.apply(at, request)
}

// tell reads what stands in the database under a revision.
func (r *run) tell(at place, revision int64, kind RequestKind) error {
	keys, values := r.made(revision)
	for i, key := range keys {
		kv := &mvccpb.KeyValue{}
		if err := proto.Unmarshal(values[i], kv); err != nil {
			return fmt.Errorf("read revision %d back: %w", revision, err)
		}
		if !r.watch.Has(kv.Key) {
			continue
		}
		err := r.watch.Tell(Change{
			Position: at.position, Revision: mvcc.BytesToRev(key), Deleted: mvcc.IsTombstone(key),
			KV: kv, Request: kind, Keys: len(keys),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// made is what stands under a revision. It is there for readers since the request was applied; a transaction that writes
// would sort all that is not committed yet when it is unlocked.
func (r *run) made(revision int64) (keys, values [][]byte) {
	from := mvcc.RevToBytes(mvcc.Revision{Main: revision}, mvcc.NewRevBytes())
	to := mvcc.RevToBytes(mvcc.Revision{Main: revision + 1}, mvcc.NewRevBytes())
	tx := r.be.ReadTx()
	tx.RLock()
	defer tx.RUnlock()
	return tx.UnsafeRange(schema.Key, from, to, 0)
}
