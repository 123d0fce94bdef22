package replay_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/database"
)

// TestPlainRequests checks that requests leave the same database whether they are plain, or within another transaction, which
// leaves them to etcd's applier.
func TestPlainRequests(t *testing.T) {
	base := makeBase(t, smallBase)
	start := apply(t, copyOf(t, base), inSegments(nil), replay.Stop{})
	seeds, count := uint64(40), 400
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := guess{rand.New(rand.NewPCG(seed, 3)), start.Revision}
			var plain, nested []segment.Record
			for i := range count {
				r := random.request()
				plain = append(plain, request(t, uint64(i)+2, 1, r))
				nested = append(nested, request(t, uint64(i)+2, 1, within(r)))
			}
			a, b := copyOf(t, base), copyOf(t, base)
			atA, atB := apply(t, a, inSegments(plain), replay.Stop{}), apply(t, b, inSegments(nested), replay.Stop{})
			if atA != atB || atA.Revision < start.Revision+int64(count)/4 {
				t.Errorf("plain %+v, nested %+v", atA, atB)
			}
			same(t, "plain and nested", a, b, database.Exempt{})
			sameHash(t, a, b)
		})
	}
}

// within returns r within another transaction, if it can be in one.
func within(r *pb.InternalRaftRequest) *pb.InternalRaftRequest {
	t := r.Txn
	switch {
	case r.Put != nil:
		t = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r.Put}}}}
	case r.DeleteRange != nil:
		t = &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r.DeleteRange}}}}
	case t == nil:
		return r
	}
	return &pb.InternalRaftRequest{
		Header: r.Header, Txn: &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: t}}}},
	}
}

// guess makes random requests for few keys, leases and revisions, so that many of them meet.
type guess struct {
	*rand.Rand
	revision int64 // about the newest
}

func (g *guess) request() *pb.InternalRaftRequest {
	r := &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: g.Uint64()}}
	switch n := g.IntN(40); {
	case n < 3:
		r.LeaseGrant = &pb.LeaseGrantRequest{ID: g.lease(1), TTL: 100}
	case n == 3:
		r.LeaseRevoke = &pb.LeaseRevokeRequest{ID: g.lease(1)}
	case n == 4:
		r.Compaction = &pb.CompactionRequest{Revision: g.near()}
	case n < 12:
		r.Put = g.put()
	case n < 16:
		r.DeleteRange = g.delete()
	default:
		r.Txn = g.txn(2)
	}
	g.revision++
	return r
}

func (g *guess) key() []byte { return fmt.Appendf(nil, "key/%d", g.IntN(8)) }

func (g *guess) end() []byte {
	return [][]byte{nil, nil, nil, nil, nil, {}, {0}, []byte("key/5"), []byte("key0")}[g.IntN(9)]
}

func (g *guess) lease(lowest int64) int64 { return lowest + g.Int64N(6) }

// near returns a revision that may exist.
func (g *guess) near() int64 { return g.revision - g.Int64N(200) }

func (g *guess) rarely() bool { return g.IntN(20) == 0 }

func (g *guess) put() *pb.PutRequest {
	p := &pb.PutRequest{Key: g.key(), Value: fmt.Append(nil, g.IntN(3)), PrevKv: g.rarely(), IgnoreLease: g.rarely()}
	if g.IntN(3) == 0 && !p.IgnoreLease {
		p.Lease = g.lease(0)
	}
	if g.rarely() {
		p.Value, p.IgnoreValue = nil, true
	}
	return p
}

func (g *guess) delete() *pb.DeleteRangeRequest {
	d := &pb.DeleteRangeRequest{Key: g.key(), PrevKv: g.rarely()}
	if g.rarely() {
		d.RangeEnd = g.end()
	}
	return d
}

// txn returns a transaction with others in it, up to a depth.
func (g *guess) txn(depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range g.IntN(3) {
		t.Compare = append(t.Compare, g.compare())
	}
	for range g.IntN(4) {
		t.Success = append(t.Success, g.op(depth))
	}
	for range g.IntN(3) {
		t.Failure = append(t.Failure, g.op(depth))
	}
	return t
}

func (g *guess) op(depth int) *pb.RequestOp {
	switch n := g.IntN(20); {
	case n < 10:
		p := g.put()
		p.IgnoreValue, p.IgnoreLease = false, false // a member panics if the same transaction has deleted the key
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: p}}
	case n < 15:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: g.delete()}}
	case n == 15 && depth > 0:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: g.txn(depth - 1)}}
	}
	r := &pb.RangeRequest{Key: g.key(), RangeEnd: g.end()}
	if g.rarely() {
		r.Revision = g.near()
	}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func (g *guess) compare() *pb.Compare {
	c := &pb.Compare{
		Key: g.key(), Target: pb.Compare_CompareTarget(g.IntN(5)), Result: pb.Compare_CompareResult(g.IntN(4)),
	}
	if g.IntN(4) == 0 {
		c.RangeEnd = g.end()
	}
	target := c.Target
	if g.rarely() { // a value for another target counts as none
		target = pb.Compare_CompareTarget(g.IntN(5))
	}
	switch target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: g.Int64N(4)}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: g.near()}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: g.near()}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: fmt.Append(nil, g.IntN(3))}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: g.lease(0)}
	}
	return c
}

// A request is accepted only if protobuf knows all of it.
func FuzzRequest(f *testing.F) {
	random := guess{rand.New(rand.NewPCG(1, 4)), 100}
	for range 40 {
		f.Add(request(f, 1, 1, random.request()).Data)
	}
	f.Add(field(4, append(field(1, []byte("key")), field(99, nil)...)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := replay.Decode(data)
		whole := &pb.InternalRaftRequest{}
		known := proto.Unmarshal(data, whole) == nil && unknownPart(whole) == ""
		if err != nil {
			return
		}
		if !known || !proto.Equal(r, whole) {
			t.Errorf("accepted %q, of which %s is unknown", data, unknownPart(whole))
		}
	})
}

// unknownPart returns the path to an unknown field or value in m; "" if there is none.
func unknownPart(m proto.Message) (path string) {
	err := protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		last := at.Index(-1)
		if last.Step.Kind() == protopath.UnknownAccessStep {
			path = at.Path.String()
		}
		if last.Step.Kind() == protopath.FieldAccessStep {
			field := last.Step.FieldDescriptor()
			if field.Enum() != nil && !field.IsList() && field.Enum().Values().ByNumber(last.Value.Enum()) == nil {
				path = at.Path.String()
			}
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	return path
}
