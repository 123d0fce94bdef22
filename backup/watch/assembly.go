package watch

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// assembly collects the events of one revision, which a member sends in one answer or in several fragments of one.
type assembly struct {
	next   int64           // the revision of events or, if there are none, of the next event
	events []*mvccpb.Event // collected so far
}

// errProgress means that the member reports progress past a revision that it has not sent.
var errProgress = errors.New("the watch lacks revisions that the member reports as sent")

// add adds an answer and returns the revisions that are complete now. They are valid even with an error.
func (a *assembly) add(answer *pb.WatchResponse) (whole []change, err error) {
	for _, event := range answer.Events {
		revision := event.Kv.GetModRevision()
		if len(a.events) > 0 && revision != a.next {
			whole, err = a.close(whole)
			if err != nil {
				return whole, err
			}
		}
		if revision > a.next {
			return whole, &JumpError{From: a.next, To: revision - 1}
		}
		if revision < a.next {
			return whole, fmt.Errorf("the watch has sent revision %d again, after revision %d", revision, a.next-1)
		}
		a.events = append(a.events, event)
	}
	if answer.Fragment {
		return whole, nil
	}
	if len(a.events) > 0 {
		return a.close(whole)
	}
	progress := answer.Header.GetRevision()
	if len(answer.Events) == 0 && !answer.Created && progress >= a.next {
		return whole, fmt.Errorf("%w: revision %d, and revision %d is still to come", errProgress, progress, a.next)
	}
	return whole, nil
}

// close appends the collected revision to whole, and begins the next one.
func (a *assembly) close(whole []change) ([]change, error) {
	c, err := newChange(a.next, a.events)
	if err != nil {
		return whole, err
	}
	a.next, a.events = a.next+1, nil
	return append(whole, c), nil
}

// newChange encodes events as the request that would cause them: one put, one deletion, or a transaction of several.
func newChange(revision int64, events []*mvccpb.Event) (change, error) {
	c := change{revision: revision}
	for _, e := range events {
		id, n := e.Kv.Lease, len(c.leases)
		if e.Type == mvccpb.Event_PUT && id != 0 && (n == 0 || c.leases[n-1] != id) {
			c.leases = append(c.leases, id)
		}
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(request(events))
	if err != nil {
		return change{}, fmt.Errorf("encode revision %d: %w", revision, err)
	}
	c.data = data
	return c, nil
}

func request(events []*mvccpb.Event) *pb.InternalRaftRequest {
	if len(events) == 1 {
		e := events[0]
		if e.Type == mvccpb.Event_DELETE {
			return &pb.InternalRaftRequest{DeleteRange: deletion(e.Kv)}
		}
		return &pb.InternalRaftRequest{Put: put(events[0].Kv)}
	}
	ops := make([]*pb.RequestOp, len(events))
	for i, e := range events {
		if e.Type == mvccpb.Event_DELETE {
			ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: deletion(e.Kv)}}
		} else {
			ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put(e.Kv)}}
		}
	}
	return &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: ops}}
}

func put(kv *mvccpb.KeyValue) *pb.PutRequest {
	return &pb.PutRequest{Key: kv.Key, Value: kv.Value, Lease: kv.Lease}
}

func deletion(kv *mvccpb.KeyValue) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: kv.Key}
}
