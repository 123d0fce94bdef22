package replay_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-dr/etcd-dr/restore/replay"
	"github.com/etcd-dr/etcd-dr/storage/segment"
	"github.com/etcd-dr/etcd-dr/test/apiwrites"
	"github.com/etcd-dr/etcd-dr/test/database"
)

// TestDirectRequests replays random requests twice: as they are, and each within a transaction of its own. Nested transactions
// are never direct, so that etcd's applier applies them. Both databases must be the same.
func TestDirectRequests(t *testing.T) {
	base := makeBase(t, smallBase)
	start := apply(t, copyOf(t, base), inSegments(nil), replay.Stop{})
	seeds, count := uint64(40), 400
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := newGuess(seed, 3, 8, start.Revision)
			var direct, nested []segment.Record
			for i := range count {
				r := random.request()
				direct = append(direct, request(t, uint64(i)+2, 1, r))
				nested = append(nested, request(t, uint64(i)+2, 1, within(r)))
			}
			a, b := copyOf(t, base), copyOf(t, base)
			atA := apply(t, a, inSegments(direct), replay.Stop{})
			var atB replay.At
			for _, part := range []int{count / 3, count / 2, count} { // each begins with an index that is read from the database
				atB = apply(t, b, inSegments(nested[:part]), replay.Stop{})
			}
			placeA, _, errA := database.Place(a)
			placeB, _, errB := database.Place(b)
			if placeA != placeB || errors.Join(errA, errB) != nil {
				t.Errorf("direct at %d, nested at %d: %v", placeA, placeB, errors.Join(errA, errB))
			}
			if atA.Revision != atB.Revision || atA.CompactRevision != atB.CompactRevision || atA.Revision < start.Revision+20 {
				t.Errorf("direct %+v, nested %+v", atA, atB)
			}
			same(t, "direct and nested", a, b, database.Exempt{})
			sameHash(t, a, b)
		})
	}
}

// putsAfterDelete reports whether t may delete a key and then put it again.
func putsAfterDelete(t *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		deletes := false
		for _, op := range ops {
			if deletes && op.GetRequestPut() != nil {
				return true
			}
			deletes = deletes || op.GetRequestDeleteRange() != nil
		}
	}
	return false
}

// directRequest makes random requests that an index can serve. Unless replaces is set, none may delete a key and put it again: after such a
// revision etcd's store serves all requests.
func (g *guess) directRequest(replaces bool) *pb.InternalRaftRequest {
	r := g.anyDirectRequest()
	for !replaces && putsAfterDelete(r.Txn) {
		r = g.anyDirectRequest()
	}
	return r
}

func (g *guess) anyDirectRequest() *pb.InternalRaftRequest {
	r, n := g.begin()
	switch {
	case n < 4:
	case n == 4:
		r.LeaseCheckpoint = &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: g.lease(1), Remaining_TTL: g.Int64N(100)}}}
	case n == 6 && g.rarely():
		r.Alarm = &pb.AlarmRequest{Action: pb.AlarmRequest_GET}
	case n == 5:
		made := g.revision - g.first // about half of the requests make a revision
		r.Compaction = &pb.CompactionRequest{Revision: g.first + made/3 + g.Int64N(made/3+1)}
	case n < 20:
		r.Put = g.put()
		r.Put.IgnoreValue, r.Put.IgnoreLease = false, false
	case n < 26:
		r.DeleteRange = g.delete()
	default:
		for r.Txn = g.txn(0); !replay.Direct(r); r.Txn = g.txn(0) {
		}
	}
	g.revision++
	return r
}

// within returns r within another transaction; or r itself, if it is not a put, a delete or a transaction.
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

// guess makes random requests. It uses so few keys, leases and revisions that many requests depend on earlier ones.
type guess struct {
	*rand.Rand
	keys     int
	first    int64 // the newest before the first request
	revision int64 // an estimate of the newest
}

// newGuess returns a guess with two seeds. revision is the newest before the first request.
func newGuess(seed, stream uint64, keys int, revision int64) *guess {
	return &guess{rand.New(rand.NewPCG(seed, stream)), keys, revision, revision}
}

func (g *guess) request() *pb.InternalRaftRequest {
	r, n := g.begin()
	switch {
	case n < 4:
	case n == 4:
		r.Compaction = &pb.CompactionRequest{Revision: g.near()}
	case n == 5:
		r.Alarm = &pb.AlarmRequest{MemberID: 1, Alarm: pb.AlarmType_NOSPACE, Action: pb.AlarmRequest_ACTIVATE}
		if g.rarely() {
			r.Alarm.Alarm = pb.AlarmType_CORRUPT
		}
	case n < 8:
		r.Alarm = &pb.AlarmRequest{MemberID: 1, Alarm: pb.AlarmType(1 + g.IntN(2)), Action: pb.AlarmRequest_DEACTIVATE}
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

// begin returns a new request and a random number below 40. If n is below 4, the request is complete.
func (g *guess) begin() (r *pb.InternalRaftRequest, n int) {
	r, n = &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: g.Uint64()}}, g.IntN(40)
	switch {
	case n < 3:
		r.LeaseGrant = &pb.LeaseGrantRequest{ID: g.lease(1), TTL: 100}
	case n == 3:
		r.LeaseRevoke = &pb.LeaseRevokeRequest{ID: g.lease(1)}
	}
	return r, n
}

func (g *guess) key() []byte { return fmt.Appendf(nil, "key/%d", g.IntN(g.keys)) }

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
	if g.rarely() { // etcd then compares with 0, or with an empty value
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

// TestAnAPIServersWritesAreDirect checks that an index can serve them.
func TestAnAPIServersWritesAreDirect(t *testing.T) {
	source := apiwrites.New(100)
	for range 1000 {
		r := source.Next(nil)
		if !replay.Direct(r) {
			t.Fatalf("not direct: %v", r)
		}
	}
}
