// Package apiwrites makes the requests by which an API server of Kubernetes writes objects to etcd.
package apiwrites

import (
	"fmt"
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	objects  = 20_000
	perLease = 500 // requests for each lease, which the events after it share
	leaseTTL = 3600
)

// Source makes requests, always the same ones: of ten, one creates an event with a lease, about one deletes an object, and the
// others update or create one. Each is a transaction that compares one revision, which always holds.
type Source struct {
	random   *rand.Rand
	made     int
	lease    int64
	revision int64
	held     []int64 // the revision of each object; 0: it does not exist
}

// New returns a Source for a key space at that revision. None of the requests' keys may exist in it.
func New(revision int64) *Source {
	return &Source{random: rand.New(rand.NewPCG(1, 1)), revision: revision, held: make([]int64, objects)}
}

// Revision returns the revision of the key space after the requests that were made.
func (s *Source) Revision() int64 { return s.revision }

// Next returns the next request. It writes value, unless it deletes an object or grants a lease.
func (s *Source) Next(value []byte) *pb.InternalRaftRequest {
	r := &pb.InternalRaftRequest{Header: &pb.RequestHeader{ID: uint64(s.made) + 1<<50}}
	switch n := s.made; {
	case n%perLease == 0:
		s.lease++
		r.LeaseGrant = &pb.LeaseGrantRequest{ID: s.lease, TTL: leaseTTL}
	case n%10 == 1:
		s.revision++
		key := fmt.Appendf(nil, "/registry/events/namespace-%03d/event-%09d", n%100, n)
		r.Txn = ifRevision(key, 0, put(key, value, s.lease))
	default:
		r.Txn = s.object(n%10 == 2, value)
	}
	s.made++
	return r
}

// object returns a transaction that writes or deletes an object.
func (s *Source) object(remove bool, value []byte) *pb.TxnRequest {
	n := s.random.IntN(objects)
	key := fmt.Appendf(nil, "/registry/pods/namespace-%03d/pod-%06d", n%100, n)
	before := s.held[n]
	s.revision++
	s.held[n] = s.revision
	if before == 0 {
		return ifRevision(key, 0, put(key, value, 0))
	}
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
	if remove {
		s.held[n] = 0
		return ifRevision(key, before, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: key}}}, get)
	}
	return ifRevision(key, before, put(key, value, 0), get)
}

// ifRevision returns a transaction that does then if key was last changed at that revision, 0 if it does not exist, and otherwise
// if not.
func ifRevision(key []byte, revision int64, then *pb.RequestOp, otherwise ...*pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: key, Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: revision},
		}},
		Success: []*pb.RequestOp{then}, Failure: otherwise,
	}
}

func put(key, value []byte, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: value, Lease: lease}}}
}
