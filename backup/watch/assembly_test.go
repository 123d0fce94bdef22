package watch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// eventsOf returns a revision with n events.
func eventsOf(revision int64, n int) (events []*mvccpb.Event) {
	for i := range n {
		e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: fmt.Appendf(nil, "%d/%d", revision, i), ModRevision: revision}}
		if (revision+int64(i))%3 == 0 {
			e.Type = mvccpb.Event_DELETE
		} else {
			e.Kv.Value = []byte("value")
		}
		events = append(events, e)
	}
	return events
}

// TestAssembly checks that revisions come out complete, in order and unchanged, however a member cuts them into answers
// and fragments.
func TestAssembly(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		first := random.Int64N(1000) + 1
		a := assembly{next: first}
		var want, got []change
		for revision := first; revision < first+20; {
			var events []*mvccpb.Event
			for range 1 + random.IntN(4) { // revisions in one answer, and each in one alone
				one := eventsOf(revision, 1+random.IntN(5))
				c, err := newChange(revision, one)
				if err != nil {
					t.Fatal(err)
				}
				want, events, revision = append(want, c), append(events, one...), revision+1
			}
			for len(events) > 0 {
				n := 1 + random.IntN(len(events))
				answer := &pb.WatchResponse{Events: events[:n], Fragment: n < len(events)}
				events = events[n:]
				whole, err := a.add(answer)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				got = append(got, whole...)
				if random.IntN(3) == 0 && !answer.Fragment {
					progress := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: revision - 1}}
					_, err := a.add(progress)
					if err != nil {
						t.Fatalf("seed %d: progress: %v", seed, err)
					}
				}
			}
		}
		same := func(a, b change) bool { return a.revision == b.revision && string(a.data) == string(b.data) }
		if !slices.EqualFunc(got, want, same) {
			t.Fatalf("seed %d: %d revisions, want %d, or they differ", seed, len(got), len(want))
		}
	}
}

func TestAssemblyRefuses(t *testing.T) {
	answer := func(fragment bool, events ...*mvccpb.Event) *pb.WatchResponse {
		return &pb.WatchResponse{Events: events, Fragment: fragment}
	}
	for name, c := range map[string]struct {
		answers []*pb.WatchResponse
		whole   int // revisions before the error
		jump    *JumpError
	}{
		"the first is left out":  {[]*pb.WatchResponse{answer(false, eventsOf(6, 1)...)}, 0, &JumpError{5, 5}},
		"one is left out":        {[]*pb.WatchResponse{answer(false, append(eventsOf(5, 2), eventsOf(9, 1)...)...)}, 1, &JumpError{6, 8}},
		"one is told again":      {[]*pb.WatchResponse{answer(false, eventsOf(5, 1)...), answer(false, eventsOf(5, 1)...)}, 1, nil},
		"a piece comes too late": {[]*pb.WatchResponse{answer(false, eventsOf(5, 1)...), answer(true, eventsOf(5, 2)[1:]...)}, 1, nil},
		"it goes back":           {[]*pb.WatchResponse{answer(false, eventsOf(4, 1)...)}, 0, nil},
		"progress is ahead": {[]*pb.WatchResponse{
			answer(false, eventsOf(5, 1)...), {Header: &pb.ResponseHeader{Revision: 6}},
		}, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := assembly{next: 5}
			var whole int
			var err error
			for _, answer := range c.answers {
				if err != nil {
					t.Fatalf("too early: %v", err)
				}
				var changes []change
				changes, err = a.add(answer)
				whole += len(changes)
			}
			jump, _ := errors.AsType[*JumpError](err)
			if err == nil || whole != c.whole || (jump == nil) != (c.jump == nil) || jump != nil && *jump != *c.jump {
				t.Errorf("%d whole revisions, %v; want %d, %v", whole, err, c.whole, c.jump)
			}
		})
	}
}

// TestNewChange checks that one event becomes a request, that several become a transaction in their order, and that
// each lease is listed.
func TestNewChange(t *testing.T) {
	leased := eventsOf(7, 1)
	leased[0].Kv.Lease = 42
	for name, c := range map[string]struct {
		events []*mvccpb.Event
		want   *pb.InternalRaftRequest
		leases []int64
	}{
		"put":      {leased, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("7/0"), Value: []byte("value"), Lease: 42}}, []int64{42}},
		"deletion": {eventsOf(6, 1), &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("6/0")}}, nil},
		"both": {eventsOf(8, 2), &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("8/0"), Value: []byte("value")}}},
			{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("8/1")}}},
		}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newChange(c.events[0].Kv.ModRevision, c.events)
			if err != nil {
				t.Fatal(err)
			}
			var r pb.InternalRaftRequest
			err = proto.Unmarshal(got.data, &r)
			if err != nil || !proto.Equal(&r, c.want) || !slices.Equal(got.leases, c.leases) {
				t.Errorf("%v, leases %v, %v; want %v, %v", &r, got.leases, err, c.want, c.leases)
			}
		})
	}
}
