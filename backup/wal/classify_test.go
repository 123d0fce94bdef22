package wal_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/etcd-dr/etcd-dr/backup/wal"
	"github.com/etcd-dr/etcd-dr/storage/segment"
)

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	ok(t, err)
	return data
}

// v2 returns a request of etcd's first interface as 3.4 and 3.5 marshal it, with every field.
func v2(method, path string) []byte {
	data := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	for number, text := range map[protowire.Number]string{2: method, 3: path, 4: "value", 6: ""} {
		data = protowire.AppendString(protowire.AppendTag(data, number, protowire.BytesType), text)
	}
	for _, number := range []protowire.Number{5, 7, 9, 10, 11, 12, 13, 14, 15, 16} {
		data = protowire.AppendVarint(protowire.AppendTag(data, number, protowire.VarintType), 0)
	}
	return data
}

func field(data []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(data, number, protowire.BytesType), value)
}

func TestWhichEntriesAreRequests(t *testing.T) {
	header := &pb.RequestHeader{ID: 9, Username: "u", AuthRevision: 3}
	putData := marshal(t, &pb.InternalRaftRequest{Header: header, ID: 9, Put: &pb.PutRequest{Key: []byte("k")}})
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}}}}
	request := func(r *pb.InternalRaftRequest) []byte { r.Header = header; return marshal(t, r) }
	strange := field(marshal(t, &pb.PutRequest{Key: []byte("k")}), 99, []byte("new"))
	for name, c := range map[string]struct {
		data    []byte
		kind    raftpb.EntryType
		request bool
		fails   string
	}{
		"put":           {data: putData, request: true},
		"txn":           {data: request(&pb.InternalRaftRequest{Txn: txn}), request: true},
		"raise alarm":   {data: request(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE}}), request: true},
		"auth enable":   {data: request(&pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}}), request: true},
		"checkpoint":    {data: request(&pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{{ID: 1}}}}), request: true},
		"ask for alarm": {data: request(&pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{}})},
		"range":         {data: request(&pb.InternalRaftRequest{Range: &pb.RangeRequest{Key: []byte("k")}})},
		"login":         {data: request(&pb.InternalRaftRequest{Authenticate: &pb.InternalAuthenticateRequest{Name: "n"}})},
		"auth status":   {data: request(&pb.InternalRaftRequest{AuthStatus: &pb.AuthStatusRequest{}})},
		"user list":     {data: request(&pb.InternalRaftRequest{AuthUserList: &pb.AuthUserListRequest{}})},
		"version":       {data: request(&pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: "3.6.0"}})},
		"downgrade":     {data: request(&pb.InternalRaftRequest{DowngradeInfoSet: &membershippb.DowngradeInfoSetRequest{Enabled: true}})},
		"empty":         {},
		"conf change":   {data: []byte{1}, kind: raftpb.EntryConfChange},
		"conf change 2": {data: []byte{1}, kind: raftpb.EntryConfChangeV2},
		"v2 attributes": {data: v2("PUT", "/0/members/8e9e05c52164694d/attributes")},
		"v2 version":    {data: v2("PUT", "/0/version")},
		"v2 wrapped":    {data: field(nil, 2, v2("PUT", "/0/version"))},

		"v2 data":             {data: v2("PUT", "/1/key"), fails: "/1/key"},
		"v2 data wrapped":     {data: field(nil, 2, v2("PUT", "/1/key")), fails: "/1/key"},
		"v2 delete":           {data: v2("DELETE", "/0/version"), fails: "DELETE"},
		"v2 broken":           {data: field(nil, 2, []byte{0xff}), fails: "field 2"},
		"unknown request":     {data: field(marshal(t, &pb.InternalRaftRequest{ID: 4}), 1400, nil), fails: "1400"},
		"unknown beside put":  {data: field(putData, 1400, nil), fails: "1400"},
		"unknown in put":      {data: field(nil, 4, strange), fails: "PutRequest has no field 99"},
		"unknown deep in txn": {data: field(nil, 6, field(nil, 2, field(nil, 2, strange))), fails: "PutRequest has no field 99"},
		"unknown in header":   {data: field(putData, 100, field(nil, 9, nil)), fails: "RequestHeader has no field 9"},
		"wrong wire type":     {data: protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 1), fails: "field 4"},
		"two requests":        {data: marshal(t, &pb.InternalRaftRequest{Put: &pb.PutRequest{}, Txn: txn}), fails: "second request"},
		"twice the same":      {data: append(putData[:len(putData):len(putData)], field(nil, 4, nil)...), fails: "second request"},
		"no request":          {data: marshal(t, &pb.InternalRaftRequest{ID: 4}), fails: "no request"},
		"no message":          {data: []byte{0xff}, fails: "not a protobuf message"},
		"unknown type":        {data: putData, kind: 7, fails: "type of raft entry"},
	} {
		t.Run(name, func(t *testing.T) {
			j := fresh(t)
			e := entry(2, 2, c.data)
			e.Type = &c.kind
			j.save(2, 3, put(1, 2, "a"), e, put(3, 2, "a"))
			l := opened(t, j.dir, segment.End{})
			readAll(t, l)
			got, end, err := takeAll(t, l)
			if c.fails != "" {
				if !errors.Is(err, wal.ErrEntry) || !strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), "position 2") || end.Position != 1 {
					t.Errorf("got %v behind %d, want one about %q", err, end.Position, c.fails)
				}
				return
			}
			ok(t, err)
			came := len(got) == 3
			if came != c.request || end.Position != 3 {
				t.Errorf("%d requests came up to %d, want it to be one: %t", len(got), end.Position, c.request)
			}
		})
	}
}

// TestRequestsThatCannotBeReplayed checks that a request with a value that no replay applies is a gap of one position.
func TestRequestsThatCannotBeReplayed(t *testing.T) {
	compare := func(c *pb.Compare) []byte {
		return marshal(t, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Compare: []*pb.Compare{c}}})
	}
	nested := &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k"), Target: -1}}}
	for name, data := range map[string][]byte{
		"result": compare(&pb.Compare{Key: []byte("k"), Result: 7}),
		"nested": marshal(t, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestTxn{RequestTxn: nested}},
		}}}),
		"alarm":  marshal(t, &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: 9}}),
		"string": field(nil, 1200, field(nil, 1, []byte("x\xff"))), // adds a role
	} {
		t.Run(name, func(t *testing.T) {
			j := fresh(t)
			j.save(2, 5, put(1, 2, "a"), entry(2, 2, data), put(3, 2, "a"), entry(4, 2, data), put(5, 2, "a"))
			l := opened(t, j.dir, segment.End{})
			wantGap(t, l, 2, 2)
			wantGap(t, opened(t, j.dir, endOf(put(1, 2, "a"))), 2, 2)
			l.Resume(3)
			wantGap(t, l, 4, 4)
			l.Resume(4) // a log that may begin anywhere begins after the request
			mustTake(t, l, put(5, 2, "a"))
		})
	}
}

func TestHoldsPassword(t *testing.T) {
	for name, c := range map[string]struct {
		request *pb.InternalRaftRequest
		want    bool
	}{
		"user with a password": {&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "n", Password: "p"}}, true},
		"password changed":     {&pb.InternalRaftRequest{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: "n", Password: "p"}}, true},
		"its hash":             {&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "n", HashedPassword: "h"}}, false},
		"no password":          {&pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: "n"}}, false},
		"a put":                {&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("k"), Value: []byte("p")}}, false},
	} {
		got := wal.HoldsPassword(marshal(t, c.request))
		if got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
